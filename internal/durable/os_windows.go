package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

const openFlags = 0

func infoOf(info fs.FileInfo) Info {
	return Info{Size: info.Size(), Mode: info.Mode(), Links: 1, Modified: info.ModTime()}
}

// syncDir has nothing to do: NTFS journals names itself, and a directory
// cannot be flushed.
func syncDir(string) error { return nil }

func stageUnnamed(string) (Staged, error) { return nil, errors.ErrUnsupported }

// NetworkFS knows no network file system on this platform.
func NetworkFS(string) (string, error) { return "", nil }

// rangeLock is a lock file held with LockFileEx, on a byte past what
// SetHolder writes.
type rangeLock struct{ f *os.File }

func (osFS) Lock(path string) (Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &rangeLock{f}, nil
}

func (l *rangeLock) take(ctx context.Context, flags uint32) error {
	at := func() *windows.Overlapped { return &windows.Overlapped{Offset: 1 << 20} }
	call := func(more uint32) error {
		return windows.LockFileEx(windows.Handle(l.f.Fd()), flags|more, 0, 1, 0, at())
	}
	err := call(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		err = waitFor(ctx, func() error { return call(0) }, func() { l.Unlock() })
	}
	if err != nil {
		return fmt.Errorf("lock %s: held by %s: %w", l.f.Name(), l.Holder(), err)
	}
	return nil
}

func (l *rangeLock) Exclusive(ctx context.Context) error {
	return l.take(ctx, windows.LOCKFILE_EXCLUSIVE_LOCK)
}
func (l *rangeLock) Shared(ctx context.Context) error { return l.take(ctx, 0) }
func (l *rangeLock) Unlock() error {
	return windows.UnlockFileEx(windows.Handle(l.f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: 1 << 20})
}
func (l *rangeLock) LockRange(context.Context, uint64) (func(), error) { return func() {}, nil }
func (l *rangeLock) TryLockRange(uint64) (func(), bool, error)         { return func() {}, true, nil }
func (*rangeLock) SoleProcess() bool                                   { return true }
func (l *rangeLock) Close() error                                      { return l.f.Close() }

// RangeHeld knows of no slots on this platform. The lock that a process has on
// the directory for its life cannot be seen without taking it.
func RangeHeld(string, uint64) (bool, error) { return false, nil }

func (l *rangeLock) Holder() string { return holder(l.f) }

func (l *rangeLock) SetHolder(text string) { setHolder(l.f, text) }

// Self is this process, as SetHolder takes it.
func Self() string { return fmt.Sprintf("process %d", os.Getpid()) }
