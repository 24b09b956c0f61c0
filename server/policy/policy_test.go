package policy_test

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/policy"
)

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s): %v", text, err)
	}
	return p
}

func value(t *testing.T, text string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(text))
	if err != nil {
		t.Fatalf("canon.Parse(%s): %v", text, err)
	}
	return v
}

// Every refusal, with the whole message: it is what an operator has to go by.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `the file is empty; an empty policy that allows nothing is {"version":1}`},
		{" \r\n\t", `the file is empty; an empty policy that allows nothing is {"version":1}`},
		{"\xef\xbb\xbf{\"version\":1}", `line 1, byte 1: a byte-order mark; save the file as UTF-8 without one`},
		{`[]`, `the file holds a list where a policy is an object`},
		{`null`, `the file holds null where a policy is an object`},
		{`"x"`, `the file holds a string where a policy is an object`},

		{`{}`, `version: missing; this program knows versions 1 and 2`},
		{`{"allow":["write_note"]}`, `version: missing; this program knows versions 1 and 2`},
		{`{"version":3,"targets":{}}`, `version: 3 is not a known version; this program knows versions 1 and 2`},
		{`{"version":1.0}`, `version: 1.0 is not a known version; this program knows versions 1 and 2`},
		{`{"version":-1}`, `version: -1 is not a known version; this program knows versions 1 and 2`},
		{`{"version":18446744073709551617}`, `version: 18446744073709551617 is not a known version; this program knows versions 1 and 2`},
		{`{"version":"1"}`, `version: a string where a number must stand; this program knows versions 1 and 2`},
		{`{"version":null}`, `version: null where a number must stand; this program knows versions 1 and 2`},
		{`{"version":true}`, `version: a boolean where a number must stand; this program knows versions 1 and 2`},

		{`{"version":1,"alow":["x"]}`, `alow: unknown member; a version 1 policy has version, allow, deny and arg_rules`},
		{`{"version":1,"Allow":["x"]}`, `Allow: unknown member; a version 1 policy has version, allow, deny and arg_rules`},
		{`{"version":1,"":["x"]}`, `[""]: unknown member; a version 1 policy has version, allow, deny and arg_rules`},
		{`{"version":1,"targets":{}}`, `targets: unknown member; a version 1 policy has version, allow, deny and arg_rules`},
		{`{"version":1,"a\nb\u202e":1}`, `["a\nb\u202e"]: unknown member; a version 1 policy has version, allow, deny and arg_rules`},

		{`{"version":1,"target_root":"/"}`, `target_root: unknown member; a version 1 policy has version, allow, deny and arg_rules`},

		{`{"version":2,"target":{}}`, `target: unknown member; a version 2 policy has version, allow, deny, arg_rules, targets and target_root`},
		{`{"version":2,"targets":[]}`, `targets: a list where an object of tools must stand`},
		{`{"version":2,"targets":{"":["a"]}}`, `targets[""]: the name of the tool is empty`},
		{`{"version":2,"targets":{"t":[]}}`, `targets.t: no argument in it; name one or remove it`},
		{`{"version":2,"targets":{"t":"a"}}`, `targets.t: a string where a list of names of arguments must stand`},
		{`{"version":2,"targets":{"t":["a",1]}}`, `targets.t[1]: a number where the name of an argument must stand`},
		{`{"version":2,"targets":{"t":["a","a"]}}`, `targets.t[1]: "a" stands in the list twice`},
		{`{"version":2,"targets":{"t":[""]}}`, `targets.t[0]: the name is empty`},
		{`{"version":2,"targets":{"t":["a"]},"target_root":1}`, `target_root: a number where the path of a directory must stand`},
		{`{"version":2,"targets":{"t":["a"]},"target_root":""}`, `target_root: no path of a directory`},
		{`{"version":2,"target_root":"/srv"}`, `target_root: there are no targets that it could bound; name them in targets or remove it`},

		{`{"version":1,"allow":null}`, `allow: null where a list of names of tools must stand`},
		{`{"version":1,"allow":"write_note"}`, `allow: a string where a list of names of tools must stand`},
		{`{"version":1,"allow":{"write_note":true}}`, `allow: an object where a list of names of tools must stand`},
		{`{"version":1,"allow":["a",1]}`, `allow[1]: a number where the name of a tool must stand`},
		{`{"version":1,"deny":["a",["b"]]}`, `deny[1]: a list where the name of a tool must stand`},
		{`{"version":1,"deny":[""]}`, `deny[0]: the name is empty`},
		{`{"version":1,"deny":["a","b","\u0061"]}`, `deny[2]: "a" stands in the list twice`},

		{`{"version":1,"arg_rules":null}`, `arg_rules: null where an object of tools must stand`},
		{`{"version":1,"arg_rules":[]}`, `arg_rules: a list where an object of tools must stand`},
		{`{"version":1,"arg_rules":{"":{"a":{"min_len":1}}}}`, `arg_rules[""]: the name of the tool is empty`},
		{`{"version":1,"arg_rules":{"t":[]}}`, `arg_rules.t: a list where an object of arguments must stand`},
		{`{"version":1,"arg_rules":{"t":{}}}`, `arg_rules.t: no rules in it; name an argument or remove it`},
		{`{"version":1,"arg_rules":{"t":{"":{"min_len":1}}}}`, `arg_rules.t[""]: the name of the argument is empty`},
		{`{"version":1,"arg_rules":{"t":{"a":3}}}`, `arg_rules.t.a: a number where an object of rules must stand; the rules are min_len and max_len`},
		{`{"version":1,"arg_rules":{"t":{"a":{}}}}`, `arg_rules.t.a: no rule in it; the rules are min_len and max_len`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_length":3}}}}`, `arg_rules.t.a.max_length: unknown member; the rules are min_len and max_len`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_len":3,"Min_len":1}}}}`, `arg_rules.t.a.Min_len: unknown member; the rules are min_len and max_len`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_len":"3"}}}}`, `arg_rules.t.a.max_len: a string where an integer must stand`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_len":null}}}}`, `arg_rules.t.a.max_len: null where an integer must stand`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_len":true}}}}`, `arg_rules.t.a.max_len: a boolean where an integer must stand`},
		{`{"version":1,"arg_rules":{"t":{"a":{"max_len":-1}}}}`, `arg_rules.t.a.max_len: -1 is no integer from 0 to 2147483647`},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":1.5}}}}`, `arg_rules.t.a.min_len: 1.5 is no integer from 0 to 2147483647`},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":1e2}}}}`, `arg_rules.t.a.min_len: 100.0 is no integer from 0 to 2147483647`},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":2147483648}}}}`, `arg_rules.t.a.min_len: 2147483648 is no integer from 0 to 2147483647`},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":99999999999999999999}}}}`, `arg_rules.t.a.min_len: 99999999999999999999 is no integer from 0 to 2147483647`},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":5,"max_len":4}}}}`, `arg_rules.t.a: min_len 5 is above max_len 4; nothing could pass`},
		{`{"version":1,"arg_rules":{"wr\u0456te note":{"a.b":{"x":1}}}}`, `arg_rules["wr\u0456te note"]["a.b"].x: unknown member; the rules are min_len and max_len`},
	} {
		p, err := policy.Parse([]byte(c.text))
		if p != nil || err == nil {
			t.Errorf("Parse(%s) = %v, %v; want an error and nothing else", c.text, p, err)
			continue
		}
		if err.Error() != c.want {
			t.Errorf("Parse(%s):\n got %s\nwant %s", c.text, err, c.want)
		}
	}
}

