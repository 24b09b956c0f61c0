//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// reloads is how many reloads the ledger tells of.
func (p *place) reloads(t *testing.T) int {
	t.Helper()
	return bytes.Count(read(t, p.audit()), []byte(`"method":"ledger/reload"`))
}

// ready is a started server that answers.
func (s *process) ready() *process {
	s.t.Helper()
	if got := s.ping().kind(); got != "ok" {
		s.t.Fatalf("a ping is answered %q", got)
	}
	return s
}

// reload makes s load the policy again, and waits for the record of it.
func (p *place) reload(t *testing.T, s *process) record {
	t.Helper()
	before := p.reloads(t)
	s.signal(syscall.SIGHUP)
	eventually(t, "the reload is recorded", func() bool { return p.reloads(t) > before })
	all, _ := chain(t, p.audit())
	for _, r := range slices.Backward(all) {
		if r.Method == "ledger/reload" {
			return r
		}
	}
	panic("counted, and not there")
}

// TestReloadTightens: a policy that was tightened binds the next call, also
// one that would be a replay, and the list.
func TestReloadTightens(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	first := note("req-0001", "x")
	calls := []done{{"write_note", "req-0001", first, s.call("write_note", first)}}

	const tight = `{"version":1,"allow":["read_ledger"]}`
	p.setPolicy(t, tight)
	if r := p.reload(t, s); r.Decision != "allow" || r.Outcome != "committed" || r.Policy != digest(tight) || r.ArgsDigest != digest(tight) {
		t.Errorf("the reload is recorded as %+v", r)
	}
	calls = append(calls, done{"write_note", "req-0001", first, s.call("write_note", first)})
	second := note("req-0002", "x")
	calls = append(calls, done{"write_note", "req-0002", second, s.call("write_note", second)})
	if tools := s.tools(); !slices.Equal(tools, []string{"read_ledger"}) {
		t.Errorf("listed are %v", tools)
	}

	p.setPolicy(t, plainPolicy)
	p.reload(t, s)
	calls = append(calls, done{"write_note", "req-0001", first, s.call("write_note", first)})
	if tools := s.tools(); !slices.Equal(tools, []string{"read_ledger", "write_note"}) {
		t.Errorf("listed are %v", tools)
	}
	s.close()
	var kinds []string
	for _, c := range calls {
		kinds = append(kinds, c.kind())
	}
	if want := []string{"committed", "-32602 tool_not_allowed", "-32602 tool_not_allowed", "replay"}; !slices.Equal(kinds, want) {
		t.Errorf("answered %q, want %q", kinds, want)
	}
	for _, r := range p.check(t, calls) {
		want := digest(plainPolicy)
		if r.Decision == "deny" {
			want = digest(tight)
		}
		if r.Method == "tools/call" && r.Policy != want {
			t.Errorf("record %d bears the policy %s, want %s", r.Seq, r.Policy, want)
		}
	}
}

