package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/gate"
)

// Config of a tracer. All of it is required.
type Config struct {
	Getenv  func(string) string // os.Getenv
	Service string              // service.name where the environment names none
	Version string
	Log     *slog.Logger
}

// Tracer is a gate.Tracer that sends what it makes.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New is a tracer as the environment asks for, nil where it asks for none. It
// connects to nothing yet. There is one for a process: the SDK has one handler of
// errors.
func New(ctx context.Context, c Config) (*Tracer, error) {
	on, err := wanted(c.Getenv)
	if !on || err != nil {
		return nil, err
	}
	fail := func(err error) (*Tracer, error) { return nil, fmt.Errorf("set up tracing as OTEL_* say: %w", err) }
	errs := &errorLog{log: c.Log, now: time.Now}
	otel.SetErrorHandler(errs)
	otel.SetLogger(logr.FromSlogHandler(settingLog{c.Log}))
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", c.Service), attribute.String("service.version", c.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if errors.Is(err, resource.ErrPartialResource) {
		c.Log.Warn(settingLost, "doing", "read OTEL_RESOURCE_ATTRIBUTES", "error", said(err))
	} else if err != nil {
		return fail(err)
	}
	var options []otlptracehttp.Option
	if _, endpoint := first(c.Getenv, endpoints...); endpoint == "" {
		options = append(options, otlptracehttp.WithEndpointURL("http://localhost:4318/v1/traces")) // the SDK's default is https
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return fail(err)
	}
	atOnce := gatherAtMost
	if n, err := strconv.Atoi(c.Getenv(queueSize)); err == nil {
		atOnce = max(1, min(atOnce, n/4))
	}
	batches := sdk.NewBatchSpanProcessor(&rested{SpanExporter: exporter, now: time.Now})
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(newGather(batches, atOnce)), sdk.WithResource(res))
	errs.begin()
	return &Tracer{provider: p, tracer: p.Tracer("github.com/auditledger/auditledger", trace.WithInstrumentationVersion(c.Version))}, nil
}

// endpoints name the collector, the first that is set.
var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

const queueSize = "OTEL_BSP_MAX_QUEUE_SIZE"

// numbers are variables of which the SDK takes others than these in silence, and
// ends the process or never rests for some. It makes room for all spans at once.
var numbers = []struct {
	name        string
	least, most int
}{
	{queueSize, 1, 1 << 20},
	{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, 1 << 20},
	{"OTEL_BSP_SCHEDULE_DELAY", 1, math.MaxInt32},
	{"OTEL_BSP_EXPORT_TIMEOUT", 0, math.MaxInt32},
}

// first is the first of the variables that is set, and its value.
func first(getenv func(string) string, names ...string) (name, value string) {
	for _, name := range names {
		if value := strings.TrimSpace(getenv(name)); value != "" {
			return name, value
		}
	}
	return "", ""
}

// wanted reports whether the environment turns tracing on, and refuses what
// cannot be done.
func wanted(getenv func(string) string) (bool, error) {
	get := func(names ...string) (name, value string) { return first(getenv, names...) }
	if _, disabled := get("OTEL_SDK_DISABLED"); strings.EqualFold(disabled, "true") {
		return false, nil
	}
	where, endpoint := get(endpoints...)
	name, exporter := get("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "none":
		return false, nil
	case "":
		if endpoint == "" {
			return false, nil
		}
	case "otlp":
	default:
		return false, fmt.Errorf("%s=%q: only otlp and none are known; unset it to trace nothing", name, exporter)
	}
	if name, protocol := get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s=%q: spans are sent as http/protobuf only; set that, and the collector's HTTP address (port 4318 by default)", name, protocol)
	}
	// What is in it is not told: it may hold a password.
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		return false, fmt.Errorf("%s: not a URL such as http://127.0.0.1:4318, with no user and no query; OTEL_EXPORTER_OTLP_HEADERS takes credentials", where)
	}
	for _, v := range numbers {
		if _, text := get(v.name); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < v.least || n > v.most {
				return false, fmt.Errorf("%s=%q: want a whole number from %d to %d", v.name, text, v.least, v.most)
			}
		}
	}
	return true, nil
}

// Close sends what is waiting, as far as that is done within the time of ctx.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Begin implements gate.Tracer.
func (t *Tracer) Begin(ctx context.Context, tool string, meta map[string]any, remote bool) (context.Context, gate.Span) {
	if remote {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parentOf(meta))
	}
	name := "tools/call"
	if tool != "" {
		name += " " + tool
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	c := newSpan(s, remote, 8)
	if c.recording {
		c.attributes = append(c.attributes, attribute.String("mcp.method.name", "tools/call"),
			attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("network.transport", "pipe"))
		if v, ok := meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
			c.Set("mcp.protocol.version", v)
		}
	}
	return ctx, c
}

