package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/policy"
)

// Ledger is what the gate needs of a ledger.
type Ledger interface {
	// Append is durable on return without error.
	Append(ctx context.Context, e ledger.Entry) (ledger.Head, error)
	// Refresh takes in what other processes appended.
	Refresh(ctx context.Context) error
	// OpenIntents is the intents of a request id, or of all with "", that no
	// record closes, oldest first.
	OpenIntents(requestID string) []ledger.OpenIntent
	// LockRequest excludes all other holders of requestID, in any process.
	LockRequest(ctx context.Context, requestID string) (unlock func(), err error)
	TryLockRequest(requestID string) (unlock func(), ok bool, err error)
}

// recordTimeout bounds the writing of one record. It is apart from the call's
// own context, which may have ended when its outcome is to be recorded.
const recordTimeout = 30 * time.Second

// Call is one call that was read and let through.
type Call struct {
	Name      string
	RequestID string
	Args      []byte // the canonical form
	Value     canon.Value
	Digest    ledger.Hash // SHA-256 of Args

	policy  ledger.Hash // the one that decided
	targets *targets    // nil where the policy names none
	traceID string      // "" where the caller sent none and none is kept
}

// Read runs a tool that changes nothing and returns its result as JSON.
type Read func(ctx context.Context, c *Call) (json.RawMessage, error)

// State is what is known of an effect.
type State int

const (
	Unknown State = iota // cannot be told
	Absent               // surely not there
	Present              // there
)

// Finding is what is known of the effect of a request id.
type Finding struct {
	State  State
	Tool   string          // whose effect it is
	Digest ledger.Hash     // of its canonical arguments
	Result json.RawMessage // what a replay answers
}

// Mutation is a tool that changes something. Its methods may be called at
// once, for different request ids.
type Mutation interface {
	// Place tells mutations apart that keep their effects in different places:
	// those with equal places find each other's.
	Place() any
	// Find looks for the effect of requestID.
	Find(ctx context.Context, requestID string) (Finding, error)
	// Settle looks for the effect of an intent of which no outcome was recorded.
	// What it calls Present is durable when it returns.
	Settle(ctx context.Context, intent ledger.OpenIntent) (Finding, error)
	// Prepare does what can be done before the intent is durable: nothing that
	// anyone could see, and nothing that a crash would leave.
	Prepare(ctx context.Context, c *Call) (Effect, error)
}

// Effect is a prepared effect. Exactly one of Commit and Discard ends it.
type Effect interface {
	// Commit makes the effect. It is durable on return without error, and may
	// or may not be there with one.
	Commit(ctx context.Context) (json.RawMessage, error)
	Discard()
}

// Tool is a served tool: a read or a mutation.
type Tool struct {
	Name     string
	Validate func(args []byte) error // nil where the arguments are as the tool's schema says
	Read     Read
	Mutation Mutation
}

// Config of a gate. Ledger and Policy are required.
type Config struct {
	Ledger Ledger
	Policy *policy.Policy
	Log    *slog.Logger // nil discards; never given arguments
	Tracer Tracer       // nil traces nothing

	// Called, where it is not nil, is told of each answered call and how long it
	// took; Appended of each record, until it was durable or could not be written.
	// They may be called at once, and must be quick.
	Called   func(tool string, took time.Duration)
	Appended func(took time.Duration, err error)
}

// Gate decides calls. Its methods may be called at once; Add before the first
// call.
type Gate struct {
	ledger Ledger
	log    *slog.Logger
	tracer Tracer
	called func(string, time.Duration)
	added  func(time.Duration, error)
	policy atomic.Pointer[policy.Policy]
	tools  map[string]*Tool
	places []Mutation // one for each place
}

