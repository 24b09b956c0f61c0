//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The oracle reads a ledger and its notes with nothing but the standard library.

type record struct {
	Seq        int
	TS         int64
	RequestID  string `json:"request_id"`
	Method     string
	Name       string
	Decision   string
	Outcome    string
	ArgsDigest string `json:"args_digest"`
	Prev       string `json:"prev_sha256"`
	Sum        string `json:"sha256"`
	Intent     string
	Policy     string
	Reason     string
	Rule       string
	TraceID    string `json:"trace_id"`
}

// String is what a record says of a call: "write_note req-0001 allow/committed recovered".
func (r record) String() string {
	return strings.TrimRight(fmt.Sprintf("%s %s %s/%s %s", r.Name, r.RequestID, r.Decision, r.Outcome, strings.TrimSpace(r.Reason+" "+r.Rule)), " ")
}

var ownSum = regexp.MustCompile(`"sha256":"[0-9a-f]{64}",`)

// chain is every record of a ledger, after its chain was walked; rest is what
// stands after the last newline.
func chain(t *testing.T, path string) (records []record, rest []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	lines := bytes.Split(data, []byte("\n"))
	prev := strings.Repeat("0", 64)
	for i, line := range lines[:len(lines)-1] {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("line %d: %v in %.300q", i+1, err, line)
		}
		at := ownSum.FindIndex(line)
		if at == nil || r.Prev != prev || r.Seq != i+1 || r.Sum != digest(prev+string(line[:at[0]])+string(line[at[1]:])) {
			t.Fatalf("line %d is not linked to the one before it: %s", i+1, line)
		}
		prev = r.Sum
		records = append(records, r)
	}
	return records, lines[len(lines)-1]
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// done is a call and its answer. Args are canonical.
type done struct {
	tool, id, args string
	answer
}

// outcomes is the records that may stand for an answer of a kind.
var outcomes = map[string][]string{
	"committed": {"allow/committed"},
	"replay":    {"allow/replay"},
	"read":      {"allow/observed"},
	"failed":    {"allow/error", "void/error", "deny/not_executed"},
	"-32602":    {"deny/not_executed"},
}

// reconcile checks a ledger whose servers have ended, or are at rest, against the
// calls that were answered, and returns its records and the intents that are
// open. With torn, its end may be the half of a record.
func (p *place) reconcile(t *testing.T, calls []done, torn bool) (records []record, open []record) {
	t.Helper()
	records, rest := chain(t, p.audit())
	if len(rest) > 0 && !torn {
		t.Fatalf("the ledger ends in the middle of a line: %.300q", rest)
	}

	said := map[string]int{}
	effects := map[string]record{}
	intents := map[string]record{}
	for _, r := range records {
		said[fmt.Sprintf("%s %s %s %s/%s", r.Name, r.RequestID, r.ArgsDigest, r.Decision, r.Outcome)]++
		if r.Outcome == "intent" {
			intents[r.Sum] = r
			open = append(open, r)
		}
		if r.Intent != "" {
			in, ok := intents[r.Intent]
			if !ok || in.RequestID != r.RequestID || in.Name != r.Name || in.ArgsDigest != r.ArgsDigest {
				t.Errorf("record %d closes no intent of its own call", r.Seq)
			}
			if r.Decision != "pending" {
				open = slices.DeleteFunc(open, func(o record) bool { return o.Sum == r.Intent })
			}
		}
		if r.Method != "tools/call" || r.Outcome != "committed" {
			continue
		}
		if before, twice := effects[r.RequestID]; twice {
			t.Errorf("%q is committed by record %d and by record %d", r.RequestID, before.Seq, r.Seq)
		}
		effects[r.RequestID] = r
		if r.Decision != "allow" || r.Intent == "" {
			t.Errorf("record %d is a commit without an intent", r.Seq)
		}
	}

	for _, c := range calls {
		kind, _, _ := strings.Cut(c.kind(), " ")
		found := kind == "none" || kind == "-32603"
		for _, outcome := range outcomes[kind] {
			if key := fmt.Sprintf("%s %s %s %s", c.tool, c.id, digest(c.args), outcome); said[key] > 0 && !found {
				said[key]--
				found = true
			}
		}
		if !found {
			t.Errorf("no record of a call that was answered %q: %s %s %.200s", c.kind(), c.tool, c.id, c.args)
		}
	}

	entries, err := os.ReadDir(p.notes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	files := map[string]string{} // by name: digest of the content
	for _, e := range entries {
		files[e.Name()] = digest(string(read(t, filepath.Join(p.notes(), e.Name()))))
	}
	for id, r := range effects {
		if got := files[digest(id)+".json"]; got != r.ArgsDigest {
			t.Errorf("record %d tells of a note, and its file has the digest %q, want %q", r.Seq, got, r.ArgsDigest)
		}
		delete(files, digest(id)+".json")
	}
	for _, o := range open {
		delete(files, digest(o.RequestID)+".json")
	}
	for name := range files {
		t.Errorf("no record tells of %s", name)
	}
	return records, open
}

// check is reconcile for a ledger that ends whole and has no intent open.
func (p *place) check(t *testing.T, calls []done) []record {
	t.Helper()
	records, open := p.reconcile(t, calls, false)
	for _, o := range open {
		t.Errorf("the intent of record %d is open: %s", o.Seq, o)
	}
	return records
}

// listed is the positions of the calls that ledgerctl calls in doubt.
func (p *place) listed(t *testing.T) []int {
	t.Helper()
	out, err := exec.Command(program(t, "ledgerctl"), "doubt", p.ledger, "--format", "json").Output()
	if e, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || e.ExitCode() != 1) {
		t.Fatalf("ledgerctl doubt: %v", err)
	}
	var list []struct{ Seq int }
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("ledgerctl doubt: %v in %.300q", err, out)
	}
	var seqs []int
	for _, l := range list {
		seqs = append(seqs, l.Seq)
	}
	return seqs
}

// told is the records of tool calls after the first n records, as text,
// without intents.
func told(records []record, n int) []string {
	var all []string
	for _, r := range records[n:] {
		if r.Method == "tools/call" && r.Outcome != "intent" {
			all = append(all, r.String())
		}
	}
	return all
}

// seqsOf is the positions of records.
func seqsOf(records []record) []int {
	var seqs []int
	for _, r := range records {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}
