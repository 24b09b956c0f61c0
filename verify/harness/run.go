package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
	"github.com/auditledger/auditledger/verify/snapshot"
)

// A Caller calls tools. It is called by one goroutine at a time.
type Caller interface {
	// Call calls a tool and returns its result as JSON, also one that says that
	// the tool failed. An error that is a *Refused is an answer too. Any other
	// error is a lost answer, and Call may be asked again, with the same
	// arguments, for a server that it starts anew if it has to; an error that
	// wraps ErrGone says that this is of no use. Call returns when ctx ends.
	Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error)
}

// Refused is an answer with an error.
type Refused struct {
	Code    int64
	Message string
}

func (e *Refused) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// ErrGone is wrapped by an error of Caller after which no call can be answered.
var ErrGone = errors.New("no answer will come")

// A State is where a run is.
type State string

const (
	Do       State = "DO"
	Observe  State = "OBSERVE"
	Retry    State = "RETRY" // an answer was lost, and is sent for again
	Continue State = "CONTINUE"
	Stop     State = "STOP"
	Rollback State = "ROLLBACK"
	Undo     State = "UNDO"   // DO of a compensation
	Prove    State = "PROVE"  // OBSERVE of a compensation
	Undone   State = "UNDONE" // a compensation was proven
	Done     State = "DONE"
)

// A Verdict is how a run ended.
type Verdict string

const (
	VerdictDone       Verdict = "done"
	VerdictRolledBack Verdict = "rolled_back"
	VerdictStopped    Verdict = "stopped"
)

// A Transition is one change of state.
type Transition struct {
	TS     int64  `json:"ts"`
	Step   int    `json:"step"` // from 1
	Name   string `json:"name,omitempty"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// A RecordRef names a record of the ledger.
type RecordRef struct {
	Step      int    `json:"step"`
	RequestID string `json:"request_id"`
	Seq       uint64 `json:"seq"`
	SHA256    string `json:"sha256"`
	Decision  string `json:"decision"`
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason,omitempty"`
}

// A Transcript is what a run did. It is valid JSON for other programs.
type Transcript struct {
	Version     int          `json:"version"`
	Plan        string       `json:"plan"` // SHA-256 of the canonical plan
	Verdict     Verdict      `json:"verdict"`
	Reason      string       `json:"reason,omitempty"`
	Transitions []Transition `json:"transitions"`
	Records     []RecordRef  `json:"records"`
	// RecordsError says why Records is not all that the ledger holds of the plan's request ids.
	RecordsError string `json:"records_error,omitempty"`
}

// A Runner runs plans. Only Caller is needed.
type Runner struct {
	Caller     Caller
	Ledger     string // directory or file in which the records of the mutations are looked up, after the run; "" for none
	Transition func(Transition)
}

// Run runs plan by the package comment.
func Run(ctx context.Context, c Caller, plan *Plan) *Transcript {
	return (&Runner{Caller: c}).Run(ctx, plan)
}

// run is one run of a plan.
type run struct {
	*Runner
	plan *Plan
	t    *Transcript
}

// Run runs plan by the package comment.
func (r *Runner) Run(ctx context.Context, plan *Plan) *Transcript {
	x := &run{r, plan, &Transcript{Version: 1, Plan: plan.Digest.String(), Transitions: []Transition{}, Records: []RecordRef{}}}
	x.t.Verdict, x.t.Reason = x.steps(ctx)
	if r.Ledger != "" {
		x.records(context.WithoutCancel(ctx))
	}
	return x.t
}

func (x *run) to(step int, s State, detail string) {
	t := Transition{TS: time.Now().UnixNano(), Step: step + 1, Name: x.plan.Steps[step].Name, State: s, Detail: detail}
	x.t.Transitions = append(x.t.Transitions, t)
	if x.Transition != nil {
		x.Transition(t)
	}
}

// steps is the state machine.
func (x *run) steps(ctx context.Context) (Verdict, string) {
	stop := func(step int, why string) (Verdict, string) {
		x.to(step, Stop, why)
		return VerdictStopped, why
	}
	for i := range x.plan.Steps {
		differs, unclear := x.move(ctx, i, &x.plan.Steps[i].Move, Do, Observe)
		switch {
		case unclear != "":
			return stop(i, "inconclusive: "+unclear)
		case differs == "":
			x.to(i, Continue, "")
			continue
		}
		for j := i; j >= 0; j-- {
			if x.plan.Steps[j].Undo == nil {
				return stop(i, fmt.Sprintf("%s; step %d has no compensation", differs, j+1))
			}
		}
		x.to(i, Rollback, differs)
		for j := i; j >= 0; j-- {
			bad, unclear := x.move(ctx, j, x.plan.Steps[j].Undo, Undo, Prove)
			switch {
			case unclear != "":
				return stop(j, "the compensation is inconclusive: "+unclear)
			case bad != "":
				return stop(j, "the compensation is not proven: "+bad)
			}
			x.to(j, Undone, "")
		}
		return VerdictRolledBack, differs
	}
	x.to(len(x.plan.Steps)-1, Done, "")
	return VerdictDone, ""
}

