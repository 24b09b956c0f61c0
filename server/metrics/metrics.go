package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/policy"
)

const (
	followEvery = time.Second      // between two looks at a ledger
	saveEvery   = 10 * time.Second // between two writes of the checkpoint file
	readAtOnce  = 5 * time.Second  // of a ledger, before others may have a look
	scrapeTime  = 2 * time.Second  // for what is new when somebody asks
	saveTime    = 2 * readAtOnce   // for the one who reads a ledger to let its state be saved
	lastWait    = 5 * time.Second  // for those who read, at the end
)

// Config says what to show.
type Config struct {
	Dirs        []string         // of ledgers; they need not be there yet
	Policies    []*policy.Policy // name the tools
	VerifyEvery time.Duration    // 0: never, and the series of it are not there
	Checkpoint  string           // file that keeps what was read for the next process; "" keeps nothing
	Server      bool             // the process is a server that tells of its work by Appended and Called; it has one ledger
	Log         *slog.Logger     // nil discards

	// InFlight reports whether a process is at work on a call of the ledger in
	// dir. Where it is nil, each open intent counts as in doubt.
	InFlight func(dir, requestID string) bool
}

// Metrics shows ledgers. Its methods may be called at once.
type Metrics struct {
	c        Config
	log      *slog.Logger
	registry *prometheus.Registry
	names    atomic.Pointer[names]
	watches  []*watch
	calls    *calls // nil where this is no server
	now      func() time.Time

	unable  bool          // the last write failed
	unsaved chan struct{} // holds one where there is something to save
}

// New begins with what the checkpoint file knows. One that cannot be used is
// left out, and the ledgers are read from their first records.
func New(c Config) (*Metrics, error) {
	m := &Metrics{c: c, log: c.Log, registry: prometheus.NewRegistry(), now: time.Now, unsaved: make(chan struct{}, 1)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range c.Dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("find the ledger %s: %w", dir, err)
		}
		if !utf8.ValidString(abs) {
			return nil, fmt.Errorf("show the ledger %s: its path is not UTF-8, and so no value of a label", ledger.Escape(abs))
		}
		if !slices.ContainsFunc(m.watches, func(w *watch) bool { return w.dir == abs }) {
			m.watches = append(m.watches, newWatch(abs, m.log, func() time.Time { return m.now() }))
		}
	}
	if c.Server {
		if len(m.watches) != 1 {
			return nil, fmt.Errorf("a server has one ledger, not %d", len(m.watches))
		}
		m.calls = newCalls(m.watches[0].dir)
		m.registry.MustRegister(m.calls.collectors()...)
	}
	m.SetPolicies(c.Policies...)
	m.restore()
	m.registry.MustRegister(collector{m})
	return m, nil
}

// SetPolicies changes what names the tools. The totals of before are shown until
// the ledgers were read anew, which Run does.
func (m *Metrics) SetPolicies(policies ...*policy.Policy) {
	n := namesOf(policies)
	if old := m.names.Load(); old != nil && slices.Equal(old.list, n.list) {
		return
	}
	m.names.Store(n)
	if m.calls != nil {
		m.calls.know(n)
	}
}

// Run follows the ledgers and verifies them until ctx ends.
func (m *Metrics) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range m.watches {
		wg.Go(func() { m.follow(ctx, w) })
	}
	for _, w := range m.watches {
		if m.c.VerifyEvery <= 0 {
			break
		}
		wg.Go(func() {
			for {
				m.verify(ctx, w)
				select {
				case m.unsaved <- struct{}{}:
				default:
				}
				if !wait(ctx, m.c.VerifyEvery, w.changed) {
					return
				}
			}
		})
	}
	for wait(ctx, saveEvery, m.unsaved) {
		m.save(ctx)
	}
	// A file system that hangs does not keep the process.
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(lastWait):
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	m.save(last)
	for _, w := range m.watches {
		if release, err := w.own(last); err == nil {
			w.close()
			release()
		}
	}
}

func (m *Metrics) follow(ctx context.Context, w *watch) {
	for {
		slice, cancel := context.WithTimeout(ctx, readAtOnce)
		w.update(slice, m.names.Load())
		late := slice.Err() != nil
		cancel()
		if ctx.Err() != nil || !late && !wait(ctx, followEvery, nil) {
			return
		}
	}
}

// wait reports whether d went by, or sooner was told to, before ctx ended.
func wait(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-sooner:
		return true
	case <-ctx.Done():
		return false
	}
}

// once reads each ledger to its end, and verifies it where that is asked for.
// The error names those that could not be read.
func (m *Metrics) once(ctx context.Context) error {
	var unread []error
	for _, w := range m.watches {
		if err := w.update(ctx, m.names.Load()); err != nil {
			unread = append(unread, w.unread(err))
		}
		if m.c.VerifyEvery > 0 {
			m.verify(ctx, w)
		}
	}
	m.save(ctx)
	return errors.Join(unread...)
}

// hidden are the ledgers whose totals are not known yet.
func (m *Metrics) hidden() (labels []string) {
	for _, w := range m.watches {
		w.mu.Lock()
		if w.shown == nil {
			labels = append(labels, w.dir)
		}
		w.mu.Unlock()
	}
	return labels
}
