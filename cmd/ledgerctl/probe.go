package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
	"github.com/auditledger/auditledger/verify/snapshot"
)

type probeOptions struct {
	server  serverOptions
	tool    string
	args    string
	targets []string
	ledger  string
	timeout time.Duration
}

func newProbe(g *global) *cobra.Command {
	var o probeOptions
	c := &cobra.Command{
		Use:   "probe --tool NAME [--args JSON] --target PATH… -- SERVER [ARG…]",
		Short: "Prove that a server refuses a call, and leaves its target alone",
		Long: `probe calls a tool that should be refused, and looks for the three signals of a
refusal:
  1  hidden     the tool is not listed
  2  refused    the direct call is answered with error -32602
     recorded   and the ledger has a record of it: deny, not_executed
  3  untouched  existence, type, size, time and SHA-256 of each target are as
                before; where it is a directory, of all that is in it

The server is started over stdio and ended again; its LEDGER_DIR is that of
--ledger where it is given. Or it is reached at --http URL. Both revisions of
the protocol are spoken. The record is looked for among those that came after
the server was ready. Run it beside other callers of the same tool and their
refusals may be taken for its own.

Exit status: 0 proven, 1 disproven (the report says which signal), 2 wrong
usage, 3 could not say.`,
		RunE: func(c *cobra.Command, args []string) error {
			o.server.argv = args
			switch {
			case o.tool == "":
				return usageError{errors.New("--tool is needed")}
			case len(o.targets) == 0:
				return usageError{errors.New("--target is needed: a path that the call would change")}
			case (o.server.http == "") == (len(args) == 0):
				return usageError{errors.New("give the command of a server after --, or --http URL")}
			case o.timeout <= 0 || o.server.silence <= 0:
				return usageError{errors.New("--timeout and --discover-timeout take durations such as 30s")}
			}
			return runProbe(c.Context(), g, o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.tool, "tool", "", "the tool to call")
	f.StringVar(&o.args, "args", "{}", "its arguments, a JSON object")
	f.StringArrayVar(&o.targets, "target", nil, "a path that the call would change; may be given more than once")
	f.StringVar(&o.ledger, "ledger", "", "the server's ledger directory (default $LEDGER_DIR, else .ledger)")
	f.StringVar(&o.server.http, "http", "", "address of a server, in place of a command")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long the server may take to start and to answer, each")
	f.DurationVar(&o.server.silence, "discover-timeout", silenceDefault, "how long server/discover may stay unanswered until initialize is tried")
	return c
}

// A sign is one sign of a refusal.
type sign struct {
	Name   string `json:"signal"`
	Holds  *bool  `json:"holds"` // null where it could not be told
	Detail string `json:"detail"`
}

// probeReport is what a probe found.
type probeReport struct {
	Verdict  string     `json:"verdict"` // proven, disproven, unknown
	Tool     string     `json:"tool"`
	Protocol string     `json:"protocol,omitempty"`
	Signals  []sign     `json:"signals"`
	Record   *recordRef `json:"record,omitempty"`
}

type recordRef struct {
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"`
}

func (r *probeReport) say(name string, holds bool, format string, args ...any) {
	r.Signals = append(r.Signals, sign{name, &holds, fmt.Sprintf(format, args...)})
}

func (r *probeReport) unknown(name, format string, args ...any) {
	r.Signals = append(r.Signals, sign{name, nil, fmt.Sprintf(format, args...)})
}

func runProbe(ctx context.Context, g *global, o probeOptions, out io.Writer) error {
	args, err := canon.Parse([]byte(o.args))
	if err != nil {
		return usageError{fmt.Errorf("--args: %w", err)}
	}
	if args.Kind() != canon.Object {
		return usageError{errors.New("--args takes a JSON object")}
	}
	dir := o.ledger
	if dir == "" {
		dir = dirOf(nil)
	} else {
		o.server.ledger = dir
	}
	r := &probeReport{Tool: o.tool}
	if err := r.probe(ctx, o, args, dir); err != nil {
		return err
	}
	r.Verdict = "proven"
	for _, s := range r.Signals {
		switch {
		case s.Holds == nil && r.Verdict == "proven":
			r.Verdict = "unknown"
		case s.Holds != nil && !*s.Holds:
			r.Verdict = "disproven"
		}
	}
	if g.json() {
		err = writeJSON(out, r)
	} else {
		err = r.writeText(out)
	}
	switch {
	case err != nil:
		return uncheckedError{err}
	case r.Verdict == "disproven":
		return status(1)
	case r.Verdict == "unknown":
		return status(exitUnchecked)
	}
	return nil
}

func (r *probeReport) writeText(out io.Writer) error {
	var b strings.Builder
	var failed []string
	fmt.Fprintf(&b, "probe of %s, protocol %s\n", ledger.Escape(r.Tool), ledger.Escape(r.Protocol))
	number := map[string]string{"hidden": "1", "refused": "2", "recorded": " ", "untouched": "3"}
	for _, s := range r.Signals {
		word := "unknown"
		if s.Holds != nil {
			if word = "yes"; !*s.Holds {
				word = "NO"
			}
		}
		if word != "yes" {
			failed = append(failed, s.Name)
		}
		fmt.Fprintf(&b, "  %s  %-9s  %-7s  %s\n", number[s.Name], s.Name, word, ledger.Escape(s.Detail))
	}
	switch r.Verdict {
	case "proven":
		b.WriteString("PROVEN: refused, and the target was left alone\n")
	case "disproven":
		fmt.Fprintf(&b, "DISPROVEN: %s\n", strings.Join(failed, ", "))
	default:
		fmt.Fprintf(&b, "UNKNOWN: %s\n", strings.Join(failed, ", "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// probe fills r. Its error is that of a use or of a server that never was
// ready; what comes after is a signal.
func (r *probeReport) probe(ctx context.Context, o probeOptions, args canon.Value, dir string) error {
	timed := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, o.timeout) }
	connecting, cancel := timed()
	defer cancel()
	session, err := o.server.connect(connecting)
	if err != nil {
		return uncheckedError{fmt.Errorf("reach the server: %w", err)}
	}
	open := true
	shut := func() {
		if open {
			open = false
			session.Close()
		}
	}
	defer shut()
	if res := session.InitializeResult(); res != nil {
		r.Protocol = res.ProtocolVersion
	}

	before := new(bytes.Buffer)
	if _, err := snapshot.Take(ctx, before, o.targets, snapshot.Options{}); err != nil {
		return usageError{fmt.Errorf("--target: %w", err)}
	}
	last, ledgerErr := lastSeq(ctx, dir)

	listing, cancel := timed()
	defer cancel()
	r.hidden(listing, session, o.tool)

	calling, cancel := timed()
	defer cancel()
	_, err = session.CallTool(calling, &mcp.CallToolParams{Name: o.tool, Arguments: json.RawMessage(args.Append(nil))})
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil:
		r.say("refused", false, "the call was answered with a result")
	case isWire && wire.Code == jsonrpc.CodeInvalidParams:
		r.say("refused", true, "error %d: %s", wire.Code, wire.Message)
	case isWire:
		r.say("refused", false, "error %d, not -32602: %s", wire.Code, wire.Message)
	default:
		r.unknown("refused", "no answer: %v", err)
	}

	// What the server does before it ends is part of what it did.
	shut()
	if ledgerErr != nil {
		r.unknown("recorded", "the ledger could not be read before the call: %v", ledgerErr)
	} else {
		r.recorded(ctx, o, dir, last, ledger.Digest(args.Append(nil)).String())
	}
	r.untouched(ctx, o.targets, before)
	return nil
}

func (r *probeReport) hidden(ctx context.Context, session *mcp.ClientSession, tool string) {
	n := 0
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code == jsonrpc.CodeMethodNotFound {
				r.say("hidden", true, "the server lists no tools")
				return
			}
			r.unknown("hidden", "the tools could not be listed: %v", err)
			return
		}
		if n++; t.Name == tool {
			r.say("hidden", false, "the tool is listed")
			return
		}
	}
	r.say("hidden", true, "not among the %d tools that are listed", n)
}

// lastSeq is the position of the last record, 0 where there is no ledger yet.
func lastSeq(ctx context.Context, dir string) (last uint64, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if names, err := os.ReadDir(dir); err == nil && len(names) == 0 {
		return 0, nil
	}
	err = verify.Walk(ctx, dir, func(p verify.Place, _ *ledger.View) error {
		last = p.Seq
		return nil
	})
	return last, err
}

// recorded looks for the record of the refusal after position last.
func (r *probeReport) recorded(ctx context.Context, o probeOptions, dir string, last uint64, digest string) {
	const name = "recorded"
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if o.server.http != "" && o.ledger == "" && os.Getenv("LEDGER_DIR") == "" {
			r.unknown(name, "no ledger was given: give --ledger")
			return
		}
		r.say(name, false, "no record: there is no ledger at %s", dir)
		return
	}
	other := ""
	found, strange := 0, 0
	var scratch []byte
	err := verify.Walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		if v == nil {
			strange++
			return nil
		}
		if p.Seq <= last || !ledger.Is(v.Method, ledger.MethodCall) || string(v.Name) != quoted(ledger.Clip(o.tool)) || !ledger.Is(v.ArgsDigest, digest) {
			return nil
		}
		rec := v.Record()
		switch {
		case v.Compute(&scratch) != v.Sum:
			other = fmt.Sprintf("the bytes of record %d do not match its sha256", p.Seq)
		case rec.Decision == ledger.Deny && rec.Outcome == ledger.NotExecuted:
			if found++; r.Record == nil {
				r.Record = &recordRef{p.Seq, v.Sum.String()}
			}
		default:
			other = fmt.Sprintf("record %d of the call says %s/%s", p.Seq, rec.Decision, rec.Outcome)
		}
		return nil
	})
	switch {
	case err != nil:
		r.unknown(name, "the ledger cannot be read: %v", err)
	case other != "":
		r.say(name, false, "%s", other)
	case found == 0 && strange > 0:
		r.unknown(name, "no record of the call, but %d lines of the ledger are no records: see ledgerctl verify", strange)
	case found == 0:
		r.say(name, false, "no record of the call in %s after position %d", dir, last)
	default:
		r.say(name, true, "record %d, %s/%s, sha256 %s", r.Record.Seq, ledger.Deny, ledger.NotExecuted, r.Record.SHA256)
	}
}

