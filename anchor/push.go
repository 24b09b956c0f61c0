package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// A Ledger is the ledger to be anchored, as Push needs it.
type Ledger interface {
	// Identity is the sha256 of the first record; zero where there is none.
	Identity(ctx context.Context) (ledger.Hash, error)

	// Extend checks the chain after from, which was anchored before, or all of
	// it where from is nil, and gives the last whole record: seq and hash are
	// one pair, taken under the shared lock. An error wraps ErrRefused where the
	// chain does not verify or does not hold from; any other says that it could
	// not be read.
	Extend(ctx context.Context, from *Mark) (Mark, error)
}

// A Mark is a record and where its line stands. Of a Mark that is given to
// Extend, only the head is to be relied on; Segment is "" if not known.
type Mark struct {
	Head    ledger.Head
	Segment string
	Line    int64
	Offset  int64
}

// ErrRefused is wrapped by what says that the ledger and the anchors, or the
// anchors and what was made of them, contradict each other. A retry does not
// mend it.
var ErrRefused = errors.New("refused")

// ErrEmpty says that there is no record to anchor.
var ErrEmpty = errors.New("there is no record to anchor")

// MaxSkew is how far the clock may be from that of the sink: the date until
// which a lock holds is made with it.
const MaxSkew = 5 * time.Minute

// Options of a push.
type Options struct {
	Sink     Sink
	Ledger   Ledger
	Receipts string        // the file of receipts
	Retain   time.Duration // how long the lock holds
	Mode     Mode          // Compliance or Governance
	Always   bool          // state the head though it was stated before
	Tool     string        // what calls, with its version
	Now      func() time.Time
}

// A Result is what a push did.
type Result struct {
	Anchor
	Already bool     // the head was anchored before, and nothing was created
	Since   uint64   // records that this push anchored
	Notes   []string // what a reader should know
}

