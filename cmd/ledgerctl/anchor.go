package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/anchor/fileanchor"
	"github.com/auditledger/auditledger/anchor/s3anchor"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/verify"
)

// sinkOptions say where anchors are kept. verify has them too.
type sinkOptions struct {
	address string
	s3      s3anchor.Options
}

func (o *sinkOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.s3.Endpoint, "endpoint-url", "", "with s3: a server of your own, such as http://127.0.0.1:7070 (default $AWS_ENDPOINT_URL_S3)")
	f.StringVar(&o.s3.Region, "region", "", "with s3: the region (default $AWS_REGION)")
	f.StringVar((*string)(&o.s3.Addressing), "addressing", "", "with s3: where the bucket is named, path or virtual (default path with an endpoint of your own)")
}

// open is the sink at an address.
func (o *sinkOptions) open(ctx context.Context, address string) (anchor.Sink, error) {
	switch {
	case address == "":
		return nil, usageError{errors.New("no place for anchors is known: give its address, s3://BUCKET/PREFIX or file:///DIRECTORY, or set LEDGER_ANCHOR")}
	case strings.HasPrefix(address, "s3://"):
		switch o.s3.Addressing {
		case s3anchor.Auto, s3anchor.Path, s3anchor.VirtualHost:
		default:
			return nil, usageError{errors.New("--addressing is path or virtual")}
		}
		s, err := s3anchor.New(ctx, address, o.s3)
		if err != nil {
			return nil, usageError{err}
		}
		return s, nil
	case strings.HasPrefix(address, "file://"):
		u, err := url.Parse(address)
		if err != nil || u.Host != "" || !filepath.IsAbs(filepath.FromSlash(u.Path)) {
			return nil, usageError{fmt.Errorf("%q is no address of a directory: want file:///DIRECTORY", address)}
		}
		return fileanchor.New(filepath.FromSlash(u.Path), address), nil
	}
	return nil, usageError{fmt.Errorf("%q is no place for anchors: want s3://BUCKET/PREFIX or file:///DIRECTORY", address)}
}

// period is a duration that may be given in days.
type period time.Duration

func (p *period) String() string {
	if d := time.Duration(*p); d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return time.Duration(*p).String()
}

func (p *period) Set(s string) error {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n == 0 {
			return errors.New("want a number of days such as 400d, or a time such as 36h")
		}
		*p = period(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("want a number of days such as 400d, or a time such as 36h")
	}
	*p = period(d)
	return nil
}

func (*period) Type() string { return "period" }

func newAnchor(g *global) *cobra.Command {
	c := &cobra.Command{
		Use:   "anchor",
		Short: "Keep the head of a ledger where its owner cannot change it",
		Long: `anchor keeps statements of the head of a ledger in a bucket with S3 Object
Lock, or as files on another volume, for verify --anchors to start from.

The address is s3://BUCKET/PREFIX or file:///DIRECTORY, $LEDGER_ANCHOR where
--to is left out. One prefix is for one ledger. Credentials, region and profile
of S3 are found as by every AWS SDK.`,
	}
	c.AddCommand(newAnchorPush(g), newAnchorList(g), newAnchorCheck(g))
	return c
}

type pushOptions struct {
	sinkOptions
	retain   period
	mode     string
	always   bool
	receipts string
	textfile string
	timeout  time.Duration
}

