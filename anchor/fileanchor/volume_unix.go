//go:build unix

package fileanchor

import (
	"errors"
	"os"
	"syscall"
)

// openFlags let nothing that was put in the place of a file be followed, or keep
// who opens it waiting.
const openFlags = syscall.O_NOFOLLOW | syscall.O_CLOEXEC | syscall.O_NONBLOCK

// sameVolume reports whether two paths are on one file system.
func sameVolume(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	sx, ok1 := x.Sys().(*syscall.Stat_t)
	sy, ok2 := y.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 {
		return false, errors.ErrUnsupported
	}
	return sx.Dev == sy.Dev, nil
}
