package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Check returns what is odd about p for a server with the given tools, one line
// each, in a fixed order. None of it is an error: a policy may speak of tools
// that another server has.
func (p *Policy) Check(tools []string) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if len(p.allow) == 0 {
		warn("allow: no tool in it; every call is denied")
	}
	match := func(where, name string) {
		if slices.Contains(tools, name) {
			return
		}
		if like, how := resembles(name, tools); like != "" {
			warn("%s: %s matches no tool; it differs from %s only by %s", where, quote(name), quote(like), how)
		} else {
			warn("%s: %s matches no tool", where, quote(name))
		}
	}
	allow, deny := p.Tools()
	for _, name := range allow {
		match("allow", name)
	}
	for _, name := range deny {
		match("deny", name)
	}
	for _, name := range p.ruled() {
		match("arg_rules", name)
	}
	for _, name := range p.TargetTools() {
		match("targets", name)
	}
	for _, name := range allow {
		if p.deny[name] {
			warn("allow: %s is in deny too; deny wins", quote(name))
		}
	}
	for _, name := range p.ruled() {
		if !p.Visible(name) {
			warn("arg_rules: %s is not allowed; its rules are never asked", quote(name))
		}
	}
	return warnings
}

// ruled returns the tools that have rules, sorted.
func (p *Policy) ruled() []string { return slices.Sorted(maps.Keys(p.rules)) }

// differences are the ways in which a name can be another and look the same,
// each with a function that takes it away.
var differences = []struct {
	how  string
	drop func(string) string
}{
	{"letter case", strings.ToLower},
	{"white space", func(s string) string { return remove(s, unicode.IsSpace) }},
	{"invisible characters", func(s string) string { return remove(s, invisible) }},
	{"look-alike characters", func(s string) string { return strings.Map(plain, s) }},
	{"hyphens, underscores and dots", func(s string) string { return remove(s, separator) }},
}

// resembles finds the tool that name was likely meant to be.
func resembles(name string, tools []string) (tool, how string) {
	for _, d := range differences {
		for _, tool := range tools {
			if d.drop(name) == d.drop(tool) {
				return tool, d.how
			}
		}
	}
	all := func(s string) string {
		for i := len(differences) - 1; i >= 0; i-- { // letter case last: what comes out of the others may be upper case
			s = differences[i].drop(s)
		}
		return s
	}
	for _, tool := range tools {
		if all(name) == all(tool) {
			return tool, "letter case, white space and look-alike characters"
		}
	}
	return "", ""
}

func remove(s string, drop func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if drop(r) {
			return -1
		}
		return r
	}, s)
}

// invisible reports whether r leaves no ink of its own: joiners, direction
// marks, variation selectors, control characters and combining marks.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Cc, unicode.Mn, unicode.Me, unicode.Other_Default_Ignorable_Code_Point)
}

func separator(r rune) bool { return strings.ContainsRune("-_.", r) }

// plain maps the letters that are most often taken for ASCII ones to those.
// It is a help for people, not a defence: names are compared exactly.
func plain(r rune) rune {
	if '\uFF01' <= r && r <= '\uFF5E' { // full-width forms
		return r - '\uFF01' + '!'
	}
	if to, ok := alike[r]; ok {
		return to
	}
	return r
}

var alike = func() map[rune]rune {
	m := map[rune]rune{}
	for _, pair := range []struct{ from, to string }{
		// Cyrillic
		{"\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u0475\u051d\u0445\u0443", "acdehijlopqsvwxy"},
		{"\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423", "ABCEHIJKMOPSTXY"},
		// Greek
		{"\u03b1\u03b9\u03bd\u03bf\u03c1\u03c5", "aivopu"},
		{"\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7", "ABEZHIKMNOPTYX"},
		// Latin
		{"\u0131\u0251\u0261\u017f\u212a", "iagsK"},
		// Punctuation
		{"\u2010\u2011\u2012\u2013\u2014\u2212\u02cd", "------_"},
	} {
		to := []rune(pair.to)
		for i, r := range []rune(pair.from) {
			m[r] = to[i]
		}
	}
	return m
}()
