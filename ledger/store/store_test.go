package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/auditledger/auditledger/internal/durable/crashfs"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
)

func entry(id string) ledger.Entry {
	return ledger.Entry{RequestID: id, Method: ledger.MethodCall, Name: "write_note", Decision: ledger.Allow,
		Outcome: ledger.Committed, ArgsDigest: ledger.Digest([]byte(id)).String()}
}

// check walks a ledger and returns its records; it is called after every step.
func check(t testing.TB, content []byte) []ledger.Record {
	t.Helper()
	var all []ledger.Record
	var prev ledger.Hash
	var buf []byte
	lines := ledger.NewLines(bytes.NewReader(content), 0)
	for lines.Next() {
		var v ledger.View
		if lines.Torn() {
			t.Fatalf("the ledger ends in an unfinished line")
		}
		if err := v.Parse(lines.Line()); err != nil {
			t.Fatalf("line %d: %v", len(all)+1, err)
		}
		if v.Prev != prev || v.Compute(&buf) != v.Sum {
			t.Fatalf("line %d breaks the chain", len(all)+1)
		}
		if v.Seq != 0 && v.Seq != uint64(len(all)+1) {
			t.Fatalf("line %d bears number %d", len(all)+1, v.Seq)
		}
		prev = v.Sum
		all = append(all, v.Record())
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return all
}

func checkFile(t testing.TB, dir string) []ledger.Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
	if err != nil {
		t.Fatal(err)
	}
	return check(t, b)
}

