package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
)

// Options of a store. The zero value is ready.
type Options struct {
	FS    durable.FS       // nil for the machine's
	Clock func() time.Time // nil for time.Now
	Log   *slog.Logger     // nil discards

	// SealAt is the size, in bytes, from which on the active segment is sealed
	// and a new one begun; 0 is DefaultSealAt, less than 0 never.
	SealAt int64

	// AllowNetworkFS opens a ledger on a network file system. Locks there may
	// mean nothing, and two hosts may fork the chain.
	AllowNetworkFS bool
}

// DefaultSealAt is 256 MiB.
const DefaultSealAt = 256 << 20

// Store appends to one ledger directory. Its methods may be called at once.
type Store struct {
	dir    string
	sealAt int64
	fs     durable.FS
	clock  func() time.Time
	log    *slog.Logger

	mu  sync.Mutex // guards cur
	cur *batch     // takes entries until its leader takes it

	// io is held while the files are read or written, and guards what follows.
	io       sync.Mutex
	lock     durable.Lock
	file     durable.File // the active segment
	headFile durable.File
	size     int64  // of the file, up to the last whole record
	first    uint64 // position of the file's first record
	before   string // the segment before it, "" where there is none
	opening  bool
	buf      []byte
	hash     []byte
	broken   error // why the writer stopped for good

	// seen is held for moments only. It guards what the records so far say; it
	// is written with io held too.
	seen    sync.Mutex
	head    ledger.Head
	intents ledger.Intents

	slots keyed
}

// batch is what one write and one sync make durable.
type batch struct {
	entries []ledger.Entry
	heads   []ledger.Head // after done: where each entry stands
	err     error
	done    chan struct{}
}

// Open opens the ledger in dir, which it creates where it is absent, and
// repairs what a crash left. It returns an error, and changes nothing that was
// there, where the chain has a fault.
func Open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	s := &Store{dir: dir, sealAt: o.SealAt, fs: o.FS, clock: o.Clock, log: o.Log}
	if s.sealAt == 0 {
		s.sealAt = DefaultSealAt
	}
	if s.fs == nil {
		s.fs = durable.OS
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			s.closeFiles()
			err = fmt.Errorf("open ledger %s: %w", dir, err)
		}
	}()
	if _, err := s.fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	if s.fs == durable.OS {
		if err := s.checkDirectory(o.AllowNetworkFS); err != nil {
			return nil, err
		}
	}
	if s.lock, err = s.fs.Lock(s.path(ledger.LockName)); err != nil {
		return nil, err
	}
	if s.lock.SoleProcess() {
		// Request ids cannot be locked between processes on this platform, so
		// the directory is held for the life of the store.
		wait, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.lock.Exclusive(wait); err != nil {
			return nil, err
		}
	}
	s.io.Lock()
	defer s.io.Unlock()
	return s, s.locked(ctx, func() error { return s.open(ctx) })
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// open reads the directory. The lock is held.
func (s *Store) open(ctx context.Context) error {
	s.opening = true
	defer func() { s.opening = false }()
	known, knownErr := s.readHead()
	if knownErr != nil {
		s.log.Warn("head.json is unreadable and counts as absent: a cut tail would not be noticed by this start", "error", knownErr)
	}
	sealed, err := s.sealed()
	if err != nil {
		return err
	}
	_, err = s.fs.Lstat(s.path(ledger.ActiveName))
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return err
	}
	if absent && len(sealed) == 0 && known.Seq > 0 {
		return fmt.Errorf("%s is missing, and %s knows %d records: restore it, or begin in another directory",
			ledger.ActiveName, ledger.HeadName, known.Seq)
	}
	if s.file, err = s.fs.Open(s.path(ledger.ActiveName), true); err != nil {
		return err
	}
	if absent {
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
	}
	if err := s.tighten(s.file, ledger.ActiveName); err != nil {
		return err
	}
	if s.headFile, err = s.fs.Open(s.path(ledger.HeadName), true); err != nil {
		return err
	}
	if err := s.tighten(s.headFile, ledger.HeadName); err != nil {
		return err
	}
	s.first = 1
	if len(sealed) > 0 {
		if err := s.link(ctx, sealed[len(sealed)-1]); err != nil {
			return err
		}
	}
	if err := s.follow(ctx, known); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.writeHead()
	return nil
}

