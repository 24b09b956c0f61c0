package verify

import (
	"fmt"
	"io"

	"github.com/auditledger/auditledger/ledger"
)

// trusted makes the walk begin at the trusted record, and says what it will
// not look at. Where the record is not found at its place, everything is
// checked, and the trusted record is one more thing that must be in the chain.
func (c *check) trusted() (skipped string) {
	j, cp := c.j, c.o.From
	i, start, line, ok := c.find(cp)
	if !ok {
		j.watch.add(cp.Sum)
		c.known = append(c.known, Claim{Source: "the trusted start", Head: ledger.Head{Seq: cp.Seq, Sum: cp.Sum}})
		return ""
	}
	f := j.files[i]
	p := position(ledger.Head{Seq: cp.Seq, Sum: cp.Sum})
	c.r.From = &p
	if cp.Seq == 1 {
		skipped = "nothing was left out: the trusted start is the first record"
	} else {
		skipped = fmt.Sprintf("seq 1 to %d, before the trusted start:", cp.Seq-1)
		if i > 0 {
			skipped += fmt.Sprintf(" %s whole", count(uint64(i), "segment"))
		}
		if start > 0 {
			if i > 0 {
				skipped += ","
			}
			skipped += fmt.Sprintf(" the first %d bytes of %s", start, ledger.Escape(f.name))
		}
	}
	f.start, f.startLine = start, line
	j.files = j.files[i:]
	j.total = max(0, j.total-start)
	j.trust, j.pos = true, cp.Seq-1
	if cp.Seq > 1 {
		j.note("calls in doubt and times are those from the trusted start on")
	}
	return skipped
}

// find looks for the trusted record: first where the checkpoint says that it
// was, then by its number.
func (c *check) find(cp *Checkpoint) (i int, start, line int64, ok bool) {
	files := c.j.files
	if len(files) == 0 || c.j.keep {
		return 0, 0, 0, false
	}
	for i, f := range files {
		// The active segment may have been sealed since.
		if cp.Line > 0 && !f.zstd && (f.name == cp.Segment || f.first > 0 && f.first+uint64(cp.Line)-1 == cp.Seq) {
			if c.standsAt(f, cp) {
				return i, cp.Offset, cp.Line - 1, true
			}
		}
	}
	for i := len(files) - 1; i >= 0; i-- {
		first := files[i].first
		if first == 0 {
			first = c.firstSeq(files[i])
		}
		if first == 0 && i == 0 {
			first = 1
		}
		if first == 0 || first > cp.Seq {
			continue
		}
		start, ok = c.lineOf(files[i], cp, cp.Seq-first)
		return i, start, int64(cp.Seq - first), ok
	}
	return 0, 0, 0, false
}

// plain opens f to read it as plain text.
func (c *check) plain(f *file) (r io.Reader, size int64, closer func(), err error) {
	s := newSource([]*file{f}, c.o)
	o, err := s.openCur()
	if err != nil {
		return nil, 0, nil, err
	}
	if o.at != nil {
		return io.NewSectionReader(o.at, 0, o.limit), o.limit, o.release, nil
	}
	return o.stream, -1, o.release, nil
}

func (c *check) firstSeq(f *file) uint64 {
	r, _, done, err := c.plain(f)
	if err != nil {
		return 0
	}
	defer done()
	l := ledger.NewLines(r, 0)
	var v ledger.View
	if !l.Next() || v.Parse(l.Line()) != nil {
		return 0
	}
	return v.Seq
}

// standsAt reports whether the trusted record begins at cp.Offset of f.
func (c *check) standsAt(f *file, cp *Checkpoint) bool {
	r, size, done, err := c.plain(f)
	if err != nil {
		return false
	}
	defer done()
	at, ok := r.(io.ReaderAt)
	if !ok || cp.Offset >= size {
		return false
	}
	var before [1]byte
	if cp.Offset > 0 {
		if _, err := at.ReadAt(before[:], cp.Offset-1); err != nil || before[0] != '\n' {
			return false
		}
	}
	l := ledger.NewLines(io.NewSectionReader(at, cp.Offset, size-cp.Offset), cp.Offset)
	return l.Next() && !l.Torn() && isRecord(l.Line(), cp)
}

// lineOf returns where the line begins that has skip lines before it, and
// whether it is the trusted record.
func (c *check) lineOf(f *file, cp *Checkpoint, skip uint64) (start int64, ok bool) {
	r, _, done, err := c.plain(f)
	if err != nil {
		return 0, false
	}
	defer done()
	l := ledger.NewLines(r, 0)
	for ; skip > 0; skip-- {
		if !l.Next() {
			return 0, false
		}
	}
	if !l.Next() || l.Torn() || !isRecord(l.Line(), cp) {
		return 0, false
	}
	return l.Offset(), true
}

func isRecord(line []byte, cp *Checkpoint) bool {
	var v ledger.View
	var buf []byte
	return v.Parse(line) == nil && v.Sum == cp.Sum && (v.Seq == 0 || v.Seq == cp.Seq) && v.Compute(&buf) == v.Sum
}
