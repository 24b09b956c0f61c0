//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An exchange is lines that are sent, the answers to them in any order, each as
// "ID KIND", and what the ledger then tells of calls.
type exchange struct {
	name          string
	send          []string
	answers, told []string
}

// exchanges runs each on one server, which then answers a ping, and returns
// everything that the server said.
func (p *place) exchanges(t *testing.T, s *process, list []exchange) (said []answer) {
	t.Helper()
	s.ready()
	for _, x := range list {
		t.Run(x.name, func(t *testing.T) {
			before, _ := chain(t, p.audit())
			s.send(x.send...)
			var got []string
			for range x.answers {
				a := s.stray()
				got = append(got, a.id+" "+a.kind())
				said = append(said, a)
			}
			if kind := s.ping().kind(); kind != "ok" {
				t.Fatalf("afterwards a ping is answered %q", kind)
			}
			select {
			case a := <-s.strays:
				t.Errorf("one answer too many: %.300s", a.raw)
			default:
			}
			want := slices.Sorted(slices.Values(x.answers))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("answered %q, want %q", got, want)
			}
			after, _ := chain(t, p.audit())
			if told := told(after, len(before)); !slices.Equal(told, x.told) {
				t.Errorf("the ledger tells\n%q, want\n%q", told, x.told)
			}
		})
	}
	return said
}

