package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/auditledger/auditledger/internal/bareenv"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
)

func TestMain(m *testing.M) {
	testscript.Main(withServer{m}, map[string]func(){"ledgerctl": main})
}

// withServer runs tests with gated-mcp, built once, in PATH.
type withServer struct{ *testing.M }

func (t withServer) Run() int {
	bareenv.Clear()
	dir, err := os.MkdirTemp("", "ledgerctl-test-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// A name that ends in a separator is a directory, also where it is not there yet.
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../gated-mcp")
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("build gated-mcp: %v\n%s", err, out)
	}
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return t.M.Run()
}

// TestScripts runs testdata/*.txtar. Beside the commands of testscript there
// are:
//
//	exits N PROGRAM ARG…      run it; its exit status must be N, and with 0 its stderr silent
//	chain SPEC FILE           write a ledger (see writeChain); $SHA1, $PRE1 … are the hashes and their first 8 digits
//	lines FILE LIST NEW       write the lines of LIST, such as 1-3,5, of FILE
//	edit FILE OLD NEW         replace the first OLD, which must be there; Go escapes count
//	chop FILE N               cut N bytes off the end
//	list DIR…                 print each name below with its mode, size and time of change
//	mcp FILE                  send each line of FILE to a gated-mcp when the line before is answered; print the answers
//	await FILE                until it is there
//	follow ARG…               start ledgerctl log --follow ARG…
//	next [REGEXP]             wait for its next line, which must match
//	interrupt [N]             send it SIGINT; it must end with status N, else 0, and print no other line
func TestScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts send signals, and name files as Windows cannot")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TZ", "UTC")
			e.Setenv("GORACE", "atexit_sleep_ms=0")                       // else each command takes a second more
			e.Setenv("EVIL", "\x1b[2K\r\nINTACT: \u202e\u009b\u200b\x7f") // for names of files and tools
			e.Values["followed"] = new(followed)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "zones":
				_, err := time.LoadLocation("Asia/Tokyo")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     cmdExits,
			"chain":     cmdChain,
			"lines":     cmdLines,
			"edit":      cmdEdit,
			"chop":      cmdChop,
			"list":      cmdList,
			"mcp":       cmdMCP,
			"await":     cmdAwait,
			"follow":    cmdFollow,
			"next":      cmdNext,
			"interrupt": cmdInterrupt,
		},
	})
}

// patience is how long a script waits for what must come.
const patience = 30 * time.Second

func needArgs(ts *testscript.TestScript, neg bool, args []string, least, most int) {
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("wrong use of a command: see TestScripts")
	}
}

// environ is the script's environment, as far as our programs read it.
func environ(ts *testscript.TestScript) []string {
	env := os.Environ()
	for _, name := range []string{"LEDGER_DIR", "POLICY_PATH", "TZ", "GORACE"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 2, 100)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	switch {
	case got != want:
		ts.Fatalf("exit status %d, want %d", got, want)
	case got == 0 && ts.ReadFile("stderr") != "":
		ts.Fatalf("all is well, and stderr is not silent")
	}
}

func cmdChain(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 2, 2)
	text, sums, err := writeChain(ts.ReadFile(args[0]))
	ts.Check(err)
	file := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
	ts.Check(os.WriteFile(file, text, 0o600))
	for i, sum := range sums {
		ts.Setenv(fmt.Sprintf("SHA%d", i+1), sum)
		ts.Setenv(fmt.Sprintf("PRE%d", i+1), sum[:8])
	}
}

// writeChain makes a ledger of spec: a JSON object for each record, with what
// is to be other than in a committed call of write_note. Record n is of n
// seconds after 2026-01-31T14:04:00Z. An intent is given as the number of its
// record; null leaves a member out. The hashes are made by the rule of the
// specification, without the code that the commands use.
func writeChain(spec string) (text []byte, sums []string, err error) {
	start := time.Date(2026, 1, 31, 14, 4, 0, 0, time.UTC)
	prev := strings.Repeat("0", 64)
	for line := range strings.Lines(spec) {
		n := len(sums) + 1
		record := map[string]any{
			"ts": start.Add(time.Duration(n) * time.Second).UnixNano(), "seq": n, "request_id": fmt.Sprintf("req-%04d", n),
			"method": "tools/call", "name": "write_note", "decision": "allow", "outcome": "committed",
			"args_digest": strings.Repeat("a", 64), "prev_sha256": prev,
		}
		var other map[string]any
		if err := json.Unmarshal([]byte(line), &other); err != nil {
			return nil, nil, fmt.Errorf("record %d: %w", n, err)
		}
		maps.Copy(record, other)
		maps.DeleteFunc(record, func(_ string, v any) bool { return v == nil })
		if i, ok := record["intent"].(float64); ok {
			record["intent"] = sums[int(i)-1]
		}
		body, err := canonical(record)
		if err != nil {
			return nil, nil, fmt.Errorf("record %d: %w", n, err)
		}
		prev = ledger.Digest(append([]byte(prev), body...)).String()
		sums = append(sums, prev)
		record["sha256"] = prev
		whole, err := canonical(record)
		if err != nil {
			return nil, nil, err
		}
		text = append(append(text, whole...), '\n')
	}
	return text, sums, nil
}

func canonical(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return canon.Append(nil, b)
}

func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 3, 3)
	all := slices.Collect(strings.Lines(ts.ReadFile(args[0])))
	var out strings.Builder
	for part := range strings.SplitSeq(args[1], ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		ts.Check(err)
		to := from
		if isRange {
			to, err = strconv.Atoi(last)
			ts.Check(err)
		}
		for _, line := range all[from-1 : to] {
			out.WriteString(line)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(out.String()), 0o600))
}

