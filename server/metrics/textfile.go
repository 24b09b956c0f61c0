package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Textfile reads and verifies the ledgers once and replaces the file at path,
// for the node exporter, whole or not at all. The error names ledgers that could
// not be read; the file is written all the same.
func (m *Metrics) Textfile(ctx context.Context, path string) error {
	m.takeOver(path)
	unread := m.once(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return err
		}
	}
	if err := replace(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the text file: %w", err)
	}
	return unread
}

// takeOver reads when a verification last succeeded from the file that was
// written before, where no checkpoint says so.
func (m *Metrics) takeOver(path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		return
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		m.log.Warn("what the text file says of before is lost", "file", path, "error", err)
	}
	for _, metric := range families[verifyLastSuccess].GetMetric() {
		value := metric.GetGauge().GetValue()
		if len(metric.GetLabel()) != 1 || !(value > 0 && value < math.MaxInt32*4) {
			continue
		}
		for _, w := range m.watches {
			if metric.GetLabel()[0].GetValue() == w.dir && w.verified.LastRun.IsZero() {
				w.verified.LastSuccess = time.UnixMilli(int64(math.Round(value * 1e3)))
			}
		}
	}
}
