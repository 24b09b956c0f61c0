package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// lockWait is how long Dir waits for a writer that holds the lock: it does so
// for a batch at a time.
const lockWait = 3 * time.Second

// Dir checks the ledger in a directory: its sealed segments in order, plain and
// compressed, the active one, and head.json. The error is that of ctx; all else
// is in the Report.
func Dir(ctx context.Context, dir string, o Options) (*Report, error) {
	o = o.withDefaults()
	c := newCheck(dir, o)
	c.j.dir, c.j.torn = true, true
	h, err := c.list(ctx, dir)
	if h != nil {
		defer h.Close()
	}
	if ctx.Err() != nil {
		return c.stopped(ctx)
	}
	if err != nil {
		c.j.unreadable(ledger.Escape(err.Error()))
	}
	return c.run(ctx)
}

// Files checks files as one chain, in the order given, and nothing around them:
// no head.json, no other segments. The chain may go on from a segment that is
// not among them. The error is that of ctx.
func Files(ctx context.Context, names []string, o Options) (*Report, error) {
	o = o.withDefaults()
	c := newCheck(strings.Join(names, " "), o)
	c.j.torn = true
	for _, name := range names {
		f := &file{name: filepath.Base(name), path: name, follow: true, limit: -1}
		f.first, f.zstd, _ = ledger.ParseSegmentName(f.name)
		if len(names) > 1 {
			f.name = name
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			f.limit = info.Size()
			c.j.total += f.limit
		}
		c.j.files = append(c.j.files, f)
	}
	return c.run(ctx)
}

// Reader checks what r gives as one file called name. The error is that of
// ctx.
func Reader(ctx context.Context, name string, r io.Reader, o Options) (*Report, error) {
	o = o.withDefaults()
	c := newCheck(name, o)
	c.j.torn, c.j.keep = true, true
	c.j.files = []*file{{name: name, stream: r, limit: -1}}
	return c.run(ctx)
}

// A check is one call of Dir, Files or Reader.
type check struct {
	o     Options
	r     *Report
	j     *joiner
	head  *ledger.Head // of head.json
	known []Claim      // more that must be in the chain

	lockErr error // why list read without the lock
}

func newCheck(source string, o Options) *check {
	r := &Report{Source: source, Faults: []Fault{}, Warnings: []Warning{}, Segments: []Segment{}, NotChecked: []string{}, Notes: []string{}}
	return &check{o: o, r: r, j: &joiner{o: o, r: r, watch: newWatch(), seen: make(map[ledger.Hash]uint64), intents: make(map[ledger.Hash]openIntent)}}
}

func (c *check) stopped(ctx context.Context) (*Report, error) {
	c.r.Verdict = Unchecked
	c.r.NotChecked = append(c.r.NotChecked, "the check was stopped before its end")
	return c.r, ctx.Err()
}

