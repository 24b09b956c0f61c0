package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func sample() Entry {
	return Entry{RequestID: "req-0001", Method: MethodCall, Name: "write_note", Decision: Allow, Outcome: Committed,
		ArgsDigest: Digest(nil).String(), Intent: Digest([]byte("i")).String(), Policy: Digest([]byte("p")).String(), Reason: ReasonRecovered, Rule: "text.max_len",
		TraceID: "0af7651916cd43dd8448eb211c80319c"}
}

func seal(e Entry, seq uint64, prev Hash) []byte {
	line, _ := e.AppendLine(nil, seq, 1_785_200_000_000_000_000, prev)
	return bytes.TrimSuffix(line, []byte("\n"))
}

// TestWrittenIsRead: what AppendLine writes is a record whose hash is right,
// and says what the entry said.
func TestWrittenIsRead(t *testing.T) {
	odd := sample()
	odd.RequestID = "req-\x1b\u2028<&>\"\\\x00é😀"
	odd.Name = "\xff\xfe" + strings.Repeat("é", 400)
	odd.Intent, odd.Policy, odd.Reason, odd.Rule, odd.TraceID = "", "", "", "", ""
	sealed := sample()
	sealed.Method, sealed.Intent = MethodSeal, ""
	sealed.Open = []OpenIntent{{Sum: Digest([]byte("o")), Seq: 3, TS: 4, RequestID: "r\"", Name: "n", ArgsDigest: "d", Policy: "p", TraceID: "t"}}
	for i, e := range []Entry{sample(), odd, sealed} {
		var v View
		var buf []byte
		line := seal(e, uint64(i+1), Digest([]byte("prev")))
		if err := v.Parse(line); err != nil {
			t.Fatal(err, string(line))
		}
		if v.Compute(&buf) != v.Sum {
			t.Fatal("its hash is not right")
		}
		r := v.Record()
		if r.RequestID != Clip(e.RequestID) || r.Name != Clip(e.Name) || r.Seq != uint64(i+1) || r.Intent != e.Intent || r.Rule != e.Rule || r.Reason != e.Reason || r.Policy != e.Policy || r.TraceID != e.TraceID {
			t.Errorf("read as %+v", r)
		}
	}
	if got := openOf(seal(sealed, 1, Hash{})); len(got) != 1 || got[0] != sealed.Open[0] {
		t.Errorf("open is read as %+v", got)
	}
	if n := utf8.RuneCountInString(Clip(odd.Name)); n != MaxText {
		t.Errorf("%d code points are kept", n)
	}
}

// TestEveryMemberIsCovered changes each member of a record in turn.
func TestEveryMemberIsCovered(t *testing.T) {
	line := seal(sample(), 7, Digest(nil))
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		t.Fatal(err)
	}
	if len(members) != len(memberNames) {
		t.Fatalf("%d members, the table has %d", len(members), len(memberNames))
	}
	for name, value := range members {
		changed := bytes.Replace(line, fmt.Appendf(nil, "%q:%v", name, value), fmt.Appendf(nil, "%q:%v1", name, value), 1)
		if s, ok := value.(string); ok {
			other := "0" + s[1:]
			if s[0] == '0' {
				other = "1" + s[1:]
			}
			changed = bytes.Replace(line, fmt.Appendf(nil, "%q:%q", name, s), fmt.Appendf(nil, "%q:%q", name, other), 1)
		}
		if bytes.Equal(changed, line) {
			t.Fatalf("%s was not changed", name)
		}
		var v View
		var buf []byte
		if v.Parse(changed) == nil && v.Compute(&buf) == v.Sum {
			t.Errorf("a change of %s is not noticed", name)
		}
	}
}

