package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/edge"
)

// sdk stands where the SDK does: it hands on each line that it reads, until the
// end, and answers requests by the given function. The answer "" is none.
func sdk(f *edge.Filter, answer func(id json.RawMessage) string) (lines chan string) {
	lines = make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(f.Reader()); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			lines <- strings.TrimSuffix(line, "\n")
			var m struct{ ID, Method json.RawMessage }
			if json.Unmarshal([]byte(line), &m) == nil && m.ID != nil && m.Method != nil && answer != nil {
				io.WriteString(f.Writer(), answer(m.ID))
			}
		}
	}()
	return lines
}

func done(id json.RawMessage) string {
	return `{"jsonrpc":"2.0","id":` + string(id) + `,"result":{}}` + "\n"
}

// all is every line of a closed channel.
func all(lines chan string) (out []string) {
	for line := range lines {
		out = append(out, line)
	}
	return out
}

// An outcome is what came of a whole session.
type outcome struct {
	forwarded, answers []string
	refused            []edge.Refusal
	err                error
}

// session runs input to its end before an SDK that answers {} to everything.
func session(t testing.TB, input string, maxLine int) (o outcome) {
	t.Helper()
	var out bytes.Buffer
	f := edge.New(edge.Config{
		In: strings.NewReader(input), Out: &out, MaxLine: maxLine,
		Refused: func(r edge.Refusal) { o.refused = append(o.refused, r) },
	})
	lines := sdk(f, done)
	o.err = f.Run(t.Context())
	o.forwarded = all(lines)
	if s := strings.TrimSuffix(out.String(), "\n"); s != "" {
		o.answers = strings.Split(s, "\n")
	}
	return o
}

func failed(id, code, why string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + code + `,"message":"` + why + `"}}`
}

const limit = 4096 // of a line, in the tables