func newAnchorPush(g *global) *cobra.Command {
	o := pushOptions{retain: period(400 * 24 * time.Hour)}
	c := &cobra.Command{
		Use:   "push [DIR]",
		Short: "Anchor the head of a ledger",
		Long: `push verifies what is new since the last anchor, states the last record with
its number and hash in one locked object, and reads the lock back. Only then it
notes a receipt in DIR/anchors.jsonl. That it was tried, and whether it went
well, it notes in DIR/anchor-run.json, for "ledgerctl exporter". It refuses a chain that does not verify,
and one that does not extend what was anchored before.

A head that was anchored already is not anchored again, unless half of the time
of its lock is over, or with --always.

Exit status:
  0  anchored, or anchored before
  1  refused: the ledger does not verify or does not extend the last anchor, or
     somebody else wrote at the key; a retry will not mend it
  2  wrong usage
  3  not anchored: the ledger is empty or cannot be read, the place cannot be
     reached or does not lock, or the permission is missing`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runPush(c.Context(), g, o, dirOf(args), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.address, "to", "", "where to: s3://BUCKET/PREFIX or file:///DIRECTORY (default $LEDGER_ANCHOR)")
	f.Var(&o.retain, "retain", "how long nobody may remove the anchor")
	f.StringVar(&o.mode, "mode", string(anchor.Compliance), "of the lock: COMPLIANCE, or GOVERNANCE, which some may lift")
	f.BoolVar(&o.always, "always", false, "anchor also a head that was anchored before, as a sign of life")
	f.StringVar(&o.receipts, "receipts", "", "the file of receipts (default DIR/"+anchor.ReceiptsName+")")
	f.StringVar(&o.textfile, "textfile", "", "write when this ran and how it went to this file, for the node exporter")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this long")
	o.add(f)
	return c
}

func runPush(ctx context.Context, g *global, o pushOptions, dir string, out, stderr io.Writer) error {
	mode := anchor.Mode(strings.ToUpper(o.mode))
	if mode != anchor.Compliance && mode != anchor.Governance {
		return usageError{errors.New("--mode is COMPLIANCE or GOVERNANCE")}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no answer within %s", o.timeout))
	defer cancel()
	r, err := push(ctx, o, mode, dir)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return err // nothing was tried
	}
	if e := anchor.NoteRun(filepath.Join(dir, anchor.RunName), time.Now(), err == nil); e != nil {
		fmt.Fprintf(stderr, "note: %s\n", ledger.Escape(e.Error()))
	}
	if o.textfile != "" {
		if e := writeTextfile(o.textfile, dir, time.Now(), r, err); e != nil && err == nil {
			err = fmt.Errorf("anchored, but the text file was not written: %w", e)
		} else if e != nil {
			fmt.Fprintf(stderr, "ledgerctl: the text file was not written: %v\n", e)
		}
	}
	if r != nil {
		for _, n := range r.Notes {
			fmt.Fprintf(stderr, "note: %s\n", ledger.Escape(n))
		}
	}
	if err != nil {
		return pushError(ctx, err)
	}
	if g.json() {
		return writeJSON(out, struct {
			anchorJSON
			Already bool   `json:"already"`
			Since   uint64 `json:"since"`
		}{jsonOf(r.Anchor), r.Already, r.Since})
	}
	what := fmt.Sprintf("anchored %d records since the last anchor", r.Since)
	if r.Already {
		what = "anchored already"
	}
	fmt.Fprintf(out, "%s: through seq %d, sha256 %s\n%s, version %s, %s\n", what, r.Head.Seq, r.Head.Sum, r.Key, ledger.Escape(cmp.Or(r.Version, "-")), r.Lock)
	return nil
}

// pushError gives an error of a push its exit status.
func pushError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[usageError](err); ok {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, anchor.ErrRefused) {
		return tamperedError{err}
	}
	return uncheckedError{err}
}

func push(ctx context.Context, o pushOptions, mode anchor.Mode, dir string) (*anchor.Result, error) {
	sink, err := o.open(ctx, cmp.Or(o.address, os.Getenv("LEDGER_ANCHOR")))
	if err != nil {
		return nil, err
	}
	return anchor.Push(ctx, anchor.Options{
		Sink: sink, Ledger: ledgerAt(dir), Receipts: cmp.Or(o.receipts, filepath.Join(dir, anchor.ReceiptsName)),
		Retain: time.Duration(o.retain), Mode: mode, Always: o.always, Tool: "ledgerctl " + version(), Now: time.Now,
	})
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(devel)"
}

// ledgerAt is a ledger directory, as a push looks at it.
type ledgerAt string

// Identity is the hash of the first record.
func (dir ledgerAt) Identity(ctx context.Context) (ledger.Hash, error) {
	id, _, err := firstOf(ctx, string(dir))
	return id, err
}