// untouched compares the targets with how they were.
func (r *probeReport) untouched(ctx context.Context, targets []string, before io.Reader) {
	const name = "untouched"
	after := new(bytes.Buffer)
	_, err := snapshot.Take(ctx, after, targets, snapshot.Options{})
	var first snapshot.Change
	var counts snapshot.Counts
	if err == nil {
		counts, err = compareSnapshots(before, after, func(c snapshot.Change) error {
			if first.Kind == "" || first.Kind == snapshot.KindUnknown {
				first = c
			}
			return nil
		})
	}
	switch {
	case err != nil:
		r.unknown(name, "the targets cannot be looked at: %v", err)
	case counts.Differs():
		more := int64(-1)
		for _, n := range counts.Of {
			more += n
		}
		text := fmt.Sprintf("%s: %s: %s", first.Path, first.Kind, difference(first))
		if more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
		r.say(name, false, "%s", text)
	case counts.Of[snapshot.KindUnknown] > 0:
		r.unknown(name, "%s: %s", first.Path, first.Reason)
	default:
		r.say(name, true, "all as before; looked at: %d", counts.Same)
	}
}

func compareSnapshots(before, after io.Reader, f func(snapshot.Change) error) (snapshot.Counts, error) {
	b, err := snapshot.NewReader(before)
	if err != nil {
		return snapshot.Counts{}, err
	}
	a, err := snapshot.NewReader(after)
	if err != nil {
		return snapshot.Counts{}, err
	}
	return snapshot.Compare(b, a, f)
}
