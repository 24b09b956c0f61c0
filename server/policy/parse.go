package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

const (
	// MaxSize is the size in bytes of the largest policy file.
	MaxSize = 1 << 20
	// MaxLen is the largest min_len or max_len, in code points.
	MaxLen = 1<<31 - 1
)

// A Policy is a policy file that was understood as a whole. It does not change
// and may be used from several goroutines at once. The zero Policy allows
// nothing.
type Policy struct {
	allow, deny map[string]bool
	rules       map[string][]argument // by tool; sorted by argument
	targets     map[string][]string   // by tool: arguments that are paths, sorted
	targetRoot  string
	digest      ledger.Hash
}

// An argument is what a policy asks of one argument of one tool.
type argument struct {
	name     string
	min, max int // code points; -1 where not given
}

// Load reads the policy in the file at path, which may be a symbolic link to a
// regular file. Its errors name path; errors.Is finds fs.ErrNotExist and
// fs.ErrPermission in them.
func Load(path string) (*Policy, error) {
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", quote(path), err)
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", quote(path), err)
	}
	return p, nil
}

func read(path string) ([]byte, error) {
	// Looked at before it is opened: opening a named pipe waits for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause("cannot look at the file", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file; a policy is read whole, from a plain file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, cause("cannot open the file", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, cause("cannot look at the file", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file; a policy is read whole, from a plain file")
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, cause("cannot read the file", err)
	}
	if len(text) <= MaxSize && int64(len(text)) != info.Size() {
		return nil, errors.New("the file changed while it was read; save it whole, by renaming a finished file, and load it again")
	}
	return text, nil
}

// cause drops the path from an error of package os: Load names it.
func cause(what string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Parse reads the text of a policy file. The policy is nil where there is an
// error. Errors are one line and say where: arg_rules.write_note.text.max_len.
func Parse(text []byte) (*Policy, error) {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("the file is empty; an empty policy that allows nothing is {\"version\":1}")
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return nil, errors.New("line 1, byte 1: a byte-order mark; save the file as UTF-8 without one")
	case len(text) > MaxSize:
		return nil, fmt.Errorf("the file has more than %d bytes, the most that a policy may have", MaxSize)
	}
	root, err := canon.Parse(text)
	if err != nil {
		return nil, malformed(text, err)
	}
	if root.Kind() != canon.Object {
		return nil, fmt.Errorf("the file holds %s where a policy is an object", kind(root))
	}
	// The version first: the members of another one may be others.
	v, err := version(root)
	if err != nil {
		return nil, err
	}
	p := &Policy{rules: map[string][]argument{}, digest: ledger.Digest(text)}
	for key, m := range root.Members() {
		switch {
		case key == "version":
		case key == "allow":
			p.allow, err = names(key, m, "tool")
		case key == "deny":
			p.deny, err = names(key, m, "tool")
		case key == "arg_rules":
			err = p.parseRules(m)
		case key == "targets" && v == 2:
			err = p.parseTargets(m)
		case key == "target_root" && v == 2:
			err = p.parseTargetRoot(m)
		case v == 2:
			err = unknown("", key, "a version 2 policy has version, allow, deny, arg_rules, targets and target_root")
		default:
			err = unknown("", key, "a version 1 policy has version, allow, deny and arg_rules")
		}
		if err != nil {
			return nil, err
		}
	}
	if p.targetRoot != "" && len(p.targets) == 0 {
		return nil, errors.New("target_root: there are no targets that it could bound; name them in targets or remove it")
	}
	return p, nil
}

// malformed tells where in the text JSON ends to be read, as an editor counts.
func malformed(text []byte, err error) error {
	var fault *canon.Error
	if !errors.As(err, &fault) {
		return err
	}
	at := text[:min(max(fault.Offset, 0), len(text))]
	line := 1 + bytes.Count(at, []byte("\n"))
	column := len(at) - bytes.LastIndexByte(at, '\n')
	what := strings.ReplaceAll(string(fault.Reason), "_", " ")
	if fault.Detail != "" {
		what += ": " + fault.Detail
	}
	return fmt.Errorf("line %d, byte %d: %s", line, column, what)
}

func version(root canon.Value) (int64, error) {
	const known = "this program knows versions 1 and 2"
	v, ok := root.Get("version")
	if !ok {
		return 0, fmt.Errorf("version: missing; %s", known)
	}
	n, ok := v.Int()
	switch {
	case v.Kind() != canon.Number:
		return 0, fmt.Errorf("version: %s where a number must stand; %s", kind(v), known)
	case !ok || n != 1 && n != 2:
		return 0, fmt.Errorf("version: %s is not a known version; %s", clip(string(v.Append(nil))), known)
	}
	return n, nil
}

