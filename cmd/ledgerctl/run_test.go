//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/auditledger/auditledger/verify/harness"
)

// fiveNotes is a plan of five notes.
func fiveNotes() string {
	var steps []string
	for i := range 5 {
		id := fmt.Sprintf("note-%d", i+1)
		steps = append(steps, fmt.Sprintf(`{"name":"note %d","do":{"tool":"write_note","args":{"request_id":%q,"text":"text"}},"observe":{"tool":"read_ledger","args":{}},"expect":[{"at":"/structuredContent/notes","contains":{"request_id":%q,"text":"text"}}]}`, i+1, id, id))
	}
	return `{"version":1,"steps":[` + strings.Join(steps, ",\n") + `]}`
}

func (w *workbench) transcript(name string) (t harness.Transcript) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.read(name)), &t); err != nil {
		w.t.Fatal(err)
	}
	return t
}

// The server is killed at each step in turn, before it gets the call, with it, and after it answered: the plan is done,
// each note once.
func TestRunKilledAtEachStep(t *testing.T) {
	for _, which := range []string{"note-1", "note-2", "note-3", "note-4", "note-5", "read_ledger"} {
		for _, when := range []string{"before", "with", "after"} {
			t.Run(which+" "+when, func(t *testing.T) {
				t.Parallel()
				w := newWorkbench(t)
				w.write("plan.json", fiveNotes())
				server := w.self("killer", "KILL_AT="+which+" "+when)
				out := w.ledgerctl(0, append([]string{"run", "plan.json", "--transcript", "t.json", "--"}, server...)...)
				w.contains(out, "RETRY     the answer was lost", "step 5  DONE")
				got := w.transcript("t.json")
				committed := map[string]int{}
				for _, r := range got.Records {
					if r.Outcome == "committed" {
						committed[r.RequestID]++
					}
					w.contains(w.ledgerctl(0, "show", fmt.Sprint(r.Seq)), r.SHA256, r.RequestID)
				}
				if got.Verdict != harness.VerdictDone || len(committed) != 5 || got.RecordsError != "" {
					t.Errorf("%s, %v, %s", got.Verdict, committed, got.RecordsError)
				}
				for id, n := range committed {
					if n != 1 {
						t.Errorf("%s has %d effects", id, n)
					}
				}
				w.contains(w.ledgerctl(0, "verify"), "INTACT")
				w.contains(w.ledgerctl(0, "doubt"), "0 in doubt")
			})
		}
	}
}

const noUndo = `{"do":{"tool":"write_note","args":{"request_id":"note-1","text":"one"}},"observe":{"tool":"read_ledger","args":{}},"expect":[{"at":"/structuredContent/notes/0/text","equals":"two"}]%s}`

func TestRunDiverges(t *testing.T) {
	w := newWorkbench(t)
	w.write("plan.json", `{"version":1,"steps":[`+fmt.Sprintf(noUndo, "")+`]}`)
	out := w.ledgerctl(4, "run", "plan.json", "--", "gated-mcp")
	w.contains(out, `STOP      /structuredContent/notes/0/text is "one", not "two"; step 1 has no compensation`, "STOPPED: ", "record 2  step 1  ", "allow/committed  note-1")
	if strings.Contains(out, "ROLLBACK") {
		t.Errorf("%s", out)
	}

	// A compensation that does not bring about what it must: STOP. One that does: rolled back.
	undo := `,"undo":{"do":{"tool":"write_note","args":{"request_id":"undo-1","text":"undo"}},"observe":{"tool":"read_ledger","args":{}},"expect":[{"at":"/structuredContent/notes","contains":{"request_id":"%s"}}]}`
	w = newWorkbench(t)
	w.write("plan.json", `{"version":1,"steps":[`+fmt.Sprintf(noUndo, fmt.Sprintf(undo, "never"))+`]}`)
	w.contains(w.ledgerctl(4, "run", "plan.json", "--", "gated-mcp"), "STOP      the compensation is not proven: ")
	w = newWorkbench(t)
	w.write("plan.json", `{"version":1,"steps":[`+fmt.Sprintf(noUndo, fmt.Sprintf(undo, "undo-1"))+`]}`)
	out = w.ledgerctl(1, "run", "plan.json", "--format", "json", "--", "gated-mcp")
	var got harness.Transcript
	if err := json.Unmarshal([]byte(out[:strings.Index(out, "\n")]), &got); err != nil || got.Verdict != harness.VerdictRolledBack || len(got.Records) != 4 {
		t.Errorf("%v in %s", err, out)
	}
}

// -32022 from a server: stopped, without initialize and without another try.
func TestRunUnsupported(t *testing.T) {
	w := newWorkbench(t)
	w.write("plan.json", fiveNotes())
	w.contains(w.ledgerctl(4, append([]string{"run", "plan.json", "--"}, w.self("unsupported")...)...), "STOPPED: inconclusive: no answer to the mutation", "error -32022")
	if methods := w.read("methods"); methods != "server/discover\n" {
		t.Errorf("the server was asked %q", methods)
	}
}

func TestRunUsage(t *testing.T) {
	w := newWorkbench(t)
	w.write("plan.json", fiveNotes())
	w.write("bad.json", `{"version":1,"steps":[],"x":1}`)
	w.write("there.json", "mine")
	w.ledgerctl(2, "run", "plan.json")
	w.ledgerctl(2, "run")
	w.contains(w.ledgerctl(2, "run", "bad.json", "--", "gated-mcp"), "plan bad.json: steps: not a list with something in it")
	w.contains(w.ledgerctl(2, "run", "plan.json", "--transcript", "there.json", "--", "gated-mcp"), "is there already")
	w.ledgerctl(3, "run", "gone.json", "--", "gated-mcp")
	w.ledgerctl(3, "run", ".", "--", "gated-mcp")
	w.contains(w.ledgerctl(4, "run", "plan.json", "--", "no-such-server"), "no answer will come")
	if w.read("there.json") != "mine" {
		t.Error("a file was written over")
	}
}
