package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/internal/durable/crashfs"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/verify"
)

// checkDir walks the whole chain of a directory, and asks the verifier too.
func checkDir(t testing.TB, dir string) []ledger.Record {
	t.Helper()
	r, err := verify.Dir(context.Background(), dir, verify.Options{})
	if err != nil || r.Verdict != verify.Intact {
		t.Fatalf("verify: %v %v %v", r.Verdict, r.Faults, err)
	}
	var all []byte
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		_, compressed, ok := ledger.ParseSegmentName(e.Name())
		if !ok {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil && compressed {
			d, derr := zstd.NewReader(bytes.NewReader(b))
			if derr != nil {
				t.Fatal(derr)
			}
			b, err = io.ReadAll(d)
			d.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	b, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
	if err != nil {
		t.Fatal(err)
	}
	return check(t, append(all, b...))
}

// TestSealing appends from two stores over many seals, by size and by call,
// while one compresses: one chain.
func TestSealing(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "l")
	stores := []*store.Store{open(t, dir, store.Options{SealAt: 4000}), open(t, dir, store.Options{SealAt: 4000})}
	var wg sync.WaitGroup
	for p, s := range stores {
		for c := range 4 {
			wg.Go(func() {
				for i := range 40 {
					add(t, s, fmt.Sprintf("%d-%d-%d", p, c, i))
				}
			})
		}
		wg.Go(func() {
			for range 5 {
				if _, err := s.Seal(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	third := open(t, dir, store.Options{SealAt: -1})
	wg.Go(func() {
		for range 5 {
			if _, err := third.Compress(ctx, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			r, err := verify.Dir(ctx, dir, verify.Options{})
			if err != nil || r.Verdict != verify.Intact && r.Verdict != verify.Unchecked {
				t.Errorf("a live ledger that is sealed meanwhile: %v %v %v", r.Verdict, r.Faults, err)
			}
		}
	})
	wg.Wait()
	calls := 0
	for _, r := range checkDir(t, dir) {
		if r.Method == ledger.MethodCall {
			calls++
		}
	}
	if calls != 320 {
		t.Fatalf("%d records, want 320", calls)
	}
	for _, s := range stores {
		s.Close()
	}
	add(t, open(t, dir, store.Options{}), "after")
	checkDir(t, dir)
}

// TestSealCarriesIntents: what is open before a seal is known after it from the
// active segment alone.
func TestSealCarriesIntents(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "l")
	s := open(t, dir, store.Options{})
	intent := entry("id-1")
	intent.Decision, intent.Outcome = ledger.Pending, ledger.Intent
	at, err := s.Append(ctx, intent)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if name, err := s.Seal(ctx); err != nil || name == "" {
			t.Fatal(name, err)
		}
		add(t, s, "between")
	}
	for _, active := range []bool{true, false} {
		if !active { // as a crash between the seal and its record leaves it
			if _, err := s.Seal(ctx); err != nil {
				t.Fatal(err)
			}
			s.Close()
			if err := os.Truncate(filepath.Join(dir, ledger.ActiveName), 0); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Join(dir, ledger.HeadName))
		}
		again := open(t, dir, store.Options{})
		if all := again.OpenIntents("id-1"); len(all) != 1 || all[0].Sum != at.Sum || all[0].Seq != 1 || all[0].Name != "write_note" {
			t.Fatalf("%+v", all)
		}
		again.Close()
	}
	checkDir(t, dir)
	s = open(t, dir, store.Options{})
	outcome := entry("id-1")
	outcome.Intent = at.Sum.String()
	if _, err := s.Append(ctx, outcome); err != nil {
		t.Fatal(err)
	}
	if name, err := s.Seal(ctx); err != nil || name == "" {
		t.Fatal(err)
	}
	if all := open(t, dir, store.Options{}).OpenIntents(""); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
}

// TestSealOfNothing: a segment that holds no record of its own is not sealed.
func TestSealOfNothing(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "l")
	s := open(t, dir, store.Options{})
	if name, err := s.Seal(ctx); err != nil || name != "" {
		t.Fatal(name, err)
	}
	add(t, s, "one")
	if name, err := s.Seal(ctx); err != nil || name != ledger.SegmentName(1) {
		t.Fatal(name, err)
	}
	if name, err := s.Seal(ctx); err != nil || name != "" {
		t.Fatal(name, err)
	}
	if all := checkDir(t, dir); len(all) != 2 {
		t.Fatal(all)
	}
}

// TestOpenChecksTheSeam: the active segment must go on from the sealed one, and
// none of them may be gone.
func TestOpenChecksTheSeam(t *testing.T) {
	ctx := context.Background()
	make := func() string {
		dir := filepath.Join(t.TempDir(), "l")
		s := open(t, dir, store.Options{})
		for range 2 {
			add(t, s, "one", "two")
			if _, err := s.Seal(ctx); err != nil {
				t.Fatal(err)
			}
		}
		add(t, s, "three")
		s.Close()
		return dir
	}
	last := ledger.SegmentName(3)
	for name, harm := range map[string]func(dir string) error{
		"active removed": func(dir string) error { return os.Remove(filepath.Join(dir, ledger.ActiveName)) },
		"active emptied": func(dir string) error { return os.Truncate(filepath.Join(dir, ledger.ActiveName), 0) },
		"last removed":   func(dir string) error { return os.Remove(filepath.Join(dir, last)) },
		"last cut":       func(dir string) error { return os.Truncate(filepath.Join(dir, last), 100) },
		"last edited": func(dir string) error {
			p := filepath.Join(dir, last)
			b, _ := os.ReadFile(p)
			i := bytes.LastIndex(b, []byte(`"sha256":"`)) + 12
			b[i] ^= 1
			return os.WriteFile(p, b, 0o600)
		},
		"an older active put back": func(dir string) error {
			b, _ := os.ReadFile(filepath.Join(dir, ledger.SegmentName(1)))
			return os.WriteFile(filepath.Join(dir, ledger.ActiveName), b, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := make()
			if err := harm(dir); err != nil {
				t.Fatal(err)
			}
			if s, err := store.Open(ctx, dir, store.Options{}); err == nil {
				s.Close()
				t.Fatal("opened")
			}
		})
	}
}

// TestCompressFailure: whatever fails, the segment is there in one form or the
// other, and a later run finishes.
func TestCompressFailure(t *testing.T) {
	ctx := context.Background()
	for _, persisted := range []bool{false, true} {
		for n := 1; ; n++ {
			d := crashfs.New()
			s, err := store.Open(ctx, "/l", store.Options{FS: d})
			if err != nil {
				t.Fatal(err)
			}
			add(t, s, "one", "two")
			if _, err := s.Seal(ctx); err != nil {
				t.Fatal(err)
			}
			before, hit := d.Ops(), false
			d.OnOp(func(op int, _ string) (error, error) {
				if op != before+n {
					return nil, nil
				}
				if hit = true; persisted {
					return nil, errors.New("input/output error")
				}
				return errors.New("input/output error"), nil
			})
			s.Compress(ctx, time.Now())
			if !hit {
				break
			}
			d.OnOp(nil)
			for _, torn := range crashfs.All() {
				after := d.After(torn)
				again, err := store.Open(ctx, "/l", store.Options{FS: after})
				if err != nil {
					t.Fatalf("%d %s: %v\n%s", n, torn, err, strings.Join(d.Log(), "\n"))
				}
				if _, err := again.Compress(ctx, time.Now()); err != nil {
					t.Fatalf("%d %s: %v", n, torn, err)
				}
				names, _ := after.ReadDir("/l")
				if !slices.Contains(names, ledger.SegmentName(1)+".zst") || slices.Contains(names, ledger.SegmentName(1)) {
					t.Fatalf("%d %s: %v", n, torn, names)
				}
				add(t, again, "three")
			}
		}
	}
}

// TestBehindCompressed: a writer that was away while others sealed and
// compressed goes on through what they left, and notices what was done to it.
func TestBehindCompressed(t *testing.T) {
	ctx := context.Background()
	begin := func(t *testing.T) (dir string, busy, away *store.Store) {
		dir = filepath.Join(t.TempDir(), "l")
		busy, away = open(t, dir, store.Options{}), open(t, dir, store.Options{})
		add(t, busy, "1")
		add(t, away, "2")
		for i := range 4 {
			if _, err := busy.Append(ctx, ledger.Entry{Method: ledger.MethodCall, RequestID: fmt.Sprint("open-", i), Name: "n", Decision: ledger.Pending, Outcome: ledger.Intent}); err != nil {
				t.Fatal(err)
			}
			if _, err := busy.Seal(ctx); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				if _, err := busy.Compress(ctx, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return dir, busy, away
	}
	dir, busy, away := begin(t)
	add(t, away, "3")
	add(t, busy, "4")
	if err := away.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if a, b := away.OpenIntents(""), busy.OpenIntents(""); len(a) != 4 || !slices.Equal(a, b) {
		t.Errorf("open intents %v, want %v", a, b)
	}
	checkDir(t, dir)

	for what, spoil := range map[string]func(name string) error{
		"another ledger's": func(name string) error {
			other, _, _ := begin(t)
			b, err := os.ReadFile(filepath.Join(other, filepath.Base(name)))
			if err == nil {
				err = os.WriteFile(name, b, 0o600)
			}
			return err
		},
		"cut":   func(name string) error { return os.Truncate(name, 40) },
		"empty": func(name string) error { return os.Truncate(name, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, _, away := begin(t)
			if err := spoil(filepath.Join(dir, ledger.SegmentName(4)+".zst")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := away.Append(ctx, ledger.Entry{RequestID: "3"}); err == nil {
					t.Fatal("it went on")
				}
			}
		})
	}
}

// TestWritersSealAndCompress: several openings write, seal and compress at once,
// and no one is ever stopped.
func TestWritersSealAndCompress(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "l")
	done := make(chan struct{})
	var writers, compressors sync.WaitGroup
	for w := range 4 {
		s := open(t, dir, store.Options{SealAt: 1500})
		writers.Go(func() {
			for i := range 40 {
				if _, err := s.Append(ctx, ledger.Entry{RequestID: fmt.Sprintf("%d-%d", w, i), Method: ledger.MethodCall}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		compressors.Go(func() {
			for {
				if _, err := s.Compress(ctx, time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	compressors.Wait()
	n := 0
	for _, r := range checkDir(t, dir) {
		if r.Method == ledger.MethodCall {
			n++
		}
	}
	if n != 160 {
		t.Errorf("%d of 160 records are there", n)
	}
}

// TestEmptyNextSegment: an empty file under the name of the next segment stops a
// writer that seals, and does not keep it busy for ever with the lock held.
func TestEmptyNextSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	s := open(t, dir, store.Options{})
	add(t, s, "req-0001")
	if err := os.WriteFile(filepath.Join(dir, ledger.SegmentName(s.Head().Seq+1)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context()); err == nil || !strings.Contains(err.Error(), "holds no record") {
		t.Error(err)
	}
}
