//go:build linux || darwin || freebsd || netbsd || openbsd

package snapshot

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A status is what the system says of a path or of an open file.
type status struct {
	typ          Type
	size         int64
	mtime, ctime Stamp
	dev, ino     uint64
}

func statusOf(st *unix.Stat_t) status {
	s := status{size: st.Size, dev: uint64(st.Dev), ino: st.Ino,
		mtime: Stamp{int64(st.Mtim.Sec), int32(st.Mtim.Nsec)}, ctime: Stamp{int64(st.Ctim.Sec), int32(st.Ctim.Nsec)}}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.typ = File
	case unix.S_IFDIR:
		s.typ = Dir
	case unix.S_IFLNK:
		s.typ = Link
	case unix.S_IFIFO:
		s.typ = Pipe
	case unix.S_IFSOCK:
		s.typ = Socket
	case unix.S_IFCHR, unix.S_IFBLK:
		s.typ = Device
	default:
		s.typ = Other
	}
	return s
}

// again calls f until no signal interrupts it.
func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A folder is an open directory. It is closed when nobody uses it any more.
type folder struct {
	fd   int
	refs atomic.Int32
}

// here is the folder from which relative paths are taken; absolute paths may
// be looked up in any folder. It is the working directory where path is "".
func here(path string) (*folder, error) {
	f := &folder{fd: unix.AT_FDCWD}
	f.refs.Store(1)
	if path == "" {
		return f, nil
	}
	err := again(func() (err error) {
		f.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return f, err
}

func (f *folder) hold() *folder { f.refs.Add(1); return f }

func (f *folder) release() {
	if f.refs.Add(-1) == 0 && f.fd != unix.AT_FDCWD {
		unix.Close(f.fd)
	}
}

// status is that of name itself, also where it is a link.
func (f *folder) status(name string) (status, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return statusOf(&st), err
}

// open opens name to read. It follows no link and never waits.
func (f *folder) open(name string) (file, error) {
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		return err
	})
	return file{fd}, err
}

func (f *folder) folder(name string) (*folder, error) {
	sub := new(folder)
	sub.refs.Store(1)
	err := again(func() (err error) {
		sub.fd, err = unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return sub, err
}

func (f *folder) readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n := 0
		err := again(func() (err error) { n, err = unix.Readlinkat(f.fd, name, buf); return err })
		if err != nil || n < size {
			return string(buf[:max(n, 0)]), err
		}
	}
}

// A file is an open file.
type file struct{ fd int }

func (f file) status() (status, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstat(f.fd, &st) })
	return statusOf(&st), err
}

func (f file) read(b []byte) (n int, err error) {
	err = again(func() (err error) { n, err = unix.Read(f.fd, b); return err })
	return max(n, 0), err
}

func (f file) close() { unix.Close(f.fd) }

// identityOf is dev and ino of info.
func identityOf(info os.FileInfo) (dev, ino uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(st.Dev), uint64(st.Ino), true
}

// isAbsent reports whether err says that there is no such path.
func isAbsent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// isOtherType reports whether err is that of opening what is no regular file.
func isOtherType(err error) bool {
	return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EFTYPE)
}

// beneath opens the directory at the relative path rel in root, following only
// links that stay in root.
func beneath(root *os.Root, rel string) (*folder, error) {
	dir, err := root.OpenFile(rel, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	f := &folder{fd: -1}
	f.refs.Store(1)
	var inner error
	err = conn.Control(func(fd uintptr) {
		inner = again(func() (err error) { f.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); return err })
	})
	return f, errors.Join(err, inner)
}
