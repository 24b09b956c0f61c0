package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/auditledger/auditledger/ledger"
)

// A joiner takes the results of blocks in order and joins them to a chain.
type joiner struct {
	o     Options
	r     *Report
	files []*file
	total int64 // bytes, 0 if not known

	dir   bool // the files are all of a ledger, so that it begins at 1
	torn  bool // the last file may end in an unfinished line
	watch *watch

	// The chain so far.
	have     bool           // there was a record
	link     [2]ledger.Hash // the last record's hash as stored and over its bytes
	gap      uint64         // malformed lines since
	lost     bool           // what came since could not be read: the next link leads nowhere
	trust    bool           // the next record is the trusted one
	pos      uint64         // of the last record
	at       int64          // ordinal of the next line
	records  uint64
	lastHead ledger.Head // the last record, as stored
	last     Checkpoint
	lastTS   int64

	// The file.
	file   int   // index
	lines  int64 // before the next block
	begun  bool  // it had a record
	broken bool  // a fault of the file itself was told

	breaks    []brk
	numbers   []Fault // misnumbered, until it is known what explains them
	moreBreak int64   // breaks past the cap
	seen      map[ledger.Hash]uint64
	intents   map[ledger.Hash]openIntent
	pastCap   bool
	keep      bool     // the sums, since the source cannot be read again
	sums      []uint64 // of the first lines
	sumsFull  bool
	marksOnly func(h ledger.Hash, at int64) // the second reading

	unread []string
}

type openIntent struct {
	seq  uint64
	ts   int64
	file int
	line int64
	off  int64
}

// A brk is a link that does not fit.
type brk struct {
	fault     Fault // but for kind and detail
	prev, own ledger.Hash
	gap       uint64 // malformed lines before it
	more      bool   // the numbers show that more is gone than those lines
	want      uint64 // the position that the record would have
	seq       uint64 // that it bears
	file      int    // where it is the first record of a file, else -1
	seal      bool   // it says that the segment before was sealed
}

func (j *joiner) name() string { return j.files[j.file].name }

func (j *joiner) fault(f Fault) {
	if j.r.FaultsTotal++; len(j.r.Faults) < j.o.MaxFaults {
		j.r.Faults = append(j.r.Faults, f)
	}
}

func (j *joiner) warn(w Warning) { j.r.Warnings = append(j.r.Warnings, w) }

func (j *joiner) note(format string, args ...any) {
	j.r.Notes = append(j.r.Notes, fmt.Sprintf(format, args...))
}

// place is a Fault at a line of the current file; line counts from 0.
func (j *joiner) place(line, off int64, seq uint64, at int64) Fault {
	return Fault{Segment: j.name(), Line: line + 1, Seq: seq, Offset: off, TS: j.lastTS, at: at}
}

// take takes the next block.
func (j *joiner) take(r *result) {
	if j.file != r.file {
		j.file, j.lines, j.begun, j.broken = r.file, j.files[r.file].startLine, j.files[r.file].startLine > 0, false
	}
	if j.marksOnly != nil {
		for _, m := range r.marks {
			j.marksOnly(m.sum, j.at+m.nth)
		}
		j.at += r.lines
		if r.restBytes > 0 {
			j.at++
		}
		return
	}
	seg := j.segment()
	for i := range r.items {
		it := &r.items[i]
		line, at := j.lines+it.line, j.at+it.line
		switch it.kind {
		case itemMalformed:
			for k := it.bad; k < it.badEnd; k++ {
				b := &r.bad[k]
				f := j.place(j.lines+b.line, b.off, j.pos+j.gap+1+uint64(b.line-it.line), j.at+b.line)
				f.Kind, f.Detail = Malformed, b.detail
				j.fault(f)
			}
			j.r.FaultsTotal += it.lines - int64(it.badEnd-it.bad)
			j.gap += uint64(it.lines)
			continue
		case itemAltered:
			j.altered(it, line, at)
		default:
			j.follow(it, line, at)
		}
		if seg.First == 0 {
			seg.First = it.pos
		}
		j.records += uint64(it.lines)
		seg.Records += uint64(it.lines)
		j.last = Checkpoint{Segment: j.name(), Line: line + it.lines, Offset: it.lastOff, Seq: j.pos, Sum: it.sum}
		j.begun = true
	}
	for _, m := range r.marks {
		if pos := r.items[m.item].pos + uint64(m.nth-r.items[m.item].line); j.seen[m.sum] == 0 {
			j.seen[m.sum] = pos
		}
	}
	j.times(r)
	j.events(r)
	if j.keep && !j.sumsFull {
		j.remember(r)
	}
	j.at += r.lines
	j.lines += r.lines
	seg.Bytes += r.n
	j.r.Bytes += r.n
	if j.o.Progress != nil {
		j.o.Progress(j.r.Bytes, j.total)
	}
	if r.last || r.err != nil || r.shrunk {
		j.end(r)
	}
	if r.restBytes > 0 {
		j.at++
	}
}

