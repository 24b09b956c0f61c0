package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify/harness"
)

type runOptions struct {
	server     serverOptions
	ledger     string
	transcript string
}

// Exit statuses of run, beside those of all commands.
const (
	exitRolledBack = 1
	exitStopped    = 4
)

func newRun(g *global) *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run PLAN.json -- SERVER [ARG…]",
		Short: "Run a plan of mutations, and look after each whether to go on",
		Long: `run does the steps of a plan: a mutation, a look, and what the look must find.
Where it holds, it goes on (CONTINUE). Where the state cannot be told, it ends
(STOP). Where the state is another, it runs the compensations of the steps so
far, from the last to the first (ROLLBACK), or ends where one of them has none
or was not proven (STOP). That a tool answers with success is never a reason to
go on. A lost answer is sent for again with the same request_id, to a new
server where the old one died.

Each transition is printed, then the records of the plan's mutations in the
ledger, by position and sha256. --transcript writes the same as JSON to a new
file; with --format json it is what is printed. Plans are specified in the
package verify/harness.

Exit status: 0 done, 1 rolled back, 2 wrong usage or not a valid plan, 3 the
plan cannot be read, or the transcript not be written, 4 stopped.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.server.argv = args[1:]
			if (o.server.http == "") == (len(args) == 1) {
				return usageError{errors.New("give the command of a server after --, or --http URL")}
			}
			if o.server.silence <= 0 {
				return usageError{errors.New("--discover-timeout takes a duration such as 10s")}
			}
			return runRun(c.Context(), g, o, args[0], c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.ledger, "ledger", "", "the server's ledger directory (default $LEDGER_DIR, else .ledger)")
	f.StringVar(&o.transcript, "transcript", "", "write what was done to this new file, as JSON")
	f.StringVar(&o.server.http, "http", "", "address of a server, in place of a command")
	f.DurationVar(&o.server.silence, "discover-timeout", silenceDefault, "how long server/discover may stay unanswered until initialize is tried")
	return c
}

func runRun(ctx context.Context, g *global, o runOptions, file string, out io.Writer) error {
	info, err := os.Stat(file) // opening a pipe would wait
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file, which a plan is", ledger.Escape(file))
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return uncheckedError{err}
	}
	plan, err := harness.ParsePlan(text)
	if err != nil {
		return usageError{fmt.Errorf("plan %s: %w", ledger.Escape(file), err)}
	}
	dir := o.ledger
	if dir == "" {
		dir = dirOf(nil)
	} else {
		o.server.ledger = dir
	}
	var transcript *os.File
	if o.transcript != "" { // before anything is done: what is done must be written down
		if transcript, err = os.OpenFile(o.transcript, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); errors.Is(err, os.ErrExist) {
			return usageError{fmt.Errorf("%s is there already, and is left as it is: name a new file", ledger.Escape(o.transcript))}
		} else if err != nil {
			return uncheckedError{err}
		}
		defer transcript.Close()
	}
	caller := &sessionCaller{server: o.server}
	defer caller.close()
	r := harness.Runner{Caller: caller, Ledger: dir}
	if !g.json() {
		r.Transition = func(t harness.Transition) { fmt.Fprintln(out, transitionText(t)) }
	}
	t := r.Run(ctx, plan)
	if g.json() {
		err = writeJSON(out, t)
	} else {
		err = writeRunText(out, t)
	}
	if transcript != nil {
		err = errors.Join(err, writeJSON(transcript, t), transcript.Sync(), transcript.Close())
	}
	if err != nil {
		return uncheckedError{fmt.Errorf("the plan ended as %s, but that could not be written: %w", t.Verdict, err)}
	}
	switch t.Verdict {
	case harness.VerdictDone:
		return nil
	case harness.VerdictRolledBack:
		return status(exitRolledBack)
	}
	return status(exitStopped)
}

func transitionText(t harness.Transition) string {
	text := fmt.Sprintf("step %d  %-8s", t.Step, t.State)
	if t.State == harness.Do && t.Name != "" {
		text += "  " + ledger.Escape(t.Name) + ":"
	}
	if t.Detail != "" {
		text += "  " + ledger.Escape(t.Detail)
	}
	return strings.TrimRight(text, " ")
}

func writeRunText(out io.Writer, t *harness.Transcript) error {
	for _, r := range t.Records {
		fmt.Fprintf(out, "record %d  step %d  %s  %s/%s  %s\n", r.Seq, r.Step, r.SHA256, ledger.Escape(r.Decision), ledger.Escape(r.Outcome), ledger.Escape(r.RequestID))
	}
	if t.RecordsError != "" {
		fmt.Fprintf(out, "the records cannot all be named: %s\n", ledger.Escape(t.RecordsError))
	}
	word := map[harness.Verdict]string{harness.VerdictDone: "DONE", harness.VerdictRolledBack: "ROLLED BACK", harness.VerdictStopped: "STOPPED"}[t.Verdict]
	if t.Reason != "" {
		word += ": " + ledger.Escape(t.Reason)
	}
	_, err := fmt.Fprintln(out, word)
	return err
}

// sessionCaller calls tools of an MCP server, which it starts when it is first
// needed and again when it died.
type sessionCaller struct {
	server  serverOptions
	session *mcp.ClientSession
}

var _ harness.Caller = (*sessionCaller)(nil)

func (c *sessionCaller) Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	if c.session == nil {
		// Its start ends by itself where it must: a context would end the process with it.
		session, err := c.server.connect(ctx)
		switch {
		case errors.Is(err, errModern), errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
			return nil, fmt.Errorf("%w: %w", harness.ErrGone, err)
		case err != nil:
			return nil, fmt.Errorf("reach the server: %w", err)
		}
		c.session = session
	}
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err == nil {
		return json.Marshal(result)
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		if wire.Code == mcp.CodeUnsupportedProtocolVersion {
			return nil, fmt.Errorf("%w: error %d: %s", harness.ErrGone, wire.Code, wire.Message)
		}
		return nil, &harness.Refused{Code: wire.Code, Message: wire.Message}
	}
	c.close() // dead, or with an answer that nobody waits for any more
	return nil, err
}

func (c *sessionCaller) close() {
	if c.session == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.session.Close()
	}()
	select {
	case <-done:
	case <-time.After(closeTime):
	}
	c.session = nil
}

// closeTime is how long a server may take to end, with the signals that it is
// sent by then.
const closeTime = 10 * time.Second