// New is a gate without tools.
func New(c Config) *Gate {
	g := &Gate{ledger: c.Ledger, log: c.Log, tracer: c.Tracer, called: c.Called, added: c.Appended, tools: map[string]*Tool{}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.tracer == nil {
		g.tracer = untraced{}
	}
	g.policy.Store(c.Policy)
	return g
}

// Add serves t.
func (g *Gate) Add(t Tool) error {
	if g.tools[t.Name] != nil {
		return fmt.Errorf("tool %q is there already: two tools cannot have one name", t.Name)
	}
	g.tools[t.Name] = &t
	if t.Mutation == nil {
		return nil
	}
	for _, m := range g.places {
		if m.Place() == t.Mutation.Place() {
			return nil
		}
	}
	g.places = append(g.places, t.Mutation)
	return nil
}

// Policy is the one in force.
func (g *Gate) Policy() *policy.Policy { return g.policy.Load() }

// SetPolicy puts p in force for every decision from now on. No decision sees
// half of each. The record of it is durable on return, or the error says why
// not; p is in force either way, since a policy is swapped to be obeyed.
func (g *Gate) SetPolicy(ctx context.Context, p *policy.Policy) error {
	g.policy.Store(p)
	return g.recordReload(ctx, ledger.Entry{Decision: ledger.Allow, Outcome: ledger.Committed,
		ArgsDigest: p.Digest().String(), Policy: p.Digest().String()})
}

// KeepPolicy records that a policy file with this content, nil where it could
// not be read, was refused and that the one before stays in force.
func (g *Gate) KeepPolicy(ctx context.Context, content []byte) error {
	return g.recordReload(ctx, ledger.Entry{Decision: ledger.Deny, Outcome: ledger.NotExecuted, Reason: ledger.ReasonInvalidPolicy,
		ArgsDigest: ledger.Digest(content).String(), Policy: g.Policy().Digest().String()})
}

func (g *Gate) recordReload(ctx context.Context, e ledger.Entry) error {
	e.Method, e.Name, e.RequestID = ledger.MethodReload, "policy", ledger.MissingRequestID
	_, err := g.append(ctx, e)
	return err
}

// append writes a record whatever becomes of the call's context.
func (g *Gate) append(ctx context.Context, e ledger.Entry) (ledger.Head, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	step, failed := stepOutcome, ""
	if e.Outcome == ledger.Intent {
		step = stepIntent
	}
	ctx, span := g.tracer.Step(ctx, step)
	span.Set("request_id", e.RequestID)
	span.Set("ledger.decision", e.Decision)
	span.Set("ledger.outcome", e.Outcome)
	if e.Reason != "" {
		span.Set("ledger.reason", e.Reason)
	}
	defer func() { span.End(failed) }()
	var begun time.Time
	if g.added != nil {
		begun = time.Now()
	}
	at, err := g.ledger.Append(ctx, e)
	if g.added != nil {
		g.added(time.Since(begun), err)
	}
	if err == nil {
		span.SetInt("ledger.seq", int64(at.Seq))
	} else {
		failed = "ledger_unavailable"
		g.log.Error("a record could not be written", "tool", ledger.Escape(e.Name), "decision", e.Decision, "outcome", e.Outcome, "error", err)
	}
	return at, err
}

// entry is the record of c with a decision and an outcome.
func (c *Call) entry(decision, outcome, reason string) ledger.Entry {
	return ledger.Entry{RequestID: c.RequestID, Method: ledger.MethodCall, Name: c.Name, Decision: decision, Outcome: outcome,
		ArgsDigest: c.Digest.String(), Policy: c.policy.String(), Reason: reason, TraceID: c.traceID, Targets: c.targets.member(outcome != ledger.Intent)}
}

type callKey struct{}

// Middleware is the gate in front of an MCP server: for receiving middleware.
func (g *Gate) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "tools/call":
			p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
			if !ok || p == nil {
				return nil, invalidParams("invalid parameters of tools/call", ledger.ReasonInvalidRequest, "")
			}
			if g.called != nil {
				begun := time.Now()
				defer func() { g.called(p.Name, time.Since(begun)) }()
			}
			return g.traced(ctx, p.Name, p.Meta, func(ctx context.Context, c *Call) (mcp.Result, error) {
				if err := g.admit(ctx, c, p.Arguments); err != nil {
					return nil, err
				}
				return next(context.WithValue(ctx, callKey{}, c), method, req)
			})
		case "tools/list":
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				return g.visible(list), nil
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// visible is list without what the policy does not allow.
func (g *Gate) visible(list *mcp.ListToolsResult) *mcp.ListToolsResult {
	p, out := g.Policy(), *list
	out.Tools = []*mcp.Tool{}
	for _, t := range list.Tools {
		if p.Visible(t.Name) {
			out.Tools = append(out.Tools, t)
		}
	}
	return &out
}

// Handle is the entry of every tool: for the server to call after Middleware.
// A call that did not come through Middleware is decided here.
func (g *Gate) Handle(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok || c.Name != req.Params.Name {
		c = &Call{Name: req.Params.Name, traceID: traceOf(req.Params.Meta)}
		if err := g.admit(ctx, c, req.Params.Arguments); err != nil {
			return nil, err
		}
	} else if err := g.enforce(ctx, c, g.decide(c)); err != nil {
		return nil, err
	}
	t := g.tools[c.Name]
	if err := t.Validate(c.Args); err != nil {
		g.append(ctx, c.entry(ledger.Deny, ledger.NotExecuted, ledger.ReasonInvalidArguments))
		return failure(fmt.Sprintf("invalid arguments of %s: %v", c.Name, err)), nil
	}
	if t.Mutation != nil {
		return g.mutate(ctx, c, t)
	}
	return g.read(ctx, c, t)
}

// admit reads the arguments of c and decides it. The error is the answer of a
// refusal, which is recorded then.
func (g *Gate) admit(ctx context.Context, c *Call, raw json.RawMessage) error {
	err := c.read(raw)
	if err != nil {
		c.policy = g.Policy().Digest()
		return g.refuse(ctx, c, ledger.ReasonInvalidArguments, "", "arguments: "+err.Error())
	}
	c.targets = targetsOf(g.Policy(), c)
	c.targets.look()
	_, span := g.step(ctx, c, stepDecide)
	d := g.decide(c)
	span.End(d.Reason)
	return g.enforce(ctx, c, d)
}

// read takes in the arguments of a call. Those that are not canonical JSON, and
// that two readers could therefore read differently, are named by their bytes.
func (c *Call) read(raw json.RawMessage) error {
	c.RequestID = ledger.MissingRequestID
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	value, err := canon.Parse(raw)
	if err != nil {
		c.Digest = ledger.Digest(raw)
		return err
	}
	c.Value, c.Args = value, value.Append(nil)
	c.Digest = ledger.Digest(c.Args)
	if id, ok := value.Get("request_id"); ok {
		if c.RequestID = string(id.Append(nil)); id.Kind() == canon.String {
			c.RequestID = id.Str()
		}
	}
	return nil
}

// decide asks the policy in force.
func (g *Gate) decide(c *Call) policy.Decision {
	d := g.Policy().Decide(policy.Call{Tool: c.Name, Arguments: c.Value})
	c.policy = d.Policy
	if d.Allow && g.tools[c.Name] == nil {
		d.Allow, d.Reason = false, ledger.ReasonToolNotAllowed
	}
	return d
}

// enforce records a refusal, and the error is its answer.
func (g *Gate) enforce(ctx context.Context, c *Call, d policy.Decision) error {
	if d.Allow {
		return nil
	}
	return g.refuse(ctx, c, d.Reason, d.Rule, "")
}

// refuse records a denial and is its answer, recorded or not.
func (g *Gate) refuse(ctx context.Context, c *Call, reason, rule, detail string) error {
	e := c.entry(ledger.Deny, ledger.NotExecuted, reason)
	e.Rule = rule
	g.append(ctx, e)
	message := "tool denied: " + ledger.Escape(ledger.Clip(c.Name))
	if detail != "" {
		message += ": " + detail
	}
	return invalidParams(message, reason, rule)
}

// Refused records a call in a message that was no valid request, for the edge
// of a transport: it never became a call.
func (g *Gate) Refused(ctx context.Context, tool, requestID string, digest ledger.Hash) {
	c := &Call{Name: tool, RequestID: requestID, Digest: digest, policy: g.Policy().Digest()}
	g.append(ctx, c.entry(ledger.Deny, ledger.NotExecuted, ledger.ReasonInvalidRequest))
}

// Unreached records a call that the server answered with an error before the
// gate had a say, because it was cancelled by then or for what it asked of the
// protocol.
func (g *Gate) Unreached(ctx context.Context, tool string, args json.RawMessage, meta map[string]any, cancelled bool) {
	c := &Call{Name: tool, traceID: traceOf(meta)}
	c.read(args)
	c.policy = g.Policy().Digest()
	e := c.entry(ledger.Deny, ledger.NotExecuted, ledger.ReasonInvalidRequest)
	if cancelled {
		e = c.entry(ledger.Void, ledger.NotExecuted, ledger.ReasonCancelled)
	}
	g.append(ctx, e)
}

// Answered reports whether err, as an answer to a call, is of the gate: the call
// is recorded then.
func Answered(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	var d answerData
	return ok && json.Unmarshal(e.Data, &d) == nil && d.Reason != ""
}

// answerData is the data member of an error.
type answerData struct {
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"`
}

func wireError(code int64, message, reason, rule string) *jsonrpc.Error {
	data, _ := json.Marshal(answerData{reason, rule})
	return &jsonrpc.Error{Code: code, Message: message, Data: data}
}

func invalidParams(message, reason, rule string) error {
	return wireError(jsonrpc.CodeInvalidParams, message, reason, rule)
}

// unavailable answers a call of which no record could be written.
func unavailable() error {
	return wireError(jsonrpc.CodeInternalError, "the ledger cannot be written, and nothing is done without a record", "ledger_unavailable", "")
}

// crashed answers a call whose tool panicked.
func crashed() error {
	return wireError(jsonrpc.CodeInternalError, "internal error: the tool failed", ledger.ReasonPanic, "")
}

// failure is a result that tells the model what went wrong.
func failure(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func success(result json.RawMessage) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(result)}}, StructuredContent: result}
}

