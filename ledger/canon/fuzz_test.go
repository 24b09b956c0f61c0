package canon

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
)

func seed(f *testing.F) {
	for _, v := range vectorLines[acceptVector](f, "canonical.jsonl") {
		f.Add([]byte(v.Raw))
		f.Add([]byte(v.Canonical))
	}
	for _, v := range vectorLines[rejectVector](f, "canonical-reject.jsonl") {
		f.Add([]byte(v.Raw))
	}
	lines := records(f)
	f.Add(lines[0])
	for _, l := range lines[len(lines)-10:] {
		f.Add(l)
	}
	f.Add([]byte(`{"\u0000":1,"\"":[1e-05,-1.5e+300],"\\\\\\\\\\\\\\\\\\":2,"é":{}}`))
}

// FuzzAppend holds Append and Parse against encoding/json, and wants a form
// that is its own form.
func FuzzAppend(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, x []byte) {
		form, err := Append(nil, x)
		v, perr := Parse(x)
		if err != nil {
			switch r := reason(err); r {
			case Empty, Syntax, TrailingData:
				if json.Valid(x) {
					t.Fatalf("JSON refused: %v", err)
				}
			case NotCanonical, TooLarge, "":
				t.Fatalf("refused with reason %q", r)
			}
			if perr == nil || *perr.(*Error) != *err.(*Error) {
				t.Fatalf("Append says %v, Parse %v", err, perr)
			}
			return
		}
		if !json.Valid(x) {
			t.Fatal("accepted what is not JSON")
		}
		if perr != nil || string(v.Append(nil)) != string(form) {
			t.Fatalf("Append gives %q, Parse %q, %v", form, v.Append(nil), perr)
		}
		again, err := Append(nil, form)
		if err != nil || string(again) != string(form) {
			t.Fatalf("the form of the form %q is %q, %v", form, again, err)
		}
		d := json.NewDecoder(bytes.NewReader(x))
		d.UseNumber()
		var other any
		if err := d.Decode(&other); err != nil {
			t.Fatal(err)
		}
		if !same(v, other) {
			t.Fatalf("%q is not what encoding/json reads", form)
		}
	})
}

// same reports whether encoding/json and canon have read the same value.
func same(v Value, other any) bool {
	switch o := other.(type) {
	case nil:
		return v.Kind() == Null
	case bool:
		return v.Kind() == Bool && v.Bool() == o
	case string:
		return v.Kind() == String && v.Str() == o
	case json.Number:
		lit, got := string(o), string(v.Append(nil))
		if !strings.ContainsAny(lit, ".eE") {
			return v.Kind() == Number && (got == lit || lit == "-0" && got == "0")
		}
		a, err := strconv.ParseFloat(got, 64)
		b, _ := strconv.ParseFloat(lit, 64)
		return v.Kind() == Number && err == nil && strings.ContainsAny(got, ".e") &&
			(math.Float64bits(a) == math.Float64bits(b) || len(lit) > 32)
	case []any:
		if v.Kind() != Array || v.Len() != len(o) {
			return false
		}
		i := 0
		for e := range v.Elems() {
			if !same(e, o[i]) {
				return false
			}
			i++
		}
		return i == len(o)
	case map[string]any:
		if v.Kind() != Object || v.Len() != len(o) {
			return false
		}
		for k, m := range v.Members() {
			e, ok := o[k]
			if !ok || !same(m, e) {
				return false
			}
		}
		return true
	}
	return false
}

// FuzzCheck wants Check to accept what Append gives back as it was, nothing
// else, and Walk to stay within any text.
func FuzzCheck(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, x []byte) {
		form, err := agree(t, x)
		if err == nil {
			if err := Check(form); err != nil {
				t.Fatalf("the form %q: %v", form, err)
			}
		}
		n := 0
		werr := Walk(x, func(m Member) bool {
			n++
			if text := `"` + string(m.Key) + `":` + string(m.Raw); text != string(x[m.Off:m.End]) {
				t.Fatalf("the offsets enclose %q, not %q", x[m.Off:m.End], text)
			}
			Unquote(m.Raw)
			return true
		})
		if Check(x) != nil {
			return
		}
		v, err := Parse(x)
		if err != nil {
			t.Fatal(err)
		}
		if v.Kind() != Object {
			if werr == nil {
				t.Fatal("Walk takes what is no object")
			}
			return
		}
		if werr != nil || n != v.Len() {
			t.Fatalf("Walk: %d of %d members, %v", n, v.Len(), werr)
		}
		Walk(x, func(m Member) bool {
			key, ok := Unquote(x[m.Off : m.Off+len(m.Key)+2])
			member, found := v.Get(key)
			if !ok || !found || string(member.Append(nil)) != string(m.Raw) {
				t.Fatalf("Walk: member %q is %q", m.Key, m.Raw)
			}
			if s, ok := Unquote(m.Raw); ok != (member.Kind() == String) || s != member.Str() {
				t.Fatalf("Unquote: %q, %v", s, ok)
			}
			return true
		})
	})
}