// What package canon refuses is refused with its place; the words are canon's.
func TestRefusedAsJSON(t *testing.T) {
	for _, c := range []struct{ text, place string }{
		{`{"version":1,"allow":["write_note"`, "line 1, byte 35: "},
		{"{\"version\":1,\n\"allow\":[],\n\"allow\":[\"rm_rf\"]}", "line 3, byte "},
		{`{"version":1,"allow":[],"\u0061llow":["rm_rf"]}`, "line 1, byte "},
		{`{"version":1,"arg_rules":{"t":{"a":{"min_len":1,"min_len":2}}}}`, "line 1, byte "},
		{`{"version":1,}`, "line 1, byte "},
		{`{"version":1} {}`, "line 1, byte "},
		{`{"version":1,"allow":["\ud800"]}`, "line 1, byte "},
		{"{\"version\":1,\"allow\":[\"\xff\"]}", "line 1, byte "},
		{`{"version":NaN}`, "line 1, byte "},
		{"# a comment\n{}", "line 1, byte 1: "},
		{`version: 1`, "line 1, byte 1: "},
		{`{"version":1,"allow":` + strings.Repeat("[", 100000), "line 1, byte "},
	} {
		p, err := policy.Parse([]byte(c.text))
		if p != nil || err == nil || !strings.HasPrefix(err.Error(), c.place) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%.60s) = %v, %v; want one line that begins %q", c.text, p, err, c.place)
		}
	}
}

