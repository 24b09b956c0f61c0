package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/internal/durable/crashfs"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
	"github.com/auditledger/auditledger/server/policy"
)

// world is what a mutation changes that no disk of ours holds: it survives
// every crash.
type world struct {
	mu   sync.Mutex
	done map[string]int
}

type chargeArgs struct {
	RequestID string `json:"request_id"`
	Amount    int    `json:"amount"`
}

type chargeResult struct {
	Charged int `json:"charged"`
}

// machine is one start of a server on a disk.
type machine struct {
	st *store.Store
	s  *Server
	in []ledger.OpenIntent // in doubt after the start
}

func start(d *crashfs.Disk, w *world, look bool) (*machine, error) {
	ctx := context.Background()
	p, err := policy.Parse([]byte(`{"version":1,"allow":["write_note","read_ledger","charge"],"deny":["rm_rf"]}`))
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, "/l", store.Options{FS: d})
	if err != nil {
		return nil, err
	}
	notes, err := effects.Open(d, "/l/"+ledger.NotesName, nil)
	if err != nil {
		return nil, err
	}
	results, err := effects.Open(d, "/l/results", nil)
	if err != nil {
		return nil, err
	}
	s, err := New(Config{Name: "test", Ledger: st, Policy: p, Results: results})
	if err != nil {
		return nil, err
	}
	if err := AddNoteTools(s, notes); err != nil {
		return nil, err
	}
	m := Mutation[chargeArgs, chargeResult]{Do: func(_ context.Context, id string, in chargeArgs) (chargeResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done[id]++
		return chargeResult{in.Amount}, nil
	}}
	if look {
		m.Look = func(_ context.Context, id string) (chargeResult, gate.State, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.done[id] > 0 {
				return chargeResult{7}, gate.Present, nil
			}
			return chargeResult{}, gate.Absent, nil
		}
	}
	if err := AddMutation(s, &mcp.Tool{Name: "charge"}, m); err != nil {
		return nil, err
	}
	doubt, err := s.Recover(ctx)
	return &machine{st, s, doubt}, err
}

// call is a call as the SDK makes it: through the middleware to the tool's entry.
func (m *machine) call(ctx context.Context, tool, args string) (*mcp.CallToolResult, error) {
	next := m.s.gate.Middleware(func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
		return m.s.gate.Handle(ctx, req.(*mcp.CallToolRequest))
	})
	res, err := next(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, Arguments: json.RawMessage(args)}})
	if err != nil {
		return nil, err
	}
	return res.(*mcp.CallToolResult), nil
}

// acked is what callers were told.
type acked struct {
	mu sync.Mutex
	by map[string]string // request id to "committed" or "charged"
}

func (a *acked) add(id, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[id] = what
}

func note(id string) string   { return fmt.Sprintf(`{"request_id":"%s","text":"text of %s"}`, id, id) }
func charge(id string) string { return fmt.Sprintf(`{"request_id":"%s","amount":7}`, id) }

// work makes one call of each kind, some at once, and notes what was promised.
func (m *machine) work(a *acked) {
	ctx := context.Background()
	do := func(tool, id, args string) {
		res, err := m.call(ctx, tool, args)
		if err == nil && !res.IsError && res.Meta["auditledger/unrecorded"] == nil {
			a.add(id, tool)
		}
	}
	do("write_note", "note-1", note("note-1"))
	do("write_note", "note-1", note("note-1"))
	do("charge", "charge-1", charge("charge-1"))
	m.call(ctx, "rm_rf", `{"path":"/x"}`)
	m.call(ctx, "write_note", `{"request_id":"note-1","text":"other"}`)
	var wg sync.WaitGroup
	for _, id := range []string{"note-2", "note-2", "note-3"} {
		wg.Go(func() { do("write_note", id, note(id)) })
	}
	wg.Go(func() { do("charge", "charge-2", charge("charge-2")) })
	wg.Wait()
	do("charge", "charge-1", charge("charge-1"))
}

// records walks the chain, which must hold.
func records(t *testing.T, d *crashfs.Disk) []ledger.Record {
	t.Helper()
	content, _ := d.ReadAll("/l/" + ledger.ActiveName)
	var all []ledger.Record
	var prev ledger.Hash
	var v ledger.View
	var buf []byte
	for line := range bytes.Lines(content) {
		if err := v.Parse(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			t.Fatal(err)
		}
		if v.Prev != prev || v.Compute(&buf) != v.Sum {
			t.Fatalf("record %d breaks the chain", len(all)+1)
		}
		prev = v.Sum
		all = append(all, v.Record())
	}
	return all
}

