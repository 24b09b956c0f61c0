package tracing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	gatherAtMost = 256         // spans, before they are handed over; less where the queue behind is short
	gatherFor    = time.Second // the same, in time
)

// gather hands ended spans over in bunches. The SDK's own processor wakes a
// goroutine for each, and on a quiet machine that costs a call more than all else
// about its spans.
type gather struct {
	next   sdk.SpanProcessor
	atMost int
	stop   chan struct{}
	ended  chan struct{}

	mu    sync.Mutex
	spans []sdk.ReadOnlySpan
}

func newGather(next sdk.SpanProcessor, atMost int) *gather {
	g := &gather{next: next, atMost: atMost, stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		t := time.NewTicker(gatherFor)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				g.handOver(1)
			case <-g.stop:
				return
			}
		}
	}()
	return g
}

// handOver hands over what was gathered, if that is at least so many.
func (g *gather) handOver(atLeast int) {
	g.mu.Lock()
	spans := g.spans
	if len(spans) < atLeast {
		g.mu.Unlock()
		return
	}
	g.spans = nil
	g.mu.Unlock()
	for _, s := range spans {
		g.next.OnEnd(s)
	}
}

// OnStart implements sdk.SpanProcessor.
func (g *gather) OnStart(parent context.Context, s sdk.ReadWriteSpan) { g.next.OnStart(parent, s) }

// OnEnd implements sdk.SpanProcessor.
func (g *gather) OnEnd(s sdk.ReadOnlySpan) {
	g.mu.Lock()
	g.spans = append(g.spans, s)
	g.mu.Unlock()
	g.handOver(g.atMost)
}

// ForceFlush implements sdk.SpanProcessor.
func (g *gather) ForceFlush(ctx context.Context) error {
	g.handOver(1)
	return g.next.ForceFlush(ctx)
}

// Shutdown implements sdk.SpanProcessor. The SDK calls it once.
func (g *gather) Shutdown(ctx context.Context) error {
	close(g.stop)
	<-g.ended
	g.handOver(1)
	return g.next.Shutdown(ctx)
}

// restFor is how long a collector is left alone that did not take spans.
const restFor = 5 * time.Second

// rested is an exporter that leaves a collector alone for a while after it did not
// take spans, and drops those that end meanwhile: to encode them would cost calls
// processor time, and for nothing.
type rested struct {
	sdk.SpanExporter
	now   func() time.Time
	until time.Time
}

// ExportSpans implements sdk.SpanExporter. The SDK does not call it at once.
func (r *rested) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if r.now().Before(r.until) {
		return fmt.Errorf("%d spans were dropped: the collector is left alone for %v after it took none", len(spans), restFor)
	}
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !partial(err) {
		r.until = r.now().Add(restFor)
	}
	return err
}

// partial reports whether err is what a collector says of spans that it took, all
// or some. The exporter's type for it cannot be named outside of it.
func partial(err error) bool { return strings.Contains(err.Error(), "OTLP partial success") }