// No beginning of a policy is a policy: a reload that races a save never takes
// half of it.
func TestHalfIsRefused(t *testing.T) {
	text := strings.TrimSpace(string(policy.Starter()))
	for i := range len(text) {
		if p, err := policy.Parse([]byte(text[:i])); p != nil || err == nil {
			t.Errorf("the first %d bytes were taken for a policy", i)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("policy.json", policy.Starter())
	p, err := policy.Load(good)
	if err != nil {
		t.Fatal(err)
	}
	if p.Digest() != ledger.Hash(sha256.Sum256(policy.Starter())) {
		t.Error("the digest is not that of the file's bytes")
	}
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(good, link); err == nil {
		if _, err := policy.Load(link); err != nil {
			t.Errorf("through a symbolic link: %v", err)
		}
	}
	padded := append(policy.Starter(), make([]byte, policy.MaxSize)...)
	for i := len(policy.Starter()); i < len(padded); i++ {
		padded[i] = ' '
	}
	if _, err := policy.Load(write("most.json", padded[:policy.MaxSize])); err != nil {
		t.Errorf("%d bytes: %v", policy.MaxSize, err)
	}

	for _, c := range []struct {
		path, want string
		is         error
	}{
		{filepath.Join(dir, "none.json"), "cannot look at the file: ", fs.ErrNotExist},
		{dir, "not a regular file", nil},
		{write("empty.json", nil), "the file is empty", nil},
		{write("large.json", padded[:policy.MaxSize+1]), "the file has more than 1048576 bytes", nil},
		{write("bad.json", []byte(`{"version":1,"alow":[]}`)), "alow: unknown member", nil},
	} {
		p, err := policy.Load(c.path)
		if p != nil || err == nil {
			t.Errorf("Load(%s) = %v, %v; want an error", c.path, p, err)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, c.want) || strings.Count(msg, strconv.Quote(c.path)) != 1 || strings.Contains(msg, "\n") {
			t.Errorf("Load(%s): %q does not say %q and, once, the path, in one line", c.path, msg, c.want)
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("Load(%s): errors.Is does not find %v in %v", c.path, c.is, err)
		}
	}
	if os.Getuid() != 0 {
		path := write("secret.json", policy.Starter())
		os.Chmod(path, 0)
		if p, err := policy.Load(path); p != nil || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("an unreadable file: %v, %v", p, err)
		}
	}
}

func TestDecide(t *testing.T) {
	p := parse(t, `{"version":1,"allow":["write_note","read_ledger","both"],"deny":["rm_rf","both"],
		"arg_rules":{"write_note":{"text":{"max_len":3},"request_id":{"max_len":9,"min_len":8}},"rm_rf":{"path":{"min_len":1}}}}`)
	const tool, argument = ledger.ReasonToolNotAllowed, ledger.ReasonArgumentRule
	for _, c := range []struct{ tool, arguments, reason, rule string }{
		{"write_note", `{"request_id":"12345678","text":"abc"}`, "", ""},
		{"write_note", `{"request_id":"12345678","text":""}`, "", ""},
		{"write_note", `{"request_id":"éééééééé","text":"😀😀😀","more":1}`, "", ""},
		{"read_ledger", `{}`, "", ""},
		{"read_ledger", `null`, "", ""},
		{"read_ledger", `[1]`, "", ""},
		{"read_ledger", `"x"`, "", ""},

		{"rm_rf", `{"path":"/x"}`, tool, ""},
		{"both", `{}`, tool, ""},
		{"nope", `{}`, tool, ""},
		{"", `{}`, tool, ""},
		{"Write_Note", `{"request_id":"12345678","text":"a"}`, tool, ""},
		{"write_note ", `{"request_id":"12345678","text":"a"}`, tool, ""},
		{"wr\u0456te_note", `{"request_id":"12345678","text":"a"}`, tool, ""},
		{"write_note\u200b", `{"request_id":"12345678","text":"a"}`, tool, ""},
		{"write_note\x00", `{"request_id":"12345678","text":"a"}`, tool, ""},
		{"\uff57rite_note", `{"request_id":"12345678","text":"a"}`, tool, ""},

		{"write_note", `{"request_id":"12345678","text":"abcd"}`, argument, "text.max_len"},
		{"write_note", `{"request_id":"12345678","text":"éééé"}`, argument, "text.max_len"},
		{"write_note", `{"request_id":"1234567","text":"abc"}`, argument, "request_id.min_len"},
		{"write_note", `{"request_id":"ééééééé","text":"abc"}`, argument, "request_id.min_len"},
		{"write_note", `{"request_id":"1234567890","text":"abcd"}`, argument, "request_id.max_len"},
		{"write_note", `{"request_id":12345678,"text":"abc"}`, argument, "request_id.string"},
		{"write_note", `{"request_id":null,"text":"abc"}`, argument, "request_id.string"},
		{"write_note", `{"request_id":["12345678"],"text":"abc"}`, argument, "request_id.string"},
		{"write_note", `{"request_id":"12345678"}`, argument, "text.required"},
		{"write_note", `{"request_id":"12345678","Text":"abc"}`, argument, "text.required"},
		{"write_note", `{}`, argument, "request_id.required"},
		{"write_note", `null`, argument, "request_id.required"},
		{"write_note", `["12345678","abc"]`, argument, "request_id.required"},
		{"write_note", `"x"`, argument, "request_id.required"},
	} {
		d := p.Decide(policy.Call{Tool: c.tool, Arguments: value(t, c.arguments)})
		if d.Allow != (c.reason == "") || d.Reason != c.reason || d.Rule != c.rule || d.Policy != p.Digest() {
			t.Errorf("%q %s: %+v; want reason %q, rule %q", c.tool, c.arguments, d, c.reason, c.rule)
		}
		if d.Why == "" || strings.ContainsFunc(d.Why, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q %s: Why is not one plain line: %q", c.tool, c.arguments, d.Why)
		}
		for _, secret := range []string{"12345678", "abcd", "éé", "/x"} {
			if strings.Contains(d.Why, secret) {
				t.Errorf("%q %s: Why quotes an argument: %q", c.tool, c.arguments, d.Why)
			}
		}
	}
	if d := new(policy.Policy).Decide(policy.Call{Tool: "write_note"}); d.Allow {
		t.Error("the zero Policy allows a call")
	}
}

// Of random policies: deny wins over allow, and nothing outside allow passes,
// whatever the rules and arguments; what may be called is visible.
func TestDenyWins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	universe := []string{"a", "A", "b", "b ", "\u0430", "c"}
	arguments := []canon.Value{{}, value(t, `{}`), value(t, `{"x":"12"}`), value(t, `{"x":1}`), value(t, `[]`)}
	pick := func() (some []string) {
		for _, name := range universe {
			if rng.IntN(2) == 0 {
				some = append(some, name)
			}
		}
		return some
	}
	list := func(names []string) string {
		if len(names) == 0 {
			return "[]"
		}
		return `["` + strings.Join(names, `","`) + `"]`
	}
	for range 500 {
		allow, deny := pick(), pick()
		rules := ""
		for i, name := range pick() {
			if i > 0 {
				rules += ","
			}
			rules += `"` + name + `":{"x":{"min_len":2}}`
		}
		text := `{"version":1,"allow":` + list(allow) + `,"deny":` + list(deny) + `,"arg_rules":{` + rules + `}}`
		p := parse(t, text)
		for _, name := range append(universe, "", "d") {
			permitted := slices.Contains(allow, name) && !slices.Contains(deny, name)
			if p.Visible(name) != permitted {
				t.Fatalf("%s: Visible(%q) = %v", text, name, !permitted)
			}
			for _, v := range arguments {
				call := policy.Call{Tool: name, Arguments: v}
				d := p.Decide(call)
				if d.Allow && !permitted || !permitted && d.Reason != ledger.ReasonToolNotAllowed {
					t.Fatalf("%s: %q: %+v", text, name, d)
				}
				if d != p.Decide(call) {
					t.Fatalf("%s: %q: decided in two ways", text, name)
				}
			}
		}
	}
}

