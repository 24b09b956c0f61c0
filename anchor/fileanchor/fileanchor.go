// Package fileanchor keeps anchors as read-only files in a directory, which
// should lie on another volume, best on another machine.
//
// It is weaker than an object store that locks: whoever owns the directory may
// replace what is in it, and nothing shows afterwards but what the receipts
// know. It finds what somebody else did to the ledger, not what the owner of
// both did.
//
// A file is written aside, synced, made read-only, and linked to its name,
// which never replaces one that is there. The modes are 0755 for directories
// and 0444 for files, whatever the umask.
package fileanchor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
)

// Sink is a directory.
type Sink struct {
	dir  string
	name string
}

var _ anchor.Sink = (*Sink)(nil)

// version is the only one that a file has.
const version = "file"

// New keeps anchors in a directory, which must exist: a volume that is not
// mounted must not be taken for an empty one. address is how it is called.
func New(dir, address string) *Sink { return &Sink{dir: dir, name: address} }

func (s *Sink) String() string { return s.name }

// Dir is the directory.
func (s *Sink) Dir() string { return s.dir }

func (s *Sink) Ready(context.Context) (time.Time, error) {
	info, err := os.Stat(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, fmt.Errorf("%s: the directory does not exist: mount the volume, or create it", s.name)
	case err != nil:
		return time.Time{}, fmt.Errorf("%s: %w", s.name, err)
	case !info.IsDir():
		return time.Time{}, fmt.Errorf("%s: it is no directory", s.name)
	}
	return time.Time{}, nil
}

func (s *Sink) path(key string) string { return filepath.Join(s.dir, filepath.FromSlash(key)) }

func (s *Sink) Create(_ context.Context, key string, body []byte, _ anchor.Lock) (string, error) {
	path := s.path(key)
	if err := s.create(path, body); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = anchor.ErrExists
		}
		return "", fmt.Errorf("create %s in %s: %w", key, s.name, err)
	}
	return version, nil
}

func (s *Sink) create(path string, body []byte) error {
	dir := filepath.Dir(path)
	if err := s.makeDir(dir); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	f, err := os.CreateTemp(dir, temporary+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	if err == nil {
		err = f.Chmod(0o444)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

const temporary = ".new-"

// makeDir makes a directory and those above it, below s.dir, durably.
func (s *Sink) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is no directory", dir)
		}
		return nil
	}
	if dir == filepath.Clean(s.dir) {
		return &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	if err := s.makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func (s *Sink) Versions(ctx context.Context, begin string) iter.Seq2[anchor.Version, error] {
	return func(yield func(anchor.Version, error) bool) {
		if _, err := s.Ready(ctx); err != nil {
			yield(anchor.Version{}, err)
			return
		}
		// Directories come in the order of names, and so keys nearly do:
		// "a/b" sorts after "a-", but its directory before. No key has both.
		err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file that was being written
			}
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if d.IsDir() || strings.HasPrefix(d.Name(), temporary) {
				return nil
			}
			rel, err := filepath.Rel(s.dir, path)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(rel)
			if key < begin {
				return nil
			}
			v := anchor.Version{Key: key, ID: version}
			if info, err := d.Info(); err == nil {
				v.Time = info.ModTime()
			}
			if !yield(v, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(anchor.Version{}, fmt.Errorf("list %s: %w", s.name, err))
		}
	}
}

var errStop = errors.New("stop")

// stat opens a file and looks at its mode.
func (s *Sink) stat(key string) (*os.File, anchor.Lock, error) {
	path := s.path(key)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = anchor.ErrAbsent
	} else if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file", anchor.ErrAltered)
	}
	if err != nil {
		return nil, anchor.Lock{}, fmt.Errorf("read %s in %s: %w", key, s.name, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, anchor.Lock{}, fmt.Errorf("read %s in %s: %w", key, s.name, err)
	}
	lock := anchor.Lock{Mode: anchor.ReadOnly}
	if info.Mode().Perm()&0o222 != 0 {
		lock.Mode = anchor.None
	}
	return f, lock, nil
}

func (s *Sink) Read(_ context.Context, key, _ string) ([]byte, anchor.Lock, error) {
	f, lock, err := s.stat(key)
	if err != nil {
		return nil, anchor.Lock{}, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, anchor.MaxStatement+1))
	if err != nil {
		return nil, anchor.Lock{}, fmt.Errorf("read %s in %s: %w", key, s.name, err)
	}
	return body, lock, nil
}

func (s *Sink) Stat(ctx context.Context, key, v string) (anchor.Lock, ledger.Hash, error) {
	body, lock, err := s.Read(ctx, key, v)
	if err != nil {
		return anchor.Lock{}, ledger.Hash{}, err
	}
	return lock, ledger.Digest(body), nil
}

// syncDir makes the names in a directory durable, where the platform can.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && filepath.Separator == '/' {
		return err
	}
	return nil
}
