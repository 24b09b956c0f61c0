package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/edge"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// real starts a server of the SDK behind f. Its tool "work" begins, waits for
// work to be closed, and says how its context stands; "quick" does not wait.
func real(t *testing.T, f *edge.Filter, work chan struct{}) (begun chan string, ended chan error) {
	begun, ended = make(chan string, 100), make(chan error, 1)
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, h)
	}
	answer := func(ctx context.Context) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(ctx.Err())}}}, nil
	}
	add("quick", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return answer(ctx) })
	add("work", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun <- string(r.Params.Arguments)
		select {
		case <-work:
		case <-ctx.Done():
		}
		return answer(ctx)
	})
	go func() {
		ended <- s.Run(context.Background(), &mcp.IOTransport{Reader: f.Reader(), Writer: f.Writer(), MaxLineLength: -1})
	}()
	return begun, ended
}

func call(id, tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `,` + meta + `}}`
}

// replies sorts the lines of out by their raw ids.
func replies(t *testing.T, out string) map[string][]map[string]json.RawMessage {
	t.Helper()
	m := map[string][]map[string]json.RawMessage{}
	for line := range strings.Lines(out) {
		var r map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &r); err != nil || string(r["jsonrpc"]) != `"2.0"` {
			t.Fatalf("not a message: %q", line)
		}
		m[string(r["id"])] = append(m[string(r["id"])], r)
	}
	return m
}

// The SDK alone answers none of twenty calls when the input ends at once.
func TestSDKAnswersAtEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in strings.Builder
		for i := range 20 {
			in.WriteString(call(itoa(i), "work", "{}") + "\n")
		}
		var out bytes.Buffer
		f := edge.New(edge.Config{In: strings.NewReader(in.String()), Out: &out})
		work := make(chan struct{})
		begun, ended := real(t, f, work)
		ran := make(chan error)
		go func() { ran <- f.Run(context.Background()) }()
		synctest.Wait()
		if len(begun) != 20 {
			t.Fatalf("%d calls run, want 20", len(begun))
		}
		close(work)
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the SDK: %v", err)
		}
		got := replies(t, out.String())
		for i := range 20 {
			if r := got[itoa(i)]; len(r) != 1 || !strings.Contains(string(r[0]["result"]), "<nil>") && !strings.Contains(string(r[0]["result"]), `\u003cnil`) {
				t.Errorf("call %d: %s", i, r)
			}
		}
	})
}