func (s *Store) readHead() (ledger.Head, error) {
	text, err := s.fs.ReadFile(s.path(ledger.HeadName), 4096)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return ledger.Head{}, nil
	}
	var h ledger.Head
	if err == nil {
		err = h.UnmarshalText(text)
	}
	return h, err
}

// notCut compares head.json, which another process may have written, with the
// records that are there. An unreadable one counts as absent.
func (s *Store) notCut() error {
	var text [headRead]byte
	n, err := s.headFile.ReadAt(text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	var known ledger.Head
	if known.UnmarshalText(text[:n]) == nil && known.Seq > s.head.Seq {
		return s.cutOff(known)
	}
	return nil
}

// headRead is more than head.json ever has.
const headRead = 256

// writeHead notes the head in place. It is not synced, and a failure costs
// only what it would have told after a crash.
func (s *Store) writeHead() {
	text, _ := s.head.MarshalText()
	if _, err := s.headFile.WriteAt(text, 0); err != nil {
		s.log.Warn("head.json could not be written: a later cut of the tail may go unnoticed by a start", "error", err)
	}
}

// tighten takes away what others may do with a file of the ledger.
func (s *Store) tighten(f durable.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode.Perm()
	if mode&0o200 == 0 {
		return fmt.Errorf("%s: %w", name, readOnly(mode))
	}
	if mode != 0o600 {
		s.log.Warn("mode of a ledger file set to 0600", "file", name, "was", fmt.Sprintf("%#o", mode))
		return f.Chmod(0o600)
	}
	return nil
}

// locked runs f while no other process reads or writes. io is held.
func (s *Store) locked(ctx context.Context, f func() error) error {
	if s.lock.SoleProcess() {
		return f()
	}
	if err := s.lock.Exclusive(ctx); err != nil {
		return err
	}
	s.lock.SetHolder(self)
	return errors.Join(f(), s.lock.Unlock())
}

// Append makes e a record. It is durable when Append returns without error;
// with an error it may or may not be, and the store will say which only when
// it is opened again. A ctx that ends first is such an error; an entry whose
// ctx had ended before is not written.
func (s *Store) Append(ctx context.Context, e ledger.Entry) (ledger.Head, error) {
	if err := ctx.Err(); err != nil {
		return ledger.Head{}, err
	}
	s.mu.Lock()
	b, leader := s.cur, false
	if b == nil {
		b, leader = &batch{done: make(chan struct{})}, true
		s.cur = b
	}
	at := len(b.entries)
	b.entries = append(b.entries, e)
	s.mu.Unlock()

	if leader {
		// The others of the batch rely on it: it is written whatever becomes of
		// the leader's own ctx.
		s.commit(context.WithoutCancel(ctx), b)
	}
	select {
	case <-b.done:
	default:
		select {
		case <-b.done:
		case <-ctx.Done():
			return ledger.Head{}, ctx.Err()
		}
	}
	if b.err != nil {
		return ledger.Head{}, fmt.Errorf("append to ledger %s: %w", s.dir, b.err)
	}
	return b.heads[at], nil
}

// commit writes b. While it waits for the batch before, b still takes entries.
func (s *Store) commit(ctx context.Context, b *batch) {
	defer close(b.done)
	s.io.Lock()
	defer s.io.Unlock()
	if b.err = s.broken; b.err != nil {
		s.take(b)
		return
	}
	b.err = s.locked(ctx, func() error {
		if err := s.current(ctx); err != nil {
			return err
		}
		if s.sealAt > 0 && s.size >= s.sealAt {
			if err := s.seal(); err != nil {
				return err
			}
		}
		if err := s.begin(); err != nil {
			return err
		}
		s.take(b)
		var err error
		b.heads, err = s.write(b.entries)
		return err
	})
	s.take(b)
}

// take ends b for those who would join it: it is being written, or has failed.
func (s *Store) take(b *batch) {
	s.mu.Lock()
	if s.cur == b {
		s.cur = nil
	}
	s.mu.Unlock()
}

// stop ends the writer for good.
func (s *Store) stop(err error) error {
	s.broken = fmt.Errorf("the writer has stopped until it is started again: %w", err)
	return s.broken
}

// current makes the open file the active segment and takes in what others
// appended. It compares the file with the path and with what was seen of it
// last. The lock is held.
func (s *Store) current(ctx context.Context) error {
	mine, err := s.file.Stat()
	if err != nil {
		return s.stop(err)
	}
	there, err := s.fs.Lstat(s.path(ledger.ActiveName))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return s.stop(fmt.Errorf("%s cannot be looked at: %w", ledger.ActiveName, err))
	case mine.Size < s.size:
		return s.stop(fmt.Errorf("%s was cut from %d to %d bytes", ledger.ActiveName, s.size, mine.Size))
	case err != nil || there.ID != mine.ID:
		if !s.sealedByOther(mine) {
			return s.stop(fmt.Errorf("%s was moved away or replaced by another file", ledger.ActiveName))
		}
		if err := s.follow(ctx, ledger.Head{}); err != nil {
			return err
		}
		if err := s.advance(ctx); err != nil {
			return err
		}
	default:
		if err := there.Check(); err != nil {
			return s.stop(fmt.Errorf("%s: %w", ledger.ActiveName, err))
		}
		if err := s.follow(ctx, ledger.Head{}); err != nil {
			return err
		}
	}
	if err := s.notCut(); err != nil {
		return s.stop(err)
	}
	return nil
}