// TestHostileMessages: one session takes all of this, and goes on.
func TestHostileMessages(t *testing.T) {
	const (
		refusedRmRf = "rm_rf missing deny/not_executed invalid_request"
		deniedRmRf  = "rm_rf missing deny/not_executed tool_not_allowed"
		rmRf        = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","arguments":{"path":"/"},"_meta":` + meta + `}}`
	)
	p := newPlace(t)
	s := p.start(t, nil)
	target := filepath.Join(p.root, "target")
	put(t, target, "keep me")

	unknown := func(name string) exchange {
		return exchange{name: fmt.Sprintf("tool %.20q", name), send: []string{callLine("1", name, note("req-0001", "x"))},
			answers: []string{"1 -32602 tool_not_allowed"}, told: []string{name + " req-0001 deny/not_executed tool_not_allowed"}}
	}
	said := p.exchanges(t, s, []exchange{
		{name: "broken line, ping, call",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, callLine("3", "write_note", note("req-broken", "x"))},
			answers: []string{"null -32700", "2 ok", "3 committed"}, told: []string{"write_note req-broken allow/committed"}},
		{name: "methods that are none",
			send: []string{`{"jsonrpc":"2.0","id":5,"method":""}`, `{"jsonrpc":"2.0","id":"6","method":"no/such","params":{"_meta":` + meta + `}}`,
				`{"jsonrpc":"2.0","id":7,"method":8}`, `{"jsonrpc":"2.0","id":9}`},
			answers: []string{"5 -32600", `"6" -32601`, "7 -32600", "9 -32600"}},
		{name: "call without an id",
			send: []string{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"write_note","arguments":` + note("req-no-id", "x") + `,"_meta":` + meta + `}}`},
			told: []string{"write_note req-no-id deny/not_executed invalid_request"}},
		{name: "denied and never listed",
			send:    []string{callLine("1", "rm_rf", `{"path":`+quote(target)+`}`)},
			answers: []string{"1 -32602 tool_not_allowed"}, told: []string{deniedRmRf}},
		unknown("Write_Note"), unknown("WRITE_NOTE"), unknown("write_note "), unknown(" write_note"),
		unknown("wrіte_note"), unknown("ｗrite_note"), unknown("write\u200b_note"), unknown("\u202ewrite_note"), unknown("write_note\x00"),
		{name: "tool in two cases",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_ledger","Name":"rm_rf","arguments":{},"_meta":` + meta + `}}`},
			answers: []string{"null -32600"}, told: []string{"read_ledger missing deny/not_executed invalid_request"}},
		{name: "method in two cases",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"rm_rf","arguments":{}}}`},
			answers: []string{"null -32600"}, told: []string{refusedRmRf}},
		{name: "params with the long s",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","param` + "\u017f" + `":{"name":"rm_rf","arguments":{}}}`},
			answers: []string{"null -32600"}, told: []string{refusedRmRf}},
		{name: "argument in another case",
			send:    []string{callLine("1", "write_note", `{"request_id":"req-case","text":"x","Text":"y"}`)},
			answers: []string{"1 failed"}, told: []string{"write_note req-case deny/not_executed invalid_arguments"}},
		{name: "batches",
			send:    []string{`[` + rmRf + `]`, `  [` + rmRf + `,` + rmRf + `]`, `[]`, `[[` + rmRf + `]]`, `[1]`},
			answers: []string{"null -32600", "null -32600", "null -32600", "null -32600", "null -32600"}, told: []string{refusedRmRf, refusedRmRf}},
		{name: "byte-order mark",
			send:    []string{"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
			answers: []string{"null -32700"}},
		{name: "CRLF and blank lines",
			send:    []string{"\r", "", callLine("1", "write_note", note("req-crlf", "x")) + "\r", "\t\r"},
			answers: []string{"1 committed"}, told: []string{"write_note req-crlf allow/committed"}},
		{name: "ids that are none",
			send: []string{callLine("null", "rm_rf", `{}`), callLine("1.0", "rm_rf", `{}`), callLine("9007199254740993", "rm_rf", `{}`), callLine("true", "rm_rf", `{}`),
				callLine("1e0", "rm_rf", `{}`)},
			answers: []string{"null -32600", "null -32600", "null -32600", "null -32600", "null -32600"},
			told:    []string{refusedRmRf, refusedRmRf, refusedRmRf, refusedRmRf, refusedRmRf}},
		{name: "doubled argument", // two readers could take either
			send:    []string{callLine("1", "write_note", `{"request_id":"req-twice","text":"a","\u0074ext":"b"}`)},
			answers: []string{"1 -32602 invalid_arguments"}, told: []string{"write_note missing deny/not_executed invalid_arguments"}},
		{name: "misspelt argument",
			send:    []string{callLine("1", "write_note", `{"request_id":"req-typo","textt":"x"}`)},
			answers: []string{"1 failed"}, told: []string{"write_note req-typo deny/not_executed invalid_arguments"}},
		{name: "argument too many",
			send:    []string{callLine("1", "write_note", `{"request_id":"req-more","text":"x","path":"/"}`)},
			answers: []string{"1 failed"}, told: []string{"write_note req-more deny/not_executed invalid_arguments"}},
		{name: "arguments of a wrong type",
			send:    []string{callLine("1", "write_note", `{"request_id":"req-type","text":7}`)},
			answers: []string{"1 failed"}, told: []string{"write_note req-type deny/not_executed invalid_arguments"}},
		{name: "argument missing",
			send:    []string{callLine("1", "write_note", `{"request_id":"req-miss"}`)},
			answers: []string{"1 failed"}, told: []string{"write_note req-miss deny/not_executed invalid_arguments"}},
		{name: "no arguments at all",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_note","_meta":` + meta + `}}`},
			answers: []string{"1 -32602 argument_rule"}, told: []string{"write_note missing deny/not_executed argument_rule request_id.required"}},
		{name: "null for arguments",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_note","arguments":null,"_meta":` + meta + `}}`},
			answers: []string{"1 -32602"}, told: []string{"write_note missing deny/not_executed invalid_request"}},
		{name: "other methods with a tool's name",
			send:    []string{`{"jsonrpc":"2.0","id":1,"method":"rm_rf","params":{"_meta":` + meta + `}}`, `{"jsonrpc":"2.0","id":2,"method":"tools/Call","params":{"name":"rm_rf","_meta":` + meta + `}}`},
			answers: []string{"1 -32601", "2 -32601"}},
		{name: "very deep",
			send:    []string{callLine("1", "rm_rf", `{"path":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`)},
			answers: []string{"null -32600"}, told: []string{refusedRmRf}},
		{name: "answers that nobody asked for",
			send: []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`}},
	})
	s.close()
	for _, a := range said {
		if a.kind() == "failed" && !strings.Contains(a.text(), "the tool takes request_id (string, required), text (string, required)") {
			t.Errorf("a refusal does not say what the tool takes: %s", a.text())
		}
	}
	if got := string(read(t, target)); got != "keep me" {
		t.Errorf("the target holds %q", got)
	}
	if files, err := os.ReadDir(p.notes()); err != nil || len(files) != 2 {
		t.Errorf("%d notes, want those of the 2 good calls: %v", len(files), err)
	}
	p.check(t, nil)
}

// TestUnknownToolLooksDenied: whether there is a tool cannot be told from the
// answer.
func TestUnknownToolLooksDenied(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	denied, unknown := s.call("rm_rf", `{}`), s.call("rmmrf", `{}`)
	s.close()
	if got, want := strings.NewReplacer("rmmrf", "rm_rf", `"id":2`, `"id":1`).Replace(unknown.raw), denied.raw; got != want {
		t.Errorf("an unknown tool is answered\n%s, a denied one\n%s", got, want)
	}
}

// TestProtocolVersions: what is listed works, and what is not is refused with
// the list.
func TestProtocolVersions(t *testing.T) {
	request := func(id, method, version string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			id, method, version)
	}
	refused := []string{"write_note req-0001 deny/not_executed invalid_request"}
	p := newPlace(t)
	s := p.start(t, nil)
	p.exchanges(t, s, []exchange{
		{name: "before any handshake", send: []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_note","arguments":` + note("req-0001", "x") + `}}`},
			answers: []string{"1 -32600"}, told: refused},
		{name: "served", send: []string{request("1", "server/discover", "2026-07-28"), request("2", "tools/list", "2026-07-28")}, answers: []string{"1 ok", "2 ok"}},
		{name: "not served", send: []string{request("1", "tools/list", "1999-01-01"), request("2", "tools/list", "2099-01-01"), request("3", "server/discover", "nonsense")},
			answers: []string{"1 -32022", "2 -32022", "3 -32022"}},
		{name: "discovery in a version that has none", send: []string{request("1", "server/discover", "2025-11-25")}, answers: []string{"1 -32601"}},
		{name: "call in a version before the first", send: []string{strings.Replace(callLine("1", "write_note", note("req-0001", "x")), "2026-07-28", "1999-01-01", 1)},
			answers: []string{"1 -32022"}, told: refused},
		{name: "call in a version after the last", send: []string{strings.Replace(callLine("1", "write_note", note("req-0001", "x")), "2026-07-28", "2099-01-01", 1)},
			answers: []string{"1 -32022"}, told: refused},
		{name: "call without capabilities",
			send: []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_note","arguments":` + note("req-0001", "x") +
				`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`},
			answers: []string{"1 -32602"}, told: refused},
	})
	a := s.wait(s.ask("7", request("7", "server/discover", "2026-07-28")))
	for _, part := range []string{`"2026-07-28"`, `"2025-11-25"`, `"resultType":"complete"`, `"cacheScope":"private"`} {
		if !strings.Contains(a.raw, part) {
			t.Errorf("discovery does not tell %s: %s", part, a.raw)
		}
	}
	if a := s.call("write_note", note("req-0001", "x")); !strings.Contains(a.raw, `"resultType":"complete"`) {
		t.Errorf("a result has no type: %s", a.raw)
	}
	s.close()
	p.check(t, nil)
}

