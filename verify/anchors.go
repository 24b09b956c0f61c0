package verify

import (
	"fmt"

	"github.com/auditledger/auditledger/ledger"
)

// What is found of the anchors themselves is told beside the faults of the
// ledger: a Kind of package anchor as a fault or a warning, with the anchor's
// key as its segment. Such faults make the verdict tampered, as others do.

// AddFault adds a fault that was found elsewhere.
func (r *Report) AddFault(k Kind, key string, seq uint64, detail string) {
	r.FaultsTotal++
	r.Faults = append(r.Faults, Fault{Kind: k, Segment: key, Seq: seq, Detail: ledger.Escape(detail)})
	r.Verdict = Tampered
	r.Checkpoint = nil
}

// AddWarning adds a warning that was found elsewhere.
func (r *Report) AddWarning(kind, key string, seq uint64, detail string) {
	r.Warnings = append(r.Warnings, Warning{Kind: kind, Segment: key, Seq: seq, Detail: ledger.Escape(detail)})
}

// AddNote adds a line for people.
func (r *Report) AddNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Unproven says that something that was asked for could not be checked: the
// verdict is unchecked, or worse where it is.
func (r *Report) Unproven(why string) {
	r.NotChecked = append(r.NotChecked, ledger.Escape(why))
	r.Verdict = Worse(r.Verdict, Unchecked)
}

// CountThrough says up to which seq the anchors hold: those after it agree, and
// do not count, since they could have been changed. It does not raise what was
// found.
func (r *Report) CountThrough(seq uint64) {
	r.AnchoredThrough = min(r.AnchoredThrough, seq)
	if r.AnchoredThrough == 0 && r.Verdict == Anchored {
		r.Verdict = Intact
	}
}

// What may be behind the faults of anchors, by the words of package anchor.
func init() {
	for k, cause := range map[Kind]string{
		"anchor_forged":    "somebody with the right to write there laid something over it, or changed the bytes underneath; or the receipts here were edited",
		"anchor_unlocked":  "somebody with the right to write there put it, or the server swallowed the lock",
		"anchor_foreign":   "the whole ledger was replaced; or two ledgers share a prefix, and each needs one of its own",
		"anchor_unchained": "an anchor was removed underneath, or one was made without looking at those before",
		"anchor_two_heads": "the ledger was rewritten and anchored anew, by something else than push",
		"anchor_lost":      "somebody lifted its lock, or removed it underneath",
	} {
		causes[k] = cause
	}
}
