package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"strings"
	"sync"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// An item is what a worker found of one stretch of lines in a block. The good
// path has one item for a block: a run of records that are right and follow
// each other.
type item struct {
	kind  itemKind
	line  int64 // of the first line, from 0 in the block
	off   int64 // of the first line, in the file
	lines int64

	// Of a run, an altered record, or a record that is not canonical.
	link     ledger.Hash // what the first record is linked to
	own      ledger.Hash // the first record's hash
	sum      ledger.Hash // the last record's hash as stored
	computed ledger.Hash // the same, over its bytes
	seq      uint64      // the first record's; 0 if it bears none
	ts       int64       // the first record's
	lastTS   int64
	lastOff  int64 // where the last record's line begins
	seal     bool  // the first record's method is ledger/seal

	spelling bool // not canonical; a run of one
	detail   string

	bad, badEnd int // of malformed lines: those told are result.bad[bad:badEnd]

	pos uint64 // of the first record, set by the joiner
}

// A badLine is a line that is no record.
type badLine struct {
	line, off int64
	detail    string
}

type itemKind uint8

const (
	itemRun       itemKind = iota
	itemAltered            // one record
	itemMalformed          // lines that are no records
)

// A mark is a record that somebody asked for.
type mark struct {
	sum  ledger.Hash
	item int   // index in items
	nth  int64 // line in the block
	off  int64
}

// An event opens or closes an intent.
type event struct {
	sum  hexHash // of the intent; of one that is closed, whatever stands there
	ts   int64
	line int64 // in the block
	off  int64
	item int32
	nth  int32 // record in the run
	kind eventKind
}

type eventKind uint8

const (
	eventOpen eventKind = iota
	eventClose
	eventNone // opened and closed within the block
)

// A step is a clock that was set back.
type step struct {
	line, off  int64
	item       int32
	nth        int32
	before, at int64
}

// maxSteps is how many steps of the clock are told, of a block and in all.
const maxSteps = 10

// A result is what a worker found of a block.
type result struct {
	index   int64
	file    int
	off     int64
	n       int64 // bytes
	lines   int64 // whole lines
	records uint64
	last    bool
	shrunk  bool
	err     error

	items  []item
	bad    []badLine
	marks  []mark
	events []event
	steps  []step
	back   int64    // all steps of the clock
	sums   []uint64 // of each line where the source cannot be read again: the first bytes of its hash, 0 if it has none

	minTS, maxTS int64

	restOff   int64 // an unfinished line at the end of the file
	restBytes int64
	restWhole bool
}

// A watch is a set of hashes to look out for. It does not change while it is
// in use.
type watch struct {
	bits [1 << 10]uint64
	set  map[ledger.Hash]struct{}
}

func newWatch() *watch { return &watch{set: make(map[ledger.Hash]struct{})} }

func (w *watch) add(h ledger.Hash) {
	w.bits[uint(h[0])<<2|uint(h[1])>>6] |= 1 << (h[1] & 63)
	w.set[h] = struct{}{}
}

func (w *watch) has(h *[32]byte) bool {
	if w.bits[uint(h[0])<<2|uint(h[1])>>6]&(1<<(h[1]&63)) == 0 {
		return false
	}
	_, ok := w.set[*h]
	return ok
}

// A worker checks blocks, one at a time.
type worker struct {
	watch  *watch
	keep   bool // fill sums
	cap    int  // of malformed lines told of a block
	view   ledger.View
	digest hash.Hash
	lanes  [2]lane
	idle   lane // keeps the second lane of block2 busy

	canonical []byte
	text      []byte // scratch

	r    *result
	run  *item // the run that the next line may continue, or nil
	link hexHash
	next uint64 // seq that would follow; 0 if the run bears none
	ts   int64
	seen bool // ts is of a record before, in this block
}

func newWorker(w *watch, keep bool, cap int) *worker {
	return &worker{watch: w, keep: keep, cap: cap, digest: sha256.New()}
}

