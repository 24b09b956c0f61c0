// Package crashfs is a disk in memory that forgets what was not synced. Tests
// run a program on it, stop it at any operation, and go on from each state
// that a machine could come back with.
//
// What a crash may leave of a file is its content at the last Sync, with the
// writes after it applied in full, in part, with zeros where a sector did not
// arrive, or not at all; of a directory, its names at the last SyncDir, with
// the changes after it or without.
package crashfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/auditledger/auditledger/internal/durable"
)

// ErrCrashed is what every operation returns from the crash on.
var ErrCrashed = errors.New("crashfs: the machine is gone")

// Disk is one machine's disk. Several stores may use it at once, as processes
// of one machine do.
type Disk struct {
	mu    sync.Mutex
	dirs  map[string]*dir
	next  uint64
	ops   int
	log   []string
	crash int // the operation that does not happen any more; 0 for never
	fault func(op int, what string) (before, after error)
	full  int64 // bytes that may still be written; -1 for no limit

	locks map[string]*lockFile
}

type dir struct {
	synced, now map[string]*inode
}

type inode struct {
	id      uint64
	synced  []byte
	now     []byte
	pending []change
}

// change is a write of data at off, or a cut to size off where data is nil.
type change struct {
	off  int64
	data []byte
}

// New is an empty disk.
func New() *Disk {
	return &Disk{dirs: map[string]*dir{}, locks: map[string]*lockFile{}, full: -1}
}

// CrashAt makes operation n, counted from 1 over the life of d, and all after
// it, not happen.
func (d *Disk) CrashAt(n int) { d.crash = n }

// OnOp installs a function that is asked at each operation for an error to
// return instead of doing it (before), or after having done it (after).
func (d *Disk) OnOp(f func(op int, what string) (before, after error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Limit sets how many bytes may still be written; -1 is no limit. A write past
// it is short and returns an error, as on a full disk.
func (d *Disk) Limit(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = n
}

// Ops is how many operations that change something were asked for.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Log names the operations, for a failing test to print.
func (d *Disk) Log() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// op counts an operation that changes something and runs it.
func (d *Disk) op(what string, do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops++
	d.log = append(d.log, fmt.Sprintf("%d %s", d.ops, what))
	if d.crash > 0 && d.ops >= d.crash {
		return ErrCrashed
	}
	var before, after error
	if d.fault != nil {
		before, after = d.fault(d.ops, what)
	}
	if before != nil {
		return before
	}
	if err := do(); err != nil {
		return err
	}
	return after
}

// Torn is how much of what was not synced a crash leaves.
type Torn int

const (
	Lost      Torn = iota // nothing, names neither
	Kept                  // everything
	NamesOnly             // names, but no content
	DataOnly              // content, but no names
	Half                  // names; the first half of each file's last writes
	Holes                 // names; zeros in the first half of them
	Sectors               // names; every other 32 bytes of them
	nTorn
)

// All is every way a crash may go.
func All() []Torn {
	var all []Torn
	for t := Torn(0); t < nTorn; t++ {
		all = append(all, t)
	}
	return all
}

func (t Torn) String() string {
	return [...]string{"lost", "kept", "names-only", "data-only", "half", "holes", "sectors"}[t]
}

// After is the disk that the machine comes back with.
func (d *Disk) After(t Torn) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := New()
	out.next = d.next
	copies := map[*inode]*inode{}
	settle := func(in *inode) *inode {
		if c := copies[in]; c != nil {
			return c
		}
		b := bytes.Clone(in.synced)
		for _, c := range in.pending {
			b = c.apply(b, t)
		}
		c := &inode{id: in.id, synced: b, now: bytes.Clone(b)}
		copies[in] = c
		return c
	}
	for path, from := range d.dirs {
		names := from.now
		if t == Lost || t == DataOnly {
			names = from.synced
		}
		to := &dir{synced: map[string]*inode{}, now: map[string]*inode{}}
		for name, in := range names {
			to.synced[name] = settle(in)
			to.now[name] = to.synced[name]
		}
		out.dirs[path] = to
	}
	return out
}

func (c change) apply(b []byte, t Torn) []byte {
	switch t {
	case Lost, NamesOnly:
		return b
	}
	if c.data == nil {
		return resize(b, c.off)
	}
	data := bytes.Clone(c.data)
	switch t {
	case Half:
		data = data[:len(data)/2]
	case Holes:
		clear(data[:len(data)/2])
	case Sectors:
		for i := range data {
			if i/32%2 == 0 {
				data[i] = 0
			}
		}
	}
	return overwrite(b, c.off, data)
}

func resize(b []byte, size int64) []byte {
	for int64(len(b)) < size {
		b = append(b, 0)
	}
	return b[:size]
}

func overwrite(b []byte, off int64, data []byte) []byte {
	if need := off + int64(len(data)); int64(len(b)) < need {
		b = resize(b, need)
	}
	copy(b[off:], data)
	return b
}

// ReadAll is the content of a file as a program would read it now.
func (d *Disk) ReadAll(path string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	in := d.find(path)
	if in == nil {
		return nil, false
	}
	return bytes.Clone(in.now), true
}

// WriteAll puts a durable file there, as if it had always been.
func (d *Disk) WriteAll(path string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.mkdir(filepath.Dir(path))
	d.next++
	in := &inode{id: d.next, synced: bytes.Clone(content), now: bytes.Clone(content)}
	p.synced[filepath.Base(path)], p.now[filepath.Base(path)] = in, in
}

func (d *Disk) mkdir(path string) *dir {
	if d.dirs[path] == nil {
		d.dirs[path] = &dir{synced: map[string]*inode{}, now: map[string]*inode{}}
	}
	return d.dirs[path]
}

func (d *Disk) find(path string) *inode {
	if p := d.dirs[filepath.Dir(path)]; p != nil {
		return p.now[filepath.Base(path)]
	}
	return nil
}

func absent(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist} }

