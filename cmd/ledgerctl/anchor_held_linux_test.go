package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/auditledger/auditledger/ledger"
)

// TestPushBesideAHeldLock: what a writer that keeps the lock may not have made
// durable is not anchored: a locked statement of it could never be taken back.
func TestPushBesideAHeldLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	t.Setenv("LEDGER_ANCHOR", "file://"+filepath.ToSlash(t.TempDir()))
	write(t, dir, 1, 3)
	lock, err := os.OpenFile(filepath.Join(dir, ledger.LockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	exits(t, exitUnchecked, "a writer keeps the lock", "anchor", "push", dir)
	lock.Close()
	exits(t, exitOK, "anchored 3 records", "anchor", "push", dir)
}