// check fills r with what is to be said of b. It changes the bytes of b.
func (w *worker) check(ctx context.Context, b *block, r *result) {
	*r = result{index: b.index, file: b.file, off: b.off, last: b.last, shrunk: b.shrunk, err: b.err,
		items: r.items[:0], bad: r.bad[:0], marks: r.marks[:0], events: r.events[:0], steps: r.steps[:0], sums: r.sums[:0]}
	w.r, w.run, w.seen = r, nil, false
	r.n = int64(b.n) + b.skipped
	if b.skipped > 0 {
		w.malformed(b.off, "the line is longer than is looked at")
		return
	}
	if b.n == 0 {
		return
	}
	buf := b.buf[:headroom+b.n+padding]
	end := headroom + b.n
	base := b.off - headroom
	queued := 0 // in w.lanes
	for i := headroom; i < end; {
		if l := &w.lanes[queued]; l.scan(buf, i) && l.end < end {
			l.prepare(buf, i)
			if queued++; queued == len(w.lanes) {
				w.flush(buf, base, queued)
				queued = 0
				if r.lines&1023 < 2 && ctx.Err() != nil {
					return
				}
			}
			i = l.end + 1
			continue
		}
		w.flush(buf, base, queued)
		queued = 0
		n := bytes.IndexByte(buf[i:end], '\n')
		if n < 0 {
			w.rest(buf[i:end], base+int64(i))
			return
		}
		w.slow(buf[i:i+n:i+n], base+int64(i), b.off == 0 && i == headroom)
		i += n + 1
		if ctx.Err() != nil {
			return
		}
	}
	w.flush(buf, base, queued)
}

// A lane is a record on its way through the hash.
type lane struct {
	shape
	at     int     // where the line begins
	msg    int     // where the message ends that is made of it
	stored hexHash // as the line bore it
	state  [8]uint32
}

// prepare makes of the line at buf[at:] the message to hash, as whole blocks:
// the end of the line goes over the sha256 member, and the padding of SHA-256
// has room where the end was. The link that comes first in the message is read
// where it stands.
func (l *lane) prepare(buf []byte, at int) {
	l.at = at
	l.stored.load(buf, l.sum)
	l.msg = l.cut + l.shape.end - l.tail
	*(*[tailLen]byte)(buf[l.cut:]) = *(*[tailLen]byte)(buf[l.tail:])
	*(*[padLen]byte)(buf[l.msg:]) = [padLen]byte{0x80}
	n := l.msg - at
	binary.BigEndian.PutUint64(buf[at+l.blocks()*64-8:], uint64(n+hexLen)*8)
}

// The end of a line, "ts":…}, is at most 25 bytes long, the sha256 member that
// it replaces is of 76, and the padding of a message is of 72 at most.
const (
	tailLen = 32
	padLen  = 72
)

// blocks is how many blocks of 64 bytes the message has after the link.
func (l *lane) blocks() int { return (l.msg - l.at + 9 + 63) / 64 }

// restore undoes prepare.
func (l *lane) restore(buf []byte) {
	copy(buf[l.tail:l.end], buf[l.cut:l.msg])
	copy(buf[l.cut:], `"sha256":"`)
	l.stored.store(buf, l.sum)
	copy(buf[l.sum+hexLen:], `",`)
}

// flush hashes and judges the first n lanes.
func (w *worker) flush(buf []byte, base int64, n int) {
	if n == 0 {
		return
	}
	a, b := &w.lanes[0], &w.lanes[n-1]
	if !hasBlock2 {
		a.hash(buf, w.digest)
		if a != b {
			b.hash(buf, w.digest)
		}
	} else {
		a.state, b.state = initial, initial
		na, nb := a.blocks(), b.blocks()
		if n == 1 {
			b, nb = &w.idle, na // it costs no time
			b.at, b.prev = a.at, a.prev
		}
		block2(&a.state, &b.state, &buf[a.prev], &buf[b.prev], 1)
		both := min(na, nb)
		block2(&a.state, &b.state, &buf[a.at], &buf[b.at], both)
		switch {
		case na > both:
			block2(&a.state, &w.idle.state, &buf[a.at+both*64], &buf[a.at+both*64], na-both)
		case nb > both:
			block2(&b.state, &w.idle.state, &buf[b.at+both*64], &buf[b.at+both*64], nb-both)
		}
	}
	for i := range n {
		w.judge(buf, base, &w.lanes[i])
	}
}