// TestIDsOfTwoTypes: 1 and "1" are two requests in flight, and each gets its
// own answer.
func TestIDsOfTwoTypes(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	const pairs = 25
	type flying struct {
		want string
		c    <-chan answer
	}
	var all []flying
	for i := range pairs {
		for kind, id := range map[string]string{"number": fmt.Sprint(i), "string": fmt.Sprintf("%q", fmt.Sprint(i))} {
			rid := fmt.Sprintf("req-%s-%d", kind, i)
			all = append(all, flying{rid, s.ask(id, callLine(id, "write_note", note(rid, "x")))})
		}
	}
	for _, f := range all {
		if a := s.wait(f.c); a.kind() != "committed" || a.Result.StructuredContent.RequestID != f.want {
			t.Errorf("the call of %s is answered %s", f.want, a.raw)
		}
	}
	s.close()
	if got := len(told(p.check(t, nil), 0)); got != len(all) {
		t.Errorf("%d outcomes of %d calls", got, len(all))
	}
}

// TestRequestIDAloneDecides: not the protocol's id, nor the session.
func TestRequestIDAloneDecides(t *testing.T) {
	p := newPlace(t)
	var calls []done
	var kinds []string
	for range 2 { // both sessions begin at id 1
		s := p.start(t, nil)
		for _, d := range []done{{id: "req-0001", args: note("req-0001", "a")}, {id: "req-0001", args: note("req-0001", "b")}, {id: "req-0001", args: note("req-0001", "a")}} {
			d.tool = "write_note"
			d.answer = s.call(d.tool, d.args)
			calls, kinds = append(calls, d), append(kinds, d.kind())
		}
		s.close()
	}
	if want := []string{"committed", "failed", "replay", "replay", "failed", "replay"}; !slices.Equal(kinds, want) {
		t.Errorf("answered %q, want %q", kinds, want)
	}
	for _, r := range p.check(t, calls) {
		if r.Outcome == "error" && (r.Reason != "request_id_conflict" || r.ArgsDigest != digest(note("req-0001", "b"))) {
			t.Errorf("the conflict is recorded as %+v", r)
		}
	}
}

