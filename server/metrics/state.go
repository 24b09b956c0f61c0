package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// stateVersion is that of the checkpoint file.
const stateVersion = 1

// A stateFile is the checkpoint file. It holds other ledgers than those that are
// followed here as well: several processes may share it.
type stateFile struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`  // of ledgers, as it stands there
	Ledgers json.RawMessage `json:"ledgers"` // states, by directory
}

type state struct {
	Totals   *totals             `json:"totals,omitempty"`
	Verified verification        `json:"verified"`
	Left     []verify.Checkpoint `json:"left,omitempty"`
}

// totals are a tally and where in the ledger it stands.
type totals struct {
	Tools    []string           `json:"tools"`
	Outcomes []string           `json:"outcomes"`
	Reasons  []string           `json:"reasons"`
	Position *verify.Checkpoint `json:"position"` // null before the first record
	Passed   bool               `json:"passed,omitempty"`
	Calls    [][]uint64         `json:"calls"`
	Denials  [][]uint64         `json:"denials"`
	Records  uint64             `json:"records"`
	TS       int64              `json:"ts"`
	Open     []openIntent       `json:"open"`
}

type openIntent struct {
	SHA256    string `json:"sha256"`
	Seq       uint64 `json:"seq"`
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
}

// totals is for the one who reads.
func (w *watch) totals() *totals {
	if w.tally == nil {
		return nil
	}
	t := &totals{Tools: w.tally.names.list, Outcomes: ledger.CallOutcomes[:], Reasons: reasons, Position: w.tail.Checkpoint(), Passed: w.tally.passed,
		Records: w.tally.records, TS: w.tally.ts}
	for i := range w.tally.calls {
		t.Calls = append(t.Calls, slices.Clone(w.tally.calls[i][:]))
		t.Denials = append(t.Denials, slices.Clone(w.tally.denials[i][:]))
	}
	for _, o := range w.tally.intents.All() {
		t.Open = append(t.Open, openIntent{o.Sum.String(), o.Seq, o.RequestID, o.Name})
	}
	return t
}

// restore goes on from t; where that cannot be, it says why.
func (w *watch) restore(t *totals, n *names) error {
	switch {
	case !slices.Equal(t.Tools, n.list):
		return errors.New("the policies name other tools now")
	case !slices.Equal(t.Outcomes, ledger.CallOutcomes[:]) || !slices.Equal(t.Reasons, reasons) ||
		len(t.Calls) != len(n.list) || len(t.Denials) != len(n.list) || (t.Position == nil) != (t.Records == 0):
		return errors.New("it was written by another version")
	}
	tally := newTally(n)
	tally.records, tally.ts, tally.passed = t.Records, t.TS, t.Passed
	if t.Position != nil {
		tally.head = t.Position.Seq
	}
	for i := range n.list {
		if copy(tally.calls[i][:], t.Calls[i]) != len(t.Outcomes) || copy(tally.denials[i][:], t.Denials[i]) != len(t.Reasons) {
			return errors.New("it was written by another version")
		}
	}
	for _, o := range t.Open {
		sum, ok := ledger.ParseHash([]byte(o.SHA256))
		if !ok {
			return errors.New("an open intent in it has no hash")
		}
		tally.intents.Add(ledger.OpenIntent{Sum: sum, Seq: o.Seq, RequestID: o.RequestID, Name: o.Name})
	}
	w.tail, w.tally = verify.NewTail(w.dir, t.Position), tally
	return nil
}

// restore reads the checkpoint file.
func (m *Metrics) restore() {
	states, err := m.readStates()
	if err != nil {
		m.log.Warn("the checkpoint file cannot be used, and every record is read", "file", m.c.Checkpoint, "error", err)
		return
	}
	for _, w := range m.watches {
		s, ok := states[w.dir]
		if !ok {
			continue
		}
		w.verified, w.left = s.Verified, s.Left
		if s.Totals == nil {
			continue
		}
		w.at = s.Totals.Position
		if err := w.restore(s.Totals, m.names.Load()); err != nil {
			w.log.Warn("the checkpoint does not fit, and every record is read", "file", m.c.Checkpoint, "reason", err)
			w.leave()
		} else {
			w.log.Info("going on from the checkpoint", "file", m.c.Checkpoint, "seq", w.tally.head)
		}
	}
}

// readStates is what the checkpoint file holds; nothing where it is not there.
func (m *Metrics) readStates() (map[string]state, error) {
	if m.c.Checkpoint == "" {
		return nil, nil
	}
	content, err := os.ReadFile(m.c.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f stateFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, err
	}
	if f.Version != stateVersion {
		return nil, fmt.Errorf("it is of version %d, and %d is read", f.Version, stateVersion)
	}
	if ledger.Digest(f.Ledgers).String() != f.SHA256 {
		return nil, errors.New("it is damaged: its content has another SHA-256 than it says")
	}
	var states map[string]state
	err = json.Unmarshal(f.Ledgers, &states)
	return states, err
}

// save writes the checkpoint file where something changed. A ledger that is being
// read all the time until ctx ends keeps the state that stands there. It is not for
// several goroutines at once.
func (m *Metrics) save(ctx context.Context) {
	if m.c.Checkpoint == "" {
		return
	}
	own := map[string]state{}
	wait, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	for _, w := range m.watches {
		w.mu.Lock()
		stuck := w.stuck()
		w.mu.Unlock()
		if stuck {
			continue
		}
		release, err := w.own(wait)
		if err != nil {
			continue
		}
		s := state{Totals: w.totals()}
		release()
		w.mu.Lock()
		s.Verified, s.Left = w.verified, w.left
		w.mu.Unlock()
		own[w.dir] = s
	}
	if len(own) == 0 {
		return
	}
	content, err := json.Marshal(own)
	if err != nil {
		return
	}
	all, err := m.readStates()
	if err != nil || all == nil {
		all = map[string]state{}
	}
	// Another process that wrote at the same time may have put older ones there.
	there := map[string]state{}
	for dir := range own {
		if s, ok := all[dir]; ok {
			there[dir] = s
		}
	}
	if text, err := json.Marshal(there); err == nil && bytes.Equal(text, content) {
		return
	}
	maps.Copy(all, own)
	if content, err = json.Marshal(all); err == nil {
		content, err = json.Marshal(stateFile{stateVersion, ledger.Digest(content).String(), content})
	}
	if err == nil {
		err = replace(m.c.Checkpoint, append(content, '\n'), 0o600)
	}
	if err != nil {
		if !m.unable {
			m.log.Warn("the checkpoint file cannot be written: the next start reads more", "file", m.c.Checkpoint, "error", err)
		}
	}
	m.unable = err != nil
}

// replace replaces a file whole or not at all. The name of the file beside it
// does not end as path does.
func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
