package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

func desc(name string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, helps[name], append([]string{labelLedger}, labels...), nil)
}

var (
	descCalls             = desc(toolCalls, labelTool, labelOutcome)
	descDenials           = desc(denialsTotal, labelTool, labelReason)
	descInDoubt           = desc(callsInDoubt, labelTool)
	descRecords           = desc(recordsTotal)
	descHead              = desc(headSeq)
	descLastRecord        = desc(lastRecord)
	descReadable          = desc(readable)
	descAnchoredSeq       = desc(AnchoredSeq)
	descUnanchored        = desc(UnanchoredRecords)
	descAnchorLastRun     = desc(AnchorLastRun)
	descAnchorLastSuccess = desc(AnchorLastSuccess)
	descVerifyLastRun     = desc(verifyLastRun)
	descVerifyLastSuccess = desc(verifyLastSuccess)
	descVerdict           = desc(verifyVerdict, labelVerdict)
)

// A collector reads what is new in the ledgers and says what they hold.
type collector struct{ m *Metrics }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descCalls, descDenials, descInDoubt, descRecords, descHead, descLastRecord, descReadable,
		descAnchoredSeq, descUnanchored, descAnchorLastRun, descAnchorLastSuccess} {
		ch <- d
	}
	if c.m.c.VerifyEvery > 0 {
		ch <- descVerifyLastRun
		ch <- descVerifyLastSuccess
		ch <- descVerdict
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	idles := make([]map[ledger.Hash]bool, len(c.m.watches))
	var wg sync.WaitGroup
	for i, w := range c.m.watches {
		wg.Go(func() {
			w.refresh(ctx, c.m.names.Load())
			idles[i] = c.idle(ctx, w)
		})
	}
	wg.Wait()
	for i, w := range c.m.watches {
		idle := idles[i]
		w.mu.Lock()
		l, readable, anchors, verified := w.shown, w.readable && !w.stuck(), w.anchors, w.verified
		w.mu.Unlock()
		s := sender{ch, w.dir}
		if l != nil {
			s.totals(l, idle)
			s.gauge(descUnanchored, float64(l.head-min(l.head, anchors.seq)))
		}
		s.gauge(descReadable, oneIf(readable))
		s.gauge(descAnchoredSeq, float64(anchors.seq))
		s.gauge(descAnchorLastRun, seconds(anchors.tried()))
		s.gauge(descAnchorLastSuccess, seconds(anchors.success()))
		if c.m.c.VerifyEvery > 0 {
			s.verification(verified)
		}
	}
}

// idle are the open intents that no process is at work on; nil where nobody can
// tell. An outcome is written before its call is let go: what nobody is at work
// on, and is open in a reading after that, nobody will close.
func (c collector) idle(ctx context.Context, w *watch) map[ledger.Hash]bool {
	if c.m.c.InFlight == nil {
		return nil
	}
	w.mu.Lock()
	l := w.shown
	w.mu.Unlock()
	idle := map[ledger.Hash]bool{}
	if l == nil {
		return idle
	}
	for _, o := range l.open {
		if !c.m.c.InFlight(w.dir, o.RequestID) {
			idle[o.Sum] = true
		}
	}
	quiet := len(idle) == 0 || w.refresh(ctx, c.m.names.Load())
	w.mu.Lock()
	defer w.mu.Unlock()
	if quiet {
		w.idle = idle
	} else if w.idle == nil {
		return map[ledger.Hash]bool{}
	}
	return w.idle
}

// A sender makes the metrics of one ledger.
type sender struct {
	ch     chan<- prometheus.Metric
	ledger string
}

func (s sender) send(d *prometheus.Desc, t prometheus.ValueType, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, t, value, append([]string{s.ledger}, labels...)...)
}

func (s sender) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.send(d, prometheus.GaugeValue, value, labels...)
}

func (s sender) counter(d *prometheus.Desc, value uint64, labels ...string) {
	s.send(d, prometheus.CounterValue, float64(value), labels...)
}

func (s sender) totals(l *look, idle map[ledger.Hash]bool) {
	doubts := make([]int, len(l.names.list))
	for _, o := range l.open {
		if idle == nil || idle[o.Sum] {
			doubts[l.names.ofCall(o.Name)]++
		}
	}
	for i, tool := range l.names.list {
		for j, outcome := range ledger.CallOutcomes {
			s.counter(descCalls, l.calls[i][j], tool, outcome)
		}
		for j, reason := range reasons {
			s.counter(descDenials, l.denials[i][j], tool, reason)
		}
		s.gauge(descInDoubt, float64(doubts[i]), tool)
	}
	s.counter(descRecords, l.records)
	s.gauge(descHead, float64(l.head))
	s.gauge(descLastRecord, float64(l.ts)/1e9)
}

func (s sender) verification(v verification) {
	s.gauge(descVerifyLastRun, seconds(v.LastRun))
	s.gauge(descVerifyLastSuccess, seconds(v.LastSuccess))
	if v.Verdict == "" {
		v.Verdict = verify.Unchecked
	}
	for _, verdict := range verdicts {
		s.gauge(descVerdict, oneIf(verdict == v.Verdict), string(verdict))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is 0 for never.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}