// Push states the head of a ledger in a sink, so that it extends what was
// stated before. Only when the lock was read back is the receipt written; an
// error before that leaves the receipts as they were.
func Push(ctx context.Context, o Options) (*Result, error) {
	p := &push{Options: o, r: new(Result)}
	b, err := openBook(ctx, o.Receipts)
	if err != nil {
		return nil, err
	}
	defer b.close()
	p.book = b
	if b.bad != nil {
		p.note("%v; it is left out, which costs time only", b.bad)
	}
	clock, err := o.Sink.Ready(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.setClock(clock); err != nil {
		return nil, err
	}
	if p.id, err = o.Ledger.Identity(ctx); err != nil {
		return nil, err
	}
	last, err := p.latest(ctx)
	if err != nil {
		return nil, err
	}
	if p.id.IsZero() {
		if last != nil {
			return nil, fmt.Errorf("anchor to %s: %w: the ledger is empty or missing, and record %d is anchored there", o.Sink, ErrRefused, last.Head.Seq)
		}
		return nil, ErrEmpty
	}
	mark, err := o.Ledger.Extend(ctx, p.from(last))
	if err != nil {
		return nil, err
	}
	p.r.Since = mark.Head.Seq
	if last != nil {
		if mark.Head.Seq < last.Head.Seq || mark.Head.Seq == last.Head.Seq && mark.Head.Sum != last.Head.Sum {
			return nil, fmt.Errorf("anchor to %s: %w: record %d (%s) is anchored there, and the ledger ends with record %d (%s)",
				o.Sink, ErrRefused, last.Head.Seq, last.Head.Sum, mark.Head.Seq, mark.Head.Sum)
		}
		p.r.Since -= last.Head.Seq
		if mark.Head == last.Head && !o.Always && !p.stale(last) {
			p.r.Anchor, p.r.Already = *last, true
			return p.r, p.record(*last, mark)
		}
	}
	return p.r, p.create(ctx, last, mark)
}

type push struct {
	Options
	book *book
	id   ledger.Hash
	now  time.Time // ours
	lock Lock      // to ask for
	r    *Result
}

func (p *push) note(format string, args ...any) {
	p.r.Notes = append(p.r.Notes, fmt.Sprintf(format, args...))
}

// setClock compares the clocks and makes the lock's date, with the sink's.
func (p *push) setClock(sink time.Time) error {
	p.now = p.Now()
	base := p.now
	if !sink.IsZero() {
		// The sink's clock is told in whole seconds.
		if d := p.now.Sub(sink); d > MaxSkew || d < -MaxSkew {
			return fmt.Errorf("anchor to %s: %w", p.Sink, SkewError(p.now, sink))
		}
		base = sink
	}
	until := base.Add(p.Retain)
	if t := until.Truncate(time.Second); t.Before(until) {
		until = t.Add(time.Second)
	}
	p.lock = Lock{Mode: p.Mode, Until: until.UTC()}
	return nil
}

// SkewError says that a clock is wrong, and by how much.
func SkewError(here, there time.Time) error {
	d, way := here.Sub(there), "ahead of"
	if d < 0 {
		d, way = -d, "behind"
	}
	return fmt.Errorf("this machine's clock says %s, the server's %s: it is %s %s it; set the clock of this machine right (the credentials may be good)",
		stamp(here), stamp(there), d.Round(time.Second), way)
}

// latest is the last statement of the ledger that the sink holds, or nil. The
// receipts say from where on to look.
func (p *push) latest(ctx context.Context) (*Anchor, error) {
	begin := ""
	if r := p.book.last(p.Sink.String(), p.id); r != nil && !p.id.IsZero() {
		begin = r.Key
	}
	o, foreign, err := p.lastObject(ctx, begin)
	if err != nil {
		return nil, err
	}
	if begin != "" && (o == nil || !o.seen) {
		p.note("%s has a receipt for %s, which %s does not hold: look with ledgerctl verify --anchors", p.Receipts, begin, p.Sink)
		if o, foreign, err = p.lastObject(ctx, ""); err != nil {
			return nil, err
		}
	}
	if foreign != "" && !p.id.IsZero() {
		return nil, fmt.Errorf("anchor to %s: %w: there are anchors of another ledger (%s), and this one begins with %s: it was replaced, or two ledgers share a prefix; give each a prefix of its own",
			p.Sink, ErrRefused, foreign, p.id)
	}
	if o == nil {
		return nil, nil
	}
	if err := o.read(ctx, p.Sink); err != nil {
		return nil, err
	}
	// The word of one key, as Look finds it.
	s := &Survey{Sink: p.Sink.String(), Time: p.now}
	s.judge(&o.object)
	if len(s.Anchors) == 0 {
		f := s.Findings[len(s.Findings)-1]
		return nil, fmt.Errorf("anchor to %s: %w: the last anchor, %s: %s: %s; look with ledgerctl verify --anchors", p.Sink, ErrRefused, o.key, f.Kind, f.Detail)
	}
	for _, f := range s.Findings {
		p.note("%s: %s: %s", f.Kind, f.Key, f.Detail)
	}
	return &s.Anchors[0], nil
}

// lastObject lists from begin on, and gives the last key of the ledger, or of
// any where the ledger is empty; seen says whether begin is there.
func (p *push) lastObject(ctx context.Context, begin string) (o *seenObject, foreign string, err error) {
	seen := false
	for v, err := range p.Sink.Versions(ctx, begin) {
		if err != nil {
			return nil, "", err
		}
		k, ok := ParseKey(v.Key)
		if !ok {
			continue
		}
		if k.Ledger != p.id && !p.id.IsZero() {
			foreign = k.Ledger.String()
			continue
		}
		seen = seen || v.Key == begin && !v.Marker
		if o == nil || o.key != v.Key {
			o = &seenObject{object: object{key: v.Key}}
		}
		o.add(v)
	}
	if o != nil {
		o.seen = seen
	}
	return o, foreign, nil
}

type seenObject struct {
	object
	seen bool
}

// from is where the ledger is checked from: the last anchored record, with the
// place that its receipt knows.
func (p *push) from(last *Anchor) *Mark {
	if last == nil {
		return nil
	}
	for i := len(p.book.receipts) - 1; i >= 0; i-- {
		if r := &p.book.receipts[i]; r.Ledger == p.id && r.Head == last.Head {
			return &r.Mark
		}
	}
	return &Mark{Head: last.Head}
}

// stale reports whether the last statement's lock is nearly over, or weaker
// than asked: an idle ledger stays anchored.
func (p *push) stale(last *Anchor) bool {
	if last.Lock.Mode == ReadOnly {
		return false
	}
	half := Lock{Mode: p.Mode, Until: p.now.Add(p.Retain / 2)}
	return !last.Lock.Enough(half)
}

// create makes the statement, reads it back, and writes the receipt.
func (p *push) create(ctx context.Context, last *Anchor, mark Mark) error {
	st := Statement{Ledger: p.id, Records: mark.Head.Seq, Head: mark.Head, Tool: p.Tool, TS: p.now.UnixNano()}
	again := false
	if last != nil {
		st.Previous = last.Digest
		again = last.Head == mark.Head
		if again && st.TS <= last.TS {
			return fmt.Errorf("anchor to %s: this machine's clock says %s, and the last anchor was made at %s: set the clock right", p.Sink, stamp(p.now), stamp(time.Unix(0, last.TS)))
		}
	}
	key, body := KeyOf(st, again).String(), st.Bytes()
	a := Anchor{Statement: st, Digest: ledger.Digest(body), Key: key, Stored: p.now}
	version, putErr := p.Sink.Create(ctx, key, body, p.lock)
	a.Version = version
	// Create-only is not trusted, nor is an answer relied on that may be lost:
	// the key is looked at whatever came back.
	o, err := p.at(ctx, key)
	switch {
	case err != nil && putErr != nil && !errors.Is(putErr, ErrExists):
		return putErr // the first of two that have one cause
	case err != nil:
		return fmt.Errorf("the anchor may be there, but could not be read back, and does not count: %w", err)
	}
	mine, others := o.sort(body)
	for _, c := range others {
		s, err := ParseStatement(c.body)
		if err == nil && s.Ledger == st.Ledger && s.Head == st.Head {
			continue // another push at the same time
		}
		what := "something that is no statement"
		if err == nil {
			what = fmt.Sprintf("a statement of seq %d, sha256 %s", s.Head.Seq, s.Head.Sum)
		}
		if c.err != nil {
			what = c.err.Error()
		}
		return fmt.Errorf("anchor to %s: %w: ALARM: somebody else wrote at the key %s: version %s of %s: %s", p.Sink, ErrRefused, key, c.ID, stamp(c.Time), what)
	}
	if mine == nil && len(others) > 0 {
		// Somebody else was faster; theirs is as good, if it is locked.
		c := others[0]
		s, _ := ParseStatement(c.body)
		a = Anchor{Statement: s, Digest: ledger.Digest(c.body), Key: key, Version: c.ID, Stored: c.Time}
		p.r.Already, p.r.Since = true, 0
		p.note("another push made the same anchor at the same time")
	} else if mine == nil {
		if putErr != nil {
			return putErr
		}
		return fmt.Errorf("anchor to %s: it was created at %s, and is not there: the server does not keep what it takes", p.Sink, key)
	} else {
		a.Version, a.Stored = mine.ID, mine.Time
		if version != "" && version != mine.ID {
			a.Version = version
		}
		if len(others) > 0 {
			p.note("two pushes at once wrote %s: the server does not keep create-only", key)
		}
	}
	if err := p.readBack(ctx, &a); err != nil {
		return err
	}
	p.r.Anchor = a
	return p.record(a, mark)
}

// at reads all versions of a key.
func (p *push) at(ctx context.Context, key string) (*object, error) {
	o := &object{key: key}
	for v, err := range p.Sink.Versions(ctx, key) {
		if err != nil {
			return nil, err
		}
		if v.Key != key {
			break
		}
		o.add(v)
	}
	return o, o.read(ctx, p.Sink)
}

// sort tells our version, the oldest with these bytes, from those of others.
func (o *object) sort(body []byte) (mine *content, others []content) {
	for i := range o.contents {
		c := &o.contents[i]
		switch {
		case c.err == nil && bytes.Equal(c.body, body):
			if mine == nil {
				mine = c
			}
		default:
			others = append(others, *c)
		}
	}
	return mine, others
}

// readBack asks for the lock of that version. Less than asked is no anchor.
func (p *push) readBack(ctx context.Context, a *Anchor) error {
	lock, sum, err := p.Sink.Stat(ctx, a.Key, a.Version)
	if err != nil {
		return fmt.Errorf("the anchor could not be read back, and does not count: %w", err)
	}
	a.Lock = lock
	asked := p.lock
	if p.r.Already {
		asked.Until = time.Time{} // theirs was made for another date
	}
	switch {
	case !lock.Enough(asked):
		return fmt.Errorf("anchor to %s: %w: %s was asked for %s, and version %s has %s: this anchor does not count",
			p.Sink, ErrNotLocking, a.Key, p.lock, a.Version, lock)
	case !sum.IsZero() && sum != a.Digest:
		return fmt.Errorf("anchor to %s: %w: the server has other bytes at %s than were sent", p.Sink, ErrAltered, a.Key)
	case lock.Mode == Governance:
		p.note("the lock is %s: who has the right to bypass may remove it", lock)
	case lock.Mode == ReadOnly:
		p.note("a read-only file is weaker than a locked object: the owner of its directory may replace it")
	}
	return nil
}

// record writes the receipt of an anchor that was read back.
func (p *push) record(a Anchor, m Mark) error {
	sink := p.Sink.String()
	if p.book.knows(sink, a) {
		return nil
	}
	if err := p.book.add(receiptOf(sink, a, m)); err != nil {
		return fmt.Errorf("%s is anchored, but %w", strings.TrimSuffix(a.Key, ".json"), err)
	}
	return nil
}
