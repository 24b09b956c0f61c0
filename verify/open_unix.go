//go:build unix

package verify

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// openFile opens a regular file to read. It never waits, as opening a named
// pipe would. Where follow is false, a symbolic link is refused.
func openFile(path string, follow bool) (*os.File, os.FileInfo, error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_CLOEXEC | syscall.O_NOCTTY
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, nil, errSymlink
	}
	if err != nil {
		return nil, nil, err
	}
	return regular(f)
}

// lockShared takes a shared lock on f, for which it waits a while, or not at
// all where wait is less than 0. It closes f where it fails, but not before the
// system call comes back, which goes on waiting.
func lockShared(ctx context.Context, f *os.File, wait time.Duration) error {
	call := func(how int) error {
		for {
			err := syscall.Flock(int(f.Fd()), how)
			if !errors.Is(err, syscall.EINTR) {
				return err
			}
		}
	}
	err := call(syscall.LOCK_SH | syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) && wait < 0 {
		err = errLockHeld
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		if err != nil {
			f.Close()
		}
		return err
	}
	got := make(chan error, 1)
	go func() { got <- call(syscall.LOCK_SH) }()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err = <-got:
		if err != nil {
			f.Close()
		}
		return err
	case <-timer.C:
		err = errLockHeld
	case <-ctx.Done():
		err = ctx.Err()
	}
	go func() {
		<-got
		f.Close()
	}()
	return err
}
