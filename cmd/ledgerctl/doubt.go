package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/verify"
)

func newDoubt(g *global) *cobra.Command {
	c := &cobra.Command{
		Use:   "doubt [DIR]",
		Short: "List the calls in doubt",
		Long: `doubt lists the calls of which the ledger holds an intent and no outcome. Either
such a call is running now, or its process ended half-way, or it failed in a
way that does not tell whether its effect is there. It is never run again by
itself. Look at its target, then close it with "doubt resolve".

Exit status: 0 there are none, 1 there are some, 2 wrong usage, 3 missing or
unreadable, or some lines are no records.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runDoubt(c.Context(), g, dirOf(args), c.OutOrStdout())
		},
	}
	var dir string
	var there, absent bool
	r := &cobra.Command{
		Use:   "resolve SEQ --committed|--not-executed",
		Short: "Close a call in doubt, with a record",
		Long: `resolve closes the call whose intent is record SEQ, as "doubt" lists it, by a
record with reason "resolved". --committed says that you looked and the effect
is there, --not-executed that it is not; then a retry with the same request_id
runs. A call that is running in some process is left alone.

Exit status: 0 closed and durable, 2 wrong usage, 3 not done, and why.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if there == absent {
				return usageError{errors.New("say what you saw: --committed or --not-executed")}
			}
			if dir == "" {
				dir = dirOf(nil)
			}
			return runResolve(c.Context(), g, dir, args[0], there, c.OutOrStdout())
		},
	}
	r.Flags().StringVar(&dir, "ledger", "", "ledger directory (default $LEDGER_DIR, else .ledger)")
	r.Flags().BoolVar(&there, "committed", false, "the effect is there")
	r.Flags().BoolVar(&absent, "not-executed", false, "the effect is not there")
	c.AddCommand(r)
	return c
}

type doubtJSON struct {
	Seq        uint64 `json:"seq"`
	TS         int64  `json:"ts"`
	RequestID  string `json:"request_id"`
	Name       string `json:"name"`
	ArgsDigest string `json:"args_digest"`
	SHA256     string `json:"sha256"`
}

func runDoubt(ctx context.Context, g *global, dir string, out io.Writer) error {
	var intents ledger.Intents
	err := walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		intents.Observe(v, p.Seq)
		return nil
	})
	if err != nil && !isPartial(err) {
		return err
	}
	all := intents.All()
	if g.json() {
		list := []doubtJSON{}
		for _, o := range all {
			list = append(list, doubtJSON{o.Seq, o.TS, o.RequestID, o.Name, o.ArgsDigest, o.Sum.String()})
		}
		if e := writeJSON(out, list); e != nil {
			return e
		}
	} else {
		for _, o := range all {
			fmt.Fprintf(out, "%6d  %s  %s  %s\n", o.Seq, when(o.TS), ledger.Escape(o.Name), ledger.Escape(o.RequestID))
		}
		fmt.Fprintf(out, "%d in doubt\n", len(all))
	}
	if err == nil && len(all) > 0 {
		return status(1)
	}
	return err
}

func runResolve(ctx context.Context, g *global, dir, which string, there bool, out io.Writer) error {
	seq, err := strconv.ParseUint(which, 10, 64)
	if err != nil || seq == 0 {
		return usageError{fmt.Errorf("%q is no position of a record", which)}
	}
	s, err := openToWrite(ctx, dir, store.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, o := range s.OpenIntents("") {
		if o.Seq != seq {
			continue
		}
		unlock, free, err := s.TryLockRequest(o.RequestID)
		if err != nil {
			return uncheckedError{err}
		}
		if !free {
			return uncheckedError{fmt.Errorf("record %d: a process is at work on this call just now; it was left alone", seq)}
		}
		defer unlock()
		if err := s.Refresh(ctx); err != nil {
			return uncheckedError{err}
		}
		still := false
		for _, now := range s.OpenIntents(o.RequestID) {
			still = still || now.Sum == o.Sum
		}
		if !still {
			break
		}
		e := ledger.Entry{RequestID: o.RequestID, Method: ledger.MethodCall, Name: o.Name, ArgsDigest: o.ArgsDigest, Policy: o.Policy,
			Intent: o.Sum.String(), TraceID: o.TraceID, Reason: ledger.ReasonResolved, Decision: ledger.Void, Outcome: ledger.NotExecuted}
		if there {
			e.Decision, e.Outcome = ledger.Allow, ledger.Committed
		}
		at, err := s.Append(ctx, e)
		if err != nil {
			return uncheckedError{err}
		}
		if g.json() {
			return writeJSON(out, map[string]any{"seq": at.Seq, "sha256": at.Sum.String(), "intent": o.Sum.String(), "outcome": e.Outcome})
		}
		fmt.Fprintf(out, "record %d closes the call of record %d as %s\n", at.Seq, seq, e.Outcome)
		return nil
	}
	return uncheckedError{fmt.Errorf("record %d is no call in doubt: see ledgerctl doubt", seq)}
}
