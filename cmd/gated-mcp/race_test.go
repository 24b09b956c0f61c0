//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// calls makes calls, window of them at once, and returns them with their
// answers.
func (s *process) calls(window int, list []done) []done {
	waiting := make([]<-chan answer, len(list))
	for i, d := range list {
		if i >= window {
			list[i-window].answer = s.wait(waiting[i-window])
		}
		waiting[i] = s.begin(d.tool, d.args)
	}
	for i := max(0, len(list)-window); i < len(list); i++ {
		list[i].answer = s.wait(waiting[i])
	}
	return list
}

// count is how many answers there are of each kind.
func count(calls []done) map[string]int {
	kinds := map[string]int{}
	for _, c := range calls {
		kinds[c.kind()]++
	}
	return kinds
}

// TestTwoProcessesKeepOneChain: 2 servers, 16 callers each, with ids of their
// own, ids that all share, and ids that the two use for different texts.
func TestTwoProcessesKeepOneChain(t *testing.T) {
	const processes, callers, rounds = 2, 16, 6
	p := newPlace(t)
	var mu sync.Mutex
	var all []done
	var servers []*process
	var group sync.WaitGroup
	for i := range processes {
		s := p.start(t, nil)
		servers = append(servers, s)
		for c := range callers {
			group.Go(func() {
				var list []done
				for r := range rounds {
					own, shared, fought := fmt.Sprintf("own-%d-%d-%d", i, c, r), fmt.Sprintf("shared-%d", r), fmt.Sprintf("fought-%d", r)
					list = append(list,
						done{tool: "write_note", id: own, args: note(own, "own")},
						done{tool: "write_note", id: shared, args: note(shared, "shared")},
						done{tool: "write_note", id: fought, args: note(fought, fmt.Sprint("from ", i))},
						done{tool: "rm_rf", id: "missing", args: fmt.Sprintf(`{"path":"/%d/%d/%d"}`, i, c, r)})
				}
				list = s.calls(4, list)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, list...)
			})
		}
	}
	group.Wait()
	for _, s := range servers {
		s.close()
	}

	kinds := count(all)
	own, each := processes*callers*rounds, processes*callers*rounds
	// Of each id that is fought for, one process has the commit and the replays, the other the conflicts.
	want := map[string]int{"committed": own + 2*rounds, "replay": each - rounds + callers*rounds - rounds,
		"failed": callers * rounds, "-32602 tool_not_allowed": each}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d calls answered %q, want %d", kinds[kind], kind, n)
		}
	}
	records := p.check(t, all)
	if got := len(told(records, 0)); got != len(all) {
		t.Errorf("%d outcomes are recorded of %d calls", got, len(all))
	}
	conflicts := 0
	for _, r := range records {
		if r.Reason == "request_id_conflict" {
			conflicts++
		}
	}
	if conflicts != callers*rounds {
		t.Errorf("%d conflicts are recorded, want %d", conflicts, callers*rounds)
	}
}

// TestOneIDManyCallers: 20 first calls at once, in each of two processes.
func TestOneIDManyCallers(t *testing.T) {
	p := newPlace(t)
	var lists [2][]done
	var group sync.WaitGroup
	for i := range lists {
		s := p.start(t, nil)
		list := make([]done, 20)
		for j := range list {
			list[j] = done{tool: "write_note", id: "req-same", args: note("req-same", "once")}
		}
		group.Go(func() {
			lists[i] = s.calls(len(list), list)
			s.close()
		})
	}
	group.Wait()
	all := slices.Concat(lists[0], lists[1])
	if kinds := count(all); kinds["committed"] != 1 || kinds["replay"] != 39 {
		t.Errorf("answered %v, want 1 committed and 39 replay", kinds)
	}
	p.check(t, all)
}

