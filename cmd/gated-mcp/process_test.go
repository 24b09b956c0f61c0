//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that has to happen.
const patience = time.Minute

// plainPolicy has no rule on text, so that only the server limits it.
const plainPolicy = `{"version":1,"allow":["read_ledger","write_note"],"deny":["rm_rf"],"arg_rules":{"write_note":{"request_id":{"min_len":8}}}}`

// meta is the _meta of a request of protocol version 2026-07-28.
const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// A place is a folder with a policy and a ledger directory.
type place struct {
	root, ledger, policy string
	as                   *syscall.Credential // of its servers; nil for the test's own
}

func newPlace(t *testing.T) *place {
	t.Helper()
	root, err := os.MkdirTemp("", "place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	p := &place{root: root, ledger: filepath.Join(root, "ledger"), policy: filepath.Join(root, "policy.json")}
	p.setPolicy(t, plainPolicy)
	return p
}

// unprivileged makes the servers of p run as a user whom permissions bind.
func (p *place) unprivileged(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for dir := filepath.Dir(p.root); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
			t.Skipf("another user cannot reach temporary files: %v", err)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	const nobody = 65534
	p.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	for _, name := range []string{p.root, p.policy} {
		if err := os.Chown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
}

// setPolicy saves the policy whole.
func (p *place) setPolicy(t *testing.T, text string) {
	t.Helper()
	put(t, p.policy+".new", text)
	if err := os.Chmod(p.policy+".new", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.policy+".new", p.policy); err != nil {
		t.Fatal(err)
	}
}

func (p *place) audit() string { return filepath.Join(p.ledger, "audit.jsonl") }
func (p *place) notes() string { return filepath.Join(p.ledger, "notes") }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An answer is one response, or that there was none.
type answer struct {
	raw    string
	id     string
	Result *struct {
		IsError           bool
		StructuredContent struct {
			RequestID string `json:"request_id"`
			Status    string
			Notes     []struct {
				RequestID string `json:"request_id"`
				Text      string
			}
		}
		Content []struct{ Text string }
		Tools   []struct{ Name string }
	}
	Error *struct {
		Code    int64
		Message string
		Data    struct{ Reason, Rule string }
	}
}

// kind is what an answer says in a word or two: "committed", "replay", "read",
// "failed" (a result with isError), "ok" (any other result), "-32602
// argument_rule", or "none", where the server ended without it.
func (a answer) kind() string {
	switch {
	case a.Error != nil:
		return strings.TrimSpace(fmt.Sprint(a.Error.Code, " ", a.Error.Data.Reason))
	case a.Result == nil:
		return "none"
	case a.Result.IsError:
		return "failed"
	case a.Result.StructuredContent.Status != "":
		return a.Result.StructuredContent.Status
	case a.Result.StructuredContent.Notes != nil:
		return "read"
	}
	return "ok"
}

// text is what a result says to a model, or the message of an error.
func (a answer) text() string {
	switch {
	case a.Error != nil:
		return a.Error.Message
	case a.Result != nil && len(a.Result.Content) > 0:
		return a.Result.Content[0].Text
	}
	return ""
}

// A process is one server, with its client's ends of the pipes.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr string // a file
	serial atomic.Int64
	ended  chan struct{} // closed when stdout has ended
	strays chan answer   // answers that no call waits for

	sending sync.Mutex
	mu      sync.Mutex
	waiting map[string]chan answer
	faults  []string // what no server may write to stdout
}

// start starts a server. Its environment is the test's and extra; flags are its arguments.
func (p *place) start(t *testing.T, extra []string, flags ...string) *process {
	t.Helper()
	return p.run(t, extra, append([]string{program(t, "gated-mcp")}, flags...)...)
}

func (p *place) run(t *testing.T, extra []string, argv ...string) *process {
	t.Helper()
	stderr, err := os.CreateTemp(p.root, "stderr-")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	s := &process{t: t, cmd: exec.Command(argv[0], argv[1:]...), stderr: stderr.Name(), ended: make(chan struct{}),
		strays: make(chan answer, 1<<12), waiting: map[string]chan answer{}}
	s.cmd.Dir, s.cmd.Stderr = p.root, stderr
	s.cmd.Env = append(append(os.Environ(), "LEDGER_DIR="+p.ledger, "POLICY_PATH="+p.policy), extra...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if s.stdout, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.kill()
		}
		if t.Failed() {
			t.Logf("stderr of the server:\n%.4000s", read(t, s.stderr))
		}
	})
	go s.listen(s.stdout)
	return s
}