func (s *process) tools() []string {
	id := fmt.Sprintf(`"list-%d"`, s.serial.Add(1))
	a := s.wait(s.ask(id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{"_meta":%s}}`, id, meta)))
	if a.Result == nil {
		return []string{a.raw}
	}
	var names []string
	for _, tool := range a.Result.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// badPolicies are files that no policy can be read from.
var badPolicies = map[string]string{
	"misspelt member":      `{"version":1,"alow":["write_note"]}`,
	"misspelt rule":        `{"version":1,"allow":["write_note"],"arg_rules":{"write_note":{"text":{"max_length":3}}}}`,
	"rule of another type": `{"version":1,"allow":["write_note"],"arg_rules":{"write_note":{"text":{"max_len":"3"}}}}`,
	"list of another type": `{"version":1,"allow":"write_note"}`,
	"null":                 `{"version":1,"allow":null}`,
	"unknown version":      `{"version":99,"allow":["write_note"]}`,
	"no version":           `{"allow":["write_note"]}`,
	"doubled member":       `{"version":1,"allow":["read_ledger"],"allow":["write_note","rm_rf"]}`,
	"doubled by escape":    `{"version":1,"allow":["read_ledger"],"\u0061llow":["rm_rf"]}`,
	"other case":           `{"version":1,"Allow":["rm_rf"]}`,
	"list":                 `[]`,
	"empty":                ``,
	"blank":                " \n",
	"half":                 plainPolicy[:len(plainPolicy)/2],
	"two values":           plainPolicy + plainPolicy,
	"byte-order mark":      "\ufeff" + plainPolicy,
	"no UTF-8":             "{\"version\":1,\"allow\":[\"\xff\"]}",
	"min above max":        `{"version":1,"allow":[],"arg_rules":{"write_note":{"text":{"min_len":4,"max_len":3}}}}`,
}

// badFiles put something else than a policy in its place.
var badFiles = map[string]func(path string) error{
	"missing":       func(string) error { return nil },
	"directory":     func(p string) error { return os.Mkdir(p, 0o755) },
	"named pipe":    func(p string) error { return syscall.Mkfifo(p, 0o644) },
	"dangling link": func(p string) error { return os.Symlink(p+".gone", p) },
	"unreadable":    func(p string) error { return os.WriteFile(p, []byte(plainPolicy), 0) },
	"endless":       func(p string) error { return os.Symlink("/dev/zero", p) },
}

// TestStartWithABadPolicy: it does not start, and says why in one line.
func TestStartWithABadPolicy(t *testing.T) {
	p := newPlace(t)
	p.unprivileged(t)
	refused := func(t *testing.T) {
		t.Helper()
		s := p.start(t, nil)
		s.exit(1)
		log := string(read(t, s.stderr))
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "policy") {
			t.Errorf("stderr is not one line about the policy: %q", log)
		}
		if exists(p.ledger) {
			t.Error("a ledger came into being")
		}
	}
	for name, text := range badPolicies {
		t.Run(name, func(t *testing.T) {
			p.setPolicy(t, text)
			refused(t)
		})
	}
	for name, make := range badFiles {
		t.Run(name, func(t *testing.T) {
			os.Remove(p.policy)
			if err := make(p.policy); err != nil {
				t.Fatal(err)
			}
			refused(t)
		})
	}
}

// TestReloadOfABadPolicy: the one before stays in force, and the attempt is a
// record.
func TestReloadOfABadPolicy(t *testing.T) {
	p := newPlace(t)
	p.unprivileged(t)
	s := p.start(t, nil).ready()
	var calls []done
	n := 0
	kept := func(t *testing.T, content string) {
		t.Helper()
		r := p.reload(t, s)
		if r.Decision != "deny" || r.Outcome != "not_executed" || r.Reason != "invalid_policy" || r.Policy != digest(plainPolicy) {
			t.Errorf("the reload is recorded as %+v, want it denied and the policy kept", r)
		}
		if r.ArgsDigest != digest(content) {
			t.Errorf("the record names the content %s, want %s", r.ArgsDigest, digest(content))
		}
		n++
		id := fmt.Sprintf("req-%04d", n)
		for _, d := range []done{{tool: "write_note", id: id, args: note(id, "x")}, {tool: "rm_rf", id: "missing", args: `{}`}} {
			d.answer = s.call(d.tool, d.args)
			calls = append(calls, d)
		}
		if got := calls[len(calls)-2].kind(); got != "committed" {
			t.Errorf("what was allowed is answered %q", got)
		}
		if got := calls[len(calls)-1].kind(); got != "-32602 tool_not_allowed" {
			t.Errorf("what was denied is answered %q", got)
		}
	}
	for name, text := range badPolicies {
		t.Run(name, func(t *testing.T) {
			p.setPolicy(t, text)
			kept(t, text)
		})
	}
	for name, make := range badFiles {
		t.Run(name, func(t *testing.T) {
			os.Remove(p.policy)
			if err := make(p.policy); err != nil {
				t.Fatal(err)
			}
			kept(t, "")
		})
	}
	t.Run("saved in two halves", func(t *testing.T) {
		os.Remove(p.policy)
		const text = `{"version":1,"allow":["rm_rf","read_ledger"]}`
		put(t, p.policy, text[:30])
		if err := os.Chmod(p.policy, 0o644); err != nil {
			t.Fatal(err)
		}
		kept(t, text[:30])
		f, err := os.OpenFile(p.policy, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(text[30:])
		f.Close()
		if r := p.reload(t, s); r.Decision != "allow" || r.Policy != digest(text) {
			t.Errorf("the whole file is recorded as %+v", r)
		}
		if got := s.call("write_note", note("req-last", "x")).kind(); got != "-32602 tool_not_allowed" {
			t.Errorf("under the new policy a write is answered %q", got)
		}
	})
	s.close()
	p.check(t, calls)
	if log := string(read(t, s.stderr)); strings.Count(log, "level=ERROR") != n {
		t.Errorf("%d errors are logged of %d reloads that failed", strings.Count(log, "level=ERROR"), n)
	}
}

// TestReloadUnderCalls alternates two policies under callers: each call is
// decided by one of them, whole, and its record says by which.
func TestReloadUnderCalls(t *testing.T) {
	const (
		writes = `{"version":1,"allow":["write_note"],"arg_rules":{"write_note":{"text":{"max_len":5}}}}`
		reads  = `{"version":1,"allow":["read_ledger"],"deny":["write_note"]}`
	)
	p := newPlace(t)
	p.setPolicy(t, writes)
	s := p.start(t, nil).ready()
	const callers = 8
	stop := make(chan struct{})
	lists := make([][]done, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("req-%d-%06d", c, n)
				short, long := note(id, "short"), note(id+"-l", "longer than five")
				lists[c] = append(lists[c], s.calls(3, []done{
					{tool: "write_note", id: id, args: short},
					{tool: "write_note", id: id + "-l", args: long},
					{tool: "read_ledger", args: `{}`}})...)
			}
		})
	}
	for i := range 30 {
		p.setPolicy(t, []string{reads, writes}[i%2])
		p.reload(t, s)
	}
	close(stop)
	group.Wait()
	s.close()

	all := slices.Concat(lists...)
	for i, c := range all {
		if c.tool == "read_ledger" { // a denial says no more than that there was no request_id
			if all[i].id = "missing"; c.kind() == "read" {
				all[i].id = "observe"
			}
		}
	}
	want := map[string]string{ // by policy and call: the decision
		digest(writes) + " short": "allow ", digest(reads) + " short": "deny tool_not_allowed",
		digest(writes) + " long": "deny argument_rule", digest(reads) + " long": "deny tool_not_allowed",
		digest(writes) + " read": "deny tool_not_allowed", digest(reads) + " read": "allow ",
	}
	seen := map[string]int{}
	for _, r := range p.check(t, all) {
		if r.Method != "tools/call" || r.Outcome == "intent" {
			continue
		}
		call := "short"
		switch {
		case r.Name == "read_ledger":
			call = "read"
		case strings.HasSuffix(r.RequestID, "-l"):
			call = "long"
		}
		key := r.Policy + " " + call
		if got := r.Decision + " " + r.Reason; got != want[key] {
			t.Errorf("record %d says %q, and its policy says %q", r.Seq, got, want[key])
		}
		seen[key]++
	}
	for key := range want {
		if seen[key] == 0 {
			t.Errorf("no call was decided by %s: the test did not test", key)
		}
	}
	if got := p.reloads(t); got != 30 {
		t.Errorf("%d reloads are recorded, want 30", got)
	}
}