// MkdirAll makes a directory; that directories are durable at once is what
// durable.FS asks of it.
func (d *Disk) MkdirAll(path string) (created bool, err error) {
	d.mu.Lock()
	there := d.dirs[path] != nil
	d.mu.Unlock()
	if there {
		return false, nil
	}
	return true, d.op("mkdir "+path, func() error { d.mkdir(path); return nil })
}

// Open opens a file.
func (d *Disk) Open(path string, create bool) (durable.File, error) {
	d.mu.Lock()
	in := d.find(path)
	d.mu.Unlock()
	if in != nil {
		return &file{d, in, path}, nil
	}
	if !create {
		return nil, absent("open", path)
	}
	err := d.op("create "+path, func() error {
		d.next++
		in = &inode{id: d.next}
		d.mkdir(filepath.Dir(path)).now[filepath.Base(path)] = in
		return nil
	})
	return &file{d, in, path}, err
}

func (d *Disk) info(in *inode) durable.Info {
	return durable.Info{ID: durable.FileID{Ino: in.id}, Size: int64(len(in.now)), Links: 1, Mode: 0o600}
}

// Lstat tells of a file or a directory.
func (d *Disk) Lstat(path string) (durable.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in := d.find(path); in != nil {
		return d.info(in), nil
	}
	if d.dirs[path] != nil {
		return durable.Info{Mode: fs.ModeDir | 0o700, Links: 1}, nil
	}
	return durable.Info{}, absent("lstat", path)
}

// ReadDir lists the files of a directory, not the directories in it.
func (d *Disk) ReadDir(path string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.dirs[path]
	if p == nil {
		return nil, absent("open", path)
	}
	return slices.Sorted(maps.Keys(p.now)), nil
}

// ReadFile reads a file whole.
func (d *Disk) ReadFile(path string, limit int64) ([]byte, error) {
	b, ok := d.ReadAll(path)
	if !ok {
		return nil, absent("open", path)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is too long", path)
	}
	return b, nil
}

