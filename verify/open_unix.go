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

// lockShared takes a shared lock on f, for which it waits a while. It closes f
// where it fails, but not before the system call comes back, which goes on
// waiting.
func lockShared(ctx context.Context, f *os.File, wait time.Duration) error {
	got := make(chan error, 1)
	go func() {
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
			if !errors.Is(err, syscall.EINTR) {
				got <- err
				return
			}
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
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
