//go:build unix

package durable

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// flock is a lock file held with flock(2).
type flock struct{ f *os.File }

func (osFS) Lock(path string) (Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openFlags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := checkOpened(f); err != nil {
		return nil, err
	}
	return &flock{f}, nil
}

func (l *flock) take(ctx context.Context, how int) error {
	call := func(how int) error {
		for {
			err := unix.Flock(int(l.f.Fd()), how)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
	err := call(how | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = waitFor(ctx, func() error { return call(how) }, func() { call(unix.LOCK_UN) })
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("lock %s: held by %s: %w", l.f.Name(), l.Holder(), err)
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w; a ledger needs a file system that can lock", l.f.Name(), err)
	}
	return nil
}

func (l *flock) Exclusive(ctx context.Context) error { return l.take(ctx, unix.LOCK_EX) }
func (l *flock) Shared(ctx context.Context) error    { return l.take(ctx, unix.LOCK_SH) }
func (l *flock) Unlock() error                       { return unix.Flock(int(l.f.Fd()), unix.LOCK_UN) }
func (l *flock) Close() error                        { return l.f.Close() }

func (l *flock) Holder() string { return holder(l.f) }

func (l *flock) SetHolder(text string) { setHolder(l.f, text) }

// Self is this process, as SetHolder takes it.
func Self() string { return fmt.Sprintf("process %d (%s)", os.Getpid(), programName()) }
