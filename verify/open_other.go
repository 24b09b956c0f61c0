//go:build !unix

package verify

import (
	"context"
	"errors"
	"os"
	"time"
)

func openFile(path string, follow bool) (*os.File, os.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !follow && info.Mode()&os.ModeSymlink != 0 {
		return nil, nil, errSymlink
	}
	if info, err = os.Stat(path); err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errNotRegular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return regular(f)
}

func lockShared(_ context.Context, f *os.File, _ time.Duration) error {
	f.Close()
	return errors.ErrUnsupported
}