func (j *joiner) segment() *Segment {
	if n := len(j.r.Segments); n == 0 || j.r.Segments[n-1].Name != j.name() {
		j.r.Segments = append(j.r.Segments, Segment{Name: j.name(), Zstd: j.files[j.file].zstd})
	}
	return &j.r.Segments[len(j.r.Segments)-1]
}

// altered goes on after a record whose hash is not that of its bytes.
func (j *joiner) altered(it *item, line, at int64) {
	// Its number counts where it can be right.
	want := j.pos + 1
	it.pos = want
	if it.seq >= want && it.seq <= want+j.gap || j.trust || j.lost && it.seq > want {
		it.pos = max(it.seq, 1)
	}
	f := j.place(line, it.off, it.pos, at)
	f.Kind, f.TS = Altered, it.ts
	f.Detail = fmt.Sprintf("the record says sha256 %s, its bytes have %s", short(it.sum), short(it.computed))
	j.fault(f)
	if it.spelling {
		f.Kind, f.Detail = NotCanonical, it.detail
		j.fault(f)
	}
	for _, h := range []ledger.Hash{it.sum, it.computed} {
		if j.watch.has((*[32]byte)(&h)) && j.seen[h] == 0 {
			j.seen[h] = it.pos
		}
	}
	j.link = [2]ledger.Hash{it.sum, it.computed}
	j.have, j.gap, j.lost, j.trust = true, 0, false, false
	j.pos = it.pos
	j.lastHead = ledger.Head{Seq: j.pos, Sum: it.sum}
}

// follow goes on with a run.
func (j *joiner) follow(it *item, line, at int64) {
	want := j.pos + 1
	it.pos = want
	linked := it.link == j.link[0] || it.link == j.link[1] // the zero Hash at the beginning
	misnumbered, trusted := false, j.trust
	switch {
	case j.trust:
		it.pos = want
	case linked && !j.lost:
		// Malformed lines before it took no record's place.
		if it.seq > 0 && it.seq != want {
			misnumbered = true
			it.pos = it.seq
		}
	case j.lost:
		if first := j.files[j.file].first; it.seq > 0 {
			it.pos = it.seq
		} else if !j.begun && first > want {
			it.pos = first
		}
	case !j.have && j.gap == 0 && j.continues(it):
		it.pos = max(it.seq, j.files[j.file].first)
		j.note("%s starts at seq %d, linked to an earlier segment (%s)", ledger.Escape(j.name()), it.pos, it.link)
	default:
		b := brk{fault: j.place(line, it.off, 0, at), prev: it.link, own: it.own, gap: j.gap, want: want, seq: it.seq, file: -1, seal: it.seal}
		b.fault.TS = it.ts
		if !j.begun {
			b.file = j.file
		}
		it.pos = want + j.gap
		if it.seq > 0 {
			it.pos = it.seq
			b.more = it.seq > want+j.gap
		}
		b.fault.Seq = it.pos
		if len(j.breaks) < 4*j.o.MaxFaults {
			j.breaks = append(j.breaks, b)
		} else {
			j.moreBreak++
		}
	}
	if misnumbered {
		f := j.place(line, it.off, it.seq, at)
		f.Kind, f.TS = Misnumbered, it.ts
		f.Detail = fmt.Sprintf("the record bears seq %d where %d follows", it.seq, want)
		j.number(f)
	} else if first := j.files[j.file].first; !j.begun && first > 0 && first != it.pos && linked && !trusted {
		f := j.place(line, it.off, it.pos, at)
		f.Kind, f.TS = Misnumbered, it.ts
		f.Detail = fmt.Sprintf("the segment's name says that it begins at seq %d, it begins at %d", first, it.pos)
		j.number(f)
	}
	if it.spelling {
		f := j.place(line, it.off, it.pos, at)
		f.Kind, f.Detail, f.TS = NotCanonical, it.detail, it.ts
		j.fault(f)
	}
	j.link = [2]ledger.Hash{it.sum, it.sum}
	j.have, j.gap, j.lost, j.trust = true, 0, false, false
	j.pos = it.pos + uint64(it.lines) - 1
	j.lastHead = ledger.Head{Seq: j.pos, Sum: it.sum}
}

