package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
)

type logOptions struct {
	filter
	follow bool
	limit  int
}

func newLog(g *global) *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "log [DIR|FILE]",
		Short: "List records",
		Long: `log lists the records of a ledger, a line each: position, time in your zone,
decision, outcome, tool, request id, reason. It does not verify them.

With --format json each line is the record as stored, with characters that
could move a cursor or hide escaped.

Exit status: 0 listed, 2 wrong usage, 3 missing or unreadable, or some lines
are no records.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runLog(c.Context(), g, o, dirOf(args), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.tool, "tool", "", "only records of this tool")
	f.StringVar(&o.outcome, "outcome", "", "only records with this outcome: committed, replay, observed, error, not_executed, intent")
	f.StringVar(&o.decision, "decision", "", "only records with this decision: allow, deny, pending, void")
	f.StringVar(&o.requestID, "request-id", "", "only records with this request id")
	f.StringVar(&o.traceID, "trace-id", "", "only records of calls in this trace")
	f.Var(&o.since, "since", "only records from here on")
	f.Var(&o.until, "until", "only records before this")
	f.BoolVar(&o.follow, "follow", false, "go on with records as they are written")
	f.IntVar(&o.limit, "limit", 0, "only the last N records; with --follow, then those that come")
	return c
}

func runLog(ctx context.Context, g *global, o logOptions, path string, out io.Writer) error {
	if o.limit < 0 {
		return usageError{errors.New("--limit takes a number that is not negative")}
	}
	w := bufio.NewWriterSize(out, 64<<10)
	defer w.Flush()
	var last [][]byte // with a limit, the last lines, until the end is known
	following := false
	each := func(p verify.Place, v *ledger.View) error {
		if !o.match(p, v) {
			return nil
		}
		var line []byte
		if g.json() {
			line = append(bytes.Clone(escapeJSON(v.Line)), '\n')
		} else {
			r := v.Record()
			line = append(line, recordText(p, &r)+"\n"...)
		}
		if o.limit > 0 && !following {
			if last = append(last, line); len(last) > o.limit {
				last = last[1:]
			}
			return nil
		}
		_, err := w.Write(line)
		if err == nil && following {
			err = w.Flush()
		}
		return err
	}
	caught := func() error {
		following = o.follow
		for _, line := range last {
			w.Write(line)
		}
		last = nil
		return w.Flush()
	}
	if o.follow {
		return follow(ctx, path, each, caught)
	}
	err := walk(ctx, path, each)
	if e := caught(); err == nil {
		err = e
	}
	return err
}

// follow lists what there is, calls caught, and goes on until ctx ends.
func follow(ctx context.Context, dir string, each func(verify.Place, *ledger.View) error, caught func() error) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return usageError{errors.New("--follow takes a ledger directory")}
	}
	var l leftOut
	err := verify.Follow(ctx, dir, l.except(each), caught)
	if ctx.Err() == nil {
		return uncheckedError{err}
	}
	return l.err()
}

// quoted is s as a JSON string, to compare with a record's.
func quoted(s string) string { return string(canon.AppendString(nil, s)) }

// escapeJSON is a canonical line with every character escaped that a terminal
// might obey or hide. It is the same JSON value.
func escapeJSON(line []byte) []byte {
	if bytes.IndexFunc(line, func(r rune) bool { return r >= 0x7f }) < 0 {
		return line
	}
	var out []byte
	for i, r := range string(line) {
		switch {
		case r < 0x7f || ledger.Escape(string(r)) == string(r):
			out = append(out, line[i:i+len(string(r))]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
