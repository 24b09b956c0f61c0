package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/gate"
	"github.com/auditledger/auditledger/server/policy"
)

// memory is a ledger in memory, with what a test wants to go wrong.
type memory struct {
	entries []ledger.Entry
	open    []ledger.OpenIntent
	refresh func(context.Context) error
	fail    func(ledger.Entry) error
}

func (m *memory) Append(_ context.Context, e ledger.Entry) (ledger.Head, error) {
	if m.fail != nil {
		if err := m.fail(e); err != nil {
			return ledger.Head{}, err
		}
	}
	m.entries = append(m.entries, e)
	return ledger.Head{Seq: uint64(len(m.entries))}, nil
}
func (m *memory) Refresh(ctx context.Context) error {
	if m.refresh != nil {
		return m.refresh(ctx)
	}
	return nil
}
func (m *memory) OpenIntents(string) []ledger.OpenIntent            { return m.open }
func (*memory) LockRequest(context.Context, string) (func(), error) { return func() {}, nil }
func (*memory) TryLockRequest(string) (func(), bool, error)         { return func() {}, true, nil }
func (m *memory) last() (decision, outcome, reason string) {
	e := m.entries[len(m.entries)-1]
	return e.Decision, e.Outcome, e.Reason
}

// effects is a mutation whose Commit fails, though the effect is there.
type effects struct{ digest ledger.Hash }

func (*effects) Place() any { return "here" }
func (*effects) Find(context.Context, string) (gate.Finding, error) {
	return gate.Finding{State: gate.Absent}, nil
}
func (f *effects) Settle(context.Context, ledger.OpenIntent) (gate.Finding, error) {
	return gate.Finding{State: gate.Present, Tool: "write", Digest: f.digest, Result: json.RawMessage(`{}`)}, nil
}
func (f *effects) Prepare(_ context.Context, c *gate.Call) (gate.Effect, error) {
	f.digest = c.Digest
	return f, nil
}
func (*effects) Commit(context.Context) (json.RawMessage, error) { return nil, errors.New("late") }
func (*effects) Discard()                                        {}

func newGate(t *testing.T, m *memory, failed *int) *gate.Gate {
	t.Helper()
	p, err := policy.Parse([]byte(`{"version":1,"allow":["write"],"deny":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	g := gate.New(gate.Config{Ledger: m, Policy: p, Appended: func(_ time.Duration, err error) {
		if err != nil {
			*failed++
		}
	}})
	if err := g.Add(gate.Tool{Name: "write", Validate: func([]byte) error { return nil }, Mutation: &effects{}}); err != nil {
		t.Fatal(err)
	}
	return g
}

var call = &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "write", Arguments: json.RawMessage(`{"request_id":"req-0001"}`)}}

// TestCancelledWaitingForTheLedger: a call that is given up while it waits for
// another process to let go of the ledger is recorded, and is no failure to write.
func TestCancelledWaitingForTheLedger(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m, failed := &memory{refresh: func(ctx context.Context) error { cancel(); return ctx.Err() }}, 0
	res, err := newGate(t, m, &failed).Handle(ctx, call)
	if err != nil || !res.IsError {
		t.Errorf("answered %+v, %v", res, err)
	}
	if d, o, r := m.last(); len(m.entries) != 1 || d != ledger.Void || o != ledger.NotExecuted || r != ledger.ReasonCancelled || failed != 0 {
		t.Errorf("recorded %+v; %d failures to write", m.entries, failed)
	}
}

// TestUnrecordedSaysSo: an effect that is there though its Commit failed, and of
// which no record could be written, is marked like any other.
func TestUnrecordedSaysSo(t *testing.T) {
	m, failed := &memory{fail: func(e ledger.Entry) error {
		if e.Outcome == ledger.Committed {
			return errors.New("disk full")
		}
		return nil
	}}, 0
	res, err := newGate(t, m, &failed).Handle(t.Context(), call)
	if err != nil || res.IsError || res.Meta["auditledger/unrecorded"] != true || failed != 1 {
		t.Errorf("answered %+v, %v; %d failures to write", res, err, failed)
	}
}

// TestClosingKeepsTheTrace: who looks for a trace finds how its call ended, also
// where a later process closed it.
func TestClosingKeepsTheTrace(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	m, failed := &memory{open: []ledger.OpenIntent{{Seq: 7, RequestID: "req-0001", Name: "write", TraceID: trace}}}, 0
	if _, err := newGate(t, m, &failed).Recover(t.Context()); err != nil || len(m.entries) != 1 || m.entries[0].TraceID != trace {
		t.Errorf("recorded %+v, %v", m.entries, err)
	}
}