// oracle looks at a disk that a server has been started on: what was promised
// is there, and nothing twice.
func oracle(t *testing.T, d *crashfs.Disk, w *world, a *acked, look bool) {
	t.Helper()
	committed := map[string]int{}
	for _, r := range records(t, d) {
		if r.Decision == ledger.Allow && r.Outcome == ledger.Committed && r.Method == ledger.MethodCall {
			committed[r.RequestID]++
			if r.Intent == "" {
				t.Errorf("%s is committed without an intent", r.RequestID)
			}
			there := false
			if r.Name == "write_note" {
				var content []byte
				if content, there = d.ReadAll("/l/notes/" + effects.Name(r.RequestID)); there && string(content) != note(r.RequestID) {
					t.Errorf("the note %s is %q", r.RequestID, content)
				}
			} else {
				there = w.done[r.RequestID] > 0
			}
			if !there {
				t.Errorf("%s is recorded as committed, and its effect is not there", r.RequestID)
			}
		}
	}
	for id, n := range committed {
		if n > 1 {
			t.Errorf("%s is committed %d times", id, n)
		}
	}
	for id := range a.by {
		if committed[id] != 1 {
			t.Errorf("%s was promised to a caller, and is recorded %d times", id, committed[id])
		}
	}
	for id, n := range w.done {
		if n > 1 {
			t.Errorf("%s had its effect %d times", id, n)
		}
	}
}

// again starts a server on what is left, twice, and repeats every call.
func again(t *testing.T, d *crashfs.Disk, w *world, a *acked, look bool) {
	t.Helper()
	for range 2 {
		m, err := start(d, w, look)
		if err != nil {
			t.Fatal(err)
		}
		oracle(t, d, w, a, look)
		for _, o := range m.in {
			if o.Name != "charge" || look {
				t.Errorf("the call of %s %s stays in doubt, and could be known", o.Name, o.RequestID)
			}
		}
		m.work(a)
		oracle(t, d, w, a, look)
		for _, id := range []string{"note-1", "note-2", "note-3"} {
			if a.by[id] == "" {
				t.Errorf("%s could not be repeated", id)
			}
		}
		for _, id := range []string{"charge-1", "charge-2"} {
			open := m.st.OpenIntents(id)
			if a.by[id] == "" && len(open) == 0 {
				t.Errorf("%s could not be repeated, and is not in doubt", id)
			}
			if a.by[id] != "" && len(open) > 0 {
				t.Errorf("%s was answered, and is in doubt", id)
			}
		}
		m.st.Close()
	}
}

// lives is how often the number of operations is tried past that of one life:
// concurrent calls batch differently each time.
const slack = 6

// TestCrashOfServer stops the disk at every operation of a server's life.
func TestCrashOfServer(t *testing.T) {
	for _, look := range []bool{false, true} {
		d, w, a := crashfs.New(), &world{done: map[string]int{}}, &acked{by: map[string]string{}}
		m, err := start(d, w, look)
		if err != nil {
			t.Fatal(err)
		}
		m.work(a)
		oracle(t, d, w, a, look)
		if len(a.by) != 5 {
			t.Fatalf("without a crash %d calls were answered, want 5", len(a.by))
		}
		for n := 1; n <= d.Ops()+slack; n++ {
			d, w, a := crashfs.New(), &world{done: map[string]int{}}, &acked{by: map[string]string{}}
			d.CrashAt(n)
			if m, err := start(d, w, look); err == nil {
				m.work(a)
			}
			for _, torn := range crashfs.All() {
				t.Run(fmt.Sprintf("look=%v/%d-%s", look, n, torn), func(t *testing.T) {
					// Each way the crash may go has a world of its own.
					w2, a2 := &world{done: map[string]int{}}, &acked{by: map[string]string{}}
					for k, v := range w.done {
						w2.done[k] = v
					}
					for k, v := range a.by {
						a2.by[k] = v
					}
					again(t, d.After(torn), w2, a2, look)
					if t.Failed() {
						t.Log(strings.Join(d.Log(), "\n"))
					}
				})
			}
		}
	}
}

// TestFailureOfServer makes every operation fail once, without and with its
// effect; the server lives on, is asked everything again, and is then started
// anew.
func TestFailureOfServer(t *testing.T) {
	errDisk := errors.New("input/output error")
	for _, look := range []bool{false, true} {
		for _, persisted := range []bool{false, true} {
			for n := 1; ; n++ {
				d, w, a := crashfs.New(), &world{done: map[string]int{}}, &acked{by: map[string]string{}}
				m, err := start(d, w, look)
				if err != nil {
					t.Fatal(err)
				}
				base, hit := d.Ops(), false
				d.OnOp(func(op int, what string) (before, after error) {
					if op != base+n {
						return nil, nil
					}
					hit = true
					if persisted {
						return nil, errDisk
					}
					return errDisk, nil
				})
				m.work(a)
				if !hit {
					break
				}
				t.Run(fmt.Sprintf("look=%v/persisted=%v/%d", look, persisted, n), func(t *testing.T) {
					oracle(t, d, w, a, look)
					d.OnOp(nil)
					m.work(a)
					oracle(t, d, w, a, look)
					m.st.Close()
					again(t, d, w, a, look)
					if t.Failed() {
						t.Log(strings.Join(d.Log(), "\n"))
					}
				})
			}
		}
	}
}