// names reads a list of names of tools or arguments.
func names(at string, v canon.Value, what string) (map[string]bool, error) {
	if v.Kind() != canon.Array {
		return nil, fmt.Errorf("%s: %s where a list of names of %ss must stand", at, kind(v), what)
	}
	set, i := map[string]bool{}, 0
	for e := range v.Elems() {
		at := fmt.Sprintf("%s[%d]", at, i)
		name := e.Str()
		switch {
		case e.Kind() != canon.String:
			return nil, fmt.Errorf("%s: %s where the name of %s must stand", at, kind(e), map[string]string{"tool": "a tool", "argument": "an argument"}[what])
		case name == "":
			return nil, fmt.Errorf("%s: the name is empty", at)
		case set[name]:
			return nil, fmt.Errorf("%s: %s stands in the list twice", at, quote(clip(name)))
		}
		set[name] = true
		i++
	}
	return set, nil
}

func (p *Policy) parseRules(v canon.Value) error {
	const root = "arg_rules"
	if v.Kind() != canon.Object {
		return fmt.Errorf("%s: %s where an object of tools must stand", root, kind(v))
	}
	for tool, arguments := range v.Members() {
		at := join(root, tool)
		switch {
		case tool == "":
			return fmt.Errorf("%s: the name of the tool is empty", at)
		case arguments.Kind() != canon.Object:
			return fmt.Errorf("%s: %s where an object of arguments must stand", at, kind(arguments))
		case arguments.Len() == 0:
			return fmt.Errorf("%s: no rules in it; name an argument or remove it", at)
		}
		for name, rules := range arguments.Members() {
			at := join(at, name)
			if name == "" {
				return fmt.Errorf("%s: the name of the argument is empty", at)
			}
			a, err := parseArgument(at, name, rules)
			if err != nil {
				return err
			}
			p.rules[tool] = append(p.rules[tool], a)
		}
		slices.SortFunc(p.rules[tool], func(a, b argument) int { return strings.Compare(a.name, b.name) })
	}
	return nil
}

func (p *Policy) parseTargets(v canon.Value) error {
	const root = "targets"
	if v.Kind() != canon.Object {
		return fmt.Errorf("%s: %s where an object of tools must stand", root, kind(v))
	}
	p.targets = map[string][]string{}
	for tool, arguments := range v.Members() {
		at := join(root, tool)
		if tool == "" {
			return fmt.Errorf("%s: the name of the tool is empty", at)
		}
		set, err := names(at, arguments, "argument")
		if err != nil {
			return err
		}
		if len(set) == 0 {
			return fmt.Errorf("%s: no argument in it; name one or remove it", at)
		}
		p.targets[tool] = sorted(set)
	}
	return nil
}

func (p *Policy) parseTargetRoot(v canon.Value) error {
	const at = "target_root"
	switch {
	case v.Kind() != canon.String:
		return fmt.Errorf("%s: %s where the path of a directory must stand", at, kind(v))
	case v.Str() == "" || strings.ContainsRune(v.Str(), 0):
		return fmt.Errorf("%s: no path of a directory", at)
	}
	p.targetRoot = v.Str()
	return nil
}

func parseArgument(at, name string, v canon.Value) (argument, error) {
	const known = "the rules are min_len and max_len"
	a := argument{name: name, min: -1, max: -1}
	switch {
	case v.Kind() != canon.Object:
		return a, fmt.Errorf("%s: %s where an object of rules must stand; %s", at, kind(v), known)
	case v.Len() == 0:
		return a, fmt.Errorf("%s: no rule in it; %s", at, known)
	}
	for key, limit := range v.Members() {
		var err error
		switch key {
		case "min_len":
			a.min, err = length(join(at, key), limit)
		case "max_len":
			a.max, err = length(join(at, key), limit)
		default:
			err = unknown(at, key, known)
		}
		if err != nil {
			return a, err
		}
	}
	if a.max >= 0 && a.min > a.max {
		return a, fmt.Errorf("%s: min_len %d is above max_len %d; nothing could pass", at, a.min, a.max)
	}
	return a, nil
}

func length(at string, v canon.Value) (int, error) {
	if v.Kind() != canon.Number {
		return 0, fmt.Errorf("%s: %s where an integer must stand", at, kind(v))
	}
	n, ok := v.Int()
	if !ok || n < 0 || n > MaxLen {
		return 0, fmt.Errorf("%s: %s is no integer from 0 to %d", at, clip(string(v.Append(nil))), MaxLen)
	}
	return int(n), nil
}

func unknown(at, key, known string) error {
	return fmt.Errorf("%s: unknown member; %s", join(at, clip(key)), known)
}

// join is the path of the member key of the object at path at. A key that is
// not plain is quoted, so that a path is one line and cannot mislead.
func join(at, key string) string {
	plain := key != "" && strings.Trim(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
	switch {
	case !plain:
		return at + "[" + quote(key) + "]"
	case at == "":
		return key
	}
	return at + "." + key
}

// quote shows a name so that blanks, look-alikes and control characters are
// seen.
func quote(s string) string { return strconv.QuoteToASCII(s) }

// clip keeps messages short. The text may be anything.
func clip(s string) string {
	const most = 80
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "..."
		}
		n++
	}
	return s
}

func kind(v canon.Value) string {
	switch v.Kind() {
	case canon.Null:
		return "null"
	case canon.Bool:
		return "a boolean"
	case canon.Number:
		return "a number"
	case canon.String:
		return "a string"
	case canon.Array:
		return "a list"
	}
	return "an object"
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