// listen hands out answers until stdout ends. Each line must be a message.
func (s *process) listen(stdout io.Reader) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.waiting {
			close(c)
		}
		s.waiting = nil
		close(s.ended)
	}()
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 {
				s.fault("a message without its newline: %.200q", line)
			}
			return
		}
		var m struct {
			JSONRPC string
			ID      json.RawMessage
			answer
		}
		if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" || (m.Result == nil) == (m.Error == nil) {
			s.fault("no answer: %v in %.200q", err, line)
			continue
		}
		if m.Error != nil && (m.Error.Code >= 0 || m.Error.Message == "") {
			s.fault("an error without a code or a message: %.200q", line)
		}
		a := m.answer
		a.raw, a.id = string(line), string(m.ID)
		s.mu.Lock()
		c := s.waiting[a.id]
		delete(s.waiting, a.id)
		s.mu.Unlock()
		if c == nil {
			c = s.strays
		}
		c <- a
	}
}

func (s *process) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// send writes lines. That the server has gone is seen by its answers.
func (s *process) send(lines ...string) {
	s.sending.Lock()
	defer s.sending.Unlock()
	io.WriteString(s.stdin, strings.Join(lines, "\n")+"\n")
}

// ask sends a request and gives where its answer comes.
func (s *process) ask(id, request string) <-chan answer {
	c := make(chan answer, 1)
	s.mu.Lock()
	if s.waiting == nil {
		close(c)
	} else {
		s.waiting[id] = c
	}
	s.mu.Unlock()
	s.send(request)
	return c
}

// begin sends a call, args being JSON.
func (s *process) begin(tool, args string) <-chan answer {
	id := fmt.Sprint(s.serial.Add(1))
	return s.ask(id, callLine(id, tool, args))
}

// wait is the answer that comes on c; none where the server ended.
func (s *process) wait(c <-chan answer) answer {
	select {
	case a := <-c:
		return a
	case <-time.After(patience):
		s.t.Errorf("no answer after %v", patience)
		s.cmd.Process.Kill()
		return answer{}
	}
}

func (s *process) call(tool, args string) answer { return s.wait(s.begin(tool, args)) }

func (s *process) ping() answer {
	id := fmt.Sprintf(`"ping-%d"`, s.serial.Add(1))
	return s.wait(s.ask(id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)))
}

// stray is the next answer that no call waits for.
func (s *process) stray() answer {
	s.t.Helper()
	return s.wait(s.strays)
}

// signal sends a signal.
func (s *process) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the server at once.
func (s *process) kill() {
	s.cmd.Process.Kill()
	<-s.ended
	s.cmd.Wait()
	s.stdin.Close()
}

// exit waits for the server's end, and wants that status and a clean stdout.
func (s *process) exit(want int) {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Errorf("the server did not end within %v", patience)
		s.cmd.Process.Signal(syscall.SIGQUIT) // it tells where it stands
		<-s.ended
	}
	err := s.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		s.t.Fatal(err)
	}
	s.stdin.Close()
	if got := s.cmd.ProcessState.ExitCode(); got != want {
		s.t.Errorf("exit status %d, want %d (%v)", got, want, s.cmd.ProcessState)
	}
	for _, fault := range s.faults {
		s.t.Errorf("stdout: %s", fault)
	}
	select {
	case a := <-s.strays:
		s.t.Errorf("an answer that nothing asked for: %.200s", a.raw)
	default:
	}
	if log := read(s.t, s.stderr); bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
		s.t.Errorf("stderr:\n%s", log)
	}
}

// close ends the input, and wants a good end.
func (s *process) close() {
	s.t.Helper()
	if err := s.stdin.Close(); err != nil {
		s.t.Error(err)
	}
	s.exit(0)
}

// callLine is a call as a message; id and args are JSON.
func callLine(id, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s,"_meta":%s}}`, id, quote(tool), args, meta)
}

// note is the arguments of write_note in canonical JSON, for plain text.
func note(id, text string) string {
	return fmt.Sprintf(`{"request_id":%s,"text":%s}`, quote(id), quote(text))
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}

// eventually waits until ok, for what can only be looked at.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