// list finds the files of a directory and the point up to which to read them.
// It returns the active segment, opened.
func (c *check) list(ctx context.Context, dir string) (active *os.File, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, missingText(err, dir)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	c.mode(dir, info)
	stable := &Stable{}
	release, err := takeLock(ctx, dir, c.o.lockWait)
	defer release()
	if c.lockErr, stable.Locked = err, err == nil; !stable.Locked {
		stable.Held = errors.Is(err, errLockHeld)
		c.j.note("read without the lock, since %s: a line that was being written may be told as torn", err)
	}
	c.readHead(dir)
	entries, err := listing(dir)
	if err != nil {
		return nil, missingText(err, dir)
	}
	stable.Time = c.o.Now()
	for _, e := range entries {
		c.entry(dir, e)
	}
	// Of a segment that is there twice, the plain one is checked.
	slices.SortFunc(c.j.files, func(a, b *file) int {
		if a.first != b.first {
			if a.first < b.first {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	c.j.files = slices.CompactFunc(c.j.files, func(again, f *file) bool {
		if again.first != f.first {
			return false
		}
		c.j.warn(Warning{Kind: WarnStray, Segment: again.name, Detail: fmt.Sprintf("it was not read: %s is there as well, and is the one that was checked", f.name)})
		return true
	})
	path := filepath.Join(dir, ledger.ActiveName)
	f := &file{name: ledger.ActiveName, path: path}
	h, hi, err := openFile(path, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if n := len(c.j.files); n > 0 {
			stable.Segment, stable.Offset = c.j.files[n-1].name, max(c.j.files[n-1].limit, 0)
			c.r.Stable = stable
			c.j.note("there is no %s: a crash while sealing leaves it so until a writer starts, and so does who removes it", ledger.ActiveName)
		}
		return nil, nil
	case err != nil:
		f.limit = -1
	default:
		c.mode(ledger.ActiveName, hi)
		f.handle, f.limit = h, hi.Size()
		c.j.total += f.limit
		stable.Segment, stable.Offset = f.name, f.limit
		c.r.Stable = stable
	}
	c.j.files = append(c.j.files, f)
	return h, nil
}

// listing lists a directory until it has the same names twice: a segment that is
// compressed meanwhile can lack both of its names in one listing.
func listing(dir string) (entries []fs.DirEntry, err error) {
	for range 100 {
		before := entries
		if entries, err = os.ReadDir(dir); err != nil || before != nil && slices.EqualFunc(before, entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }) {
			break
		}
	}
	return entries, err
}

func missingText(err error, dir string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return absentError(dir + " does not exist")
	}
	return fmt.Errorf("%s: %s", dir, reason(err))
}

// absentError is fs.ErrNotExist, for people.
type absentError string

func (e absentError) Error() string        { return string(e) }
func (e absentError) Is(target error) bool { return target == fs.ErrNotExist }

// takeLock takes the shared lock, or says why it cannot.
func takeLock(ctx context.Context, dir string, wait time.Duration) (release func(), err error) {
	h, _, err := openFile(filepath.Join(dir, ledger.LockName), false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("there is no file " + ledger.LockName)
	case err != nil:
		err = fmt.Errorf("%s: %s", ledger.LockName, reason(err))
	default:
		err = lockShared(ctx, h, wait)
	}
	if err != nil {
		return func() {}, err
	}
	return func() { h.Close() }, nil
}

func (c *check) readHead(dir string) {
	h, info, err := openFile(filepath.Join(dir, ledger.HeadName), false)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		defer h.Close()
		c.mode(ledger.HeadName, info)
		text, err = io.ReadAll(io.LimitReader(h, 4096))
	}
	var head ledger.Head
	if err == nil {
		err = head.UnmarshalText(text)
	}
	if err != nil {
		c.j.warn(Warning{Kind: WarnHeadFile, Segment: ledger.HeadName, Detail: "it could not be read, and so says nothing: " + ledger.Escape(reason(err))})
		return
	}
	c.head = &head
}

// entry takes one name in the directory.
func (c *check) entry(dir string, e fs.DirEntry) {
	name := e.Name()
	switch name {
	case ledger.ActiveName, ledger.LockName, ledger.HeadName, ledger.NotesName, ledger.TornName, "anchors.jsonl", "anchor-run.json":
		return
	}
	first, compressed, ok := ledger.ParseSegmentName(name)
	if !ok {
		c.j.warn(Warning{Kind: WarnStray, Segment: name, Detail: "it is no part of a ledger, and was not read"})
		return
	}
	f := &file{name: name, path: filepath.Join(dir, name), limit: -1, first: first, sealed: true, zstd: compressed}
	if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
		c.mode(name, info)
		if !compressed {
			f.limit = info.Size()
		}
		c.j.total += info.Size()
	}
	c.j.files = append(c.j.files, f)
}

// mode warns where others than the owner have rights.
func (c *check) mode(name string, info fs.FileInfo) {
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		c.j.warn(Warning{Kind: WarnMode, Segment: name, Detail: fmt.Sprintf("mode %#o gives rights to others than its owner", perm)})
	}
}

