package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/auditledger/auditledger/ledger/canon"
)

// world is a Caller: put sets a value, get reads all, del removes one.
type world struct {
	state map[string]string
	done  []string // request ids with an effect
	fail  func(tool, id string, try int) error
	tries map[string]int
}

func newWorld() *world { return &world{state: map[string]string{}, tries: map[string]int{}} }

func (w *world) Call(ctx context.Context, tool string, raw json.RawMessage) (json.RawMessage, error) {
	var args struct {
		ID    string `json:"request_id"`
		Key   string
		Value string
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	w.tries[tool+args.ID]++
	var lost error
	if w.fail != nil {
		lost = w.fail(tool, args.ID, w.tries[tool+args.ID])
		if errors.Is(lost, errBefore) {
			return nil, lost
		}
	}
	switch {
	case tool == "get":
		b, err := json.Marshal(map[string]any{"structuredContent": w.state})
		return b, errors.Join(err, lost)
	case tool == "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case tool == "refuse":
		return nil, &Refused{-32602, "no"}
	case !slices.Contains(w.done, args.ID) && tool == "put":
		w.state[args.Key] = args.Value
		w.done = append(w.done, args.ID)
	case !slices.Contains(w.done, args.ID) && tool == "del":
		delete(w.state, args.Key)
		w.done = append(w.done, args.ID)
	}
	return json.RawMessage(`{"isError":false}`), lost
}

var errBefore, errAfter = errors.New("lost before"), errors.New("lost after")

func put(key, value string) string {
	return fmt.Sprintf(`{"tool":"put","args":{"request_id":"put-%s","key":%q,"value":%q}}`, key, key, value)
}

func step(do, key, value, undo string) string {
	return fmt.Sprintf(`{"do":%s,"observe":{"tool":"get","args":{}},"expect":[{"at":"/structuredContent/%s","equals":%q}]%s}`, do, key, value, undo)
}

func undo(tool, key string) string {
	return fmt.Sprintf(`,"undo":{"do":{"tool":%q,"args":{"request_id":"undo-%s","key":%q}},"observe":{"tool":"get","args":{}},"expect":[{"at":"/structuredContent/%s","absent":true}]}`, tool, key, key, key)
}

func plan(t *testing.T, steps ...string) *Plan {
	t.Helper()
	p, err := ParsePlan([]byte(`{"version":1,"steps":[` + strings.Join(steps, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func states(t *Transcript) string {
	var all []string
	for _, x := range t.Transitions {
		all = append(all, fmt.Sprint(x.Step, string(x.State)))
	}
	return strings.Join(all, " ")
}

func check(t *testing.T, got *Transcript, verdict Verdict, path, reason string) {
	t.Helper()
	if got.Verdict != verdict || states(got) != path || !strings.Contains(got.Reason, reason) {
		t.Errorf("%s: %s (%s)\nwant %s: %s (%s)", got.Verdict, states(got), got.Reason, verdict, path, reason)
	}
}

func TestDone(t *testing.T) {
	w := newWorld()
	got := Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", ""), step(put("b", "2"), "b", "2", "")))
	check(t, got, VerdictDone, "1DO 1OBSERVE 1CONTINUE 2DO 2OBSERVE 2CONTINUE 2DONE", "")
}

// Lost before or after the effect: sent again with the same id, one effect.
func TestLostAnswers(t *testing.T) {
	for _, lost := range []error{errBefore, errAfter} {
		w := newWorld()
		w.fail = func(tool, id string, try int) error {
			if try < 4 {
				return lost
			}
			return nil
		}
		got := Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", "")))
		check(t, got, VerdictDone, "1DO 1RETRY 1RETRY 1RETRY 1OBSERVE 1RETRY 1RETRY 1RETRY 1CONTINUE 1DONE", "")
		if len(w.done) != 1 {
			t.Errorf("%d effects", len(w.done))
		}
		// One more is past the budget.
		w = newWorld()
		w.fail = func(tool, id string, try int) error { return lost }
		got = Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", undo("del", "a"))))
		check(t, got, VerdictStopped, "1DO 1RETRY 1RETRY 1RETRY 1STOP", "inconclusive: no answer to the mutation: "+lost.Error()+" (asked 4 times)")
	}
}

// Success is no observation, nor is a refusal.
func TestAnswersDecideNothing(t *testing.T) {
	w := newWorld()
	got := Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "2", ""), step(put("b", "1"), "b", "1", "")))
	check(t, got, VerdictStopped, "1DO 1OBSERVE 1STOP", `/structuredContent/a is "1", not "2"; step 1 has no compensation`)
	if w.state["b"] != "" {
		t.Error("the step after was done")
	}
	w = newWorld()
	w.state["a"] = "1"
	got = Run(t.Context(), w, plan(t, step(`{"tool":"refuse","args":{"request_id":"r"}}`, "a", "1", "")))
	check(t, got, VerdictDone, "1DO 1OBSERVE 1CONTINUE 1DONE", "")
}

func TestRollback(t *testing.T) {
	w := newWorld()
	got := Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", undo("del", "a")), step(put("b", "1"), "b", "2", undo("del", "b"))))
	check(t, got, VerdictRolledBack, "1DO 1OBSERVE 1CONTINUE 2DO 2OBSERVE 2ROLLBACK 2UNDO 2PROVE 2UNDONE 1UNDO 1PROVE 1UNDONE", "/structuredContent/b is")
	if len(w.state) != 0 {
		t.Errorf("left: %v", w.state)
	}
	// One without a compensation: nothing is undone.
	w = newWorld()
	got = Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", ""), step(put("b", "1"), "b", "2", undo("del", "b"))))
	check(t, got, VerdictStopped, "1DO 1OBSERVE 1CONTINUE 2DO 2OBSERVE 2STOP", "step 1 has no compensation")
	// A compensation that says that it did it and did not.
	w = newWorld()
	got = Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "2", undo("noop", "a"))))
	check(t, got, VerdictStopped, "1DO 1OBSERVE 1ROLLBACK 1UNDO 1PROVE 1STOP", "the compensation is not proven: /structuredContent/a is there")
}

