package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
	"github.com/auditledger/auditledger/server/policy"
)

// A server as a tool author writes it: charge changes an account that nobody
// else here knows of.

type chargeArgs struct {
	RequestID string `json:"request_id"`
	Amount    int    `json:"amount"`
}

type receipt struct {
	Total int `json:"total"`
}

// bank is a target of mutations. Its state outlives every server.
type bank struct {
	runs  atomic.Int64
	do    func(ctx context.Context, requestID string, in chargeArgs) (receipt, error)
	look  func(ctx context.Context, requestID string) (receipt, gate.State, error)
	other bool // a second tool, refund
}

func (b *bank) add(s *server.Server) error {
	m := server.Mutation[chargeArgs, receipt]{Look: b.look, Do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
		b.runs.Add(1)
		return b.do(ctx, id, in)
	}}
	err := server.AddMutation(s, &mcp.Tool{Name: "charge"}, m)
	if err == nil && b.other {
		err = server.AddMutation(s, &mcp.Tool{Name: "refund"}, m)
	}
	return err
}

// pay is a do that works.
func pay(_ context.Context, _ string, in chargeArgs) (receipt, error) { return receipt{in.Amount}, nil }

// session is a server that is being served over pipes.
type session struct {
	t     *testing.T
	store *store.Store
	in    *io.PipeWriter
	ended chan error
	doubt []ledger.OpenIntent

	mu      sync.Mutex
	serial  int
	waiting map[int]chan reply
	stray   []string
}

type reply struct {
	raw    string
	Result *struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	Error *struct {
		Code    int
		Message string
		Data    struct{ Reason string }
	}
}

// String is the reason of an error, "failed: TEXT", or the result.
func (r reply) String() string {
	switch {
	case r.Error != nil:
		return fmt.Sprint(r.Error.Code, " ", r.Error.Data.Reason)
	case r.Result == nil:
		return "none"
	case r.Result.IsError:
		return "failed: " + r.Result.Content[0].Text
	}
	return string(r.Result.StructuredContent)
}

// open is a server on the ledger in dir, and what it stands on.
func open(t *testing.T, dir string) (*server.Server, *store.Store) {
	t.Helper()
	p, err := policy.Parse([]byte(`{"version":1,"allow":["charge","refund","balance"]}`))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	results, err := effects.Open(durable.OS, filepath.Join(dir, "results"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Name: "bank", Ledger: st, Policy: p, Results: results})
	if err != nil {
		t.Fatal(err)
	}
	return s, st
}

// serve starts a server on the ledger in dir.
func serve(t *testing.T, dir string, add func(*server.Server) error) *session {
	t.Helper()
	srv, st := open(t, dir)
	if err := add(srv); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, store: st, ended: make(chan error, 1), waiting: map[int]chan reply{}}
	var err error
	if s.doubt, err = srv.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	s.in = toServer
	go func() {
		err := srv.ServeStdio(context.WithoutCancel(t.Context()), in, out)
		out.Close()
		s.ended <- err
	}()
	go s.listen(fromServer)
	return s
}

func (s *session) listen(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var m struct {
			ID int
			reply
		}
		json.Unmarshal(line, &m)
		m.raw = string(line)
		s.mu.Lock()
		if c := s.waiting[m.ID]; c != nil {
			c <- m.reply
			delete(s.waiting, m.ID)
		} else {
			s.stray = append(s.stray, m.raw)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		close(c)
	}
	s.waiting = nil
}

func (s *session) send(line string) {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Error(err)
	}
}

// begin sends a call.
func (s *session) begin(tool, args string) (id int, c <-chan reply) {
	s.mu.Lock()
	s.serial++
	id = s.serial
	waiting := make(chan reply, 1)
	s.waiting[id] = waiting
	s.mu.Unlock()
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, tool, args))
	return id, waiting
}

func (s *session) wait(c <-chan reply) reply {
	s.t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(time.Minute):
		s.t.Fatal("no answer after a minute")
		return reply{}
	}
}

func (s *session) call(tool, args string) reply {
	s.t.Helper()
	_, c := s.begin(tool, args)
	return s.wait(c)
}

func (s *session) cancel(id int) {
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
}