// initial is the state of SHA-256 before the first block.
var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// hash is what block2 does, for processors that do not have it.
func (l *lane) hash(buf []byte, d hash.Hash) {
	var sum [sha256.Size]byte
	d.Reset()
	d.Write(buf[l.prev : l.prev+hexLen])
	d.Write(buf[l.at:l.msg])
	d.Sum(sum[:0])
	for i := range l.state {
		l.state[i] = binary.BigEndian.Uint32(sum[4*i:])
	}
}

// judge takes the record of l, which is hashed.
func (w *worker) judge(buf []byte, base int64, l *lane) {
	s := &l.shape
	r := w.r
	off := base + int64(l.at)
	var sum ledger.Hash
	for i, v := range l.state {
		binary.BigEndian.PutUint32(sum[4*i:], v)
	}
	var text hexHash
	text.set((*[32]byte)(&sum))
	follows := w.run != nil && w.link.is(buf, s.prev) && (s.seq == w.next || s.seq == 0)
	right := text == l.stored
	if follows && right {
		w.run.lines++
		w.run.lastOff = off
		w.run.lastTS = s.ts
		w.run.sum = sum
		if w.next > 0 {
			w.next++
		}
	} else {
		link, ok := ledger.ParseHash(buf[s.prev : s.prev+hexLen])
		own := sum
		if !right && ok {
			own, ok = l.stored.hash()
		}
		if !ok {
			l.restore(buf)
			w.slow(buf[l.at:l.end:l.end], off, false)
			return
		}
		it := item{line: r.lines, off: off, lines: 1, link: link, own: own, sum: own, computed: sum, seq: s.seq, ts: s.ts,
			lastTS: s.ts, lastOff: off, seal: s.seal}
		if !right {
			w.altered(off, it)
			return
		}
		w.begin(it)
	}
	w.link = text
	w.good(off, (*[32]byte)(&sum), s.ts)
	if s.opens {
		w.opens(&text, s.ts, off)
	} else if s.closes {
		w.closes(buf, s.intent, s.ts, off)
	}
	r.lines++
}

// begin begins a run.
func (w *worker) begin(it item) {
	w.r.items = append(w.r.items, it)
	w.run = &w.r.items[len(w.r.items)-1]
	w.next = it.seq
	if it.seq > 0 {
		w.next++
	}
	// A record that bears a seq after one that bears none begins a run: only
	// 0 follows 0.
}

// good notes what each right record has.
func (w *worker) good(off int64, sum *[32]byte, ts int64) {
	r := w.r
	r.records++
	if w.keep {
		w.remember(sum)
	}
	if w.watch.has(sum) {
		r.marks = append(r.marks, mark{sum: *sum, item: len(r.items) - 1, nth: r.lines, off: off})
	}
	w.clock(off, ts)
}

func (w *worker) remember(sum *[32]byte) {
	for int64(len(w.r.sums)) < w.r.lines {
		w.r.sums = append(w.r.sums, 0)
	}
	w.r.sums = append(w.r.sums, prefix(*sum))
}

func (w *worker) clock(off, ts int64) {
	r := w.r
	switch {
	case !w.seen:
		r.minTS, r.maxTS = ts, ts
		w.seen = true
	case ts < w.ts:
		if r.back++; len(r.steps) < maxSteps {
			it := len(r.items) - 1
			r.steps = append(r.steps, step{line: r.lines, off: off, item: int32(it), nth: int32(r.lines - r.items[it].line), before: w.ts, at: ts})
		}
		r.minTS = min(r.minTS, ts)
	default:
		r.maxTS = max(r.maxTS, ts)
	}
	w.ts = ts
}

func (w *worker) opens(sum *hexHash, ts, off int64) {
	w.event(event{sum: *sum, ts: ts, off: off, kind: eventOpen})
}

