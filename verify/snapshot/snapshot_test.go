package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// take is a snapshot of dir from inside, as a text and by path.
func take(t *testing.T, dir string, o Options) (string, map[string]Entry) {
	t.Helper()
	var b bytes.Buffer
	o.Base = dir
	s, err := Take(t.Context(), &b, []string{"."}, o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Entry{}
	r, err := NewReader(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all[e.Path] = e
	}
	if s.Entries != int64(len(all)) || s.Sum != r.Sum() {
		t.Errorf("the summary says %d entries, %s; the reader saw %d, %s", s.Entries, s.Sum, len(all), r.Sum())
	}
	return b.String(), all
}

// compare is the differences of two snapshots, a line each: path, kind, reason.
func compare(t *testing.T, before, after string) []string {
	t.Helper()
	lines, _ := compareAll(t, before, after)
	return lines
}

func compareAll(t *testing.T, before, after string) ([]string, Counts) {
	t.Helper()
	b, err := NewReader(strings.NewReader(before))
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewReader(strings.NewReader(after))
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	counts, err := Compare(b, a, func(c Change) error {
		lines = append(lines, strings.TrimRight(fmt.Sprint(c.Path, " ", c.Kind, " ", c.Reason), " "))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, counts
}

func want(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOrderIsThatOfBytes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x", "a.b/y", "a-b", "a/a/a", "a0", "é", "z", "Z", "a/x.y/1", "a/x.y.z"} {
		write(t, filepath.Join(dir, name), name)
	}
	text, _ := take(t, dir, Options{})
	var paths []string
	for _, line := range strings.Split(text, "\n") {
		if e, err := ParseEntry([]byte(line)); err == nil {
			paths = append(paths, e.Path)
		}
	}
	if len(paths) != 15 || !slices.IsSorted(paths) {
		t.Errorf("%d paths: %q", len(paths), paths)
	}
	again, _ := take(t, dir, Options{Workers: 7})
	_, rest, _ := strings.Cut(text, "\n")
	if _, other, _ := strings.Cut(again, "\n"); other != rest {
		t.Error("two snapshots of one state differ below the header")
	}
}

func TestRoots(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/f"), "1")
	write(t, filepath.Join(dir, "a.b"), "2")
	for _, paths := range [][]string{nil, {""}, {"a", "a/f"}, {".", "a"}, {"a\x00"}, {"/", "/tmp"}} {
		var b bytes.Buffer
		if _, err := Take(t.Context(), &b, paths, Options{Base: dir}); err == nil || b.Len() != 0 {
			t.Errorf("%q was taken: %v", paths, err)
		}
	}
	var b bytes.Buffer
	_, err := Take(t.Context(), &b, []string{"gone", "a/", "a.b", "./a", "a/f/below"}[:4], Options{Base: dir})
	must(t, err)
	for _, part := range []string{`"roots":["a","a.b","gone"]`, `"path":"a",`, `"path":"a/f",`, `{"path":"gone","reason":"no such file or directory","state":"absent"}`, `{"entries":4,`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %s in\n%s", part, b.String())
		}
	}
}

// The hash decides: a rewrite of equal length with the old time put back.
func TestRewriteWithOldTime(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	write(t, file, "hello")
	old, err := os.Stat(file)
	must(t, err)
	before, _ := take(t, dir, Options{})
	write(t, file, "jello")
	must(t, os.Chtimes(file, time.Time{}, old.ModTime()))
	after, all := take(t, dir, Options{})
	want(t, compare(t, before, after), []string{"./f content"})
	if all["./f"].MTime.Time() != old.ModTime() {
		t.Error("the time is not the old one")
	}
}

func TestOnlyTheTimeDiffers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	write(t, file, "hello")
	at := time.Unix(1769868242, 999999931)
	must(t, os.Chtimes(file, at, at))
	before, all := take(t, dir, Options{})
	if !strings.Contains(before, `"mtime_ns":1769868242999999931,`) || all["./f"].MTime != (Stamp{1769868242, 999999931}) {
		t.Errorf("not exact: %s", before)
	}
	want(t, compare(t, before, before), []string{})
	at = at.Add(-931)
	must(t, os.Chtimes(file, at, at))
	after, _ := take(t, dir, Options{})
	want(t, compare(t, before, after), []string{"./f time"})
}

