package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		env  string
		on   bool
		fail string
	}{
		{"", false, ""},
		{"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on OTEL_EXPORTER_OTLP_HEADERS=a=b", false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces", true, ""},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318", false, ""},
		{"OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", false, ""},
		{"OTEL_SDK_DISABLED=TRUE OTEL_TRACES_EXPORTER=console", false, ""},
		{"OTEL_SDK_DISABLED=false OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_TRACES_EXPORTER=console", false, "OTEL_TRACES_EXPORTER"},
		{"OTEL_TRACES_EXPORTER=otlp,console", false, "OTEL_TRACES_EXPORTER"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", true, ""},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318", false, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", false, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http:// OTEL_TRACES_EXPORTER=otlp", false, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=unix:///x", false, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=c:1 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=HTTPS://c", true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=c:1 OTEL_TRACES_EXPORTER=none", false, ""},
		{"OTEL_BSP_MAX_QUEUE_SIZE=0", false, ""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_QUEUE_SIZE=-1", false, "OTEL_BSP_MAX_QUEUE_SIZE=\"-1\""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_QUEUE_SIZE=1048577", false, "OTEL_BSP_MAX_QUEUE_SIZE"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_QUEUE_SIZE=1048576 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_EXPORT_BATCH_SIZE=many", false, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_SCHEDULE_DELAY=0", false, "OTEL_BSP_SCHEDULE_DELAY"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_SCHEDULE_DELAY=5s", false, "OTEL_BSP_SCHEDULE_DELAY"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_EXPORT_TIMEOUT=0", true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://user@c", false, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c?key=x", false, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		on, err := wanted(func(name string) string { return env[name] })
		if on != c.on || (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%q: %v, %v", c.env, on, err)
		}
	}
}

// TestParent: a valid traceparent names the span above whatever its flags, and
// what it brings along is bounded.
func TestParent(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, c := range []struct {
		flags, state string
		sampled      bool
		members      int
	}{
		{"00", "", false, 0},
		{"01", "a=b,c=d", true, 2},
		{"05", "a=b", true, 1},
		{"fe", "not a state", false, 0},
		{"ff", "a=b" + strings.Repeat(",", maxTraceState), true, 0},
		{"01", strings.TrimSuffix(strings.Repeat("k="+strings.Repeat("v", 256)+",", 1), ","), true, 1},
	} {
		got := parentOf(map[string]any{"traceparent": "00-" + id + "-" + span + "-" + c.flags, "tracestate": c.state})
		if !got.IsValid() || !got.IsRemote() || got.TraceID().String() != id || got.SpanID().String() != span || got.IsSampled() != c.sampled ||
			got.TraceFlags()&^trace.FlagsSampled != 0 || got.TraceState().Len() != c.members {
			t.Errorf("flags %s, state %.20q: %+v", c.flags, c.state, got)
		}
	}
}

// TestSpansKeepNoCall: a span that waits to be sent does not hold the text that
// what it says is part of.
func TestSpansKeepNoCall(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	s := &span{recording: true}
	s.Set("request_id", text[100:110])
	if got := s.attributes[0].Value.AsString(); got != text[100:110] || unsafe.StringData(got) == unsafe.StringData(text[100:110]) {
		t.Error("an attribute is a part of the call")
	}
	state := "key=value" + strings.Repeat(" ", 1000)
	got := parentOf(map[string]any{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": state}).TraceState().Get("key")
	if got != "value" || unsafe.StringData(got) == unsafe.StringData(state[4:9]) {
		t.Error("the state of the trace is a part of the call")
	}
}

// bunches is a processor that counts what it is given.
type bunches struct {
	sdk.SpanProcessor
	shutdown bool

	mu    sync.Mutex
	ended int
}

func (b *bunches) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (b *bunches) OnEnd(sdk.ReadOnlySpan)                     { b.mu.Lock(); b.ended++; b.mu.Unlock() }
func (b *bunches) Shutdown(context.Context) error             { b.shutdown = true; return nil }

// TestGather: every span is handed over once, after a second, or with many
// others, or at the end.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bunches{}
		p := sdk.NewTracerProvider(sdk.WithSpanProcessor(newGather(b, gatherAtMost)))
		end := func(n int) {
			for range n {
				_, s := p.Tracer("").Start(t.Context(), "x")
				s.End()
			}
		}
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.ended != n {
				t.Errorf("%d spans were handed over, want %d", b.ended, n)
			}
		}
		end(3)
		want(0)
		time.Sleep(gatherFor)
		want(3)
		end(gatherAtMost - 1)
		want(3)
		end(1)
		want(3 + gatherAtMost)
		end(2)
		if err := p.Shutdown(t.Context()); err != nil || !b.shutdown {
			t.Errorf("shut down: %v, %v", err, b.shutdown)
		}
		want(5 + gatherAtMost)
	})
}

// refusing is an exporter that fails while it is told to.
type refusing struct {
	fail  bool
	says  string
	asked int
}

func (r *refusing) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	r.asked++
	if r.fail {
		return errors.New("no: " + r.says)
	}
	return nil
}
func (*refusing) Shutdown(context.Context) error { return nil }

func TestRested(t *testing.T) {
	now := time.Unix(1, 0)
	x := &refusing{fail: true}
	r := &rested{SpanExporter: x, now: func() time.Time { return now }}
	spans := tracetest.SpanStubs{{Name: "x"}}.Snapshots()
	send := func(ok bool, asked int) {
		t.Helper()
		if err := r.ExportSpans(t.Context(), spans); (err == nil) != ok || x.asked != asked {
			t.Errorf("%v, asked %d times, want %d", err, x.asked, asked)
		}
	}
	send(false, 1)
	send(false, 1) // dropped
	now = now.Add(restFor - 1)
	send(false, 1)
	now = now.Add(1)
	send(false, 2)
	now = now.Add(restFor)
	x.fail, x.says = true, "OTLP partial success: careful (0 spans rejected)"
	send(false, 3)
	x.fail = false
	send(true, 4) // it was not left alone
	x.asked = 2
	send(true, 3)
	send(true, 4)
}

func TestErrorLog(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(1, 0)
	l := &errorLog{log: slog.New(slog.NewTextHandler(&b, nil)), now: func() time.Time { return now }}
	l.Handle(errors.New("set-up"))
	l.Handle(errors.New("more of it"))
	if got := b.String(); strings.Count(got, settingLost) != 2 {
		t.Errorf("logged:\n%s", got)
	}
	b.Reset()
	l.begin()
	for range 100 {
		l.Handle(errors.New("\x1b[2K"))
	}
	now = now.Add(time.Minute)
	l.Handle(errors.New("again"))
	if got := b.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "\x1b") || !strings.Contains(got, "errors_not_logged=99") {
		t.Errorf("logged:\n%s", got)
	}
}