// closes takes a record that closes the intent whose hash is at b[i:].
func (w *worker) closes(b []byte, i int, ts, off int64) {
	// Most intents are closed soon after.
	ev := w.r.events
	for k := len(ev) - 1; k >= max(0, len(ev)-16); k-- {
		if ev[k].kind == eventOpen && ev[k].sum.is(b, i) {
			ev[k].kind = eventNone
			if k == len(ev)-1 {
				w.r.events = ev[:k]
			}
			return
		}
	}
	e := event{ts: ts, off: off, kind: eventClose}
	e.sum.load(b, i)
	w.event(e)
}

func (w *worker) event(e event) {
	it := len(w.r.items) - 1
	e.line, e.item, e.nth = w.r.lines, int32(it), int32(w.r.lines-w.r.items[it].line)
	w.r.events = append(w.r.events, e)
}

// altered takes a record whose hash does not match its bytes.
func (w *worker) altered(off int64, it item) {
	it.kind, it.line, it.off, it.lastOff, it.lines, it.lastTS = itemAltered, w.r.lines, off, off, 1, it.ts
	w.r.items = append(w.r.items, it)
	w.run = nil
	w.r.records++
	w.r.lines++
}

// malformed takes a line that is no record.
func (w *worker) malformed(off int64, detail string) {
	r := w.r
	n := len(r.items)
	if n == 0 || r.items[n-1].kind != itemMalformed {
		r.items = append(r.items, item{kind: itemMalformed, line: r.lines, off: off, bad: len(r.bad), badEnd: len(r.bad)})
		n++
	}
	it := &r.items[n-1]
	it.lines++
	if len(r.bad) < w.cap { // past the cap, lines are only counted
		r.bad = append(r.bad, badLine{r.lines, off, detail})
		it.badEnd = len(r.bad)
	}
	w.run = nil
	r.lines++
}

var bom = []byte("\xef\xbb\xbf")

// slow judges any line. first says that it is the first of its file.
func (w *worker) slow(line []byte, off int64, first bool) {
	if len(bytes.TrimLeft(line, " \t\r")) == 0 {
		w.malformed(off, "a blank line")
		return
	}
	text, spelling := line, ""
	if first && bytes.HasPrefix(line, bom) {
		text, spelling = line[len(bom):], "begins with a byte-order mark"
	}
	err := w.view.Parse(text)
	if err != nil && errors.Is(err, ledger.ErrNotCanonical) {
		if spelling == "" {
			spelling = spelled(text, err)
		}
		if w.canonical, err = canon.Append(w.canonical[:0], text); err == nil {
			err = w.view.Parse(w.canonical)
		}
	}
	if err != nil {
		w.malformed(off, malformedDetail(err))
		return
	}
	v := &w.view
	sum := w.hash(v)
	it := item{line: w.r.lines, off: off, lines: 1, link: v.Prev, own: v.Sum, sum: v.Sum, computed: sum, seq: v.Seq, ts: v.TS,
		lastTS: v.TS, lastOff: off, seal: ledger.Is(v.Method, ledger.MethodSeal), spelling: spelling != "", detail: spelling}
	if sum != v.Sum {
		w.altered(off, it)
		w.trim()
		return
	}
	if w.run != nil && spelling == "" && w.run.sum == v.Prev && (v.Seq == w.next || v.Seq == 0) {
		w.run.lines++
		w.run.lastOff, w.run.lastTS, w.run.sum = off, v.TS, sum
		if w.next > 0 {
			w.next++
		}
	} else {
		w.begin(it)
	}
	w.link.set((*[32]byte)(&sum))
	w.good(off, (*[32]byte)(&sum), v.TS)
	switch {
	case v.Intent == nil:
		if ledger.Is(v.Decision, ledger.Pending) && ledger.Is(v.Outcome, ledger.Intent) {
			w.opens(&w.link, v.TS, off)
		}
	case ledger.Is(v.Decision, ledger.Allow), ledger.Is(v.Decision, ledger.Void):
		if len(v.Intent) == 1+hexLen+1 {
			w.closes(v.Intent, 1, v.TS, off)
		}
	}
	w.r.lines++
	if spelling != "" {
		w.run = nil
	}
	w.trim()
}

