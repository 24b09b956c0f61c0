package metrics

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// verdicts are the values of the label verdict.
var verdicts = [...]verify.Verdict{verify.Anchored, verify.Intact, verify.Torn, verify.Unchecked, verify.Tampered}

// fullEvery is how often everything is checked and not only what is new.
const fullEvery = 24 * time.Hour

// A verification is what the last checks of a ledger found.
type verification struct {
	Verdict     verify.Verdict     `json:"verdict,omitempty"` // "" before the first
	LastRun     time.Time          `json:"last_run,omitzero"`
	LastSuccess time.Time          `json:"last_success,omitzero"`
	LastFull    time.Time          `json:"last_full,omitzero"` // of everything, and the chain was whole
	Trusted     *verify.Checkpoint `json:"trusted,omitempty"`  // where the last one ended that found the chain whole
	Sealed      []uint64           `json:"sealed,omitempty"`   // the segments that were there then, by their first records
}

// next is what to check now, and whether that is everything. A record that was
// found good, or that reading left, must stay in the chain, whatever head.json
// says.
func (v *verification) next(now time.Time, left []verify.Checkpoint) (o verify.Options, full bool) {
	o.Workers = 1
	age := now.Sub(v.LastFull)
	full = v.Trusted == nil || len(left) > 0 || !v.good() || age < 0 || age >= fullEvery
	switch {
	case v.Trusted == nil:
	case full:
		o.ExpectHeads = append(o.ExpectHeads, v.Trusted.Sum)
	default:
		o.From = v.Trusted
	}
	for _, c := range left {
		if !slices.Contains(o.ExpectHeads, c.Sum) {
			o.ExpectHeads = append(o.ExpectHeads, c.Sum)
		}
	}
	return o, full
}

// verify checks a ledger and takes note of what came out. A check that ctx ends
// is none, and one during which the ledger changed finds nothing good.
func (m *Metrics) verify(ctx context.Context, w *watch) {
	w.mu.Lock()
	v, left := w.verified, w.left
	w.mu.Unlock()
	before := v.Verdict
	names, err := os.ReadDir(w.dir)
	sealed := sealedIn(names)
	if slices.ContainsFunc(v.Sealed, func(first uint64) bool { return !slices.Contains(sealed, first) }) {
		v.LastFull = time.Time{} // one is gone
	}
	o, full := v.next(m.now(), left)
	r := &verify.Report{Verdict: verify.Unchecked}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// What cannot be looked at is not cut.
		r.NotChecked = []string{ledger.Escape(err.Error())}
	} else if r, err = verify.Dir(ctx, w.dir, o); err != nil {
		return
	}
	v.Verdict, v.LastRun = r.Verdict, m.now()
	switch v.Verdict {
	case verify.Anchored, verify.Intact:
		v.LastSuccess = v.LastRun
		fallthrough
	case verify.Torn: // whole, up to a line that is no record yet
		if r.Stable == nil || !r.Stable.Held { // what is not durable may go again
			v.Trusted, v.Sealed = r.Checkpoint, sealed
		}
		if full {
			v.LastFull = v.LastRun
		}
	}
	w.mu.Lock()
	stale := v.good() && len(w.left) != len(left)
	if !stale {
		switch {
		case v.good():
			w.left = nil
			w.recount = w.recount || full && w.passed
		case w.verified.good():
			w.leave()
		}
		w.verified = v
	}
	w.mu.Unlock()
	switch {
	case stale:
		w.wake()
	case v.Verdict != before:
		w.report(r)
	}
}

// sealedIn are the sealed segments of a directory, by their first records.
func sealedIn(names []fs.DirEntry) (all []uint64) {
	for _, e := range names {
		if first, _, ok := ledger.ParseSegmentName(e.Name()); ok && (len(all) == 0 || all[len(all)-1] != first) {
			all = append(all, first)
		}
	}
	return all
}

// good reports whether the last check found the chain whole.
func (v *verification) good() bool {
	return v.Verdict == verify.Anchored || v.Verdict == verify.Intact || v.Verdict == verify.Torn
}

// report logs a verdict and the first thing that is behind it.
func (w *watch) report(r *verify.Report) {
	switch {
	case len(r.Faults) > 0:
		f := r.Faults[0]
		w.log.Error("verified", "verdict", r.Verdict, "faults", r.FaultsTotal, "fault", f.Kind, "segment", f.Segment, "line", f.Line, "seq", f.Seq, "detail", f.Detail)
	case r.Verdict == verify.Unchecked && len(r.NotChecked) > 0:
		w.log.Warn("verified", "verdict", r.Verdict, "reason", r.NotChecked[0])
	default:
		w.log.Info("verified", "verdict", r.Verdict, "seq", r.Head.Seq)
	}
}