// panicError is a panic of a tool as an error.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %T", e.value) }

// guard turns a panic of f into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return f()
}

// reasonOf is the reason for a tool's error. Where the caller had given up, an
// error that says so is no failure of the tool; another one is.
func reasonOf(ctx context.Context, err error) string {
	if _, ok := errors.AsType[*panicError](err); ok {
		return ledger.ReasonPanic
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return ledger.ReasonCancelled
	}
	return ledger.ReasonToolError
}

// failed answers a tool's error.
func (g *Gate) failed(c *Call, err error) (*mcp.CallToolResult, error) {
	if p, ok := errors.AsType[*panicError](err); ok {
		g.log.Error("a tool panicked", "tool", c.Name, "type", fmt.Sprintf("%T", p.value))
		return nil, crashed()
	}
	return failure(err.Error()), nil
}

func (g *Gate) read(ctx context.Context, c *Call, t *Tool) (*mcp.CallToolResult, error) {
	c.RequestID = ledger.ObserveRequestID
	var result json.RawMessage
	reading, span := g.step(ctx, c, stepRead)
	err := guard(func() (err error) { result, err = t.Read(reading, c); return })
	e := c.entry(ledger.Allow, ledger.Observed, "")
	switch {
	case err != nil:
		e.Outcome, e.Reason = ledger.Error, reasonOf(ctx, err)
	case ctx.Err() != nil:
		e.Reason = ledger.ReasonCancelled
	}
	if err != nil {
		span.End(e.Reason)
	} else {
		span.End("")
	}
	if _, unwritten := g.append(ctx, e); unwritten != nil {
		return nil, unavailable()
	}
	if err != nil {
		return g.failed(c, err)
	}
	return success(result), nil
}

// Tools is the names of the served tools, sorted.
func (g *Gate) Tools() []string { return slices.Sorted(maps.Keys(g.tools)) }