// firstOf is the hash of the first record of a directory or file, zero where
// there is none, and its number. A first record that goes on from an earlier
// one says nothing of the ledger's identity: its hash is zero then too.
func firstOf(ctx context.Context, path string) (id ledger.Hash, seq uint64, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ledger.Hash{}, 0, nil
	}
	if err != nil {
		return ledger.Hash{}, 0, err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return ledger.Hash{}, 0, err
		}
		some := false
		for _, e := range entries {
			_, _, sealed := ledger.ParseSegmentName(e.Name())
			some = some || sealed || e.Name() == ledger.ActiveName
		}
		if !some {
			return ledger.Hash{}, 0, nil
		}
	}
	err = verify.Walk(ctx, path, func(p verify.Place, v *ledger.View) error {
		seq = p.Seq
		if v != nil && v.Prev.IsZero() {
			id = v.Sum
		}
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return id, seq, err
}

// Extend checks what came after a record.
func (dir ledgerAt) Extend(ctx context.Context, from *anchor.Mark) (anchor.Mark, error) {
	var o verify.Options
	if from != nil {
		o.From = &verify.Checkpoint{Segment: from.Segment, Line: from.Line, Offset: from.Offset, Seq: from.Head.Seq, Sum: from.Head.Sum}
	}
	r, err := verify.Dir(ctx, string(dir), o)
	if err != nil {
		return anchor.Mark{}, err
	}
	switch r.Verdict {
	case verify.Intact, verify.Anchored, verify.Torn:
	case verify.Unchecked:
		return anchor.Mark{}, fmt.Errorf("anchor %s: it could not be checked: %s", dir, strings.Join(r.NotChecked, "; "))
	default:
		why := ""
		if len(r.Faults) > 0 {
			f := r.Faults[0]
			why = fmt.Sprintf(": %s at seq %d: %s", f.Kind, f.Seq, f.Detail)
		}
		return anchor.Mark{}, fmt.Errorf("anchor %s: %w: the ledger does not verify (%d faults)%s; look at it with ledgerctl verify", dir, anchor.ErrRefused, r.FaultsTotal, why)
	}
	c := r.Checkpoint
	if c == nil {
		return anchor.Mark{}, anchor.ErrEmpty
	}
	// Elsewhere a server has the lock for its life.
	if runtime.GOOS == "linux" && r.Stable != nil && r.Stable.Held {
		return anchor.Mark{}, fmt.Errorf("anchor %s: a writer keeps the lock, and what it wrote last may not be durable yet; try again", dir)
	}
	return anchor.Mark{Head: ledger.Head{Seq: c.Seq, Sum: c.Sum}, Segment: c.Segment, Line: c.Line, Offset: c.Offset}, nil
}

// anchorJSON is an anchor for machines.
type anchorJSON struct {
	Ledger    string `json:"ledger"`
	Seq       uint64 `json:"seq"`
	SHA256    string `json:"sha256"`
	TS        int64  `json:"ts"`
	Tool      string `json:"tool"`
	Previous  string `json:"previous"`
	Statement string `json:"statement"`
	Key       string `json:"key"`
	Version   string `json:"version"`
	Mode      string `json:"mode"`
	Until     string `json:"until,omitempty"`
	Holds     bool   `json:"holds"`
}

func jsonOf(a anchor.Anchor) anchorJSON {
	j := anchorJSON{Ledger: a.Ledger.String(), Seq: a.Head.Seq, SHA256: a.Head.Sum.String(), TS: a.TS, Tool: a.Tool, Previous: a.Previous.String(),
		Statement: a.Digest.String(), Key: a.Key, Version: a.Version, Mode: string(a.Lock.Mode), Holds: a.Lock.Holds(time.Now())}
	if !a.Lock.Until.IsZero() {
		j.Until = a.Lock.Until.UTC().Format(time.RFC3339)
	}
	return j
}

func newAnchorList(g *global) *cobra.Command {
	var o sinkOptions
	c := &cobra.Command{
		Use:   "list [DIR]",
		Short: "List what is anchored, and what is wrong with it",
		Long: `list reads every version and delete marker under the address, and prints the
statements that count and what is found of them. DIR says which ledger is meant,
and has the receipts to compare with; it may be missing. Whether the ledger
agrees is for verify --anchors to say.

Exit status: 0 listed, 1 something is wrong with the anchors, 2 wrong usage,
3 the place could not be read.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runAnchorList(c.Context(), g, o, dirOf(args), c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&o.address, "to", "", "where: s3://BUCKET/PREFIX or file:///DIRECTORY (default $LEDGER_ANCHOR)")
	o.add(c.Flags())
	return c
}

func runAnchorList(ctx context.Context, g *global, o sinkOptions, dir string, out io.Writer) error {
	sink, err := o.open(ctx, cmp.Or(o.address, os.Getenv("LEDGER_ANCHOR")))
	if err != nil {
		return err
	}
	id, _, _ := firstOf(ctx, dir)
	receipts, _ := anchor.ReadReceipts(filepath.Join(dir, anchor.ReceiptsName))
	s, err := anchor.Look(ctx, sink, receipts, time.Now())
	if err != nil {
		return uncheckedError{err}
	}
	s = s.Of(id)
	if g.json() {
		all := []anchorJSON{}
		for _, a := range s.Anchors {
			all = append(all, jsonOf(a))
		}
		err = writeJSON(out, map[string]any{"sink": s.Sink, "anchors": all, "findings": s.Findings, "versions": s.Versions})
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "seq\tsha256\tmade\tlock\tversion")
		for _, a := range s.Anchors {
			fmt.Fprintf(w, "%d\t%.16s…\t%s\t%s\t%s\n", a.Head.Seq, a.Head.Sum, time.Unix(0, a.TS).UTC().Format(time.RFC3339), a.Lock, ledger.Escape(a.Version))
		}
		for _, f := range s.Findings {
			label := "warning"
			if f.Kind.IsFault() {
				label = "FAULT"
			}
			fmt.Fprintf(w, "%s %s: %s%s\n", label, f.Kind, ledger.Escape(f.Key), ledger.Escape(strings.TrimPrefix(": "+f.Detail, map[bool]string{true: ": "}[f.Key == ""])))
		}
		err = w.Flush()
	}
	if err == nil && s.Faults() > 0 {
		err = status(exitTampered)
	}
	return err
}

func newAnchorCheck(g *global) *cobra.Command {
	var o sinkOptions
	mode, retain := string(anchor.Compliance), period(time.Minute)
	c := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Try out whether a bucket keeps what it is given",
		Long: `check looks at versioning, Object Lock, default retention, public access and the
clock, and makes a trial object with a short lock, which it then tries to delete
in each way: that must be refused. An answer that repeats what was asked proves
nothing. It also says which permissions are missing or too wide. The trial
object stays below PREFIX/check/; it says nothing of a ledger.

Exit status: 0 anchors can be made there and hold, 1 they cannot or do not,
2 wrong usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			m := anchor.Mode(strings.ToUpper(mode))
			if m != anchor.Compliance && m != anchor.Governance {
				return usageError{errors.New("--mode is COMPLIANCE or GOVERNANCE")}
			}
			return runAnchorCheck(c.Context(), g, o, anchor.CheckOptions{Mode: m, Retain: time.Duration(retain), Beside: dirOf(args), Now: time.Now}, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.address, "to", "", "where: s3://BUCKET/PREFIX or file:///DIRECTORY (default $LEDGER_ANCHOR)")
	f.StringVar(&mode, "mode", mode, "of the trial's lock: COMPLIANCE or GOVERNANCE")
	f.Var(&retain, "retain", "how long the trial object is locked")
	o.add(f)
	return c
}

func runAnchorCheck(ctx context.Context, g *global, o sinkOptions, co anchor.CheckOptions, out io.Writer) error {
	sink, err := o.open(ctx, cmp.Or(o.address, os.Getenv("LEDGER_ANCHOR")))
	if err != nil {
		return err
	}
	all := sink.(anchor.Checker).Check(ctx, co)
	failed := false
	for _, c := range all {
		failed = failed || c.State == anchor.Failed
	}
	if g.json() {
		err = writeJSON(out, map[string]any{"sink": sink.String(), "good": !failed, "checks": all})
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, c := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.State, c.Name, ledger.Escape(c.Detail))
		}
		w.Flush()
		if failed {
			fmt.Fprintf(out, "\n%s: NO PLACE FOR ANCHORS\n", sink)
		} else {
			fmt.Fprintf(out, "\n%s: anchors can be made there, and hold\n", sink)
		}
	}
	if err == nil && failed {
		err = status(exitTampered)
	}
	return err
}

