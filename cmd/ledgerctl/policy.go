package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/policy"
)

// noteTools are the tools of gated-mcp.
var noteTools = []string{"write_note", "read_ledger", "rm_rf"}

func newPolicy(g *global) *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Check a policy, and explain its decisions"}
	var tools []string
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say what a policy file means",
		Long: `check reads a policy file (default $POLICY_PATH, else policy.json) as gated-mcp
does, says what it understood, and warns of entries that match no tool.

Exit status: 0 understood, 1 not a valid policy, 2 wrong usage, 3 unreadable.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return runPolicyCheck(g, policyFile(args), tools, c.OutOrStdout())
		},
	}
	check.Flags().StringSliceVar(&tools, "tools", noteTools, "the tools that the server has")
	var file, tool, args string
	explain := &cobra.Command{
		Use:   "explain --tool NAME [--args JSON]",
		Short: "Say how a call would be decided, and why",
		Long: `explain decides a call as gated-mcp would, and says by what. It runs nothing and
records nothing.

Exit status: 0 allowed, 1 denied or not a valid policy, 2 wrong usage, 3
unreadable.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if tool == "" {
				return usageError{errors.New("--tool is needed")}
			}
			var from []string
			if file != "" {
				from = []string{file}
			}
			return runPolicyExplain(g, policyFile(from), tool, args, c.OutOrStdout())
		},
	}
	explain.Flags().StringVar(&file, "policy", "", "policy file (default $POLICY_PATH, else policy.json)")
	explain.Flags().StringVar(&tool, "tool", "", "name of the tool")
	explain.Flags().StringVar(&args, "args", "{}", "the arguments, as JSON")
	c.AddCommand(check, explain)
	return c
}

func policyFile(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	if p := os.Getenv("POLICY_PATH"); p != "" {
		return p
	}
	return "policy.json"
}

// loadPolicy tells a file that cannot be read from one that is no policy. It
// opens no named pipe, which would wait for a writer.
func loadPolicy(path string) (*policy.Policy, error) {
	p, err := policy.Load(path)
	if err == nil {
		return p, nil
	}
	info, e := os.Stat(path)
	if e != nil || !info.Mode().IsRegular() {
		return nil, uncheckedError{err}
	}
	f, e := os.Open(path)
	if e != nil {
		return nil, uncheckedError{err}
	}
	f.Close()
	fmt.Fprintf(os.Stderr, "ledgerctl: %v\n", err)
	return nil, status(1)
}

type ruleJSON struct {
	Tool     string `json:"tool"`
	Argument string `json:"argument"`
	Rule     string `json:"rule"`
	Limit    int    `json:"limit"`
}

func runPolicyCheck(g *global, path string, tools []string, out io.Writer) error {
	p, err := loadPolicy(path)
	if err != nil {
		return err
	}
	allow, deny := p.Tools()
	warnings := p.Check(tools)
	if g.json() {
		rules := []ruleJSON{}
		for _, r := range p.Rules() {
			rules = append(rules, ruleJSON{r.Tool, r.Argument, r.Name, r.Limit})
		}
		answer := map[string]any{"sha256": p.Digest().String(), "allow": nonNil(allow), "deny": nonNil(deny),
			"rules": rules, "warnings": nonNil(warnings)}
		if tools := p.TargetTools(); len(tools) > 0 {
			targets := map[string][]string{}
			for _, tool := range tools {
				targets[tool] = p.Targets(tool)
			}
			answer["targets"], answer["target_root"] = targets, p.TargetRoot()
		}
		return writeJSON(out, answer)
	}
	fmt.Fprintf(out, "policy  %s\n", p.Digest())
	for _, name := range allow {
		if p.Visible(name) {
			fmt.Fprintf(out, "allow   %s\n", ledger.Escape(name))
		}
	}
	for _, name := range deny {
		fmt.Fprintf(out, "deny    %s\n", ledger.Escape(name))
	}
	fmt.Fprintln(out, "deny    every other tool")
	for _, r := range p.Rules() {
		fmt.Fprintf(out, "rule    %s: %s must be a string with %s %d code points\n", ledger.Escape(r.Tool), ledger.Escape(r.Argument),
			map[string]string{"min_len": "at least", "max_len": "at most"}[r.Name], r.Limit)
	}
	for _, tool := range p.TargetTools() {
		for _, name := range p.Targets(tool) {
			fmt.Fprintf(out, "target  %s: what is at %s is recorded before and after, in %s\n", ledger.Escape(tool), ledger.Escape(name), ledger.Escape(p.TargetRoot()))
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(out, "warning %s\n", w)
	}
	return nil
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func runPolicyExplain(g *global, path, tool, args string, out io.Writer) error {
	p, err := loadPolicy(path)
	if err != nil {
		return err
	}
	value, err := canon.Parse([]byte(args))
	d := policy.Decision{Policy: p.Digest(), Reason: ledger.ReasonInvalidArguments}
	if err != nil {
		d.Why = "the arguments are refused before the policy is asked: " + err.Error()
	} else {
		d = p.Decide(policy.Call{Tool: tool, Arguments: value})
	}
	word := ledger.Allow
	if !d.Allow {
		word = ledger.Deny
	}
	if g.json() {
		err = writeJSON(out, map[string]any{"decision": word, "reason": d.Reason, "rule": d.Rule, "why": d.Why, "policy": d.Policy.String()})
	} else {
		_, err = fmt.Fprintf(out, "%s: %s\n", word, ledger.Escape(d.Why))
	}
	if err != nil {
		return err
	}
	if !d.Allow {
		return status(1)
	}
	return nil
}