// move does one mutation and looks. Unclear says why nothing is known, differs
// how the state is another than expected; both are "" where it is as expected.
func (x *run) move(ctx context.Context, step int, m *Move, do, look State) (differs, unclear string) {
	x.to(step, do, ledger.Escape(m.Do.Tool)+" "+ledger.Escape(m.Do.RequestID))
	if _, err := x.call(ctx, step, m.Do); err != nil {
		if refused, ok := errors.AsType[*Refused](err); ok {
			x.to(step, look, "the call was answered with error "+fmt.Sprint(refused.Code)+"; the state decides")
		} else {
			return "", "no answer to the mutation: " + err.Error()
		}
	} else {
		x.to(step, look, "")
	}
	found, err := x.look(ctx, step, &m.Observe)
	if err != nil {
		return "", "the look failed: " + err.Error()
	}
	for i := range m.Expect {
		if ok, how := m.Expect[i].holds(found); !ok {
			return how, ""
		}
	}
	return "", ""
}

// call sends a call until it is answered, within its budget.
func (x *run) call(ctx context.Context, step int, c Call) (json.RawMessage, error) {
	for try := 0; ; try++ {
		one, cancel := context.WithTimeoutCause(ctx, x.plan.Timeout, fmt.Errorf("no answer within %v", x.plan.Timeout))
		result, err := x.Caller.Call(one, c.Tool, c.Args)
		if err != nil && one.Err() != nil {
			err = context.Cause(one)
		}
		cancel()
		if _, answered := errors.AsType[*Refused](err); err == nil || answered {
			return result, err
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrGone):
			return nil, err
		case try == x.plan.Retries:
			return nil, fmt.Errorf("%w (asked %d times)", err, try+1)
		}
		x.to(step, Retry, "the answer was lost: "+ledger.Escape(err.Error()))
	}
}

// look is what there is now.
func (x *run) look(ctx context.Context, step int, l *Look) (canon.Value, error) {
	if l.Paths != nil {
		return x.snapshot(ctx, l.Paths)
	}
	result, err := x.call(ctx, step, l.Call)
	if err != nil {
		return canon.Value{}, err
	}
	v, err := canon.Parse(result)
	if err != nil {
		return v, fmt.Errorf("the result is not JSON that has one meaning: %w", err)
	}
	if failed, _ := v.Get("isError"); failed.Bool() {
		return v, errors.New("the tool that should look says that it failed")
	}
	return v, nil
}

// snapshot is the entries below paths as one object.
func (x *run) snapshot(ctx context.Context, paths []string) (canon.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, x.plan.Timeout)
	defer cancel()
	var text bytes.Buffer
	if _, err := snapshot.Take(ctx, &text, paths, snapshot.Options{}); err != nil {
		return canon.Value{}, err
	}
	r, err := snapshot.NewReader(&text)
	if err != nil {
		return canon.Value{}, err
	}
	object := []byte{'{'}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return canon.Parse(append(object, '}'))
		}
		switch {
		case err != nil:
			return canon.Value{}, err
		case e.State == snapshot.Unknown:
			return canon.Value{}, fmt.Errorf("%s is unknown: %s", ledger.Escape(e.Path), e.Reason)
		case e.Unhashed != "":
			return canon.Value{}, fmt.Errorf("%s is %s: %s", ledger.Escape(e.Path), e.Unhashed, e.Reason)
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = e.Append(append(canon.AppendString(object, e.Path), ':'))
	}
}

// records looks up what the ledger says of the plan's mutations.
func (x *run) records(ctx context.Context) {
	steps := map[string]int{}
	for i, s := range x.plan.Steps {
		steps[ledger.Clip(s.Do.RequestID)] = i + 1
		if s.Undo != nil {
			steps[ledger.Clip(s.Undo.Do.RequestID)] = i + 1
		}
	}
	strange := 0
	err := verify.Walk(ctx, x.Ledger, func(p verify.Place, v *ledger.View) error {
		if v == nil {
			strange++
			return nil
		}
		id, _ := canon.Unquote(v.RequestID)
		if step := steps[id]; step > 0 {
			rec := v.Record()
			x.t.Records = append(x.t.Records, RecordRef{Step: step, RequestID: id, Seq: p.Seq, SHA256: v.Sum.String(),
				Decision: rec.Decision, Outcome: rec.Outcome, Reason: rec.Reason})
		}
		return nil
	})
	switch {
	case err != nil:
		x.t.RecordsError = err.Error()
	case strange > 0:
		x.t.RecordsError = fmt.Sprintf("%d lines of the ledger are no records", strange)
	}
}
