//go:build unix

package anchor_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
)

// TestReceiptsTooLong: a file that no push can have written is not read.
func TestReceiptsTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), anchor.ReceiptsName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 20<<30); err != nil { // sparse
		t.Skip(err)
	}
	if all, err := anchor.ReadReceipts(path); err == nil || all != nil {
		t.Errorf("%d receipts, %v", len(all), err)
	}
}

// TestRunRefuses: what is no regular file is neither read, written, followed nor
// waited for.
func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(path string) error{
		"link":          func(p string) error { return os.Symlink(target, p) },
		"dangling link": func(p string) error { return os.Symlink(filepath.Join(dir, "made"), p) },
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":          func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"device":        func(p string) error { return os.Symlink("/dev/zero", p) },
	} {
		path := filepath.Join(dir, name)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if err := anchor.NoteRun(path, time.Unix(1, 0), true); err == nil {
			t.Errorf("%s: written", name)
		}
		if r, err := anchor.ReadRun(path); err == nil || r != (anchor.Run{}) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if all, err := anchor.ReadReceipts(path); err == nil || all != nil {
			t.Errorf("%s: receipts %v, %v", name, all, err)
		}
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "theirs" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); err == nil {
		t.Error("a link was followed")
	}
}
