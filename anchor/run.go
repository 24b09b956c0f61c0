package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/auditledger/auditledger/ledger/canon"
)

// RunName is the file in a ledger directory that says when anchoring was tried,
// for a monitor: a push that fails, or that finds the head anchored already,
// writes no receipt.
const RunName = "anchor-run.json"

// A Run is when anchoring was last tried. A zero time is never.
type Run struct {
	LastRun     time.Time
	LastSuccess time.Time // the head was found or made anchored
}

// runSize is the fixed length of the file: it is overwritten in place by one
// write.
const runSize = 96

func (r Run) text() []byte {
	ns := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	b := fmt.Appendf(make([]byte, 0, runSize), `{"last_run":%d,"last_success":%d}`, ns(r.LastRun), ns(r.LastSuccess))
	return append(append(b, bytes.Repeat([]byte{' '}, runSize-1-len(b))...), '\n')
}

func parseRun(text []byte) (Run, error) {
	v, err := canon.Parse(text)
	if err != nil {
		return Run{}, err
	}
	m := members{v: v}
	at := func(key string) time.Time {
		if ns := m.int(key); ns != 0 {
			return time.Unix(0, ns)
		}
		return time.Time{}
	}
	r := Run{LastRun: at("last_run"), LastSuccess: at("last_success")}
	if m.wrong != "" {
		return Run{}, fmt.Errorf("member %s is missing or of a wrong type", m.wrong)
	}
	return r, nil
}

// ReadRun reads what NoteRun wrote to the file at path. Where there is none, or
// nothing in it yet, the Run is zero.
func ReadRun(path string) (Run, error) {
	f, err := openFile(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Run{}, nil
	}
	if err != nil {
		return Run{}, fmt.Errorf("read when anchoring was tried: %w", err)
	}
	defer f.Close()
	r, err := readRun(f)
	if err != nil {
		return Run{}, fmt.Errorf("read when anchoring was tried: %s: %w", path, err)
	}
	return r, nil
}

func readRun(f *os.File) (Run, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || len(text) == 0 {
		return Run{}, err
	}
	return parseRun(text)
}

// NoteRun notes in the file at path that anchoring was tried now. Where ok is
// false, what is known of the last success stays. Pushes at once wait for one
// another. What cannot be read is written anew; where there is no directory,
// nothing is. The file is not synced: a crash costs one run.
func NoteRun(path string, now time.Time, ok bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("that anchoring was tried could not be noted: %w", err)
		}
	}()
	f, err := openFile(path, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := lockFile(ctx, f); err != nil {
		return fmt.Errorf("wait for another push that has %s: %w", path, err)
	}
	r, _ := readRun(f)
	r.LastRun = now
	if ok {
		r.LastSuccess = now
	}
	if _, err := f.WriteAt(r.text(), 0); err != nil {
		return err
	}
	if info, err := f.Stat(); err != nil || info.Size() > runSize {
		return errors.Join(err, f.Truncate(runSize))
	}
	return nil
}