// TestPayloadsAreKeptApart: one digest is one payload, by the rules of canonical
// JSON, and it is the digest of what was sent.
func TestPayloadsAreKeptApart(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil).ready()
	raw := func(value string) string { return `{"path":` + value + `}` }
	seen := map[string]string{}
	last := func() record {
		records, _ := chain(t, p.audit())
		return records[len(records)-1]
	}
	for _, c := range []struct{ sent, canonical string }{ // canonical "" where it is refused
		{`"<b>&\""`, `"<b>&\""`}, {"\"\u2028\u2029\"", "\"\u2028\u2029\""}, {`"\u2028"`, "\"\u2028\""}, {`"\u003cb\u003e\u0026\/"`, `"<b>&/"`},
		{`9007199254740993`, `9007199254740993`}, {`9007199254740992`, `9007199254740992`},
		{`1152921504606846976`, `1152921504606846976`}, {`295147905179352825856`, `295147905179352825856`}, {`295147905179352825857`, `295147905179352825857`},
		{`1e400`, ""}, {`-1e400`, ""}, {`1e308`, `1e+308`},
		{`1.2`, `1.2`}, {`1.0`, `1.0`}, {`1`, `1`}, {`1e2`, `100.0`}, {`100`, `100`}, {`0`, `0`}, {`-0.0`, `-0.0`}, {`0.0`, `0.0`},
		{"\"\u00e9\"", "\"\u00e9\""}, {"\"e\u0301\"", "\"e\u0301\""},
		{`"\ud800"`, ""}, {`"\ud801"`, ""}, {`"\ude00\ud83d"`, ""}, {`"\ud83d\ude00"`, "\"\U0001f600\""},
		{"\"\xff\"", ""}, {"\"\xfe\"", ""}, {"\"\xed\xa0\x80\"", ""}, {"\"\ufffd\"", "\"\ufffd\""},
		{`null`, `null`}, {`""`, `""`}, {`[]`, `[]`}, {`{}`, `{}`}, {`{"b":1,"a":2}`, `{"a":2,"b":1}`},
	} {
		want, reason := digest(raw(c.canonical)), "tool_not_allowed"
		if c.canonical == "" {
			want, reason = digest(raw(c.sent)), "invalid_arguments"
		}
		if got := s.call("rm_rf", raw(c.sent)).kind(); got != "-32602 "+reason {
			t.Errorf("%q is answered %q, want %q", c.sent, got, reason)
		}
		r := last()
		if r.ArgsDigest != want || r.Reason != reason {
			t.Errorf("%q is recorded with %s %s, want %s %s", c.sent, r.ArgsDigest, r.Reason, want, reason)
		}
		if before, twice := seen[r.ArgsDigest]; twice && before != c.canonical {
			t.Errorf("%q has the digest of %q", c.sent, before)
		}
		seen[r.ArgsDigest] = c.canonical
	}
	// -0 is 0 written otherwise.
	if s.call("rm_rf", raw("-0")); last().ArgsDigest != digest(raw("0")) {
		t.Error("-0 is not recorded as 0")
	}

	// The same rules decide whether a retry is one.
	for i, c := range []struct{ first, second, want string }{
		{"\"\u00e9\"", `"\u00e9"`, "replay"},
		{"\"\u2028<&>\"", `"\u2028\u003c\u0026\u003e"`, "replay"},
		{"\"\u00e9\"", "\"e\u0301\"", "failed"},
		{"\"\ufffd\"", "\"\xff\"", "-32602 invalid_arguments"},
		{`"\ufffd"`, `"\ud800"`, "-32602 invalid_arguments"},
		{`"a"`, `"a "`, "failed"},
	} {
		id := fmt.Sprintf("req-same-%d", i)
		args := func(text string) string { return fmt.Sprintf(`{ "text" : %s , "request_id" : %q }`, text, id) }
		if got := s.call("write_note", args(c.first)).kind(); got != "committed" {
			t.Errorf("%q is answered %q", c.first, got)
		}
		if got := s.call("write_note", args(c.second)).kind(); got != c.want {
			t.Errorf("after %q, %q is answered %q, want %q", c.first, c.second, got, c.want)
		}
	}
	if got, want := string(read(t, filepath.Join(p.notes(), digest("req-same-1")+".json"))), "{\"request_id\":\"req-same-1\",\"text\":\"\u2028<&>\"}"; got != want {
		t.Errorf("the note is %q, want %q", got, want)
	}
	s.close()
	p.check(t, nil)
}

