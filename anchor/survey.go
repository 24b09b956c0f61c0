package anchor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// A Kind is a class of findings.
type Kind string

// Findings that are faults: no push makes them, and no passing of time.
const (
	Forged    Kind = "anchor_forged"    // an object under a statement's key is not that statement, or was changed
	Unlocked  Kind = "anchor_unlocked"  // a statement of which no version has a lock
	Foreign   Kind = "anchor_foreign"   // a statement of another ledger
	Unchained Kind = "anchor_unchained" // a statement whose predecessor is gone
	TwoHeads  Kind = "anchor_two_heads" // two statements know different records at one seq
	Lost      Kind = "anchor_lost"      // a statement that was kept is gone before its lock ended
)

// Findings that are warnings.
const (
	Marker   Kind = "anchor_marker"   // a delete marker was laid over a statement
	Overlaid Kind = "anchor_overlaid" // further versions, which state the same head
	Weak     Kind = "anchor_weak"     // a lock that somebody can lift
	Expired  Kind = "anchor_expired"  // a lock that has ended
	Gone     Kind = "anchor_gone"     // the oldest statements are gone, their locks have ended
	Branched Kind = "anchor_branched" // two statements name the same predecessor: two pushes at once
	Stray    Kind = "anchor_stray"    // an object that is no statement by its name
)

// IsFault reports whether findings of that kind are faults. What is not known
// is one.
func (k Kind) IsFault() bool {
	switch k {
	case Marker, Overlaid, Weak, Expired, Gone, Branched, Stray:
		return false
	}
	return true
}

// A Finding is something about the objects of a sink that push does not leave
// behind.
type Finding struct {
	Kind    Kind   `json:"kind"`
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	Detail  string `json:"detail"`
}

// An Anchor is a statement as a sink keeps it.
type Anchor struct {
	Statement
	Digest  ledger.Hash // of its bytes
	Key     string
	Version string
	Lock    Lock
	Stored  time.Time // by the sink's clock
}

// A Survey is what a sink holds.
type Survey struct {
	Sink     string
	Time     time.Time
	Anchors  []Anchor // the word at each key, in the order of keys
	Findings []Finding
	Versions int // that were listed, delete markers too
}

// Trials is where "anchor check" puts its trial objects.
const Trials = "check/"

// maxTold is how many warnings of a kind are told one by one.
const maxTold = 10

// maxOverlays is how many further versions of a key are read.
const maxOverlays = 16

// readers is how many objects are read at once.
const readers = 16

// Look reads all that the sink holds, and compares it with the receipts, of
// which those of other sinks do not count. An error says that the sink could
// not be read to the end: nothing is known then.
func Look(ctx context.Context, sink Sink, receipts []Receipt, now time.Time) (*Survey, error) {
	s := &Survey{Sink: sink.String(), Time: now, Anchors: []Anchor{}, Findings: []Finding{}}
	var keys []*object
	for v, err := range sink.Versions(ctx, "") {
		if err != nil {
			return nil, err
		}
		s.Versions++
		if strings.HasPrefix(v.Key, Trials) {
			continue
		}
		if n := len(keys); n == 0 || keys[n-1].key != v.Key {
			keys = append(keys, &object{key: v.Key})
		}
		keys[len(keys)-1].add(v)
	}
	if err := readAll(ctx, sink, keys); err != nil {
		return nil, err
	}
	for _, o := range keys {
		s.judge(o)
	}
	slices.SortStableFunc(s.Anchors, func(a, b Anchor) int { return strings.Compare(a.Key, b.Key) })
	s.locks()
	s.chain()
	s.receipts(receipts, keys)
	s.shorten()
	return s, nil
}

// An object is what is listed of a key.
type object struct {
	key      string
	versions []Version // newest first
	markers  []Version
	contents []content // oldest first, of as many versions as were read
}

type content struct {
	Version
	body []byte
	lock Lock
	err  error // ErrAbsent or ErrAltered
}

func (o *object) add(v Version) {
	if v.Marker {
		o.markers = append(o.markers, v)
	} else {
		o.versions = append(o.versions, v)
	}
}

// read reads the versions of a key from the oldest on.
func (o *object) read(ctx context.Context, sink Sink) error {
	for i := len(o.versions) - 1; i >= 0 && len(o.contents) <= maxOverlays; i-- {
		c := content{Version: o.versions[i]}
		c.body, c.lock, c.err = sink.Read(ctx, o.key, c.ID)
		if c.err != nil && !errors.Is(c.err, ErrAbsent) && !errors.Is(c.err, ErrAltered) {
			return c.err
		}
		o.contents = append(o.contents, c)
	}
	return nil
}

// word is the oldest version that has a lock, or nil.
func (o *object) word() *content {
	for i := range o.contents {
		if o.contents[i].lock.Mode != None {
			return &o.contents[i]
		}
	}
	return nil
}