// write appends entries as one batch. The lock is held and the tail followed.
func (s *Store) write(entries []ledger.Entry) ([]ledger.Head, error) {
	buf, head := s.buf[:0], s.head
	heads := make([]ledger.Head, 0, len(entries))
	ends := make([]int, 0, len(entries))
	for i := range entries {
		buf, head.Sum = entries[i].AppendLine(buf, head.Seq+1, s.clock().UnixNano(), head.Sum)
		head.Seq++
		heads, ends = append(heads, head), append(ends, len(buf))
	}
	if s.buf = buf; cap(buf) > 1<<20 {
		s.buf = nil
	}
	if _, err := s.file.Append(buf); err != nil {
		if cut := s.file.Truncate(s.size); cut != nil {
			return nil, s.stop(fmt.Errorf("a write failed (%w), and cutting it off too: %w", err, cut))
		}
		return nil, err
	}
	if err := s.file.Sync(); err != nil {
		// Nothing is known of the batch now. It is cut off, so that no other
		// process builds on records that may be gone after a crash.
		return nil, s.stop(errors.Join(fmt.Errorf("sync: %w", err), s.file.Truncate(s.size)))
	}
	s.size += int64(len(buf))
	var v ledger.View
	s.seen.Lock()
	for i, e := range entries {
		if e.Decision == ledger.Pending || e.Intent != "" {
			start := 0
			if i > 0 {
				start = ends[i-1]
			}
			if v.Parse(buf[start:ends[i]-1]) == nil {
				s.intents.Observe(&v, heads[i].Seq)
			}
		}
	}
	s.head = head
	s.seen.Unlock()
	s.writeHead()
	return heads, nil
}

// follow reads what the file holds past the last record seen, and repairs what
// a crash left at its end. known is what head.json says where the ledger is
// being opened; else it is zero. The lock is held.
func (s *Store) follow(ctx context.Context, known ledger.Head) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if info.Size == s.size && !s.opening {
		return nil
	}
	rest, err := s.read(ctx, info.Size, known)
	if err != nil {
		if _, ok := errors.AsType[faultError](err); ok {
			return s.stop(err)
		}
		return err
	}
	if s.head.Seq < known.Seq {
		return s.cutOff(known)
	}
	if len(rest) > 0 {
		if err := s.setAside(rest); err != nil {
			return fmt.Errorf("set an unfinished line aside: %w", err)
		}
	}
	return s.recordTorn()
}