// What ends the SDK's session, or is answered wrongly by it, or not at all,
// does none of that here.
func TestSDKGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := []string{
			`{"jsonrpc":"2.0","id":"early","method":"tools/list","params":{}}`, // code 0
			`{broken`, `plain text`, `7`, `{"id":1}`, `{"jsonrpc":"2.0","id":true,"method":"ping"}`, `{}{}`, strings.Repeat("[", 20000), `[]`,
			`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":null,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":"empty","method":""}`,
			`{"jsonrpc":"2.0","id":"unknown","method":"no/such","params":{` + meta + `}}`,
			`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"quick"}}`,
			`{"jsonrpc":"2.0","id":"name","method":"tools/call","params":{"name":7,"arguments":{"a":"SECRET"},` + meta + `}}`,
			`{"jsonrpc":"2.0","id":"shape","method":"resources/read","params":{"uri":{"a":"SECRET"},` + meta + `}}`,
			`{"jsonrpc":"2.0","id":"inputs","method":"tools/call","params":{"name":"quick","arguments":{"a":"SECRET"},"inputResponses":{"a":7},` + meta + `}}`,
			`{"jsonrpc":"2.0","id":"version","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			`{"\u006asonrpc":"2\u002e0","\u0069d":"spelt","m\u0065thod":"tools\/call","par\u0061ms":{"n\u0061me":"qu\u0069ck","\u0061rguments":{},` + meta + `}}`,
			"  " + call(`"blanks"`, "quick", "{ }") + " \t\r",
			call("9007199254740991", "quick", "{}"),
			call("-3", "quick", "{}"),
			call(`"3"`, "quick", "{}"),
			call("3", "quick", "{}"),
			call(`"deep"`, "quick", `{"a":`+strings.Repeat("[", edge.MaxDepth-4)+strings.Repeat("]", edge.MaxDepth-4)+`}`),
			call(`"raw"`, "quick", "{\"a\":1,\"a\":\"\\ud800\xff\",\"b\":1e999}"),
			call(`"last"`, "quick", "{}"),
		}
		var out bytes.Buffer
		f := edge.New(edge.Config{In: strings.NewReader(strings.Join(l, "\n")), Out: &out})
		_, ended := real(t, f, nil)
		if err := f.Run(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the SDK: %v", err)
		}
		if strings.Contains(out.String(), "SECRET") {
			t.Errorf("an answer quotes arguments:\n%s", out.String())
		}
		got := replies(t, out.String())
		if n := len(got["null"]); n != 9 {
			t.Errorf("%d answers with the id null, want 9: %s", n, got["null"])
		}
		for id, want := range map[string]string{
			`"early"`: "-32600", `1`: "-32600", `"empty"`: "-32600", `"unknown"`: "-32601", `"name"`: "-32602", `"shape"`: "-32602", `"inputs"`: "-32602", `"version"`: "-32022",
			`"spelt"`: "", `"blanks"`: "", `9007199254740991`: "", `-3`: "", `3`: "", `"3"`: "", `"deep"`: "", `"raw"`: "", `"last"`: "",
		} {
			r := got[id]
			if len(r) != 1 {
				t.Errorf("%s: %d answers", id, len(r))
				continue
			}
			var e struct{ Code json.Number }
			json.Unmarshal(r[0]["error"], &e)
			if string(e.Code) != want || (want == "") != (r[0]["result"] != nil) {
				t.Errorf("%s: %s %s; want %s", id, r[0]["error"], r[0]["result"], want)
			}
		}
	})
}

func TestSDKCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := io.Pipe()
		var out bytes.Buffer
		f := edge.New(edge.Config{In: r, Out: &out})
		begun, ended := real(t, f, make(chan struct{}))
		ran := make(chan error)
		go func() { ran <- f.Run(context.Background()) }()
		io.WriteString(in, call("1", "work", "{}")+"\n")
		<-begun
		io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n")
		io.WriteString(in, call("2", "quick", "{}")+"\n")
		synctest.Wait()
		in.Close()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the SDK: %v", err)
		}
		if got := replies(t, out.String()); len(got["1"]) != 0 || len(got["2"]) != 1 {
			t.Errorf("answers: %s", out.String())
		}
	})
}

// A listening client does not hold the end, and a session of the older
// revision works.
func TestSDKSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := strings.Join([]string{
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"quick"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`,
		}, "\r\n")
		var out bytes.Buffer
		f := edge.New(edge.Config{In: strings.NewReader(in), Out: &out})
		_, ended := real(t, f, nil)
		if err := f.Run(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the SDK: %v", err)
		}
		got := replies(t, out.String())
		for _, id := range []string{"0", "1", "2"} {
			if len(got[id]) != 1 || got[id][0]["result"] == nil {
				t.Errorf("%s: %s", id, got[id])
			}
		}
	})
}

// Nothing that a client can send makes the filter panic, stop early, write what
// is no message, or forward what the SDK or another reader would read otherwise.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		one, other, "[" + one + "]", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n{\n" + one + "\r\n\r\n" + other,
		`{"jsonrpc":"2.0","id":"\u0061","m\u0065thod":"tools\/call","params":{"name":"x","arguments":{"a":1,"a":"\ud800","b":1e999}}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"m","data":[1.5,-0,1e-7]}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","Param\u017f":{}}`, "\xef\xbb\xbf{}", strings.Repeat("{\"a\":[", 300),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		o := session(t, string(input), 1<<12)
		if o.err != nil {
			t.Fatal(o.err)
		}
		for _, line := range o.answers {
			if v, err := canon.Parse([]byte(line)); err != nil || v.Kind() != canon.Object {
				t.Fatalf("written: %q", line)
			}
			replies(t, line)
		}
		for _, r := range o.refused {
			if strings.ContainsFunc(r.Why, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("why %q", r.Why)
			}
		}
		var requests, answered []string
		for _, line := range o.forwarded {
			checkForwarded(t, line)
			var m struct{ ID, Method json.RawMessage }
			if json.Unmarshal([]byte(line), &m); m.ID != nil && m.Method != nil {
				requests = append(requests, string(m.ID))
			}
		}
		for _, line := range o.answers {
			var m struct{ ID, Result json.RawMessage }
			if json.Unmarshal([]byte(line), &m); m.Result != nil {
				answered = append(answered, string(m.ID))
			}
		}
		// The fake SDK answers in order, and cancellations come too late or not at all.
		if len(answered) > len(requests) {
			t.Fatalf("requests %q, answers %q", requests, answered)
		}
	})
}