func TestStamps(t *testing.T) {
	for _, c := range []struct {
		s    Stamp
		text string
	}{
		{Stamp{}, "0"}, {Stamp{0, 1}, "1"}, {Stamp{-1, 999999999}, "-1"}, {Stamp{-1, 0}, "-1000000000"},
		{Stamp{1769868242, 999999931}, "1769868242999999931"},
		{Stamp{9223372036, 854775807}, "9223372036854775807"}, {Stamp{9223372036, 854775808}, "9223372036854775808"},
		{Stamp{-9223372037, 145224191}, "-9223372036854775809"},
		{Stamp{13569465600, 0}, "13569465600000000000"},
		{Stamp{math.MaxInt64, 999999999}, "9223372036854775807999999999"}, {Stamp{math.MinInt64, 0}, "-9223372036854775808000000000"},
	} {
		text, _ := c.s.AppendText(nil)
		back, ok := parseStamp(text)
		if string(text) != c.text || !ok || back != c.s {
			t.Errorf("%v is written as %s and read as %v, want %s", c.s, text, back, c.text)
		}
	}
}

func TestChanges(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"same", "gone", "grown", "becomes-dir", "kept/x", "lost/deep/y"} {
		write(t, at(name), name)
	}
	before, _ := take(t, dir, Options{})
	must(t, os.Remove(at("gone")))
	write(t, at("grown"), "more of it")
	must(t, os.Remove(at("becomes-dir")))
	write(t, at("becomes-dir/in"), "")
	must(t, os.RemoveAll(at("lost")))
	write(t, at("new"), "")
	after, _ := take(t, dir, Options{})
	lines, counts := compareAll(t, before, after)
	want(t, lines, []string{". time", "./becomes-dir type", "./becomes-dir/in added", "./gone removed", "./grown content", "./lost removed", "./lost/deep removed", "./lost/deep/y removed", "./new added"})
	if counts.Same != 3 || !counts.Differs() || counts.Of[Removed] != 4 {
		t.Errorf("%+v", counts)
	}
}

// A file that is appended to while it is read: the same call after each read.
func TestAppendDuringRead(t *testing.T) {
	for _, size := range []int{10, 300 << 10, 5 << 20} {
		dir := t.TempDir()
		file := filepath.Join(dir, "f")
		write(t, file, strings.Repeat("x", size))
		grow := func([]byte) error {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("more")
			return err
		}
		text, all := take(t, dir, Options{testingRead: grow})
		e := all["./f"]
		if e.Unhashed != Unstable || e.Hashed || e.Reason == "" || e.Size != int64(size) {
			t.Errorf("size %d: %+v", size, e)
		}
		now, _ := take(t, dir, Options{})
		lines := compare(t, text, now)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "./f unknown before: unstable: ") {
			t.Errorf("%q", lines)
		}
	}
}

// A file that is exchanged between status and content: one descriptor for both.
func TestSwapBetweenStatusAndContent(t *testing.T) {
	for _, size := range []int{5, 1 << 20, 4 << 20} {
		dir, aside := t.TempDir(), t.TempDir()
		file, other := filepath.Join(dir, "f"), filepath.Join(aside, "other")
		write(t, file, strings.Repeat("a", size))
		write(t, other, strings.Repeat("b", size))
		_, all := take(t, dir, Options{testingOpened: func(string) { must(t, os.Rename(other, file)) }})
		e := all["./f"]
		if e.Hashed && e.SHA256 != ledger.Digest(bytes.Repeat([]byte("a"), size)) {
			t.Errorf("size %d: the hash is that of another file than the status", size)
		}
		_, all = take(t, dir, Options{})
		if all["./f"].SHA256 != ledger.Digest(bytes.Repeat([]byte("b"), size)) {
			t.Error("the file was not exchanged")
		}
	}
}

