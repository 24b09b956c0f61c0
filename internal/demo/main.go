// Command demo shows the main job on real input: a real MCP client in front of
// gated-mcp, a crash, and ledgerctl on what is left. It checks each claim that
// it prints, and exits with 1 where one does not hold.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/internal/bareenv"
)

func main() {
	bareenv.Clear()
	bin := flag.String("bin", "bin", "directory of gated-mcp and ledgerctl")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	begun := time.Now()
	failed, err := run(ctx, *bin)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	case failed > 0:
		fmt.Fprintf(os.Stderr, "demo: %d claims do not hold\n", failed)
		os.Exit(1)
	}
	fmt.Printf("\nAll as promised, in %.1f s.\n", time.Since(begun).Seconds())
}

// demo is one showing, in a directory of its own.
type demo struct {
	ctx                context.Context
	dir, ledger        string
	gatedMCP, ctl      string
	step, failed       int
	server             *exec.Cmd
	session            *mcp.ClientSession
	serverLog          bytes.Buffer
	target, crashMark  string
	firstID, crashedID string
	bin                string
	bucket             *bucket // nil before it is started
}

func run(ctx context.Context, bin string) (failed int, err error) {
	d := &demo{ctx: ctx, bin: bin, firstID: "req-demo-0001", crashedID: "req-demo-0002"}
	for name, at := range map[string]*string{"gated-mcp": &d.gatedMCP, "ledgerctl": &d.ctl} {
		path, err := exec.LookPath(filepath.Join(bin, name))
		if err != nil {
			return 0, fmt.Errorf("%w: run make build", err)
		}
		if *at, err = filepath.Abs(path); err != nil {
			return 0, err
		}
	}
	if d.dir, err = os.MkdirTemp("", "auditledger-demo-"); err != nil {
		return 0, err
	}
	defer func() {
		d.kill()
		d.bucket.stop()
		err = errors.Join(err, os.RemoveAll(d.dir))
		if err != nil || d.failed > 0 {
			fmt.Fprintf(os.Stderr, "what the server logged:\n%s", d.serverLog.Bytes())
		}
	}()
	d.ledger = filepath.Join(d.dir, "ledger")
	d.target, d.crashMark = filepath.Join(d.dir, "target.txt"), filepath.Join(d.dir, "crash-marker")
	for _, step := range []func() error{d.list, d.write, d.retry, d.conflict, d.deny, d.crash, d.recover, d.metrics, d.probe, d.plan, d.verify, d.edited, d.cut, d.anchor, d.anchorFinds} {
		if err := step(); err != nil {
			return d.failed, fmt.Errorf("step %d: %w", d.step, err)
		}
	}
	return d.failed, nil
}