// TestEndOfInputWithCallsInFlight: what was sent is answered and recorded.
func TestEndOfInputWithCallsInFlight(t *testing.T) {
	for _, era := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(era, func(t *testing.T) {
			p := newPlace(t)
			s := p.start(t, nil, "--debug")
			line := callLine
			if era == "2025-11-25" {
				init := s.ask("0", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
				s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				if a := s.wait(init); a.kind() != "ok" {
					t.Fatalf("initialize: %s", a.raw)
				}
				line = func(id, tool, args string) string {
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
				}
			}
			var calls []done
			var waiting []<-chan answer
			for i := range 64 {
				rid := fmt.Sprintf("req-%04d", i/2) // each twice
				d := done{tool: "write_note", id: rid, args: note(rid, "last words")}
				if i%8 == 7 {
					d = done{tool: "rm_rf", id: "missing", args: `{}`}
				}
				id := fmt.Sprint(i + 1)
				calls, waiting = append(calls, d), append(waiting, s.ask(id, line(id, d.tool, d.args)))
			}
			s.stdin.Close()
			for i := range calls {
				calls[i].answer = s.wait(waiting[i])
			}
			s.exit(0)
			if kinds := count(calls); kinds["committed"] != 32 || kinds["replay"] != 24 || kinds["-32602 tool_not_allowed"] != 8 {
				t.Errorf("answered %v, want 32 committed, 24 replay and 8 denied", kinds)
			}
			if got := len(told(p.check(t, calls), 0)); got != len(calls) {
				t.Errorf("%d outcomes are recorded of %d calls", got, len(calls))
			}
		})
	}
}

// TestTermWithCallsInFlight: what was read is answered and recorded, what was
// not read did not happen.
func TestTermWithCallsInFlight(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	var calls []done
	var waiting []<-chan answer
	for i := range 200 {
		rid := fmt.Sprintf("req-%04d", i)
		calls = append(calls, done{tool: "write_note", id: rid, args: note(rid, "x")})
		waiting = append(waiting, s.begin("write_note", calls[i].args))
		if i == 20 {
			calls[0].answer = s.wait(waiting[0])
			s.signal(syscall.SIGTERM)
		}
	}
	answered := 0
	for i := range calls {
		if i > 0 {
			calls[i].answer = s.wait(waiting[i])
		}
		if calls[i].kind() == "committed" {
			answered++
		}
	}
	s.exit(0) // with its input still open
	if kinds := count(calls); kinds["none"]+answered != len(calls) || answered == 0 {
		t.Errorf("answered %v, want some committed and the others not taken", kinds)
	}
	if got := len(told(p.check(t, calls), 0)); got != answered {
		t.Errorf("%d outcomes are recorded, and %d calls were answered", got, answered)
	}
}

// TestClientHangsUp: nobody reads the answers any more, and the calls that were
// read are recorded all the same.
func TestClientHangsUp(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	if a := s.call("write_note", note("req-0000", "x")); a.kind() != "committed" {
		t.Fatalf("answered %q", a.kind())
	}
	s.stdout.Close()
	for i := range 50 {
		s.begin("write_note", note(fmt.Sprintf("req-%04d", i+1), "x"))
	}
	s.exit(1)
	p.check(t, nil)
}

// TestStdoutIsTheProtocolAlone: with everything odd that can be had, stdout carries
// answers and nothing else.
func TestStdoutIsTheProtocolAlone(t *testing.T) {
	p := newPlace(t)
	p.setPolicy(t, `{"version":1,"allow":["write_note ","Write_Note","write\u200b_note","no_such_tool","read_ledger"]}`)
	if err := os.MkdirAll(p.ledger, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, p.ledger+"/head.json", "not json")
	s := p.start(t, []string{"DEBUG=1", "LOG_LEVEL=debug", "GODEBUG=gctrace=1"}, "--debug")
	s.send("nonsense")
	if a := s.stray(); a.id != "null" || a.kind() != "-32700" {
		t.Errorf("nonsense is answered %s", a.raw)
	}
	p.setPolicy(t, "{")
	s.signal(syscall.SIGHUP)
	eventually(t, "the reload is recorded", func() bool { return p.reloads(t) == 1 })
	if got := s.call("read_ledger", `{}`).kind(); got != "read" {
		t.Errorf("a read is answered %q", got)
	}
	s.close()
	log := string(read(t, s.stderr))
	for _, entry := range []string{`"write_note \"`, `"Write_Note\"`, `\\u200b_note\"`, `"no_such_tool\"`} {
		if !strings.Contains(log, entry) {
			t.Errorf("no warning of the entry %q, which no tool has, escaped, in:\n%s", entry, log)
		}
	}
	p.check(t, nil)
}
