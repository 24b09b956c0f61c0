package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// writer makes records and puts them where a test wants them, as the store does.
type writer struct {
	dir  string
	head ledger.Head
}

func (w *writer) add(t *testing.T, n int) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(w.dir, ledger.ActiveName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range n {
		e := ledger.Entry{RequestID: fmt.Sprint("req-", w.head.Seq+1), Method: ledger.MethodCall, Name: "t", Decision: ledger.Allow,
			Outcome: ledger.Observed, ArgsDigest: ledger.Digest(nil).String()}
		var line []byte
		line, w.head.Sum = e.AppendLine(nil, w.head.Seq+1, 1, w.head.Sum)
		w.head.Seq++
		// In two writes, so that a reader may meet half a line.
		f.Write(line[:10])
		f.Write(line[10:])
	}
}

func (w *writer) seal(t *testing.T, first uint64) {
	t.Helper()
	if err := os.Rename(filepath.Join(w.dir, ledger.ActiveName), filepath.Join(w.dir, ledger.SegmentName(first))); err != nil {
		t.Fatal(err)
	}
}

func (w *writer) compress(t *testing.T, first uint64) {
	t.Helper()
	path := filepath.Join(w.dir, ledger.SegmentName(first))
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".zst", z.EncodeAll(plain, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
}

// TestFollowOverSeals follows a ledger that is sealed twice meanwhile: every
// record once, in order.
func TestFollowOverSeals(t *testing.T) {
	w := &writer{dir: t.TempDir()}
	w.add(t, 5)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := errors.New("seen all")
	next := uint64(1)
	caught := make(chan struct{})
	finished := make(chan error)
	go func() {
		finished <- verify.Follow(ctx, w.dir, func(p verify.Place, v *ledger.View) error {
			if v == nil || p.Seq != next || v.Seq != next {
				return fmt.Errorf("record %d came where %d was due", p.Seq, next)
			}
			if next++; next > 35 {
				return done
			}
			return nil
		}, func() error { close(caught); return nil })
	}()
	<-caught
	w.add(t, 5)
	w.seal(t, 1)
	w.add(t, 20) // from 11 on
	w.seal(t, 11)
	w.compress(t, 11)
	w.add(t, 5)
	if err := <-finished; !errors.Is(err, done) {
		t.Fatal(err)
	}
}

// TestWalk hands out every record of a directory with its place, and what is
// no record as such.
func TestWalk(t *testing.T) {
	w := &writer{dir: t.TempDir()}
	w.add(t, 3)
	w.seal(t, 1)
	w.add(t, 2)
	path := filepath.Join(w.dir, ledger.ActiveName)
	content, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(content, []byte("\n"))
	os.WriteFile(path, bytes.Join([][]byte{lines[0], []byte("no record\n"), lines[1], []byte("unfinished")}, nil), 0o600)
	var got []string
	err := verify.Walk(context.Background(), w.dir, func(p verify.Place, v *ledger.View) error {
		got = append(got, fmt.Sprintf("%s:%d@%d %d %v", p.Segment, p.Line, p.Offset, p.Seq, v != nil))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n := len(lines[0])
	want := []string{
		ledger.SegmentName(1) + ":1@0 1 true", fmt.Sprintf("%s:2@%d 2 true", ledger.SegmentName(1), n), fmt.Sprintf("%s:3@%d 3 true", ledger.SegmentName(1), 2*n),
		"audit.jsonl:1@0 4 true", fmt.Sprintf("audit.jsonl:2@%d 5 false", n), fmt.Sprintf("audit.jsonl:3@%d 5 true", n+10),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if err := verify.Walk(context.Background(), filepath.Join(w.dir, "absent"), nil); err == nil {
		t.Error("an absent ledger was walked")
	}
}
