package gate

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
)

// Undone is err of a Commit that surely had no effect.
func Undone(err error) error { return undone{err} }

type undone struct{ error }

func (e undone) Unwrap() error { return e.error }

// mutate gives c its one effect, or finds that it has it.
func (g *Gate) mutate(ctx context.Context, c *Call, t *Tool) (*mcp.CallToolResult, error) {
	unlock, err := g.ledger.LockRequest(ctx, c.RequestID)
	begun := time.Now()
	if err == nil {
		defer unlock()
		err = g.ledger.Refresh(ctx)
	}
	if ctx.Err() != nil {
		// Given up before anything began.
		g.append(ctx, c.entry(ledger.Void, ledger.NotExecuted, ledger.ReasonCancelled))
		return failure("cancelled before anything was done"), nil
	}
	if err != nil {
		if g.added != nil {
			g.added(time.Since(begun), err) // it has no record, and cannot have one
		}
		g.log.Error("a mutation was refused", "tool", c.Name, "error", err)
		return nil, unavailable()
	}

	c.targets.look() // again: another call with this id may have ended meanwhile
	doubt, err := g.settle(ctx, c.RequestID)
	if err != nil {
		return nil, unavailable()
	}
	if doubt {
		// Also where an effect is there to be seen: it may not be durable.
		return g.answer(ctx, c, ledger.ReasonInDoubt,
			errors.New("an earlier call with this request_id may or may not have had its effect; it is not run again until somebody has looked (ledgerctl doubt)"))
	}
	found, err := g.find(ctx, c.RequestID)
	switch {
	case err != nil:
		return g.answer(ctx, c, reasonOf(ctx, err), err)
	case found.State == Present && found.Tool == t.Name && found.Digest == c.Digest:
		if _, err := g.append(ctx, c.entry(ledger.Allow, ledger.Replay, "")); err != nil {
			return nil, unavailable()
		}
		return success(found.Result), nil
	case found.State == Present:
		return g.answer(ctx, c, ledger.ReasonRequestIDConflict,
			errors.New("request_id was used before, for another call; use a new request_id for this one"))
	}
	return g.run(ctx, c, t)
}

// answer records that c failed before any effect of its own, and answers so.
func (g *Gate) answer(ctx context.Context, c *Call, reason string, err error) (*mcp.CallToolResult, error) {
	if _, unwritten := g.append(ctx, c.entry(ledger.Allow, ledger.Error, reason)); unwritten != nil {
		return nil, unavailable()
	}
	return g.failed(c, err)
}

// find looks for an effect of requestID in every place.
func (g *Gate) find(ctx context.Context, requestID string) (Finding, error) {
	for _, m := range g.places {
		var f Finding
		err := guard(func() (err error) { f, err = m.Find(ctx, requestID); return })
		if err != nil || f.State == Present {
			return f, err
		}
	}
	return Finding{State: Absent}, nil
}

// run makes the intent durable, then the effect, then records the outcome.
func (g *Gate) run(ctx context.Context, c *Call, t *Tool) (*mcp.CallToolResult, error) {
	// What the tool can do unseen goes on beside the sync of the intent.
	var effect Effect
	var prepared error
	var side sync.WaitGroup
	side.Go(func() {
		prepared = guard(func() (err error) { effect, err = t.Mutation.Prepare(ctx, c); return })
	})
	intent, err := g.append(ctx, c.entry(ledger.Pending, ledger.Intent, ""))
	side.Wait()
	if err != nil {
		if prepared == nil {
			effect.Discard()
		}
		return nil, unavailable()
	}
	closing := func(decision, outcome, reason string) error {
		e := c.entry(decision, outcome, reason)
		e.Intent = intent.Sum.String()
		_, err := g.append(ctx, e)
		return err
	}
	if prepared != nil {
		if closing(ledger.Void, ledger.Error, reasonOf(ctx, prepared)) != nil {
			return nil, unavailable()
		}
		return g.failed(c, prepared)
	}

	var result json.RawMessage
	committing, span := g.step(ctx, c, stepEffect)
	err = guard(func() (err error) { result, err = effect.Commit(committing); return })
	if err == nil {
		span.End("")
	} else {
		why := reasonOf(ctx, err)
		span.End(why)
		// The effect may be there all the same: only a look can tell, and what
		// is not surely absent stays in doubt.
		o := ledger.OpenIntent{Sum: intent.Sum, Seq: intent.Seq, RequestID: c.RequestID, Name: c.Name, ArgsDigest: c.Digest.String()}
		f, look := Finding{State: Absent}, error(nil)
		if _, surely := errors.AsType[undone](err); !surely {
			look = guard(func() (err error) { f, err = t.Mutation.Settle(context.WithoutCancel(ctx), o); return })
		}
		switch {
		case look == nil && f.State == Absent:
			closing(ledger.Void, ledger.Error, why)
		case look == nil && f.State == Present && f.Tool == t.Name && f.Digest == c.Digest:
			unrecorded := closing(ledger.Allow, ledger.Committed, why) != nil
			if why != ledger.ReasonPanic {
				return committed(f.Result, unrecorded), nil
			}
		default:
			closing(ledger.Pending, ledger.Error, why)
			g.log.Error("a call is in doubt", "tool", c.Name, "intent", intent.Seq)
		}
		return g.failed(c, err)
	}
	reason := ""
	if ctx.Err() != nil {
		reason = ledger.ReasonCancelled
	}
	unrecorded := closing(ledger.Allow, ledger.Committed, reason) != nil
	return committed(result, unrecorded), nil
}

