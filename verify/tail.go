package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// ErrChanged says that what was read of a ledger is not there any more: it was
// cut, replaced or rewritten.
var ErrChanged = errors.New("what was read before is not there any more: the ledger was cut, replaced or rewritten; see ledgerctl verify")

// A Tail reads the records of a ledger directory in order, and each time those
// that were appended since. It is not safe for concurrent use.
type Tail struct {
	dir  string
	path string // of the active segment
	w    walker
	f    func(Place, *ledger.View) error // of the Read that goes on

	last Checkpoint // the last record that was handed out; Seq is 0 before the first
	bad  int64      // lines handed out after it that are no records

	// What is read once more to get to where reading goes on.
	passing bool  // the next line is the record of last
	skip    int64 // so many lines that are no records were handed out already

	held bool // see Held

	gap uint64 // the number of a record before which some are missing, in one listing of the directory

	// Reading goes on in the active segment at w.p, if that is known.
	active  *os.File // nil where it is not
	info    os.FileInfo
	size    int64     // it was read up to there; -1 where something is left
	changed time.Time // when it was last written, then

	// What was handed out last, which must not change.
	before *segment // holds the record of last, where the active segment does not
	record stretch  // the record of last, where the active segment holds it
	line   stretch  // the last line, where that is no record
	buf    []byte
}

// A segment is a sealed segment as it was when it was read to its end.
type segment struct {
	path string
	info os.FileInfo
}

// stands reports whether nobody touched it.
func (s *segment) stands() bool {
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(info, s.info) && info.Size() == s.info.Size() && info.ModTime().Equal(s.info.ModTime())
}

// A stretch is the end of a line with its "\n", and where that ends.
type stretch struct {
	text []byte
	end  int64
}

// stretchMax is how much of a line is remembered: more than records have.
const stretchMax = 64 << 10

func (s *stretch) keep(line []byte, end int64) {
	s.text = append(append(s.text[:0], line[max(0, len(line)-stretchMax):]...), '\n')
	s.end = end
}

// stands reports whether f still holds it.
func (s *stretch) stands(f *os.File, buf *[]byte) bool {
	b := slices.Grow((*buf)[:0], len(s.text))[:len(s.text)]
	*buf = b
	n, _ := f.ReadAt(b, s.end-int64(len(b)))
	return bytes.Equal(b[:n], s.text)
}

// NewTail begins at the first record, or after the record of from, which an
// earlier Tail handed out last.
func NewTail(dir string, from *Checkpoint) *Tail {
	t := &Tail{dir: dir, path: filepath.Join(dir, ledger.ActiveName)}
	t.w = walker{o: Options{}.withDefaults(), f: t.take}
	if from != nil {
		t.last = *from
	}
	return t
}

// Checkpoint is the last record that was handed out, nil before the first.
func (t *Tail) Checkpoint() *Checkpoint {
	if t.last.Seq == 0 {
		return nil
	}
	c := t.last
	return &c
}

// Close lets go of the open file.
func (t *Tail) Close() error {
	if t.active == nil {
		return nil
	}
	err := t.active.Close()
	t.active = nil
	return err
}

// Read hands out what is there now and was not handed out yet, up to a stable
// point, like Walk: a line that is no record is given as a nil View, an
// unfinished last line is left out, the View is valid during the call. It ends
// with nil where everything up to the stable point was handed out, with the
// first error of f, whose record then counts as not handed out, or with what
// could not be read.
//
// The error is ErrChanged, for errors.Is, where what was handed out before is
// not there any more. Nothing was handed out then, and a new Tail has to begin
// anew. It is fs.ErrNotExist where there is no ledger in the directory, yet or
// just now; the position is kept.
func (t *Tail) Read(ctx context.Context, f func(Place, *ledger.View) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.f, t.gap = f, 0
	defer func() { t.f = nil }()
	if t.active != nil {
		there, err := os.Lstat(t.path)
		if err == nil && t.isNew(there) {
			there, err = t.stable(ctx)
		}
		if err == nil && os.SameFile(there, t.info) && t.stands() {
			if err := t.more(ctx, there); !errors.Is(err, errGap) {
				return err
			}
		}
	}
	return t.resume(ctx)
}

// isNew reports whether there is something in the active segment that was not
// read.
func (t *Tail) isNew(there os.FileInfo) bool {
	return there.Size() != t.size || !there.ModTime().Equal(t.changed)
}

// stable is the active segment as it is while no writer is at work.
func (t *Tail) stable(ctx context.Context) (os.FileInfo, error) {
	release, err := takeLock(ctx, t.dir, t.w.o.lockWait)
	defer release()
	t.locked(err)
	return os.Lstat(t.path)
}

// locked takes note of how it went to take the lock. A writer that keeps it, as
// some platforms have them do for their lives, is waited for once.
func (t *Tail) locked(err error) {
	t.w.o.lockWait = lockWait
	if t.held = errors.Is(err, errLockHeld); t.held {
		t.w.o.lockWait = -1
	}
}

// Held reports whether a writer kept the lock during the last Read that found
// something new: what that handed out last may not be durable.
func (t *Tail) Held() bool { return t.held }

// stands reports whether what was handed out last is still where it was.
func (t *Tail) stands() bool {
	if t.bad > 0 && !t.line.stands(t.active, &t.buf) {
		return false
	}
	if t.before != nil {
		return t.before.stands()
	}
	return t.record.stands(t.active, &t.buf)
}