func readAll(ctx context.Context, sink Sink, keys []*object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *object)
	var wg sync.WaitGroup
	for range min(readers, len(keys)) {
		wg.Go(func() {
			for o := range work {
				if err := o.read(ctx, sink); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, o := range keys {
		if _, ok := ParseKey(o.key); !ok {
			continue
		}
		select {
		case work <- o:
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

func (s *Survey) found(k Kind, key, version string, seq uint64, format string, args ...any) {
	s.Findings = append(s.Findings, Finding{Kind: k, Key: key, Version: version, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

// judge takes one key.
func (s *Survey) judge(o *object) {
	key, ok := ParseKey(o.key)
	if !ok {
		s.found(Stray, o.key, "", 0, "its name is not that of a statement, and it was not read")
		return
	}
	for _, m := range o.markers {
		s.found(Marker, o.key, m.ID, key.Seq, "a delete marker of %s hides it from plain reads; its versions are still there", stamp(m.Time))
	}
	if len(o.contents) == 0 {
		s.found(Lost, o.key, "", key.Seq, "all that is left of it is a delete marker")
		return
	}
	w := o.word()
	if w == nil {
		c := &o.contents[0]
		if c.err != nil {
			s.found(Forged, o.key, c.ID, key.Seq, "%v, and there is no lock on it", c.err)
		} else {
			s.found(Unlocked, o.key, c.ID, key.Seq, "there is no lock on it: whoever may write there could have put it, at any time; it does not count")
		}
		return
	}
	a, err := s.anchor(key, w)
	if err != nil {
		s.found(Forged, o.key, w.ID, key.Seq, "%v", err)
		return
	}
	s.Anchors = append(s.Anchors, a)
	for i := range o.contents {
		c := &o.contents[i]
		if c == w {
			continue
		}
		other, err := s.anchor(key, c)
		switch {
		case err != nil:
			s.found(Forged, o.key, c.ID, key.Seq, "beside the locked statement there is a version of %s that is none: %v", stamp(c.Time), err)
		case other.Digest != a.Digest && (other.Ledger != a.Ledger || other.Head != a.Head):
			s.found(Forged, o.key, c.ID, key.Seq, "beside the locked statement there is a version of %s that says otherwise: seq %d, sha256 %s",
				stamp(c.Time), other.Head.Seq, other.Head.Sum)
		default:
			s.found(Overlaid, o.key, c.ID, key.Seq, "beside the oldest locked version there is another of %s that states the same head", stamp(c.Time))
		}
	}
	if n := len(o.versions) - len(o.contents); n > 0 {
		s.found(Forged, o.key, "", key.Seq, "%d more versions lie over it, which were not read", n)
	}
}

// anchor reads a version as the statement that its key says.
func (s *Survey) anchor(key Key, c *content) (Anchor, error) {
	if c.err != nil {
		return Anchor{}, c.err
	}
	st, err := ParseStatement(c.body)
	if err != nil {
		return Anchor{}, err
	}
	if !key.Names(st) {
		return Anchor{}, fmt.Errorf("it is the statement of another key: ledger %s, seq %d, sha256 %s", st.Ledger, st.Head.Seq, st.Head.Sum)
	}
	return Anchor{Statement: st, Digest: ledger.Digest(c.body), Key: c.Key, Version: c.ID, Lock: c.lock, Stored: c.Time}, nil
}

// locks tells of locks that have ended or can be lifted, all of a sort at once.
func (s *Survey) locks() {
	count := map[Mode]int{}
	last := map[Mode]*Anchor{}
	for i := range s.Anchors {
		a := &s.Anchors[i]
		mode := a.Lock.Mode
		if !a.Lock.Holds(s.Time) {
			mode = None
		}
		count[mode]++
		last[mode] = a
	}
	tell := func(m Mode, k Kind, what string) {
		if a := last[m]; a != nil {
			s.found(k, a.Key, a.Version, a.Head.Seq, "%d anchors, through this one (%s), %s", count[m], a.Lock, what)
		}
	}
	tell(None, Expired, "have locks that have ended: they may be deleted, and others be put in their place")
	tell(Governance, Weak, "have locks that whoever has the right to bypass may lift")
	tell(ReadOnly, Weak, "are read-only files: the owner of the directory may replace them")
}

// chain looks at how the statements of each ledger are linked.
func (s *Survey) chain() {
	type pair struct {
		id ledger.Hash
		h  ledger.Hash
	}
	known := map[pair]*Anchor{}
	for i := range s.Anchors {
		known[pair{s.Anchors[i].Ledger, s.Anchors[i].Digest}] = &s.Anchors[i]
	}
	followed := map[pair]*Anchor{}
	for i := range s.Anchors {
		a := &s.Anchors[i]
		first := i == 0 || s.Anchors[i-1].Ledger != a.Ledger
		if !first && s.Anchors[i-1].Head.Seq == a.Head.Seq && s.Anchors[i-1].Head.Sum != a.Head.Sum {
			s.found(TwoHeads, a.Key, a.Version, a.Head.Seq, "it says that record %d is %s, and %s says that it is %s: one of them was never this ledger's",
				a.Head.Seq, a.Head.Sum, s.Anchors[i-1].Key, s.Anchors[i-1].Head.Sum)
		}
		link := pair{a.Ledger, a.Previous}
		if other := followed[link]; other != nil {
			s.found(Branched, a.Key, a.Version, a.Head.Seq, "it names the same predecessor as %s: two pushes at once, or one that did not look", other.Key)
		}
		followed[link] = a
		if a.Previous.IsZero() {
			continue
		}
		switch before := known[link]; {
		case before == nil && first:
			s.found(Gone, a.Key, a.Version, a.Head.Seq, "the statement before it (%s) is gone, and so are all that were older", a.Previous)
		case before == nil:
			s.found(Unchained, a.Key, a.Version, a.Head.Seq, "the statement before it (%s) is not there, and older ones are: it was removed, or this one was made without looking", a.Previous)
		case before.Head.Seq > a.Head.Seq:
			s.found(Unchained, a.Key, a.Version, a.Head.Seq, "it goes on from the statement of seq %d, which is later", before.Head.Seq)
		}
	}
}

// receipts looks for what was kept and is gone.
func (s *Survey) receipts(receipts []Receipt, keys []*object) {
	listed := make(map[string]*object, len(keys))
	for _, o := range keys {
		listed[o.key] = o
	}
	for _, r := range receipts {
		if r.Sink != s.Sink {
			continue
		}
		o := listed[r.Key]
		var c *content
		if o != nil {
			for i := range o.contents {
				if o.contents[i].ID == r.Version {
					c = &o.contents[i]
				}
			}
		}
		switch {
		case c == nil && (r.Until == 0 || s.Time.Unix() < r.Until):
			s.found(Lost, r.Key, r.Version, r.Head.Seq, "the receipt of %s says that it was kept (%s), and it is gone", stamp(time.Unix(0, r.TS)), r.Lock())
		case c == nil:
			s.found(Gone, r.Key, r.Version, r.Head.Seq, "it was kept (%s), and is gone since its lock ended", r.Lock())
		case c.err == nil && !bytes.Equal(digest(c.body), r.Statement[:]):
			s.found(Forged, r.Key, r.Version, r.Head.Seq, "it is not the statement that was kept, by the receipt of %s; one of the two was changed", stamp(time.Unix(0, r.TS)))
		}
	}
}

func digest(b []byte) []byte { h := ledger.Digest(b); return h[:] }

// shorten sorts the findings, faults first, and tells only so many warnings of
// a kind one by one.
func (s *Survey) shorten() {
	slices.SortStableFunc(s.Findings, func(a, b Finding) int {
		if a.Kind.IsFault() != b.Kind.IsFault() {
			if a.Kind.IsFault() {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Key, b.Key))
	})
	var kept []Finding
	count := map[Kind]int{}
	for _, f := range s.Findings {
		if count[f.Kind]++; f.Kind.IsFault() || count[f.Kind] <= maxTold {
			kept = append(kept, f)
		}
	}
	for _, k := range []Kind{Marker, Overlaid, Weak, Expired, Gone, Branched, Stray} {
		if n := count[k] - maxTold; n > 0 {
			kept = append(kept, Finding{Kind: k, Detail: fmt.Sprintf("and %d more of this kind", n)})
		}
	}
	s.Findings = append([]Finding{}, kept...)
}

// Of is the survey of one ledger: statements of others are findings. Where the
// ledger is empty or missing, its id is zero, and all statements are its own:
// one prefix belongs to one ledger.
func (s *Survey) Of(id ledger.Hash) *Survey {
	if id.IsZero() {
		return s
	}
	own := *s
	own.Anchors, own.Findings = []Anchor{}, slices.Clone(s.Findings)
	others := map[ledger.Hash]int{}
	last := map[ledger.Hash]*Anchor{}
	var order []ledger.Hash
	for i := range s.Anchors {
		a := &s.Anchors[i]
		if a.Ledger == id {
			own.Anchors = append(own.Anchors, *a)
			continue
		}
		if others[a.Ledger]++; others[a.Ledger] == 1 {
			order = append(order, a.Ledger)
		}
		last[a.Ledger] = a
	}
	for _, other := range order {
		a := last[other]
		own.found(Foreign, a.Key, a.Version, a.Head.Seq, "%d statements, through seq %d, are of a ledger that begins with the record %s, and this one begins with %s: it was replaced, or two ledgers share a prefix",
			others[other], a.Head.Seq, other, id)
	}
	return &own
}

// Through is the last anchor whose lock holds, or nil.
func (s *Survey) Through() *Anchor {
	for i := len(s.Anchors) - 1; i >= 0; i-- {
		if s.Anchors[i].Lock.Holds(s.Time) {
			return &s.Anchors[i]
		}
	}
	return nil
}

// Faults is how many findings are faults.
func (s *Survey) Faults() int {
	n := 0
	for _, f := range s.Findings {
		if f.Kind.IsFault() {
			n++
		}
	}
	return n
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
