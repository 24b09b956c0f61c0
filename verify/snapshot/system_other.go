//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package snapshot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Where the system has no descriptors of directories, paths are looked up
// whole, and identity is left to size and time.

type status struct {
	typ      Type
	size     int64
	mtime    Stamp
	dev, ino uint64
}

func statusOf(info fs.FileInfo) status {
	t := info.ModTime()
	typ := typeOf(info.Mode().Type())
	return status{typ: typ, size: info.Size(), mtime: Stamp{t.Unix(), int32(t.Nanosecond())}}
}

type folder struct{ path string }

func here(path string) (*folder, error) { return &folder{path}, nil }
func (f *folder) hold() *folder         { return f }
func (f *folder) release()              {}

func (f *folder) join(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(f.path, name)
}

func (f *folder) status(name string) (status, error) {
	info, err := os.Lstat(f.join(name))
	if err != nil {
		return status{}, err
	}
	return statusOf(info), nil
}

func (f *folder) open(name string) (file, error) {
	h, err := os.Open(f.join(name))
	return file{h}, err
}

func (f *folder) folder(name string) (*folder, error) {
	info, err := os.Lstat(f.join(name))
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	return &folder{f.join(name)}, err
}

func (f *folder) readlink(name string) (string, error) { return os.Readlink(f.join(name)) }

func (f *folder) list(each func(name string, t Type)) error {
	dir, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.ReadDir(1024)
		for _, d := range names {
			each(d.Name(), typeOf(d.Type()))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type file struct{ *os.File }

func (f file) status() (status, error) {
	info, err := f.Stat()
	if err != nil {
		return status{}, err
	}
	return statusOf(info), nil
}

func (f file) read(b []byte) (int, error) {
	n, err := f.Read(b)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (f file) close() { f.Close() }

func identityOf(os.FileInfo) (dev, ino uint64, ok bool) { return 0, 0, false }

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
func isOtherType(error) bool  { return false }

func beneath(root *os.Root, rel string) (*folder, error) {
	info, err := root.Stat(rel)
	if err == nil && !info.IsDir() {
		err = fs.ErrNotExist
	}
	return &folder{filepath.Join(root.Name(), rel)}, err
}

// typeOf is the type that a directory's listing says; "" where it says none.
func typeOf(m fs.FileMode) Type {
	switch {
	case m == 0:
		return File
	case m&fs.ModeDir != 0:
		return Dir
	case m&fs.ModeSymlink != 0:
		return Link
	case m&fs.ModeNamedPipe != 0:
		return Pipe
	case m&fs.ModeSocket != 0:
		return Socket
	case m&fs.ModeDevice != 0:
		return Device
	}
	return Other
}