func (j *joiner) number(f Fault) {
	if len(j.numbers) < j.o.MaxFaults {
		j.numbers = append(j.numbers, f)
	} else {
		j.r.FaultsTotal++
	}
}

// continues reports whether the first record of all may be linked to a segment
// that is not looked at.
func (j *joiner) continues(it *item) bool {
	if j.dir || it.link.IsZero() {
		return false
	}
	if first := j.files[j.file].first; first > 1 && (it.seq == first || it.seq == 0) {
		return true
	}
	return it.seq > 1 && it.seal
}

func (j *joiner) times(r *result) {
	if r.records == 0 {
		return
	}
	var ok bool
	for i := range r.items {
		it := &r.items[i]
		if it.kind != itemRun {
			continue
		}
		if !ok && j.lastTS > it.ts && j.r.FirstTS != 0 {
			j.stepBack(j.lines+it.line, it.pos, j.lastTS, it.ts)
		}
		ok = true
		j.lastTS = it.lastTS
	}
	if !ok {
		return
	}
	if j.r.FirstTS == 0 || r.minTS < j.r.FirstTS {
		j.r.FirstTS = r.minTS
	}
	j.r.LastTS = max(j.r.LastTS, r.maxTS)
	for _, s := range r.steps {
		j.stepBack(j.lines+s.line, r.items[s.item].pos+uint64(s.nth), s.before, s.at)
	}
	j.r.ClockSteps += r.back - int64(len(r.steps))
}

func (j *joiner) stepBack(line int64, seq uint64, before, ts int64) {
	if j.r.ClockSteps++; j.r.ClockSteps > maxSteps {
		return
	}
	j.warn(Warning{Kind: WarnClock, Segment: j.name(), Line: line + 1, Seq: seq, TS: ts,
		Detail: fmt.Sprintf("the wall clock is %s behind the record before; the order of records is their position", span(before-ts))})
}

func (j *joiner) events(r *result) {
	for i := range r.events {
		e := &r.events[i]
		sum, ok := e.sum.hash()
		if !ok {
			continue
		}
		switch e.kind {
		case eventOpen:
			if len(j.intents) >= j.o.maxIntents {
				j.pastCap = true
				continue
			}
			j.intents[sum] = openIntent{seq: r.items[e.item].pos + uint64(e.nth), ts: e.ts, file: j.file, line: j.lines + e.line, off: e.off}
		case eventClose:
			delete(j.intents, sum)
		}
	}
}

func (j *joiner) remember(r *result) {
	for int64(len(r.sums)) < r.lines {
		r.sums = append(r.sums, 0)
	}
	room := j.o.maxMemory - len(j.sums)
	if room < len(r.sums) {
		j.sumsFull = true
		r.sums = r.sums[:room]
	}
	j.sums = append(j.sums, r.sums...)
}

