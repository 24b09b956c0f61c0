package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	info, err := os.Stat(path)
	if err != nil {
		return missingText(err, ledger.Escape(path))
	}
	if info.IsDir() {
		t := NewTail(path, nil)
		defer t.Close()
		return t.Read(ctx, f)
	}
	w := walker{o: Options{}.withDefaults(), f: func(p Place, _ []byte, v *ledger.View) error { return f(p, v) }}
	return w.read(ctx, []*file{{name: filepath.Base(path), path: path, follow: true, limit: -1}})
}

// walker hands out the lines of files in turn.
type walker struct {
	o    Options
	f    func(p Place, line []byte, v *ledger.View) error // line is nil where it is longer than is looked at
	p    Place                                            // of the last line that was handed out; Offset is where the next begins
	view ledger.View
	buf  []byte // of blocks
}

// read hands out the whole lines of files, of the first from its start on.
func (w *walker) read(ctx context.Context, files []*file) error {
	s := newSource(files, w.o)
	defer s.close()
	var b block
	for at := -1; s.next(&b, &w.buf); {
		if f := files[b.file]; b.file != at {
			at = b.file
			w.p.Segment, w.p.Line, w.p.Offset = f.name, f.startLine, f.start
		}
		err := ctx.Err()
		if err == nil && b.n > 0 {
			err = w.lines(b.data())
		}
		if err == nil && b.skipped > 0 && b.whole {
			err = w.hand(nil, b.skipped)
		}
		switch {
		case err != nil:
		case b.err != nil:
			err = fmt.Errorf("%s: %s", files[at].name, reason(b.err))
		case b.shrunk:
			err = fmt.Errorf("%s got shorter while it was read: it had %d bytes", files[at].name, files[at].limit)
		}
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
		if err := w.hand(data[:i], int64(i)+1); err != nil {
			return err
		}
		data = data[i+1:]
	}
}

// hand hands out a line of n bytes with its "\n".
func (w *walker) hand(line []byte, n int64) error {
	p, v := w.p, &w.view
	p.Line++
	p.Seq++
	if line == nil || v.Parse(line) != nil {
		v = nil
	} else if v.Seq > 0 {
		p.Seq = v.Seq
	}
	if err := w.f(p, line, v); err != nil {
		return err
	}
	p.Offset += n
	w.p = p
	return nil
}

// followEvery is how often Follow looks for more.
const followEvery = 200 * time.Millisecond

// Follow is Walk on a directory, then a call of caught, and then the records
// that are appended, also over the sealing of segments, until ctx ends or f
// fails. Its error says which; it wraps ErrChanged where what was handed out is
// not in the ledger any more. A ledger that vanishes is waited for.
func Follow(ctx context.Context, dir string, f func(Place, *ledger.View) error, caught func() error) error {
	t := NewTail(dir, nil)
	defer t.Close()
	var failed error
	each := func(p Place, v *ledger.View) error {
		failed = f(p, v)
		return failed
	}
	if err := t.Read(ctx, each); err != nil {
		return err
	}
	if err := caught(); err != nil {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := t.Read(ctx, each); failed != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}
