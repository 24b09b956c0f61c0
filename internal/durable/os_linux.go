package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unnamedStage is an O_TMPFILE: it has no name until Publish, so a crash or a
// refusal before that leaves nothing, not even a changed directory time.
type unnamedStage struct{ f *os.File }

func stageUnnamed(dir string) (Staged, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL):
		return nil, errors.ErrUnsupported
	case err != nil:
		return nil, &os.PathError{Op: "open a file without a name in", Path: dir, Err: err}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		unix.Close(fd) // without /proc it could never get its name
		return nil, errors.ErrUnsupported
	}
	return &unnamedStage{os.NewFile(uintptr(fd), dir)}, nil
}

func (s *unnamedStage) Append(p []byte) (int, error) { return s.f.Write(p) }
func (s *unnamedStage) Sync() error                  { return s.f.Sync() }
func (s *unnamedStage) Discard() error               { return s.f.Close() }

func (s *unnamedStage) Publish(path string) error {
	defer s.f.Close()
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", s.f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.PathError{Op: "link", Path: path, Err: err}
	}
	return nil
}

// networkKinds are file systems on which another host may write: locks there
// may mean nothing, and appends are not atomic.
var networkKinds = map[int64]string{
	0x6969: "nfs", 0x517B: "smb", 0xFF534D42: "cifs", 0xFE534D42: "smb2", 0x00C36400: "ceph",
	0x01021997: "9p", 0x0BD00BD0: "lustre", 0x47504653: "gpfs", 0x6B414653: "afs", 0x7461636F: "ocfs2", 0x01161970: "gfs2",
}

// NetworkFS is the kind of network file system that path is on, or "".
func NetworkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return networkKinds[int64(uint32(st.Type))], nil
}

// setRange takes or frees a slot as an open-file-description lock, which
// excludes other openings and is gone with the process.
func (l *flock) setRange(cmd int, kind int16, slot uint64) error {
	for {
		err := unix.FcntlFlock(l.f.Fd(), cmd, &unix.Flock_t{Type: kind, Whence: 0, Start: int64(slot), Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (l *flock) TryLockRange(slot uint64) (func(), bool, error) {
	err := l.setRange(unix.F_OFD_SETLK, unix.F_WRLCK, slot)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("lock a request id in %s: %w", l.f.Name(), err)
	}
	return func() { l.setRange(unix.F_OFD_SETLK, unix.F_UNLCK, slot) }, true, nil
}

func (l *flock) LockRange(ctx context.Context, slot uint64) (func(), error) {
	unlock, ok, err := l.TryLockRange(slot)
	if ok || err != nil {
		return unlock, err
	}
	unlock = func() { l.setRange(unix.F_OFD_SETLK, unix.F_UNLCK, slot) }
	err = waitFor(ctx, func() error { return l.setRange(unix.F_OFD_SETLKW, unix.F_WRLCK, slot) }, unlock)
	if err != nil {
		return nil, fmt.Errorf("lock a request id in %s: %w", l.f.Name(), err)
	}
	return unlock, nil
}

func (*flock) SoleProcess() bool { return false }

// RangeHeld reports whether some opening of the lock file at path holds slot
// just now, of this process or another. It takes nothing, and opens the file to
// read only. Where there is no file, nothing is held.
func RangeHeld(path string, slot uint64) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false, errors.Join(fmt.Errorf("look at a lock in %s: it is no regular file", path), err)
	}
	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: int64(slot), Len: 1}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("look at a lock in %s: %w", path, err)
		}
		return lock.Type != unix.F_UNLCK, nil
	}
}

// programName is who holds a lock, as SetHolder writes it.
func programName() string {
	b, _ := os.ReadFile("/proc/self/comm")
	return strings.TrimSpace(string(b))
}
