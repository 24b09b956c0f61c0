//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// O_NONBLOCK: opening a pipe somebody put in the place of a file must not hang.
const openFlags = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

func infoOf(info fs.FileInfo) Info {
	i := Info{Size: info.Size(), Mode: info.Mode(), Links: 1, Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		i.ID = FileID{uint64(st.Dev), uint64(st.Ino)}
		i.Foreign = int(st.Uid) != os.Geteuid()
		if !info.IsDir() {
			i.Links = uint64(st.Nlink)
		}
	}
	return i
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
