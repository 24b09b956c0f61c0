package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

func (osFS) MkdirAll(path string) (bool, error) {
	var absent []string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err == nil && !info.IsDir() {
			return false, fmt.Errorf("%s is no directory", p)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		absent = append(absent, p)
	}
	for i := len(absent) - 1; i >= 0; i-- {
		if err := os.Mkdir(absent[i], 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		if err := os.Chmod(absent[i], 0o700); err != nil {
			return false, err
		}
		if err := OS.SyncDir(filepath.Dir(absent[i])); err != nil {
			return false, err
		}
	}
	return len(absent) > 0, nil
}

func (osFS) Open(path string, create bool) (File, error) {
	flag := os.O_RDWR | os.O_APPEND | openFlags
	f, err := os.OpenFile(path, flag, 0)
	if create && errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := checkOpened(f); err != nil {
		return nil, err
	}
	return &osFile{File: f, path: path}, nil
}

func (osFS) Lstat(path string) (Info, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(info), nil
}

func (osFS) ReadDir(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (osFS) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is no regular file", path)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("read %s: %d bytes, more than the %d that it may have", path, info.Size(), limit)
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:n], err
}

func (osFS) Rename(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) SyncDir(path string) error { return syncDir(path) }

func (osFS) Stage(dir string) (Staged, error) {
	if s, err := stageUnnamed(dir); !errors.Is(err, errors.ErrUnsupported) {
		return s, err
	}
	return stageNamed(dir)
}

type osFile struct {
	*os.File
	path  string
	mu    sync.Mutex
	place *os.File // opened for writing in place, at the first WriteAt
}

func (f *osFile) Append(p []byte) (int, error) { return f.Write(p) }
func (f *osFile) Stat() (Info, error)          { return statFile(f.File) }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.place == nil {
		place, err := os.OpenFile(f.path, os.O_WRONLY|openFlags, 0)
		if err != nil {
			return 0, err
		}
		f.place = place
	}
	return f.place.WriteAt(p, off)
}

func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.place != nil {
		f.place.Close()
	}
	return f.File.Close()
}

// checkOpened closes f where it must not be used, and says why.
func checkOpened(f *os.File) error {
	info, err := statFile(f)
	if err == nil {
		err = info.Check()
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("open %s: %w", f.Name(), err)
	}
	return nil
}

func statFile(f *os.File) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info), nil
}

// stagedSerial makes names of staged files differ inside a process; O_EXCL
// sees to the rest.
var stagedSerial atomic.Uint64

// namedStage is a staged file with a hidden name, where the file system has no
// nameless files. A crash leaves it behind, where no reader takes it for an effect.
type namedStage struct {
	f    *os.File
	path string
}

const stagePrefix = ".staged-"

func stageNamed(dir string) (Staged, error) {
	for range 100 {
		path := filepath.Join(dir, fmt.Sprintf("%s%d-%d", stagePrefix, os.Getpid(), stagedSerial.Add(1)))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &namedStage{f, path}, nil
	}
	return nil, fmt.Errorf("stage a file in %s: every name that was tried is taken", dir)
}

func (s *namedStage) Append(p []byte) (int, error) { return s.f.Write(p) }
func (s *namedStage) Sync() error                  { return s.f.Sync() }

func (s *namedStage) Publish(path string) error {
	if err := os.Link(s.path, path); err != nil {
		s.Discard()
		return err
	}
	s.f.Close()
	return os.Remove(s.path)
}

func (s *namedStage) Discard() error {
	return errors.Join(s.f.Close(), os.Remove(s.path))
}

// waitFor runs a blocking call that takes a lock, and gives up waiting for it
// when ctx ends; a lock that arrives after that is given back by undo.
func waitFor(ctx context.Context, block func() error, undo func()) error {
	done := make(chan error, 1)
	go func() { done <- block() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go func() {
			if <-done == nil {
				undo()
			}
		}()
		return context.Cause(ctx)
	}
}

// holder reads what setHolder wrote.
func holder(f *os.File) string {
	var b [holderSize]byte
	n, _ := f.ReadAt(b[:], 0)
	if s := string(bytes.TrimSpace(b[:n])); s != "" {
		return s
	}
	return "another process"
}

// setHolder replaces the text by one write in place, where it is another.
func setHolder(f *os.File, text string) {
	var now [holderSize]byte
	want := append(bytes.Repeat([]byte{' '}, holderSize-1), '\n')
	copy(want[:holderSize-1], text)
	if n, _ := f.ReadAt(now[:], 0); !bytes.Equal(now[:n], want) {
		f.WriteAt(want, 0)
	}
}