func (d *demo) list() error {
	d.title("A client connects and lists the tools; the policy is that of gated-mcp --init")
	if out, err := d.command(d.gatedMCP, "--init").CombinedOutput(); err != nil {
		return fmt.Errorf("gated-mcp --init: %w: %s", err, out)
	}
	if err := d.start(); err != nil {
		return err
	}
	tools, err := d.session.ListTools(d.ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tools.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	d.say("tools: %s", strings.Join(names, ", "))
	d.claim(slices.Equal(names, []string{"read_ledger", "write_note"}), "rm_rf, which the server has and the policy denies, is not listed")
	return nil
}

func (d *demo) write() error {
	d.title("It writes a note")
	res, err := d.note(d.firstID, "the gate is applied")
	if err != nil {
		return err
	}
	d.claim(status(res) == "committed" && d.notes() == 1, "committed: one note is on the disk")
	d.claim(d.tail(2) == "pending/intent, allow/committed", "the ledger has the intent, and after it the outcome")
	return nil
}

func (d *demo) retry() error {
	d.title("It retries the same call, as after a lost answer")
	res, err := d.note(d.firstID, "the gate is applied")
	if err != nil {
		return err
	}
	d.claim(status(res) == "replay" && d.notes() == 1, "replay: answered, and not done again")
	d.claim(d.tail(1) == "allow/replay", "the ledger says so")
	return nil
}

func (d *demo) conflict() error {
	d.title("It uses the same request_id for another text")
	name := filepath.Join(d.ledger, "notes", fmt.Sprintf("%x.json", sha256.Sum256([]byte(d.firstID))))
	before, err := look(name)
	if err != nil {
		return err
	}
	res, err := d.note(d.firstID, "something else")
	if err != nil {
		return err
	}
	after, err := look(name)
	d.claim(res.IsError, "a tool error, so that the model can correct itself")
	d.claim(err == nil && before == after && d.notes() == 1, "the note is as it was, and there is no other")
	d.claim(strings.HasSuffix(d.tail(1), "/error request_id_conflict"), "the ledger says why")
	return nil
}

func (d *demo) deny() error {
	d.title("It calls rm_rf all the same, on a file that is there")
	if err := os.WriteFile(d.target, []byte("keep me\n"), 0o600); err != nil {
		return err
	}
	before, err := look(d.target)
	if err != nil {
		return err
	}
	_, err = d.session.CallTool(d.ctx, &mcp.CallToolParams{Name: "rm_rf", Arguments: map[string]any{"path": d.target}})
	refusal, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return fmt.Errorf("rm_rf was answered by %v, which is no JSON-RPC error", err)
	}
	d.say("error %d %q, data %s", refusal.Code, refusal.Message, refusal.Data)
	var data struct{ Reason string }
	d.claim(refusal.Code == jsonrpc.CodeInvalidParams && json.Unmarshal(refusal.Data, &data) == nil && data.Reason == "tool_not_allowed",
		"refused by -32602 with the reason")
	after, err := look(d.target)
	d.say("target: %d bytes, sha256 %.16x…, changed %s", after.size, after.sum, after.changed.Format(time.RFC3339Nano))
	d.claim(err == nil && before == after, "its content, size and time are what they were before the call")
	record := d.records()[len(d.records())-1]
	d.say("ledger: %s", record.line)
	d.claim(record.String() == "deny/not_executed tool_not_allowed" && record.Name == "rm_rf", "the refusal is a record")
	return nil
}

func (d *demo) crash() error {
	d.title("The server is killed (SIGKILL) when a note is durable and has no name yet")
	if err := d.stop(); err != nil {
		return err
	}
	if err := d.start("CRASH_MARKER=" + d.crashMark); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		_, err := d.note(d.crashedID, "once")
		answer <- err
	}()
	for {
		if _, err := os.Stat(d.crashMark); err == nil {
			break
		}
		select {
		case err := <-answer:
			return fmt.Errorf("the call was answered before the crash: %v", err)
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	d.kill()
	d.claim(<-answer != nil, "the client got no answer, and does not know")
	d.claim(d.notes() == 1, "there is no second note")
	d.claim(d.tail(1) == "pending/intent", "the ledger ends with the intent; nothing was called done")
	code, out := d.ledgerctl("doubt", d.ledger)
	d.claim(code == 1 && strings.Contains(out, d.crashedID), "ledgerctl doubt names the call")
	return nil
}

func (d *demo) recover() error {
	d.title("The server starts again, and the client repeats the call, twice")
	intent := d.records()[len(d.records())-1]
	if err := d.start(); err != nil {
		return err
	}
	closing := d.records()[len(d.records())-1]
	d.claim(closing.String() == "void/not_executed recovered" && closing.Intent == intent.SHA256,
		"on start the call in doubt was closed: its effect is not there")
	first, err := d.note(d.crashedID, "once")
	if err != nil {
		return err
	}
	second, err := d.note(d.crashedID, "once")
	if err != nil {
		return err
	}
	d.claim(status(first) == "committed" && status(second) == "replay" && d.notes() == 2, "committed, then replay: one effect for one request_id")
	code, _ := d.ledgerctl("doubt", d.ledger)
	d.claim(code == 0, "nothing is in doubt")
	return d.stop()
}

func (d *demo) metrics() error {
	d.title("What Prometheus sees; here ledgerctl exporter writes it once, for the node exporter")
	name := filepath.Join(d.dir, "ledger.prom")
	if code, out := d.ledgerctl("exporter", "--textfile", name, "--checkpoint", "", d.ledger); code != 0 {
		return fmt.Errorf("ledgerctl exporter: exit status %d: %s", code, out)
	}
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	total := func(tool, outcome string) string {
		series := fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q} ", d.ledger, outcome, tool)
		for line := range strings.Lines(string(page)) {
			if value, ok := strings.CutPrefix(line, series); ok {
				return strings.TrimSpace(value)
			}
		}
		return "absent"
	}
	got := fmt.Sprintf("write_note: %s committed, %s replay, %s error, %s void; rm_rf: %s deny; names that no policy knows: %s deny",
		total("write_note", "committed"), total("write_note", "replay"), total("write_note", "error"), total("write_note", "void"),
		total("rm_rf", "deny"), total("other", "deny"))
	d.say("ledger_tool_calls_total: %s", got)
	counted := map[string]int{}
	for _, r := range d.records() {
		counted[r.Name+" "+r.Decision+"/"+r.Outcome]++
	}
	want := fmt.Sprintf("write_note: %d committed, %d replay, %d error, %d void; rm_rf: %d deny; names that no policy knows: 0 deny",
		counted["write_note allow/committed"], counted["write_note allow/replay"], counted["write_note allow/error"], counted["write_note void/not_executed"],
		counted["rm_rf deny/not_executed"])
	d.claim(got == want && counted["write_note allow/committed"] == 2, "these are the records, over three processes and a crash")
	d.claim(strings.Contains(string(page), "verdict=\"intact\"} 1\n"), "and the ledger was verified")
	return nil
}

