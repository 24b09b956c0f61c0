package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
	"github.com/auditledger/auditledger/verify/snapshot"
)

type diffOptions struct {
	now    bool
	record string
	ledger string
}

func newDiff(g *global) *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER | BEFORE --now | --record SEQ --now",
		Short: "Tell what differs between two states of files",
		Long: `diff compares two snapshots, or one with the disk of now: added, removed, type,
link (repointed), content, time (only the time differs), and unknown, where
that cannot be told. What was not looked at on one side is never called added
or removed. With --now, relative paths are taken from where BEFORE was taken.

With --record, the targets that a record of the ledger tells of, as they were
after its call, are compared with the disk. There relative paths are taken from
the working directory.

Exit status: 0 the same, 1 there are differences, 2 wrong usage, 3 it could not
be told: something is unknown and nothing else differs, or a snapshot is
missing, cut off or changed.`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case o.record != "" && (!o.now || len(args) > 0):
				return usageError{errors.New("--record is compared with the disk: give --now, and no snapshot")}
			case o.record == "" && o.ledger != "":
				return usageError{errors.New("--ledger belongs to --record")}
			case o.record != "":
				return runDiffRecord(c.Context(), g, o, c.OutOrStdout())
			case o.now && len(args) != 1, !o.now && len(args) != 2:
				return usageError{errors.New("give two snapshots, or one and --now")}
			}
			return runDiff(c.Context(), g, args, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&o.now, "now", false, "compare with the disk as it is now")
	c.Flags().StringVar(&o.record, "record", "", "compare the targets of this record: SEQ or the beginning of its sha256")
	c.Flags().StringVar(&o.ledger, "ledger", "", "with --record: ledger directory or file (default $LEDGER_DIR, else .ledger)")
	return c
}

// openSnapshot opens a snapshot that was read to its end once: a difference is
// told only of whole ones.
func openSnapshot(path string) (*os.File, *snapshot.Reader, error) {
	fail := func(err error) (*os.File, *snapshot.Reader, error) {
		if _, ok := errors.AsType[*os.PathError](err); !ok {
			err = fmt.Errorf("%s: %w", ledger.Escape(path), err)
		}
		return nil, nil, uncheckedError{err}
	}
	info, err := os.Stat(path) // opening a pipe would wait
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return fail(errors.New("not a regular file, which a snapshot is"))
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	r, err := snapshot.NewReader(f)
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			r, err = snapshot.NewReader(f)
		}
	}
	if err != nil {
		f.Close()
		return fail(err)
	}
	return f, r, nil
}