// The same, from within: whole values in the places of a call.
func FuzzCall(f *testing.F) {
	f.Add("1", `"tools/call"`, `"name":"x"`, `{"a":1}`)
	f.Add(`"\u0031"`, `"tools\/call"`, `"name":"x","_meta":{}`, `{"a":1,"a":"\ud800"}`)
	f.Add(`-0`, `"ping"`, `"Name":"x","arguments":{}`, `[1e400]`)
	f.Add(`1,"result":{}`, `"notifications/cancelled"`, `"requestId":1`, `null},"params":{"arguments":{}`)
	f.Fuzz(func(t *testing.T, id, method, params, arguments string) {
		line := `{"jsonrpc":"2.0","id":` + id + `,"method":` + method + `,"params":{` + params + `,"arguments":` + arguments + `}}`
		o := session(t, line, 1<<12)
		for _, line := range o.forwarded {
			checkForwarded(t, line)
		}
		if n := len(o.answers); o.err != nil || n > 1+strings.Count(line, "\n") {
			t.Fatalf("%q: %v, %q", line, o.err, o.answers)
		}
	})
}

// checkForwarded checks one line by two other readers.
func checkForwarded(t *testing.T, line string) {
	t.Helper()
	if strings.ContainsAny(line, "\n") || line[0] != '{' || line[len(line)-1] != '}' {
		t.Fatalf("forwarded: %q", line)
	}
	// The standard library has the arguments out; the rest is canon's to read.
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("forwarded %q: %v", line, err)
	}
	var method string
	json.Unmarshal(m["method"], &method)
	outside := line
	if method == "tools/call" {
		var p map[string]json.RawMessage
		if err := json.Unmarshal(m["params"], &p); err != nil {
			t.Fatalf("forwarded %q: %v", line, err)
		}
		if raw := p["arguments"]; raw != nil {
			// Wherever else the same bytes stand, null does as well.
			outside = strings.ReplaceAll(line, string(raw), "null")
		}
	}
	if _, err := canon.Parse([]byte(outside)); err != nil && !strings.Contains(err.Error(), string(canon.DuplicateKey)) || err != nil && outside == line {
		t.Fatalf("forwarded %q: outside of the arguments: %v", line, err)
	}
	// The SDK reads the same message.
	c, err := (&mcp.IOTransport{Reader: io.NopCloser(strings.NewReader(line + "\n")), Writer: nopWriter{}, MaxLineLength: -1}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read, err := c.Read(t.Context())
	if err != nil {
		t.Fatalf("forwarded %q: the SDK: %v", line, err)
	}
	var id any
	json.Unmarshal(m["id"], &id)
	same := func(got jsonrpc.ID) bool {
		if n, ok := got.Raw().(int64); ok {
			return id == float64(n)
		}
		return id == got.Raw()
	}
	switch read := read.(type) {
	case *jsonrpc.Request:
		if m["method"] == nil || read.Method != method || !same(read.ID) || !slices.Equal(read.Params, m["params"]) {
			t.Fatalf("forwarded %q: the SDK reads %+v", line, read)
		}
	case *jsonrpc.Response:
		if m["method"] != nil || !same(read.ID) {
			t.Fatalf("forwarded %q: the SDK reads %+v", line, read)
		}
	}
}

type nopWriter struct{}

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) Close() error                { return nil }
