//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/ledger/store"
)

// The test's own program is the servers that probe and run are tested with:
// what $LEDGERCTL_FAKE names.
func init() {
	if kind := os.Getenv("LEDGERCTL_FAKE"); kind != "" {
		os.Unsetenv("LEDGERCTL_FAKE")
		log.SetOutput(os.Stderr)
		if err := fake(kind); err != nil {
			log.Fatalf("fake %s: %v", kind, err)
		}
		os.Exit(0)
	}
}

// fake is a server with one tool, rm_rf, which one thing is wrong with.
func fake(kind string) error {
	switch kind {
	case "unsupported": // a modern server of another version
		return fakeLines(func(method string) string {
			return `"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2099-01-01"],"requested":"2026-07-28"}}`
		})
	case "killer":
		return fakeKiller()
	}
	var st *store.Store
	if kind != "no ledger" {
		var err error
		if st, err = store.Open(context.Background(), os.Getenv("LEDGER_DIR"), store.Options{}); err != nil {
			return err
		}
		defer st.Close()
	}
	record := func(args json.RawMessage) {
		if st == nil || kind == "no record" {
			return
		}
		v, _ := canon.Parse(args)
		e := ledger.Entry{RequestID: ledger.MissingRequestID, Method: ledger.MethodCall, Name: "rm_rf", Decision: ledger.Deny,
			Outcome: ledger.NotExecuted, ArgsDigest: ledger.Digest(v.Append(nil)).String(), Reason: ledger.ReasonToolNotAllowed}
		if kind == "records allow" {
			e.Decision, e.Outcome = ledger.Allow, ledger.Observed
		}
		if _, err := st.Append(context.Background(), e); err != nil {
			log.Fatal(err)
		}
	}
	touch := func(args json.RawMessage) {
		var a struct{ Path string }
		json.Unmarshal(args, &a)
		if err := os.WriteFile(a.Path, []byte("touched"), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == methodDiscover && (kind == "legacy" || kind == "silent") {
				if kind == "silent" {
					<-ctx.Done()
				}
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"}
			}
			if method == "tools/list" && kind == "lists" {
				return &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "rm_rf", InputSchema: map[string]any{"type": "object"}}}}, nil
			}
			if method != "tools/call" {
				return next(ctx, method, req)
			}
			args := req.GetParams().(*mcp.CallToolParamsRaw).Arguments
			record(args)
			switch kind {
			case "executes":
				touch(args)
				return next(ctx, method, req)
			case "result":
				res := new(mcp.CallToolResult)
				json.Unmarshal([]byte(`{"content":[{"type":"text","text":"denied"}],"isError":true,"resultType":"complete"}`), res)
				return res, nil
			case "touches":
				touch(args)
			case "other code":
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "no"}
			case "dies":
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "tool denied: rm_rf"}
		}
	})
	if kind == "executes" {
		s.AddTool(&mcp.Tool{Name: "rm_rf", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler { // hidden all the same
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				res, err := next(ctx, method, req)
				if list, ok := res.(*mcp.ListToolsResult); ok {
					list.Tools = []*mcp.Tool{}
				}
				return res, err
			}
		})
	}
	if address := os.Getenv("LEDGERCTL_FAKE_HTTP"); address != "" {
		return fakeHTTP(s, address)
	}
	err := s.Run(context.Background(), &mcp.StdioTransport{})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// fakeHTTP serves s on loopback until its standard input ends, and writes the
// address to a file.
func fakeHTTP(s *mcp.Server, file string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	go http.Serve(l, h)
	if err := os.WriteFile(file+".new", []byte("http://"+l.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// fakeLines answers each request with the same, and notes its method in the file
// methods.
func fakeLines(answer func(method string) string) error {
	f, err := os.OpenFile("methods", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			return err
		}
		fmt.Fprintln(f, m.Method)
		if m.ID != nil {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", m.ID, answer(m.Method))
		}
	}
	return nil
}

// fakeKiller is a gated-mcp that is killed once, at one moment of one call:
// $KILL_AT is the call's request id or tool and "before" (it gets the call),
// "with" (it has it), or "after" (it answered, and the answer is lost).
func fakeKiller() error {
	which, when, _ := strings.Cut(os.Getenv("KILL_AT"), " ")
	cmd := exec.Command("gated-mcp")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := func() {
		if _, err := os.OpenFile("killed", os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return // once
		}
		cmd.Process.Kill()
		cmd.Wait()
		os.Exit(0)
	}
	lost := make(chan string, 1) // the id of the answer that is to be lost
	go func() {
		lines := bufio.NewReader(out)
		id := "none"
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				cmd.Wait()
				os.Exit(0)
			}
			select {
			case id = <-lost:
			default:
			}
			if strings.Contains(line, `"id":`+id+`,`) {
				kill()
			}
			io.WriteString(os.Stdout, line)
		}
	}()
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		line := s.Text()
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct {
					ID string `json:"request_id"`
				}
			}
		}
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			return err
		}
		mine := m.Method == "tools/call" && (m.Params.Arguments.ID == which || m.Params.Name == which)
		if mine && when == "before" {
			kill()
		}
		if mine && when == "after" {
			lost <- string(m.ID)
		}
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			return err
		}
		if mine && when == "with" {
			kill()
		}
	}
	in.Close()
	return cmd.Wait()
}

// A workbench is a folder in which ledgerctl is run.
type workbench struct {
	t   *testing.T
	dir string
	env []string
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	if _, err := exec.LookPath("ledgerctl"); err != nil {
		t.Skip("ledgerctl is not in PATH: the tests are not run by TestMain")
	}
	dir := t.TempDir()
	w := &workbench{t: t, dir: dir, env: []string{"GORACE=atexit_sleep_ms=0", "LEDGER_DIR=" + filepath.Join(dir, "ledger"), "POLICY_PATH=" + filepath.Join(dir, "policy.json")}}
	w.write("policy.json", `{"version":1,"allow":["read_ledger","write_note"],"deny":["rm_rf"]}`)
	return w
}

func (w *workbench) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workbench) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// ledgerctl runs it, and wants that exit status.
func (w *workbench) ledgerctl(want int, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("ledgerctl", args...)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), w.env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		w.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		w.t.Errorf("ledgerctl %q: exit status %d, want %d\n%s%s", args, got, want, out, errs.String())
	}
	return string(out) + errs.String()
}

// self is the command of a fake server.
func (w *workbench) self(kind string, env ...string) []string {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	return append(append([]string{"env", "LEDGERCTL_FAKE=" + kind}, env...), exe)
}

func (w *workbench) contains(text string, parts ...string) {
	w.t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			w.t.Errorf("no %q in\n%s", p, text)
		}
	}
}
