//go:build darwin || freebsd || netbsd || openbsd

package snapshot

import (
	"os"

	"golang.org/x/sys/unix"
)

// list calls each with the names in f, with "" for a type that is not known.
// It is called once.
func (f *folder) list(each func(name string, t Type)) error {
	fd := -1
	if err := again(func() (err error) { fd, err = unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0); return err }); err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), ".")
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		st, e := f.status(name)
		if e != nil {
			st.typ = ""
		}
		each(name, st.typ)
	}
	return err
}
