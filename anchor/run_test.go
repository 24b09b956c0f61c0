package anchor_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
)

func noted(t testing.TB, path string, now time.Time, ok bool) {
	t.Helper()
	if err := anchor.NoteRun(path, now, ok); err != nil {
		t.Fatal(err)
	}
}

func runIs(t testing.TB, path string, run, success time.Time) {
	t.Helper()
	r, err := anchor.ReadRun(path)
	if err != nil || !r.LastRun.Equal(run) || !r.LastSuccess.Equal(success) {
		t.Fatalf("%v %v, %v, want %v %v", r.LastRun, r.LastSuccess, err, run, success)
	}
}

// TestRunsAtOnce: pushes that end at once keep what one of them knows of its
// success, and a reader sees a whole file at any time.
func TestRunsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), anchor.RunName)
	noted(t, path, time.Unix(1, 0), true)
	stop := make(chan struct{})
	var readers, pushes sync.WaitGroup
	readers.Go(func() {
		for {
			r, err := anchor.ReadRun(path)
			if err != nil || r.LastRun.IsZero() || r.LastSuccess.IsZero() {
				t.Errorf("%+v, %v", r, err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for round := range 1000 {
		success := time.Unix(int64(round+2), 5)
		for i := range 8 {
			pushes.Go(func() {
				at := success
				if i > 0 {
					at = success.Add(time.Duration(i) * 1e17) // of another length
				}
				if err := anchor.NoteRun(path, at, i == 0); err != nil {
					t.Error(err)
				}
			})
		}
		pushes.Wait()
		if r, err := anchor.ReadRun(path); err != nil || !r.LastSuccess.Equal(success) {
			t.Fatalf("%+v, %v, want %v", r, err, success)
		}
	}
	close(stop)
	readers.Wait()
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, anchor.RunName)
	never := time.Time{}
	runIs(t, path, never, never)
	first := time.Unix(1785200000, 123456789)
	noted(t, path, first, false)
	runIs(t, path, first, never)
	text, err := os.ReadFile(path)
	if want := `{"last_run":1785200000123456789,"last_success":0}`; err != nil || strings.TrimRight(string(text), " \n") != want || text[len(text)-1] != '\n' || bytes.Count(text, []byte("\n")) != 1 {
		t.Fatalf("%q, %v", text, err)
	}
	for i, ok := range []bool{true, false, false, true} {
		now := first.Add(time.Duration(i+1) * time.Hour)
		noted(t, path, now, ok)
		runIs(t, path, now, map[bool]time.Time{true: now, false: first.Add(time.Hour)}[ok])
		if again, _ := os.ReadFile(path); len(again) != len(text) {
			t.Errorf("%d bytes, want always %d", len(again), len(text))
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%v", names)
	}
	// The last times of 64 bits fit too.
	last := time.Unix(0, 1<<63-1)
	noted(t, path, last, true)
	runIs(t, path, last, last)
	// What is not readable is told to a reader, and written anew.
	for _, bad := range []string{"{", "null", `{"last_run":1}`, `{"last_run":"1","last_success":1}`, strings.Repeat("x", 10000), "\x00"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := anchor.ReadRun(path); err == nil || r != (anchor.Run{}) {
			t.Errorf("%.20q: %+v, %v", bad, r, err)
		}
		noted(t, path, first, false)
		runIs(t, path, first, never)
	}
	// As a crash leaves it when it is made.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runIs(t, path, never, never)
	noted(t, path, first, true)
	runIs(t, path, first, first)
	// Nothing is made where there is no ledger.
	absent := filepath.Join(dir, "absent", anchor.RunName)
	noted(t, absent, first, true)
	if _, err := os.Stat(filepath.Dir(absent)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
