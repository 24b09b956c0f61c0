package edge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// scan and the standard library agree on what is JSON, and on the members of
// the outermost object.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+7,"\u00e9\\\"",{}],"b":null}`, `[]`, ` [ true , false ] `, `"x`, `1e`, `-`, `{"a":1,}`, `[1,]`, `[[[]]`, `nul`, `{}}`, "\"\x7f\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 9000 {
			t.Skip("deeper than the standard library goes")
		}
		members := map[string]string{}
		n := 0
		depth, fault := scan(text, func(key, value []byte) {
			n++
			if !json.Valid(value) || key != nil && !json.Valid(key) {
				t.Fatalf("%q: visited %q: %q", text, key, value)
			}
			if key != nil {
				var k string
				json.Unmarshal(key, &k)
				members[k] = string(value)
			}
		})
		if (fault == nil) != json.Valid(text) {
			t.Fatalf("%q: %v, json.Valid %v", text, fault, fault != nil)
		}
		if fault != nil {
			if fault.at < 0 || fault.at > len(text) {
				t.Fatalf("%q: fault at byte %d", text, fault.at)
			}
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil && object != nil {
			if len(object) != len(members) {
				t.Fatalf("%q: members %q", text, members)
			}
			for k, v := range object {
				if members[k] != string(v) {
					t.Fatalf("%q: member %q is %q, not %q", text, k, v, members[k])
				}
			}
		}
		var array []json.RawMessage
		if json.Unmarshal(text, &array) == nil && len(array) != n && array != nil {
			t.Fatalf("%q: %d elements, not %d", text, len(array), n)
		}
		if want := nesting(json.NewDecoder(bytes.NewReader(text))); depth != want {
			t.Fatalf("%q: depth %d, want %d", text, depth, want)
		}
	})
}

func nesting(d *json.Decoder) (most int) {
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
			most = max(most, depth)
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
}

// However deep, in memory that the depth does not blow up.
func TestScanDeep(t *testing.T) {
	const n = 1 << 20
	for _, c := range []struct {
		text  string
		fault string
	}{
		{strings.Repeat("[", n) + strings.Repeat("]", n), ""},
		{strings.Repeat(`{"":[`, n/2) + strings.Repeat("]}", n/2), ""},
		{strings.Repeat("[", n), "byte 1048577: the message ends in the middle of a value"},
		{strings.Repeat("[", n) + strings.Repeat("]", n) + "]", "byte 2097153: something stands after the value"},
	} {
		depth, fault := scan([]byte(c.text), nil)
		if depth != n || (fault == nil) != (c.fault == "") || fault != nil && fault.String() != c.fault {
			t.Errorf("depth %d, %v; want %d, %q", depth, fault, n, c.fault)
		}
	}
}

// Ids are compared as the SDK will read them.
func TestIDKey(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "sa", `"\u0061"`: "sa", `""`: "s", `1`: "n1", `"1"`: "s1", `0`: "n0", `-1`: "n-1", `9007199254740991`: "n9007199254740991",
		`9007199254740992`: "", `-0`: "", `1.0`: "", `1e0`: "", `null`: "", `true`: "", `[1]`: "", `{}`: "", `"\ud800"`: "", ``: "",
	} {
		if key, ok := idKey([]byte(raw)); key != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", raw, key, ok, want)
		}
	}
}

func BenchmarkInspect(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "1MiB": 1 << 20} {
		line := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_note","arguments":{"request_id":"req-00000001","text":"` +
			strings.Repeat("x", size) + `"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, r := inspect(line, 0); r != nil {
					b.Fatal(r.why)
				}
			}
		})
	}
}