// Every rule of the package comment about lines in: the whole answer, and what
// was reported as a refused call.
func TestRefused(t *testing.T) {
	const (
		parse   = "-32700"
		request = "-32600"
		params  = "-32602"
	)
	deep := strings.Repeat("[", edge.MaxDepth) + strings.Repeat("]", edge.MaxDepth)
	long := strings.Repeat("x", limit)
	badID := `invalid request: an id is a string or an integer within 2^53-1 of zero`
	twice := `invalid request: a member stands twice in one object`
	twin := `invalid request: a member is a known one but for letter case`
	for _, c := range []struct {
		line, id, code, why string // why "" where there is no answer
		tool, requestID     string // of the report; requestID "" where there is none
	}{
		// No JSON.
		{line: `hello`, code: parse, why: `parse error: byte 1: a value must stand here`},
		{line: `  {"jsonrpc":"2.0",}`, code: parse, why: `parse error: byte 20: the name of a member must stand here`},
		{line: `{"jsonrpc":"2.0"`, code: parse, why: `parse error: byte 17: the message ends in the middle of a value`},
		{line: `{"a":1}{"b":2}`, code: parse, why: `parse error: byte 8: something stands after the value`},
		{line: `{"a" 1}`, code: parse, why: `parse error: byte 6: a colon must stand here`},
		{line: `{"a":1]`, code: parse, why: `parse error: byte 7: a comma or a closing bracket must stand here`},
		{line: `[1}`, code: parse, why: `parse error: byte 3: a comma or a closing bracket must stand here`},
		{line: `{"a":01}`, code: parse, why: `parse error: byte 7: not a number as JSON writes them`},
		{line: `{"a":-}`, code: parse, why: `parse error: byte 7: not a number as JSON writes them`},
		{line: `{"a":1.}`, code: parse, why: `parse error: byte 8: not a number as JSON writes them`},
		{line: `{"a":1e}`, code: parse, why: `parse error: byte 8: not a number as JSON writes them`},
		{line: `{"a":NaN}`, code: parse, why: `parse error: byte 6: a value must stand here`},
		{line: `{"a":nul}`, code: parse, why: `parse error: byte 6: a value must stand here`},
		{line: `{"a":tru`, code: parse, why: `parse error: byte 9: the message ends in the middle of a value`},
		{line: `{"a":"\x"}`, code: parse, why: `parse error: byte 8: not an escape of JSON`},
		{line: `{"a":"\u12g4"}`, code: parse, why: `parse error: byte 11: not an escape of JSON`},
		{line: "{\"a\":\"\t\"}", code: parse, why: `parse error: byte 7: a control character in a string`},
		{line: "{\"a\":1}\x00", code: parse, why: `parse error: byte 8: something stands after the value`},
		{line: "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, code: parse, why: `parse error: byte 1: a byte-order mark`},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","arguments":{"path":"SECRET"`,
			code: parse, why: `parse error: byte 100: the message ends in the middle of a value`, requestID: "missing"},
		{line: `{"method":"tools/call","params":{"name":"rm_rf","arguments":{"request_id":"r1"}},}`,
			code: parse, why: `parse error: byte 82: the name of a member must stand here`, tool: "rm_rf", requestID: "r1"},

		// No object.
		{line: `[]`, code: request, why: `invalid request: a batch; send each message on a line of its own`},
		{line: ` [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, code: request, why: `invalid request: a batch; send each message on a line of its own`},
		{line: `[1,{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","arguments":{"path":"SECRET"}}}]`, code: request,
			why: `invalid request: a batch; send each message on a line of its own`, tool: "rm_rf", requestID: "missing"},
		{line: `1`, code: request, why: `invalid request: a message is an object`},
		{line: `"tools/call"`, code: request, why: `invalid request: a message is an object`},
		{line: `null`, code: request, why: `invalid request: a message is an object`},

		// Depth.
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + deep + `}`, code: request, why: `invalid request: nested deeper than 512 levels`},
		{line: `{"params":{"name":"write_note","arguments":{"a":` + deep + `,"request_id":7}},"jsonrpc":"2.0","id":1,"method":"tools/call"}`, code: request,
			why: `invalid request: nested deeper than 512 levels`, tool: "write_note", requestID: "7"},

		// Members that another reader could take for others.
		{line: `{"jsonrpc":"2.0","ID":1,"method":"ping"}`, code: request, why: twin},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"rm_rf"}}`, code: request, why: twin, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","param\u017f":{"name":"rm_rf","arguments":{"request_id":"r2"}}}`, code: request, why: twin, tool: "rm_rf", requestID: "r2"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_ledger","Name":"rm_rf"}}`, code: request,
			why: `invalid request: a parameter is a known one but for letter case`, tool: "read_ledger", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_ledger","arguments":{},"ARGUMENTS":{}}}`, code: request,
			why: `invalid request: a parameter is a known one but for letter case`, tool: "read_ledger", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, code: request, why: twice},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"ping"}`, code: request, why: twice},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":1,"a":1}}}`, code: request, why: twice},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping","params":{"name":"rm_rf"}}`, code: request, why: twice, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"rm_rf"}}`, code: request, why: twice, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{},"\u0061rguments":{}}}`, code: request, why: twice, tool: "a", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"rm_rf"}}`, code: request, why: twice, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","x":"\ud800"}`, code: request, why: `invalid request: half of a surrogate pair in a string`},
		{line: `{"jsonrpc":"2.0","id":"\udc00","method":"ping"}`, code: request, why: `invalid request: half of a surrogate pair in a string`},
		{line: "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\xff\"}}", code: request, why: `invalid request: a string is not UTF-8`, requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":1e400}}`, code: request, why: `invalid request: a number is past binary64`},

		// Ids.
		{line: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":1e2,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":-0,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":true,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":{},"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":9007199254740992,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":-9007199254740992,"method":"ping"}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":99999999999999999999,"method":"tools/call","params":{"name":"rm_rf"}}`, code: request, why: badID, tool: "rm_rf", requestID: "missing"},

		// Shape.
		{line: `{"id":1,"method":"ping"}`, id: "1", code: request, why: `invalid request: jsonrpc must be \"2.0\"`},
		{line: `{"jsonrpc":"1.0","id":"a","method":"ping"}`, id: `"a"`, code: request, why: `invalid request: jsonrpc must be \"2.0\"`},
		{line: `{"jsonrpc":2.0,"id":1,"method":"tools/call","params":{"name":"rm_rf"}}`, id: "1", code: request, why: `invalid request: jsonrpc must be \"2.0\"`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0"}`, code: request, why: `invalid request: neither a method nor a result nor an error`},
		{line: `{"jsonrpc":"2.0","id":5}`, id: "5", code: request, why: `invalid request: neither a method nor a result nor an error`},
		{line: `{"jsonrpc":"2.0","id":5,"method":""}`, id: "5", code: request, why: `invalid request: a method is a string that is not empty`},
		{line: `{"jsonrpc":"2.0","id":5,"method":7}`, id: "5", code: request, why: `invalid request: a method is a string that is not empty`},
		{line: `{"jsonrpc":"2.0","id":5,"method":null}`, id: "5", code: request, why: `invalid request: a method is a string that is not empty`},
		{line: `{"jsonrpc":"2.0","method":[]}`, code: request, why: `invalid request: a method is a string that is not empty`},
		{line: `{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}`, id: "5", code: request, why: `invalid request: a method together with a result or an error`},

		// Responses.
		{line: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`},
		{line: `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`},
		{line: `{"jsonrpc":"1.0","id":1,"result":{}}`, code: request, why: `invalid request: jsonrpc must be \"2.0\"`},
		{line: `{"jsonrpc":"2.0","result":{}}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":1.5,"result":{}}`, code: request, why: badID},
		{line: `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}`, code: request, why: `invalid request: a response with a result and an error`},
		{line: `{"jsonrpc":"2.0","id":1,"error":"x"}`, code: request, why: `invalid request: an error is an object with an integer code and a message`},
		{line: `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}`, code: request, why: `invalid request: an error is an object with an integer code and a message`},
		{line: `{"jsonrpc":"2.0","id":1,"error":{"code":99999999999999999999,"message":"x"}}`, code: request, why: `invalid request: an error is an object with an integer code and a message`},
		{line: `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, code: request, why: `invalid request: an error is an object with an integer code and a message`},

		// Calls.
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, id: "1", code: params, why: `invalid params: params must be an object`, requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":null}`, id: "1", code: params, why: `invalid params: params must be an object`, requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["rm_rf"]}`, id: "1", code: params, why: `invalid params: params must be an object`, requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":"SECRET"}}}`, id: "1", code: params, why: `invalid params: name must be a string`, requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["rm_rf"],"arguments":{"a":"SECRET","request_id":"r3"}}}`, id: "1", code: params,
			why: `invalid params: name must be a string`, requestID: "r3"},
		{line: `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"rm_rf","arguments":null}}`, id: `"x"`, code: params,
			why: `invalid params: arguments must be an object`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","arguments":"\ud800"}}`, id: "1", code: params,
			why: `invalid params: arguments must be an object`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","_meta":"SECRET"}}`, id: "1", code: params,
			why: `invalid params: _meta must be an object`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","requestState":1}}`, id: "1", code: params,
			why: `invalid params: requestState must be a string`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm_rf","inputResponses":[]}}`, id: "1", code: params,
			why: `invalid params: inputResponses must be an object`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"rm_rf","arguments":{"request_id":"a","request_id":"b"}}}`, tool: "rm_rf", requestID: "missing"},
		{line: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"rm_rf","arguments":{"request_id":[1, 2.50]}}}`, tool: "rm_rf", requestID: "[1,2.5]"},
		{line: `{"jsonrpc":"2.0","method":"tools/call"}`, requestID: "missing"},

		// Cancellations.
		{line: `{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":1}}`, id: "1", code: request, why: `invalid request: a notification with an id`},
		{line: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		{line: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0}}`},
		{line: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`},
		{line: `{"jsonrpc":"2.0","method":"notifications/cancelled"}`},

		// Length.
		{line: long + "x", code: request, why: `invalid request: message longer than 4096 bytes`},
		{line: `{"method":"tools/call","params":{"name":"rm_rf","arguments":{"request_id":"r4"}},"x":"` + long + `"}`, code: request,
			why: `invalid request: message longer than 4096 bytes`, tool: "rm_rf", requestID: "r4"},
		{line: `{"method":"tools/call","params":{"name":"rm_rf","arguments":{"x":"` + strings.Repeat(long, 100) + `"}}}`, code: request,
			why: `invalid request: message longer than 4096 bytes`, requestID: "missing"},
	} {
		const ping = `{"jsonrpc":"2.0","id":"after","method":"ping"}`
		o := session(t, c.line+"\n"+ping+"\n", limit)
		var answers []string
		if c.why != "" {
			id := c.id
			if id == "" {
				id = "null"
			}
			answers = append(answers, failed(id, c.code, c.why))
		}
		answers = append(answers, `{"jsonrpc":"2.0","id":"after","result":{}}`)
		if o.err != nil || !slices.Equal(o.answers, answers) {
			t.Errorf("%.200s\n got %q, %v\nwant %q", c.line, o.answers, o.err, answers)
		}
		if !slices.Equal(o.forwarded, []string{ping}) {
			t.Errorf("%.200s: forwarded %.200q", c.line, o.forwarded)
		}
		switch {
		case c.requestID == "":
			if len(o.refused) > 0 {
				t.Errorf("%.200s: reported as a call: %+v", c.line, o.refused)
			}
		case len(o.refused) != 1:
			t.Errorf("%.200s: %d reports, want 1", c.line, len(o.refused))
		default:
			r := o.refused[0]
			if r.Tool != c.tool || r.RequestID != c.requestID || r.Digest != ledger.Digest([]byte(c.line)) || r.Code == 0 || r.Why == "" {
				t.Errorf("%.200s: reported as %+v, want tool %q, request %q", c.line, r, c.tool, c.requestID)
			}
		}
	}
}