// Over the cap, or an error half-way: said, and no weaker value.
func TestNotHashed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "small"), "12345")
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 6))
	_, good := take(t, dir, Options{})
	text, all := take(t, dir, Options{MaxSize: 5})
	if e := all["./large"]; e.Hashed || e.Unhashed != TooLarge || e.Reason != "larger than 5 bytes" || !all["./small"].Hashed || !strings.Contains(text, `"max_size":5,`) {
		t.Errorf("%+v", e)
	}
	if !good["./large"].Hashed {
		t.Error("not hashed without a cap")
	}

	big := filepath.Join(dir, "big")
	write(t, big, strings.Repeat("x", 3<<20))
	before, _ := take(t, dir, Options{})
	var reads atomic.Int32 // of the large file, which alone fills a buffer
	after, all := take(t, dir, Options{Workers: 1, testingRead: func(b []byte) error {
		if len(b) == bufSize && reads.Add(1) == 3 {
			return errors.New("input/output error")
		}
		return nil
	}})
	if e := all["./big"]; e.Hashed || e.Unhashed != Unreadable || e.Reason != "input/output error" {
		t.Errorf("%+v", e)
	}
	want(t, compare(t, before, after), []string{"./big unknown after: unreadable: input/output error"})
	want(t, compare(t, after, before), []string{"./big unknown before: unreadable: input/output error"})
}

// The rule for a ledger's own files, and its edges.
func TestLedgerIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, "l", name) }
	for _, name := range []string{"audit.jsonl", "lock", "head.json", "audit-00000000000000000001.jsonl", "audit-00000000000000000009.jsonl.zst", "torn/x", "notes/n.json", "audit-1.jsonl", "other"} {
		write(t, at(name), name)
	}
	before, all := take(t, dir, Options{})
	for path, state := range map[string]State{
		"./l": Exists, "./l/audit.jsonl": LeftOut, "./l/lock": LeftOut, "./l/head.json": LeftOut, "./l/torn": LeftOut,
		"./l/audit-00000000000000000001.jsonl": LeftOut, "./l/audit-00000000000000000009.jsonl.zst": LeftOut,
		"./l/notes/n.json": Exists, "./l/audit-1.jsonl": Exists, "./l/other": Exists,
	} {
		if all[path].State != state {
			t.Errorf("%s is %q, want %q", path, all[path].State, state)
		}
	}
	if _, there := all["./l/torn/x"]; there {
		t.Error("torn was looked into")
	}
	write(t, at("audit.jsonl"), "more")
	write(t, at("audit-00000000000000000020.jsonl"), "sealed")
	after, _ := take(t, dir, Options{})
	lines, counts := compareAll(t, before, after)
	want(t, lines, []string{"./l time"}) // the directory's, which holds one name more
	if counts.LeftOut != 7 {
		t.Errorf("%+v", counts)
	}
	// Without one of the three it is a directory like others; what was looked at before is not called same.
	must(t, os.Rename(at("head.json"), at("head")))
	plain, all := take(t, dir, Options{})
	if all["./l/audit.jsonl"].State != Exists {
		t.Error("left out without head.json")
	}
	lines = compare(t, plain, after)
	if !slices.Contains(lines, "./l/audit.jsonl unknown after: left out as a ledger's own file") || !slices.Contains(lines, "./l/head removed") {
		t.Errorf("%q", lines)
	}
}

// What was not looked at on one side is unknown, never added or removed.
func TestUnlikeRoots(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/f"), "1")
	write(t, filepath.Join(dir, "b"), "2")
	snap := func(paths ...string) string {
		var b bytes.Buffer
		_, err := Take(t.Context(), &b, paths, Options{Base: dir})
		must(t, err)
		return b.String()
	}
	want(t, compare(t, snap("a"), snap("a", "b")), []string{"b unknown before: it lies in no root"})
	want(t, compare(t, snap("a", "b"), snap("a/f")), []string{"a unknown after: it lies in no root", "b unknown after: it lies in no root"})
}