func (c *check) run(ctx context.Context) (*Report, error) {
	j, o := c.j, c.o
	if slices.ContainsFunc(j.files, func(f *file) bool { return f.zstd }) {
		j.total = 0 // what they will be is not known
	}
	for _, h := range o.ExpectHeads {
		j.watch.add(h)
	}
	for _, a := range o.Anchors {
		j.watch.add(a.Head.Sum)
	}
	if c.head != nil {
		j.watch.add(c.head.Sum)
	}
	var skipped string
	files := j.files
	if o.From != nil {
		skipped = c.trusted()
	}
	if err := c.walk(ctx, nil); err != nil {
		return c.stopped(ctx)
	}
	find := func(ctx context.Context, w *watch, hit func(ledger.Hash, int64)) error {
		j.watch = w
		return c.walk(ctx, hit)
	}
	if j.keep {
		find = j.findInMemory
	}
	watched := j.watch
	if err := j.settle(ctx, find); err != nil {
		return c.stopped(ctx)
	}
	j.watch = watched
	c.claims()
	c.conclude(files, skipped)
	return c.r, nil
}

// walk reads the files; with hit, only to find hashes.
func (c *check) walk(ctx context.Context, hit func(ledger.Hash, int64)) error {
	j := c.j
	if hit != nil {
		j.marksOnly = hit
		j.at = 0
		defer func() { j.marksOnly = nil }()
	}
	j.file = -1
	p := pipeline{src: newSource(j.files, c.o), o: c.o, watch: j.watch, keep: j.keep, take: j.take}
	return p.run(ctx)
}

// claims compares the chain with what others know of it.
func (c *check) claims() {
	j, r := c.j, c.r
	begin := uint64(1) // of what was looked at
	if r.From != nil {
		begin = r.From.Seq
	}
	claim := func(source string, h ledger.Head) bool {
		pos, found := j.seen[h.Sum]
		where := Fault{Segment: c.lastName(), Line: j.lines + 1, Seq: h.Seq, Offset: j.last.Offset, TS: j.lastTS, at: j.at}
		switch {
		case h.Seq < begin:
			r.NotChecked = append(r.NotChecked, fmt.Sprintf("what %s knows of seq %d, before the trusted start", source, h.Seq))
			return false
		case found && (pos == h.Seq || r.FaultsTotal > 0):
			return pos == h.Seq
		case h.Seq > j.pos+j.gap:
			where.Kind = Truncated
			where.Detail = fmt.Sprintf("%s knows a record %d (%s), the ledger ends at %d: %d missing at the end", source, h.Seq, short(h.Sum), j.pos, h.Seq-j.pos)
			j.fault(where)
		case h.Seq > j.pos:
			// Malformed lines at the end can be what is left of it.
		case j.lost || len(j.unread) > 0:
			// It can be in what could not be read.
			r.NotChecked = append(r.NotChecked, fmt.Sprintf("whether record %d that %s knows is in what could not be read", h.Seq, source))
		case found:
			where.Kind = Forked
			where.Detail = fmt.Sprintf("%s knows the record %s at seq %d, it stands at %d", source, short(h.Sum), h.Seq, pos)
			j.fault(where)
		case j.explained(h.Seq):
			// The fault at that record says so already.
		default:
			where.Kind = Forked
			where.Detail = fmt.Sprintf("%s knows another record at seq %d: %s", source, h.Seq, short(h.Sum))
			j.fault(where)
		}
		return false
	}
	if c.head != nil && c.head.Seq > 0 {
		claim(ledger.HeadName, *c.head)
	}
	for _, a := range c.known {
		if claim(a.Source, a.Head) {
			j.note("%s was not at its place, and all was checked", a.Source)
		}
	}
	for _, a := range c.o.Anchors {
		if claim(ledger.Escape(a.Source), a.Head) {
			r.Anchors++
			r.AnchoredThrough = max(r.AnchoredThrough, a.Head.Seq)
		}
	}
	for _, h := range c.o.ExpectHeads {
		if pos, ok := j.seen[h]; !ok {
			j.fault(Fault{Kind: Truncated, Segment: c.lastName(), Line: j.lines + 1, Seq: j.pos + 1, Offset: j.last.Offset, TS: j.lastTS, at: j.at,
				Detail: fmt.Sprintf("the expected head %s is not in the ledger, which ends at seq %d", h, j.pos)})
		} else if pos < j.pos {
			j.note("the expected head is the record at seq %d; %d more came since", pos, j.pos-pos)
		}
	}
	if n := c.o.ExpectRecords; n != nil {
		have := begin - 1 + j.records
		if have < *n {
			j.fault(Fault{Kind: Truncated, Segment: c.lastName(), Line: j.lines + 1, Seq: j.pos + 1, Offset: j.last.Offset, TS: j.lastTS, at: j.at,
				Detail: fmt.Sprintf("%d records are expected, the ledger has %d: %d are missing", *n, have, *n-have)})
		} else if have > *n {
			j.note("%d records are expected, the ledger has %d", *n, have)
		}
	}
}