// end ends a file.
func (j *joiner) end(r *result) {
	f := j.files[j.file]
	last := j.file == len(j.files)-1
	at := r.off + r.n
	switch {
	case j.broken:
	case r.shrunk:
		j.broken = true
		x := j.place(j.lines, at, j.pos+1, j.at)
		x.Kind = Truncated
		x.Detail = fmt.Sprintf("the file got shorter while it was read: it had %d bytes, and ends at %d", f.limit, at)
		j.fault(x)
		j.lost = true
	case r.err != nil && f.zstd:
		j.broken = true
		x := j.place(j.lines, at, j.pos+1, j.at)
		x.Kind, x.Detail = Malformed, archiveFault(r.err)
		j.fault(x)
		j.lost = true
	case r.err != nil:
		j.broken = true
		why := fmt.Sprintf("%s: %s", ledger.Escape(j.name()), ledger.Escape(reason(r.err)))
		if at > 0 {
			why += fmt.Sprintf(" after %d bytes", at)
		}
		j.unreadable(why)
		j.lost = true
	case r.restBytes > 0 && last && j.torn && !f.sealed:
		j.r.Torn = &TornLine{Segment: j.name(), Line: j.lines + 1, Offset: r.restOff, Bytes: r.restBytes, Whole: r.restWhole}
	case r.restBytes > 0:
		x := j.place(j.lines, r.restOff, j.pos+j.gap+1, j.at)
		x.Kind, x.Detail = Malformed, "the line does not end in a newline, and the file ends"
		if r.restWhole {
			x.Detail += "; otherwise it is a record"
		}
		j.fault(x)
		j.gap++
	case f.sealed && at == 0:
		x := j.place(-1, 0, j.pos+1, j.at)
		x.Kind, x.Detail = Missing, "the sealed segment is empty"
		j.fault(x)
		j.lost = true
	}
}

func (j *joiner) unreadable(why string) {
	j.r.NotChecked = append(j.r.NotChecked, why)
	j.unread = append(j.unread, why)
}

// settle classifies what does not fit. find tells each right record whose hash
// is in w, in order, with the ordinal of its line; it is nil where that is not
// known.
func (j *joiner) settle(ctx context.Context, find func(context.Context, *watch, func(ledger.Hash, int64)) error) error {
	if len(j.breaks) > 0 {
		places := make(map[ledger.Hash]*found, 2*len(j.breaks))
		w := newWatch()
		for i := range j.breaks {
			for _, h := range []ledger.Hash{j.breaks[i].prev, j.breaks[i].own} {
				if places[h] == nil {
					places[h] = &found{first: -1, last: -1}
					w.add(h)
				}
			}
		}
		look := make([]looked, len(j.breaks))
		next := 0
		upTo := func(at int64) {
			for ; next < len(j.breaks) && j.breaks[next].fault.at <= at; next++ {
				look[next] = looked{before: places[j.breaks[next].prev].last, own: places[j.breaks[next].own].first}
			}
		}
		err := find(ctx, w, func(h ledger.Hash, at int64) {
			upTo(at)
			p := places[h]
			if p == nil {
				return
			}
			if p.first < 0 {
				p.first = at
			}
			p.last = at
		})
		if err != nil {
			return err
		}
		upTo(1 << 62)
		j.classify(places, look)
	}
	for _, f := range j.numbers {
		j.fault(f)
	}
	j.r.FaultsTotal += j.moreBreak
	slices.SortStableFunc(j.r.Faults, func(a, b Fault) int { return cmp.Compare(a.at, b.at) })
	return nil
}

// found is where a hash stands: the first line, and the last one so far.
type found struct{ first, last int64 }

// looked is what is known of a break's hashes at its line.
type looked struct{ before, own int64 }

// movedTo is f at the place of g where that is before its own.
func movedTo(f, g Fault) Fault {
	if g.at < f.at {
		f.Segment, f.Line, f.Seq, f.Offset, f.TS, f.at = g.Segment, g.Line, g.Seq, g.Offset, g.TS, g.at
	}
	return f
}

