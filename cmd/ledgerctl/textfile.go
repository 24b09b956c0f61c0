package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/server/metrics"
)

// textValues are those of "anchor push --textfile", in the order of the file.
var textValues = []string{metrics.AnchorLastRun, metrics.AnchorLastSuccess, metrics.AnchoredSeq, metrics.UnanchoredRecords}

// writeTextfile replaces the file whole or not at all. A run that failed moves
// only the time of the last run: the others are taken over from the file.
func writeTextfile(path, dir string, now time.Time, r *anchor.Result, failed error) error {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	label := `{ledger="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(dir) + `"}`
	values := map[string]string{}
	if old, err := os.ReadFile(path); err == nil {
		for line := range strings.Lines(string(old)) {
			for _, name := range textValues {
				if rest, ok := strings.CutPrefix(line, name+label+" "); ok {
					values[name] = strings.TrimSpace(rest)
				}
			}
		}
	}
	seconds := fmt.Sprintf("%d.%03d", now.Unix(), now.Nanosecond()/1e6)
	values[metrics.AnchorLastRun] = seconds
	if failed == nil {
		values[metrics.AnchorLastSuccess] = seconds
		values[metrics.AnchoredSeq] = fmt.Sprint(r.Head.Seq)
		values[metrics.UnanchoredRecords] = "0"
	}
	var b bytes.Buffer
	for _, name := range textValues {
		if value, ok := values[name]; ok {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s gauge\n%[1]s%[3]s %[4]s\n", name, metrics.Help(name), label, value)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".anchor-")
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
