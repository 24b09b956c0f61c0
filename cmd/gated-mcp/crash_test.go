//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// number is a number from the environment.
func number(t *testing.T, name string, or uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A caller makes calls, several at once, and those that were not answered
// again after a restart, with the same request_id.
type caller struct {
	name string
	rng  *rand.Rand
	open []done // not answered
	made int
	done []done
}

// next is a call to make in a round.
func (c *caller) next(round int) done {
	c.made++
	switch n := c.rng.IntN(32); {
	case n == 0:
		return done{tool: "read_ledger", id: "observe", args: "{}"}
	case n < 6:
		return done{tool: "rm_rf", id: "missing", args: `{"path":"/"}`}
	case n < 12: // many callers make this one
		id := fmt.Sprintf("shared-%d-%d", round, c.rng.IntN(4))
		return done{tool: "write_note", id: id, args: note(id, "of all")}
	}
	id := fmt.Sprintf("%s-%06d", c.name, c.made)
	return done{tool: "write_note", id: id, args: note(id, c.name)}
}

// run makes calls until the server is gone, or limit of them were answered.
func (c *caller) run(s *process, round, limit int, answered func()) {
	const window = 4
	type flying struct {
		done
		c <-chan answer
	}
	var queue []flying
	retry := c.open
	c.open = nil
	for n := 0; ; {
		for len(queue) < window && n < limit {
			var d done
			if len(retry) > 0 {
				d, retry = retry[0], retry[1:]
			} else {
				d = c.next(round)
			}
			queue = append(queue, flying{d, s.begin(d.tool, d.args)})
			n++
		}
		if len(queue) == 0 {
			c.open = append(c.open, retry...)
			return
		}
		d := queue[0].done
		d.answer = s.wait(queue[0].c)
		queue = queue[1:]
		if d.kind() == "none" {
			for _, q := range queue { // some of them may have been answered
				if q.answer = s.wait(q.c); q.kind() == "none" {
					c.open = append(c.open, q.done)
				} else {
					c.done = append(c.done, q.done)
				}
			}
			d.answer = answer{}
			c.open = append(append(c.open, d), retry...)
			return
		}
		c.done = append(c.done, d)
		answered()
	}
}

// TestCrashKilledAtRandomMoments kills a server that many callers use, again
// and again, and lets the next one go on from what is there.
func TestCrashKilledAtRandomMoments(t *testing.T) {
	kills := int(number(t, "CRASH_KILLS", 15))
	seed := number(t, "CRASH_SEED", uint64(time.Now().UnixNano()))
	t.Logf("CRASH_KILLS=%d CRASH_SEED=%d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	p := newPlace(t)
	callers := make([]*caller, 16)
	for i := range callers {
		callers[i] = &caller{name: fmt.Sprintf("caller-%02d", i), rng: rand.New(rand.NewPCG(seed, uint64(i)+1))}
	}
	answered := func() (all []done) {
		for _, c := range callers {
			all = append(all, c.done...)
		}
		return all
	}
	var survived []byte           // of the ledger, whole lines
	inFlight := map[string]bool{} // intents that were open after a kill
	var recovered, torn int

	// restarted checks what a server made of what the one before left.
	restarted := func(s *process) {
		if got := s.ping().kind(); got != "ok" {
			t.Fatalf("the restarted server answers a ping with %q", got)
		}
		_, open := p.reconcile(t, answered(), false)
		if listed := p.listed(t); !slices.Equal(listed, seqsOf(open)) {
			t.Errorf("ledgerctl doubt lists %v, open are %v", listed, seqsOf(open))
		}
		for _, o := range open {
			t.Errorf("still in doubt, though a note can be looked at: %s", o)
		}
	}

	for round := range kills {
		s := p.start(t, nil)
		target := int64(rng.IntN(150))
		delay := time.Duration(rng.IntN(3000)) * time.Microsecond
		atStart := round%5 == 4
		if atStart {
			delay = time.Duration(rng.IntN(100_000)) * time.Microsecond
			target = 0
		} else {
			restarted(s)
		}
		reached := make(chan struct{})
		var answers atomic.Int64
		count := func() {
			if answers.Add(1) == target+1 {
				close(reached)
			}
		}
		if atStart {
			close(reached)
			count = func() {}
		}
		var group sync.WaitGroup
		for _, c := range callers {
			group.Go(func() { c.run(s, round, 1<<30, count) })
		}
		<-reached
		<-time.After(delay)
		s.kill()
		group.Wait()
		if t.Failed() {
			return
		}

		data, err := os.ReadFile(p.audit())
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, survived) {
			t.Fatalf("kill %d: what survived the kill before is not a prefix of the ledger", round)
		}
		survived = data[:bytes.LastIndexByte(data, '\n')+1]
		if len(survived) < len(data) {
			torn++
		}
		_, open := p.reconcile(t, answered(), true)
		for _, o := range open {
			inFlight[o.Sum] = true
		}
		if t.Failed() {
			t.Fatalf("after kill %d", round)
		}
	}

	s := p.start(t, nil)
	restarted(s)
	var group sync.WaitGroup
	for _, c := range callers {
		group.Go(func() { c.run(s, kills, len(c.open)+4, func() {}) })
	}
	group.Wait()
	s.close()
	for _, c := range callers {
		if len(c.open) > 0 {
			t.Errorf("%s: %d calls were never answered", c.name, len(c.open))
		}
		for _, d := range c.done {
			ok := d.kind() == "committed" || d.kind() == "replay"
			switch d.tool {
			case "rm_rf":
				ok = d.kind() == "-32602 tool_not_allowed"
			case "read_ledger":
				ok = d.kind() == "read"
			}
			if !ok {
				t.Fatalf("%s %s was answered %q: %s", d.tool, d.id, d.kind(), d.text())
			}
		}
	}
	records := p.check(t, answered())
	committed := map[string]bool{}
	for _, r := range records {
		if r.Reason == "recovered" {
			recovered++
		}
		if r.Outcome == "committed" {
			committed[r.RequestID] = true
		}
	}
	for _, d := range answered() {
		if d.tool == "write_note" && !committed[d.id] {
			t.Errorf("%s has no effect", d.id)
		}
	}
	if recovered != len(inFlight) {
		t.Errorf("%d intents were open after a kill, %d were closed by a restart", len(inFlight), recovered)
	}
	t.Logf("%d kills survived: %d calls answered, %d records, %d notes, %d intents closed by a restart, %d torn lines",
		kills, len(answered()), len(records), len(committed), recovered, torn)
}

// TestCrashBeforeTheEffect kills a server between the sync of a note and its
// getting a name, while another one looks on.
func TestCrashBeforeTheEffect(t *testing.T) {
	p := newPlace(t)
	marker := filepath.Join(p.root, "marker")
	first := p.start(t, []string{"CRASH_MARKER=" + marker})
	const id = "req-crash-0001"
	args := note(id, "once")
	lost := first.begin("write_note", args)
	eventually(t, "the call comes to the point before its commit", func() bool { return exists(marker) })

	// A second server leaves the call alone while the first is at it.
	second := p.start(t, nil)
	if got := second.call("rm_rf", `{}`).kind(); got != "-32602 tool_not_allowed" {
		t.Errorf("the second server answers %q", got)
	}
	records, open := p.reconcile(t, nil, false)
	if len(open) != 1 || open[0].RequestID != id {
		t.Fatalf("%d intents are open, want that of the call: %v", len(open), records)
	}
	if listed := p.listed(t); !slices.Equal(listed, seqsOf(open)) {
		t.Errorf("ledgerctl doubt lists %v, open is %v", listed, seqsOf(open))
	}
	if entries, err := os.ReadDir(p.notes()); err != nil || len(entries) > 0 {
		t.Errorf("there are effects before their publication: %v, %v", entries, err)
	}
	retry := second.begin("write_note", args) // waits for the first
	if got := second.call("read_ledger", `{}`).kind(); got != "read" {
		t.Errorf("beside a call that waits, a read is answered %q", got)
	}
	select {
	case a := <-retry:
		t.Fatalf("answered %q while another process is at the call", a.kind())
	default:
	}

	first.kill()
	if a := first.wait(lost); a.kind() != "none" {
		t.Errorf("the killed server answered %q", a.kind())
	}
	calls := []done{{"write_note", id, args, second.wait(retry)}, {"write_note", id, args, second.call("write_note", args)}}
	second.close()
	if calls[0].kind() != "committed" || calls[1].kind() != "replay" {
		t.Errorf("answered %q, then %q; want committed, then replay", calls[0].kind(), calls[1].kind())
	}
	got := told(p.check(t, calls), 0)
	want := []string{"rm_rf missing deny/not_executed tool_not_allowed", "read_ledger observe allow/observed",
		"write_note " + id + " void/not_executed recovered", "write_note " + id + " allow/committed", "write_note " + id + " allow/replay"}
	if !slices.Equal(got, want) {
		t.Errorf("the ledger tells\n%q, want\n%q", got, want)
	}
}

// TestCrashThenOtherText: an id whose first call left no effect is free for
// other text; one whose call was committed is not.
func TestCrashThenOtherText(t *testing.T) {
	p := newPlace(t)
	marker := filepath.Join(p.root, "marker")
	s := p.start(t, []string{"CRASH_MARKER=" + marker})
	s.begin("write_note", note("req-0001", "before"))
	eventually(t, "the call comes to the point before its commit", func() bool { return exists(marker) })
	s.kill()

	s = p.start(t, nil)
	var calls []done
	var kinds []string
	for _, text := range []string{"after", "before", "after"} {
		args := note("req-0001", text)
		calls = append(calls, done{"write_note", "req-0001", args, s.call("write_note", args)})
		kinds = append(kinds, calls[len(calls)-1].kind())
	}
	s.close()
	if want := []string{"committed", "failed", "replay"}; !slices.Equal(kinds, want) {
		t.Errorf("answered %v, want %v", kinds, want)
	}
	p.check(t, calls)
}
