//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call has a gated-mcp do one call, and returns the position of its last record.
func (w *workbench) call(tool, args string) int {
	w.t.Helper()
	w.write("call.json", fmt.Sprintf(`{"version":1,"steps":[{"do":{"tool":%q,"args":%s},"observe":{"snapshot":["policy.json"]},"expect":[{"at":"/policy.json/type","equals":"file"}]}]}`, tool, args))
	w.ledgerctl(0, "run", "call.json", "--", "gated-mcp")
	lines := strings.Split(strings.TrimSpace(w.read("ledger/audit.jsonl")), "\n")
	return len(lines)
}

// last is the last record.
func (w *workbench) last() (r struct {
	Decision, Outcome string
	Targets           []struct {
		Argument, Path string
		Before, After  *struct {
			State, Type, Reason, SHA256 string
			Size, Entries               int64
			MTime                       json.Number `json:"mtime_ns"`
		}
		Unchanged *bool
	}
}) {
	w.t.Helper()
	lines := strings.Split(strings.TrimSpace(w.read("ledger/audit.jsonl")), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// The record of a denial says what stood at its target, before and after.
func TestTargetsOfDenial(t *testing.T) {
	w := newWorkbench(t)
	w.write("policy.json", `{"version":2,"allow":["read_ledger","write_note"],"deny":["rm_rf"],"targets":{"rm_rf":["path"]}}`)
	w.write("target", "hello")
	seq := fmt.Sprint(w.call("rm_rf", `{"request_id":"x","path":"target"}`))
	r := w.last()
	if len(r.Targets) != 1 || r.Decision != "deny" {
		t.Fatalf("%+v", r)
	}
	e := r.Targets[0]
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if e.Argument != "path" || e.Path != "target" || e.Unchanged == nil || !*e.Unchanged || *e.Before != *e.After || e.Before.SHA256 != sum || e.Before.Size != 5 || e.Before.MTime == "" {
		t.Errorf("%+v %+v", e, e.Before)
	}
	w.contains(w.ledgerctl(0, "show", seq), "\n  targets      path = target: unchanged\n    before     a file of 5 bytes, ", "\n    after      a file of 5 bytes, ", ", sha256 "+sum+"\n")
	w.contains(w.ledgerctl(0, "show", seq, "--format", "json"), `"targets":[{"after":{"mtime_ns":`)
	w.contains(w.ledgerctl(0, "verify"), "INTACT")

	// The disk of later.
	w.contains(w.ledgerctl(0, "diff", "--record", seq, "--now"), "THE SAME: 1 same")
	w.write("target", "jello")
	w.contains(w.ledgerctl(1, "diff", "--record", seq, "--now"), "content  target  5 bytes, sha256 2cf24dba5fb0… → 5 bytes, sha256 ", "DIFFERENT: 1 content")
	if err := os.Remove(filepath.Join(w.dir, "target")); err != nil {
		t.Fatal(err)
	}
	w.contains(w.ledgerctl(1, "diff", "--record", seq, "--now", "--format", "json"), `"kind":"removed","path":"target"`)
	w.contains(w.ledgerctl(3, "diff", "--record", "99", "--now"), "no record 99")
	w.ledgerctl(2, "diff", "--record", seq)
	w.ledgerctl(2, "diff", "--record", "x", "--now")
	w.ledgerctl(2, "diff", "--record", seq, "--now", "more")
}

// An effect is seen: the intent holds what was there before, the outcome both. Here the path is the notes' own folder.
func TestTargetsOfMutation(t *testing.T) {
	w := newWorkbench(t)
	w.write("policy.json", `{"version":2,"allow":["write_note"],"targets":{"write_note":["text"]},"target_root":"ledger"}`)
	w.call("write_note", `{"request_id":"note-1","text":"ledger/notes"}`)
	seq := w.call("write_note", `{"request_id":"note-2","text":"ledger/notes"}`)
	r := w.last()
	if len(r.Targets) != 1 || r.Outcome != "committed" {
		t.Fatalf("%+v", r)
	}
	if e := r.Targets[0]; e.Unchanged == nil || *e.Unchanged || e.Before.Entries != 2 || e.After.Entries != 3 || e.Before.Type != "dir" {
		t.Errorf("%+v, %+v, %+v", e, e.Before, e.After)
	}
	w.contains(w.ledgerctl(0, "show", fmt.Sprint(seq)), "targets      text = ledger/notes: CHANGED", "before     a dir of 2 entries, ", "after      a dir of 3 entries, ")
	w.contains(w.ledgerctl(0, "show", fmt.Sprint(seq-1)), "targets      text = ledger/notes\n    before     a dir of 2 entries, ", "  ts  ")
	w.contains(w.ledgerctl(0, "diff", "--record", fmt.Sprint(seq), "--now"), "THE SAME")
	w.contains(w.ledgerctl(1, "diff", "--record", fmt.Sprint(seq-1), "--now"), "content  ledger/notes  a directory with sha256 ")
	w.call("write_note", `{"request_id":"note-2","text":"ledger/notes"}`)
	if r := w.last(); r.Outcome != "replay" || r.Targets[0].Unchanged == nil || !*r.Targets[0].Unchanged {
		t.Errorf("%+v", r)
	}
	w.contains(w.ledgerctl(0, "verify"), "INTACT")
}

// What may not be looked at, or is none, says so and opens nothing.
func TestTargetsNotLookedAt(t *testing.T) {
	w := newWorkbench(t)
	if err := os.MkdirAll(filepath.Join(w.dir, "root/in"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("secret", "s")
	w.write("root/in/f", "x")
	for name, to := range map[string]string{"root/out": "..", "root/inner": "in"} {
		if err := os.Symlink(to, filepath.Join(w.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.write("policy.json", `{"version":2,"deny":["rm_rf"],"targets":{"rm_rf":["path"]},"target_root":"root"}`)
	many := `"root/in/f"` + strings.Repeat(`,"root/in/f"`, 30)
	for i, c := range []struct{ value, state, reason string }{
		{`"root/in/f"`, "exists", ""},
		{`"root/inner/f"`, "exists", ""},
		{`"root/in/gone"`, "absent", "no such file or directory"},
		{`"secret"`, "not_looked_at", "outside of target_root"},
		{`"/etc/passwd"`, "not_looked_at", "outside of target_root"},
		{`"root/out/secret"`, "not_looked_at", "a link leads out of target_root"},
		{`"root/../secret"`, "not_looked_at", `".." in the path`},
		{`""`, "not_looked_at", "an empty path"},
		{`"a\u0000"`, "not_looked_at", "a zero byte"},
		{`7`, "not_looked_at", "the argument is no path"},
		{`null`, "not_looked_at", "the argument is no path"},
		{`[1]`, "not_looked_at", "an element that is no path"},
		{`["root/in/f"]`, "exists", ""},
		{`[` + many + `]`, "exists", ""},
		{`"` + strings.Repeat("x/", 3000) + `"`, "not_looked_at", "a path of more than 4096 bytes"},
	} {
		seq := w.call("rm_rf", fmt.Sprintf(`{"request_id":"x","path":%s}`, c.value))
		r := w.last()
		if seq != i+1 || len(r.Targets) == 0 {
			t.Fatalf("%.60s: %+v", c.value, r)
		}
		e := r.Targets[0]
		if e.Before.State != c.state || !strings.Contains(e.Before.Reason, c.reason) || (e.Unchanged == nil) != (c.state == "not_looked_at") {
			t.Errorf("%.60s: %+v, %+v", c.value, e, e.Before)
		}
		if len(r.Targets) > 17 {
			t.Errorf("%d targets", len(r.Targets))
		}
		if c.state == "not_looked_at" {
			w.contains(w.ledgerctl(0, "show", fmt.Sprint(seq)), "cannot be told whether it changed", "not looked at: ")
			w.contains(w.ledgerctl(3, "diff", "--record", fmt.Sprint(seq), "--now"), "unknown", "UNKNOWN: 1 unknown")
		}
	}
	w.call("rm_rf", `{"request_id":"x"}`)
	if e := w.last().Targets[0]; e.Before.Reason != "the argument is absent" {
		t.Errorf("%+v", e.Before)
	}
	w.contains(w.ledgerctl(0, "verify"), "INTACT")

	// Without targets, nothing is in the record.
	w = newWorkbench(t)
	w.call("rm_rf", `{"request_id":"x","path":"policy.json"}`)
	if text := w.read("ledger/audit.jsonl"); strings.Contains(text, "targets") {
		t.Error(text)
	}
	w.contains(w.ledgerctl(3, "diff", "--record", "1", "--now"), "record 1 tells of no targets")
}