func cmdEdit(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 3, 3)
	unescape := func(s string) string {
		s, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
		ts.Check(err)
		return s
	}
	before, after, found := strings.Cut(ts.ReadFile(args[0]), unescape(args[1]))
	if !found {
		ts.Fatalf("%q is not in %s", args[1], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(before+unescape(args[2])+after), 0o600))
}

func cmdChop(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 2, 2)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text[:len(text)-n]), 0o600))
}

func cmdList(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 1, 100)
	for _, dir := range args {
		root := ts.MkAbs(dir)
		ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			fmt.Fprintln(ts.Stdout(), filepath.ToSlash(filepath.Join(dir, name)), info.Mode(), info.Size(), info.ModTime().UnixNano())
			return err
		}))
	}
}

func cmdMCP(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 1, 1)
	server := exec.Command("gated-mcp")
	server.Dir = ts.MkAbs(".")
	server.Env = environ(ts)
	server.Stderr = ts.Stderr()
	in, err := server.StdinPipe()
	ts.Check(err)
	out, err := server.StdoutPipe()
	ts.Check(err)
	ts.Check(server.Start())
	giveUp := time.AfterFunc(patience, func() { server.Process.Kill() })
	defer giveUp.Stop()
	id := func(line []byte) string {
		var m struct{ ID json.RawMessage }
		ts.Check(json.Unmarshal(line, &m))
		return string(m.ID)
	}
	answers := bufio.NewReader(out)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		_, err := in.Write([]byte(line))
		ts.Check(err)
		for asked, got := id([]byte(line)), ""; got != asked; {
			answer, err := answers.ReadBytes('\n')
			ts.Check(err)
			ts.Stdout().Write(answer)
			got = id(answer)
		}
	}
	ts.Check(in.Close())
	ts.Check(server.Wait())
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 1, 1)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s did not come", args[0])
}

// followed is the ledgerctl log --follow of a script.
type followed struct {
	cmd    *exec.Cmd
	lines  chan string
	stderr bytes.Buffer
}

func cmdFollow(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 0, 100)
	f := ts.Value("followed").(*followed)
	*f = followed{cmd: exec.Command("ledgerctl", append([]string{"log", "--follow"}, args...)...), lines: make(chan string, 100)}
	f.cmd.Dir = ts.MkAbs(".")
	f.cmd.Env = environ(ts)
	f.cmd.Stderr = &f.stderr
	out, err := f.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(f.cmd.Start())
	ts.Defer(func() { f.cmd.Process.Kill() })
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			f.lines <- s.Text()
		}
		close(f.lines)
	}()
}

func cmdNext(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 0, 1)
	select {
	case line, ok := <-ts.Value("followed").(*followed).lines:
		ts.Logf("%s", line)
		if pattern := append(args, "")[0]; !ok || !regexp.MustCompile(pattern).MatchString(line) {
			ts.Fatalf("no match for %q", pattern)
		}
	case <-time.After(patience):
		ts.Fatalf("no line came")
	}
}

func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, neg, args, 0, 1)
	f := ts.Value("followed").(*followed)
	ts.Check(f.cmd.Process.Signal(os.Interrupt))
	for line := range f.lines {
		ts.Fatalf("one more line: %s", line)
	}
	f.cmd.Wait()
	fmt.Fprint(ts.Stderr(), f.stderr.String())
	if got := strconv.Itoa(f.cmd.ProcessState.ExitCode()); got != cmp.Or(append(args, "")[0], "0") {
		ts.Fatalf("exit status %s", got)
	}
}

// TestExitStatus holds the table of exit.go against every verdict and kind of
// error. What is not known is never a success, and an unknown verdict is not
// taken for trouble that a retry would mend.
func TestExitStatus(t *testing.T) {
	for verdict, want := range map[verify.Verdict]int{
		verify.Anchored: 0, verify.Intact: 0, verify.Tampered: 1, verify.Unchecked: 3, verify.Torn: 4, "": 1, "new": 1,
	} {
		if got := exitOf(verdictStatus(verdict)); got != want {
			t.Errorf("verdict %q: exit status %d, want %d", verdict, got, want)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{usageError{errors.New("x")}, exitUsage},
		{fmt.Errorf("x: %w", usageError{errors.New("x")}), exitUsage},
		{uncheckedError{errors.New("x")}, exitUnchecked},
		{&leftOut{lines: 1}, exitUnchecked},
		{errors.New("x"), exitUnchecked},
	} {
		if got := exitOf(c.err); got != c.want {
			t.Errorf("%#v: exit status %d, want %d", c.err, got, c.want)
		}
	}
}

func TestEscapeJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"b\n\u001b\\"}`:               `{"a":"b\n\u001b\\"}`,
		"{\"a\":\"\x7f\u009b\u202eé😀\"}":    `{"a":"\u007f\u009b\u202eé😀"}`,
		"\"\U000e0041\ufeff\u2028\"":        `"\udb40\udc41\ufeff\u2028"`,
		"{\"\u200b\":1}\n":                  "{\"\\u200b\":1}\n",
		"\"" + strings.Repeat("x", 9) + `"`: `"xxxxxxxxx"`,
	} {
		got := escapeJSON([]byte(in))
		if string(got) != want {
			t.Errorf("%q is escaped as %q, want %q", in, got, want)
		}
		var a, b any
		if json.Unmarshal([]byte(in), &a) != nil || json.Unmarshal(got, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%q is another value as %q", in, got)
		}
	}
}
