package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A segment is sealed by giving it its name and beginning a new one, whose
// first record says so. A crash between the two leaves no active segment, or
// an empty one: whoever comes next goes on from the sealed one.

// sealedSegment is a sealed segment in the directory.
type sealedSegment struct {
	name  string
	first uint64
	zstd  bool
}

// sealed lists the sealed segments in order. Of one that is there both plain
// and compressed, it is the plain one.
func (s *Store) sealed() ([]sealedSegment, error) {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var all []sealedSegment
	for _, name := range names {
		if first, compressed, ok := ledger.ParseSegmentName(name); ok {
			all = append(all, sealedSegment{name, first, compressed})
		}
	}
	slices.SortFunc(all, func(a, b sealedSegment) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b sealedSegment) bool { return a.first == b.first }), nil
}

// segment opens the plain bytes of g, which may have been compressed since it was
// listed.
func (s *Store) segment(g sealedSegment) (io.Reader, func(), error) {
	f, err := s.fs.Open(s.path(g.name), false)
	if errors.Is(err, fs.ErrNotExist) && !g.zstd {
		g.name, g.zstd = g.name+".zst", true
		f, err = s.fs.Open(s.path(g.name), false)
	}
	if err != nil {
		return nil, nil, err
	}
	r := io.Reader(io.NewSectionReader(f, 0, 1<<62))
	if !g.zstd {
		return r, func() { f.Close() }, nil
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return d, func() { d.Close(); f.Close() }, nil
}

// link takes up the chain where the last sealed segment ends. Where the active
// segment begins with a whole record, the last one before it is enough: they
// must be linked, and the seal record tells what was open. Else, as a crash
// leaves it, the sealed segment is walked whole.
func (s *Store) link(ctx context.Context, last sealedSegment) error {
	r, done, err := s.segment(last)
	if err != nil {
		return err
	}
	defer done()
	var v ledger.View
	begins := ledger.NewLines(io.NewSectionReader(s.file, 0, 1<<62), 0)
	if begins.Next() && v.Parse(begins.Line()) == nil && v.Seq > last.first {
		s.head.Seq = v.Seq - 1
		tail, err := lastLine(s, last, r)
		if err != nil {
			return fmt.Errorf("read the end of %s: %w", last.name, err)
		}
		if err := v.Parse(tail); err != nil {
			return fmt.Errorf("the last line of %s: %w; look at it with ledgerctl verify", last.name, err)
		}
		s.head.Sum = v.Sum
	} else if err = s.walk(ctx, last, r, nil); err != nil {
		return err
	}
	s.first, s.before = s.head.Seq+1, ledger.SegmentName(last.first)
	return nil
}

// walk checks a sealed segment, whose first record must be linked to before where
// that is known, and takes in its records.
func (s *Store) walk(ctx context.Context, g sealedSegment, r io.Reader, before *ledger.Hash) error {
	head := ledger.Head{Seq: g.first - 1}
	if before != nil {
		head.Sum = *before
	}
	s.seen.Lock()
	s.head = head
	s.seen.Unlock()
	var v ledger.View
	lines := ledger.NewLines(r, 0)
	for lines.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := v.Parse(lines.Line())
		linked := v.Prev == head.Sum || before == nil && head.Seq < g.first
		if err != nil || lines.Torn() || !linked || v.Compute(&s.hash) != v.Sum || v.Seq != 0 && v.Seq != head.Seq+1 {
			return fmt.Errorf("record %d, in %s at byte %d, is not what the chain says: look at it with ledgerctl verify", head.Seq+1, g.name, lines.Offset())
		}
		head = ledger.Head{Seq: head.Seq + 1, Sum: v.Sum}
		s.seen.Lock()
		s.head = head
		s.intents.Observe(&v, head.Seq)
		s.seen.Unlock()
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", g.name, err)
	}
	return nil
}

// lastLine is the last line of a sealed segment, without its "\n".
func lastLine(s *Store, g sealedSegment, r io.Reader) ([]byte, error) {
	if section, ok := r.(*io.SectionReader); ok {
		info, err := s.fs.Lstat(s.path(g.name))
		if err != nil {
			return nil, err
		}
		for n := int64(4096); ; n *= 2 {
			from := max(0, info.Size-n)
			b := make([]byte, info.Size-from)
			if _, err := section.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			b, ended := bytes.CutSuffix(b, []byte{'\n'})
			if !ended {
				return nil, errors.New("it does not end with a line's end")
			}
			if i := bytes.LastIndexByte(b, '\n'); i >= 0 || from == 0 {
				return b[i+1:], nil
			}
		}
	}
	var last []byte
	lines := ledger.NewLines(r, 0)
	for lines.Next() {
		last = append(last[:0], lines.Line()...)
	}
	return last, lines.Err()
}

// sealedByOther reports whether the open file has become a sealed segment.
func (s *Store) sealedByOther(mine durable.Info) bool {
	name := s.path(ledger.SegmentName(s.first))
	if there, err := s.fs.Lstat(name); err == nil {
		return there.ID == mine.ID
	}
	_, err := s.fs.Lstat(name + ".zst")
	return err == nil
}