func runDiff(ctx context.Context, g *global, args []string, out io.Writer) error {
	f, before, err := openSnapshot(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	var after *snapshot.Reader
	if len(args) == 2 {
		h, r, err := openSnapshot(args[1])
		if err != nil {
			return err
		}
		defer h.Close()
		after = r
	} else {
		r, w := io.Pipe()
		defer r.Close()
		o := snapshot.Options{Base: before.Header.Base, MaxSize: before.Header.MaxSize, Progress: looking()}
		if info, err := f.Stat(); err == nil {
			o.LeaveOut = append(o.LeaveOut, info)
		}
		defer clearLine(o.Progress != nil)
		go func() {
			_, err := snapshot.Take(ctx, w, before.Header.Roots, o)
			w.CloseWithError(err)
		}()
		if after, err = snapshot.NewReader(r); err != nil {
			return uncheckedError{fmt.Errorf("look at the disk: %w", err)}
		}
	}
	p := newDiffPrinter(g, out)
	counts, err := snapshot.Compare(before, after, p.change)
	if err != nil {
		p.w.Flush()
		return uncheckedError{err}
	}
	return p.end(counts)
}

// diffPrinter prints changes as they are found.
type diffPrinter struct {
	json  bool
	w     *bufio.Writer
	first bool
}

func newDiffPrinter(g *global, out io.Writer) *diffPrinter {
	p := &diffPrinter{json: g.json(), w: bufio.NewWriter(out), first: true}
	if p.json {
		p.w.WriteString(`{"changes":[`)
	}
	return p
}

func (p *diffPrinter) change(c snapshot.Change) error {
	if !p.json {
		_, err := fmt.Fprintf(p.w, "%-8s %s  %s\n", c.Kind, ledger.Escape(c.Path), difference(c))
		return err
	}
	if !p.first {
		p.w.WriteByte(',')
	}
	p.first = false
	line := []byte(`{`)
	entry := func(key string, e *snapshot.Entry) {
		if e != nil {
			line = append(e.Append(append(line, key...)), ',')
		}
	}
	entry(`"after":`, c.After)
	entry(`"before":`, c.Before)
	line = append(append(append(line, `"kind":"`...), c.Kind...), '"')
	line = append(line, pathMember(c.Path)...)
	if c.Reason != "" {
		line = canon.AppendString(append(line, `,"reason":`...), c.Reason)
	}
	_, err := p.w.Write(escapeJSON(append(line, '}')))
	return err
}

// pathMember is the member for path as an entry writes it.
func pathMember(path string) string {
	e := snapshot.Entry{Path: path, State: snapshot.Absent}
	text := string(e.Append(nil))
	return "," + strings.TrimSuffix(strings.TrimPrefix(text, "{"), `,"state":"absent"}`)
}

func (p *diffPrinter) end(c snapshot.Counts) error {
	if p.json {
		fmt.Fprintf(p.w, `],"counts":{`)
		for i, k := range snapshot.Kinds {
			if i > 0 {
				p.w.WriteByte(',')
			}
			fmt.Fprintf(p.w, `"%s":%d`, k, c.Of[k])
		}
		fmt.Fprintf(p.w, "},\"left_out\":%d,\"same\":%d}\n", c.LeftOut, c.Same)
	} else {
		var parts []string
		for _, k := range snapshot.Kinds {
			if n := c.Of[k]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, k))
			}
		}
		parts = append(parts, fmt.Sprintf("%d same", c.Same))
		if c.LeftOut > 0 {
			parts = append(parts, fmt.Sprintf("%d left out", c.LeftOut))
		}
		word := "THE SAME"
		switch {
		case c.Differs():
			word = "DIFFERENT"
		case c.Of[snapshot.KindUnknown] > 0:
			word = "UNKNOWN"
		}
		fmt.Fprintf(p.w, "%s: %s\n", word, strings.Join(parts, ", "))
	}
	if err := p.w.Flush(); err != nil {
		return uncheckedError{err}
	}
	switch {
	case c.Differs():
		return status(1)
	case c.Of[snapshot.KindUnknown] > 0:
		return status(exitUnchecked)
	}
	return nil
}

// difference is what changed, for people.
func difference(c snapshot.Change) string {
	if c.Kind == snapshot.KindUnknown {
		return ledger.Escape(c.Reason)
	}
	show := func(e *snapshot.Entry) string {
		switch {
		case e == nil || e.State == snapshot.Absent:
			return "absent"
		case c.Kind == snapshot.TypeChanged:
			return string(e.Type)
		case c.Kind == snapshot.LinkChanged:
			return strconv.Quote(ledger.Escape(e.Link))
		case c.Kind == snapshot.TimeChanged:
			return stampText(e.MTime)
		case c.Kind == snapshot.ContentChanged && e.Type == snapshot.Dir:
			return "a directory with sha256 " + e.SHA256.String()[:12] + "…"
		case c.Kind == snapshot.ContentChanged:
			return contentText(e)
		case e.Type == snapshot.File:
			return "a file of " + contentText(e)
		case e.Type == snapshot.Link:
			return "a link to " + strconv.Quote(ledger.Escape(e.Link))
		}
		return "a " + string(e.Type)
	}
	return show(c.Before) + " → " + show(c.After)
}

