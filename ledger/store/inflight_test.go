package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
)

// heldIn, in the environment, makes this test program hold a request id of that
// ledger until its input ends.
const heldIn = "AUDITLEDGER_HELD_IN"

func TestInFlightHolder(t *testing.T) {
	dir := os.Getenv(heldIn)
	if dir == "" {
		return
	}
	s, err := store.Open(t.Context(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.LockRequest(t.Context(), "theirs"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
}

// TestInFlight looks at the ids that this process and another hold. Looking
// takes none of them, and a process that dies holds none.
func TestInFlight(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: this platform has no locks per request id")
	}
	dir := filepath.Join(t.TempDir(), "l")
	is := func(id string, want bool) {
		t.Helper()
		for range 3 {
			if held, err := store.InFlight(dir, id); err != nil || held != want {
				t.Fatalf("%s: %v %v, want %v", id, held, err, want)
			}
		}
	}
	is("ours", false) // there is no ledger yet
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("looking made a directory")
	}
	s, other := open(t, dir, store.Options{}), open(t, dir, store.Options{})
	is("ours", false)
	unlock, err := s.LockRequest(t.Context(), "ours")
	if err != nil {
		t.Fatal(err)
	}
	is("ours", true)
	is("another", false)
	// Somebody who waits for it holds it next.
	got := make(chan func())
	go func() {
		unlock, err := other.LockRequest(context.Background(), "ours")
		if err != nil {
			t.Error(err)
		}
		got <- unlock
	}()
	unlock()
	unlock = <-got
	is("ours", true)
	unlock()
	is("ours", false)
	if unlock, free, err := s.TryLockRequest("ours"); !free || err != nil {
		t.Fatalf("what was looked at is held: %v", err)
	} else {
		unlock()
	}
	// Appending, which locks the whole file in another way, is no call in flight.
	add(t, s, "ours")
	is("ours", false)

	c := exec.Command(os.Args[0], "-test.run=^TestInFlightHolder$")
	c.Env = append(os.Environ(), heldIn+"="+dir)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _, err := bufio.NewReader(out).ReadLine(); string(line) != "held" {
		t.Fatalf("%s %v", line, err)
	}
	is("theirs", true)
	is("ours", false)
	if _, free, err := s.TryLockRequest("theirs"); free || err != nil {
		t.Fatal("looking took the lock away")
	}
	// A lock file that may be read only is enough.
	if err := os.Chmod(filepath.Join(dir, ledger.LockName), 0o400); err != nil {
		t.Fatal(err)
	}
	is("theirs", true)
	c.Process.Kill()
	c.Wait()
	is("theirs", false)
}

// TestInFlightRefuses what is no lock file, and does not wait for it.
func TestInFlightRefuses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: this platform has no locks per request id")
	}
	for name, put := range map[string]func(path string) error{
		"link":      func(p string) error { os.WriteFile(p+".x", nil, 0o600); return os.Symlink(p+".x", p) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":      mkfifo,
	} {
		dir := t.TempDir()
		if err := put(filepath.Join(dir, ledger.LockName)); err != nil {
			t.Fatal(err)
		}
		if held, err := store.InFlight(dir, "x"); err == nil || held {
			t.Errorf("%s: %v %v", name, held, err)
		}
	}
}
