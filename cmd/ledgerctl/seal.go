package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger/store"
)

type sealOptions struct {
	compress  bool
	olderThan time.Duration
	only      bool // --compress-older-than was given: nothing is sealed
}

func newSeal(g *global) *cobra.Command {
	var o sealOptions
	c := &cobra.Command{
		Use:   "seal [DIR]",
		Short: "Seal the active segment, and compress sealed ones",
		Long: `seal ends the active segment of a ledger and begins a new one, with a record of
it. It may run beside servers. A segment without records of its own is left as
it is.

With --compress, every sealed segment is then turned into zstd; with
--compress-older-than, those that were last written longer ago than that, and
nothing is sealed. A plain segment is removed only after its compressed form
was read back.

Exit status: 0 done, also where there was nothing to do, 2 wrong usage, 3 not
done, and why.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.only = c.Flags().Changed("compress-older-than")
			if o.only && o.olderThan < 0 {
				return usageError{fmt.Errorf("--compress-older-than takes a duration that is not negative")}
			}
			return runSeal(c.Context(), g, o, dirOf(args), c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&o.compress, "compress", false, "compress all sealed segments")
	c.Flags().DurationVar(&o.olderThan, "compress-older-than", 0, "compress sealed segments that are older, such as 720h; seal nothing")
	return c
}

func runSeal(ctx context.Context, g *global, o sealOptions, dir string, out io.Writer) error {
	s, err := openToWrite(ctx, dir, store.Options{SealAt: -1})
	if err != nil {
		return err
	}
	defer s.Close()
	sealed, compressed := "", []string{}
	if !o.only {
		if sealed, err = s.Seal(ctx); err != nil {
			return uncheckedError{err}
		}
	}
	if o.only || o.compress {
		done, err := s.Compress(ctx, time.Now().Add(-o.olderThan))
		if err != nil {
			return uncheckedError{err}
		}
		compressed = append(compressed, done...)
	}
	if g.json() {
		return writeJSON(out, map[string]any{"sealed": sealed, "compressed": compressed})
	}
	switch {
	case sealed != "":
		fmt.Fprintf(out, "sealed %s\n", sealed)
	case !o.only:
		fmt.Fprintln(out, "nothing to seal")
	}
	for _, name := range compressed {
		fmt.Fprintf(out, "compressed %s\n", name)
	}
	return nil
}
