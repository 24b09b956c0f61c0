//go:build linux || darwin

package snapshot

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditledger/auditledger/ledger"
)

// asNobody makes this process one whom permissions bind, until the test ends.
// What it has to reach is made reachable.
func asNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, syscall.Seteuid(65534))
	t.Cleanup(func() { must(t, syscall.Seteuid(0)) })
}

// A pipe without a writer, sockets, devices: recorded, not read, in time.
func TestNothingBlocks(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // short: a socket's name
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	must(t, err)
	defer l.Close()
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	must(t, os.Symlink("pipe", filepath.Join(dir, "to-pipe")))
	types := map[string]Type{"./pipe": Pipe, "./sock": Socket, "./zero": Link, "./to-pipe": Link}
	if err := unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err == nil {
		types["./null"] = Device
	} else {
		t.Logf("no device could be made: %v", err)
	}
	_, all := take(t, dir, Options{})
	for path, typ := range types {
		e := all[path]
		if e.Type != typ || e.State != Exists || e.Hashed || e.Unhashed != "" {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if all["./zero"].Link != "/dev/zero" {
		t.Errorf("%+v", all["./zero"])
	}
	// The same as roots, and a device that never ends.
	for _, root := range []string{"pipe", "sock", "/dev/zero", "/dev/null"} {
		var b strings.Builder
		_, err := Take(t.Context(), &b, []string{root}, Options{Base: dir})
		if must(t, err); strings.Contains(b.String(), "unhashed") || !strings.Contains(b.String(), `"state":"exists"`) {
			t.Errorf("%s", b.String())
		}
	}
}

// A pipe with a writer: nothing that was meant for another is consumed.
func TestPipeIsNotConsumed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	must(t, unix.Mkfifo(path, 0o600))
	both, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer both.Close()
	_, err = both.WriteString("for another")
	must(t, err)
	_, all := take(t, dir, Options{})
	if all["./pipe"].Type != Pipe {
		t.Errorf("%+v", all["./pipe"])
	}
	must(t, both.SetReadDeadline(time.Now().Add(time.Minute)))
	b := make([]byte, 100)
	if n, err := both.Read(b); string(b[:n]) != "for another" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

// A pipe that takes a file's place after it was listed is opened without waiting and not read.
func TestPipeTakesPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "x")
	i := item{name: "f", listed: File, e: Entry{Path: "f"}}
	var err error
	i.in, err = here(dir)
	must(t, err)
	must(t, os.Remove(path))
	must(t, unix.Mkfifo(path, 0o600))
	w := &walker{ctx: t.Context()}
	w.look(new(batch), &i)
	if i.e.Type != Pipe || i.e.Hashed {
		t.Errorf("%+v", i.e)
	}
	// And a directory, of which nothing was listed: not taken for an empty one.
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o755))
	i = item{name: "f", listed: File, e: Entry{Path: "f"}}
	i.in, err = here(dir)
	must(t, err)
	w.look(new(batch), &i)
	if i.e.State != Unknown {
		t.Errorf("%+v", i.e)
	}
	must(t, os.Remove(path))
	i = item{name: "f", listed: File, e: Entry{Path: "f"}}
	i.in, err = here(dir)
	must(t, err)
	w.look(new(batch), &i)
	if i.e.State != Absent {
		t.Errorf("%+v", i.e)
	}
}

// Exists, absent and unknown are three things, each with its reason.
func TestThreeStates(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("secret"), "x")
	write(t, at("closed/in"), "x")
	write(t, at("nosearch/in"), "x")
	write(t, at("file"), "x")
	before, _ := take(t, dir, Options{})
	must(t, os.Chmod(at("secret"), 0))
	must(t, os.Chmod(at("closed"), 0))
	must(t, os.Chmod(at("nosearch"), 0o444))
	asNobody(t, dir)
	t.Cleanup(func() { os.Chmod(at("closed"), 0o755); os.Chmod(at("nosearch"), 0o755) })
	after, all := take(t, dir, Options{})
	for path, want := range map[string]Entry{
		"./secret":      {State: Exists, Type: File, Size: 1, Unhashed: Unreadable, Reason: "permission denied"},
		"./closed":      {State: Exists, Type: Dir},
		"./closed/":     {State: Unknown, Reason: "permission denied"},
		"./nosearch":    {State: Exists, Type: Dir},
		"./nosearch/in": {State: Unknown, Reason: "permission denied"},
	} {
		got := all[path]
		got.MTime, want.Path = Stamp{}, path
		if got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	lines := []string{"./closed/ unknown after: permission denied", "./closed/in unknown after: permission denied",
		"./nosearch/in unknown after: permission denied", "./secret unknown after: unreadable: permission denied"}
	want(t, compare(t, before, after), lines)
	for i, l := range lines {
		lines[i] = strings.Replace(l, "after", "before", 1)
	}
	want(t, compare(t, after, before), lines)

	// As roots: behind a parent that may not be searched, behind a file, and not there.
	var b strings.Builder
	_, err := Take(t.Context(), &b, []string{"closed/in", "file/in", "gone"}, Options{Base: dir})
	must(t, err)
	for _, line := range []string{
		`{"path":"closed/in","reason":"permission denied","state":"unknown"}`,
		`{"path":"file/in","reason":"not a directory","state":"absent"}`,
		`{"path":"gone","reason":"no such file or directory","state":"absent"}`,
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, b.String())
		}
	}
}

// One of a hundred cannot be read: 99 are good, and one says so.
func TestOneUnreadable(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		write(t, filepath.Join(dir, fmt.Sprintf("%02d", i)), fmt.Sprint(i))
	}
	must(t, os.Chmod(filepath.Join(dir, "57"), 0))
	asNobody(t, dir)
	_, all := take(t, dir, Options{})
	for i := range 100 {
		e := all[fmt.Sprintf("./%02d", i)]
		if i == 57 && (e.Hashed || e.Unhashed != Unreadable) || i != 57 && e.SHA256 != ledger.Digest([]byte(fmt.Sprint(i))) {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

func TestParentBecameFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p/in"), "x")
	before, _ := take(t, dir, Options{})
	must(t, os.RemoveAll(filepath.Join(dir, "p")))
	write(t, filepath.Join(dir, "p"), "x")
	after, _ := take(t, dir, Options{})
	want(t, slices.DeleteFunc(compare(t, before, after), func(l string) bool { return l == ". time" }), []string{"./p type", "./p/in removed"})
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("one"), "equal")
	write(t, at("two"), "equal")
	write(t, at("folder/in"), "x")
	must(t, os.Symlink("one", at("link")))
	must(t, os.Symlink("nowhere", at("dangling")))
	must(t, os.Symlink("folder", at("to-folder")))
	must(t, os.Symlink(".", at("folder/loop")))
	must(t, os.Symlink("\xff", at("odd")))
	before, all := take(t, dir, Options{})
	for path, target := range map[string]string{"./link": "one", "./dangling": "nowhere", "./to-folder": "folder", "./folder/loop": ".", "./odd": "\xff"} {
		if e := all[path]; e.Type != Link || e.Link != target || e.Hashed {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if len(all) != 10 {
		t.Errorf("%d entries: a link was followed", len(all))
	}
	must(t, os.Remove(at("link")))
	must(t, os.Symlink("two", at("link")))
	after, _ := take(t, dir, Options{})
	want(t, compare(t, before, after), []string{". time", "./link link"})
}

// Names that are not UTF-8 are two, and each can be had back.
func TestNamesThatAreNotUTF8(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"\xff", "\xfe", "\uFFFD", "a\nb", "d\xff/in"} {
		write(t, filepath.Join(dir, name), fmt.Sprintf("%q", name))
	}
	before, all := take(t, dir, Options{})
	for _, name := range []string{"\xff", "\xfe", "\uFFFD", "a\nb", "d\xff/in"} {
		if e := all["./"+name]; e.SHA256 != ledger.Digest(fmt.Appendf(nil, "%q", name)) {
			t.Errorf("%q: %+v", name, e)
		}
	}
	if len(all) != 7 || !strings.Contains(before, `"path_b64":"Li//"`) || !strings.Contains(before, `"path_b64":"Li/+"`) {
		t.Errorf("%s", before)
	}
	must(t, os.Rename(filepath.Join(dir, "\xff"), filepath.Join(dir, "\xfd")))
	after, _ := take(t, dir, Options{})
	want(t, compare(t, before, after), []string{". time", "./\xfd added", "./\xff removed"})
	var b strings.Builder
	_, err := Take(t.Context(), &b, []string{"\xfe"}, Options{Base: dir})
	must(t, err)
	if !strings.Contains(b.String(), `"roots":[{"b64":"/g=="}]`) {
		t.Errorf("%s", b.String())
	}
	if _, err := NewReader(strings.NewReader(b.String())); err != nil {
		t.Error(err)
	}
}

// Sparse files give their zeros, files with several names each of them.
func TestSparseAndHardLinked(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("one"), "shared")
	must(t, os.Link(at("one"), at("two")))
	write(t, at("sparse"), "")
	must(t, os.Truncate(at("sparse"), 20<<20))
	before, all := take(t, dir, Options{})
	if all["./one"].SHA256 != all["./two"].SHA256 || all["./sparse"].SHA256 != ledger.Digest(make([]byte, 20<<20)) {
		t.Error("wrong hashes")
	}
	write(t, at("two"), "SHARED")
	after, _ := take(t, dir, Options{})
	want(t, compare(t, before, after), []string{"./one content", "./two content"})
}

