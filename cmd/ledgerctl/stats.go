package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
)

func newStats(g *global) *cobra.Command {
	var f filter
	c := &cobra.Command{
		Use:   "stats [DIR|FILE]",
		Short: "Count calls, per tool and outcome",
		Long: `stats counts the decided calls of a ledger per tool: committed, replayed,
observed, denied and failed, each with its ratio of the tool's calls. Intents
are not calls of their own; those that nothing closes are counted in doubt.

Exit status: 0 counted, 2 wrong usage, 3 missing or unreadable, or some lines
are no records.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runStats(c.Context(), g, f, dirOf(args), c.OutOrStdout())
		},
	}
	c.Flags().Var(&f.since, "since", "only records from here on")
	c.Flags().Var(&f.until, "until", "only records before this")
	return c
}

// outcomes are the columns of stats: one for each decided call.
var outcomes = []string{"committed", "replay", "observed", "deny", "error", "void"}

// outcomeOf is the column of a record, or -1 where it decides no call.
func outcomeOf(v *ledger.View) int {
	switch {
	case !ledger.Is(v.Method, ledger.MethodCall):
		return -1
	case ledger.Is(v.Decision, ledger.Deny):
		return 3
	case ledger.Is(v.Outcome, ledger.Error):
		return 4
	case ledger.Is(v.Outcome, ledger.Committed):
		return 0
	case ledger.Is(v.Outcome, ledger.Replay):
		return 1
	case ledger.Is(v.Outcome, ledger.Observed):
		return 2
	case ledger.Is(v.Decision, ledger.Void):
		return 5
	}
	return -1
}

type toolStats struct {
	Tool    string             `json:"tool"`
	Calls   uint64             `json:"calls"`
	Counts  map[string]uint64  `json:"counts"`
	Ratios  map[string]float64 `json:"ratios"`
	InDoubt int                `json:"in_doubt"`
}

// maxTools bounds how many names are told apart: names come from callers.
const maxTools = 1000

func runStats(ctx context.Context, g *global, f filter, dir string, out io.Writer) error {
	counts := map[string]*[6]uint64{}
	var intents ledger.Intents
	var records uint64
	err := walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		intents.Observe(v, p.Seq)
		col := outcomeOf(v)
		if !f.match(p, v) {
			return nil
		}
		records++
		if col < 0 {
			return nil
		}
		c := counts[string(v.Name)]
		if c == nil {
			name := string(v.Name)
			if len(counts) >= maxTools {
				name = quoted("(other)")
			}
			if c = counts[name]; c == nil {
				c = new([6]uint64)
				counts[name] = c
			}
		}
		c[col]++
		return nil
	})
	if err != nil && !isPartial(err) {
		return err
	}
	doubts := map[string]int{}
	for _, o := range intents.All() {
		doubts[quoted(o.Name)]++
		if counts[quoted(o.Name)] == nil {
			counts[quoted(o.Name)] = new([6]uint64)
		}
	}
	all := []toolStats{}
	for _, raw := range slices.Sorted(maps.Keys(counts)) {
		t := toolStats{Tool: unquoted(raw), Counts: map[string]uint64{}, Ratios: map[string]float64{}, InDoubt: doubts[raw]}
		for _, n := range counts[raw] {
			t.Calls += n
		}
		for i, word := range outcomes {
			t.Counts[word] = counts[raw][i]
			t.Ratios[word] = 0
			if t.Calls > 0 {
				t.Ratios[word] = float64(counts[raw][i]) / float64(t.Calls)
			}
		}
		all = append(all, t)
	}
	if g.json() {
		if e := writeJSON(out, map[string]any{"records": records, "tools": all}); e != nil {
			return e
		}
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "tool\tcalls\t")
	for _, word := range outcomes {
		fmt.Fprintf(w, "%s\t\t", word)
	}
	fmt.Fprintln(w, "in doubt\t")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%d\t", ledger.Escape(t.Tool), t.Calls)
		for _, word := range outcomes {
			fmt.Fprintf(w, "%d\t%.1f%%\t", t.Counts[word], 100*t.Ratios[word])
		}
		fmt.Fprintf(w, "%d\t\n", t.InDoubt)
	}
	w.Flush()
	return err
}

func unquoted(raw string) string {
	s, _ := canon.Unquote([]byte(raw))
	return s
}