// end ends the input, and wants a good end.
func (s *session) end() {
	s.t.Helper()
	s.in.Close()
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("ServeStdio: %v", err)
		}
	case <-time.After(time.Minute):
		s.t.Fatal("ServeStdio did not return within a minute")
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stray) > 0 {
		s.t.Errorf("answers that nothing asked for: %q", s.stray)
	}
}

// told is what the ledger in dir tells, without intents, and without the first n.
func told(t *testing.T, dir string, n int) (all []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var r struct {
			Name, Decision, Outcome, Reason, Intent string
			RequestID                               string `json:"request_id"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Outcome == "intent" {
			continue
		}
		text := strings.TrimRight(fmt.Sprintf("%s %s %s/%s %s", r.Name, r.RequestID, r.Decision, r.Outcome, r.Reason), " ")
		if r.Intent != "" {
			text += " +" // closes an intent, or tells of it
		}
		all = append(all, text)
	}
	return all[n:]
}

func wantTold(t *testing.T, dir string, n int, want ...string) {
	t.Helper()
	if got := told(t, dir, n); !slices.Equal(got, want) {
		t.Errorf("the ledger tells\n%q, want\n%q", got, want)
	}
}

func wantReply(t *testing.T, got reply, want string) {
	t.Helper()
	if s := got.String(); s != want && !(strings.HasSuffix(want, "…") && strings.HasPrefix(s, strings.TrimSuffix(want, "…"))) {
		t.Errorf("answered %s, want %s", s, want)
	}
}

const (
	first   = `{"request_id":"r1","amount":5}`
	second  = `{"request_id":"r2","amount":7}`
	inDoubt = "failed: an earlier call with this request_id may or may not have had its effect…"
)

// A result is kept, and a retry is answered from there, also after a restart.
func TestResultIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	b := &bank{do: pay}
	for range 2 {
		s := serve(t, dir, b.add)
		if len(s.doubt) > 0 {
			t.Errorf("in doubt: %v", s.doubt)
		}
		for range 2 {
			wantReply(t, s.call("charge", first), `{"total":5}`)
		}
		wantReply(t, s.call("charge", `{"request_id":"r1","amount":6}`), "failed: request_id was used before…")
		s.end()
	}
	if n := b.runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	const replay, conflict = "charge r1 allow/replay", "charge r1 allow/error request_id_conflict"
	wantTold(t, dir, 0, "charge r1 allow/committed +", replay, conflict, replay, replay, conflict)
}

// One request id is one call of one tool.
func TestSameIDOnAnotherTool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	b := &bank{do: pay, other: true}
	s := serve(t, dir, b.add)
	wantReply(t, s.call("charge", first), `{"total":5}`)
	wantReply(t, s.call("refund", first), "failed: request_id was used before…")
	wantReply(t, s.call("charge", first), `{"total":5}`)
	s.end()
	if n := b.runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	wantTold(t, dir, 0, "charge r1 allow/committed +", "refund r1 allow/error request_id_conflict", "charge r1 allow/replay")
}

// A tool that panics is recorded as far as can be known, and the server goes on.
func TestPanic(t *testing.T) {
	looks := func(state gate.State) func(context.Context, string) (receipt, gate.State, error) {
		return func(context.Context, string) (receipt, gate.State, error) { return receipt{50}, state, nil }
	}
	for name, c := range map[string]struct {
		look  func(context.Context, string) (receipt, gate.State, error)
		told  string
		retry string
		runs  int64
	}{
		"without Look": {nil, "charge r1 pending/error panic +", inDoubt, 2},
		"unknown":      {looks(gate.Unknown), "charge r1 pending/error panic +", inDoubt, 2},
		"absent":       {looks(gate.Absent), "charge r1 void/error panic +", `{"total":5}`, 3},
		"present":      {looks(gate.Present), "charge r1 allow/committed panic +", `{"total":50}`, 2},
		"Look panics too": {func(context.Context, string) (receipt, gate.State, error) { panic("SECRET") },
			"charge r1 pending/error panic +", inDoubt, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "l")
			panics := true
			b := &bank{look: c.look, do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
				if id == "r1" && panics {
					panics = false
					panic("SECRET")
				}
				return pay(ctx, id, in)
			}}
			s := serve(t, dir, b.add)
			r := s.call("charge", first)
			wantReply(t, r, "-32603 panic")
			if strings.Contains(r.raw, "SECRET") {
				t.Errorf("the answer quotes the panic: %s", r.raw)
			}
			wantReply(t, s.call("charge", second), `{"total":7}`)
			wantReply(t, s.call("charge", first), c.retry)
			s.end()
			if got := told(t, dir, 0)[0]; got != c.told {
				t.Errorf("the ledger tells %q, want %q", got, c.told)
			}
			if n := b.runs.Load(); n != c.runs {
				t.Errorf("it ran %d times, want %d", n, c.runs)
			}
		})
	}
	t.Run("a read", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "l")
		s := serve(t, dir, func(s *server.Server) error {
			return server.AddRead(s, &mcp.Tool{Name: "balance"}, func(context.Context, struct{}) (receipt, error) { panic("SECRET") })
		})
		for range 2 {
			wantReply(t, s.call("balance", `{}`), "-32603 panic")
		}
		s.end()
		wantTold(t, dir, 0, "balance observe allow/error panic", "balance observe allow/error panic")
	})
}

// An error says nothing of the effect, unless it is a NotDone.
func TestErrorOfDo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	broken, absent := errors.New("the bank hung up"), server.NotDone(errors.New("the bank is closed"))
	var fail error
	b := &bank{do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
		if fail != nil {
			return receipt{}, fail
		}
		return pay(ctx, id, in)
	}}
	s := serve(t, dir, b.add)
	fail = broken
	wantReply(t, s.call("charge", first), "failed: the bank hung up")
	fail = absent
	wantReply(t, s.call("charge", second), "failed: the bank is closed")
	fail = nil
	wantReply(t, s.call("charge", first), inDoubt)
	wantReply(t, s.call("charge", `{"request_id":"r1","amount":6}`), inDoubt)
	wantReply(t, s.call("charge", second), `{"total":7}`)
	s.end()
	if n := b.runs.Load(); n != 3 {
		t.Errorf("it ran %d times, want 3: the call in doubt never again", n)
	}
	wantTold(t, dir, 0, "charge r1 pending/error tool_error +", "charge r2 void/error tool_error +",
		"charge r1 allow/error in_doubt", "charge r1 allow/error in_doubt", "charge r2 allow/committed +")
}

// A result that JSON has no form for leaves the call in doubt, since its effect
// is there and its answer is not.
func TestResultThatCannotBeWritten(t *testing.T) {
	type reading struct {
		Value float64 `json:"value"`
	}
	dir := filepath.Join(t.TempDir(), "l")
	runs := 0
	s := serve(t, dir, func(s *server.Server) error {
		return errors.Join(
			server.AddMutation(s, &mcp.Tool{Name: "charge"}, server.Mutation[chargeArgs, reading]{Do: func(context.Context, string, chargeArgs) (reading, error) {
				runs++
				return reading{math.NaN()}, nil
			}}),
			server.AddRead(s, &mcp.Tool{Name: "balance"}, func(context.Context, struct{}) (reading, error) { return reading{math.Inf(1)}, nil }))
	})
	wantReply(t, s.call("charge", first), "failed: the result cannot be written as JSON…")
	wantReply(t, s.call("charge", first), inDoubt)
	wantReply(t, s.call("balance", `{}`), "failed: …")
	s.end()
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
	wantTold(t, dir, 0, "charge r1 pending/error tool_error +", "charge r1 allow/error in_doubt", "balance observe allow/error tool_error")
}

// What a process left open is closed by the next, as far as Look can tell.
func TestRecoverLooks(t *testing.T) {
	for name, c := range map[string]struct {
		state gate.State
		err   error
		told  []string // by Recover
		retry string
		runs  int64
	}{
		"present":    {gate.Present, nil, []string{"charge r1 allow/committed recovered +"}, `{"total":50}`, 1},
		"absent":     {gate.Absent, nil, []string{"charge r1 void/not_executed recovered +"}, `{"total":5}`, 2},
		"unknown":    {gate.Unknown, nil, nil, inDoubt, 1},
		"Look fails": {gate.Present, errors.New("no connection"), nil, inDoubt, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "l")
			b := &bank{do: func(context.Context, string, chargeArgs) (receipt, error) { return receipt{}, errors.New("hung up") }}
			s := serve(t, dir, b.add)
			wantReply(t, s.call("charge", first), "failed: hung up")
			s.end()

			b.do = pay
			b.look = func(_ context.Context, id string) (receipt, gate.State, error) {
				if id != "r1" {
					t.Errorf("asked for %q", id)
				}
				return receipt{50}, c.state, c.err
			}
			s = serve(t, dir, b.add)
			wantTold(t, dir, 1, c.told...)
			if (len(s.doubt) == 0) != (len(c.told) == 1) || len(s.doubt) == 1 && (s.doubt[0].RequestID != "r1" || s.doubt[0].Name != "charge") {
				t.Errorf("in doubt: %+v", s.doubt)
			}
			wantReply(t, s.call("charge", first), c.retry)
			s.end()
			if n := b.runs.Load(); n != c.runs {
				t.Errorf("it ran %d times, want %d", n, c.runs)
			}

			s = serve(t, dir, b.add) // and once more, from what was kept
			if c.retry != inDoubt {
				b.look = nil
			}
			wantReply(t, s.call("charge", first), c.retry)
			s.end()
		})
	}
}

// A tool whose server no longer has it stays in doubt; nothing is guessed.
func TestRecoverWithoutTheTool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	b := &bank{do: func(context.Context, string, chargeArgs) (receipt, error) { return receipt{}, errors.New("hung up") }}
	s := serve(t, dir, b.add)
	s.call("charge", first)
	s.end()
	s = serve(t, dir, func(*server.Server) error { return nil })
	s.end()
	if len(s.doubt) != 1 || s.doubt[0].RequestID != "r1" {
		t.Errorf("in doubt: %+v", s.doubt)
	}
}

// A call that outlives its cancellation is recorded as it ended, and not answered.
func TestOutlivesItsCancel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	began := make(chan struct{})
	b := &bank{do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
		if id == "r1" {
			close(began)
			<-ctx.Done() // and goes on
		}
		return pay(ctx, id, in)
	}}
	s := serve(t, dir, b.add)
	id, _ := s.begin("charge", first)
	<-began
	s.cancel(id)
	wantReply(t, s.call("charge", first), `{"total":5}`)
	wantReply(t, s.call("charge", second), `{"total":7}`)
	s.mu.Lock()
	if s.waiting[id] == nil {
		t.Error("the cancelled call was answered")
	}
	s.mu.Unlock()
	s.end()
	wantTold(t, dir, 0, "charge r1 allow/committed cancelled +", "charge r1 allow/replay", "charge r2 allow/committed +")
}

// A call that is cancelled while another one has its id does nothing, and takes
// nothing from the other.
func TestCancelledWhileItWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	began, proceed := make(chan struct{}), make(chan struct{})
	b := &bank{do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
		close(began)
		<-proceed
		return pay(ctx, id, in)
	}}
	s := serve(t, dir, b.add)
	_, running := s.begin("charge", first)
	<-began
	id, _ := s.begin("charge", first)
	s.cancel(id)
	wantReply(t, s.call("nothing", `{}`), "-32602 tool_not_allowed") // the server goes on meanwhile
	for deadline := time.Now().Add(time.Minute); !slices.Contains(told(t, dir, 0), "charge r1 void/not_executed cancelled"); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the cancelled call is not recorded while the other one runs")
		}
	}
	close(proceed)
	wantReply(t, s.wait(running), `{"total":5}`)
	s.end()
	if n := b.runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// The end of input waits for what runs.
func TestEndWaitsForWhatRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	began, proceed := make(chan struct{}), make(chan struct{})
	b := &bank{do: func(ctx context.Context, id string, in chargeArgs) (receipt, error) {
		close(began)
		<-proceed
		return receipt{in.Amount}, ctx.Err()
	}}
	s := serve(t, dir, b.add)
	_, c := s.begin("charge", first)
	<-began
	s.in.Close()
	close(proceed)
	wantReply(t, s.wait(c), `{"total":5}`)
	s.end()
	wantTold(t, dir, 0, "charge r1 allow/committed +")
}

// Arguments that the schema does not know are refused with what it knows.
func TestArguments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	b := &bank{do: pay}
	s := serve(t, dir, b.add)
	const usage = "the tool takes amount (integer, required), request_id (string, required)"
	var want []string
	for _, c := range []struct{ args, why, id string }{
		{`{"request_id":"r1","amount":5,"SECRET":"SECRET"}`, "there is an argument that it does not know", "r1"},
		{`{"request_id":"r1","Amount":5,"amount":5}`, "there is an argument that it does not know", "r1"},
		{`{"request_id":"r1","ammount":5}`, "amount is missing", "r1"},
		{`{"amount":5}`, "request_id is missing", "missing"},
		{`{"request_id":"r1","amount":"SECRET"}`, "amount is not as the schema says", "r1"},
		{`{"request_id":"r1","amount":5.5}`, "amount is not as the schema says", "r1"},
		{`{"request_id":7,"amount":5}`, "request_id is not as the schema says", "7"},
		{`{"request_id":"","amount":5}`, "request_id is not as the schema says", ""},
		{`{"request_id":"` + strings.Repeat("é", 257) + `","amount":5}`, "request_id is not as the schema says", strings.Repeat("é", 256)},
	} {
		r := s.call("charge", c.args)
		wantReply(t, r, "failed: invalid arguments of charge: "+c.why+"; "+usage)
		if strings.Contains(r.raw, "SECRET") {
			t.Errorf("the answer quotes what was sent: %s", r.raw)
		}
		want = append(want, "charge "+c.id+" deny/not_executed invalid_arguments")
	}
	wantReply(t, s.call("charge", `{"request_id":"`+strings.Repeat("é", 256)+`","amount":5}`), `{"total":5}`)
	s.end()
	if n := b.runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	wantTold(t, dir, 0, append(want, "charge "+strings.Repeat("é", 256)+" allow/committed +")...)
}

// A tool that cannot be served as it should is refused by its name, and the
// server never panics.
func TestRegistration(t *testing.T) {
	read := func(context.Context, struct{}) (receipt, error) { return receipt{}, nil }
	type tagged struct {
		Value int `json:"value" jsonschema:"minimum=1"` // of the tags of another library
	}
	for name, c := range map[string]struct {
		add  func(s *server.Server) error
		want string
	}{
		"name twice": {func(s *server.Server) error {
			if err := server.AddRead(s, &mcp.Tool{Name: "balance"}, read); err != nil {
				t.Error(err)
			}
			return server.AddRead(s, &mcp.Tool{Name: "balance"}, read)
		}, "balance"},
		"read and mutation of one name": {func(s *server.Server) error {
			if err := (&bank{do: pay}).add(s); err != nil {
				t.Error(err)
			}
			return server.AddRead(s, &mcp.Tool{Name: "charge"}, read)
		}, "charge"},
		"mutation without request_id": {func(s *server.Server) error {
			return server.AddMutation(s, &mcp.Tool{Name: "charge"}, server.Mutation[receipt, receipt]{Do: func(context.Context, string, receipt) (receipt, error) { return receipt{}, nil }})
		}, "request_id"},
		"request_id that may be left out": {func(s *server.Server) error {
			type args struct {
				RequestID string `json:"request_id,omitempty"`
			}
			return server.AddMutation(s, &mcp.Tool{Name: "charge"}, server.Mutation[args, receipt]{Do: func(context.Context, string, args) (receipt, error) { return receipt{}, nil }})
		}, "request_id"},
		"request_id of another type": {func(s *server.Server) error {
			type args struct {
				RequestID int `json:"request_id"`
			}
			return server.AddMutation(s, &mcp.Tool{Name: "charge"}, server.Mutation[args, receipt]{Do: func(context.Context, string, args) (receipt, error) { return receipt{}, nil }})
		}, "request_id"},
		"no Do": {func(s *server.Server) error {
			return server.AddMutation(s, &mcp.Tool{Name: "charge"}, server.Mutation[chargeArgs, receipt]{})
		}, "charge"},
		"arguments that are no struct": {func(s *server.Server) error {
			return server.AddRead(s, &mcp.Tool{Name: "balance"}, func(context.Context, map[string]any) (receipt, error) { return receipt{}, nil })
		}, "balance"},
		"a type without a schema": {func(s *server.Server) error {
			return server.AddRead(s, &mcp.Tool{Name: "balance"}, func(context.Context, struct{ C chan int }) (receipt, error) { return receipt{}, nil })
		}, "balance"},
		"a tag that is no description": {func(s *server.Server) error {
			return server.AddRead(s, &mcp.Tool{Name: "balance"}, func(context.Context, tagged) (receipt, error) { return receipt{}, nil })
		}, "balance"},
		"no name":          {func(s *server.Server) error { return server.AddRead(s, &mcp.Tool{}, read) }, `""`},
		"look-alike":       {func(s *server.Server) error { return server.AddRead(s, &mcp.Tool{Name: "bаlance"}, read) }, `"b\u0430lance"`},
		"zero-width space": {func(s *server.Server) error { return server.AddRead(s, &mcp.Tool{Name: "balance\u200b"}, read) }, `"balance\u200b"`},
		"white space":      {func(s *server.Server) error { return server.AddRead(s, &mcp.Tool{Name: "balance "}, read) }, `"balance "`},
		"control":          {func(s *server.Server) error { return server.AddRead(s, &mcp.Tool{Name: "bal\x1b[2Jance"}, read) }, `"bal\x1b[2Jance"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, filepath.Join(t.TempDir(), "l"))
			err := c.add(s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %s", err, c.want)
			}
		})
	}
	t.Run("no place for results", func(t *testing.T) {
		p, _ := policy.Parse([]byte(`{"version":1}`))
		_, st := open(t, filepath.Join(t.TempDir(), "l"))
		s, err := server.New(server.Config{Ledger: st, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		if err := (&bank{do: pay}).add(s); err == nil || !strings.Contains(err.Error(), "charge") {
			t.Errorf("the error is %v, want one with charge", err)
		}
		for _, c := range []server.Config{{}, {Ledger: st}, {Policy: p}} {
			if _, err := server.New(c); err == nil {
				t.Error("a server without a ledger or a policy")
			}
		}
	})
}

// A server leaves nothing running.
func TestNothingStaysBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		s := serve(t, filepath.Join(t.TempDir(), "l"), (&bank{do: pay}).add)
		for i := range 20 {
			s.begin("charge", fmt.Sprintf(`{"request_id":"r%d","amount":1}`, i%7))
		}
		s.end()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			var stacks [1 << 16]byte
			t.Fatalf("%d goroutines, were %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks[:], true)])
		}
	}
}