func open(t testing.TB, dir string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t testing.TB, s *store.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.Append(context.Background(), entry(id)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrash stops a disk that forgets at every operation of a life of a ledger,
// in every way, and opens what is left.
func TestCrash(t *testing.T) {
	ctx := context.Background()
	// life is appends by one caller, then by three at once, a reopening, and an
	// unfinished line that is set aside. acked is told of each durable record.
	life := func(d *crashfs.Disk, sealAt int64, acked func(string)) error {
		s, err := store.Open(ctx, "/l", store.Options{FS: d, SealAt: sealAt})
		if err != nil {
			return err
		}
		one := func(id string) error {
			_, err := s.Append(ctx, entry(id))
			if err == nil {
				acked(id)
			}
			return err
		}
		for i := range 3 {
			if err := one(fmt.Sprintf("single-%d", i)); err != nil {
				return err
			}
		}
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { errs[i] = one(fmt.Sprintf("shared-%d", i)) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		s.Close()
		f, err := d.Open("/l/"+ledger.ActiveName, false)
		if err != nil {
			return err
		}
		if _, err := f.Append([]byte(`{"args_digest":"e3b0`)); err != nil {
			return err
		}
		if s, err = store.Open(ctx, "/l", store.Options{FS: d, SealAt: sealAt}); err != nil {
			return err
		}
		return one("last")
	}
	for _, sealAt := range []int64{0, 1000} {
		whole := crashfs.New()
		if err := life(whole, sealAt, func(string) {}); err != nil {
			t.Fatal(err)
		}
		seals := 0
		all := check(t, chain(whole))
		for _, r := range all {
			if r.Method == ledger.MethodSeal {
				seals++
			}
		}
		if len(all) != 8+seals || seals > 0 != (sealAt > 0) {
			t.Fatalf("%d records after a life without a crash, %d of them seals, want 7 and a recovery besides", len(all), seals)
		}
		// Batches form as the scheduler has it, so the number of operations varies.
		for n := 1; n <= whole.Ops()+6; n++ {
			crashAt(t, n, sealAt, life)
		}
	}
}

// chain is the whole chain on a disk, over its segments.
func chain(d *crashfs.Disk) []byte {
	var all []byte
	names, _ := d.ReadDir("/l")
	for _, name := range names {
		if _, _, ok := ledger.ParseSegmentName(name); ok {
			b, _ := d.ReadAll("/l/" + name)
			all = append(all, b...)
		}
	}
	b, _ := d.ReadAll("/l/" + ledger.ActiveName)
	return append(all, b...)
}

// crashAt stops a life at operation n, and opens each disk that may be left.
func crashAt(t *testing.T, n int, sealAt int64, life func(*crashfs.Disk, int64, func(string)) error) {
	ctx := context.Background()
	d := crashfs.New()
	d.CrashAt(n)
	var mu sync.Mutex
	var acked []string
	life(d, sealAt, func(id string) { mu.Lock(); acked = append(acked, id); mu.Unlock() })
	for _, torn := range crashfs.All() {
		t.Run(fmt.Sprintf("seal=%d/%d-%s", sealAt, n, torn), func(t *testing.T) {
			after := d.After(torn)
			for again := range 2 { // the second opening finds nothing to repair
				s, err := store.Open(ctx, "/l", store.Options{FS: after, SealAt: sealAt})
				if err != nil {
					t.Fatalf("%v\n%s", err, strings.Join(d.Log(), "\n"))
				}
				if _, err := s.Append(ctx, entry(fmt.Sprintf("after-%d", again))); err != nil {
					t.Fatal(err)
				}
				s.Close()
				have := map[string]bool{}
				for _, r := range check(t, chain(after)) {
					if r.Method == ledger.MethodCall && have[r.RequestID] {
						t.Fatalf("%s is there twice", r.RequestID)
					}
					have[r.RequestID] = true
				}
				for _, id := range acked {
					if !have[id] {
						t.Fatalf("the acknowledged record %s is lost\n%s", id, strings.Join(d.Log(), "\n"))
					}
				}
			}
		})
	}
}

var errDisk = errors.New("input/output error")

// TestFailure makes each write and each sync fail once, without and with its
// effect, and looks at what was acknowledged.
func TestFailure(t *testing.T) {
	ctx := context.Background()
	for _, what := range []string{"write /l/audit.jsonl", "sync /l/audit.jsonl"} {
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-%v", what, persisted), func(t *testing.T) {
				d := crashfs.New()
				s, err := store.Open(ctx, "/l", store.Options{FS: d})
				if err != nil {
					t.Fatal(err)
				}
				add(t, s, "one")
				failed := false
				d.OnOp(func(_ int, op string) (before, after error) {
					if failed || !strings.HasPrefix(op, what) {
						return nil, nil
					}
					failed = true
					if persisted {
						return nil, errDisk
					}
					return errDisk, nil
				})
				if _, err := s.Append(ctx, entry("two")); !errors.Is(err, errDisk) {
					t.Fatalf("append on a failing disk: %v", err)
				}
				_, err = s.Append(ctx, entry("three"))
				if stopped := strings.HasPrefix(what, "sync"); stopped != (err != nil) {
					t.Fatalf("append after a failed %s: %v", what, err)
				}
				for _, torn := range crashfs.All() {
					after := d.After(torn)
					again, err := store.Open(ctx, "/l", store.Options{FS: after})
					if err != nil {
						t.Fatal(torn, err)
					}
					add(t, again, "four")
					b, _ := after.ReadAll("/l/" + ledger.ActiveName)
					check(t, b)
				}
				s.Close()
				if s, err = store.Open(ctx, "/l", store.Options{FS: d}); err != nil {
					t.Fatal(err)
				}
				add(t, s, "five")
				b, _ := d.ReadAll("/l/" + ledger.ActiveName)
				all := check(t, b)
				if all[0].RequestID != "one" || all[len(all)-1].RequestID != "five" {
					t.Fatalf("records %v", all)
				}
			})
		}
	}
}

// TestSyncNeverTrustedAgain: after one failed sync later ones succeed, and mean nothing.
func TestSyncNeverTrustedAgain(t *testing.T) {
	d := crashfs.New()
	s, err := store.Open(context.Background(), "/l", store.Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	d.OnOp(func(_ int, op string) (error, error) {
		if strings.HasPrefix(op, "sync /l/audit") {
			return errDisk, nil
		}
		return nil, nil
	})
	if _, err := s.Append(context.Background(), entry("lost")); err == nil {
		t.Fatal("acknowledged without a sync")
	}
	d.OnOp(nil)
	if _, err := s.Append(context.Background(), entry("next")); err == nil {
		t.Fatal("the writer went on after a failed sync")
	}
	if err := s.Refresh(context.Background()); err == nil {
		t.Fatal("the reader went on after a failed sync")
	}
}

func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	d := crashfs.New()
	s, err := store.Open(ctx, "/l", store.Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, "one")
	for _, room := range []int64{0, 1, 100, 300} {
		d.Limit(room)
		if _, err := s.Append(ctx, entry("two")); err == nil {
			t.Fatal("acknowledged on a full disk")
		}
		b, _ := d.ReadAll("/l/" + ledger.ActiveName)
		if len(check(t, b)) != 1 {
			t.Fatal("part of a record is left")
		}
	}
	d.Limit(-1)
	add(t, s, "three")
	b, _ := d.ReadAll("/l/" + ledger.ActiveName)
	if all := check(t, b); len(all) != 2 || all[1].RequestID != "three" {
		t.Fatalf("%v", all)
	}
}

func TestTornTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	s := open(t, dir, store.Options{})
	add(t, s, "one", "two")
	s.Close()
	path := filepath.Join(dir, ledger.ActiveName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, ledger.HeadName))
	t.Run("whole record without its newline", func(t *testing.T) {
		os.WriteFile(path, whole[:len(whole)-1], 0o600)
		s := open(t, dir, store.Options{})
		defer s.Close()
		add(t, s, "three")
		if all := checkFile(t, dir); len(all) != 3 {
			t.Fatalf("%d records", len(all))
		}
	})
	os.Remove(filepath.Join(dir, ledger.HeadName))
	for _, tail := range []string{"{", "\x00\x00\x00", `{"args_digest":"00`, "\x00\x00\n", "{\"a\x00\x00\n" + string(whole)} {
		t.Run(fmt.Sprintf("%.20q", tail), func(t *testing.T) {
			before, _ := os.ReadFile(path)
			records := len(check(t, before))
			os.WriteFile(path, append(bytes.Clone(before), tail...), 0o600)
			s := open(t, dir, store.Options{})
			defer s.Close()
			all := checkFile(t, dir)
			last := all[len(all)-1]
			if len(all) != records+1 || last.Method != ledger.MethodRecovery || last.Reason != ledger.ReasonTornLine {
				t.Fatalf("%d records, the last is %s %s", len(all), last.Method, last.Reason)
			}
			copied, err := os.ReadFile(filepath.Join(dir, last.Name))
			if err != nil || string(copied) != tail || last.ArgsDigest != ledger.Digest(copied).String() {
				t.Fatalf("copy %q, %v", copied, err)
			}
			now, _ := os.ReadFile(path)
			if !bytes.HasPrefix(now, before) {
				t.Fatal("history was changed")
			}
		})
	}
}

// TestRefusesToStart: nothing is put on top of a broken or cut chain.
func TestRefusesToStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	s := open(t, dir, store.Options{})
	for i := range 10 {
		add(t, s, fmt.Sprint("id-", i))
	}
	s.Close()
	path := filepath.Join(dir, ledger.ActiveName)
	good, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(good, []byte{'\n'})
	join := func(parts ...[][]byte) []byte {
		var all []byte
		for _, p := range parts {
			all = append(all, bytes.Join(p, nil)...)
		}
		return all
	}
	for name, content := range map[string][]byte{
		"tail cut":         join(lines[:6]),
		"cut inside":       join(lines[:6])[:len(join(lines[:6]))-10],
		"emptied":          {},
		"edited":           bytes.Replace(good, []byte("id-4"), []byte("id-x"), 1),
		"edited last":      bytes.Replace(good, []byte("id-9"), []byte("id-x"), 1),
		"removed":          join(lines[:3], lines[4:]),
		"swapped":          join(lines[:3], lines[4:5], lines[3:4], lines[5:]),
		"doubled":          join(lines[:3], lines[2:]),
		"blank line":       join(lines[:3], [][]byte{[]byte("\n")}, lines[3:]),
		"zeros over acked": join(lines[:3], [][]byte{[]byte("\x00\x00\x00\n")}, lines[4:]),
		"other encoding":   bytes.Replace(good, []byte(`{"args_digest"`), []byte(`{ "args_digest"`), 1),
	} {
		t.Run(name, func(t *testing.T) {
			os.WriteFile(path, content, 0o600)
			if s, err := store.Open(context.Background(), dir, store.Options{}); err == nil {
				s.Close()
				t.Fatal("opened")
			} else if !strings.Contains(err.Error(), "ledgerctl verify") {
				t.Fatalf("the error does not say what to do: %v", err)
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(now, content) {
				t.Fatal("the evidence was changed")
			}
		})
	}
	os.Remove(path)
	if _, err := store.Open(context.Background(), dir, store.Options{}); err == nil {
		t.Fatal("a second genesis beside a head.json that knows ten records")
	}
	os.WriteFile(path, good, 0o600)
	os.WriteFile(filepath.Join(dir, ledger.HeadName), []byte("not json"), 0o600)
	add(t, open(t, dir, store.Options{}), "goes on")
}

