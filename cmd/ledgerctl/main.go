// Command ledgerctl is what people use on an audit ledger: it verifies it in
// an incident review, shows what happened, and closes calls in doubt.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := &output{w: os.Stdout}
	err := run(ctx, out)
	if err == nil && out.err != nil {
		err = uncheckedError{fmt.Errorf("write the answer: %w", out.err)}
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(os.Stderr, "ledgerctl: %v\n", err)
	}
	os.Exit(exitOf(err))
}

func run(ctx context.Context, out io.Writer) error {
	g := new(global)
	root := newRoot(g)
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err != nil && !g.begun {
		return usageError{err}
	}
	return err
}

// output remembers that a write failed, so that a full disk is never a success.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// global is what every command shares.
type global struct {
	format string
	begun  bool // the command line was understood; an error before that is one of usage
}

func (g *global) json() bool { return g.format == "json" }

func newRoot(g *global) *cobra.Command {
	root := &cobra.Command{
		Use:   "ledgerctl",
		Short: "Verify and read audit ledgers",
		Long: `ledgerctl verifies and reads the ledgers that gated-mcp writes.

DIR is a ledger directory: $LEDGER_DIR, else .ledger, where it is left out.
Commands that only look write nothing. Control characters in recorded text are
escaped when it is printed.

Exit status: 0 as asked, 2 wrong usage, and what each command's help says.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if g.format != "text" && g.format != "json" {
				return errors.New("--format is text or json")
			}
			g.begun = true
			return nil
		},
	}
	root.PersistentFlags().StringVar(&g.format, "format", "text", "output: text or json")
	root.AddCommand(newVerify(g), newLog(g), newShow(g), newStats(g), newExporter(), newDoubt(g), newSeal(g), newSnapshot(g), newDiff(g), newProbe(g), newRun(g), newAnchor(g), newPolicy(g), newVersion(g))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "help":
			// Cobra's own takes a command that there is not for a success.
			c.PersistentPreRun = nil
			c.Args = func(_ *cobra.Command, args []string) error {
				_, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("unknown command %q", strings.Join(args, " "))
				}
				return err
			}
		case c.HasSubCommands() && !c.Runnable():
			c.Args, c.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	return root
}

// dirOf is the ledger directory of a command that takes at most one.
func dirOf(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	if dir := os.Getenv("LEDGER_DIR"); dir != "" {
		return dir
	}
	return ".ledger"
}

// writeJSON writes v on one line, with every character escaped that a terminal
// might obey or hide.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

// when is a time of a record, in the reader's zone.
func when(ns int64) string { return time.Unix(0, ns).Format("2006-01-02T15:04:05.000000000Z07:00") }

func newVersion(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			version, goVersion := "(devel)", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = cmp.Or(info.Main.Version, version), info.GoVersion
			}
			if g.json() {
				return writeJSON(c.OutOrStdout(), map[string]string{"version": version, "go": goVersion})
			}
			fmt.Fprintf(c.OutOrStdout(), "ledgerctl %s (%s)\n", version, goVersion)
			return nil
		},
	}
}