// Rename moves a file.
func (d *Disk) Rename(from, to string) error {
	return d.op("rename "+from+" "+to, func() error {
		in := d.find(from)
		if in == nil {
			return absent("rename", from)
		}
		if d.find(to) != nil {
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
		delete(d.mkdir(filepath.Dir(from)).now, filepath.Base(from))
		d.mkdir(filepath.Dir(to)).now[filepath.Base(to)] = in
		return nil
	})
}

// Remove removes a name.
func (d *Disk) Remove(path string) error {
	return d.op("remove "+path, func() error {
		if d.find(path) == nil {
			return absent("remove", path)
		}
		delete(d.mkdir(filepath.Dir(path)).now, filepath.Base(path))
		return nil
	})
}

// SyncDir makes the names of a directory durable.
func (d *Disk) SyncDir(path string) error {
	return d.op("syncdir "+path, func() error {
		p := d.mkdir(path)
		p.synced = maps.Clone(p.now)
		return nil
	})
}

// Stage begins a file without a name.
func (d *Disk) Stage(path string) (durable.Staged, error) {
	var in *inode
	err := d.op("stage "+path, func() error {
		d.next++
		in = &inode{id: d.next}
		return nil
	})
	return &staged{file{d, in, "staged"}}, err
}

type file struct {
	d    *Disk
	in   *inode
	path string
}

func (f *file) write(p []byte, off func() int64) (n int, err error) {
	err = f.d.op(fmt.Sprintf("write %s %d", f.path, len(p)), func() error {
		n = len(p)
		var full error
		if at := off(); f.d.full >= 0 && at+int64(n) > int64(len(f.in.now)) {
			if grow := at + int64(n) - int64(len(f.in.now)); grow > f.d.full {
				n, full = max(0, n-int(grow-f.d.full)), errors.New("no space left on device")
				f.d.full = 0
			} else {
				f.d.full -= grow
			}
		}
		if n > 0 {
			c := change{off(), bytes.Clone(p[:n])}
			f.in.pending = append(f.in.pending, c)
			f.in.now = c.apply(f.in.now, Kept)
		}
		return full
	})
	return n, err
}

func (f *file) Append(p []byte) (int, error) {
	return f.write(p, func() int64 { return int64(len(f.in.now)) })
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func() int64 { return off })
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return bytes.NewReader(f.in.now).ReadAt(p, off)
}

func (f *file) Truncate(size int64) error {
	return f.d.op(fmt.Sprintf("truncate %s %d", f.path, size), func() error {
		c := change{off: size}
		if grown := int64(len(f.in.now)) - size; f.d.full >= 0 && grown > 0 {
			f.d.full += grown
		}
		f.in.pending = append(f.in.pending, c)
		f.in.now = c.apply(f.in.now, Kept)
		return nil
	})
}

func (f *file) Sync() error {
	return f.d.op("sync "+f.path, func() error {
		f.in.synced, f.in.pending = bytes.Clone(f.in.now), nil
		return nil
	})
}

func (f *file) Stat() (durable.Info, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.info(f.in), nil
}

func (f *file) Chmod(fs.FileMode) error { return nil }
func (f *file) Close() error            { return nil }

type staged struct{ file }

func (s *staged) Publish(path string) error {
	return s.d.op("publish "+path, func() error {
		if s.d.find(path) != nil {
			return &fs.PathError{Op: "link", Path: path, Err: fs.ErrExist}
		}
		s.d.mkdir(filepath.Dir(path)).now[filepath.Base(path)] = s.in
		return nil
	})
}

func (s *staged) Discard() error { return nil }

// lockFile is shared by every opening of one path.
type lockFile struct {
	whole sync.RWMutex
	mu    sync.Mutex
	slots map[uint64]*sync.Mutex
}

type lock struct {
	f         *lockFile
	exclusive bool
}

// Lock opens a lock; it lives as long as the machine.
func (d *Disk) Lock(path string) (durable.Lock, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[path] == nil {
		d.locks[path] = &lockFile{slots: map[uint64]*sync.Mutex{}}
	}
	return &lock{f: d.locks[path]}, nil
}

func (l *lock) Exclusive(context.Context) error { l.f.whole.Lock(); l.exclusive = true; return nil }
func (l *lock) Shared(context.Context) error    { l.f.whole.RLock(); return nil }

func (l *lock) Unlock() error {
	if l.exclusive {
		l.exclusive = false
		l.f.whole.Unlock()
	} else {
		l.f.whole.RUnlock()
	}
	return nil
}

func (l *lock) slot(slot uint64) *sync.Mutex {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	m := l.f.slots[slot]
	if m == nil {
		m = new(sync.Mutex)
		l.f.slots[slot] = m
	}
	return m
}

func (l *lock) LockRange(_ context.Context, slot uint64) (func(), error) {
	m := l.slot(slot)
	m.Lock()
	return m.Unlock, nil
}

func (l *lock) TryLockRange(slot uint64) (func(), bool, error) {
	m := l.slot(slot)
	return m.Unlock, m.TryLock(), nil
}

func (l *lock) SoleProcess() bool { return false }
func (l *lock) Holder() string    { return "another store" }
func (l *lock) SetHolder(string)  {}
func (l *lock) Close() error      { return nil }

var (
	_ durable.FS  = (*Disk)(nil)
	_ io.ReaderAt = (*file)(nil)
)
