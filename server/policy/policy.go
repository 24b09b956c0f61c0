package policy

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A Call is what is decided.
type Call struct {
	Tool      string      // as sent
	Arguments canon.Value // the one reading of the arguments; null where absent
}

// A Decision is what a policy says of a call.
type Decision struct {
	Allow  bool
	Reason string      // of a denial: ledger.ReasonToolNotAllowed or ledger.ReasonArgumentRule
	Rule   string      // with ReasonArgumentRule: "text.max_len"
	Policy ledger.Hash // of the policy that decided
	Why    string      // one line for people, of an allowance too; holds no argument's value
}

// Decide decides c by the table in the package comment. It depends on nothing
// but p and c.
func (p *Policy) Decide(c Call) Decision {
	d := Decision{Policy: p.digest}
	switch {
	case p.deny[c.Tool]:
		d.Reason = ledger.ReasonToolNotAllowed
		d.Why = fmt.Sprintf("the tool %s is in deny", quote(clip(c.Tool)))
		return d
	case !p.allow[c.Tool]:
		d.Reason = ledger.ReasonToolNotAllowed
		d.Why = fmt.Sprintf("the tool %s is not in allow", quote(clip(c.Tool)))
		return d
	}
	rules := p.rules[c.Tool]
	for _, a := range rules {
		if rule, why := a.broken(c.Arguments); rule != "" {
			d.Reason, d.Rule = ledger.ReasonArgumentRule, a.name+"."+rule
			d.Why = fmt.Sprintf("the argument %s %s", quote(clip(a.name)), why)
			return d
		}
	}
	d.Allow = true
	d.Why = "the tool is in allow and not in deny, and no rule is set on its arguments"
	if len(rules) > 0 {
		d.Why = "the tool is in allow and not in deny, and the arguments keep its rules"
	}
	return d
}

// broken is the rule that arguments break, "" if none.
func (a argument) broken(arguments canon.Value) (rule, why string) {
	v, ok := arguments.Get(a.name)
	switch {
	case !ok:
		return "required", "is absent, and a rule is set on it"
	case v.Kind() != canon.String:
		return "string", "is " + kind(v) + ", and a rule for strings is set on it"
	}
	n := utf8.RuneCountInString(v.Str())
	switch {
	case a.max >= 0 && n > a.max:
		return "max_len", fmt.Sprintf("has %d code points, at most %d are allowed", n, a.max)
	case n < a.min:
		return "min_len", fmt.Sprintf("has %d code points, at least %d are asked for", n, a.min)
	}
	return "", ""
}

// Visible reports whether the tool may be listed: if it is in allow and not in
// deny. Whether a call of it is allowed depends on the arguments too.
func (p *Policy) Visible(tool string) bool { return p.allow[tool] && !p.deny[tool] }

// Digest is the SHA-256 of the policy's text.
func (p *Policy) Digest() ledger.Hash { return p.digest }

// Tools returns the names in allow and in deny, sorted.
func (p *Policy) Tools() (allow, deny []string) { return sorted(p.allow), sorted(p.deny) }

// Targets returns the arguments of tool that are paths, sorted; nil where none
// are named. What was at those paths is looked at with each call of tool.
func (p *Policy) Targets(tool string) []string { return p.targets[tool] }

// TargetTools returns the tools that have targets, sorted.
func (p *Policy) TargetTools() []string { return slices.Sorted(maps.Keys(p.targets)) }

// TargetRoot returns the directory outside of which no target is looked at; "."
// where the policy names none.
func (p *Policy) TargetRoot() string {
	if p.targetRoot == "" {
		return "."
	}
	return p.targetRoot
}

// A Rule is one bound on one argument, for display.
type Rule struct {
	Tool, Argument string
	Name           string // "max_len" or "min_len"
	Limit          int    // code points
}

// Rules returns the rules, sorted by tool, argument and name.
func (p *Policy) Rules() []Rule {
	var all []Rule
	for _, tool := range p.ruled() {
		for _, a := range p.rules[tool] {
			if a.max >= 0 {
				all = append(all, Rule{tool, a.name, "max_len", a.max})
			}
			if a.min >= 0 {
				all = append(all, Rule{tool, a.name, "min_len", a.min})
			}
		}
	}
	return all
}

// Starter is a policy to begin with: the note tools, with rules on the
// arguments of the one that writes.
func Starter() []byte {
	return []byte(`{
  "version": 1,
  "allow": ["write_note", "read_ledger"],
  "deny": ["rm_rf"],
  "arg_rules": {
    "write_note": {
      "request_id": {"min_len": 8},
      "text": {"max_len": 2000}
    }
  }
}
`)
}
