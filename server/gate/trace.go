package gate

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
)

// A Tracer makes spans of calls and of their parts. Its methods may be called
// at once, and must not wait for anything.
type Tracer interface {
	// Begin begins the span of a call. Meta is the _meta of its request;
	// traceparent and tracestate in it name the span above, where remote says so:
	// they are valid. Tool is "" where no such tool is served. The context is for
	// Step and for what the tool itself traces.
	Begin(ctx context.Context, tool string, meta map[string]any, remote bool) (context.Context, Span)
	// Step begins a span below the one that ctx is of. The name is decide,
	// intent, read, effect or outcome.
	Step(ctx context.Context, name string) (context.Context, Span)
}

// A Span is ended once. It is never given arguments, results or texts of errors;
// what it is given may be long, and is what a client sent.
type Span interface {
	// TraceID is 32 hexadecimal digits, or "" where the span is not kept.
	TraceID() string
	Set(key, value string)
	SetInt(key string, value int64)
	// End ends the span. ErrorType is "" or a word for what went wrong.
	End(errorType string)
}

// The names of spans.
const (
	stepDecide  = "decide"
	stepIntent  = "intent"
	stepRead    = "read"
	stepEffect  = "effect"
	stepOutcome = "outcome"
)

// untraced is the Tracer where none is given.
type untraced struct{}

func (untraced) Begin(ctx context.Context, _ string, _ map[string]any, _ bool) (context.Context, Span) {
	return ctx, untraced{}
}
func (untraced) Step(ctx context.Context, _ string) (context.Context, Span) { return ctx, untraced{} }
func (untraced) TraceID() string                                            { return "" }
func (untraced) Set(string, string)                                         {}
func (untraced) SetInt(string, int64)                                       {}
func (untraced) End(string)                                                 {}

// traceOf is the trace id of a traceparent in the _meta of a request, "" where
// there is none that is valid: W3C Trace Context, 3.2.2. MCP keeps the header's
// names there.
func traceOf(meta map[string]any) string {
	header, _ := meta["traceparent"].(string)
	// version "-" trace-id "-" parent-id "-" trace-flags; later versions may go on after another "-".
	if len(header) < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-' || len(header) > 55 && header[55] != '-' {
		return ""
	}
	version, trace, parent, flags := header[:2], header[3:35], header[36:52], header[53:55]
	if !isHex(version) || version == "ff" || version == "00" && len(header) > 55 || !isHex(flags) ||
		!isHex(trace) || strings.Trim(trace, "0") == "" || !isHex(parent) || strings.Trim(parent, "0") == "" {
		return ""
	}
	return trace
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// traced runs f, which answers c, as one span. F makes c known as soon as it
// has read it.
func (g *Gate) traced(ctx context.Context, name string, meta map[string]any, f func(ctx context.Context, c *Call) (mcp.Result, error)) (mcp.Result, error) {
	c := &Call{Name: name, RequestID: ledger.MissingRequestID, traceID: traceOf(meta)}
	known := name
	if g.tools[name] == nil {
		known = ""
	}
	ctx, span := g.tracer.Begin(ctx, known, meta, c.traceID != "")
	if id := span.TraceID(); id != "" {
		c.traceID = id
	}
	span.Set("gen_ai.tool.name", name)
	res, err := f(ctx, c)
	span.Set("request_id", c.RequestID)
	failed := ""
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		failed = strconv.FormatInt(e.Code, 10)
		span.Set("rpc.response.status_code", failed)
	} else if err != nil {
		failed = "_OTHER"
	} else if r, ok := res.(*mcp.CallToolResult); ok && r.IsError {
		failed = "tool_error"
	}
	span.End(failed)
	return res, err
}

// step begins a part of c.
func (g *Gate) step(ctx context.Context, c *Call, name string) (context.Context, Span) {
	ctx, span := g.tracer.Step(ctx, name)
	span.Set("request_id", c.RequestID)
	return ctx, span
}