// advance goes on from a file that has been sealed to those after it, up to
// the active one, which it creates where it is missing.
func (s *Store) advance(ctx context.Context) error {
	for {
		s.before = ledger.SegmentName(s.first)
		next := sealedSegment{name: ledger.SegmentName(s.head.Seq + 1), first: s.head.Seq + 1}
		f, err := s.fs.Open(s.path(next.name), false)
		if errors.Is(err, fs.ErrNotExist) {
			// A compressed segment has its name before the plain one loses its own.
			packed := sealedSegment{next.name + ".zst", next.first, true}
			switch _, err := s.fs.Lstat(s.path(packed.name)); {
			case err == nil:
				if err := s.pass(ctx, packed); err != nil {
					return err
				}
				continue
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		last := errors.Is(err, fs.ErrNotExist)
		if last {
			f, err = s.fs.Open(s.path(ledger.ActiveName), true)
		}
		if err != nil {
			return err
		}
		if last {
			if err := s.fs.SyncDir(s.dir); err != nil {
				f.Close()
				return s.stop(fmt.Errorf("sync the directory: %w", err))
			}
		}
		s.file.Close()
		s.file, s.size, s.first = f, 0, s.head.Seq+1
		if err := s.follow(ctx, ledger.Head{}); err != nil || last {
			return err
		}
		if s.head.Seq < next.first {
			return s.stop(fmt.Errorf("%s holds no record", next.name))
		}
	}
}

// pass goes through a segment that others began, sealed and compressed since
// this store looked.
func (s *Store) pass(ctx context.Context, g sealedSegment) error {
	r, done, err := s.segment(g)
	if err != nil {
		return err
	}
	defer done()
	before := s.head.Sum
	if err := s.walk(context.WithoutCancel(ctx), g, r, &before); err != nil {
		return s.stop(err) // there is no going on from the middle
	}
	if s.head.Seq < g.first {
		return s.stop(fmt.Errorf("%s holds no record", g.name))
	}
	s.first = g.first
	return nil
}

// seal ends the active segment, which is not empty. The lock is held, the file
// is current, and all of it is durable.
func (s *Store) seal() error {
	name := ledger.SegmentName(s.first)
	if err := s.fs.Rename(s.path(ledger.ActiveName), s.path(name)); err != nil {
		return fmt.Errorf("seal %s: %w", name, err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return s.stop(fmt.Errorf("seal %s: sync the directory: %w", name, err))
	}
	s.log.Info("segment sealed", "name", name, "last", s.head.Seq)
	return s.advance(context.Background())
}

// begin writes the seal record where the active segment is empty and another
// is before it.
func (s *Store) begin() error {
	if s.size > 0 || s.before == "" {
		return nil
	}
	s.seen.Lock()
	open := s.intents.All()
	s.seen.Unlock()
	if open == nil {
		open = []ledger.OpenIntent{}
	}
	args := append(canon.AppendString([]byte(`{"segment":`), s.before), '}')
	_, err := s.write([]ledger.Entry{{Method: ledger.MethodSeal, Name: s.before, RequestID: ledger.MissingRequestID,
		Decision: ledger.Allow, Outcome: ledger.Committed, ArgsDigest: ledger.Digest(args).String(), Open: open}})
	return err
}

// Seal ends the active segment now, and returns the name of the sealed one. A
// segment that holds nothing but its seal record is left as it is: the name is
// then "". The seal and its record are durable on return.
func (s *Store) Seal(ctx context.Context) (name string, err error) {
	s.io.Lock()
	defer s.io.Unlock()
	if s.broken != nil {
		return "", s.broken
	}
	err = s.locked(ctx, func() error {
		if err := s.current(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if s.head.Seq < s.first || s.before != "" && s.head.Seq == s.first {
			return nil
		}
		if err := s.seal(); err != nil {
			return err
		}
		name = s.before
		return s.begin()
	})
	if err != nil {
		return "", fmt.Errorf("seal ledger %s: %w", s.dir, err)
	}
	return name, nil
}

// Compress turns sealed segments that were last written before the given time
// into zstd, and returns the names of the new files. A plain segment is removed
// only after its compressed form is durable and was read back with the same
// SHA-256. It may run beside writers and readers.
func (s *Store) Compress(ctx context.Context, before time.Time) (done []string, err error) {
	all, err := s.sealed()
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if g.zstd {
			continue
		}
		info, err := s.fs.Lstat(s.path(g.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody else compressed it meanwhile
		}
		if err != nil {
			return done, err
		}
		if !info.Modified.Before(before) {
			continue
		}
		if err := s.compress(ctx, g); err != nil {
			return done, fmt.Errorf("compress %s: %w", s.path(g.name), err)
		}
		done = append(done, g.name+".zst")
	}
	return done, nil
}

func (s *Store) compress(ctx context.Context, g sealedSegment) error {
	target := s.path(g.name) + ".zst"
	want, err := s.digest(ctx, g, func(r io.Reader) error {
		out, err := s.fs.Stage(s.dir)
		if err != nil {
			return err
		}
		err = func() error {
			w, err := zstd.NewWriter(appender{out}, zstd.WithEncoderConcurrency(1))
			if err != nil {
				return err
			}
			if _, err := io.Copy(w, r); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			return out.Sync()
		}()
		if err != nil {
			return errors.Join(err, out.Discard())
		}
		// One that a crash left whole beside its plain segment is read back
		// like any other.
		if err := out.Publish(target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return s.fs.SyncDir(s.dir)
	})
	if err != nil {
		return err
	}
	got, err := s.digest(ctx, sealedSegment{g.name + ".zst", g.first, true}, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err != nil || got != want {
		return errors.Join(fmt.Errorf("%s does not give back the segment, which is kept", target), err)
	}
	if err := s.fs.Remove(s.path(g.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

type appender struct{ f durable.Staged }

func (a appender) Write(p []byte) (int, error) { return a.f.Append(p) }

// digest is the SHA-256 of the plain bytes of g as they pass through use, which
// reads them all.
func (s *Store) digest(ctx context.Context, g sealedSegment, use func(io.Reader) error) (sum ledger.Hash, err error) {
	r, done, err := s.segment(g)
	if err != nil {
		return sum, err
	}
	defer done()
	h := sha256.New()
	if err := use(&contextReader{ctx, io.TeeReader(r, h)}); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