// cutOff is the error where head.json knows more records than there are.
func (s *Store) cutOff(known ledger.Head) error {
	return fmt.Errorf("it holds %d records and %s knows %d: the tail was cut off; see what is missing with ledgerctl verify",
		s.head.Seq, ledger.HeadName, known.Seq)
}

// faultError is a record that is not what the chain says.
type faultError string

func (e faultError) Error() string { return string(e) }

// read walks the records from s.size on, and returns the bytes after the last
// whole one where they may be what a crash left. An error is a fault.
func (s *Store) read(ctx context.Context, size int64, known ledger.Head) (rest []byte, err error) {
	lines := ledger.NewLines(io.NewSectionReader(s.file, s.size, size-s.size), s.size)
	var v ledger.View
	fault := func(format string, args ...any) error {
		return faultError(fmt.Sprintf("record %d of %s, at byte %d: %s; look at it with ledgerctl verify",
			s.head.Seq+1, ledger.ActiveName, lines.Offset(), fmt.Sprintf(format, args...)))
	}
	for n := 0; lines.Next(); n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		perr := v.Parse(lines.Line())
		whole := perr == nil && v.Prev == s.head.Sum && v.Compute(&s.hash) == v.Sum && (v.Seq == 0 || v.Seq == s.head.Seq+1)
		switch {
		case whole && lines.Torn():
			if _, err := s.file.Append([]byte{'\n'}); err != nil {
				return nil, fmt.Errorf("finish the last line: %w", err)
			}
			if err := s.file.Sync(); err != nil {
				return nil, s.stop(fmt.Errorf("finish the last line: sync: %w", err))
			}
			s.size++
		case whole:
		case lines.Torn() || slices.Contains(lines.Line(), 0):
			rest = make([]byte, size-s.size)
			_, err := s.file.ReadAt(rest, s.size)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return rest, err
		case perr != nil:
			return nil, fault("%v", perr)
		case v.Prev != s.head.Sum:
			return nil, fault("it is not linked to the record before it")
		case v.Seq != 0 && v.Seq != s.head.Seq+1:
			return nil, fault("it bears the number %d", v.Seq)
		default:
			return nil, fault("its hash does not match its bytes")
		}
		s.size += lines.End() - lines.Offset()
		s.seen.Lock()
		s.head = ledger.Head{Seq: s.head.Seq + 1, Sum: v.Sum}
		s.intents.Observe(&v, s.head.Seq)
		s.seen.Unlock()
		if s.head.Seq == known.Seq && s.head.Sum != known.Sum {
			return nil, fault("%s knows another record here", ledger.HeadName)
		}
	}
	return nil, lines.Err()
}

// tornName names the copy of bytes that stood where record seq was to be.
func tornName(seq uint64, rest []byte) string {
	return fmt.Sprintf("%020d-%.16s", seq, ledger.Digest(rest).String())
}

// setAside copies rest to torn/, durably, and cuts it off.
func (s *Store) setAside(rest []byte) error {
	dir := s.path(ledger.TornName)
	if _, err := s.fs.MkdirAll(dir); err != nil {
		return err
	}
	f, err := s.fs.Stage(dir)
	if err != nil {
		return err
	}
	if _, err := f.Append(rest); err != nil {
		return errors.Join(err, f.Discard())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Discard())
	}
	// The name holds the digest: what is there already are the same bytes.
	if err := f.Publish(filepath.Join(dir, tornName(s.head.Seq+1, rest))); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return err
	}
	if err := s.file.Truncate(s.size); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return s.stop(fmt.Errorf("sync: %w", err))
	}
	return nil
}

