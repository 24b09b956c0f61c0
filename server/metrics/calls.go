package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// buckets are for a write to a fast disk as well as for a call that hangs.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// calls are the series of a server.
type calls struct {
	failures prometheus.Counter
	failed   prometheus.Gauge
	appends  prometheus.Histogram
	calls    *prometheus.HistogramVec
	byTool   atomic.Pointer[byTool]
}

// byTool has an observer for each of names.
type byTool struct {
	names     *names
	observers []prometheus.Observer
}

func newCalls(label string) *calls {
	of := prometheus.Labels{labelLedger: label}
	return &calls{
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: writeFailures, Help: helps[writeFailures], ConstLabels: of}),
		failed:   prometheus.NewGauge(prometheus.GaugeOpts{Name: lastWriteFailure, Help: helps[lastWriteFailure], ConstLabels: of}),
		appends:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: appendDuration, Help: helps[appendDuration], ConstLabels: of, Buckets: buckets}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: callDuration, Help: helps[callDuration], ConstLabels: of, Buckets: buckets},
			[]string{labelTool}),
	}
}

func (c *calls) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.failures, c.failed, c.appends, c.calls}
}

// know begins the series of tools that are new. Those of before stay: they are of
// this process since it began.
func (c *calls) know(n *names) {
	b := &byTool{names: n}
	for _, tool := range n.list {
		b.observers = append(b.observers, c.calls.WithLabelValues(tool))
	}
	c.byTool.Store(b)
}

// Appended takes note of a record of a server: how long it took until it was
// durable, or could not be written.
func (m *Metrics) Appended(took time.Duration, err error) {
	if err != nil {
		m.calls.failures.Inc()
		m.calls.failed.Set(seconds(m.now()))
	}
	m.calls.appends.Observe(took.Seconds())
}

// Called takes note of an answered call of a server, by the name as it was sent.
func (m *Metrics) Called(tool string, took time.Duration) {
	b := m.calls.byTool.Load()
	b.observers[b.names.ofCall(tool)].Observe(took.Seconds())
}
