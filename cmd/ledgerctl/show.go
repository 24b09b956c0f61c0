package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
	"github.com/auditledger/auditledger/verify/snapshot"
)

func newShow(g *global) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "show SEQ|SHA256-PREFIX",
		Short: "Show one record",
		Long: `show prints one record, found by its position or by the beginning (8 digits or
more) of its sha256, and whether its bytes match its hash. It does not verify
the rest of the chain.

Exit status: 0 shown and its own hash is right, 1 its hash does not match its
bytes, 2 wrong usage, 3 no such record, or the ledger is unreadable.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				dir = dirOf(nil)
			}
			return runShow(c.Context(), g, dir, args[0], c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dir, "ledger", "", "ledger directory or file (default $LEDGER_DIR, else .ledger)")
	return c
}

func runShow(ctx context.Context, g *global, dir, which string, out io.Writer) error {
	place, line, err := findRecord(ctx, dir, which)
	if err != nil {
		return err
	}
	var v ledger.View
	var buf []byte
	if err := v.Parse(line); err != nil {
		return uncheckedError{err}
	}
	good := v.Compute(&buf) == v.Sum
	if g.json() {
		fmt.Fprintf(out, "{\"segment\":%s,\"line\":%d,\"offset\":%d,\"seq\":%d,\"hash_matches\":%t,\"record\":%s}\n",
			escapeJSON(canon.AppendString(nil, place.Segment)), place.Line, place.Offset, place.Seq, good, escapeJSON(line))
	} else {
		showText(out, place, line, v.TS, good)
	}
	if !good {
		return status(exitTampered)
	}
	return nil
}

// showText prints every member that is in the record, those of the format and
// others alike.
func showText(out io.Writer, p verify.Place, line []byte, ts int64, good bool) {
	fmt.Fprintf(out, "record %d: %s, line %d, byte %d\n", p.Seq, ledger.Escape(p.Segment), p.Line, p.Offset)
	value, err := canon.Parse(line)
	if err != nil {
		return
	}
	for key, m := range value.Members() {
		if key == "targets" {
			if targets, err := snapshot.ParseEvidence(m); err == nil {
				showTargets(out, targets)
				continue
			}
		}
		text := string(m.Append(nil))
		if m.Kind() == canon.String {
			text = m.Str()
		}
		fmt.Fprintf(out, "  %-12s %s", ledger.Escape(key), ledger.Escape(text))
		if key == "ts" {
			fmt.Fprintf(out, "  (%s)", when(ts))
		}
		fmt.Fprintln(out)
	}
	if good {
		fmt.Fprintln(out, "its bytes match its sha256; for the chain around it, see ledgerctl verify")
	} else {
		fmt.Fprintln(out, "ALTERED: its bytes do not match its sha256")
	}
}

// showTargets prints what a record says of the targets of its call.
func showTargets(out io.Writer, all []snapshot.Evidence) {
	for _, e := range all {
		word := ""
		switch same, known := e.Unchanged(); {
		case e.After == nil:
		case !known:
			word = ": cannot be told whether it changed"
		case same:
			word = ": unchanged"
		default:
			word = ": CHANGED"
		}
		fmt.Fprintf(out, "  %-12s %s = %s%s\n", "targets", ledger.Escape(e.Argument), ledger.Escape(e.Path), word)
		fmt.Fprintf(out, "    %-10s %s\n", "before", lookText(&e.Before))
		if e.After != nil {
			fmt.Fprintf(out, "    %-10s %s\n", "after", lookText(e.After))
		}
	}
}

func lookText(l *snapshot.Look) string {
	switch {
	case l.State == snapshot.NotLookedAt:
		return "not looked at: " + ledger.Escape(l.Reason)
	case l.State != snapshot.Exists:
		return ledger.Escape(string(l.State) + ": " + l.Reason)
	}
	text := "a " + string(l.Type)
	switch {
	case l.Type == snapshot.File:
		text += fmt.Sprintf(" of %d bytes", l.Size)
	case l.Type == snapshot.Dir && l.Hashed:
		text += fmt.Sprintf(" of %d entries", l.Entries)
	case l.Type == snapshot.Link && l.Unhashed == "":
		text += " to " + ledger.Escape(l.Link)
	}
	text += ", " + stampText(l.MTime)
	if l.Hashed {
		text += ", sha256 " + l.SHA256.String()
	}
	if l.Unhashed != "" {
		text += ", " + ledger.Escape(l.Unhashed+": "+l.Reason)
	}
	return text
}