// consulted is what a verify with anchors knows before it reads the ledger: the
// anchors are read first, so that none is newer than what is then read.
type consulted struct {
	address string
	survey  *anchor.Survey
	err     error
	first   uint64 // of what is checked; anchors before it are left out
	skipped int
	trusted bool // the caller trusts what is before it
}

// consult reads the anchors for what is verified.
func consult(ctx context.Context, o sinkOptions, args []string, from *verify.Checkpoint) (*consulted, []verify.Claim, error) {
	c := &consulted{address: o.address, first: 1}
	sink, err := o.open(ctx, o.address)
	if err != nil {
		return nil, nil, err
	}
	var receipts []anchor.Receipt
	if len(args) == 1 {
		receipts, _ = anchor.ReadReceipts(filepath.Join(args[0], anchor.ReceiptsName))
	}
	if c.survey, c.err = anchor.Look(ctx, sink, receipts, time.Now()); c.err != nil {
		return c, nil, nil
	}
	id, seq, err := firstOf(ctx, args[0])
	if err == nil {
		c.survey = c.survey.Of(id)
		c.first = max(seq, 1)
	}
	if from != nil {
		c.first, c.trusted = max(c.first, from.Seq), true
	}
	var claims []verify.Claim
	for _, a := range c.survey.Anchors {
		if a.Head.Seq < c.first {
			c.skipped++
			continue
		}
		claims = append(claims, verify.Claim{Source: "the anchor " + a.Key[strings.IndexByte(a.Key, '/')+1:], Head: a.Head})
	}
	return c, claims, nil
}

// report adds to a report what was found of the anchors.
func (c *consulted) report(r *verify.Report) {
	if c.err != nil {
		r.Unproven(fmt.Sprintf("the anchors at %s: %v", c.address, c.err))
		return
	}
	s := c.survey
	for _, f := range s.Findings {
		if f.Kind.IsFault() {
			r.AddFault(verify.Kind(f.Kind), f.Key, f.Seq, f.Detail)
		} else {
			r.AddWarning(string(f.Kind), f.Key, f.Seq, f.Detail)
		}
	}
	if c.skipped > 0 {
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("%d anchors of records before seq %d", c.skipped, c.first))
	}
	last := s.Through()
	switch {
	case len(s.Anchors) == 0:
		r.Unproven(fmt.Sprintf("there is no anchor at %s yet: nothing shows that the ledger is complete; make one with ledgerctl anchor push", c.address))
	case c.skipped == len(s.Anchors) && !c.trusted:
		r.Unproven(fmt.Sprintf("all %d anchors at %s are of records before those that were checked: none was compared", len(s.Anchors), c.address))
	case last == nil:
		r.CountThrough(0)
		r.Unproven(fmt.Sprintf("of the %d anchors at %s none has a lock that still holds: they agree or not, but could have been changed", len(s.Anchors), c.address))
	default:
		r.CountThrough(last.Head.Seq)
		since := ""
		if r.Head.Seq >= last.Head.Seq {
			since = fmt.Sprintf("; %d records since are not anchored", r.Head.Seq-last.Head.Seq)
		}
		r.AddNote("anchors at %s: %d, the last of record %d, made %s, %s%s", ledger.Escape(c.address), len(s.Anchors), last.Head.Seq,
			time.Unix(0, last.TS).UTC().Format(time.RFC3339), last.Lock, since)
	}
}
