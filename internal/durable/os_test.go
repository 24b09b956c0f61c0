//go:build unix

package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// staging is both ways to stage a file, one of which each platform has.
func staging(t *testing.T) map[string]func(string) (Staged, error) {
	t.Helper()
	ways := map[string]func(string) (Staged, error){"named": stageNamed}
	if s, err := stageUnnamed(t.TempDir()); err == nil {
		s.Discard()
		ways["unnamed"] = stageUnnamed
	} else if runtime.GOOS == "linux" {
		t.Log("SKIPPED: the file system of the tests has no files without a name")
	}
	return ways
}

func TestStage(t *testing.T) {
	for name, stage := range staging(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			put := func(text string) error {
				s, err := stage(dir)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Append([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				if names, _ := filepath.Glob(filepath.Join(dir, "f*")); len(names) > 1 {
					t.Fatal("there before it was published")
				}
				return s.Publish(path)
			}
			if err := put("one"); err != nil {
				t.Fatal(err)
			}
			if err := put("two"); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("publishing over a file: %v, want fs.ErrExist", err)
			}
			if b, _ := os.ReadFile(path); string(b) != "one" {
				t.Fatalf("a published file was replaced by %q", b)
			}
			if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			s, err := stage(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Discard(); err != nil {
				t.Fatal(err)
			}
			if names, _ := os.ReadDir(dir); len(names) != 1 {
				t.Errorf("%d names are left, want 1", len(names))
			}
		})
	}
}

// TestUnnamedStageLeavesNoTrace: a directory's time does not tell of a file
// that was staged and given up.
func TestUnnamedStageLeavesNoTrace(t *testing.T) {
	stage := staging(t)["unnamed"]
	if stage == nil {
		t.Skip("SKIPPED: no files without a name here")
	}
	dir := t.TempDir()
	before, _ := os.Stat(dir)
	s, err := stage(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Append([]byte("x"))
	s.Discard()
	if after, _ := os.Stat(dir); !after.ModTime().Equal(before.ModTime()) {
		t.Error("the directory was touched")
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	defer setUmask(setUmask(0))
	dir := filepath.Join(t.TempDir(), "a", "b")
	if created, err := OS.MkdirAll(dir); err != nil || !created {
		t.Fatal(created, err)
	}
	if created, err := OS.MkdirAll(dir); err != nil || created {
		t.Fatal(created, err)
	}
	if _, err := OS.Open(filepath.Join(dir, "f"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := OS.Lock(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, "..": 0o700, "f": 0o600, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestLock: two openings exclude each other inside one process as between
// processes, by the whole and by slots, and waiting ends with its context.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, err := OS.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OS.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := a.Exclusive(ctx); err != nil {
		t.Fatal(err)
	}
	a.SetHolder("the first")
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := b.Exclusive(short); err == nil || !strings.Contains(err.Error(), "the first") {
		t.Fatalf("a second holder, or an error that does not name the first: %v", err)
	}
	got := make(chan error)
	go func() { got <- b.Exclusive(ctx) }()
	a.SetHolder("a")
	if h := b.Holder(); h != "a" {
		t.Errorf("the holder is told as %q", h)
	}
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Shared(ctx), b.Shared(ctx)); err != nil {
		t.Fatal(err)
	}
	if a.SoleProcess() {
		return
	}
	unlock, err := a.LockRange(ctx, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.TryLockRange(7); ok || err != nil {
		t.Fatalf("a slot has two holders: %v", err)
	}
	if other, ok, err := b.TryLockRange(8); !ok || err != nil {
		t.Fatalf("another slot is held: %v", err)
	} else {
		other()
	}
	short, cancel = context.WithCancel(ctx)
	go func() { _, err := b.LockRange(short, 7); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	unlock()
	// The wait that was given up may get the lock, and then gives it back.
	unlock, err = b.LockRange(ctx, 7)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, make([]byte, 100), 0o600)
	if _, err := OS.ReadFile(path, 99); err == nil {
		t.Error("read past the limit")
	}
	if b, err := OS.ReadFile(path, 100); err != nil || len(b) != 100 {
		t.Error(len(b), err)
	}
}