// Step implements gate.Tracer. Where ctx is of no call, as when a server starts
// and closes what a crash left open, there is no span.
func (t *Tracer) Step(ctx context.Context, name string) (context.Context, gate.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, new(span)
	}
	ctx, s := t.tracer.Start(ctx, name)
	return ctx, newSpan(s, false, 5)
}

// span is a gate.Span. Its attributes are set at its end, at once: the SDK takes
// a lock for each setting of some.
type span struct {
	trace.Span
	remote     bool // its parent is a caller's
	recording  bool
	attributes []attribute.KeyValue
}

// newSpan makes room for n attributes.
func newSpan(s trace.Span, remote bool, n int) *span {
	c := &span{Span: s, remote: remote, recording: s.IsRecording()}
	if c.recording {
		c.attributes = make([]attribute.KeyValue, 0, n)
	}
	return c
}

// TraceID implements gate.Span. A trace that nobody keeps has none.
func (s *span) TraceID() string {
	if c := s.SpanContext(); c.IsSampled() || s.remote {
		return c.TraceID().String()
	}
	return ""
}

// Set implements gate.Span.
func (s *span) Set(key, value string) {
	if s.recording {
		// A copy: what a client sent is part of a text that may be long, and a span waits.
		s.attributes = append(s.attributes, attribute.String(key, strings.Clone(ledger.Clip(value))))
	}
}

// SetInt implements gate.Span.
func (s *span) SetInt(key string, value int64) {
	if s.recording {
		s.attributes = append(s.attributes, attribute.Int64(key, value))
	}
}

// End implements gate.Span.
func (s *span) End(errorType string) {
	if s.Span == nil {
		return
	}
	if errorType != "" {
		s.Set("error.type", errorType)
		s.SetStatus(codes.Error, "")
	}
	s.SetAttributes(s.attributes...)
	s.Span.End()
}

// maxTraceState is more than the 32 members of a tracestate have.
const maxTraceState = 20 << 10

// parentOf is the span that a valid traceparent names: W3C Trace Context, 3.2. Of
// the flags the first is known, and others are left out, as a later version of it
// has them.
func parentOf(meta map[string]any) trace.SpanContext {
	parent, _ := meta["traceparent"].(string)
	var c trace.SpanContextConfig
	c.TraceID, _ = trace.TraceIDFromHex(parent[3:35])
	c.SpanID, _ = trace.SpanIDFromHex(parent[36:52])
	if flags, err := strconv.ParseUint(parent[53:55], 16, 8); err == nil {
		c.TraceFlags = trace.TraceFlags(flags) & trace.FlagsSampled
	}
	if state, _ := meta["tracestate"].(string); len(state) <= maxTraceState {
		c.TraceState, _ = trace.ParseTraceState(strings.Clone(state))
	}
	c.Remote = true
	return trace.NewSpanContext(c)
}

// errorLog logs errors of the SDK: those of its set-up, and then at most one a
// minute, since a collector that is away fails each batch.
type errorLog struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	begun  bool
	last   time.Time
	silent int
}

// begin ends the set-up.
func (l *errorLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = true
}

// said is an error for a log line. What a collector answered is part of some.
func said(err error) string { return ledger.Escape(ledger.Clip(err.Error())) }

// settingLost is the message of what the SDK cannot read in the environment, and
// goes on without.
const settingLost = "a setting of OpenTelemetry is not in force"

func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.log.Warn(settingLost, "error", said(err))
		return
	}
	now := l.now()
	if !l.last.IsZero() && now.Sub(l.last) < time.Minute {
		l.silent++
		return
	}
	what := "spans could not be sent; calls do not wait for it"
	if partial(err) {
		what = "the collector has something to say of spans"
	}
	l.log.Warn(what, "error", said(err), "errors_not_logged", l.silent)
	l.last, l.silent = now, 0
}

// settingLog is a slog.Handler for the errors that the SDK logs by itself, which
// are of its set-up. Values are left out: a header is a secret.
type settingLog struct{ log *slog.Logger }

// Enabled implements slog.Handler. What the SDK says below errors is of spans.
func (settingLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements slog.Handler.
func (l settingLog) Handle(_ context.Context, r slog.Record) error {
	told := []any{"doing", ledger.Escape(r.Message)}
	for a := range r.Attrs {
		if a.Key == "err" || a.Key == "key" || a.Key == "file" {
			told = append(told, a.Key, ledger.Escape(ledger.Clip(a.Value.String())))
		}
	}
	l.log.Warn(settingLost, told...)
	return nil
}

// WithAttrs implements slog.Handler.
func (l settingLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l settingLog) WithGroup(string) slog.Handler { return l }
