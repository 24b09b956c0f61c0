package anchor_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
)

// epoch is when these tests take place.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// mem is a sink that misbehaves where it is told to.
type mem struct {
	mu   sync.Mutex
	keys map[string][]*memVersion // oldest first
	n    int

	now       time.Time
	ready     error
	unordered bool                   // create-only is not kept
	dropLock  bool                   // locks are taken and forgotten
	lie       bool                   // it says that it created, and did not
	afterPut  func(key string) error // an answer to a put that was done
	beforePut func(key string)       // somebody else is faster
	readError func(key string) error // of Read
	listError error                  // of Versions
	calls     map[string]int         // by method
	statError func(key, v string) error
}

type memVersion struct {
	id     string
	body   []byte
	lock   anchor.Lock
	marker bool
	err    error // of reading
	time   time.Time
}

func newMem() *mem {
	return &mem{keys: map[string][]*memVersion{}, now: epoch, calls: map[string]int{}}
}

func (m *mem) String() string { return "mem://test" }

func (m *mem) called(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[name]++
}

func (m *mem) Ready(context.Context) (time.Time, error) {
	m.called("ready")
	return m.now, m.ready
}

// lay puts a version over a key, as whoever may write there can.
func (m *mem) lay(key string, body []byte, lock anchor.Lock) *memVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	v := &memVersion{id: fmt.Sprintf("v%d", m.n), body: body, lock: lock, time: m.now}
	m.keys[key] = append(m.keys[key], v)
	return v
}

func (m *mem) Create(_ context.Context, key string, body []byte, lock anchor.Lock) (string, error) {
	m.called("create")
	if m.beforePut != nil {
		m.beforePut(key)
	}
	if len(m.keys[key]) > 0 && !m.unordered {
		return "", fmt.Errorf("create %s: %w", key, anchor.ErrExists)
	}
	if m.lie {
		return "v0", nil
	}
	if m.dropLock {
		lock = anchor.Lock{}
	}
	v := m.lay(key, slices.Clone(body), lock)
	if m.afterPut != nil {
		if err := m.afterPut(key); err != nil {
			return "", err
		}
	}
	return v.id, nil
}

func (m *mem) Versions(_ context.Context, begin string) iter.Seq2[anchor.Version, error] {
	m.called("list")
	return func(yield func(anchor.Version, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(m.keys)) {
			if key < begin {
				continue
			}
			for _, v := range slices.Backward(m.keys[key]) {
				if !yield(anchor.Version{Key: key, ID: v.id, Marker: v.marker, Time: v.time}, nil) {
					return
				}
			}
		}
		if m.listError != nil {
			yield(anchor.Version{}, m.listError)
		}
	}
}

func (m *mem) find(key, id string) (*memVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.keys[key] {
		if v.id == id && !v.marker {
			return v, nil
		}
	}
	return nil, anchor.ErrAbsent
}

func (m *mem) Read(_ context.Context, key, id string) ([]byte, anchor.Lock, error) {
	m.called("read")
	if m.readError != nil {
		if err := m.readError(key); err != nil {
			return nil, anchor.Lock{}, err
		}
	}
	v, err := m.find(key, id)
	if err != nil {
		return nil, anchor.Lock{}, err
	}
	return v.body, v.lock, v.err
}

func (m *mem) Stat(_ context.Context, key, id string) (anchor.Lock, ledger.Hash, error) {
	m.called("stat")
	if m.statError != nil {
		if err := m.statError(key, id); err != nil {
			return anchor.Lock{}, ledger.Hash{}, err
		}
	}
	v, err := m.find(key, id)
	if err != nil {
		return anchor.Lock{}, ledger.Hash{}, err
	}
	return v.lock, ledger.Digest(v.body), v.err
}

// chain is a ledger of which only the hashes matter.
type chain struct {
	sums    []ledger.Hash // of record 1, 2, …
	broken  error
	from    *anchor.Mark // of the last call
	extends int
}

// newChain is a ledger of n records, which differs from others by its seed from
// record "at" on.
func newChain(n int, seed string, at int) *chain {
	c := new(chain)
	for i := 1; i <= n; i++ {
		s := ""
		if i >= at {
			s = seed
		}
		c.sums = append(c.sums, ledger.Digest(fmt.Appendf(nil, "%s %d", s, i)))
	}
	return c
}

func (c *chain) Identity(context.Context) (ledger.Hash, error) {
	if len(c.sums) == 0 {
		return ledger.Hash{}, nil
	}
	return c.sums[0], nil
}

func (c *chain) Extend(_ context.Context, from *anchor.Mark) (anchor.Mark, error) {
	c.from = from
	c.extends++
	if c.broken != nil {
		return anchor.Mark{}, c.broken
	}
	n := uint64(len(c.sums))
	if from != nil && (from.Head.Seq > n || c.sums[from.Head.Seq-1] != from.Head.Sum) {
		return anchor.Mark{}, fmt.Errorf("extend: %w: another record", anchor.ErrRefused)
	}
	return anchor.Mark{Head: ledger.Head{Seq: n, Sum: c.sums[n-1]}, Segment: "audit.jsonl", Line: int64(n), Offset: int64(n) * 100}, nil
}

const retain = 400 * 24 * time.Hour

var compliance = anchor.Lock{Mode: anchor.Compliance, Until: epoch.Add(retain)}

// pushes makes pushes to m, with the receipts in a directory of the test.
type pushes struct {
	t        testing.TB
	m        *mem
	receipts string
	now      time.Time
	mode     anchor.Mode
}

func newPushes(t testing.TB) *pushes {
	return &pushes{t: t, m: newMem(), receipts: t.TempDir() + "/" + anchor.ReceiptsName, now: epoch, mode: anchor.Compliance}
}

func (p *pushes) push(c *chain, always bool) (*anchor.Result, error) {
	return anchor.Push(p.t.Context(), anchor.Options{Sink: p.m, Ledger: c, Receipts: p.receipts, Retain: retain, Mode: p.mode, Always: always,
		Tool: "test", Now: func() time.Time { return p.now }})
}

func (p *pushes) must(c *chain, always bool) *anchor.Result {
	p.t.Helper()
	r, err := p.push(c, always)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// refuse wants a push to fail, to wrap target, and to leave the receipts as
// they were.
func (p *pushes) refuse(c *chain, target error) string {
	p.t.Helper()
	before := p.count()
	_, err := p.push(c, false)
	if err == nil || target != nil && !errors.Is(err, target) {
		p.t.Fatalf("pushed: %v, want %v", err, target)
	}
	if after := p.count(); after != before {
		p.t.Fatalf("a push that failed left %d receipts, before there were %d", after, before)
	}
	return err.Error()
}

func (p *pushes) count() int {
	p.t.Helper()
	all, err := anchor.ReadReceipts(p.receipts)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(all)
}

func (p *pushes) look() *anchor.Survey {
	p.t.Helper()
	receipts, err := anchor.ReadReceipts(p.receipts)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := anchor.Look(p.t.Context(), p.m, receipts, p.now)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}