// TestStopsWhereTheFileIsNotItsOwn: each is tried under a running writer.
func TestStopsWhereTheFileIsNotItsOwn(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"renamed":  func(p string) error { return os.Rename(p, p+".1") },
		"replaced": func(p string) error { b, _ := os.ReadFile(p); os.Remove(p); return os.WriteFile(p, b, 0o600) },
		"linked":   func(p string) error { return os.Link(p, p+".link") },
		"shrunk":   func(p string) error { return os.Truncate(p, 10) },
		"edited":   func(p string) error { return appendTo(p, "{}\n") },
		"removed":  os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "l")
			s := open(t, dir, store.Options{})
			add(t, s, "one", "two")
			path := filepath.Join(dir, ledger.ActiveName)
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			for range 2 {
				if _, err := s.Append(context.Background(), entry("three")); err == nil {
					t.Fatal("the writer went on")
				}
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(before, now) {
				t.Fatal("something was written all the same")
			}
		})
	}
	t.Run("other process's records cut", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "l")
		a, b := open(t, dir, store.Options{}), open(t, dir, store.Options{})
		add(t, a, "one")
		path := filepath.Join(dir, ledger.ActiveName)
		info, _ := os.Stat(path)
		add(t, b, "two")
		os.Truncate(path, info.Size())
		if _, err := a.Append(context.Background(), entry("three")); err == nil {
			t.Fatal("the writer went on over a cut tail")
		}
	})
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.WriteString(f, text)
	return err
}