func (d *demo) verify() error {
	d.title("ledgerctl verify on the ledger")
	code, out := d.ledgerctl("verify", d.ledger)
	d.show(out, "checked", "INTACT")
	d.claim(code == 0 && strings.Contains(out, "\nINTACT: "), "intact, exit status 0")
	return nil
}

func (d *demo) edited() error {
	d.title("The same on a copy in which the refusal was edited to an allowance")
	copied, err := d.copy("edited", func(ledger []byte) []byte {
		return bytes.Replace(ledger, []byte(`"decision":"deny","method":"tools/call","name":"rm_rf"`),
			[]byte(`"decision":"allow","method":"tools/call","name":"rm_rf"`), 1)
	})
	if err != nil {
		return err
	}
	code, out := d.ledgerctl("verify", copied)
	d.show(out, "FAULT", "TAMPERED")
	d.claim(code == 1 && strings.Contains(out, "\nFAULT altered: ") && strings.Contains(out, "\nTAMPERED: "), "tampered, exit status 1, and where")
	return nil
}

func (d *demo) cut() error {
	d.title("The same on a copy whose last two records were cut off")
	copied, err := d.copy("cut", func(ledger []byte) []byte {
		lines := bytes.SplitAfter(ledger, []byte("\n")) // the last is empty
		return bytes.Join(lines[:len(lines)-3], nil)
	})
	if err != nil {
		return err
	}
	code, out := d.ledgerctl("verify", copied)
	d.show(out, "FAULT", "TAMPERED")
	d.claim(code == 1 && strings.Contains(out, "\nFAULT truncated: "), "truncated: head.json knows more records")
	code, out = d.ledgerctl("verify", filepath.Join(copied, "audit.jsonl"))
	d.claim(code == 0 && strings.Contains(out, "completeness is not proven"), "the file alone is a whole chain, of which verify says that completeness is not proven")
	return nil
}

func (d *demo) title(text string) {
	d.step++
	fmt.Printf("\n%d. %s\n", d.step, text)
}

func (d *demo) say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// claim prints what is claimed, and whether it holds.
func (d *demo) claim(holds bool, what string) {
	if !holds {
		d.failed++
		d.say("FAILED: %s", what)
		return
	}
	d.say("ok: %s", what)
}

// show prints the lines of out that begin with one of the words.
func (d *demo) show(out string, words ...string) {
	for line := range strings.Lines(out) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(line, w) }) {
			d.say("%s", strings.TrimSuffix(line, "\n"))
		}
	}
}

// start starts a server and connects to it.
func (d *demo) start(env ...string) (err error) {
	d.server = d.command(d.gatedMCP)
	d.server.Env = append(d.server.Environ(), env...)
	d.server.Stderr = &d.serverLog
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1"}, nil)
	d.session, err = client.Connect(d.ctx, &mcp.CommandTransport{Command: d.server}, nil)
	return err
}