// TestNeighboursCannotTrade: moving a character between two members changes
// the hash.
func TestNeighboursCannotTrade(t *testing.T) {
	e := sample()
	seen := map[string]bool{}
	for _, pair := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"", "abc"}} {
		for _, set := range []func(a, b string){
			func(a, b string) { e.Method, e.Name = a, b }, func(a, b string) { e.Name, e.Outcome = a, b },
			func(a, b string) { e.RequestID, e.Rule = a, b }, func(a, b string) { e.Reason, e.RequestID = a, b },
			func(a, b string) { e.Decision, e.Intent = a, b }, func(a, b string) { e.ArgsDigest, e.Decision = a, b },
			func(a, b string) { e.Rule, e.TraceID = a, b },
		} {
			e = sample()
			set(pair[0], pair[1])
			_, sum := e.AppendLine(nil, 1, 1, Hash{})
			if seen[sum.String()] {
				t.Fatalf("two entries have one hash: %+v", e)
			}
			seen[sum.String()] = true
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(seal(sample(), 7, Hash{}))
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{
		"":                              ErrMalformed,
		"null":                          ErrMalformed,
		"42":                            ErrMalformed,
		`"sha256"`:                      ErrMalformed,
		`["sha256"]`:                    ErrMalformed,
		"{}":                            ErrMalformed,
		"\x00":                          ErrMalformed,
		"\xff\xfe":                      ErrMalformed,
		good[:40]:                       ErrMalformed,
		good + good:                     ErrMalformed,
		good[:len(good)-1] + `,"ts":1}`: ErrMalformed,
		strings.Replace(good, `"ts":1785200000000000000`, `"ts":"1"`, 1):                 ErrMalformed,
		strings.Replace(good, `"ts":1785200000000000000`, `"ts":1.0`, 1):                 ErrMalformed,
		strings.Replace(good, `"ts":1785200000000000000`, `"ts":9223372036854775808`, 1): ErrMalformed,
		strings.Replace(good, `"seq":7`, `"seq":0`, 1):                                   ErrMalformed,
		strings.Replace(good, `"seq":7`, `"seq":-7`, 1):                                  ErrMalformed,
		strings.Replace(good, `"name":"write_note"`, `"name":null`, 1):                   ErrMalformed,
		strings.Replace(good, `"name":"write_note",`, ``, 1):                             ErrMalformed,
		strings.Replace(good, `{"args`, `{"Open":[],"args`, 1):                           ErrMalformed,
		strings.Replace(good, `{"args`, `{"Targets":[],"args`, 1):                        ErrMalformed,
		strings.Replace(good, `{"args`, `{"Outcome":"x","args`, 1):                       ErrMalformed,
		strings.Replace(good, `}`, `,"tſ":1}`, 1):                                        ErrMalformed,
		strings.Replace(good, `"sha256":"`, `"sha256":"A`, 1):                            ErrMalformed,
		" " + good:                          ErrNotCanonical,
		good + " ":                          ErrNotCanonical,
		good + "\r":                         ErrNotCanonical,
		strings.Replace(good, ":", ": ", 1): ErrNotCanonical,
		strings.Replace(good, "write", `\u0077rite`, 1): ErrNotCanonical,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", text, err, want)
		}
	}
	unknown := strings.Replace(good, `,"trace_id"`, `,"tool_version":"abc","trace_id"`, 1)
	if _, err := Parse([]byte(unknown)); err != nil {
		t.Errorf("an unknown member: %v", err)
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	line := seal(sample(), 7, Hash{})
	var v View
	var buf []byte
	v.Parse(line)
	v.Compute(&buf)
	if n := testing.AllocsPerRun(100, func() {
		if v.Parse(line) != nil || v.Compute(&buf) != v.Sum {
			t.Fatal("not read")
		}
	}); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for text, want := range map[string][]string{
		"": {}, "a\n": {"a"}, "a\nb": {"a", "b!"}, "\n\n": {"", ""}, long + "\n" + long: {long, long + "!"},
		strings.Repeat("y", 256<<10) + "\n": {strings.Repeat("y", 256<<10)},
	} {
		l := NewLines(strings.NewReader(text), 5)
		got, at := []string{}, int64(5)
		for l.Next() {
			s := string(l.Line())
			if l.Torn() {
				s += "!"
			}
			if l.Offset() != at {
				t.Errorf("%.20q: line %d at %d, want %d", text, len(got), l.Offset(), at)
			}
			at = l.End()
			got = append(got, s)
		}
		if l.Err() != nil || len(got) != len(want) {
			t.Fatalf("%.20q: %d lines, %v", text, len(got), l.Err())
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%.20q: line %d is %.20q", text, i, got[i])
			}
		}
	}
}

func TestSegmentName(t *testing.T) {
	for _, seq := range []uint64{1, 160, 1<<64 - 1} {
		got, z, ok := ParseSegmentName(SegmentName(seq))
		if !ok || got != seq || z {
			t.Error(seq, got, z, ok)
		}
		if got, z, ok := ParseSegmentName(SegmentName(seq) + ".zst"); !ok || got != seq || !z {
			t.Error(seq, got, z, ok)
		}
	}
	for _, name := range []string{"audit.jsonl", "audit-1.jsonl", "audit-00000000000000000000.jsonl", "audit-00000000000000000001.jsonl.bak",
		"audit-00000000000000000001.jsonl.zst.zst", "audit-99999999999999999999.jsonl", "audit-0000000000000000001.jsonl", "audit--0000000000000000001.jsonl", "x"} {
		if _, _, ok := ParseSegmentName(name); ok {
			t.Errorf("%s is taken for a segment", name)
		}
	}
}