func TestRefusesWhatIsNoFileOfItsOwn(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"link":      func(p string) error { os.WriteFile(p+".x", nil, 0o600); return os.Symlink(p+".x", p) },
		"hard link": func(p string) error { os.WriteFile(p+".x", nil, 0o600); return os.Link(p+".x", p) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":      mkfifo,
	} {
		for _, file := range []string{ledger.ActiveName, ledger.LockName, ledger.HeadName} {
			t.Run(name+" "+file, func(t *testing.T) {
				dir := t.TempDir()
				if err := put(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
				if s, err := store.Open(context.Background(), dir, store.Options{}); err == nil {
					s.Close()
					t.Fatal("opened")
				}
			})
		}
	}
}

func TestModes(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, ledger.ActiveName)
	os.WriteFile(path, nil, 0o644)
	os.Chmod(path, 0o666)
	add(t, open(t, dir, store.Options{}), "one")
	for name, want := range map[string]os.FileMode{".": 0o700, ledger.ActiveName: 0o600, ledger.LockName: 0o600, ledger.HeadName: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

// TestTwoStores is one chain from two openings with many callers each, as two
// processes have it; processes themselves are tested with the server.
func TestTwoStores(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	const callers, each = 16, 25
	var wg sync.WaitGroup
	for p := range 2 {
		s := open(t, dir, store.Options{})
		for c := range callers {
			wg.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d-%d-%d", p, c, i)
					unlock, err := s.LockRequest(context.Background(), id)
					if err != nil {
						t.Error(err)
						return
					}
					at, err := s.Append(context.Background(), entry(id))
					unlock()
					if err != nil || at.Seq == 0 {
						t.Error(at, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n := len(checkFile(t, dir)); n != 2*callers*each {
		t.Fatalf("%d records", n)
	}
}

// TestLockRequest: one holder of an id, over both openings.
func TestLockRequest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	stores := []*store.Store{open(t, dir, store.Options{}), open(t, dir, store.Options{})}
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders, most := 0, 0
	for i := range 20 {
		wg.Go(func() {
			unlock, err := stores[i%2].LockRequest(context.Background(), "same")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			holders++
			most = max(most, holders)
			mu.Unlock()
			stores[i%2].Refresh(context.Background())
			mu.Lock()
			holders--
			mu.Unlock()
			unlock()
		})
	}
	wg.Wait()
	if most != 1 {
		t.Fatalf("%d held one id at once", most)
	}
	unlock, err := stores[0].LockRequest(context.Background(), "same")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stores { // both kinds of waiting end with the context
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan error)
		go func() { _, err := s.LockRequest(ctx, "same"); got <- err }()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	unlock()
	unlock, err = stores[1].LockRequest(context.Background(), "same")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// TestLockGivenUp: a wait that was given up does not, when its lock arrives
// after all, take it from whoever waited next.
func TestLockGivenUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	mine, other := open(t, dir, store.Options{}), open(t, dir, store.Options{})
	for range 20 {
		release, err := other.LockRequest(context.Background(), "same")
		if err != nil {
			t.Fatal(err)
		}
		ctx := &watched{Context: t.Context(), done: make(chan struct{}), asked: make(chan struct{}, 8)}
		gaveUp := make(chan struct{})
		go func() {
			if unlock, err := mine.LockRequest(ctx, "same"); err == nil {
				t.Error("held what another process holds")
				unlock()
			}
			close(gaveUp)
		}()
		<-ctx.asked
		<-ctx.asked // it waits for the other opening now
		close(ctx.done)
		<-gaveUp
		held := make(chan func())
		go func() {
			unlock, err := mine.LockRequest(context.Background(), "same")
			if err != nil {
				t.Error(err)
			}
			held <- unlock
		}()
		release()
		unlock := <-held
		for range 100 {
			if _, free, err := other.TryLockRequest("same"); free || err != nil {
				t.Fatalf("free while it is held: %v", err)
			}
			runtime.Gosched()
		}
		unlock()
	}
}

// watched is a context that tells when somebody waits for its end.
type watched struct {
	context.Context
	done, asked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return w.done
}

func (w *watched) Err() error {
	select {
	case <-w.done:
		return context.Canceled
	default:
		return nil
	}
}

// TestIntents follows intents over openings and over another writer's records.
func TestIntents(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "l")
	a, b := open(t, dir, store.Options{}), open(t, dir, store.Options{})
	intent := entry("id-1")
	intent.Decision, intent.Outcome = ledger.Pending, ledger.Intent
	at, err := a.Append(ctx, intent)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, store.Options{})
	if err := b.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*store.Store{a, b, c} {
		if open := s.OpenIntents("id-1"); len(open) != 1 || open[0].Sum != at.Sum || open[0].Seq != 1 {
			t.Fatalf("%v", open)
		}
	}
	failure := entry("id-1")
	failure.Decision, failure.Outcome, failure.Intent = ledger.Pending, ledger.Error, at.Sum.String()
	if _, err := b.Append(ctx, failure); err != nil {
		t.Fatal(err)
	}
	if len(b.OpenIntents("")) != 1 {
		t.Fatal("a failure closed its intent")
	}
	outcome := entry("id-1")
	outcome.Intent = at.Sum.String()
	if _, err := b.Append(ctx, outcome); err != nil {
		t.Fatal(err)
	}
	a.Refresh(ctx)
	c.Refresh(ctx)
	for _, s := range []*store.Store{a, b, c, open(t, dir, store.Options{})} {
		if len(s.OpenIntents("")) != 0 {
			t.Fatal("still open")
		}
	}
}

func TestContinuesTheFirstFormat(t *testing.T) {
	dir := t.TempDir()
	old, err := os.ReadFile("../../testdata/vectors/ledger.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, ledger.ActiveName), old, 0o600)
	s := open(t, dir, store.Options{})
	at, err := s.Append(context.Background(), entry("new"))
	if err != nil || at.Seq != 161 {
		t.Fatal(at, err)
	}
	all := checkFile(t, dir)
	if got, _ := os.ReadFile(filepath.Join(dir, ledger.ActiveName)); !bytes.HasPrefix(got, old) || all[160].Seq != 161 {
		t.Fatal("not continued")
	}
}

func TestClockStepsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := open(t, dir, store.Options{Clock: func() time.Time { return now }})
	add(t, s, "one")
	now = now.Add(-time.Hour)
	add(t, s, "two")
	if all := checkFile(t, dir); all[1].TS != now.UnixNano() || all[1].TS >= all[0].TS {
		t.Fatal("the clock was not kept as read")
	}
}

func TestCancelledContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	s := open(t, dir, store.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Append(ctx, entry("one")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	add(t, s, "two")
	if all := checkFile(t, dir); len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
}