// What passes does so byte for byte.
func TestForwarded(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":1,"method":"ping","x":"` + strings.Repeat("x", 4048) + `"}`
	if len(long) != limit-1 {
		t.Fatalf("the longest line has %d bytes", len(long))
	}
	deep := strings.Repeat("[", edge.MaxDepth-3) + strings.Repeat("]", edge.MaxDepth-3)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"","method":"ping"}`,
		`{"jsonrpc":"2.0","id":"1","method":"no/such/method","params":[1,2]}`,
		`{"jsonrpc":"2.0","id":0,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":-9007199254740991,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}`,
		`{ "method" : "ping" , "id" : "\u0031\ud83d\ude00" , "jsonrpc" : "2.0" , "other" : [ 1.50 , -0 , 1e9 ] }`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"no/such/notification","params":{"ID":1}}`,
		`{"jsonrpc":"2.0","id":3,"result":{}}`,
		`{"jsonrpc":"2.0","id":"s","result":null}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no","data":[]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":{},"_meta":{"Name":1},"requestState":"","inputResponses":{}}}`,
		// Arguments are for the gate to judge.
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1,"a":2,"\u0061":"\ud800","n":1e999,"Name":0}}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools\\u002fcall\",\"params\":{\"arguments\":{\"a\":\"\xff\xc0\"},\"name\":\"x\"}}",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":` + deep + `}}}`,
		long,
	} {
		for _, end := range []string{"\n", "\r\n", " \t\n", ""} {
			if line == long && len(end) > 1 {
				continue
			}
			o := session(t, "\n \t\r\n"+line+end, limit)
			if o.err != nil || len(o.forwarded) != 1 || o.forwarded[0] != line {
				t.Errorf("%.200s: %v, forwarded %.200q, answers %.200q", line, o.err, o.forwarded, o.answers)
			}
			var m struct{ ID, Method json.RawMessage }
			json.Unmarshal([]byte(line), &m)
			if asked := m.ID != nil && m.Method != nil; asked != (len(o.answers) == 1) {
				t.Errorf("%.200s: answers %.200q", line, o.answers)
			}
		}
	}
}

