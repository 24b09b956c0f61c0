package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

type verifyOptions struct {
	expectHead    string
	expectRecords int64
	from          string
	checkpoint    string
	since         moment
	maxFaults     int
	anchors       sinkOptions
}

func newVerify(g *global) *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use:   "verify [DIR|FILE…|-]",
		Short: "Check a ledger and say what was proven",
		Long: `verify checks every record of a ledger and the links between them, and reports
all faults with their class and place.

A directory is checked with its head.json and all its segments. Files given by
name are checked alone, as one chain in that order. - is standard input.

With --anchors it starts from what the anchors say: each must be in the chain,
and the anchors themselves must be as push left them.

Exit status:
  0  intact: the chain is whole (that it is complete is not proven without an
     anchor), or anchored
  1  tampered: at least one fault, of the ledger or of its anchors
  2  wrong usage
  3  unchecked: missing, empty or unreadable, or the anchors were out of reach,
     or there are none: nothing was proven
  4  torn: whole up to an unfinished last line (a crash, or a cut)`,
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("anchors") && isLedger(args) {
				o.anchors.address = os.Getenv("LEDGER_ANCHOR")
			}
			return runVerify(c.Context(), g, o, args, c.OutOrStdout(), c.InOrStdin())
		},
	}
	f := c.Flags()
	f.StringVar(&o.expectHead, "expect-head", "", "a record with this sha256 must be in the ledger")
	f.Int64Var(&o.expectRecords, "expect-records", 0, "the ledger must hold at least this many records")
	f.StringVar(&o.from, "from", "", "begin at a record that you trust: SEQ:SHA256, or a file that --write-checkpoint wrote")
	f.StringVar(&o.checkpoint, "write-checkpoint", "", "where nothing is wrong, write the end of the chain to this file, for --from")
	f.Var(&o.since, "since", "with text: print faults and warnings from here on only; everything is checked all the same")
	f.StringVar(&o.anchors.address, "anchors", "", "compare with the anchors at s3://BUCKET/PREFIX or file:///DIRECTORY (default $LEDGER_ANCHOR for a directory; --anchors= asks none)")
	o.anchors.add(f)
	f.IntVar(&o.maxFaults, "max-faults", 0, "how many faults are listed; all are counted (default 10000)")
	return c
}

func runVerify(ctx context.Context, g *global, o verifyOptions, args []string, out io.Writer, in io.Reader) error {
	opts := verify.Options{MaxFaults: o.maxFaults}
	if o.expectHead != "" {
		h, ok := ledger.ParseHash([]byte(o.expectHead))
		if !ok {
			return usageError{errors.New("--expect-head takes 64 lower-case hexadecimal digits")}
		}
		opts.ExpectHeads = []ledger.Hash{h}
	}
	if o.expectRecords < 0 {
		return usageError{errors.New("--expect-records takes a number that is not negative")}
	}
	if o.expectRecords > 0 {
		n := uint64(o.expectRecords)
		opts.ExpectRecords = &n
	}
	if o.from != "" {
		from, err := readFrom(o.from)
		if err != nil {
			return err
		}
		opts.From = from
	}
	if isTerminal(os.Stderr) {
		p := &progress{w: os.Stderr, every: 200 * time.Millisecond, begun: time.Now()}
		opts.Progress = p.show
		defer p.clear()
	}

	var r *verify.Report
	var err error
	if len(args) == 0 {
		args = []string{dirOf(nil)}
	}
	var anchors *consulted
	if o.anchors.address != "" {
		if anchors, opts.Anchors, err = consult(ctx, o.anchors, args, opts.From); err != nil {
			return err
		}
	}
	switch {
	case len(args) == 1 && args[0] == "-":
		r, err = verify.Reader(ctx, "standard input", in, opts)
	case isLedger(args):
		r, err = verify.Dir(ctx, args[0], opts)
	default:
		r, err = verify.Files(ctx, args, opts)
	}
	if err != nil {
		if ctx.Err() != nil {
			return uncheckedError{errors.New("interrupted: nothing was proven")}
		}
		return usageError{err}
	}
	if anchors != nil {
		anchors.report(r)
	}
	if o.checkpoint != "" && r.Checkpoint != nil && (r.Verdict == verify.Intact || r.Verdict == verify.Anchored) {
		if err := writeCheckpoint(o.checkpoint, r.Checkpoint); err != nil {
			return uncheckedError{fmt.Errorf("write the checkpoint: %w", err)}
		}
	}
	if g.json() {
		err = writeJSON(out, r)
	} else {
		since := verify.Since{Seq: o.since.seq}
		if o.since.ns != 0 {
			since.Time = time.Unix(0, o.since.ns)
		}
		err = r.WriteText(out, since)
	}
	if err != nil {
		return uncheckedError{err}
	}
	return verdictStatus(r.Verdict)
}

// isLedger reports whether the argument is a ledger directory, there or not.
func isLedger(args []string) bool {
	if len(args) != 1 {
		return len(args) == 0
	}
	info, err := os.Stat(args[0])
	return err == nil && info.IsDir() || err != nil && args[0] != "-" && filepath.Ext(args[0]) == ""
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progress shows how far a long check is, on a terminal.
type progress struct {
	w           io.Writer
	every       time.Duration
	begun, last time.Time
	shown       bool
}

func (p *progress) show(done, total int64) {
	now := time.Now()
	if now.Sub(p.begun) < time.Second || now.Sub(p.last) < p.every {
		return
	}
	p.last, p.shown = now, true
	if total > 0 {
		fmt.Fprintf(p.w, "\r%3d %% of %d MiB", 100*done/total, total>>20)
	} else {
		fmt.Fprintf(p.w, "\r%d MiB", done>>20)
	}
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