// For the race detector: one policy, many callers.
func TestConcurrent(t *testing.T) {
	p := parse(t, string(policy.Starter()))
	v := value(t, `{"request_id":"12345678","text":"x"}`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if d := p.Decide(policy.Call{Tool: "write_note", Arguments: v}); !d.Allow {
					t.Errorf("denied: %+v", d)
				}
				p.Tools()
				p.Rules()
				p.Check([]string{"write_note"})
			}
		})
	}
	wg.Wait()
}

func TestShown(t *testing.T) {
	p := parse(t, string(policy.Starter()))
	allow, deny := p.Tools()
	if !slices.Equal(allow, []string{"read_ledger", "write_note"}) || !slices.Equal(deny, []string{"rm_rf"}) {
		t.Errorf("Tools() = %q, %q", allow, deny)
	}
	want := []policy.Rule{{"write_note", "request_id", "min_len", 8}, {"write_note", "text", "max_len", 2000}}
	if got := p.Rules(); !reflect.DeepEqual(got, want) {
		t.Errorf("Rules() = %v, want %v", got, want)
	}
	if w := p.Check([]string{"write_note", "read_ledger", "rm_rf"}); len(w) != 0 {
		t.Errorf("the starter policy is odd: %q", w)
	}
}

func TestCheck(t *testing.T) {
	tools := []string{"write_note", "read_ledger", "rm_rf"}
	for _, c := range []struct {
		text string
		want []string
	}{
		{`{"version":1}`, []string{`allow: no tool in it; every call is denied`}},
		{`{"version":1,"allow":["write_note "]}`, []string{`allow: "write_note " matches no tool; it differs from "write_note" only by white space`}},
		{`{"version":1,"allow":["Write_Note"]}`, []string{`allow: "Write_Note" matches no tool; it differs from "write_note" only by letter case`}},
		{`{"version":1,"allow":["write\u200b_note"]}`, []string{`allow: "write\u200b_note" matches no tool; it differs from "write_note" only by invisible characters`}},
		{`{"version":1,"allow":["wr\u0456te_note"]}`, []string{`allow: "wr\u0456te_note" matches no tool; it differs from "write_note" only by look-alike characters`}},
		{`{"version":1,"allow":["\uff57rite_note"]}`, []string{`allow: "\uff57rite_note" matches no tool; it differs from "write_note" only by look-alike characters`}},
		{`{"version":1,"allow":["write-note"]}`, []string{`allow: "write-note" matches no tool; it differs from "write_note" only by hyphens, underscores and dots`}},
		{`{"version":1,"allow":[" WR\u0406TE_NOTE\u202e"]}`, []string{`allow: " WR\u0406TE_NOTE\u202e" matches no tool; it differs from "write_note" only by letter case, white space and look-alike characters`}},
		{`{"version":1,"allow":["nope"]}`, []string{`allow: "nope" matches no tool`}},
		{`{"version":1,"allow":["write_note"],"deny":["RM_RF"]}`, []string{`deny: "RM_RF" matches no tool; it differs from "rm_rf" only by letter case`}},
		{`{"version":1,"allow":["rm_rf"],"deny":["rm_rf"]}`, []string{`allow: "rm_rf" is in deny too; deny wins`}},
		{`{"version":1,"allow":["rm_rf"],"arg_rules":{"write_note":{"text":{"max_len":1}}}}`, []string{`arg_rules: "write_note" is not allowed; its rules are never asked`}},
		{`{"version":1,"allow":["rm_rf"],"arg_rules":{"write_notes":{"text":{"max_len":1}}}}`, []string{
			`arg_rules: "write_notes" matches no tool`, `arg_rules: "write_notes" is not allowed; its rules are never asked`}},
	} {
		if got := parse(t, c.text).Check(tools); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(policy.Starter())
	f.Add([]byte(`{"version":1,"allow":["a","a"],"arg_rules":{"t":{"a":{"min_len":2,"max_len":1}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := policy.Parse(text)
		switch {
		case (p == nil) == (err == nil):
			t.Fatalf("Parse = %v, %v", p, err)
		case err != nil:
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("not one plain line: %q", err)
			}
		default:
			p.Check([]string{"write_note"})
		}
	})
}

// Version 2 names targets, and decides as version 1 does.
func TestTargets(t *testing.T) {
	p := parse(t, `{"version":2,"allow":["copy"],"targets":{"rm_rf":["path"],"copy":["to","from"]},"target_root":"/srv"}`)
	if got := p.Targets("copy"); !slices.Equal(got, []string{"from", "to"}) {
		t.Errorf("%q", got)
	}
	if p.Targets("other") != nil || !slices.Equal(p.TargetTools(), []string{"copy", "rm_rf"}) || p.TargetRoot() != "/srv" {
		t.Errorf("%q, %q, %q", p.Targets("other"), p.TargetTools(), p.TargetRoot())
	}
	if p.Visible("rm_rf") || !p.Decide(policy.Call{Tool: "copy"}).Allow || p.Decide(policy.Call{Tool: "rm_rf"}).Allow {
		t.Error("targets decide")
	}
	if got := p.Check([]string{"copy", "Rm_rf"}); !slices.Equal(got, []string{`targets: "rm_rf" matches no tool; it differs from "Rm_rf" only by letter case`}) {
		t.Errorf("%q", got)
	}
	for _, text := range []string{`{"version":2}`, `{"version":1}`} {
		if p := parse(t, text); p.TargetRoot() != "." || p.Targets("rm_rf") != nil {
			t.Errorf("%s has targets", text)
		}
	}
}
