package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// A Place is where a record stands.
type Place struct {
	Segment string
	Line    int64  // in the segment, from 1
	Offset  int64  // of the line, in bytes of the plain segment
	Seq     uint64 // as the record bears it, else counted
}

// Walk calls f with each record of a ledger directory, or of one file, in
// order: sealed segments, plain and compressed, then the active one up to a
// stable point. It checks neither hashes nor links. A line that is no record
// is given as a nil View; an unfinished last line is left out. The View is
// valid during the call. Walk ends with the first error of f, or with what
// could not be read.
func Walk(ctx context.Context, path string, f func(Place, *ledger.View) error) error {
	w := walker{f: f}
	_, err := w.all(ctx, path)
	return err
}

// walker hands out the records of files in turn.
type walker struct {
	f    func(Place, *ledger.View) error
	p    Place
	view ledger.View
}

// all walks what is there now. The handle is that of the active segment, nil
// where there is none, and w.p.Offset is then where the next line will begin.
func (w *walker) all(ctx context.Context, path string) (*os.File, error) {
	o := Options{}.withDefaults()
	c := newCheck(path, o)
	info, err := os.Stat(path)
	if err != nil {
		return nil, missingText(err, ledger.Escape(path))
	}
	var active *os.File
	if info.IsDir() {
		if active, err = c.list(ctx, path); err != nil {
			return nil, err
		}
		if len(c.j.files) == 0 {
			return nil, fmt.Errorf("%s holds no ledger", ledger.Escape(path))
		}
	} else {
		c.j.files = []*file{{name: filepath.Base(path), path: path, follow: true, limit: -1}}
	}
	if err := w.read(ctx, c.j.files); err != nil {
		if active != nil {
			active.Close()
		}
		return nil, err
	}
	return active, nil
}

// read hands out the records of files.
func (w *walker) read(ctx context.Context, files []*file) error {
	s := newSource(files, Options{}.withDefaults())
	defer s.close()
	var b block
	var buf []byte
	for at := -1; s.next(&b, &buf); {
		if b.file != at {
			at = b.file
			w.p.Segment, w.p.Line, w.p.Offset = files[at].name, 0, 0
		}
		err := ctx.Err()
		if err == nil {
			err = w.lines(b.data())
		}
		if err == nil && b.err != nil {
			err = fmt.Errorf("%s: %s", files[at].name, reason(b.err))
		}
		w.p.Offset += b.skipped
		s.done(&b)
		if err != nil {
			return err
		}
	}
	return nil
}

// lines hands out the whole lines of data.
func (w *walker) lines(data []byte) error {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return nil
		}
		line := data[:i]
		data = data[i+1:]
		w.p.Line++
		w.p.Seq++
		v := &w.view
		if err := v.Parse(line); err != nil {
			v = nil
		} else if v.Seq > 0 {
			w.p.Seq = v.Seq
		}
		if err := w.f(w.p, v); err != nil {
			return err
		}
		w.p.Offset += int64(i) + 1
	}
}

// followEvery is how often Follow looks for more.
const followEvery = 200 * time.Millisecond

// Follow is Walk on a directory, then a call of caught, and then the records
// that are appended, also over the sealing of segments, until ctx ends or f
// fails. Its error says which.
func Follow(ctx context.Context, dir string, f func(Place, *ledger.View) error, caught func() error) error {
	w := walker{f: f}
	h, err := w.all(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { h.Close() }()
	if err := caught(); err != nil {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	path := filepath.Join(dir, ledger.ActiveName)
	for {
		// Whether the file was sealed is asked before it is read to its end.
		there, err := os.Lstat(path)
		mine := os.FileInfo(nil)
		if h != nil {
			if mine, err = h.Stat(); err != nil {
				return err
			}
			if err := w.more(h); err != nil {
				return err
			}
		}
		if err == nil && there != nil && (mine == nil || !os.SameFile(mine, there)) {
			next, err := w.following(ctx, dir)
			if err == nil {
				if h != nil {
					h.Close()
				}
				h = next
				continue
			}
			if !errors.Is(err, os.ErrNotExist) { // else it is being sealed just now
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// following opens the segment after the record that was last handed out: one
// that was sealed meanwhile, or the active one. What was compressed already is
// handed out first.
func (w *walker) following(ctx context.Context, dir string) (*os.File, error) {
	for {
		name := ledger.SegmentName(w.p.Seq + 1)
		h, _, err := openFile(filepath.Join(dir, name), false)
		if errors.Is(err, os.ErrNotExist) {
			packed := filepath.Join(dir, name+".zst")
			if _, err := os.Lstat(packed); err == nil {
				if err := w.read(ctx, []*file{{name: name + ".zst", path: packed, limit: -1}}); err != nil {
					return nil, err
				}
				continue
			}
			name = ledger.ActiveName
			if h, _, err = openFile(filepath.Join(dir, name), false); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		w.p.Segment, w.p.Line, w.p.Offset = name, 0, 0
		return h, nil
	}
}

// more hands out the lines of h from w.p.Offset on.
func (w *walker) more(h *os.File) error {
	lines := ledger.NewLines(io.NewSectionReader(h, w.p.Offset, 1<<62), w.p.Offset)
	for lines.Next() && !lines.Torn() {
		if err := w.lines(append(lines.Line(), '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}