// TestEndlessLine: what has no end is refused at the cap and not kept.
func TestEndlessLine(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil, "--max-message", fmt.Sprint(1<<20)).ready()
	before := peak(t, s)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for _, head := range []string{"", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","arguments":{"path":"`} {
		s.stdin.Write([]byte(head))
		for range 64 {
			if _, err := s.stdin.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		s.send(`"}}}`)
		if a := s.stray(); a.id+" "+a.kind() != "null -32600" {
			t.Errorf("a line of 64 MiB is answered %.300s", a.raw)
		}
	}
	s.ready()
	if grown := peak(t, s) - before; grown > 32<<10 {
		t.Errorf("two lines of 64 MiB made the server grow by %d KiB, want at most 32 MiB with a cap of 1 MiB", grown)
	}
	// One that the end of input cuts off.
	s.stdin.Write(chunk)
	s.stdin.Write(chunk)
	s.stdin.Close()
	if a := s.stray(); a.id+" "+a.kind() != "null -32600" {
		t.Errorf("a line that the end cut off is answered %.300s", a.raw)
	}
	s.exit(0)
	if got, want := told(p.check(t, nil), 0), []string{" missing deny/not_executed invalid_request"}; !slices.Equal(got, want) {
		t.Errorf("the ledger tells %q, want %q", got, want)
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that s ever had, in KiB.
func peak(t *testing.T, s *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	n, err := strconv.Atoi(string(highWater.FindSubmatch(status)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLargeMessages: what is under the cap works, both ways.
func TestLargeMessages(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	var calls []done
	total := 0
	for i, size := range []int{70 << 10, 2 << 20, 512 << 10} {
		id := fmt.Sprintf("req-%04d", i)
		d := done{tool: "write_note", id: id, args: note(id, strings.Repeat("x", size))}
		d.answer = s.call(d.tool, d.args)
		calls = append(calls, d)
		total += size
		if d.kind() != "committed" {
			t.Errorf("%d bytes are answered %.300s", size, d.raw)
		}
	}
	all := s.call("read_ledger", `{}`)
	got := 0
	if all.kind() == "read" {
		for _, n := range all.Result.StructuredContent.Notes {
			got += len(n.Text)
		}
	}
	if got != total {
		t.Errorf("%d bytes of text are read back, want %d", got, total)
	}
	s.close()
	p.check(t, append(calls, done{"read_ledger", "observe", "{}", all}))
	if info, err := os.Stat(p.audit()); err != nil || info.Size() > 10_000 {
		t.Errorf("the ledger has %d bytes: it keeps more than digests; %v", info.Size(), err)
	}
}

// TestSecretsStayOut: what stands in arguments is in no record, log or error,
// whatever was wrong with the call.
func TestSecretsStayOut(t *testing.T) {
	const secret = "S3CRET-sk_live_0123456789"
	p := newPlace(t)
	p.setPolicy(t, strings.Replace(plainPolicy, `"request_id":{"min_len":8}`, `"request_id":{"min_len":8},"text":{"max_len":40}`, 1))
	s := p.start(t, nil, "--debug", "--max-message", "4096")
	good := note("req-0001", secret)
	said := p.exchanges(t, s, []exchange{
		{name: "committed", send: []string{callLine("1", "write_note", good)}, answers: []string{"1 committed"}, told: []string{"write_note req-0001 allow/committed"}},
		{name: "replay", send: []string{callLine("1", "write_note", good)}, answers: []string{"1 replay"}, told: []string{"write_note req-0001 allow/replay"}},
		{name: "conflict", send: []string{callLine("1", "write_note", note("req-0001", secret+"2"))}, answers: []string{"1 failed"},
			told: []string{"write_note req-0001 allow/error request_id_conflict"}},
		{name: "denied", send: []string{callLine("1", "rm_rf", `{"path":"`+secret+`","deep":[{"api_key":"`+secret+`"}]}`)}, answers: []string{"1 -32602 tool_not_allowed"},
			told: []string{"rm_rf missing deny/not_executed tool_not_allowed"}},
		{name: "by a rule", send: []string{callLine("1", "write_note", note("req-0002", strings.Repeat(secret, 3)))}, answers: []string{"1 -32602 argument_rule"},
			told: []string{"write_note req-0002 deny/not_executed argument_rule text.max_len"}},
		{name: "by the schema", send: []string{callLine("1", "read_ledger", `{"`+secret+`":"`+secret+`"}`)}, answers: []string{"1 failed"},
			told: []string{"read_ledger missing deny/not_executed invalid_arguments"}},
		{name: "not canonical", send: []string{callLine("1", "write_note", `{"`+secret+`":1,"`+secret+`":2}`)}, answers: []string{"1 -32602 invalid_arguments"},
			told: []string{"write_note missing deny/not_executed invalid_arguments"}},
		{name: "wrong shape", send: []string{callLine("1", "write_note", `["`+secret+`"]`)}, answers: []string{"1 -32602"},
			told: []string{"write_note missing deny/not_executed invalid_request"}},
		{name: "no JSON", send: []string{callLine("1", "write_note", `{"text":"`+secret+`"`)}, answers: []string{"null -32700"},
			told: []string{"write_note missing deny/not_executed invalid_request"}},
		{name: "batch", send: []string{`[` + callLine("1", "write_note", good) + `]`}, answers: []string{"null -32600"},
			told: []string{"write_note req-0001 deny/not_executed invalid_request"}},
		{name: "too long", send: []string{callLine("1", "write_note", note("req-0003", strings.Repeat(secret, 200)))}, answers: []string{"null -32600"},
			told: []string{" missing deny/not_executed invalid_request"}}, // the name was not reached
		{name: "other parameters", send: []string{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":{"` + secret + `":1},"_meta":` + meta + `}}`}, answers: []string{"1 -32602"}},
		{name: "no method", send: []string{`{"jsonrpc":"2.0","id":1,"method":"` + secret + `","params":{"_meta":` + meta + `}}`}, answers: []string{"1 -32601"}},
	})
	s.close()
	p.check(t, nil)
	for _, a := range said {
		if strings.Contains(a.raw, secret) && !strings.HasPrefix(a.kind(), "-32601") { // a method is no argument
			t.Errorf("an answer tells it: %s", a.raw)
		}
	}
	for _, name := range []string{p.audit(), filepath.Join(p.ledger, "head.json"), filepath.Join(p.ledger, "lock"), s.stderr} {
		if bytes.Contains(read(t, name), []byte(secret)) {
			t.Errorf("it stands in %s", name)
		}
	}
}

// TestCancelled: what a client gave up is recorded as it ended, and a call that
// ended for that reason is not answered.
func TestCancelled(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil).ready()
	const calls = 60
	call := func(i int) string {
		return callLine(fmt.Sprint(i), "write_note", note(fmt.Sprintf("req-%04d", i), "x"))
	}
	cancel := func(i int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
	}
	answered := map[string]string{}
	for i := range 20 { // before it began
		s.send(call(i), cancel(i))
	}
	var begun, ended []string
	for i := 20; i < 40; i++ { // while it runs, or before
		begun, ended = append(begun, call(i)), append(ended, cancel(i))
	}
	s.send(begun...)
	s.send(ended...)
	for i := 40; i < calls; i++ { // after it ended
		id := fmt.Sprint(i)
		if answered[id] = s.wait(s.ask(id, call(i))).kind(); answered[id] != "committed" {
			t.Errorf("call %d is answered %q", i, answered[id])
		}
		s.send(cancel(i))
	}
	s.stdin.Close()
	<-s.ended
	for len(s.strays) > 0 {
		a := <-s.strays
		answered[a.id] = a.kind()
	}
	s.exit(0)
	outcome := map[string]string{}
	cancelled := 0
	for _, r := range p.check(t, nil) {
		if r.Outcome == "intent" {
			continue
		}
		if before, twice := outcome[r.RequestID]; twice {
			t.Errorf("%s ended twice: %s, then %s", r.RequestID, before, r)
		}
		outcome[r.RequestID] = r.Decision + "/" + r.Outcome + " " + r.Reason
		if r.Reason == "cancelled" {
			cancelled++
		}
	}
	for i := range calls {
		id := fmt.Sprintf("req-%04d", i)
		kind := answered[fmt.Sprint(i)]
		switch outcome[id] {
		case "allow/committed ", "allow/committed cancelled", "void/not_executed cancelled":
		default:
			t.Errorf("%s is recorded as %q", id, outcome[id])
		}
		if kind != "" && (kind != "committed" || outcome[id] != "allow/committed ") {
			t.Errorf("%s is answered %q and recorded as %q", id, kind, outcome[id])
		}
	}
	t.Logf("%d of %d calls were cancelled in time, %d answered", cancelled, calls, len(answered))
}
