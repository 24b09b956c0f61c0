//go:build unix

package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

var errEnough = errors.New("enough")

// throughJSON is a checkpoint as another process gets it.
func throughJSON(t testing.TB, c *Checkpoint) *Checkpoint {
	t.Helper()
	if c == nil {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got Checkpoint
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// A reader reads a ledger with a Tail, gives up and begins again at random, and
// sees to it that every record comes once, in order.
type reader struct {
	t    testing.TB
	rng  *rand.Rand
	tail *Tail
	seq  uint64
	sum  ledger.Hash
	sums []ledger.Hash
}

func (r *reader) take(p Place, v *ledger.View) error {
	switch {
	case v == nil:
		return fmt.Errorf("%s:%d is no record", p.Segment, p.Line)
	case v.Seq != r.seq+1 || p.Seq != v.Seq || v.Prev != r.sum:
		return fmt.Errorf("record %d (told as %d) came after record %d", v.Seq, p.Seq, r.seq)
	case r.rng.IntN(40) == 0:
		return errEnough
	}
	r.seq, r.sum = v.Seq, v.Sum
	r.sums = append(r.sums, v.Sum)
	return nil
}

func (r *reader) read(ctx context.Context) error {
	if r.rng.IntN(4) == 0 {
		from := throughJSON(r.t, r.tail.Checkpoint())
		r.tail.Close()
		r.tail = NewTail(r.tail.dir, from)
	}
	err := r.tail.Read(ctx, r.take)
	if c := r.tail.Checkpoint(); r.seq > 0 && (c == nil || c.Seq != r.seq || c.Sum != r.sum) {
		return fmt.Errorf("the checkpoint is %v, and record %d was handed out last", c, r.seq)
	}
	if errors.Is(err, errEnough) || errors.Is(err, fs.ErrNotExist) && r.seq == 0 {
		return nil
	}
	return err
}

// A brittleDisk fails writes at random, after all of the bytes were written.
type brittleDisk struct {
	durable.FS
	mu  sync.Mutex
	rng *rand.Rand
}

type brittleFile struct {
	durable.File
	disk *brittleDisk
}

var errDisk = errors.New("the disk failed")

func (d *brittleDisk) Open(path string, create bool) (durable.File, error) {
	f, err := d.FS.Open(path, create)
	if err != nil || filepath.Base(path) != ledger.ActiveName {
		return f, err
	}
	return &brittleFile{f, d}, nil
}

func (f *brittleFile) Append(p []byte) (int, error) {
	n, err := f.File.Append(p)
	f.disk.mu.Lock()
	failed := f.disk.rng.IntN(5) == 0
	f.disk.mu.Unlock()
	if failed {
		err = errors.Join(f.File.Sync(), errDisk) // which gives readers the time to look
	}
	return n, err
}

// TestTailLive reads a ledger whose disk fails, that is sealed all the time, and
// that is compressed by another opening. Every record that was acknowledged
// comes once, in order, and nothing that was cut back.
func TestTailLive(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "l")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	open := func(o store.Options) *store.Store {
		s, err := store.Open(ctx, dir, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open(store.Options{SealAt: 2500, FS: &brittleDisk{FS: durable.OS, rng: newRand(seed)}})
	packer := open(store.Options{})
	const callers, each = 6, 150
	var mu sync.Mutex
	acked := map[uint64]ledger.Hash{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := 0; i < each && !t.Failed(); {
				at, err := s.Append(ctx, ledger.Entry{RequestID: fmt.Sprint(c, "-", i), Method: ledger.MethodCall, Name: "t",
					Decision: ledger.Allow, Outcome: ledger.Committed, ArgsDigest: ledger.Digest(nil).String()})
				if errors.Is(err, errDisk) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[at.Seq] = at.Sum
				mu.Unlock()
				i++
			}
		})
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	ended := func() bool {
		select {
		case <-written:
			return true
		default:
			return t.Failed()
		}
	}
	var others sync.WaitGroup
	others.Go(func() {
		for !ended() {
			if _, err := packer.Compress(ctx, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}
	})
	for n := range 2 {
		others.Go(func() {
			r := &reader{t: t, rng: newRand(seed + 1 + uint64(n)), tail: NewTail(dir, nil)}
			defer func() { r.tail.Close() }()
			for all := false; !all || r.seq < s.Head().Seq; {
				all = ended()
				if err := r.read(ctx); err != nil {
					t.Error(err)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for seq, sum := range acked {
				if r.sums[seq-1] != sum {
					t.Errorf("record %d is not the one that was acknowledged", seq)
				}
			}
		})
	}
	others.Wait()
	if len(acked) != callers*each {
		t.Errorf("%d records were acknowledged", len(acked))
	}
	if sealed, _ := filepath.Glob(filepath.Join(dir, "*.zst")); len(sealed) < 10 {
		t.Errorf("only %d segments were compressed", len(sealed))
	}
}

// tailWriter, in the environment, makes this program a writer of that ledger.
const tailWriter = "AUDITLEDGER_TAIL_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(tailWriter); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// writeForever appends, seals and compresses until it is killed.
func writeForever(dir string) {
	ctx := context.Background()
	s, err := store.Open(ctx, dir, store.Options{SealAt: 4000})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			s.Compress(ctx, time.Now().Add(time.Hour))
		}
	}()
	for c := range 3 {
		go func() {
			for i := 0; ; i++ {
				if _, err := s.Append(ctx, ledger.Entry{RequestID: fmt.Sprint(c, "-", i), Method: ledger.MethodCall, Name: "t",
					Decision: ledger.Allow, Outcome: ledger.Committed, ArgsDigest: ledger.Digest(nil).String()}); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

// TestTailKilledWriter reads while writers are killed one after the other, at
// any point of a batch, a seal, a compression and a recovery.
func TestTailKilledWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := newRand(seed)
	r := &reader{t: t, rng: rng, tail: NewTail(dir, nil)}
	defer func() { r.tail.Close() }()
	for range 12 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), tailWriter+"="+dir)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		goal := r.seq + uint64(1+rng.IntN(120))
		for end := time.Now().Add(patience); r.seq < goal; {
			if err := r.read(t.Context()); err != nil || time.Now().After(end) {
				c.Process.Kill()
				c.Wait()
				t.Fatalf("at record %d of %d: %v\n%s", r.seq, goal, err, out.Bytes())
			}
		}
		c.Process.Kill()
		c.Wait()
		if out.Len() > 0 {
			t.Fatalf("%s", out.Bytes())
		}
	}
	s, err := store.Open(t.Context(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for r.seq < s.Head().Seq {
		if err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if (ledger.Head{Seq: r.seq, Sum: r.sum}) != s.Head() {
		t.Errorf("read up to %d %s, the ledger ends at %v", r.seq, r.sum, s.Head())
	}
}

// A ledgerModel is a ledger directory and what must be read from it.
type ledgerModel struct {
	t      testing.TB
	rng    *rand.Rand
	dir    string
	sealed []modelSegment
	active [][]byte // whole lines
	rest   []byte   // an unfinished line after them
	salt   int
}

type modelSegment struct {
	name  string
	lines [][]byte
}

// lines is every whole line.
func (m *ledgerModel) lines() [][]byte {
	var all [][]byte
	for _, s := range m.sealed {
		all = append(all, s.lines...)
	}
	return append(all, m.active...)
}

// head is the last record in lines.
func (m *ledgerModel) head() (h ledger.Head) {
	for _, l := range m.lines() {
		if r, err := ledger.Parse(l); err == nil {
			h = ledger.Head{Seq: r.Seq, Sum: r.Sum}
		}
	}
	return h
}

func (m *ledgerModel) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// save writes the active segment in place: the file stays the same.
func (m *ledgerModel) save() {
	m.t.Helper()
	data := append(join(m.active), m.rest...)
	f, err := os.OpenFile(filepath.Join(m.dir, ledger.ActiveName), os.O_CREATE|os.O_WRONLY, 0o600)
	m.check(err)
	_, err = f.WriteAt(data, 0)
	m.check(errors.Join(err, f.Truncate(int64(len(data))), f.Close()))
}

func (m *ledgerModel) add() {
	h := m.head()
	m.salt++
	e := ledger.Entry{RequestID: fmt.Sprint(m.salt), Method: ledger.MethodCall, Name: string(bytes.Repeat([]byte{'x'}, m.rng.IntN(90))), Decision: ledger.Allow,
		Outcome: ledger.Committed, ArgsDigest: ledger.Digest(nil).String()}
	line, _ := e.AppendLine(nil, h.Seq+1, day0, h.Sum)
	m.active, m.rest = append(m.active, line[:len(line)-1]), nil
}

// step makes one change, and tells which record is the last that still stands;
// rewritten is false where no record was taken away.
func (m *ledgerModel) step() (what string, keep uint64, rewritten bool) {
	path := filepath.Join(m.dir, ledger.ActiveName)
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		n := m.rng.IntN(6)
		for range n {
			m.add()
		}
		m.save()
		return fmt.Sprint("append ", n), 0, false
	case 3:
		if len(m.active) == 0 || m.rest != nil {
			return "nothing", 0, false
		}
		r, err := ledger.Parse(m.active[0])
		if err != nil {
			return "nothing", 0, false
		}
		s := modelSegment{ledger.SegmentName(r.Seq), m.active}
		m.check(os.Rename(path, filepath.Join(m.dir, s.name)))
		m.sealed, m.active = append(m.sealed, s), nil
		if m.rng.IntN(4) > 0 {
			m.add()
		}
		if m.rng.IntN(4) > 0 || m.active != nil {
			m.save()
		}
		return "seal", 0, false
	case 4:
		if len(m.sealed) == 0 {
			return "nothing", 0, false
		}
		s := &m.sealed[m.rng.IntN(len(m.sealed))]
		if filepath.Ext(s.name) != ".zst" {
			old := filepath.Join(m.dir, s.name)
			s.name += ".zst"
			m.check(os.WriteFile(filepath.Join(m.dir, s.name), squeeze(m.t, join(s.lines)), 0o600))
			m.check(os.Remove(old))
		}
		return "compress", 0, false
	case 5:
		m.active, m.rest = append(m.active, []byte("no record")), nil
		m.save()
		return "garbage", 0, false
	case 6: // taken away again, or made another
		n := len(m.active)
		for n > 0 && m.active[n-1][0] != '{' {
			n--
		}
		m.active = m.active[:n]
		if m.rng.IntN(2) == 0 {
			m.add()
		}
		m.save()
		return "garbage removed", 0, false
	case 7:
		m.rest = append(m.rest, bytes.Repeat([]byte{'{'}, 1+m.rng.IntN(400))...)
		m.save()
		return "torn", 0, false
	case 8: // a copy in its place
		data, err := os.ReadFile(path)
		if err != nil {
			return "nothing", 0, false
		}
		m.check(os.WriteFile(path+".new", data, 0o600))
		m.check(os.Rename(path+".new", path))
		return "same in another file", 0, false
	case 9: // away, and back
		away := m.dir + ".away"
		m.check(os.Rename(m.dir, away))
		err := NewTail(m.dir, &Checkpoint{Seq: 1}).Read(m.t.Context(), nil)
		m.check(os.Rename(away, m.dir))
		if !errors.Is(err, fs.ErrNotExist) {
			m.t.Fatalf("without a directory: %v", err)
		}
		return "away and back", 0, false
	case 10: // cut in the active segment, and perhaps regrown
		n := m.rng.IntN(len(m.active) + 1)
		m.active, m.rest = m.active[:n], nil
		m.save()
		keep = m.head().Seq
		if m.rng.IntN(2) == 0 {
			for range m.rng.IntN(8) {
				m.add()
			}
		}
		m.save()
		return fmt.Sprint("cut after ", keep), keep, true
	default: // a sealed segment becomes the active one, cut
		if len(m.sealed) == 0 || m.rng.IntN(3) > 0 {
			return "nothing", 0, false
		}
		i := m.rng.IntN(len(m.sealed))
		for _, s := range m.sealed[i:] {
			m.check(os.Remove(filepath.Join(m.dir, s.name)))
		}
		m.active, m.rest = m.sealed[i].lines[:m.rng.IntN(len(m.sealed[i].lines)+1)], nil
		m.active = m.active[:len(m.active):len(m.active)]
		m.sealed = m.sealed[:i]
		m.save()
		keep = m.head().Seq
		for range m.rng.IntN(5) {
			m.add()
		}
		m.save()
		return fmt.Sprint("cut in a segment after ", keep), keep, true
	}
}

// TestTailModel changes a ledger in every way, also where no writer would, and
// reads it with a Tail that stays, one that is begun anew from its checkpoint
// each time, and one that is stopped at random.
func TestTailModel(t *testing.T) {
	for range 40 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { tailModel(t, seed) }) {
			return
		}
	}
}

func tailModel(t *testing.T, seed uint64) {
	m := &ledgerModel{t: t, rng: newRand(seed), dir: filepath.Join(t.TempDir(), "l")}
	m.check(os.Mkdir(m.dir, 0o700))
	m.save()
	type tailed struct {
		*Tail
		records []ledger.Hash
		bad     int // since the last record
	}
	tails := []*tailed{{Tail: NewTail(m.dir, nil)}, {Tail: NewTail(m.dir, nil)}, {Tail: NewTail(m.dir, nil)}}
	var log []string
	for range 40 {
		what, keep, rewritten := m.step()
		log = append(log, what)
		var want []ledger.Hash
		bad := 0
		for _, l := range m.lines() {
			if r, err := ledger.Parse(l); err == nil {
				want, bad = append(want, r.Sum), 0
			} else {
				bad++
			}
		}
		for i, tail := range tails {
			stop := -1
			if i == 2 {
				stop = m.rng.IntN(4)
			}
			if i == 1 {
				from := throughJSON(t, tail.Checkpoint())
				tail.Close()
				tail.Tail, tail.bad = NewTail(m.dir, from), 0
			}
			had, again := len(tail.records), tail.bad
			err := tail.Read(t.Context(), func(p Place, v *ledger.View) error {
				if stop--; stop == -1 {
					return errEnough
				}
				if v == nil {
					tail.bad++
					return nil
				}
				tail.records, tail.bad = append(tail.records, v.Sum), 0
				if p.Seq != uint64(len(tail.records)) || v.Seq != p.Seq {
					t.Errorf("record %d is told as %d", v.Seq, p.Seq)
				}
				return nil
			})
			if rewritten && uint64(had) > keep {
				if !errors.Is(err, ErrChanged) || len(tail.records) > had || tail.bad > again {
					t.Fatalf("tail %d, which had %d records: %v, %d records, after\n%q", i, had, err, len(tail.records), log)
				}
				tail.Close()
				tail.Tail, tail.records, tail.bad = NewTail(m.dir, nil), nil, 0
				continue
			}
			if errors.Is(err, errEnough) {
				if len(tail.records) > len(want) {
					t.Fatalf("tail %d has records that are not there, after\n%q", i, log)
				}
				continue
			}
			if errors.Is(err, fs.ErrNotExist) && had == 0 && len(m.sealed) == 0 {
				continue
			}
			if err != nil || fmt.Sprint(tail.records) != fmt.Sprint(want) {
				t.Fatalf("tail %d: %v, %d records, want %d, after\n%q", i, err, len(tail.records), len(want), log)
			}
			// Lines that are no records are given once, but for those that were taken away.
			if rewritten || what == "garbage removed" {
				tail.bad = bad
			}
			if tail.bad != bad {
				t.Fatalf("tail %d was given %d lines that are no records, want %d, after\n%q", i, tail.bad, bad, log)
			}
		}
	}
	for _, tail := range tails {
		tail.Close()
	}
}

// got reads once, and gives what was handed out: the number of each record, "-"
// for what is none.
func got(t testing.TB, tail *Tail) (string, error) {
	t.Helper()
	var all []string
	err := tail.Read(t.Context(), func(p Place, v *ledger.View) error {
		if v == nil {
			all = append(all, "-")
		} else {
			all = append(all, fmt.Sprint(p.Seq))
		}
		return nil
	})
	return strings.Join(all, " "), err
}

// gives wants one Read to hand out just that, without an error.
func gives(t testing.TB, tail *Tail, want string) {
	t.Helper()
	if all, err := got(t, tail); err != nil || all != want {
		t.Fatalf("handed out %q, %v, want %q", all, err, want)
	}
}

func appendTo(t testing.TB, path string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// waits is a context that tells when somebody waits for its end.
type waits struct {
	context.Context
	asked chan struct{}
	once  sync.Once
}

func (w *waits) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// TestTailBatchCutBack: what a writer has not finished under the lock is not
// handed out, also where whole lines of it are there.
func TestTailBatchCutBack(t *testing.T) {
	lines := calls(6)
	dir := write(t, map[string][]byte{ledger.LockName: nil, ledger.ActiveName: join(lines[:3])})
	path := filepath.Join(dir, ledger.ActiveName)
	lock, err := os.Open(filepath.Join(dir, ledger.LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	hold := func(how int) {
		t.Helper()
		if err := syscall.Flock(int(lock.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	fresh, going := NewTail(dir, nil), NewTail(dir, nil)
	defer fresh.Close()
	defer going.Close()
	gives(t, going, "1 2 3")
	for tail, want := range map[*Tail]string{fresh: "1 2 3 4", going: "4"} {
		hold(syscall.LOCK_EX)
		appendTo(t, path, join(lines[3:6]))
		ctx := &waits{Context: t.Context(), asked: make(chan struct{})}
		type result struct {
			n   int
			err error
		}
		done := make(chan result)
		go func() {
			n := 0
			err := tail.Read(ctx, func(Place, *ledger.View) error { n++; return nil })
			done <- result{n, err}
		}()
		select {
		case r := <-done:
			t.Fatalf("%d lines of a batch were read while it was written, %v", r.n, r.err)
		case <-ctx.asked:
		}
		if err := os.Truncate(path, int64(len(join(lines[:3])))); err != nil {
			t.Fatal(err)
		}
		hold(syscall.LOCK_UN)
		if r := <-done; r.err != nil || r.n != strings.Count(want, " ") {
			t.Fatalf("%d lines, %v, want %d", r.n, r.err, strings.Count(want, " "))
		}
		appendTo(t, path, join(lines[3:4]))
		gives(t, tail, "4")
		if err := os.Truncate(path, int64(len(join(lines[:3])))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTailLockHeld: a writer that keeps the lock is waited for once, and the
// ledger is read all the same.
func TestTailLockHeld(t *testing.T) {
	lines := calls(6)
	dir := write(t, map[string][]byte{ledger.LockName: nil, ledger.ActiveName: join(lines[:3])})
	path := filepath.Join(dir, ledger.ActiveName)
	lock, err := os.Open(filepath.Join(dir, ledger.LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	tail := NewTail(dir, nil)
	defer tail.Close()
	tail.w.o.lockWait = time.Millisecond
	gives(t, tail, "1 2 3")
	before := runtime.NumGoroutine()
	for i := 3; i < 6; i++ {
		appendTo(t, path, join(lines[i:i+1]))
		gives(t, tail, fmt.Sprint(i+1))
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines wait for the lock, where it was %d", n, before)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, []byte("{"))
	gives(t, tail, "")
	if tail.w.o.lockWait != lockWait {
		t.Error("the lock, which is free, is not waited for the next time")
	}
}

// TestTailTorn: an unfinished last line is left out until it is finished, also
// where another of the same length takes its place.
func TestTailTorn(t *testing.T) {
	lines := calls(3)
	dir := write(t, map[string][]byte{ledger.ActiveName: join(lines[:1])})
	path := filepath.Join(dir, ledger.ActiveName)
	tail := NewTail(dir, nil)
	defer tail.Close()
	gives(t, tail, "1")
	for i, l := range lines[1:] {
		half := len(l) / 2
		appendTo(t, path, l[:half])
		gives(t, tail, "")
		appendTo(t, path, l[half:])
		gives(t, tail, "")
		appendTo(t, path, []byte("\n"))
		gives(t, tail, fmt.Sprint(i+2))
	}
	// Set aside, and the next record is as long.
	size := int64(len(join(lines[:2])))
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	tail = NewTail(dir, nil)
	defer tail.Close()
	appendTo(t, path, bytes.Repeat([]byte{'{'}, len(lines[2])+1))
	gives(t, tail, "1 2")
	gives(t, tail, "")
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, join(lines[2:3]))
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)); err != nil { // the clock of files is coarse
		t.Fatal(err)
	}
	gives(t, tail, "3")
}

// TestTailFar: going on from a checkpoint opens no segment before its own,
// wherever that is by now.
func TestTailFar(t *testing.T) {
	lines := calls(40)
	for seq := 1; seq <= len(lines); seq++ {
		// The checkpoint is made while its record is in the active segment.
		first := (seq - 1) / 10 * 10
		dir := write(t, split(t, lines[:seq], []int{10, 20, 30}[:first/10]...))
		tail := NewTail(dir, nil)
		if _, err := got(t, tail); err != nil {
			t.Fatal(err)
		}
		from := throughJSON(t, tail.Checkpoint())
		tail.Close()
		if from.Seq != uint64(seq) || from.Segment != ledger.ActiveName {
			t.Fatalf("%+v", from)
		}
		var rest []string
		for i := seq; i < len(lines); i++ {
			rest = append(rest, fmt.Sprint(i+1))
		}
		want := strings.Join(rest, " ")
		for _, packed := range []bool{false, true} {
			files := split(t, lines, 10, 20, 30)
			for i := range 3 {
				name := ledger.SegmentName(uint64(10*i + 1))
				if data := files[name]; packed {
					delete(files, name)
					name += ".zst"
					files[name] = squeeze(t, data[:500], data[500:])
				}
				if 10*i < first {
					files[name] = []byte("not to be read")
				}
			}
			tail := NewTail(write(t, files), from)
			gives(t, tail, want)
			gives(t, tail, "")
			// And once more, from there.
			again := NewTail(tail.dir, throughJSON(t, tail.Checkpoint()))
			gives(t, again, "")
			tail.Close()
			again.Close()
		}
	}
}

// TestTailOnlySealed reads a directory without an active segment again and
// again, and then one in which it is empty.
func TestTailOnlySealed(t *testing.T) {
	lines := calls(9)
	for _, packed := range []bool{false, true} {
		name, good := ledger.SegmentName(1), join(lines[:4])
		if packed {
			name, good = name+".zst", squeeze(t, good)
		}
		dir := write(t, map[string][]byte{name: good})
		path, sealed := filepath.Join(dir, ledger.ActiveName), filepath.Join(dir, name)
		tail := NewTail(dir, nil)
		gives(t, tail, "1 2 3 4")
		// It is not read again while nobody touches it: this is not seen.
		info, err := os.Stat(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(sealed, make([]byte, len(good)), 0o600), os.Chtimes(sealed, time.Time{}, info.ModTime())); err != nil {
			t.Fatal(err)
		}
		gives(t, tail, "")
		if err := errors.Join(os.WriteFile(sealed, good, 0o600), os.Chtimes(sealed, time.Time{}, info.ModTime())); err != nil {
			t.Fatal(err)
		}
		appendTo(t, path, nil)
		gives(t, tail, "")
		gives(t, tail, "")
		if n := testing.AllocsPerRun(20, func() { gives(t, tail, "") }); n > 20 {
			t.Errorf("%v allocations where nothing is new", n)
		}
		// The sealed segment, where the last record is, is replaced.
		other := clone(lines[:4])
		other[3] = reseal(t, other[3], sumOfLine(t, other[2]), map[string]any{"name": "other"})
		bad := join(other)
		if packed {
			bad = squeeze(t, bad)
		}
		for _, data := range [][]byte{bad, good} {
			if err := errors.Join(os.WriteFile(sealed+".new", data, 0o600), os.Rename(sealed+".new", sealed)); err != nil {
				t.Fatal(err)
			}
			if all, err := got(t, tail); errors.Is(err, ErrChanged) != (&data[0] == &bad[0]) || all != "" {
				t.Fatalf("%q, %v", all, err)
			}
		}
		appendTo(t, path, join(lines[4:6]))
		gives(t, tail, "5 6")
		tail.Close()
	}
}

// TestTailListing: a segment that is missing in one listing of the directory, as
// one can be while it is being compressed, is not passed over; one that is gone
// for good is.
func TestTailListing(t *testing.T) {
	lines := calls(9)
	for _, back := range []bool{true, false} {
		for _, gone := range []string{ledger.SegmentName(4), ledger.SegmentName(7)} {
			files := split(t, lines, 3, 6, 8)
			dir := write(t, files)
			name := filepath.Join(dir, gone)
			if err := os.Rename(name, name+".away"); err != nil {
				t.Fatal(err)
			}
			tail := NewTail(dir, nil)
			var all []uint64
			err := tail.Read(t.Context(), func(p Place, v *ledger.View) error {
				if all = append(all, p.Seq); p.Seq == 1 && back {
					return os.Rename(name+".away", name)
				}
				return nil
			})
			want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
			if !back {
				n := map[string]int{ledger.SegmentName(4): 3, ledger.SegmentName(7): 6}[gone]
				want = slices.Delete(want, n, n+len(bytes.Split(bytes.TrimSpace(files[gone]), []byte{'\n'})))
			}
			if err != nil || !slices.Equal(all, want) {
				t.Errorf("%v, %v, want %v", all, err, want)
			}
			tail.Close()
		}
	}
	// The same of the segment in which reading goes on.
	dir := write(t, split(t, lines, 3, 6))
	name := filepath.Join(dir, ledger.SegmentName(1))
	if err := os.Rename(name, name+".away"); err != nil {
		t.Fatal(err)
	}
	late := NewTail(dir, &Checkpoint{Segment: ledger.SegmentName(1), Line: 1, Seq: 1, Sum: sumOfLine(t, lines[0])})
	defer late.Close()
	if all, err := got(t, late); !errors.Is(err, ErrChanged) || all != "" {
		t.Errorf("%q, %v", all, err)
	}
	asked := 0
	ctx := &asks{t.Context(), func() {
		if asked++; asked == 2 { // it has the listing now
			os.Rename(name+".away", name)
		}
	}}
	n := 0
	if err := late.Read(ctx, func(Place, *ledger.View) error { n++; return nil }); err != nil || n != 8 {
		t.Errorf("%d records, %v", n, err)
	}
}

// asks is a context that tells when somebody asks whether it ended.
type asks struct {
	context.Context
	f func()
}

func (a *asks) Err() error {
	a.f()
	return a.Context.Err()
}

// TestTailUnreadable: what cannot be read is an error of its own, keeps the
// position, and is read when it can be.
func TestTailUnreadable(t *testing.T) {
	lines := calls(9)
	files := split(t, lines, 3, 6)
	dir := write(t, files)
	tail := NewTail(dir, nil)
	defer tail.Close()
	second := filepath.Join(dir, ledger.SegmentName(4))
	if err := errors.Join(os.Remove(second), os.Mkdir(second, 0o700)); err != nil {
		t.Fatal(err)
	}
	all, err := got(t, tail)
	if all != "1 2 3" || err == nil || errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), ledger.SegmentName(4)) {
		t.Fatalf("%q, %v", all, err)
	}
	packed := squeeze(t, files[filepath.Base(second)])
	if err := errors.Join(os.Remove(second), os.WriteFile(second+".zst", packed[:len(packed)-9], 0o600)); err != nil {
		t.Fatal(err)
	}
	if all, err = got(t, tail); err == nil || errors.Is(err, ErrChanged) {
		t.Fatalf("%q, %v", all, err)
	}
	if err := os.WriteFile(second+".zst", packed, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, err := got(t, tail)
	if whole := strings.TrimSpace(all + " " + rest); err != nil || whole != "4 5 6 7 8 9" {
		t.Fatalf("%q, %v", whole, err)
	}
	// A place in an archive that is damaged before it.
	from := &Checkpoint{Segment: ledger.SegmentName(4), Line: 3, Offset: int64(len(join(lines[3:5]))), Seq: 6, Sum: sumOfLine(t, lines[5])}
	late := NewTail(dir, from)
	defer late.Close()
	if err := os.WriteFile(second+".zst", packed[:len(packed)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err = got(t, late); err == nil || errors.Is(err, ErrChanged) || all != "" {
		t.Fatalf("%q, %v", all, err)
	}
	if err := os.WriteFile(second+".zst", packed, 0o600); err != nil {
		t.Fatal(err)
	}
	gives(t, late, "7 8 9")
}

// TestTailAbsent waits for a ledger that is not there, that has no file yet, and
// that goes away in each way.
func TestTailAbsent(t *testing.T) {
	lines := calls(9)
	dir := filepath.Join(t.TempDir(), "a\tledger")
	tail := NewTail(dir, nil)
	defer tail.Close()
	absent := func() {
		t.Helper()
		if all, err := got(t, tail); all != "" || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged) || strings.Contains(err.Error(), "\t") {
			t.Fatalf("%q, %v", all, err)
		}
	}
	absent()
	if tail.Checkpoint() != nil {
		t.Error("a checkpoint of nothing")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	absent()
	path := filepath.Join(dir, ledger.ActiveName)
	appendTo(t, path, join(lines[:3]))
	gives(t, tail, "1 2 3")
	for name, c := range map[string]struct{ away, back func() error }{
		"the directory": {func() error { return os.Rename(dir, dir+".away") }, func() error { return os.Rename(dir+".away", dir) }},
		"the file":      {func() error { return os.Rename(path, path+".away") }, func() error { return os.Rename(path+".away", path) }},
		"deleted": {func() error { return os.RemoveAll(dir) }, func() error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, join(lines[:3]), 0o600))
		}},
	} {
		if err := c.away(); err != nil {
			t.Fatal(name, err)
		}
		absent()
		absent()
		if err := c.back(); err != nil {
			t.Fatal(name, err)
		}
		gives(t, tail, "")
	}
	appendTo(t, path, join(lines[3:]))
	gives(t, tail, "4 5 6 7 8 9")
	file := NewTail(path, nil)
	if err := file.Read(t.Context(), nil); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file: %v", err)
	}
}

// TestTailFirstFormat: records that bear no number are counted, over segments
// and from a checkpoint too.
func TestTailFirstFormat(t *testing.T) {
	data, err := os.ReadFile("../testdata/vectors/ledger.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'})
	dir := write(t, split(t, lines, 50, 100))
	var from *Checkpoint
	for n := uint64(0); n < uint64(len(lines)); {
		tail := NewTail(dir, from)
		for stop := range 3 { // two that are handed out, one that fails
			err := tail.Read(t.Context(), func(p Place, v *ledger.View) error {
				if v == nil || v.Seq != 0 || p.Seq != n+1 {
					t.Fatalf("%+v after %d", p, n)
				}
				if stop--; stop < 0 {
					return errEnough
				}
				n++
				return nil
			})
			if err != nil && !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
		}
		from = throughJSON(t, tail.Checkpoint())
		tail.Close()
	}
}

// TestTailLongLines: a line that is longer than is looked at is no record, and
// told once; before its end it is an unfinished one.
func TestTailLongLines(t *testing.T) {
	lines := calls(4)
	long := bytes.Repeat([]byte{'x'}, 5000)
	dir := write(t, map[string][]byte{ledger.ActiveName: slices.Concat(join(lines[:1]), long)})
	path := filepath.Join(dir, ledger.ActiveName)
	small := func(from *Checkpoint) *Tail {
		tail := NewTail(dir, from)
		tail.w.o.blockSize, tail.w.o.maxLine = 1000, 3000
		t.Cleanup(func() { tail.Close() })
		return tail
	}
	tail := small(nil)
	gives(t, tail, "1")
	gives(t, tail, "")
	appendTo(t, path, long)
	gives(t, tail, "")
	appendTo(t, path, []byte("\n"))
	gives(t, tail, "-")
	gives(t, tail, "")
	appendTo(t, path, join(lines[1:2]))
	gives(t, tail, "2")
	gives(t, small(&Checkpoint{Segment: ledger.ActiveName, Line: 1, Seq: 1, Sum: sumOfLine(t, lines[0])}), "- 2")
	// In an archive too, and where it is the last line of a segment.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := squeeze(t, slices.Concat(data, long, []byte{'\n'}))
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ledger.SegmentName(1)+".zst"), packed, 0o600), os.WriteFile(path, join(lines[2:]), 0o600)); err != nil {
		t.Fatal(err)
	}
	gives(t, small(nil), "1 - 2 - 3 4")
	gives(t, tail, "- 3 4")
}

// TestTailIdle: a Read with nothing new neither lists the directory nor reads a
// line that is not finished.
func TestTailIdle(t *testing.T) {
	dir := write(t, map[string][]byte{ledger.ActiveName: slices.Concat(join(calls(9)), bytes.Repeat([]byte{'x'}, 1<<20))})
	tail := NewTail(dir, nil)
	defer tail.Close()
	gives(t, tail, "1 2 3 4 5 6 7 8 9")
	none := func(Place, *ledger.View) error { return errEnough }
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := tail.Read(ctx, none); err != nil {
			t.Error(err)
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

// TestFollowChanged: Follow waits for a ledger that went away, and ends where
// what it handed out is not there any more.
func TestFollowChanged(t *testing.T) {
	lines := calls(6)
	dir := write(t, map[string][]byte{ledger.ActiveName: join(lines[:3])})
	path := filepath.Join(dir, ledger.ActiveName)
	seen := make(chan uint64, 10)
	caught := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- Follow(t.Context(), dir, func(p Place, _ *ledger.View) error { seen <- p.Seq; return nil }, func() error { close(caught); return nil })
	}()
	<-caught
	if err := errors.Join(os.Rename(path, path+".away"), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, join(lines[3:]))
	for want := uint64(1); want <= 6; want++ {
		select {
		case seq := <-seen:
			if seq != want {
				t.Fatalf("record %d, want %d", seq, want)
			}
		case err := <-done:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatalf("record %d did not come", want)
		}
	}
	if err := os.Truncate(path, int64(len(lines[0])+1)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrChanged) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("a cut ledger is followed")
	}
	// An error of the caller ends it, whatever it says.
	err := Follow(t.Context(), dir, func(Place, *ledger.View) error { return fs.ErrNotExist }, func() error { return nil })
	if err != fs.ErrNotExist {
		t.Error(err)
	}
}

// BenchmarkTailIdle is a Read with nothing new.
func BenchmarkTailIdle(b *testing.B) {
	dir := write(b, map[string][]byte{ledger.LockName: nil, ledger.ActiveName: join(calls(1000))})
	tail := NewTail(dir, nil)
	defer tail.Close()
	none := func(Place, *ledger.View) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := tail.Read(b.Context(), none); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTailCatchUp reads a ledger from its first record on.
func BenchmarkTailCatchUp(b *testing.B) {
	data := join(calls(100_000))
	for name, files := range map[string]map[string][]byte{
		"plain": {ledger.ActiveName: data},
		"zstd":  {ledger.SegmentName(1) + ".zst": squeeze(b, data), ledger.ActiveName: nil},
	} {
		b.Run(name, func(b *testing.B) {
			dir := write(b, files)
			b.SetBytes(int64(len(data)))
			n := 0
			for b.Loop() {
				tail := NewTail(dir, nil)
				if err := tail.Read(b.Context(), func(Place, *ledger.View) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
				tail.Close()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