// A reader takes what Take writes, and nothing that differs from it by one byte.
func TestReaderIsStrict(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/f"), "1")
	write(t, filepath.Join(dir, "b"), "2")
	text, _ := take(t, dir, Options{})
	read := func(text string) error {
		r, err := NewReader(strings.NewReader(text))
		for err == nil {
			_, err = r.Next()
		}
		return err
	}
	if err := read(text); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for i := range len(text) {
		if err := read(text[:i]); errors.Is(err, io.EOF) {
			t.Fatalf("the first %d of %d bytes are taken for whole", i, len(text))
		}
	}
	_, entries, _ := strings.Cut(text, "\n")
	head := len(text) - len(entries)
	for i := head; i < len(text); i++ {
		for _, c := range []byte{text[i] ^ 1, text[i] ^ 0x20, '\n', ' '} {
			changed := text[:i] + string(c) + text[i+1:]
			if err := read(changed); changed != text && errors.Is(err, io.EOF) {
				t.Fatalf("taken with byte %d changed: %q", i, changed)
			}
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	swapped := slices.Clone(lines)
	swapped[2], swapped[3] = swapped[3], swapped[2]
	for _, bad := range []string{"", "\n", text + "x", text + "\n", text + text, strings.Join(swapped, "") + "\n", strings.ReplaceAll(text, "\n", "\r\n"), " " + text,
		strings.Join(slices.Delete(slices.Clone(lines), 2, 3), "") + "\n", strings.Replace(text, `"version":1`, `"version":2`, 1)} {
		if err := read(bad); errors.Is(err, io.EOF) {
			t.Errorf("taken: %q", bad)
		}
	}
}

func FuzzEntry(f *testing.F) {
	for _, line := range []string{
		`{"mtime_ns":1,"path":"a","state":"exists","type":"dir"}`,
		`{"link":"x","mtime_ns":-1,"path":"a/b","state":"exists","type":"link"}`,
		`{"link_b64":"/w==","mtime_ns":1,"path_b64":"/g==","state":"exists","type":"link"}`,
		`{"mtime_ns":1,"path":"f","sha256":"` + strings.Repeat("0", 64) + `","size":0,"state":"exists","type":"file"}`,
		`{"mtime_ns":1,"path":"f","reason":"x","size":9,"state":"exists","type":"file","unhashed":"too_large"}`,
		`{"path":"f/","reason":"permission denied","state":"unknown"}`,
	} {
		if _, err := ParseEntry([]byte(line)); err != nil {
			f.Fatalf("%s: %v", line, err)
		}
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, err := ParseEntry(line); err == nil && !bytes.Equal(e.Append(nil), line) {
			t.Errorf("%q is written as %q", line, e.Append(nil))
		}
	})
}

// An interrupted snapshot ends early, is an error, and leaves nothing open.
func TestCancel(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		write(t, filepath.Join(dir, fmt.Sprint(i%17), fmt.Sprint(i)), "x")
	}
	open := openFiles(t)
	for at := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := Take(ctx, io.Discard, []string{"."}, Options{Base: dir, Workers: 3, testingOpened: func(string) {
			if n++; n == at*15 {
				cancel()
			}
		}}.serial())
		if at > 0 && !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", at, err)
		}
		cancel()
	}
	if now := openFiles(t); now != open {
		t.Errorf("%d files are open, %d were", now, open)
	}
	if _, err := Take(t.Context(), brokenWriter{}, []string{"."}, Options{Base: dir}); err == nil {
		t.Error("a failed write is a success")
	}
}

// serial makes the testing hooks run one at a time.
func (o Options) serial() Options { o.Workers = 1; return o }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("open files cannot be counted: %v", err)
	}
	return len(list)
}