func TestInconclusive(t *testing.T) {
	hang := `{"do":{"tool":"hang","args":{"request_id":"x"}},"observe":{"tool":"get","args":{}},"expect":[{"at":"","equals":1}]}`
	p, err := ParsePlan([]byte(`{"version":1,"retries":1,"timeout_ms":1,"steps":[` + hang + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, Run(t.Context(), newWorld(), p), VerdictStopped, "1DO 1RETRY 1STOP", "no answer within 1ms (asked 2 times)")

	w := newWorld()
	w.fail = func(string, string, int) error { return fmt.Errorf("%w: %w", errBefore, ErrGone) }
	check(t, Run(t.Context(), w, plan(t, step(put("a", "1"), "a", "1", ""))), VerdictStopped, "1DO 1STOP", "no answer will come")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check(t, Run(ctx, newWorld(), plan(t, step(`{"tool":"hang","args":{"request_id":"x"}}`, "a", "1", ""))), VerdictStopped, "1DO 1STOP", "canceled")

	refused := `{"do":` + put("a", "1") + `,"observe":{"tool":"refuse","args":{}},"expect":[{"at":"","absent":true}]}`
	check(t, Run(t.Context(), newWorld(), plan(t, refused)), VerdictStopped, "1DO 1OBSERVE 1STOP", "the look failed: error -32602: no")
}

func TestSnapshotLook(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("f", []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(expect string) string {
		return `{"do":{"tool":"noop","args":{"request_id":"x"}},"observe":{"snapshot":["f","gone"]},"expect":[` + expect + `]}`
	}
	got := Run(t.Context(), newWorld(), plan(t, look(`{"at":"/f/sha256","equals":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},{"at":"/f","contains":{"size":5,"state":"exists"}},{"at":"/gone/state","equals":"absent"},{"at":"/other","absent":true}`)))
	check(t, got, VerdictDone, "1DO 1OBSERVE 1CONTINUE 1DONE", "")
	if err := os.MkdirAll(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	got = Run(t.Context(), newWorld(), plan(t, look(`{"at":"/f/size","equals":6}`)))
	check(t, got, VerdictStopped, "1DO 1OBSERVE 1STOP", "/f/size is 5, not 6")
	got = Run(t.Context(), newWorld(), plan(t, strings.Replace(look(`{"at":"","contains":{}}`), `"gone"`, `"/proc/self/status"`, 1)))
	if _, err := os.Stat("/proc/self/status"); err == nil {
		check(t, got, VerdictStopped, "1DO 1OBSERVE 1STOP", "the look failed: /proc/self/status is unstable")
	}
}

func TestMatch(t *testing.T) {
	doc := `{"a":{"b":[1,{"c":"hello","d":null},"x/y"]},"m~n":1,"p/q":2,"":3,"f":1.0}`
	for _, c := range []struct {
		expect string
		want   bool
	}{
		{`{"at":"/a/b/0","equals":1}`, true}, {`{"at":"/a/b/0","equals":1.0}`, false}, {`{"at":"/f","equals":1.0}`, true},
		{`{"at":"/a/b/1/c","contains":"ell"}`, true}, {`{"at":"/a/b/1/c","contains":"x"}`, false},
		{`{"at":"/a/b","contains":{"c":"hello"}}`, true}, {`{"at":"/a/b","contains":{"c":"hell"}}`, false}, {`{"at":"/a/b","contains":"x/y"}`, true},
		{`{"at":"/a/b","contains":"x"}`, false}, {`{"at":"/a/b","contains":[1]}`, false},
		{`{"at":"/a","contains":{"b":[1,{"c":"hello","d":null},"x/y"]}}`, true}, {`{"at":"","contains":{"p/q":2}}`, true},
		{`{"at":"/m~0n","equals":1}`, true}, {`{"at":"/p~1q","equals":2}`, true}, {`{"at":"/","equals":3}`, true},
		{`{"at":"/a/b/1/d","equals":null}`, true}, {`{"at":"/a/b/1/d","absent":true}`, false}, {`{"at":"/a/b/1/e","absent":true}`, true},
		{`{"at":"/a/b/3","absent":true}`, true}, {`{"at":"/a/b/00","absent":true}`, true}, {`{"at":"/a/b/-","absent":true}`, true},
		{`{"at":"/z","equals":null}`, false}, {`{"at":"/z","contains":""}`, false},
	} {
		e, err := canon.Parse([]byte(c.expect))
		if err != nil {
			t.Fatal(err)
		}
		x, err := parseExpectation("x", e)
		if err != nil {
			t.Fatal(err)
		}
		v, err := canon.Parse([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if got, how := x.holds(v); got != c.want {
			t.Errorf("%s: %v, %s", c.expect, got, how)
		}
	}
}

func TestPlanIsStrict(t *testing.T) {
	good := step(put("a", "1"), "a", "1", undo("del", "a"))
	for _, c := range []struct{ text, want string }{
		{``, "canon: empty"}, {`[]`, "the plan: array"}, {`{}`, "version: missing"}, {`{"version":1}`, "steps: missing"}, {`{"version":2,"steps":[]}`, "steps: not a list"},
		{`{"version":2,"steps":[` + good + `]}`, "version: not 1"},
		{`{"version":1,"steps":[` + good + `],"Retries":1}`, "Retries: unknown member"}, {`{"version":1,"version":1,"steps":[]}`, "duplicate_key"},
		{`{"version":1,"retries":101,"steps":[` + good + `]}`, "retries: no integer from 0 to 100"}, {`{"version":1,"timeout_ms":0,"steps":[` + good + `]}`, "timeout_ms: no integer"},
		{`{"version":1,"steps":[` + good + `,` + good + `]}`, "steps[1].do.args.request_id: the same as in steps[0].do"},
		{`{"version":1,"steps":[` + strings.Replace(good, "undo-a", "put-a", 1) + `]}`, "steps[0].undo.do.args.request_id: the same as in steps[0].do"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"request_id":"put-a",`, "", 1) + `]}`, "steps[0].do.args.request_id: a mutation needs one"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"equals"`, `"equal"`, 1) + `]}`, "steps[0].expect[0].equal: unknown member"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"equals":"1"`, `"equals":"1","contains":"1"`, 1) + `]}`, "an expectation has one rule"},
		{`{"version":1,"steps":[` + strings.Replace(good, `,"equals":"1"`, ``, 1) + `]}`, "steps[0].expect[0]: no rule in it"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"absent":true`, `"absent":false`, 1) + `]}`, "steps[0].undo.expect[0].absent: can only be true"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"/structuredContent/a"`, `"a"`, 1) + `]}`, "steps[0].expect[0].at: a JSON Pointer"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"/structuredContent/a"`, `"/~2"`, 1) + `]}`, "is written ~0"},
		{`{"version":1,"steps":[` + strings.Replace(good, `[{"at":"/structuredContent/a","equals":"1"}]`, `[]`, 1) + `]}`, "steps[0].expect: not a list"},
		{`{"version":1,"steps":[` + strings.Replace(good, `"observe":{"tool":"get","args":{}}`, `"observe":{"tool":"get","snapshot":["x"]}`, 1) + `]}`, "snapshot stands alone"},
	} {
		if p, err := ParsePlan([]byte(c.text)); p != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
	p := plan(t, good)
	if p.Retries != 3 || p.Timeout != 30*time.Second || p.Steps[0].Undo == nil {
		t.Errorf("%+v", p)
	}
}