// A file of /proc says that it is empty, and is not.
func TestFileThatUnderstatesItsSize(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc")
	}
	var b strings.Builder
	_, err := Take(t.Context(), &b, []string{"/proc/self/status"}, Options{})
	must(t, err)
	if !strings.Contains(b.String(), `"reason":"it gave more than its size","size":0,"state":"exists","type":"file","unhashed":"unstable"`) {
		t.Errorf("%s", b.String())
	}
}

// Unknown before and known after, for names that sort between a directory and what is in it.
func TestUnknownDirectoryAmongLikeNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x", "a.b/y", "a-", "a/z/z"} {
		write(t, filepath.Join(dir, name), "1")
	}
	after, _ := take(t, dir, Options{})
	must(t, os.Chmod(filepath.Join(dir, "a"), 0))
	must(t, os.Chmod(filepath.Join(dir, "a.b"), 0))
	asNobody(t, dir)
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "a"), 0o755); os.Chmod(filepath.Join(dir, "a.b"), 0o755) })
	before, _ := take(t, dir, Options{})
	const why = " unknown before: permission denied"
	want(t, compare(t, before, after), []string{"./a.b/" + why, "./a.b/y" + why, "./a/" + why, "./a/x" + why, "./a/z" + why, "./a/z/z" + why})
}

// What cannot be looked at as a target of a call says so.
func TestTargetUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "x")
	write(t, filepath.Join(dir, "d/f"), "x")
	must(t, os.Chmod(filepath.Join(dir, "f"), 0))
	must(t, os.Chmod(filepath.Join(dir, "d/f"), 0))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	asNobody(t, dir)
	l := Limits{Time: time.Minute, Bytes: 100, Entries: 10}
	for name, want := range map[string]string{
		"f":      `"reason":"permission denied","size":1,"state":"exists","type":"file","unhashed":"unreadable"}`,
		"d":      `"reason":"unreadable: of ./f: permission denied","state":"exists","type":"dir","unhashed":"unreadable"}`,
		"pipe":   `"state":"exists","type":"pipe"}`,
		"pipe/x": `"state":"absent"}`,
	} {
		found := Target(t.Context(), dir, filepath.Join(dir, name), l)
		if got := string(found.appendJSON(nil)); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
