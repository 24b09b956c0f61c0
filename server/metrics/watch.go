package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// A watch follows the ledger in one directory.
type watch struct {
	dir     string // absolute; the value of the label ledger
	log     *slog.Logger
	now     func() time.Time
	changed chan struct{} // holds one where the ledger is to be verified soon

	// reading has room for the one who reads, who owns what follows.
	reading  chan struct{}
	tail     *verify.Tail
	tally    *tally
	receipts stamp
	run      stamp
	said     map[string]string // the last trouble of each kind

	mu       sync.Mutex // guards what a scrape shows, and left
	shown    *look      // nil while the totals are not known
	readable bool       // the last reading came to the end
	anchors  anchors
	verified verification
	passed   bool                 // the tally leaves out lines or records that it could not see
	recount  bool                 // they may be there now
	at       *verify.Checkpoint   // the last record that was read and is durable
	left     []verify.Checkpoint  // see leave
	idle     map[ledger.Hash]bool // open intents that nobody is at work on, when that could last be told
	since    time.Time            // when somebody began to read; zero where nobody reads
}

// stuckAfter is how long a reading may take that gives others their turn every
// few seconds: one that takes longer hangs in the file system.
const stuckAfter = 30 * time.Second

// leftMax bounds left where nothing verifies.
const leftMax = 100

// anchors are what the files of anchoring in the directory say.
type anchors struct {
	seq     uint64    // of the last record that has a receipt
	receipt time.Time // the latest
	run     anchor.Run
}

// A stamp tells whether a file was written since.
type stamp struct {
	size int64
	time time.Time
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime()}
}

func newWatch(dir string, log *slog.Logger, now func() time.Time) *watch {
	return &watch{dir: dir, log: log.With("ledger", dir), now: now, changed: make(chan struct{}, 1), reading: make(chan struct{}, 1), said: map[string]string{}}
}

// own waits until nobody else reads.
func (w *watch) own(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case w.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := func(at time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.since = at
	}
	begun(w.now())
	return func() { begun(time.Time{}); <-w.reading }, nil
}

// stuck reports whether the one who reads hangs. Mu is held.
func (w *watch) stuck() bool { return !w.since.IsZero() && w.now().Sub(w.since) >= stuckAfter }

// begin counts anew, from the first record.
func (w *watch) begin(n *names) {
	w.mu.Lock()
	if w.verified.good() || w.verified.Verdict == "" {
		w.leave()
	}
	w.mu.Unlock()
	w.close()
	w.tail, w.tally = verify.NewTail(w.dir, nil), newTally(n)
}

// leave takes note that the last record that was read, of a ledger that was not
// found bad, must be in the chain when that is called good again: reading does
// not go on from it, or the verdict is bad now. Mu is held.
func (w *watch) leave() {
	if w.at != nil && len(w.left) < leftMax && !slices.Contains(w.left, *w.at) {
		w.left = append(slices.Clip(w.left), *w.at)
	}
}

// lost takes back a good verdict, which was of what is not there any more.
func (w *watch) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verified.good() {
		w.verified.Verdict = verify.Unchecked
		w.wake()
	}
}

// wake has the ledger verified soon.
func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watch) close() {
	if w.tail != nil {
		w.tail.Close()
	}
}

// update reads what is new. Where ctx ends before the end of the ledger was
// reached, the next call goes on from there.
func (w *watch) update(ctx context.Context, n *names) error {
	release, err := w.own(ctx)
	if err != nil {
		return err
	}
	defer release()
	w.mu.Lock()
	again := w.recount
	w.recount = false
	w.mu.Unlock()
	if w.tally == nil || w.tally.names != n || again {
		w.begin(n)
	}
	err = w.tail.Read(ctx, w.tally.observe)
	if errors.Is(err, verify.ErrChanged) {
		w.log.Warn("counting anew from the first record", "error", err)
		w.begin(n)
		w.lost()
		err = w.tail.Read(ctx, w.tally.observe)
	}
	if ctx.Err() == nil {
		w.trouble("ledger", err)
		w.readAnchors()
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.tail.Held() { // what is not durable may go again
		w.at = w.tail.Checkpoint()
	}
	if err == nil || ctx.Err() == nil {
		w.readable = err == nil
	}
	never := errors.Is(err, fs.ErrNotExist) && w.at == nil && w.verified.Trusted == nil && len(w.left) == 0 && (w.shown == nil || w.shown.records == 0)
	if (err == nil || never) && (w.tally.changed || w.shown == nil) {
		w.shown, w.passed = w.tally.look(), w.tally.passed
	}
	return err
}

// refresh is update where that was no trouble the last time, and so is quick. It
// reports whether the end of the ledger was reached.
func (w *watch) refresh(ctx context.Context, n *names) bool {
	w.mu.Lock()
	ready := w.readable && w.shown.names == n && !w.stuck()
	w.mu.Unlock()
	return ready && w.update(ctx, n) == nil
}

// trouble logs an error when it is another one than before.
func (w *watch) trouble(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == w.said[what] {
		return
	}
	w.said[what] = text
	if err != nil {
		w.log.Warn("cannot read the "+what, "error", ledger.Escape(text))
	} else {
		w.log.Info("can read the " + what + " again")
	}
}

// readAnchors reads the files that "anchor push" writes, where they changed. A
// directory that is not there just now says nothing.
func (w *watch) readAnchors() {
	if _, err := os.Stat(w.dir); err != nil {
		return
	}
	w.mu.Lock()
	a := w.anchors
	w.mu.Unlock()
	path := filepath.Join(w.dir, anchor.ReceiptsName)
	if now := stampOf(path); now != w.receipts {
		all, err := anchor.ReadReceipts(path)
		w.trouble("receipts", err)
		if err == nil || len(all) > 0 {
			w.receipts, a.seq, a.receipt = now, 0, time.Time{}
		}
		for _, r := range all {
			a.seq = max(a.seq, r.Head.Seq)
			if t := time.Unix(0, r.TS); t.After(a.receipt) {
				a.receipt = t
			}
		}
	}
	path = filepath.Join(w.dir, anchor.RunName)
	if now := stampOf(path); now != w.run {
		run, err := anchor.ReadRun(path)
		w.trouble("last run of anchoring", err)
		if err == nil {
			w.run, a.run = now, run
		}
	}
	w.mu.Lock()
	w.anchors = a
	w.mu.Unlock()
}

// success is when the head was last found or made anchored.
func (a anchors) success() time.Time { return later(a.receipt, a.run.LastSuccess) }

// tried is when anchoring was last tried.
func (a anchors) tried() time.Time { return later(a.success(), a.run.LastRun) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// unread is an error of reading, for people.
func (w *watch) unread(err error) error {
	return fmt.Errorf("read the ledger %s: %w", ledger.Escape(w.dir), err)
}