// trim does not keep the memory of a long line.
func (w *worker) trim() {
	w.view = ledger.View{}
	if cap(w.canonical) > 1<<20 {
		w.canonical = nil
	}
}

// hash is v.Compute without a copy.
func (w *worker) hash(v *ledger.View) ledger.Hash {
	w.text, _ = v.Prev.AppendText(w.text[:0])
	head, tail := v.Body()
	w.digest.Reset()
	w.digest.Write(w.text)
	w.digest.Write(head)
	w.digest.Write(tail)
	w.text = w.digest.Sum(w.text[:0])
	return ledger.Hash(w.text)
}

// rest takes what is after the last "\n".
func (w *worker) rest(line []byte, off int64) {
	w.r.restOff, w.r.restBytes = off, int64(len(line))
	if w.view.Parse(line) == nil {
		w.r.restWhole = w.hash(&w.view) == w.view.Sum
	}
	w.trim()
}

func malformedDetail(err error) string {
	return strings.TrimPrefix(err.Error(), ledger.ErrMalformed.Error()+": ")
}

func spelled(line []byte, err error) string {
	switch last := line[len(line)-1]; {
	case last == '\r':
		return "ends in a carriage return"
	case last == ' ' || last == '\t':
		return "has blanks after it"
	}
	return strings.TrimSuffix(err.Error(), ": ")
}

func prefix(h ledger.Hash) uint64 {
	p := word(h[:], 0)
	if p == 0 {
		p = 1 // 0 is no hash
	}
	return p
}

// A pipeline runs workers over a source and hands their results, in order, to
// one taker at a time.
type pipeline struct {
	src    *source
	o      Options
	watch  *watch
	keep   bool
	take   func(*result) // called in order, never by two at once
	window int64

	mu      sync.Mutex
	cond    sync.Cond // joined has changed, or the context
	joined  int64     // index of the next result to take
	pending map[int64]*result
	free    []*result
	taking  bool
}

func (p *pipeline) run(ctx context.Context) error {
	p.cond.L = &p.mu
	p.pending = make(map[int64]*result)
	p.window = int64(4 * p.o.Workers)
	defer p.src.close()
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	for range p.o.Workers {
		wg.Go(func() { p.work(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

func (p *pipeline) work(ctx context.Context) {
	w := newWorker(p.watch, p.keep, p.o.MaxFaults)
	var buf []byte
	var b block
	for ctx.Err() == nil {
		if !p.src.next(&b, &buf) {
			return
		}
		r := p.result()
		w.check(ctx, &b, r)
		p.src.done(&b)
		if !p.deliver(ctx, r) {
			return
		}
	}
}

func (p *pipeline) result() *result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r
	}
	return new(result)
}

// deliver passes on r, and all results that waited for it, unless another
// worker is at it already. It waits where r is far ahead of what is joined.
func (p *pipeline) deliver(ctx context.Context, r *result) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := r.index // once it is taken, r is another's
	p.pending[index] = r
	for !p.taking {
		next := p.pending[p.joined]
		if next == nil {
			break
		}
		delete(p.pending, p.joined)
		p.taking = true
		p.mu.Unlock()
		p.take(next)
		p.mu.Lock()
		p.taking = false
		p.joined++
		if len(p.free) < 2*p.o.Workers {
			next.shrinkTo(1 << 12)
			p.free = append(p.free, next)
		}
		p.cond.Broadcast()
	}
	for index-p.joined > p.window && ctx.Err() == nil {
		p.cond.Wait()
	}
	return ctx.Err() == nil
}

// shrinkTo does not keep the memory of an odd block.
func (r *result) shrinkTo(n int) {
	if cap(r.items) > n {
		r.items = nil
	}
	if cap(r.events) > n {
		r.events = nil
	}
	clear(r.bad)
}
