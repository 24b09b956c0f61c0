package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// Options of Take. The zero value is ready.
type Options struct {
	Base     string // where relative paths begin; "" for the working directory, which is then not told
	MaxSize  int64  // larger files are not hashed, in bytes; 0 for no limit
	LeaveOut []os.FileInfo
	Workers  int // files that are hashed at once; 0 for one a core

	// Progress is called now and then, from one goroutine, with what was done.
	Progress func(entries, bytes int64)

	maxEntries, maxBytes int64              // more is an error, errLimit; 0 for no limit
	testingOpened        func(path string)  // between status and content
	testingRead          func([]byte) error // after each read
}

// A Summary says what a snapshot holds.
type Summary struct {
	Entries  int64
	Bytes    int64       // hashed
	Unknown  int64       // entries that are unknown
	Unhashed int64       // entries whose content is unstable or unreadable; not those that are too large
	LeftOut  int64       // by rule
	Sum      ledger.Hash // of the lines of the entries
}

// errLimit ends a walk that is longer than it may be.
var errLimit = errors.New("more than may be looked at")

// Take writes the state of paths to w as a snapshot. Whatever cannot be looked
// at is an entry that says so. Its error is that of w, of ctx, or of paths that
// cannot be looked at together; what was written is then no snapshot.
func Take(ctx context.Context, w io.Writer, paths []string, o Options) (Summary, error) {
	roots, err := rootsOf(paths)
	if err != nil {
		return Summary{}, err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	header := Header{Base: o.Base, MaxSize: o.MaxSize, Roots: roots, TS: time.Now().UnixNano()}
	out.Write(append(header.Append(nil), '\n'))
	d := digester{h: sha256.New()}
	base, err := here(o.Base)
	if err != nil {
		return Summary{}, fmt.Errorf("open the directory %s, from which paths are taken: %w", ledger.Escape(o.Base), cause(err))
	}
	starts := make([]entryRoot, len(roots))
	for i, r := range roots {
		starts[i] = entryRoot{r, r}
	}
	if d.s.Bytes, err = each(ctx, base, starts, o, func(e *Entry) error {
		_, err := out.Write(d.add(e))
		return err
	}); err != nil {
		return Summary{}, err
	}
	s := d.sum()
	fmt.Fprintf(out, "{\"entries\":%d,\"sha256\":\"%s\"}\n", s.Entries, s.Sum)
	return s, out.Flush()
}

// digester counts and hashes the lines of entries.
type digester struct {
	h    hash.Hash
	line []byte
	s    Summary
}

// add is the line of e, valid until the next call.
func (d *digester) add(e *Entry) []byte {
	d.line = append(e.Append(d.line[:0]), '\n')
	d.h.Write(d.line)
	d.s.Entries++
	switch {
	case e.State == Unknown:
		d.s.Unknown++
	case e.State == LeftOut:
		d.s.LeftOut++
	case e.Unhashed == Unstable || e.Unhashed == Unreadable:
		d.s.Unhashed++
	}
	return d.line
}

func (d *digester) sum() Summary {
	d.h.Sum(d.s.Sum[:0])
	return d.s
}

// rootsOf is paths as a header has them.
func rootsOf(paths []string) ([]string, error) {
	var roots []string
	for _, p := range paths {
		switch {
		case p == "":
			return nil, errors.New("an empty path: name a file or a directory")
		case strings.ContainsRune(p, 0):
			return nil, fmt.Errorf("%s holds a zero byte, which no path does", ledger.Escape(p))
		}
		roots = append(roots, path.Clean(filepath.ToSlash(p)))
	}
	if len(roots) == 0 {
		return nil, errors.New("no path to look at")
	}
	slices.Sort(roots)
	roots = slices.Compact(roots)
	for _, r := range roots {
		for _, other := range roots {
			if r != other && (strings.HasPrefix(r, below(other)) || other == "." && !path.IsAbs(r) && r != ".." && !strings.HasPrefix(r, "../")) {
				return nil, fmt.Errorf("%s lies in %s, which is looked at whole: name only one of them", ledger.Escape(r), ledger.Escape(other))
			}
		}
	}
	return roots, nil
}

// below is what the paths in the directory at p begin with.
func below(p string) string {
	if p == "/" {
		return p
	}
	return p + "/"
}

// An item is one path that an entry is to be made of.
type item struct {
	in      *folder // that name is looked up in; nil where the entry is made
	name    string
	listed  Type // as its directory listed it
	ignored bool // by the rule for ledgers
	e       Entry
}

// A batch is some items that follow one another in the order of entries.
type batch struct {
	items []item
	todo  sync.WaitGroup // large files that are hashed beside, and the batch itself
}

// batchSize is how many items are handed over at once: small files are cheap.
const batchSize = 64

// largeFrom is the size from which on a file is hashed apart from its batch.
const largeFrom = 256 << 10

// walker makes the entries below some roots.
type walker struct {
	o     Options
	ctx   context.Context
	ready chan *batch // to the workers
	order chan *batch // the same, in order, to the caller
	batch *batch
	large chan struct{} // a token for each large file that is hashed apart
	bufs  sync.Pool
	total atomic.Int64 // entries begun
	bytes atomic.Int64 // bytes that were hashed, or are about to be
	leave map[[2]uint64]bool
}

// An entryRoot is where a walk begins.
type entryRoot struct {
	name string // in the folder that it is looked up in
	path string // as entries say it
}

// each calls f with the entries below roots, in order, from this goroutine. It
// releases base. It says how many bytes were hashed.
func each(ctx context.Context, base *folder, roots []entryRoot, o Options, f func(*Entry) error) (bytes int64, err error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &walker{o: o, ctx: ctx, ready: make(chan *batch), order: make(chan *batch, 4*o.Workers), large: make(chan struct{}, o.Workers),
		leave: map[[2]uint64]bool{}}
	w.bufs.New = func() any { return new([bufSize]byte) }
	for _, info := range o.LeaveOut {
		if dev, ino, ok := identityOf(info); ok {
			w.leave[[2]uint64{dev, ino}] = true
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		defer close(w.order)
		defer close(w.ready)
		defer base.release()
		if err := w.roots(base, roots); err != nil {
			cancel(err)
			w.drop(w.batch)
		} else {
			w.flush()
		}
	})
	for range o.Workers {
		all.Go(func() {
			for b := range w.ready {
				for i := range b.items {
					w.look(b, &b.items[i])
				}
				b.todo.Done()
			}
		})
	}
	for b := range w.order {
		b.todo.Wait()
		for i := range b.items {
			if ctx.Err() != nil {
				break
			}
			if err := f(&b.items[i].e); err != nil {
				cancel(err)
				break
			}
		}
		if o.Progress != nil {
			o.Progress(w.total.Load(), w.bytes.Load())
		}
	}
	return w.bytes.Load(), context.Cause(ctx)
}

// add is the next item, in the order of entries.
func (w *walker) add(i item) error {
	if w.o.maxEntries > 0 && w.total.Load() >= w.o.maxEntries {
		return errLimit
	}
	w.total.Add(1)
	if i.in != nil {
		i.in.hold()
	}
	if w.batch == nil {
		w.batch = &batch{items: make([]item, 0, batchSize)}
	}
	w.batch.items = append(w.batch.items, i)
	if len(w.batch.items) == batchSize {
		w.flush()
	}
	return w.ctx.Err()
}

// flush hands the batch over. Where it comes to an end by ctx, so does all.
func (w *walker) flush() {
	b := w.batch
	if b == nil {
		return
	}
	w.batch = nil
	b.todo.Add(1)
	select {
	case w.order <- b:
	case <-w.ctx.Done():
		w.drop(b)
		return
	}
	select {
	case w.ready <- b:
	case <-w.ctx.Done():
		w.drop(b)
		b.todo.Done()
	}
}

// drop gives a batch up that no worker gets.
func (w *walker) drop(b *batch) {
	if b == nil {
		return
	}
	for i := range b.items {
		if b.items[i].in != nil {
			b.items[i].in.release()
		}
	}
}

// A listing is a name in a directory. A directory is named twice, for itself and,
// with contents, for what is in it: "a" and "a/", between which "a.b" stands.
type listing struct {
	key      string // by which entries are ordered
	typ      Type   // as listed
	contents bool
}

func byKey(a, b listing) int { return strings.Compare(a.key, b.key) }

func (w *walker) roots(base *folder, roots []entryRoot) error {
	var all []listing
	names := map[string]string{}
	for _, r := range roots {
		st, err := base.status(r.name)
		if err != nil {
			st.typ = ""
		}
		names[r.path] = r.name
		all = append(all, listing{key: r.path, typ: st.typ})
		if st.typ == Dir {
			all = append(all, listing{key: r.path + "/", contents: true})
		}
	}
	slices.SortFunc(all, byKey)
	for _, n := range all {
		var err error
		if n.contents {
			at := n.key[:len(n.key)-1]
			err = w.directory(base, names[at], at)
		} else {
			err = w.add(item{in: base, name: names[n.key], listed: n.typ, e: Entry{Path: n.key}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directory adds what is in the directory name of parent, whose path is at.
func (w *walker) directory(parent *folder, name, at string) error {
	unlisted := func(err error) error {
		return w.add(item{e: Entry{Path: at + "/", State: Unknown, Reason: reasonOf(err)}})
	}
	f, err := parent.folder(name)
	if err != nil {
		return unlisted(err)
	}
	defer f.release()
	var all []listing
	own := 0 // of the three files of a ledger
	err = f.list(func(text string, t Type) {
		if (text == ledger.LockName || text == ledger.ActiveName || text == ledger.HeadName) && t == File {
			own++
		}
		all = append(all, listing{key: text, typ: t})
	})
	if err != nil { // what was listed is true all the same
		if err := unlisted(err); err != nil {
			return err
		}
	}
	isLedger := own == 3
	for _, n := range all {
		if n.typ == Dir && !(isLedger && n.key == ledger.TornName) {
			all = append(all, listing{key: n.key + "/", contents: true})
		}
	}
	slices.SortFunc(all, byKey)
	for _, n := range all {
		if n.contents {
			dir := n.key[:len(n.key)-1]
			err = w.directory(f, dir, below(at)+dir)
		} else {
			err = w.add(item{in: f, name: n.key, listed: n.typ, ignored: isLedger && ofLedger(n.key), e: Entry{Path: below(at) + n.key}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ofLedger reports whether name is that of a ledger's own in its directory.
func ofLedger(name string) bool {
	_, _, segment := ledger.ParseSegmentName(name)
	return segment || name == ledger.ActiveName || name == ledger.LockName || name == ledger.HeadName || name == ledger.TornName
}

// look makes the entry of i.
func (w *walker) look(b *batch, i *item) {
	if i.in == nil {
		return
	}
	defer i.in.release()
	e := &i.e
	switch {
	case w.ctx.Err() != nil:
		return
	case i.ignored:
		e.State, e.Reason = LeftOut, reasonLedger
		return
	case i.listed != File:
		st, err := i.in.status(i.name)
		if err != nil {
			e.fail(err)
			return
		}
		if st.typ != File {
			w.plain(i, st)
			return
		}
	}
	f, err := i.in.open(i.name)
	if err != nil {
		// Its status, at least; there is no content that could be of another moment.
		st, e2 := i.in.status(i.name)
		switch {
		case e2 != nil:
			e.fail(e2)
		case st.typ != File:
			w.plain(i, st)
		case isOtherType(err) || isAbsent(err):
			e.set(st)
			e.Unhashed, e.Reason = Unstable, "another file took its place while it was looked at"
		default:
			e.set(st)
			e.Unhashed, e.Reason = Unreadable, reasonOf(err)
		}
		return
	}
	st, err := f.status()
	if err != nil {
		f.close()
		e.State, e.Reason = Unknown, reasonOf(err)
		return
	}
	if st.typ != File { // swapped after it was listed; opening it did not wait, and it is not read
		f.close()
		w.plain(i, st)
		return
	}
	if w.leave[[2]uint64{st.dev, st.ino}] {
		f.close()
		e.State, e.Reason = LeftOut, reasonSnapshot
		return
	}
	e.set(st)
	if w.o.MaxSize > 0 && st.size > w.o.MaxSize {
		f.close()
		e.Unhashed, e.Reason = TooLarge, "larger than "+strconv.FormatInt(w.o.MaxSize, 10)+" bytes"
		return
	}
	if sum := w.bytes.Add(st.size); w.o.maxBytes > 0 && sum > w.o.maxBytes {
		f.close()
		e.Unhashed, e.Reason = TooLarge, errLimit.Error()
		return
	}
	if w.o.testingOpened != nil {
		w.o.testingOpened(e.Path)
	}
	if st.size >= largeFrom {
		select {
		case w.large <- struct{}{}:
			b.todo.Add(1)
			go func() {
				defer b.todo.Done()
				w.content(f, e, st)
				<-w.large
			}()
			return
		default:
		}
	}
	w.content(f, e, st)
}

// plain sets the entry of what is no file.
func (w *walker) plain(i *item, st status) {
	e := &i.e
	switch {
	case st.typ == Dir && i.listed != Dir:
		e.State, e.Reason = Unknown, "it became a directory while it was looked at"
		return
	case st.typ != Link:
		e.set(st)
		return
	}
	target, err := i.in.readlink(i.name)
	var after status
	if err == nil {
		after, err = i.in.status(i.name)
	}
	switch {
	case err != nil && isAbsent(err):
		e.fail(err)
		return
	case err != nil:
		e.Unhashed, e.Reason = Unreadable, reasonOf(err)
	case after != st:
		e.Unhashed, e.Reason = Unstable, "it changed while it was looked at"
	default:
		e.Link = target
	}
	e.set(st)
}

func (e *Entry) set(st status) {
	e.State, e.Type, e.MTime = Exists, st.typ, st.mtime
	if st.typ == File {
		e.Size = st.size
	}
}

func (e *Entry) fail(err error) {
	e.State, e.Reason = Unknown, reasonOf(err)
	if isAbsent(err) {
		e.State = Absent
	}
}

// bufSize is how much of a file is read at once.
const bufSize = 128 << 10

// content hashes f, which it closes.
func (w *walker) content(f file, e *Entry, st status) {
	defer f.close()
	h := sha256.New()
	n, err := w.copy(h, f, st.size)
	after, err2 := f.status()
	if err == nil {
		err = err2
	}
	switch {
	case w.ctx.Err() != nil:
		e.Unhashed = Unreadable // of no matter: what is under way is given up
	case err != nil:
		e.Unhashed, e.Reason = Unreadable, reasonOf(err)
	case n < st.size:
		e.Unhashed, e.Reason = Unstable, "it ended before its size"
	case n > st.size:
		e.Unhashed, e.Reason = Unstable, "it gave more than its size"
	case after != st:
		e.Unhashed, e.Reason = Unstable, "it changed while it was looked at"
	default:
		h.Sum(e.SHA256[:0])
		e.Hashed = true
	}
}

// copy reads up to one byte more than size into h, and says how many it read.
func (w *walker) copy(h hash.Hash, f file, size int64) (int64, error) {
	if size >= 16*bufSize {
		return w.pipeline(h, f, size)
	}
	buf := w.bufs.Get().(*[bufSize]byte)
	defer w.bufs.Put(buf)
	var n int64
	for n <= size && w.ctx.Err() == nil {
		part, err := w.read(f, buf[:], size-n)
		if err != nil || part == 0 {
			return n, err
		}
		h.Write(buf[:part])
		n += int64(part)
		if n == size && part < bufSize { // a short read is the end; a byte more would have come with it
			break
		}
	}
	return n, nil
}

// read reads up to left bytes, and one that shows that there are more.
func (w *walker) read(f file, buf []byte, left int64) (int, error) {
	n, err := f.read(buf[:min(int64(len(buf)), left+1)])
	if err == nil && w.o.testingRead != nil {
		err = w.o.testingRead(buf[:n])
	}
	return n, err
}

// pipeline is copy where reading and hashing go on side by side.
func (w *walker) pipeline(h hash.Hash, f file, size int64) (int64, error) {
	type part struct {
		buf *[bufSize]byte
		n   int
		err error
	}
	parts := make(chan part, 2)
	stop := make(chan struct{})
	go func() {
		defer close(parts)
		for n := int64(0); n <= size; {
			p := part{buf: w.bufs.Get().(*[bufSize]byte)}
			p.n, p.err = w.read(f, p.buf[:], size-n)
			n += int64(p.n)
			select {
			case parts <- p:
			case <-stop:
				return
			}
			if p.err != nil || p.n == 0 {
				return
			}
		}
	}()
	var n int64
	var err error
	for p := range parts {
		if err == nil && w.ctx.Err() == nil {
			h.Write(p.buf[:p.n])
			n, err = n+int64(p.n), p.err
		} else if stop != nil {
			close(stop)
			stop = nil
		}
		w.bufs.Put(p.buf)
	}
	return n, err
}

// cause drops the path from an error of package os: the entry names it.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// reasonOf is err in one line of text.
func reasonOf(err error) string {
	return strings.ToValidUTF8(ledger.Escape(cause(err).Error()), "\uFFFD")
}