// TestNoRecordNoEffect: where the intent cannot be written the world is
// untouched, down to the directory; denials stay denials.
func TestNoRecordNoEffect(t *testing.T) {
	d, w := crashfs.New(), &world{done: map[string]int{}}
	m, err := start(d, w, true)
	if err != nil {
		t.Fatal(err)
	}
	d.OnOp(func(_ int, what string) (error, error) {
		if strings.HasPrefix(what, "write /l/audit") {
			return errors.New("no space left on device"), nil
		}
		if strings.HasPrefix(what, "publish") || strings.HasPrefix(what, "create") || strings.HasPrefix(what, "syncdir") {
			t.Errorf("the world was touched: %s", what)
		}
		return nil, nil
	})
	code := func(err error) int64 {
		wire, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok {
			return 0
		}
		return wire.Code
	}
	for _, tool := range []string{"write_note", "charge"} {
		args := note("id-00001")
		if tool == "charge" {
			args = charge("id-00002")
		}
		if _, err := m.call(context.Background(), tool, args); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("%s: %v", tool, err)
		}
	}
	if _, err := m.call(context.Background(), "rm_rf", `{}`); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("a denial became %v", err)
	}
	if _, err := m.call(context.Background(), "read_ledger", `{}`); code(err) != jsonrpc.CodeInternalError {
		t.Errorf("a read without a record became %v", err)
	}
	if len(w.done) > 0 {
		t.Error("an effect without a record")
	}
	d.OnOp(nil)
	if res, err := m.call(context.Background(), "write_note", note("id-00001")); err != nil || res.IsError {
		t.Errorf("service did not resume: %v %v", res, err)
	}
}

// TestUnrecordedOutcome: the true result comes back, marked, and the next start
// records it.
func TestUnrecordedOutcome(t *testing.T) {
	d, w := crashfs.New(), &world{done: map[string]int{}}
	m, err := start(d, w, true)
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	d.OnOp(func(_ int, what string) (error, error) {
		if strings.HasPrefix(what, "write /l/audit") {
			if writes++; writes > 1 {
				return errors.New("no space left on device"), nil
			}
		}
		return nil, nil
	})
	res, err := m.call(context.Background(), "write_note", note("id-00001"))
	if err != nil || res.IsError || res.Meta["auditledger/unrecorded"] != true {
		t.Fatalf("%+v %v", res, err)
	}
	d.OnOp(nil)
	if m, err = start(d, w, true); err != nil || len(m.in) > 0 {
		t.Fatal(m.in, err)
	}
	all := records(t, d)
	if last := all[len(all)-1]; last.Reason != ledger.ReasonRecovered || last.Outcome != ledger.Committed {
		t.Fatalf("%+v", last)
	}
}

// TestCancelledCalls are recorded all the same, with what became of them.
func TestCancelledCalls(t *testing.T) {
	d, w := crashfs.New(), &world{done: map[string]int{}}
	m, err := start(d, w, true)
	if err != nil {
		t.Fatal(err)
	}
	before, cancel := context.WithCancel(context.Background())
	cancel()
	m.call(before, "write_note", note("id-00001"))
	m.call(before, "rm_rf", `{}`)
	m.call(before, "read_ledger", `{}`)
	during, cancel := context.WithCancel(context.Background())
	d.OnOp(func(_ int, what string) (error, error) {
		if strings.HasPrefix(what, "publish") {
			cancel()
		}
		return nil, nil
	})
	m.call(during, "write_note", note("id-00002"))
	var got []string
	for _, r := range records(t, d) {
		got = append(got, strings.Join([]string{r.Name, r.Decision, r.Outcome, r.Reason}, " "))
	}
	want := []string{
		"write_note void not_executed cancelled", "rm_rf deny not_executed tool_not_allowed", "read_ledger allow observed cancelled",
		"write_note pending intent ", "write_note allow committed cancelled",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDeniedAtTheEntry: a policy that is tightened between the list and the
// tool's own entry denies there, with a record as any other denial's.
func TestDeniedAtTheEntry(t *testing.T) {
	d, w := crashfs.New(), &world{done: map[string]int{}}
	m, err := start(d, w, true)
	if err != nil {
		t.Fatal(err)
	}
	tight, err := policy.Parse([]byte(`{"version":1,"allow":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	next := m.s.gate.Middleware(func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
		if err := m.s.gate.SetPolicy(ctx, tight); err != nil {
			t.Fatal(err)
		}
		return m.s.gate.Handle(ctx, req.(*mcp.CallToolRequest))
	})
	_, err = next(context.Background(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "read_ledger", Arguments: json.RawMessage("{}")}})
	if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != jsonrpc.CodeInvalidParams {
		t.Fatalf("answered by %v", err)
	}
	all := records(t, d)
	last := all[len(all)-1]
	if last.Decision != ledger.Deny || last.RequestID != ledger.MissingRequestID || last.Policy != tight.Digest().String() {
		t.Errorf("recorded as %s", last.Line)
	}
}