// Many directories at once, under the race detector.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 2000 {
		write(t, filepath.Join(dir, fmt.Sprint(i%53), fmt.Sprint(i)), strings.Repeat("x", i*i%700))
	}
	for i := range 8 {
		write(t, filepath.Join(dir, "big", fmt.Sprint(i)), strings.Repeat("y", i*900<<10))
	}
	var calls int
	text, all := take(t, dir, Options{Workers: 8, Progress: func(entries, bytes int64) { calls++ }})
	if len(all) != 1+53+2000+1+8 || calls == 0 {
		t.Errorf("%d entries, %d calls", len(all), calls)
	}
	for path, e := range all {
		if e.Type == File {
			content, err := os.ReadFile(filepath.Join(dir, path))
			must(t, err)
			if e.SHA256 != ledger.Digest(content) || e.Size != int64(len(content)) {
				t.Errorf("%s: %+v", path, e)
			}
		}
	}
	other, _ := take(t, dir, Options{})
	want(t, compare(t, text, other), []string{})
}

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("root/f"), "hello")
	write(t, at("root/d/x"), "1")
	write(t, at("root/d/y"), "2")
	write(t, at("outside/secret"), "s")
	must(t, os.Symlink("../outside", at("root/out")))
	must(t, os.Symlink("d", at("root/in")))
	must(t, os.Symlink("/etc/passwd", at("root/abs")))
	l := Limits{Time: time.Minute, Bytes: 100, Entries: 10}
	for _, c := range []struct{ path, want string }{
		{"root/f", `"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","size":5,"state":"exists","type":"file"}`},
		{at("root/f"), `"size":5,"state":"exists","type":"file"}`},
		{"root/d", `{"entries":3,"mtime_ns":`},
		{"root/in/x", `"size":1,"state":"exists","type":"file"}`},
		{"root/in", `{"link":"d","mtime_ns":`},
		{"root/abs", `{"link":"/etc/passwd","mtime_ns":`},
		{"root/gone", `{"reason":"no such file or directory","state":"absent"}`},
		{"root/f/x", `"state":"absent"}`},
		{"root/out/secret", `{"reason":"a link leads out of target_root","state":"not_looked_at"}`},
		{"root/abs/x", `{"reason":"a link leads out of target_root","state":"not_looked_at"}`},
		{"outside/secret", `{"reason":"outside of target_root","state":"not_looked_at"}`},
		{"/etc/passwd", `{"reason":"outside of target_root","state":"not_looked_at"}`},
		{"root/../root/f", `which means another place`},
		{"", `"state":"not_looked_at"}`},
		{"a\x00", `"state":"not_looked_at"}`},
		{strings.Repeat("a/", 3000), `"state":"not_looked_at"}`},
		{"root", `{"entries":8,`},
	} {
		found := Target(t.Context(), "root", c.path, l)
		if got := string(found.appendJSON(nil)); !strings.Contains(got, c.want) {
			t.Errorf("%.50s: %s, want %s", c.path, got, c.want)
		}
	}
	write(t, at("root/d/large"), strings.Repeat("x", 101))
	for path, reason := range map[string]string{"root/d": "more than 100 bytes in it", "root/d/large": "more than 100 bytes"} {
		if found := Target(t.Context(), "root", path, l); found.State != NotLookedAt || found.Reason != reason {
			t.Errorf("%s: %+v", path, found)
		}
	}
	l.Entries = 3
	if found := Target(t.Context(), "root", "root/d", l); found.State != NotLookedAt || found.Reason != "more than 3 entries" {
		t.Errorf("%+v", found)
	}
	l.Time = 0
	if found := Target(t.Context(), "root", "root/d", l); found.State != NotLookedAt {
		t.Errorf("%+v", found)
	}
	if found := Target(t.Context(), "nowhere", "nowhere/x", Limits{Time: time.Minute}); found.State != NotLookedAt || !strings.HasPrefix(found.Reason, "target_root: ") {
		t.Errorf("%+v", found)
	}
}
