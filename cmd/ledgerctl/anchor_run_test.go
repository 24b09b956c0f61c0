package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/verify"
)

// TestPushNotesItsRun: every push leaves a trace in the ledger's directory, one
// that fails moves the time of the last run alone, and nothing takes the file
// for a part of the ledger, or for something strange.
func TestPushNotesItsRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	path := filepath.Join(dir, anchor.RunName)
	t.Setenv("LEDGER_ANCHOR", "file://"+filepath.ToSlash(t.TempDir()))
	push := func(code int, text string, args ...string) (r anchor.Run, success bool) {
		t.Helper()
		before, err := anchor.ReadRun(path)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		exits(t, code, text, append([]string{"anchor", "push", dir}, args...)...)
		if r, err = anchor.ReadRun(path); err != nil || r.LastRun.Before(start.Round(0)) {
			t.Fatalf("after a push at %v: %+v, %v", start, r, err)
		}
		if success = r.LastSuccess.Equal(r.LastRun); !success && !r.LastSuccess.Equal(before.LastSuccess) {
			t.Fatalf("%+v after %+v", r, before)
		}
		return r, success
	}
	elsewhere := filepath.Join(t.TempDir(), "r")

	exits(t, exitUnchecked, "", "anchor", "push", dir, "--receipts", elsewhere)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a directory was made for the note of a run")
	}
	write(t, dir, 1, 0)
	if r, ok := push(exitUnchecked, "there is no record to anchor", "--receipts", elsewhere); ok || !r.LastSuccess.IsZero() {
		t.Errorf("an empty ledger: %+v", r)
	}
	write(t, dir, 1, 5)
	if _, ok := push(exitOK, "anchored 5 records", "--receipts", elsewhere); !ok {
		t.Error("a success is none")
	}
	if _, err := os.Stat(filepath.Join(dir, anchor.ReceiptsName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the receipts are not elsewhere")
	}
	if _, ok := push(exitOK, "anchored already"); !ok {
		t.Error("on an idle ledger a success is none")
	}
	tried, _ := anchor.ReadRun(path)
	exits(t, exitUsage, "no place for anchors", "anchor", "push", dir, "--to", "ftp://x")
	if r, err := anchor.ReadRun(path); err != nil || r != tried {
		t.Errorf("what was mistyped counts as tried: %+v, %v", r, err)
	}
	stray := func(w verify.Warning) bool { return w.Kind == verify.WarnStray }
	if r := verdictOf(t, dir); r.Verdict != verify.Anchored || slices.ContainsFunc(r.Warnings, stray) {
		t.Errorf("%s, %+v", r.Verdict, r.Warnings)
	}
	write(t, dir, 6, 7) // the store does not mind it
	good := copyOf(t, dir)
	forge(t, dir, 7, 3)
	if _, ok := push(exitTampered, "refused"); ok {
		t.Error("a push that was refused is a success")
	}

	// Where it cannot be written, that is said, and nothing more.
	restore(t, good, dir)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	out, errs, code := ctl(t, "anchor", "push", dir)
	if code != exitOK || !strings.Contains(out, "anchored 2 records") || !strings.Contains(errs, "note: that anchoring was tried could not be noted: ") || !strings.Contains(errs, anchor.RunName) {
		t.Errorf("status %d\n%s%s", code, out, errs)
	}
}
