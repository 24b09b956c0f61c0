package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vectorLines decodes a file of the vectors, one T a line.
func vectorLines[T any](tb testing.TB, name string) (all []T) {
	text, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			tb.Fatal(err)
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		tb.Fatalf("%s is empty", name)
	}
	return all
}

type acceptVector struct{ Raw, Canonical, SHA256 string }

type rejectVector struct{ Why, Raw string }

func reason(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// agree fails the test unless Append, Parse and Check say the same of x, and
// returns what Append says.
func agree(tb testing.TB, x []byte) ([]byte, error) {
	tb.Helper()
	form, err := Append(nil, x)
	v, perr := Parse(x)
	cerr := Check(x)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(x) {
			tb.Fatalf("%.80q: %v", x, err)
		}
		for _, other := range []error{perr, cerr} {
			var o *Error
			if !errors.As(other, &o) || *o != *e {
				tb.Fatalf("%.80q: Append says %v, another %v", x, err, other)
			}
		}
		return nil, err
	}
	if perr != nil || string(v.Append(nil)) != string(form) {
		tb.Fatalf("%.80q: Append gives %.80q, Parse %.80q, %v", x, form, v.Append(nil), perr)
	}
	if string(form) == string(x) {
		if cerr != nil {
			tb.Fatalf("%.80q is canonical, Check says %v", x, cerr)
		}
	} else if reason(cerr) != NotCanonical {
		tb.Fatalf("%.80q has the form %.80q, Check says %v", x, form, cerr)
	}
	return form, nil
}

func TestAcceptVectors(t *testing.T) {
	for _, v := range vectorLines[acceptVector](t, "canonical.jsonl") {
		form, err := agree(t, []byte(v.Raw))
		if err != nil || string(form) != v.Canonical {
			t.Errorf("%q: got %q, %v, want %q", v.Raw, form, err, v.Canonical)
		}
		if sum := sha256.Sum256(form); hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("%q: the hash of the form differs", v.Raw)
		}
		if err := Check([]byte(v.Canonical)); err != nil {
			t.Errorf("%q: %v", v.Canonical, err)
		}
	}
}