func (j *joiner) classify(places map[ledger.Hash]*found, look []looked) {
	var out []Fault
	explained := int64(-1) // the last line that was moved or doubled, or follows one that was
	for i := range j.breaks {
		b := &j.breaks[i]
		f := b.fault
		before, own := look[i].before, look[i].own
		after := int64(-1)
		if p := places[b.prev]; before < 0 && p.first > f.at {
			after = p.first
		}
		if b.prev.IsZero() {
			before, after = -1, -1
		}
		switch {
		case own >= 0 && own < f.at:
			f.Kind, f.Detail = Duplicated, fmt.Sprintf("the record stands already %s before", lines(f.at-own))
			explained = f.at
		case b.prev.IsZero() && explained >= 0, before >= 0 && explained > before:
			// It follows from a record that was moved or doubled.
			explained = f.at
			continue
		case after >= 0:
			f.Kind, f.Detail = Reordered, fmt.Sprintf("the record is linked to one that comes %s later (%s)", lines(after-f.at), short(b.prev))
			explained = f.at
		case b.prev.IsZero():
			f.Kind, f.Detail = Inserted, "the record is linked to none, as the first record of a ledger is, and others stand before it"
		case before >= 0:
			f.Kind = Inserted
			f.Detail = fmt.Sprintf("%s do not belong there: line %d of %s is linked to the record before them (%s)", lines(f.at-before-1), f.Line, ledger.Escape(f.Segment), short(b.prev))
			// What stands between is foreign: that its links and numbers do not fit
			// follows. The fault is told at the first line of which that is so.
			for !j.sumsFull && len(out) > 0 && out[len(out)-1].at > before && out[len(out)-1].Kind == Missing {
				f = movedTo(f, out[len(out)-1])
				out = out[:len(out)-1]
			}
			j.numbers = slices.DeleteFunc(j.numbers, func(n Fault) bool {
				if n.at <= before || n.at >= b.fault.at {
					return false
				}
				f = movedTo(f, n)
				return true
			})
		case b.gap > 0 && !b.more:
			continue // explained by the malformed lines
		default:
			f.Kind, f.Detail = Missing, j.missing(b)
		}
		out = append(out, f)
	}
	for _, f := range out {
		j.fault(f)
	}
}

// missing says what is not there.
func (j *joiner) missing(b *brk) string {
	var s strings.Builder
	fmt.Fprintf(&s, "the record that it is linked to (%s) is not in the ledger", short(b.prev))
	if b.seq > b.want {
		s.WriteString(": ")
		if n := b.seq - b.want; n == 1 {
			fmt.Fprintf(&s, "seq %d is missing", b.want)
		} else {
			fmt.Fprintf(&s, "seq %d to %d are missing", b.want, b.seq-1)
		}
	}
	if b.file >= 0 && b.gap == 0 {
		if first := j.files[b.file].first; first > b.want || first == 0 && b.seal {
			if b.file > 0 {
				fmt.Fprintf(&s, "; the end of %s is missing, or", ledger.Escape(j.files[b.file-1].name))
			} else {
				s.WriteByte(';')
			}
			fmt.Fprintf(&s, " segment %s is missing", ledger.SegmentName(b.want))
		}
	}
	if j.sumsFull {
		fmt.Fprintf(&s, " (of a stream, the first %d lines are remembered)", j.o.maxMemory)
	}
	return s.String()
}

// findInMemory is the second reading of a stream.
func (j *joiner) findInMemory(_ context.Context, w *watch, hit func(ledger.Hash, int64)) error {
	byPrefix := make(map[uint64]ledger.Hash, len(w.set))
	for h := range w.set {
		byPrefix[prefix(h)] = h
	}
	for at, p := range j.sums {
		if h, ok := byPrefix[p]; ok && p != 0 {
			hit(h, int64(at))
		}
	}
	return nil
}

func short(h ledger.Hash) string { return h.String()[:16] + "…" }

func lines(n int64) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}