func TestHead(t *testing.T) {
	for _, h := range []Head{{}, {1, Digest(nil)}, {1<<63 - 1, Digest(nil)}} {
		text, err := h.MarshalText()
		if err != nil || len(text) != headSize {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
		var got Head
		if err := got.UnmarshalText(text); err != nil || got != h {
			t.Errorf("%v %v", got, err)
		}
	}
	for _, text := range []string{"", "{}", `{"seq":1}`, `{"seq":-1,"sha256":"` + Digest(nil).String() + `"}`, `{"seq":1,"sha256":"x"}`,
		`{"a":1,"seq":1,"sha256":"` + Digest(nil).String() + `"}`, strings.Repeat("\x00", headSize)} {
		if new(Head).UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is taken for a head", text)
		}
	}
}

func TestVectorsParse(t *testing.T) {
	content, err := os.ReadFile("../testdata/vectors/ledger.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var prev Hash
	var buf []byte
	n := 0
	for line := range bytes.Lines(content) {
		var v View
		if err := v.Parse(bytes.TrimSuffix(line, []byte("\n"))); err != nil || v.Prev != prev || v.Compute(&buf) != v.Sum {
			t.Fatalf("line %d: %v", n+1, err)
		}
		prev = v.Sum
		n++
	}
	if n != 160 || prev.String() != "1946373a2f9af1fe656d0b6a0163088ca159ad34b74827113850d1e855cd9569" {
		t.Fatal(n, prev)
	}
}

// TestOldTraceID: a record may bear a trace_id from before it had a meaning.
func TestOldTraceID(t *testing.T) {
	for _, value := range []string{`7`, `null`, `{"a":1}`, `""`} {
		body := fmt.Sprintf(`{"args_digest":"d","decision":"allow","method":"tools/call","name":"n","outcome":"observed","prev_sha256":%q,"request_id":"r",`, Hash{})
		tail := fmt.Sprintf(`"trace_id":%s,"ts":1}`, value)
		sum := Digest([]byte(Hash{}.String() + body + tail))
		var v View
		var buf []byte
		if err := v.Parse(fmt.Appendf(nil, `%s"sha256":%q,%s`, body, sum, tail)); err != nil || v.Compute(&buf) != sum {
			t.Errorf("trace_id %s: %v", value, err)
		}
		if r := v.Record(); r.TraceID != "" {
			t.Errorf("trace_id %s is read as %q", value, r.TraceID)
		}
	}
}

// TestCall: each record that decides a call counts as one thing.
func TestCall(t *testing.T) {
	for _, c := range []struct{ method, decision, outcome, reason, want string }{
		{MethodCall, Pending, Intent, "", ""},
		{MethodCall, Allow, Committed, "", "committed"},
		{MethodCall, Allow, Committed, ReasonRecovered, "committed"},
		{MethodCall, Allow, Committed, ReasonCancelled, "committed"},
		{MethodCall, Allow, Replay, "", "replay"},
		{MethodCall, Allow, Observed, "", "observed"},
		{MethodCall, Allow, Observed, ReasonCancelled, "observed"},
		{MethodCall, Deny, NotExecuted, ReasonToolNotAllowed, "deny"},
		{MethodCall, Allow, Error, ReasonToolError, "error"},
		{MethodCall, Allow, Error, ReasonCancelled, "cancelled"},
		{MethodCall, Void, Error, ReasonToolError, "error"},
		{MethodCall, Void, Error, ReasonCancelled, "cancelled"},
		{MethodCall, Void, NotExecuted, ReasonCancelled, "cancelled"},
		{MethodCall, Void, NotExecuted, ReasonRecovered, "void"},
		{MethodCall, Pending, Error, ReasonToolError, "error"},
		{MethodCall, Pending, Error, ReasonCancelled, "error"},
		{MethodReload, Deny, NotExecuted, ReasonInvalidPolicy, ""},
		{MethodSeal, Allow, Committed, "", ""},
	} {
		e := Entry{Method: c.method, Decision: c.decision, Outcome: c.outcome, Reason: c.reason}
		var v View
		if err := v.Parse(seal(e, 1, Hash{})); err != nil {
			t.Fatal(err)
		}
		got := ""
		if i := v.Call(); i >= 0 {
			got = CallOutcomes[i]
		}
		if got != c.want {
			t.Errorf("%+v counts as %q", c, got)
		}
	}
}
