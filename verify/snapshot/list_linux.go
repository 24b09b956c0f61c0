package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// listed are the types in a directory's own listing, which saves a look at
// each name. Some file systems tell none.
var listed = map[byte]Type{unix.DT_REG: File, unix.DT_DIR: Dir, unix.DT_LNK: Link, unix.DT_FIFO: Pipe, unix.DT_SOCK: Socket, unix.DT_CHR: Device, unix.DT_BLK: Device}

// list calls each with the names in f, with "" for a type that is not known.
// It is called once.
func (f *folder) list(each func(name string, t Type)) error {
	buf := make([]byte, 64<<10)
	for {
		n := 0
		if err := again(func() (err error) { n, err = unix.Getdents(f.fd, buf); return err }); err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		// Each: inode and offset in 8 bytes, its length in 2, the type, the name up to a zero byte.
		for rest := buf[:n]; len(rest) > 0; {
			const header = 19
			size := 0
			if len(rest) > header {
				size = int(binary.NativeEndian.Uint16(rest[16:]))
			}
			if size <= header || size > len(rest) {
				return errors.New("the system's list of names cannot be read")
			}
			name, _, _ := bytes.Cut(rest[header:size], []byte{0})
			t, known := listed[rest[18]]
			if !known {
				if st, err := f.status(string(name)); err == nil {
					t = st.typ
				}
			}
			if s := string(name); s != "." && s != ".." {
				each(s, t)
			}
			rest = rest[size:]
		}
	}
}