// TestGivenUpIsNoFailure: a call that ends because its caller hung up counts as
// cancelled; one that fails then, or beside it, is a failure all the same.
func TestGivenUpIsNoFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	began := make(chan struct{})
	// The reason of the call is the id: how it ends once it is given up.
	end := func(ctx context.Context, how string) error {
		began <- struct{}{}
		if how != "fails-beside" {
			<-ctx.Done()
		}
		if how == "gives-up" {
			return fmt.Errorf("ask the bank: %w", ctx.Err())
		}
		return errors.New("the bank is closed")
	}
	b := &bank{
		do: func(ctx context.Context, id string, _ chargeArgs) (receipt, error) {
			return receipt{}, server.NotDone(end(ctx, id))
		},
	}
	type balanceArgs struct {
		How string `json:"how"`
	}
	s := serve(t, dir, func(srv *server.Server) error {
		err := server.AddRead(srv, &mcp.Tool{Name: "balance"}, func(ctx context.Context, in balanceArgs) (receipt, error) {
			return receipt{}, end(ctx, in.How)
		})
		return errors.Join(err, b.add(srv))
	})
	for _, tool := range []string{"balance", "charge"} {
		for _, how := range []string{"gives-up", "fails-then", "fails-beside"} {
			args := fmt.Sprintf(`{"how":%q}`, how)
			if tool == "charge" {
				args = fmt.Sprintf(`{"request_id":%q,"amount":5}`, how)
			}
			id, c := s.begin(tool, args)
			<-began
			if how == "fails-beside" {
				wantReply(t, s.wait(c), "failed: the bank is closed")
				continue
			}
			s.cancel(id)
		}
	}
	s.end()
	count := map[string]int{}
	f, err := os.Open(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := ledger.NewLines(f, 0); lines.Next(); {
		var v ledger.View
		if err := v.Parse(lines.Line()); err != nil {
			t.Fatal(err)
		}
		if i := v.Call(); i >= 0 {
			count[string(v.Name)+" "+ledger.CallOutcomes[i]]++
		}
	}
	if want := map[string]int{`"balance" cancelled`: 1, `"balance" error`: 2, `"charge" cancelled`: 1, `"charge" error`: 2}; !maps.Equal(count, want) {
		t.Errorf("counted as %v, want %v", count, want)
	}
}
