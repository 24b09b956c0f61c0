package metrics

import (
	"slices"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// reasons are the values of the label reason.
var reasons = append(ledger.DenialReasons[:], other)

// denied is the outcome that has a reason.
var denied = slices.Index(ledger.CallOutcomes[:], "deny")

// counts are the totals of a ledger up to a record.
type counts struct {
	names   *names
	calls   [][len(ledger.CallOutcomes)]uint64      // by tool, by outcome
	denials [][len(ledger.DenialReasons) + 1]uint64 // by tool, by reason
	records uint64
	head    uint64 // position of the last record
	ts      int64  // of the last record
}

// A tally counts the records of a ledger as they are read.
type tally struct {
	counts
	intents ledger.Intents
	changed bool // since the last look
	passed  bool // a line that is no record, or a gap, was passed over
}

func newTally(n *names) *tally {
	return &tally{changed: true, counts: counts{
		names:   n,
		calls:   make([][len(ledger.CallOutcomes)]uint64, len(n.list)),
		denials: make([][len(ledger.DenialReasons) + 1]uint64, len(n.list)),
	}}
}

// observe takes the next record; a line that is none has no View.
func (t *tally) observe(p verify.Place, v *ledger.View) error {
	if v == nil {
		t.passed = true
		return nil
	}
	t.passed = t.passed || p.Seq != t.head+1
	t.changed = true
	t.records++
	t.head, t.ts = p.Seq, v.TS
	t.intents.Observe(v, p.Seq)
	outcome := v.Call()
	if outcome < 0 {
		return nil
	}
	tool := t.names.ofRecord(v.Name)
	t.calls[tool][outcome]++
	if outcome == denied {
		t.denials[tool][reasonOf(v)]++
	}
	return nil
}

func reasonOf(v *ledger.View) int {
	for i, reason := range ledger.DenialReasons {
		if ledger.Is(v.Reason, reason) {
			return i
		}
	}
	return len(ledger.DenialReasons)
}

// A look is what a tally was at some moment. It does not change.
type look struct {
	counts
	open []ledger.OpenIntent
}

func (t *tally) look() *look {
	t.changed = false
	l := &look{counts: t.counts, open: t.intents.All()}
	l.calls, l.denials = slices.Clone(t.calls), slices.Clone(t.denials)
	return l
}
