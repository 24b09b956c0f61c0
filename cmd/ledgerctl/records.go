package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/verify"
)

// errStop ends a walk early.
var errStop = errors.New("stop")

// walk reads the records of a ledger in order. Where there are lines that are
// no records, they are not given to f, and the error is a *leftOut.
func walk(ctx context.Context, path string, f func(verify.Place, *ledger.View) error) error {
	var l leftOut
	err := verify.Walk(ctx, path, l.except(f))
	switch {
	case errors.Is(err, errStop):
		return nil
	case err != nil:
		return uncheckedError{err}
	}
	return l.err()
}

// leftOut are the lines of a ledger that are no records. As an error it says
// that what was shown is not all.
type leftOut struct {
	lines uint64
	first verify.Place
}

// except is f for records only.
func (l *leftOut) except(f func(verify.Place, *ledger.View) error) func(verify.Place, *ledger.View) error {
	return func(p verify.Place, v *ledger.View) error {
		if v != nil {
			return f(p, v)
		}
		if l.lines++; l.lines == 1 {
			l.first = p
		}
		return nil
	}
}

func (l *leftOut) err() error {
	if l.lines == 0 {
		return nil
	}
	return l
}

func (l *leftOut) Error() string {
	at := fmt.Sprintf("line %d of %s", l.first.Line, ledger.Escape(l.first.Segment))
	if l.lines == 1 {
		return at + " is no record and was left out: see ledgerctl verify"
	}
	return fmt.Sprintf("%d lines are no records and were left out, the first is %s: see ledgerctl verify", l.lines, at)
}

// isPartial reports whether err of a walk leaves something to show.
func isPartial(err error) bool {
	_, ok := errors.AsType[*leftOut](err)
	return ok
}

// filter is which records a command is asked for.
type filter struct {
	tool, outcome, decision, requestID, traceID string
	since, until                                moment
}

func (f *filter) match(p verify.Place, v *ledger.View) bool {
	r := func(field []byte, want string) bool {
		return want == "" || string(field) == quoted(want)
	}
	return r(v.Name, f.tool) && r(v.Outcome, f.outcome) && r(v.Decision, f.decision) && r(v.RequestID, ledger.Clip(f.requestID)) && r(v.TraceID, f.traceID) &&
		!f.since.after(p, v) && (f.until == moment{} || f.until.after(p, v))
}

// moment is a position or a time: a sequence number, an RFC 3339 time, or a
// duration before now.
type moment struct {
	seq uint64
	ns  int64
}

// after reports whether the moment is later than the record.
func (m moment) after(p verify.Place, v *ledger.View) bool {
	if m.seq > 0 {
		return m.seq > p.Seq
	}
	return m.ns != 0 && m.ns > v.TS
}

func (m *moment) String() string { return "" }
func (m *moment) Type() string   { return "SEQ|TIME|AGO" }

func (m *moment) Set(s string) error {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && n > 0 {
		*m = moment{seq: n}
		return nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		*m = moment{ns: time.Now().Add(-d).UnixNano()}
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			*m = moment{ns: t.UnixNano()}
			return nil
		}
	}
	return fmt.Errorf("%q is no sequence number, no time such as 2026-01-31T15:04:05+01:00, and no duration such as 90m", s)
}

// recordText is one line for people.
func recordText(p verify.Place, r *ledger.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6d  %s  %-7s %-12s  %s  %s", p.Seq, when(r.TS), ledger.Escape(r.Decision), ledger.Escape(r.Outcome), ledger.Escape(r.Name), ledger.Escape(r.RequestID))
	if r.Method != ledger.MethodCall {
		fmt.Fprintf(&b, "  [%s]", ledger.Escape(r.Method))
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, "  %s", ledger.Escape(r.Reason))
	}
	if r.Rule != "" {
		fmt.Fprintf(&b, " (%s)", ledger.Escape(r.Rule))
	}
	return b.String()
}

// openToWrite opens a ledger for a command that adds to it. One that is not
// there must not come into being by that.
func openToWrite(ctx context.Context, dir string, o store.Options) (*store.Store, error) {
	if err := walk(ctx, dir, func(verify.Place, *ledger.View) error { return errStop }); err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, dir, o)
	if err != nil {
		return nil, uncheckedError{err}
	}
	return s, nil
}