// committed answers a call that had its effect, also where no record says so.
func committed(result json.RawMessage, unrecorded bool) *mcp.CallToolResult {
	res := success(result)
	if unrecorded {
		res.Meta = mcp.Meta{"auditledger/unrecorded": true}
	}
	return res
}

// settle closes the open intents of requestID as far as a look at the effect
// can. The id's lock is held, so whoever wrote them is gone, or gave up on
// them. It reports whether any is still open.
func (g *Gate) settle(ctx context.Context, requestID string) (doubt bool, err error) {
	for _, o := range g.ledger.OpenIntents(requestID) {
		closed, err := g.close(ctx, o)
		if err != nil {
			return false, err
		}
		doubt = doubt || !closed
	}
	return doubt, nil
}

// close records how the intent o ended, where that can be known.
func (g *Gate) close(ctx context.Context, o ledger.OpenIntent) (closed bool, err error) {
	t := g.tools[o.Name]
	if t == nil || t.Mutation == nil {
		return false, nil
	}
	var f Finding
	if err := guard(func() (err error) { f, err = t.Mutation.Settle(ctx, o); return }); err != nil {
		g.log.Error("the effect of a call in doubt cannot be looked at", "tool", ledger.Escape(o.Name), "intent", o.Seq, "error", err)
		return false, nil
	}
	e := ledger.Entry{RequestID: o.RequestID, Method: ledger.MethodCall, Name: o.Name, ArgsDigest: o.ArgsDigest, Policy: o.Policy,
		Reason: ledger.ReasonRecovered, Intent: o.Sum.String(), TraceID: o.TraceID}
	switch {
	case f.State == Unknown:
		return false, nil
	case f.State == Present && f.Tool == o.Name && f.Digest.String() == o.ArgsDigest:
		e.Decision, e.Outcome = ledger.Allow, ledger.Committed
	default: // absent, or the effect of another call
		e.Decision, e.Outcome = ledger.Void, ledger.NotExecuted
	}
	_, err = g.append(ctx, e)
	return err == nil, err
}

// Recover closes what earlier processes left open, as far as can be known, and
// returns what stays in doubt. Calls in flight in other processes are left
// alone. For the start of a server.
func (g *Gate) Recover(ctx context.Context) (doubt []ledger.OpenIntent, err error) {
	seen := map[string]bool{}
	for _, o := range g.ledger.OpenIntents("") {
		if seen[o.RequestID] {
			continue
		}
		seen[o.RequestID] = true
		unlock, free, err := g.ledger.TryLockRequest(o.RequestID)
		if err != nil {
			return nil, err
		}
		if !free {
			continue // in flight elsewhere
		}
		err = g.ledger.Refresh(ctx)
		if err == nil {
			_, err = g.settle(ctx, o.RequestID)
		}
		doubt = append(doubt, g.ledger.OpenIntents(o.RequestID)...)
		unlock()
		if err != nil {
			return nil, err
		}
	}
	return doubt, nil
}