// more hands out what the active segment has now beyond what was read.
func (t *Tail) more(ctx context.Context, there os.FileInfo) error {
	if !t.isNew(there) {
		return nil
	}
	err := t.w.read(ctx, []*file{{name: ledger.ActiveName, handle: t.active, limit: there.Size(), start: t.w.p.Offset, startLine: t.w.p.Line}})
	if err == nil {
		t.size, t.changed = there.Size(), there.ModTime()
	}
	return err
}

var (
	errMoved = errors.New("the record is not at its place")
	errGap   = errors.New("records are missing")
)

// resume looks in the directory for where reading goes on, and reads on.
func (t *Tail) resume(ctx context.Context) error {
	t.Close()
	name := ledger.Escape(t.dir)
	info, err := os.Stat(t.dir)
	if err != nil {
		return missingText(err, name)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", name)
	}
	for moved := false; ; {
		c := newCheck(t.dir, t.w.o)
		t.active, err = c.list(ctx, t.dir)
		t.locked(c.lockErr)
		if err != nil {
			return err
		}
		if len(c.j.files) == 0 {
			return absentError(name + " holds no ledger")
		}
		if err = t.after(ctx, c.j.files); !t.settle(c.j.files, err) {
			t.Close()
		}
		// A listing that is made while a segment is being compressed can lack it
		// under both of its names. The next one has it.
		switch {
		case errors.Is(err, errGap):
			t.Close()
		case errors.Is(err, errMoved) && t.gap > 0:
			return fmt.Errorf("%s was changed while it was read", name)
		case errors.Is(err, errMoved) && moved:
			return fmt.Errorf("%s: %w", name, ErrChanged)
		case errors.Is(err, errMoved):
			moved = true
		default:
			return err
		}
	}
}

// after hands out what is in files and was not handed out yet.
func (t *Tail) after(ctx context.Context, files []*file) error {
	t.w.p, t.skip, t.passing = Place{}, t.bad, false
	t.record.text, t.line.text = t.record.text[:0], t.line.text[:0]
	if t.last.Seq == 0 {
		return t.w.read(ctx, files)
	}
	if t.before != nil && t.bad == 0 && t.before.stands() {
		if i := t.named(files); i >= 0 {
			t.w.p.Seq = t.last.Seq
			return t.w.read(ctx, files[i+1:])
		}
	}
	// It may have been sealed since, and what was sealed may be the active one.
	numbered, active := -1, -1
	for i, f := range files {
		if f.first > 0 && f.first <= t.last.Seq {
			numbered = i
		}
		if f.name == ledger.ActiveName {
			active = i
		}
	}
	for _, i := range slices.Compact([]int{t.named(files), numbered, active}) {
		if i < 0 {
			continue
		}
		f := files[i]
		f.start, f.startLine = t.last.Offset, t.last.Line-1
		t.w.p, t.passing = Place{Seq: t.last.Seq - 1}, true
		err := t.w.read(ctx, files[i:])
		f.start, f.startLine = 0, 0
		if err == nil && !t.passing || err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return errMoved
}

// named is which of files has the name of the segment that holds the record of
// last, compressed or not; -1 if none has.
func (t *Tail) named(files []*file) int {
	plain := func(name string) string { return strings.TrimSuffix(name, ".zst") }
	return slices.IndexFunc(files, func(f *file) bool { return plain(f.name) == plain(t.last.Segment) })
}

// settle takes note of where reading goes on after err, and reports whether
// that is in the active segment, the last of files.
func (t *Tail) settle(files []*file, err error) bool {
	if err != nil && (t.w.p.Segment != ledger.ActiveName || t.passing || t.skip > 0) {
		return false
	}
	if err == nil {
		t.bad, t.skip = t.bad-t.skip, 0 // those are gone
	}
	t.before = nil
	if t.last.Seq > 0 && t.last.Segment != ledger.ActiveName {
		s := &segment{path: files[t.named(files)].path}
		var absent error
		if s.info, absent = os.Lstat(s.path); absent != nil {
			s.path += ".zst" // it was compressed meanwhile
			s.info, absent = os.Lstat(s.path)
		}
		if absent != nil {
			return false
		}
		t.before = s
	}
	if t.active == nil {
		return false
	}
	var lost error
	if t.info, lost = t.active.Stat(); lost != nil {
		return false
	}
	t.size, t.changed = -1, time.Time{}
	if err == nil {
		t.size, t.changed = files[len(files)-1].limit, t.info.ModTime()
	}
	return true
}

// take is given each line in turn.
func (t *Tail) take(p Place, line []byte, v *ledger.View) error {
	switch {
	case t.passing:
		if v == nil || !isRecord(line, &t.last) {
			return errMoved
		}
		t.passing = false
		t.last.Segment = p.Segment
	case v == nil && t.skip > 0:
		t.skip--
	case v == nil:
		if err := t.f(p, nil); err != nil {
			return err
		}
		t.bad++
	default:
		if p.Line == 1 && v.Seq > t.w.p.Seq+1 && v.Seq != t.gap {
			t.gap = v.Seq
			return errGap
		}
		if err := t.f(p, v); err != nil {
			return err
		}
		t.last = Checkpoint{Segment: p.Segment, Line: p.Line, Offset: p.Offset, Seq: p.Seq, Sum: v.Sum}
		t.bad, t.skip = 0, 0
		t.before, t.line.text = nil, t.line.text[:0]
	}
	if p.Segment != ledger.ActiveName || line == nil {
		return nil
	}
	s := &t.record
	if v == nil {
		s = &t.line
	}
	s.keep(line, p.Offset+int64(len(line))+1)
	return nil
}