// recordTorn writes the record of each recovery that has none: its copy is
// named by the record that was to come next, and that has not come yet.
func (s *Store) recordTorn() error {
	names, err := s.fs.ReadDir(s.path(ledger.TornName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	next := fmt.Sprintf("%020d-", s.head.Seq+1)
	var entries []ledger.Entry
	for _, name := range names {
		if len(name) == len(next)+16 && name[:len(next)] == next {
			rest, err := s.fs.ReadFile(filepath.Join(s.path(ledger.TornName), name), 1<<30)
			if err != nil {
				return err
			}
			entries = append(entries, ledger.Entry{Method: ledger.MethodRecovery, Name: ledger.TornName + "/" + name,
				RequestID: ledger.MissingRequestID, Decision: ledger.Allow, Outcome: ledger.Committed,
				ArgsDigest: ledger.Digest(rest).String(), Reason: ledger.ReasonTornLine})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	s.log.Warn("an unfinished end of the ledger was set aside", "copy", entries[0].Name)
	_, err = s.write(entries)
	return err
}

// Refresh takes in what other processes appended. It costs one look at the
// file's size where they did not.
func (s *Store) Refresh(ctx context.Context) error {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken != nil {
		return s.broken
	}
	mine, err := s.file.Stat()
	if err == nil && mine.Size == s.size {
		if there, err := s.fs.Lstat(s.path(ledger.ActiveName)); err == nil && there.ID == mine.ID {
			return nil
		}
	}
	err = s.locked(ctx, func() error { return s.current(context.WithoutCancel(ctx)) })
	if err != nil {
		return fmt.Errorf("read ledger %s: %w", s.dir, err)
	}
	return nil
}

// Head is the last record that is known here.
func (s *Store) Head() ledger.Head {
	s.seen.Lock()
	defer s.seen.Unlock()
	return s.head
}

// OpenIntents is the intents that no record closes, oldest first, as far as is
// known here: Refresh brings it up to date. With a request id, it is that id's.
func (s *Store) OpenIntents(requestID string) []ledger.OpenIntent {
	s.seen.Lock()
	defer s.seen.Unlock()
	if requestID == "" {
		return s.intents.All()
	}
	return s.intents.Of(ledger.Clip(requestID))
}

// LockRequest waits until no other caller, in this process or another, holds
// requestID. The lock ends with unlock, or with the process.
func (s *Store) LockRequest(ctx context.Context, requestID string) (unlock func(), err error) {
	slot := slotOf(requestID)
	free, err := s.slots.lock(ctx, slot)
	if err != nil {
		return nil, err
	}
	type held struct {
		unlock func()
		err    error
	}
	got := make(chan held, 1)
	if between, ok, err := s.lock.TryLockRange(slot); ok || err != nil {
		got <- held{between, err}
	} else {
		go func() {
			between, err := s.lock.LockRange(context.WithoutCancel(ctx), slot)
			got <- held{between, err}
		}()
	}
	select {
	case h := <-got:
		if h.err != nil {
			free()
			return nil, h.err
		}
		return func() { h.unlock(); free() }, nil
	case <-ctx.Done():
		// The lock is the file's: one that is given back late would be taken
		// from whoever waits here next. So nobody does before it is back.
		go func() {
			if h := <-got; h.err == nil {
				h.unlock()
			}
			free()
		}()
		return nil, context.Cause(ctx)
	}
}

// TryLockRequest is LockRequest where nobody else holds requestID; else ok is
// false.
func (s *Store) TryLockRequest(requestID string) (unlock func(), ok bool, err error) {
	slot := slotOf(requestID)
	free, ok := s.slots.tryLock(slot)
	if !ok {
		return nil, false, nil
	}
	between, ok, err := s.lock.TryLockRange(slot)
	if !ok || err != nil {
		free()
		return nil, false, err
	}
	return func() { between(); free() }, true, nil
}

// Close ends the store. Appends that are still waiting fail or succeed first.
func (s *Store) Close() error {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken == nil {
		s.broken = errors.New("the ledger is closed")
	}
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	if s.headFile != nil {
		errs = append(errs, s.headFile.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// self is who holds the lock, as others are told.
var self = durable.Self()