// stop ends the server by the end of its input.
func (d *demo) stop() error {
	s := d.session
	d.server, d.session = nil, nil
	return s.Close()
}

// kill ends the server as a crash would.
func (d *demo) kill() {
	if d.server != nil && d.server.Process != nil {
		d.server.Process.Kill()
	}
	if d.session != nil {
		d.session.Close()
	}
	d.server, d.session = nil, nil
}

// command is a program in the demo's directory, on its ledger and policy. The
// injected crash is not inherited from outside.
func (d *demo) command(program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(d.ctx, program, args...)
	c.Dir = d.dir
	c.Env = append(c.Environ(), "LEDGER_DIR="+d.ledger, "POLICY_PATH="+filepath.Join(d.dir, "policy.json"), "CRASH_MARKER=", "LEDGER_ANCHOR=")
	if d.bucket != nil {
		c.Env = append(c.Env, d.bucket.env...)
	}
	return c
}

// ledgerctl is the exit status of a ledgerctl, -1 where it did not run, and
// what it printed.
func (d *demo) ledgerctl(args ...string) (int, string) {
	c := d.command(d.ctl, args...)
	out, _ := c.CombinedOutput()
	if c.ProcessState == nil {
		return -1, string(out)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// note calls write_note, and prints what it sent and what came back.
func (d *demo) note(requestID, text string) (*mcp.CallToolResult, error) {
	res, err := d.session.CallTool(d.ctx, &mcp.CallToolParams{Name: "write_note", Arguments: map[string]any{"request_id": requestID, "text": text}})
	answer := "no answer"
	if err == nil {
		for _, c := range res.Content {
			if t, ok := c.(*mcp.TextContent); ok {
				answer = t.Text
			}
		}
	}
	d.say("write_note %s %q -> %s", requestID, text, answer)
	return res, err
}

// status is the status that write_note answered with.
func status(r *mcp.CallToolResult) string {
	answer, _ := r.StructuredContent.(map[string]any)
	s, _ := answer["status"].(string)
	return s
}

// notes is how many notes are on the disk, -1 where that cannot be known.
func (d *demo) notes() int {
	names, err := filepath.Glob(filepath.Join(d.ledger, "notes", "*.json"))
	if err != nil {
		return -1
	}
	return len(names)
}

// A record is what the demo looks at of a line of the ledger.
type record struct {
	Name, Decision, Outcome, Reason, Intent, SHA256 string

	line string
}

func (r record) String() string {
	return strings.TrimSpace(r.Decision + "/" + r.Outcome + " " + r.Reason)
}

// records reads the ledger without any code of ours. It is never empty: what
// cannot be read is one record with nothing in it.
func (d *demo) records() []record {
	content, err := os.ReadFile(filepath.Join(d.ledger, "audit.jsonl"))
	if err != nil || len(content) == 0 {
		return make([]record, 1)
	}
	var all []record
	for line := range strings.Lines(string(content)) {
		r := record{line: strings.TrimSuffix(line, "\n")}
		if json.Unmarshal([]byte(line), &r) != nil {
			r = record{line: r.line}
		}
		all = append(all, r)
	}
	return all
}

// tail is the last n records in short.
func (d *demo) tail(n int) string {
	all := d.records()
	var words []string
	for _, r := range all[max(0, len(all)-n):] {
		words = append(words, r.String())
	}
	return strings.Join(words, ", ")
}

// copy copies the ledger's chain and head into a directory, changed.
func (d *demo) copy(name string, change func([]byte) []byte) (string, error) {
	to := filepath.Join(d.dir, name)
	chain, err := os.ReadFile(filepath.Join(d.ledger, "audit.jsonl"))
	if err != nil {
		return "", err
	}
	head, err := os.ReadFile(filepath.Join(d.ledger, "head.json"))
	if err != nil {
		return "", err
	}
	return to, errors.Join(os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(to, "audit.jsonl"), change(chain), 0o600),
		os.WriteFile(filepath.Join(to, "head.json"), head, 0o600))
}

// A file is what a look at a file tells.
type file struct {
	sum     [sha256.Size]byte
	size    int64
	changed time.Time
}

func look(path string) (file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	content, err := os.ReadFile(path)
	return file{sha256.Sum256(content), info.Size(), info.ModTime()}, err
}