func TestRejectVectors(t *testing.T) {
	want := map[string]Reason{
		"duplicate key":                     DuplicateKey,
		"duplicate key in another spelling": DuplicateKey,
		"duplicate key, nested":             DuplicateKey,
		"lone high surrogate":               LoneSurrogate,
		"lone low surrogate":                LoneSurrogate,
		"surrogates swapped":                LoneSurrogate,
		"lone surrogate in a key":           LoneSurrogate,
		"NaN":                               Syntax,
		"Infinity":                          Syntax,
		"number past binary64":              NumberRange,
		"leading zero":                      Syntax,
		"bare control character":            Syntax,
		"trailing comma":                    Syntax,
		"comment":                           TrailingData,
		"two values":                        TrailingData,
		"unterminated":                      Syntax,
		"nothing":                           Empty,
	}
	for _, v := range vectorLines[rejectVector](t, "canonical-reject.jsonl") {
		w, ok := want[v.Why]
		if !ok {
			t.Errorf("%s: a vector this test does not know", v.Why)
		}
		if _, err := agree(t, []byte(v.Raw)); reason(err) != w {
			t.Errorf("%s: got %v, want %s", v.Why, err, w)
		}
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, c := range []struct {
		text   string
		offset int
		reason Reason
	}{
		{" \n\t\r", 4, Empty},
		{"\ufeff{}", 0, Syntax},
		{"{}\x00", 2, TrailingData},
		{"{}\v", 2, TrailingData},
		{"\u00a0{}", 0, Syntax},
		{"tru", 0, Syntax},
		{"nullx", 4, TrailingData},
		{"True", 0, Syntax},
		{"01", 0, Syntax},
		{"-01", 1, Syntax},
		{"-", 1, Syntax},
		{"-x", 1, Syntax},
		{"+1", 0, Syntax},
		{".5", 0, Syntax},
		{"5.", 2, Syntax},
		{"5.e1", 2, Syntax},
		{"5e", 2, Syntax},
		{"5e+", 3, Syntax},
		{"0x10", 1, TrailingData},
		{"1_000", 1, TrailingData},
		{"-Infinity", 1, Syntax},
		{"1e309", 0, NumberRange},
		{"-1.8e308", 0, NumberRange},
		{"[1e99999999999999999999]", 1, NumberRange},
		{"'a'", 0, Syntax},
		{`"a`, 2, Syntax},
		{`"a\`, 3, Syntax},
		{`"\x41"`, 1, Syntax},
		{`"\u12"`, 1, Syntax},
		{`"\u12g4"`, 1, Syntax},
		{`"\U0041"`, 1, Syntax},
		{`"\ud83d\u0041"`, 1, LoneSurrogate},
		{`"\ud83d\ud83d\ude00"`, 1, LoneSurrogate},
		{`"\ud83dx"`, 1, LoneSurrogate},
		{`"\ud83d`, 1, LoneSurrogate},
		{"\"a\nb\"", 2, Syntax},
		{"\"a\x00b\"", 2, Syntax},
		{"\"\x80\"", 1, InvalidUTF8},
		{"\"\xc0\xaf\"", 1, InvalidUTF8},
		{"\"\xe0\x80\xaf\"", 1, InvalidUTF8},
		{"\"\xed\xa0\x80\"", 1, InvalidUTF8},
		{"\"\xed\xa0\xbd\xed\xb8\x80\"", 1, InvalidUTF8},
		{"\"\xf4\x90\x80\x80\"", 1, InvalidUTF8},
		{"\"\xf8\x88\x80\x80\x80\"", 1, InvalidUTF8},
		{"\"\xe2\x82\"", 1, InvalidUTF8},
		{"\"\xe2\x82", 1, InvalidUTF8},
		{"{\"\xff\":1}", 2, InvalidUTF8},
		{"\xff", 0, Syntax},
		{"[", 1, Syntax},
		{"[1,]", 3, Syntax},
		{"[,1]", 1, Syntax},
		{"[1 2]", 3, Syntax},
		{"[1}", 2, Syntax},
		{"]", 0, Syntax},
		{"{", 1, Syntax},
		{"{1:2}", 1, Syntax},
		{`{"a"}`, 4, Syntax},
		{`{"a" 1}`, 5, Syntax},
		{`{"a":}`, 5, Syntax},
		{`{"a":1,,}`, 7, Syntax},
		{`{"a":1]`, 6, Syntax},
		{`{"b":1,"a":2,"c":3,"a":4,"b":5}`, 19, DuplicateKey},
		{`{"":1,"":2}`, 6, DuplicateKey},
		{`[{"\ud83d\ude00":1,"😀":2}]`, 19, DuplicateKey},
		{deep, MaxDepth, TooDeep},
	} {
		_, err := agree(t, []byte(c.text))
		var e *Error
		if !errors.As(err, &e) || e.Offset != c.offset || e.Reason != c.reason {
			t.Errorf("%.60q: got %v, want %s at %d", c.text, err, c.reason, c.offset)
		}
	}
}

func TestForms(t *testing.T) {
	zeros := strings.Repeat("0", 1_000_000)
	half := "1.00000000000000011102230246251565404236316680908203125" // between 1 and its neighbour
	for _, c := range []struct{ text, want string }{
		{"{ \"ts\": 1.50e1, \"n\": -0, \"\\u0061\": [\"\\u00e9\\/\\u001F\", 1E-5] }", `{"a":["é/\u001f",1e-05],"n":0,"ts":15.0}`},
		{"{\"\U0001f600\":1,\"\ufb33\":2}", "{\"\ufb33\":2,\"\U0001f600\":1}"},
		{`{"\ud83d\ude00":1,"\ufb33":2}`, "{\"\ufb33\":2,\"\U0001f600\":1}"},
		{`{"a":1,"a\u0000":2,"":3}`, `{"":3,"a":1,"a\u0000":2}`},
		{`{"a\"":1,"a!":2,"a\\":3,"a]":4,"a[":5}`, `{"a!":2,"a\"":1,"a[":5,"a\\":3,"a]":4}`},
		{`"\uFEFF\uffff\u007F"`, "\"\ufeff\uffff\u007f\""},
		{"1e-400", "0.0"},
		{"-1e-400", "-0.0"},
		{"0e999999999999999999999", "0.0"},
		{"-0e-5", "-0.0"},
		{"[-0,-0.0,0.0e-1]", "[0,-0.0,0.0]"},
		{"9999999999999998.0", "9999999999999998.0"},
		{"9999999999999999.0", "1e+16"},
		{"0.00009999999999999999", "9.999999999999999e-05"},
		{"2.4703282292062327e-324", "0.0"},
		{"2.4703282292062328e-324", "5e-324"},
		{"1.7976931348623158e308", "1.7976931348623157e+308"},
		{"1e23", "1e+23"},
		{"9007199254740993e0", "9007199254740992.0"},
		{"18446744073709551616", "18446744073709551616"},
		// Where strconv alone goes wrong: it stops reading long exponents.
		{"0." + zeros + "1e1000001", "1.0"},
		{"1" + zeros + "e-1000000", "1.0"},
		{"-12" + zeros + ".5E-1000001", "-1.2"},
		{"0." + zeros + "e1000000", "0.0"},
		{half, "1.0"},
		{half + strings.Repeat("0", 2000), "1.0"},
		{half + strings.Repeat("0", 2000) + "1", "1.0000000000000002"},
		{half + zeros + "1e0", "1.0000000000000002"},
	} {
		form, err := agree(t, []byte(c.text))
		if err != nil || string(form) != c.want {
			t.Errorf("%.60q: got %.60q, %v, want %q", c.text, form, err, c.want)
		}
	}
}

func TestAppendBuffers(t *testing.T) {
	dst := []byte("kept")
	if got, err := Append(dst, []byte("[1e400]")); err == nil || string(got) != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Append(dst, []byte(" [1 ]")); err != nil || string(got) != "kept[1]" {
		t.Errorf("got %q, %v", got, err)
	}
	buf := []byte(` { "b" : 1e9 , "a" : "\u0001" } `)
	if got, err := Append(buf[:0], buf); err != nil || string(got) != `{"a":"\u0001","b":1000000000.0}` {
		t.Errorf("in place: got %q, %v", got, err)
	}
}

func TestParseDoesNotAlias(t *testing.T) {
	src := []byte(`{"key":["text",12]}`)
	v, err := Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	want := string(src)
	for i := range src {
		src[i] = 'x'
	}
	if _, err := Parse([]byte(`["something","else",{"z":0}]`)); err != nil {
		t.Fatal(err)
	}
	if got := string(v.Append(nil)); got != want {
		t.Errorf("got %q", got)
	}
}

func TestValue(t *testing.T) {
	v, err := Parse([]byte(`{"s":"a\n","n":-12,"f":1.0,"big":9223372036854775808,"t":true,"o":{"k":[]},"z":null,
		"a":[1,[2,3],{"x":4},"5"],"\u0041":false,"min":-9223372036854775808}`))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for k, m := range v.Members() {
		keys = append(keys, k)
		if got, ok := v.Get(k); !ok || got != m {
			t.Errorf("Get(%q) = %v, %v", k, got, ok)
		}
	}
	if got := strings.Join(keys, " "); got != "A a big f min n o s t z" || v.Len() != len(keys) {
		t.Errorf("keys %s, Len %d", got, v.Len())
	}
	for range v.Members() {
		break
	}
	get := func(k string) Value {
		m, ok := v.Get(k)
		if !ok {
			t.Errorf("no member %q", k)
		}
		return m
	}
	for k, want := range map[string]Kind{"s": String, "n": Number, "t": Bool, "o": Object, "z": Null, "a": Array} {
		if got := get(k).Kind(); got != want {
			t.Errorf("%q is a %s, want a %s", k, got, want)
		}
	}
	for k, want := range []string{"null", "bool", "number", "string", "array", "object", "kind(6)"} {
		if got := Kind(k).String(); got != want {
			t.Errorf("kind %d is %q, want %q", k, got, want)
		}
	}
	for k, want := range map[string]int64{"n": -12, "min": math.MinInt64} {
		if got, ok := get(k).Int(); !ok || got != want {
			t.Errorf("%q: Int %d, %v", k, got, ok)
		}
	}
	for _, k := range []string{"f", "big", "s", "t"} {
		if got, ok := get(k).Int(); ok || got != 0 && k != "big" {
			t.Errorf("%q: Int %d, %v", k, got, ok)
		}
	}
	if get("s").Str() != "a\n" || get("n").Str() != "" || !get("t").Bool() || get("A").Bool() || get("n").Bool() {
		t.Error("Str or Bool")
	}
	var elems []string
	for e := range get("a").Elems() {
		elems = append(elems, string(e.Append(nil)))
	}
	if got := strings.Join(elems, " "); got != `1 [2,3] {"x":4} "5"` || get("a").Len() != 4 {
		t.Errorf("elements %s", got)
	}
	for range get("a").Elems() {
		break
	}
	for _, k := range []string{"", "B", "zz", "s\x00"} {
		if _, ok := v.Get(k); ok {
			t.Errorf("Get(%q) finds something", k)
		}
	}
	var zero Value
	if _, ok := zero.Get("a"); ok || zero.Kind() != Null || zero.Len() != 0 || string(zero.Append(nil)) != "null" || zero.Str() != "" {
		t.Error("the zero Value is not null")
	}
	for range zero.Elems() {
		t.Error("null has elements")
	}
	for range get("s").Members() {
		t.Error("a string has members")
	}
}

func TestAppendString(t *testing.T) {
	var all []byte
	for r := range rune(0x3000) {
		all = append(all, string(r)...)
	}
	all = append(all, "\ue000\ufeff\uffff\U0001f600\U0010ffff"...)
	quoted := AppendString([]byte("x"), string(all))[1:]
	if err := Check(quoted); err != nil {
		t.Fatal(err)
	}
	if s, ok := Unquote(quoted); !ok || s != string(all) {
		t.Error("AppendString and Unquote are not inverse")
	}
	for s, want := range map[string]string{
		"":                         `""`,
		"a\x00\x1f\x7f\"\\/<>&":    "\"a\\u0000\\u001f\x7f\\\"\\\\/<>&\"",
		"\b\t\n\f\r\v":             `"\b\t\n\f\r\u000b"`,
		"a\xff\xfeb":               "\"a\ufffd\ufffdb\"",
		"\xed\xa0\x80":             "\"\ufffd\ufffd\ufffd\"",
		"\xe2\x82":                 "\"\ufffd\ufffd\"",
		"\ufffd\u2028":             "\"\ufffd\u2028\"",
		strings.Repeat("\x01", 40): `"` + strings.Repeat(`\u0001`, 40) + `"`,
	} {
		if got := string(AppendString(nil, s)); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{
		`""`:                        "",
		`"abc"`:                     "abc",
		`"é\u00e9\ud83d\ude00\/"`:   "éé😀/",
		`"a long one with a \" in"`: `a long one with a " in`,
	} {
		if got, ok := Unquote([]byte(raw)); !ok || got != want {
			t.Errorf("%q: got %q, %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", `"`, `a`, `"a`, `a"`, `"a"b`, `"a""`, `"\"`, `"\ud800"`, "\"\xff\"", "\"\n\"", ` "a"`, `"a" `, `12`} {
		if got, ok := Unquote([]byte(raw)); ok || got != "" {
			t.Errorf("%q: got %q, %v", raw, got, ok)
		}
	}
}

// TestCheckAgrees mutates records one byte at a time.
func TestCheckAgrees(t *testing.T) {
	lines := records(t)
	accepted := 0
	for n, line := range lines {
		if form, err := agree(t, line); err != nil || string(form) != string(line) {
			t.Fatalf("record %d: %v", n+1, err)
		}
		if n%40 != 0 && n < len(lines)-10 || testing.Short() && n%80 != 0 {
			continue
		}
		for i := range line {
			for _, c := range []byte{0, '\t', ' ', '"', '\\', '0', '9', 'a', 'u', ',', ':', '}', '[', '{', '-', '.', 'e', 0x7f, 0x80, 0xc3, 0xed, 0xf0, line[i] ^ 0x20, line[i] + 1, line[i] - 1} {
				x := bytes.Clone(line)
				x[i] = c
				if _, err := agree(t, x); err == nil && Check(x) == nil {
					accepted++
				}
			}
			agree(t, append(line[:i:i], line[i+1:]...))
			agree(t, line[:i])
			agree(t, append(append(line[:i:i], ' '), line[i:]...))
			agree(t, append(append(line[:i:i], '0'), line[i:]...))
		}
	}
	if accepted == 0 {
		t.Error("no mutation was accepted: the test tests too little")
	}
}

// TestCheckKeyOrder puts each two keys of a set in an object.
func TestCheckKeyOrder(t *testing.T) {
	keys := []string{""}
	for from := 0; len(keys) < 90; {
		to := len(keys)
		for _, k := range keys[from:to] {
			for _, c := range []string{"\x00", "\t", " ", "\"", "[", "\\", "a", "\x7f", "é"} {
				keys = append(keys, k+c)
			}
		}
		from = to
	}
	for _, prefix := range []string{"abcde", "abcdef", "abcdefg", "abcdefgh", "abcdefghijk", "abcdefghijklmnop", "abc\x00\x00\x00\x00", "\ufb33\U0001f600", "\U0001f600", "\ufb33"} {
		for _, k := range keys[:20] {
			keys = append(keys, prefix+k)
		}
	}
	for _, tail := range []string{"0}", "0,\"~~~~~~~~~\":123456789012345678901234567890}"} {
		for _, a := range keys {
			for _, b := range keys {
				text := AppendString([]byte("{"), a)
				text = append(text, ":null,"...)
				text = AppendString(text, b)
				text = append(text, ":"...)
				text = append(text, tail...)
				// The last key of the long tail must not be what is out of order.
				want := a < b && (len(tail) < 3 || b < "~~~~~~~~~")
				if got := Check(text) == nil; got != want {
					t.Fatalf("%q: Check accepts: %v", text, got)
				}
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	line := records(t)[159]
	texts := [][]byte{line, records(t)[0], []byte(`{"a":[1.5,-2.2250738585072014e-308,{"\n":1e-05,"\"":"é\u0000"}],"b":{}}`)}
	for _, text := range texts {
		if n := testing.AllocsPerRun(100, func() {
			if Check(text) != nil {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("Check: %v allocations", n)
		}
		members, end := 0, 0
		if n := testing.AllocsPerRun(100, func() {
			if Walk(text, func(m Member) bool { members++; end = m.End; return true }) != nil {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("Walk: %v allocations", n)
		}
		if end != len(text)-1 {
			t.Errorf("Walk ends at %d of %d", end, len(text))
		}
	}
}

func TestWalk(t *testing.T) {
	src := []byte(`{"":"}\"","a\"b":[1,{"x":"]"},[]],"n":-12,"o":{"p":{}},"t":true}`)
	var got []string
	if err := Walk(src, func(m Member) bool {
		if text := `"` + string(m.Key) + `":` + string(m.Raw); text != string(src[m.Off:m.End]) {
			t.Errorf("the offsets enclose %q, not %q", src[m.Off:m.End], text)
		}
		got = append(got, string(m.Key)+"="+string(m.Raw))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if want := `="}\"" a\"b=[1,{"x":"]"},[]] n=-12 o={"p":{}} t=true`; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
	n := 0
	if err := Walk(src, func(Member) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("stopped after %d, %v", n, err)
	}
	if err := Walk([]byte("{}"), func(Member) bool { t.Error("called"); return true }); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]Reason{
		"": Empty, "[]": Syntax, " {}": Syntax, "{": Syntax, `{"a`: Syntax, `{"a\`: Syntax, `{"a"`: Syntax, `{"a":`: Syntax,
		`{"a":}`: Syntax, `{"a":1`: Syntax, `{"a":"b`: Syntax, `{"a":"b"`: Syntax, `{"a":1,`: Syntax, `{"a":1,}`: Syntax,
		`{"a":"b"c}`: Syntax, `{"a":1} `: TrailingData, `{}x`: Syntax, `{"a":[}`: Syntax, `{"a" :1}`: Syntax, `{"a":1]`: Syntax,
	} {
		if err := Walk([]byte(text), func(Member) bool { return true }); reason(err) != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestErrorsAreSilent looks for the text in the errors about it.
func TestErrorsAreSilent(t *testing.T) {
	const secret, digits = "hunter2", "31337"
	text := []byte(`{"hunter2":"hunter2\u0001 é","k":[31337,31337.5e3,{"hunter2":true}],"z":null}`)
	look := func(x []byte) {
		for _, err := range []error{
			Check(x),
			func() error { _, err := Append(nil, x); return err }(),
			func() error { _, err := Parse(x); return err }(),
			Walk(x, func(Member) bool { return true }),
		} {
			var e *Error
			if err == nil {
				continue
			}
			if !errors.As(err, &e) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), digits) {
				t.Fatalf("%q: %v", x, err)
			}
			if want := fmt.Sprintf("canon: %s at byte %d", e.Reason, e.Offset); !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("%v, want %q first", err, want)
			}
		}
	}
	for i := range text {
		look(text[:i])
		for c := range 256 {
			x := bytes.Clone(text)
			x[i] = byte(c)
			look(x)
		}
	}
}

// TestHostile has texts on which a careless reader takes quadratic time or all
// of the stack: it would not come to the end of this test.
func TestHostile(t *testing.T) {
	const mb = 1 << 20
	for name, text := range map[string]string{
		"deep":           strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
		"deep objects":   strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
		"a long integer": "-" + strings.Repeat("7", mb),
		"a long float":   "0." + strings.Repeat("7", mb),
		"a long string":  `"` + strings.Repeat("é", mb/2) + `"`,
		"escapes":        `"` + strings.Repeat(`\u0000`, mb/6) + `"`,
		"elements":       "[" + strings.Repeat("0,", mb/2) + "0]",
		"floats":         "[" + strings.Repeat("1e9,", mb/4) + "0]",
		"empty objects":  "[" + strings.Repeat("{},", mb/3) + "{}]",
		"white space":    strings.Repeat(" ", mb) + "0" + strings.Repeat("\n", mb),
	} {
		if _, err := agree(t, []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"too deep":    strings.Repeat("[", mb),
		"too deep {}": strings.Repeat(`{"a":`, mb/5),
		"quotes":      strings.Repeat(`"`, mb),
		"backslashes": `"` + strings.Repeat(`\\`, mb/2),
		"same keys":   "{" + strings.Repeat(`"a":0,`, mb/6) + `"a":0}`,
	} {
		if _, err := agree(t, []byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	const keys = 100_000
	var up, down, mixed bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&up, `,"%s%06d":%d`, strings.Repeat("k", 20), i, i)
		fmt.Fprintf(&down, `,"%s%06d":%d`, strings.Repeat("k", 20), keys-1-i, keys-1-i)
		j := i * 77_773 % keys
		fmt.Fprintf(&mixed, `,"%s%06d":%d`, strings.Repeat("k", 20), j, j)
	}
	object := func(b *bytes.Buffer) []byte { return append(append([]byte("{"), b.Bytes()[1:]...), '}') }
	want := object(&up)
	for _, b := range []*bytes.Buffer{&up, &down, &mixed} {
		if form, err := agree(t, object(b)); err != nil || string(form) != string(want) {
			t.Errorf("many keys: %v", err)
		}
	}
	twice := object(&mixed)
	twice = append(twice[:len(twice)-1], fmt.Sprintf(`,"%s%06d":0}`, strings.Repeat("k", 20), 12345)...)
	if _, err := agree(t, twice); reason(err) != DuplicateKey {
		t.Errorf("one key of many twice: %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 256 MiB")
	}
	text := make([]byte, MaxLen+1)
	for _, err := range []error{Check(text), func() error { _, err := Append(nil, text); return err }()} {
		if reason(err) != TooLarge {
			t.Errorf("got %v", err)
		}
	}
}
