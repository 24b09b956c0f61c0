package main

import (
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
	"github.com/auditledger/auditledger/verify/snapshot"
)

// byteSize is a flag: a number of bytes, with K, M, G or T for powers of 1024.
type byteSize int64

func (b *byteSize) String() string { return "" }
func (b *byteSize) Type() string   { return "BYTES" }

func (b *byteSize) Set(s string) error {
	number, shift := s, 0
	if i := strings.IndexAny(s, "KMGT"); i >= 0 && i == len(s)-1 {
		number, shift = s[:i], 10*(1+strings.IndexByte("KMGT", s[i]))
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n<<shift>>shift != n {
		return fmt.Errorf("%q is no number of bytes, such as 1048576 or 1M", s)
	}
	*b = byteSize(n << shift)
	return nil
}

func newSnapshot(g *global) *cobra.Command {
	var to string
	var most byteSize
	c := &cobra.Command{
		Use:   "snapshot PATH…",
		Short: "Write down the state of files",
		Long: `snapshot writes down what stands at each PATH and below each directory: existence,
type, size, time, SHA-256, targets of links. Links are recorded, not followed;
pipes, sockets and devices are never read. What cannot be looked at is in it,
with the reason. Compare two with ledgerctl diff.

It goes to standard output, or with -o to a new file, and then a summary is
printed. A file that is there already is never written over.

Exit status: 0 all was looked at (that a path is absent is an answer), 2 wrong
usage, 3 written, but something in it is unknown, unreadable or unstable, or
not written.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runSnapshot(c.Context(), g, args, to, int64(most), c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&to, "output", "o", "", "write to this new file")
	c.Flags().Var(&most, "max-size", "do not hash larger files, such as 100M, and say so")
	return c
}

func runSnapshot(ctx context.Context, g *global, paths []string, to string, most int64, out io.Writer) error {
	base, err := os.Getwd()
	if err != nil {
		return uncheckedError{err}
	}
	o := snapshot.Options{Base: base, MaxSize: most}
	w, finish := out, func(bool) error { return nil }
	if to != "" {
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return usageError{fmt.Errorf("%s is there already, and is left as it is: name a new file", ledger.Escape(to))}
		}
		if err != nil {
			return uncheckedError{err}
		}
		w = f
		finish = func(good bool) error {
			err := f.Close()
			if !good || err != nil {
				os.Remove(to)
			}
			return err
		}
		if info, err := f.Stat(); err == nil {
			o.LeaveOut = append(o.LeaveOut, info)
		}
	} else if info, err := os.Stdout.Stat(); err == nil && info.Mode().IsRegular() {
		o.LeaveOut = append(o.LeaveOut, info)
	}
	o.Progress = looking()
	s, err := snapshot.Take(ctx, w, paths, o)
	clearLine(o.Progress != nil)
	if e := finish(err == nil); err == nil && e != nil {
		err = uncheckedError{fmt.Errorf("write %s: %w", ledger.Escape(to), e)}
	}
	if err != nil {
		if ctx.Err() != nil {
			return uncheckedError{errors.New("interrupted: there is no snapshot")}
		}
		return snapshotError(err)
	}
	if to != "" {
		if g.json() {
			err = writeJSON(out, map[string]any{"file": to, "entries": s.Entries, "bytes": s.Bytes, "unknown": s.Unknown, "unhashed": s.Unhashed,
				"left_out": s.LeftOut, "sha256": s.Sum.String()})
		} else {
			_, err = fmt.Fprintf(out, "%s: %d entries, %d bytes hashed, sha256 of the entries %s\n", ledger.Escape(to), s.Entries, s.Bytes, s.Sum)
		}
		if err != nil {
			return uncheckedError{err}
		}
	}
	if bad := s.Unknown + s.Unhashed; bad > 0 {
		return uncheckedError{fmt.Errorf("%d of %d entries could not be looked at, or not as a whole: they are in the snapshot, with the reason", bad, s.Entries)}
	}
	return nil
}

// snapshotError is err of Take: the caller's paths, unless it is the system's.
func snapshotError(err error) error {
	if _, ok := errors.AsType[uncheckedError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return uncheckedError{fmt.Errorf("write the snapshot: %w", err)}
	}
	return usageError{err}
}

// looking shows how far a long look is, on a terminal.
func looking() func(entries, bytes int64) {
	if !isTerminal(os.Stderr) {
		return nil
	}
	begun, last := time.Now(), time.Time{}
	return func(entries, bytes int64) {
		if now := time.Now(); now.Sub(begun) > time.Second && now.Sub(last) > 200*time.Millisecond {
			last = now
			fmt.Fprintf(os.Stderr, "\r%d entries, %d MiB", entries, bytes>>20)
		}
	}
}

func clearLine(shown bool) {
	if shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// rootOf is the directory above all others of the volume of path.
func rootOf(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }
