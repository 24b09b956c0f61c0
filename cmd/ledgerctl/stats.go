package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/verify"
)

func newStats(g *global) *cobra.Command {
	var f filter
	var by []string
	c := &cobra.Command{
		Use:   "stats [DIR|FILE]",
		Short: "Count calls, per tool and outcome",
		Long: `stats counts the decided calls of a ledger per tool: committed, replayed,
observed, denied, failed and given up by the caller, each with its ratio of the
tool's calls; void are intents whose effect is known not to have happened.
Intents are not calls of their own; those that nothing closes are counted in
doubt. The figures are those of "ledgerctl exporter".

With --by it prints a row for each combination that there is of the keys named,
in their order: tool, outcome, and hour, in this machine's time zone.

Exit status: 0 counted, 2 wrong usage, 3 missing or unreadable, or some lines
are no records.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("by") {
				return runStatsBy(c.Context(), g, f, by, dirOf(args), c.OutOrStdout())
			}
			return runStats(c.Context(), g, f, dirOf(args), c.OutOrStdout())
		},
	}
	c.Flags().Var(&f.since, "since", "only records from here on")
	c.Flags().Var(&f.until, "until", "only records before this")
	c.Flags().StringSliceVar(&by, "by", nil, "count by these keys: any of tool,outcome,hour")
	return c
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

// told is the name by which a tool is counted, as raw JSON.
func told[T any](counts map[string]T, raw []byte) string {
	if _, ok := counts[string(raw)]; ok || len(counts) < maxTools {
		return string(raw)
	}
	return quoted("(other)")
}

func runStats(ctx context.Context, g *global, f filter, dir string, out io.Writer) error {
	counts := map[string]*[len(ledger.CallOutcomes)]uint64{}
	var intents ledger.Intents
	var records uint64
	err := walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		intents.Observe(v, p.Seq)
		if !f.match(p, v) {
			return nil
		}
		records++
		outcome := v.Call()
		if outcome < 0 {
			return nil
		}
		name := told(counts, v.Name)
		if counts[name] == nil {
			counts[name] = new([len(ledger.CallOutcomes)]uint64)
		}
		counts[name][outcome]++
		return nil
	})
	if err != nil && !isPartial(err) {
		return err
	}
	doubts := map[string]int{}
	for _, o := range intents.All() {
		doubts[quoted(o.Name)]++
		if counts[quoted(o.Name)] == nil {
			counts[quoted(o.Name)] = new([len(ledger.CallOutcomes)]uint64)
		}
	}
	all := []toolStats{}
	for _, raw := range slices.Sorted(maps.Keys(counts)) {
		t := toolStats{Tool: unquoted(raw), Counts: map[string]uint64{}, Ratios: map[string]float64{}, InDoubt: doubts[raw]}
		for _, n := range counts[raw] {
			t.Calls += n
		}
		for i, word := range ledger.CallOutcomes {
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
	for _, word := range ledger.CallOutcomes {
		fmt.Fprintf(w, "%s\t\t", word)
	}
	fmt.Fprintln(w, "in doubt\t")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%d\t", ledger.Escape(t.Tool), t.Calls)
		for _, word := range ledger.CallOutcomes {
			fmt.Fprintf(w, "%d\t%.1f%%\t", t.Counts[word], 100*t.Ratios[word])
		}
		fmt.Fprintf(w, "%d\t\n", t.InDoubt)
	}
	w.Flush()
	return err
}

// A key is one combination of what calls are counted by. What was not asked for
// is at its zero value.
type key struct {
	tool    string // raw JSON
	outcome int
	hour    int64 // when it began, in seconds since 1970
}

type row struct {
	Tool    *string `json:"tool,omitempty"`
	Outcome *string `json:"outcome,omitempty"`
	Hour    *string `json:"hour,omitempty"`
	Calls   uint64  `json:"calls"`
}

func runStatsBy(ctx context.Context, g *global, f filter, by []string, dir string, out io.Writer) error {
	for i, what := range by {
		if !slices.Contains([]string{"tool", "outcome", "hour"}, what) || slices.Contains(by[:i], what) {
			return usageError{errors.New("--by takes tool, outcome and hour, each at most once, such as --by tool,hour")}
		}
	}
	if len(by) == 0 {
		return usageError{errors.New("--by takes at least one of tool, outcome and hour")}
	}
	byTool, byOutcome, byHour := slices.Contains(by, "tool"), slices.Contains(by, "outcome"), slices.Contains(by, "hour")
	counts := map[key]uint64{}
	tools := map[string]bool{}
	var records uint64
	err := walk(ctx, dir, func(p verify.Place, v *ledger.View) error {
		if !f.match(p, v) {
			return nil
		}
		records++
		outcome := v.Call()
		if outcome < 0 {
			return nil
		}
		var k key
		if byTool {
			k.tool = told(tools, v.Name)
			tools[k.tool] = true
		}
		if byOutcome {
			k.outcome = outcome
		}
		if byHour {
			k.hour = hourOf(v.TS)
		}
		counts[k]++
		return nil
	})
	if err != nil && !isPartial(err) {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
		for _, what := range by {
			c := 0
			switch what {
			case "tool":
				c = strings.Compare(a.tool, b.tool)
			case "outcome":
				c = cmp.Compare(a.outcome, b.outcome)
			case "hour":
				c = cmp.Compare(a.hour, b.hour)
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	rows := []row{}
	var text strings.Builder
	for _, k := range keys {
		r := row{Calls: counts[k]}
		for _, what := range by {
			var cell string
			switch what {
			case "tool":
				cell = unquoted(k.tool)
				r.Tool = &cell
			case "outcome":
				cell = ledger.CallOutcomes[k.outcome]
				r.Outcome = &cell
			case "hour":
				cell = time.Unix(k.hour, 0).Format(time.RFC3339)
				r.Hour = &cell
			}
			fmt.Fprintf(&text, "%s\t", ledger.Escape(cell))
		}
		fmt.Fprintf(&text, "%d\t\n", r.Calls)
		rows = append(rows, r)
	}
	if g.json() {
		if e := writeJSON(out, map[string]any{"records": records, "by": by, "rows": rows}); e != nil {
			return e
		}
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tcalls\t\n%s", strings.Join(by, "\t"), text.String())
	w.Flush()
	return err
}

// hourOf is when the hour of a record began, in this machine's zone.
func hourOf(ns int64) int64 {
	t := time.Unix(0, ns)
	return t.Unix() - int64(t.Minute()*60+t.Second())
}

func unquoted(raw string) string {
	s, _ := canon.Unquote([]byte(raw))
	return s
}