func contentText(e *snapshot.Entry) string {
	if e.Unhashed != "" {
		return fmt.Sprintf("%d bytes, %s", e.Size, e.Unhashed)
	}
	return fmt.Sprintf("%d bytes, sha256 %s…", e.Size, e.SHA256.String()[:12])
}

func stampText(s snapshot.Stamp) string {
	return s.Time().Format("2006-01-02T15:04:05.000000000Z07:00")
}

// targetTime bounds the look at one target of a record.
const targetTime = time.Minute

func runDiffRecord(ctx context.Context, g *global, o diffOptions, out io.Writer) error {
	if o.ledger == "" {
		o.ledger = dirOf(nil)
	}
	place, line, err := findRecord(ctx, o.ledger, o.record)
	if err != nil {
		return err
	}
	evidence, err := evidenceOf(line)
	if err != nil {
		return uncheckedError{fmt.Errorf("record %d: %w", place.Seq, err)}
	}
	if len(evidence) == 0 {
		return uncheckedError{fmt.Errorf("record %d tells of no targets: a policy of version 2 names them, in targets", place.Seq)}
	}
	p := newDiffPrinter(g, out)
	counts := snapshot.Counts{Of: map[snapshot.Kind]int64{}}
	for _, e := range evidence {
		before := e.After
		if before == nil {
			before = &e.Before
		}
		now := snapshot.Look{}
		if path, err := filepath.Abs(e.Path); err == nil && e.Path != "" {
			now = snapshot.Target(ctx, rootOf(path), e.Path, snapshot.Limits{Time: targetTime})
		} else {
			now.State, now.Reason = snapshot.NotLookedAt, "the record names no path"
		}
		kind, reason := snapshot.CompareLooks(before, &now)
		if kind == snapshot.Unchanged {
			counts.Same++
			continue
		}
		counts.Of[kind]++
		c := snapshot.Change{Path: e.Path, Kind: kind, Reason: reason}
		for _, l := range []struct {
			from *snapshot.Look
			to   **snapshot.Entry
		}{{before, &c.Before}, {&now, &c.After}} {
			if l.from.State != snapshot.NotLookedAt {
				l.from.Path = e.Path
				*l.to = &l.from.Entry
			}
		}
		if err := p.change(c); err != nil {
			return uncheckedError{err}
		}
	}
	return p.end(counts)
}

// evidenceOf is the member targets of a record.
func evidenceOf(line []byte) ([]snapshot.Evidence, error) {
	v, err := canon.Parse(line)
	if err != nil {
		return nil, err
	}
	t, ok := v.Get("targets")
	if !ok {
		return nil, nil
	}
	return snapshot.ParseEvidence(t)
}

// findRecord is the one record that which names: SEQ, or the beginning of its
// sha256.
func findRecord(ctx context.Context, dir, which string) (verify.Place, []byte, error) {
	var place verify.Place
	seq, err := strconv.ParseUint(which, 10, 64)
	isSeq := err == nil && seq > 0
	isPrefix := len(which) >= 8 && len(which) <= 64 && strings.Trim(which, "0123456789abcdef") == "" // digits alone may be either
	if !isSeq && !isPrefix {
		return place, nil, usageError{fmt.Errorf("%q is neither a position nor 8 to 64 lower-case digits of a sha256", which)}
	}
	found := 0
	var line []byte
	walkErr := walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		if !(isSeq && p.Seq == seq) && !(isPrefix && strings.HasPrefix(v.Sum.String(), which)) {
			return nil
		}
		if found++; found > 1 {
			return errStop
		}
		place, line = p, append([]byte(nil), v.Line...)
		if !isPrefix {
			return errStop
		}
		return nil
	})
	switch {
	case found == 0 && walkErr != nil:
		return place, nil, walkErr
	case found == 0:
		return place, nil, uncheckedError{fmt.Errorf("no record %s in %s", which, ledger.Escape(dir))}
	case found > 1:
		return place, nil, usageError{fmt.Errorf("%s is more than one record: give more digits of the sha256", which)}
	}
	return place, line, nil
}
