// Package effects keeps what mutations did: one write-once file for each
// request id, so that a retry, also after a crash, finds it.
//
// A directory holds files named by the SHA-256 of the request id, in hex, and
// ".json". Their content is canonical JSON. A file comes into being whole: its
// content is synced before it has a name, the name never replaces another, and
// the directory is synced before Publish returns. Concurrent calls share the
// sync of the directory.
package effects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/auditledger/auditledger/internal/durable"
)

// MaxSize is how long a file may be that is read back, in bytes.
const MaxSize = 64 << 20

// Dir is one directory of effects. Its methods may be called at once; that one
// request id is published once at a time is for the caller's lock to see to.
type Dir struct {
	fs   durable.FS
	path string
	hook func()

	mu     sync.Mutex
	next   *dirSync // takes callers until it begins
	active sync.Mutex
	broken error // a sync of the directory failed
}

type dirSync struct {
	done chan struct{}
	err  error
}

// Open opens the directory at path, created where absent. Its mode becomes 0700.
// BeforePublish, where it is not nil, is called between the sync of a file and
// its getting a name: a point at which tests stop the process.
func Open(fsys durable.FS, path string, beforePublish func()) (*Dir, error) {
	if _, err := fsys.MkdirAll(path); err != nil {
		return nil, fmt.Errorf("open effects: %w", err)
	}
	if fsys == durable.OS { // one that was there may be open to others
		if err := os.Chmod(path, 0o700); err != nil {
			return nil, fmt.Errorf("open effects: %w", err)
		}
	}
	return &Dir{fs: fsys, path: path, hook: beforePublish}, nil
}

// Name is the name of the file of a request id.
func Name(requestID string) string {
	sum := sha256.Sum256([]byte(requestID))
	return hex.EncodeToString(sum[:]) + ".json"
}

// Read returns the content kept for requestID, and whether there is any.
func (d *Dir) Read(requestID string) ([]byte, bool, error) {
	content, err := d.fs.ReadFile(filepath.Join(d.path, Name(requestID)), MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read an effect: %w", err)
	}
	return content, true, nil
}

// All yields every content, in the order of the file names.
func (d *Dir) All(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		names, err := d.fs.ReadDir(d.path)
		if err != nil {
			yield(nil, fmt.Errorf("list effects: %w", err))
			return
		}
		for _, name := range names {
			digits, ok := strings.CutSuffix(name, ".json")
			if !ok || len(digits) != 2*sha256.Size {
				continue
			}
			content, err := d.fs.ReadFile(filepath.Join(d.path, name), MaxSize)
			if err == nil {
				err = ctx.Err()
			}
			if !yield(content, err) || err != nil {
				return
			}
		}
	}
}

// Staged is content that is on the disk and has no name. Exactly one of
// Publish and Discard ends it.
type Staged struct {
	d *Dir
	f durable.Staged
}

// Stage writes content and syncs it. Nobody sees it, and a crash leaves
// nothing of it.
func (d *Dir) Stage(content []byte) (*Staged, error) {
	f, err := d.fs.Stage(d.path)
	if err != nil {
		return nil, fmt.Errorf("stage an effect in %s: %w", d.path, err)
	}
	if _, err = f.Append(content); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stage an effect in %s: %w", d.path, err), f.Discard())
	}
	return &Staged{d, f}, nil
}

// Publish makes the content the effect of requestID. It is durable when
// Publish returns without error; with an error it may be there or not. The
// error wraps fs.ErrExist where an effect of requestID is there already.
func (s *Staged) Publish(requestID string) error {
	if s.d.hook != nil {
		s.d.hook()
	}
	if err := s.f.Publish(filepath.Join(s.d.path, Name(requestID))); err != nil {
		return fmt.Errorf("publish an effect: %w", err)
	}
	return s.d.Sync()
}

// Discard ends content that is not wanted.
func (s *Staged) Discard() { s.f.Discard() }

// Sync makes durable every name that was published before it was called. After
// one failed sync all fail until the directory is opened again: nothing is
// known of the names any more.
func (d *Dir) Sync() error {
	d.mu.Lock()
	s, leader := d.next, false
	if s == nil {
		s, leader = &dirSync{done: make(chan struct{})}, true
		d.next = s
	}
	d.mu.Unlock()
	if leader {
		d.active.Lock()
		d.mu.Lock()
		d.next = nil
		s.err = d.broken
		d.mu.Unlock()
		if s.err == nil {
			if err := d.fs.SyncDir(d.path); err != nil {
				s.err = fmt.Errorf("sync %s, and no more effects are taken until a restart: %w", d.path, err)
				d.mu.Lock()
				d.broken = s.err
				d.mu.Unlock()
			}
		}
		d.active.Unlock()
		close(s.done)
	}
	<-s.done
	return s.err
}