// Any mixture of good and bad lines gets one answer for each that needs one.
func TestGoesOn(t *testing.T) {
	o := session(t, strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{{{`, ``, `[]`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		strings.Repeat("a", limit+1), `{"jsonrpc":"2.0","id":3,"method":"ping"}`, `nonsense`}, "\n"), limit)
	want := []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		failed("null", "-32700", "parse error: byte 2: the name of a member must stand here"),
		failed("null", "-32600", "invalid request: a batch; send each message on a line of its own"),
		`{"jsonrpc":"2.0","id":2,"result":{}}`,
		failed("null", "-32600", "invalid request: message longer than 4096 bytes"),
		`{"jsonrpc":"2.0","id":3,"result":{}}`,
		failed("null", "-32700", "parse error: byte 1: a value must stand here"),
	}
	slices.Sort(want) // the SDK's answers may come later than ours
	slices.Sort(o.answers)
	if o.err != nil || !slices.Equal(o.answers, want) {
		t.Errorf("%v\n got %q\nwant %q", o.err, o.answers, want)
	}
}

// live is a session that a test drives step by step, in a synctest bubble.
type live struct {
	t      *testing.T
	f      *edge.Filter
	in     *io.PipeWriter
	sdk    chan string // what was forwarded
	out    chan string // what was answered
	ran    chan error
	cancel context.CancelFunc
}

func start(t *testing.T, out io.Writer) *live {
	r, w := io.Pipe()
	l := &live{t: t, in: w, out: make(chan string, 1000), ran: make(chan error, 1)}
	if out == nil {
		out = lines(l.out)
	}
	l.f = edge.New(edge.Config{In: r, Out: out})
	l.sdk = sdk(l.f, nil)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	t.Cleanup(func() { cancel(); w.Close() })
	go func() { l.ran <- l.f.Run(ctx) }()
	return l
}

// lines is an Out that wants one whole message in each Write.
type lines chan string

func (c lines) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

func (l *live) send(line string) {
	l.t.Helper()
	io.WriteString(l.in, line+"\n")
	synctest.Wait()
}

func (l *live) reply(text string) {
	l.t.Helper()
	if n, err := io.WriteString(l.f.Writer(), text); n != len(text) || err != nil {
		l.t.Errorf("the SDK's write: %d, %v", n, err)
	}
	synctest.Wait()
}

// want checks all that has come out of c since the last look.
func (l *live) want(c chan string, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	for {
		select {
		case line, open := <-c:
			if open {
				got = append(got, strings.TrimSuffix(line, "\n"))
				continue
			}
		default:
		}
		if !slices.Equal(got, want) {
			l.t.Errorf("\n got %q\nwant %q", got, want)
		}
		return
	}
}

func (l *live) running() {
	l.t.Helper()
	synctest.Wait()
	select {
	case err := <-l.ran:
		l.t.Fatalf("Run returned early: %v", err)
	default:
	}
}

func (l *live) returned(want error) {
	l.t.Helper()
	synctest.Wait()
	select {
	case err := <-l.ran:
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			l.t.Errorf("Run: %v; want %v", err, want)
		}
	default:
		l.t.Fatal("Run has not returned")
	}
}

const (
	one   = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`
	other = `{"jsonrpc":"2.0","id":"1","method":"ping"}`
)

func TestEndOfInputWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		l.send(one)
		l.send(other)
		l.in.Close()
		l.want(l.sdk, one, other) // and no end of input
		l.reply(done([]byte(`"1"`)))
		l.running()
		l.want(l.out, `{"jsonrpc":"2.0","id":"1","result":{}}`)
		// In two writes, with a message of the server between.
		l.reply(`{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n" + `{"jsonrpc":"2.0",`)
		l.running()
		l.reply(`"id":1,"result":{}}` + "\n")
		l.want(l.out, `{"jsonrpc":"2.0","method":"notifications/progress"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		l.returned(nil)
		if _, open := <-l.sdk; open {
			t.Error("the SDK's input has not ended")
		}
	})
}

func TestContextStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		l.send(one)
		l.want(l.sdk, one)
		l.cancel() // In stays open, and its Read blocks
		l.running()
		l.send(other)
		l.want(l.sdk)
		l.want(l.out)
		l.reply(done([]byte(`1`)))
		l.want(l.out, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		l.returned(nil)
	})
}

func TestIDInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		l.send(one)
		l.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		l.send(`{"jsonrpc":"2.0","id":1,"method":""}`)
		l.send(`{"jsonrpc":"2.0","id":1,"result":{}}`) // the server's request 1 is another
		l.send(other)
		l.send(`{"jsonrpc":"2.0","id":"\u0031","method":"ping"}`)
		used := failed("null", "-32600", "invalid request: id already in use")
		l.want(l.out, used, used, used)
		l.want(l.sdk, one, `{"jsonrpc":"2.0","id":1,"result":{}}`, other)
		l.reply(done([]byte(`1`)))
		l.send(one)
		l.want(l.sdk, one)
		l.reply(done([]byte(`1`)) + done([]byte(`1`)) + done([]byte(`7`)) + "no JSON\n" + `[]` + "\n" + done([]byte(`"1"`)))
		l.want(l.out, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"1","result":{}}`)
		l.in.Close()
		l.returned(nil)
	})
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		l.send(one)
		l.send(other)
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		l.send(cancel)
		l.want(l.sdk, one, other, cancel)
		l.send(one) // not answered yet
		l.want(l.out, failed("null", "-32600", "invalid request: id already in use"))
		l.in.Close()
		l.reply(done([]byte(`"1"`)))
		l.want(l.out, `{"jsonrpc":"2.0","id":"1","result":{}}`)
		l.running()
		l.reply(`{"jsonrpc":"2.0","id":1,"result":{"isError":true}}` + "\n")
		l.want(l.out)
		l.returned(nil)
	})
}

func TestListenIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		l.send(`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{}}`)
		l.in.Close()
		l.returned(nil)
		l.want(l.out)
	})
}

func TestErrorsAreTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, nil)
		for _, c := range []struct{ sdk, want string }{
			{`{"code":0,"message":"method \"SECRET\" is invalid during session initialization"}`,
				`{"code":-32600,"message":"invalid request: not allowed in this protocol version or session state"}`},
			{`{"message":"SECRET"}`, `{"code":-32600,"message":"invalid request: not allowed in this protocol version or session state"}`},
			{`{"code":-32602,"message":"handling 'resources/read': invalid params: unmarshaling \"SECRET\" into a"}`,
				`{"code":-32602,"message":"invalid params: not of the shape that the method takes"}`},
			{`{"code":-32602,"message":"tool denied: rm_rf","data":{"reason":"tool_not_allowed"}}`,
				`{"code":-32602,"message":"tool denied: rm_rf","data":{"reason":"tool_not_allowed"}}`},
			{`{"code":-32022,"message":"unsupported protocol version","data":{}}`, `{"code":-32022,"message":"unsupported protocol version","data":{}}`},
		} {
			l.send(`{"jsonrpc":"2.0","id":"\u0061","method":"x"}`)
			<-l.sdk
			l.reply(`{"jsonrpc":"2.0","id":"a","error":` + c.sdk + "}\n")
			id := `"a"`
			if c.sdk != c.want {
				id = `"\u0061"`
			}
			l.want(l.out, `{"jsonrpc":"2.0","id":`+id+`,"error":`+c.want+`}`)
		}
		l.in.Close()
		l.returned(nil)
	})
}

func TestSDKEndsEarly(t *testing.T) {
	for _, end := range []string{"reader", "writer"} {
		synctest.Test(t, func(t *testing.T) {
			l := start(t, nil)
			l.send(one)
			l.want(l.sdk, one)
			if end == "reader" {
				l.f.Reader().Close()
			} else {
				l.f.Writer().Close()
			}
			l.want(l.out, failed("1", "-32603", "internal error: the session ended before the request was answered; what became of it is not known here"))
			l.returned(edge.ErrSessionEnded)
			if _, err := l.f.Writer().Write([]byte("{}\n")); err == nil {
				t.Error("a write after Close succeeded")
			}
		})
	}
}

// broken fails from the n-th write on.
type broken struct{ n int }

var errBroken = errors.New("broken pipe")

func (b *broken) Write(p []byte) (int, error) {
	if b.n--; b.n < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestOutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, &broken{n: 1})
		l.send(one)
		l.send(other)
		l.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		l.reply(done([]byte(`3`)))
		l.reply(done([]byte(`"1"`))) // fails, but not for the SDK
		l.running()                  // the first call is not over
		go io.WriteString(l.in, `{"jsonrpc":"2.0","id":4,"method":"ping"}`+"\n")
		l.reply(done([]byte(`1`)))
		l.returned(errBroken)
		l.want(l.sdk, one, other, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	})
}

type failing struct{ io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

func TestInFails(t *testing.T) {
	var out bytes.Buffer
	f := edge.New(edge.Config{In: failing{strings.NewReader(other + "\n" + one)}, Out: &out})
	forwarded := sdk(f, done)
	if err := f.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("Run: %v", err)
	}
	if got := all(forwarded); !slices.Equal(got, []string{other}) { // the cut line is not known to be whole
		t.Errorf("forwarded %q", got)
	}
	if out.String() != done([]byte(`"1"`)) {
		t.Errorf("answers %q", out.String())
	}
}

// The report comes before the answer, and holds the next line.
func TestRefusedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reported, release := make(chan edge.Refusal), make(chan bool)
		f := edge.New(edge.Config{In: strings.NewReader("[" + one + "]\n" + other + "\n"), Out: &out,
			Refused: func(r edge.Refusal) { reported <- r; <-release }})
		forwarded := sdk(f, done)
		ran := make(chan error)
		go func() { ran <- f.Run(t.Context()) }()
		<-reported
		synctest.Wait()
		if out.Len() > 0 || len(forwarded) > 0 {
			t.Errorf("before the report was taken: answered %q, forwarded %d", out.String(), len(forwarded))
		}
		close(release)
		if err := <-ran; err != nil || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%v, %q", err, out.String())
		}
	})
}

// Answers of many handlers and of the filter are never mixed. For -race.
func TestConcurrent(t *testing.T) {
	const calls = 500
	var in strings.Builder
	for i := range calls {
		in.WriteString(strings.Replace(one, `"id":1`, `"id":`+itoa(i), 1) + "\n{broken\n")
	}
	out := make(chan string, 3*calls)
	f := edge.New(edge.Config{In: strings.NewReader(in.String()), Out: lines(out)})
	var handlers sync.WaitGroup
	sdk(f, func(id json.RawMessage) string {
		handlers.Go(func() { // one Write for each message, as the SDK does, but from everywhere
			io.WriteString(f.Writer(), done(id))
		})
		return ""
	})
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	handlers.Wait()
	close(out)
	results, errs := 0, 0
	for line := range out {
		var m map[string]json.RawMessage
		if strings.Count(line, "\n") != 1 || json.Unmarshal([]byte(line), &m) != nil {
			t.Fatalf("mixed: %q", line)
		}
		if m["result"] != nil {
			results++
		} else {
			errs++
		}
	}
	if results != calls || errs != calls {
		t.Errorf("%d results and %d errors, want %d of each", results, errs, calls)
	}
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

// endless gives n bytes of a line that does not end, after a beginning.
type endless struct {
	begin *strings.Reader
	n     int64
	peak  uint64 // of the heap in use, as seen from Read
}

func (e *endless) Read(p []byte) (int, error) {
	if e.begin.Len() > 0 {
		return e.begin.Read(p)
	}
	if e.n <= 0 {
		return 0, io.EOF
	}
	if e.n%(64<<20) < int64(len(p)) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		e.peak = max(e.peak, m.HeapInuse)
	}
	n := copy(p[:min(int64(len(p)), e.n)], block)
	e.n -= int64(n)
	return n, nil
}

var block = bytes.Repeat([]byte{'x'}, 64<<10)

func TestGigabyteLine(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 2 GiB")
	}
	for _, begin := range []string{``, `{"method":"tools/call","params":{"name":"x","arguments":{"a":"`} {
		var out bytes.Buffer
		var reports int
		in := &endless{begin: strings.NewReader(other + "\n" + begin), n: 1 << 30}
		f := edge.New(edge.Config{In: in, Out: &out, Refused: func(edge.Refusal) { reports++ }})
		sdk(f, done)
		if err := f.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := done([]byte(`"1"`)) + failed("null", "-32600", "invalid request: message longer than 16777216 bytes") + "\n"
		if out.String() != want || reports != min(1, len(begin)) {
			t.Errorf("answers %q, %d reports", out.String(), reports)
		}
		if most := uint64(128 << 20); in.peak > most {
			t.Errorf("%d MiB of heap in use, want at most %d", in.peak>>20, most>>20)
		}
		t.Logf("peak heap in use %d MiB", in.peak>>20)
	}
}

// Lines up to the cap work, in both directions.
func TestLargeMessages(t *testing.T) {
	large := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"` + strings.Repeat("x", 3<<20) + `"}}}`
	result := `{"jsonrpc":"2.0","id":1,"result":{"a":"` + strings.Repeat("y", 5<<20) + `"}}` + "\n"
	var out bytes.Buffer
	f := edge.New(edge.Config{In: strings.NewReader(large + "\n"), Out: &out})
	forwarded := sdk(f, func(json.RawMessage) string { return result })
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := all(forwarded); len(got) != 1 || got[0] != large {
		t.Error("a message of 3 MiB did not come through")
	}
	if out.String() != result {
		t.Error("a result of 5 MiB did not come through")
	}
}
