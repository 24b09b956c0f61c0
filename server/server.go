package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/edge"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
	"github.com/auditledger/auditledger/server/policy"
)

// Config of a server. Ledger and Policy are required.
type Config struct {
	Name, Version string // as told to clients
	Instructions  string
	Ledger        gate.Ledger
	Policy        *policy.Policy
	Results       *effects.Dir // results of mutations; required by AddMutation
	Log           *slog.Logger // nil discards; never given arguments
	MaxLine       int          // bytes of one message on stdio; 0 for 16 MiB
	Tracer        gate.Tracer  // nil traces nothing

	// As in gate.Config; nil where nobody wants to know.
	Called   func(tool string, took time.Duration)
	Appended func(took time.Duration, err error)
}

// Server is a gated MCP server.
type Server struct {
	mcp  *mcp.Server
	gate *gate.Gate
	c    Config
}

// New is a server without tools.
func New(c Config) (*Server, error) {
	if c.Ledger == nil || c.Policy == nil {
		return nil, fmt.Errorf("a gated server needs a ledger and a policy")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{c: c, gate: gate.New(gate.Config{Ledger: c.Ledger, Policy: c.Policy, Log: c.Log, Tracer: c.Tracer, Called: c.Called, Appended: c.Appended})}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: c.Name, Version: c.Version}, &mcp.ServerOptions{
		Instructions: c.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		// The list is filtered by a policy, so it is nobody else's.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	s.mcp.AddReceivingMiddleware(supportedVersion, s.gate.Middleware)
	return s, nil
}

// supportedVersion refuses a request that names a protocol version in its
// _meta that is not served. The SDK itself takes old unknown ones for one that
// it knows.
func supportedVersion(next mcp.MethodHandler) mcp.MethodHandler {
	supported := mcp.SupportedProtocolVersions()
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p := req.GetParams(); p != nil && !reflect.ValueOf(p).IsNil() {
			if v, ok := p.GetMeta()[mcp.MetaKeyProtocolVersion].(string); ok && !slices.Contains(supported, v) {
				data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: supported, Requested: ledger.Clip(v)})
				return nil, &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version", Data: data}
			}
		}
		return next(ctx, method, req)
	}
}

// Gate is the gate of s.
func (s *Server) Gate() *gate.Gate { return s.gate }

// Recover closes what a crash left open, as far as can be known, and returns
// the calls that stay in doubt. It is to be called after the tools were added
// and before the first call.
func (s *Server) Recover(ctx context.Context) ([]ledger.OpenIntent, error) {
	return s.gate.Recover(ctx)
}

// ServeStdio answers what comes on in until it ends or ctx does, and returns
// after every call that was read by then has been answered and recorded. It
// serves once.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	f := edge.New(edge.Config{In: in, Out: out, MaxLine: s.c.MaxLine, Log: s.c.Log, Refused: func(r edge.Refusal) {
		s.gate.Refused(context.WithoutCancel(ctx), r.Tool, r.RequestID, r.Digest)
	}})
	// The calls in flight end with the edge's reader, not with ctx.
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	done := make(chan error, 1)
	go func() {
		done <- s.mcp.Run(inner, transport{&mcp.IOTransport{Reader: f.Reader(), Writer: f.Writer(), MaxLineLength: -1}, s.gate})
	}()
	err := f.Run(ctx)
	if inside := <-done; err == nil && inside != nil {
		return fmt.Errorf("serve on stdio: %w", inside)
	}
	return err
}

// Tools is the names of the tools that are served, sorted.
func (s *Server) Tools() []string { return s.gate.Tools() }