// explained reports whether a fault that was told is of the record at seq.
func (j *joiner) explained(seq uint64) bool {
	return slices.ContainsFunc(j.r.Faults, func(f Fault) bool { return f.Kind == Malformed && f.Seq == seq })
}

func (c *check) lastName() string {
	if n := len(c.j.files); n > 0 {
		return c.j.files[n-1].name
	}
	return ledger.ActiveName
}

// conclude fills what is left of the report.
func (c *check) conclude(files []*file, skipped string) {
	j, r := c.j, c.r
	r.Records = j.records
	r.Head = position(j.lastHead)
	if skipped != "" {
		r.NotChecked = append(r.NotChecked, skipped)
	}
	r.InDoubt, r.InDoubtAtLeast = len(j.intents), j.pastCap
	c.doubts()
	if j.sumsFull && len(j.breaks) > 0 {
		j.note("of a stream, the hashes of the first %d lines are remembered: what is told as missing may stand after them", c.o.maxMemory)
	}

	r.Verdict = Intact
	if r.Anchors > 0 && r.Anchors == len(c.o.Anchors) {
		r.Verdict = Anchored
	}
	if r.Torn != nil {
		r.Verdict = Worse(r.Verdict, Torn)
	}
	if len(j.unread) > 0 {
		r.Verdict = Worse(r.Verdict, Unchecked)
	}
	if r.Records == 0 {
		r.Verdict = Worse(r.Verdict, Unchecked)
		switch {
		case len(j.unread) > 0:
		case len(files) == 0:
			r.NotChecked = append(r.NotChecked, "there is no ledger in it")
		case r.Torn != nil:
			r.NotChecked = append(r.NotChecked, "there is no whole record in it")
		default:
			r.NotChecked = append(r.NotChecked, "there is no record in it")
		}
	}
	if r.FaultsTotal > 0 {
		r.Verdict = Tampered
	} else if len(j.unread) == 0 && r.Records > 0 {
		cp := j.last
		r.Checkpoint = &cp
	}
}

// maxDoubts is how many calls in doubt are told one by one.
const maxDoubts = 20

func (c *check) doubts() {
	j := c.j
	open := make([]openIntent, 0, len(j.intents))
	for _, o := range j.intents {
		open = append(open, o)
	}
	slices.SortFunc(open, func(a, b openIntent) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	now := c.o.Now().UnixNano()
	stale := 0
	for i, o := range open {
		w := Warning{Kind: WarnDoubt, Segment: j.files[o.file].name, Line: o.line + 1, Seq: o.seq, TS: o.ts,
			Detail: "an intent of which no later record says how it ended"}
		if age := now - o.ts; age > int64(24*time.Hour) {
			stale++
			w.Kind = WarnStale
			w.Detail += fmt.Sprintf(", for %s", span(age))
		}
		if i < maxDoubts {
			j.warn(w)
		}
	}
	if n := len(open); n > maxDoubts {
		j.warn(Warning{Kind: WarnDoubt, Detail: fmt.Sprintf("%d more calls are in doubt; %d of all are older than a day", n-maxDoubts, stale)})
	}
	if n := j.r.ClockSteps; n > maxSteps {
		j.warn(Warning{Kind: WarnClock, Detail: fmt.Sprintf("the wall clock was set back %d more times", n-maxSteps)})
	}
}

// span is a number of nanoseconds for people.
func span(ns int64) string {
	d := time.Duration(ns)
	if d < 0 {
		return "very long"
	}
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return d.String()
}
