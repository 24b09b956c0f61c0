//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// world is all that a ledger directory shows: names, kinds, sizes and times.
// A write that a full disk cut short, and that was taken back, is no change of
// the ledger itself.
func (p *place) world(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(p.ledger, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.Name() == "lock" { // it names who held it last
			return err
		}
		content := fmt.Sprint(info.ModTime().UnixNano())
		if text, err := os.ReadFile(path); path == p.audit() && err == nil {
			content = digest(string(text))
		}
		all = append(all, fmt.Sprint(path, " ", info.Mode(), " ", info.Size(), " ", content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unrecorded checks that s, which cannot write its ledger, denies what is
// denied and does nothing else.
func (p *place) unrecorded(t *testing.T, s *process, id string) {
	t.Helper()
	before := p.world(t)
	for range 2 {
		for _, c := range []struct{ tool, args, want string }{
			{"rm_rf", `{"path":"/"}`, "-32602 tool_not_allowed"},
			{"write_note", note("short", "x"), "-32602 argument_rule"},
			{"write_note", note(id, "x"), "-32603 ledger_unavailable"},
			{"read_ledger", `{}`, "-32603 ledger_unavailable"},
		} {
			if got := s.call(c.tool, c.args).kind(); got != c.want {
				t.Errorf("without a ledger %s is answered %q, want %q", c.tool, got, c.want)
			}
		}
	}
	if after := p.world(t); !slices.Equal(before, after) {
		t.Errorf("something was touched:\n%s\nwas\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// smallDisk puts the ledger on a file system of its own with few pages.
func (p *place) smallDisk(t *testing.T, pages int) {
	t.Helper()
	if err := os.Mkdir(p.ledger, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0700", pages*os.Getpagesize()), "tmpfs", p.ledger).CombinedOutput()
	if err != nil {
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" && os.Geteuid() == 0 {
			t.Fatalf("a small tmpfs cannot be mounted: %v: %s", err, out)
		}
		t.Skipf("a small tmpfs cannot be mounted: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", p.ledger).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}

// fill takes all that is left of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	for range 1 << 20 {
		if _, err := f.Write(page); err != nil {
			return
		}
	}
	t.Fatalf("%s does not fill the disk", path)
}

// TestFullDisk: nothing is done that cannot be recorded, denials stay denials,
// and with room again the server goes on by itself.
func TestFullDisk(t *testing.T) {
	p := newPlace(t)
	p.smallDisk(t, 256)
	s := p.start(t, nil)
	var calls []done
	n := 0
	write := func(text string) done {
		n++
		id := fmt.Sprintf("req-%06d", n)
		d := done{tool: "write_note", id: id, args: note(id, text)}
		d.answer = s.call(d.tool, d.args)
		calls = append(calls, d)
		return d
	}
	for range 3 {
		if got := write("x").kind(); got != "committed" {
			t.Fatalf("with room, a write is answered %q", got)
		}
	}
	filler := filepath.Join(p.ledger, "notes", "filler")
	for round := range 3 {
		fill(t, filler)
		// What is left of the last page takes a few records yet, and no notes.
		for full := false; !full; {
			switch d := write("x"); d.kind() {
			case "-32603 ledger_unavailable":
				full = true
			case "failed": // recorded, since the note had no room
			default:
				t.Fatalf("on a full disk, a write is answered %q: %s", d.kind(), d.text())
			}
		}
		p.unrecorded(t, s, "req-full")
		records, _ := chain(t, p.audit())

		var group sync.WaitGroup
		for c := range 16 {
			group.Go(func() {
				id := fmt.Sprintf("req-%d-%02d", round, c)
				if got := s.call("write_note", note(id, "x")).kind(); got != "-32603 ledger_unavailable" {
					t.Errorf("on a full disk, one of many writes is answered %q", got)
				}
			})
		}
		group.Wait()
		if after, rest := chain(t, p.audit()); len(after) != len(records) || len(rest) > 0 {
			t.Errorf("%d records on the full disk, then %d and %q", len(records), len(after), rest)
		}

		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if got := write("room again").kind(); got != "committed" {
			t.Errorf("with room again, a write is answered %q", got)
		}
		for _, d := range slices.Clone(calls) { // what failed may be tried again
			if d.kind() == "failed" || d.kind() == "-32603 ledger_unavailable" {
				d.answer = s.call(d.tool, d.args)
				if d.kind() != "committed" && d.kind() != "replay" {
					t.Errorf("with room again, %s is answered %q: %s", d.id, d.kind(), d.text())
				}
				calls = append(calls, d)
			}
		}
	}
	s.close()
	p.check(t, calls)
}

// TestFullDiskUnderCallers: the disk fills and empties while many callers
// write; each answer that tells of a record has it.
func TestFullDiskUnderCallers(t *testing.T) {
	p := newPlace(t)
	p.smallDisk(t, 256)
	s := p.start(t, nil).ready()
	filler := filepath.Join(p.ledger, "notes", "filler")
	lists := make([][]done, 16)
	var group sync.WaitGroup
	half := make(chan struct{}, len(lists))
	for c := range lists {
		group.Go(func() {
			for round := range 2 {
				var list []done
				for i := range 6 {
					id := fmt.Sprintf("req-%02d-%d", c, i)
					list = append(list, done{tool: "write_note", id: id, args: note(id, "x")})
				}
				lists[c] = append(lists[c], s.calls(2, list)...)
				if round == 0 {
					half <- struct{}{}
				}
			}
		})
	}
	fill(t, filler)
	for range len(lists) {
		<-half
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	var again []done
	for _, d := range slices.Concat(lists...) {
		d.answer = answer{}
		again = append(again, d)
	}
	again = s.calls(4, again)
	s.close()
	for _, d := range again {
		if d.kind() != "committed" && d.kind() != "replay" {
			t.Errorf("with room, %s is answered %q: %s", d.id, d.kind(), d.text())
		}
	}
	p.check(t, slices.Concat(slices.Concat(lists...), again))
}

// TestLedgerTakenAway: the file is renamed, replaced, linked or cut under a
// running server, which then does nothing more than deny.
func TestLedgerTakenAway(t *testing.T) {
	for name, c := range map[string]struct {
		harm, mend func(path string) error
		starts     bool // another server, while the harm is there
	}{
		"renamed": {harm: func(p string) error { return os.Rename(p, p+".1") }, mend: func(p string) error { return os.Rename(p+".1", p) }},
		"replaced": {
			harm: func(p string) error {
				b, err := os.ReadFile(p)
				if err == nil {
					err = os.Rename(p, p+".1")
				}
				if err == nil {
					err = os.WriteFile(p, b, 0o600)
				}
				return err
			},
			mend:   func(p string) error { return os.Rename(p+".1", p) },
			starts: true,
		},
		"linked": {harm: func(p string) error { return os.Link(p, p+".1") }, mend: func(p string) error { return os.Remove(p + ".1") }},
		"cut": {
			harm: func(p string) error {
				b, err := os.ReadFile(p)
				if err == nil {
					err = os.WriteFile(p+".1", b, 0o600)
				}
				if err == nil {
					err = os.Truncate(p, int64(len(b)/2))
				}
				return err
			},
			mend: func(p string) error { return os.Rename(p+".1", p) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			s := p.start(t, nil)
			calls := []done{{"write_note", "req-0001", note("req-0001", "x"), s.call("write_note", note("req-0001", "x"))}}
			if err := c.harm(p.audit()); err != nil {
				t.Fatal(err)
			}
			p.unrecorded(t, s, "req-0002")
			if !c.starts {
				before := p.world(t)
				p.start(t, nil).exit(1)
				if after := p.world(t); !slices.Equal(before, after) {
					t.Errorf("a start that was refused touched something:\n%s\nwas\n%s", after, before)
				}
			}
			if err := c.mend(p.audit()); err != nil {
				t.Fatal(err)
			}
			if got := s.call("write_note", note("req-0002", "x")).kind(); got != "-32603 ledger_unavailable" {
				t.Errorf("a server that stopped writing answers a write %q", got)
			}
			s.close()
			s = p.start(t, nil)
			for _, id := range []string{"req-0001", "req-0002"} {
				calls = append(calls, done{"write_note", id, note(id, "x"), s.call("write_note", note(id, "x"))})
			}
			s.close()
			if got := []string{calls[0].kind(), calls[1].kind(), calls[2].kind()}; !slices.Equal(got, []string{"committed", "replay", "committed"}) {
				t.Errorf("before, and after a restart: %q", got)
			}
			p.check(t, calls)
		})
	}
}

// TestDirectoriesTakenAway: the rights on a directory go while the server runs.
func TestDirectoriesTakenAway(t *testing.T) {
	p := newPlace(t)
	p.unprivileged(t)
	s := p.start(t, nil)
	var calls []done
	write := func(id, want string) {
		t.Helper()
		d := done{"write_note", id, note(id, "x"), s.call("write_note", note(id, "x"))}
		calls = append(calls, d)
		if d.kind() != want {
			t.Errorf("%s is answered %q, want %q: %s", id, d.kind(), want, d.text())
		}
	}
	mode := func(dir string, m fs.FileMode) {
		t.Helper()
		if err := os.Chmod(dir, m); err != nil {
			t.Fatal(err)
		}
	}
	write("req-0001", "committed")
	// The notes: the call fails, with its record, and may be tried again.
	mode(p.notes(), 0o500)
	write("req-0002", "failed")
	write("req-0001", "replay")
	mode(p.notes(), 0o700)
	write("req-0002", "committed")
	mode(p.notes(), 0)
	write("req-0003", "failed")
	mode(p.notes(), 0o700)
	write("req-0003", "committed")
	p.check(t, calls)
	// The whole: nothing is known of what is written there.
	mode(p.ledger, 0)
	for _, c := range []struct{ tool, args, want string }{
		{"rm_rf", `{}`, "-32602 tool_not_allowed"},
		{"write_note", note("req-0004", "x"), "-32603 ledger_unavailable"},
		{"read_ledger", `{}`, "-32603 ledger_unavailable"},
	} {
		if got := s.call(c.tool, c.args).kind(); got != c.want {
			t.Errorf("without rights %s is answered %q, want %q", c.tool, got, c.want)
		}
	}
	mode(p.ledger, 0o700)
	s.close()
	p.check(t, calls)
}

// TestStartRefused: a server does not start on a ledger that is not whole, or
// not its own, and leaves it as it is.
func TestStartRefused(t *testing.T) {
	for name, harm := range map[string]func(path string, text string) error{
		"edited": func(p, text string) error {
			return os.WriteFile(p, []byte(strings.Replace(text, "req-0001", "req-0009", 1)), 0o600)
		},
		"tail cut": func(p, text string) error {
			lines := strings.SplitAfter(text, "\n")
			return os.WriteFile(p, []byte(strings.Join(lines[:3], "")), 0o600)
		},
		"symbolic link": func(p, text string) error {
			if err := os.Rename(p, p+".real"); err != nil {
				return err
			}
			return os.Symlink(p+".real", p)
		},
		"hard link":  func(p, text string) error { return os.Link(p, filepath.Join(filepath.Dir(filepath.Dir(p)), "other")) },
		"write-only": func(p, text string) error { return os.Chmod(p, 0o200) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.unprivileged(t)
			s := p.start(t, nil)
			for i := range 3 {
				s.call("write_note", note(fmt.Sprintf("req-%04d", i), "x"))
			}
			s.close()
			if err := harm(p.audit(), string(read(t, p.audit()))); err != nil {
				t.Fatal(err)
			}
			before := p.world(t)
			s = p.start(t, nil)
			s.exit(1)
			if after := p.world(t); !slices.Equal(before, after) {
				t.Errorf("something was touched:\n%s\nwas\n%s", after, before)
			}
			log := string(read(t, s.stderr))
			if last := log[strings.LastIndex(strings.TrimSuffix(log, "\n"), "\n")+1:]; !strings.HasPrefix(last, "gated-mcp: ") || !strings.Contains(last, p.ledger) {
				t.Errorf("the last line of stderr does not say what is wrong with which ledger: %q", last)
			}
		})
	}
}

// TestPrivateModes: whatever the umask and what was there before.
func TestPrivateModes(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{p.ledger, p.notes()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, p.audit(), "")
	if err := os.Chmod(p.audit(), 0o644); err != nil {
		t.Fatal(err)
	}
	s := p.run(t, nil, "/bin/sh", "-c", `umask 000; exec "$0"`, program(t, "gated-mcp"))
	if got := s.call("write_note", note("req-0001", "x")).kind(); got != "committed" {
		t.Errorf("answered %q", got)
	}
	s.close()
	err := filepath.WalkDir(p.ledger, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
