//go:build unix

package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A receiver is a collector that keeps the spans it is sent.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	raw      []byte
	spans    []*otlp.Span
	resource map[string]string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{resource: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", req.Method, req.URL.Path, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw = append(r.raw, body...)
		for _, rs := range m.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				r.resource[a.Key] = a.Value.GetStringValue()
			}
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func attributes(s *otlp.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		if all[a.Key] = a.Value.GetStringValue(); a.Value.GetStringValue() == "" {
			all[a.Key] = fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return all
}

// below is the spans below a span, in the order of their beginnings.
func (r *receiver) below(parent *otlp.Span) []*otlp.Span {
	var all []*otlp.Span
	for _, s := range r.spans {
		if bytes.Equal(s.ParentSpanId, parent.SpanId) && bytes.Equal(s.TraceId, parent.TraceId) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *otlp.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return all
}

// tracedLine is a call with members more in its _meta.
func tracedLine(id, tool, args, more string) string {
	return strings.Replace(callLine(id, tool, args), `"_meta":{`, `"_meta":{`+more+`,`, 1)
}

// TestTrace: a client's trace goes on through the gate, and its spans, the record
// and the effect name one request id.
func TestTrace(t *testing.T) {
	r := newReceiver(t)
	p := newPlace(t)
	s := p.start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=trial"})
	// Each call has a trace of its own: 0…01, 0…02 …, and a client's span a…01 …
	n := 0
	call := func(tool, args, want string) (trace string) {
		t.Helper()
		n++
		trace = fmt.Sprintf("%032x", n)
		id := fmt.Sprintf(`"traced-%d"`, n)
		more := fmt.Sprintf(`"traceparent":"00-%s-a%015x-01","tracestate":"vendor=%d"`, trace, n, n)
		if got := s.wait(s.ask(id, tracedLine(id, tool, args, more))).kind(); got != want {
			t.Errorf("%s %s: %s, want %s", tool, args, got, want)
		}
		return trace
	}
	secret := "a-text-that-must-stay-here"
	type want struct {
		name, requestID, failed, steps string
		records                        []string
	}
	wants := map[string]want{
		call("write_note", note("req-0001", secret), "committed"): {"tools/call write_note", "req-0001", "", "decide intent effect outcome",
			[]string{"pending/intent", "allow/committed"}},
		call("write_note", note("req-0001", secret), "replay"): {"tools/call write_note", "req-0001", "", "decide outcome", []string{"allow/replay"}},
		call("write_note", note("req-0001", secret+"!"), "failed"): {"tools/call write_note", "req-0001", "tool_error", "decide outcome",
			[]string{"allow/error request_id_conflict"}},
		call("read_ledger", "{}", "read"):                                  {"tools/call read_ledger", "observe", "", "decide read outcome", []string{"allow/observed"}},
		call("rm_rf", `{"path":"/`+secret+`"}`, "-32602 tool_not_allowed"): {"tools/call rm_rf", "missing", "-32602", "decide outcome", []string{"deny/not_executed tool_not_allowed"}},
		call("no_such_tool", `{"request_id":"req-0002","x":"`+secret+`"}`, "-32602 tool_not_allowed"): {"tools/call", "req-0002", "-32602", "decide outcome",
			[]string{"deny/not_executed tool_not_allowed"}},
	}
	s.close()

	records, _ := chain(t, p.audit())
	told := map[string][]string{}
	seqs := map[string]string{}
	for _, rec := range records {
		told[rec.TraceID] = append(told[rec.TraceID], strings.TrimRight(fmt.Sprintf("%s/%s %s", rec.Decision, rec.Outcome, rec.Reason), " "))
		seqs[rec.TraceID] += fmt.Sprint(rec.Seq, " ")
	}
	if len(told) != len(wants) {
		t.Errorf("the ledger names the traces %v", told)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.resource; got["service.name"] != "gated-mcp" || got["deployment.environment.name"] != "trial" {
		t.Errorf("resource: %v", got)
	}
	if bytes.Contains(r.raw, []byte(secret)) {
		t.Error("an argument was sent to the collector")
	}
	roots := 0
	for _, span := range r.spans {
		trace := hex.EncodeToString(span.TraceId)
		w, ok := wants[trace]
		if !ok {
			t.Errorf("a span of another trace: %s %s", span.Name, trace)
			continue
		}
		if attributes(span)["request_id"] != w.requestID && !(w.requestID == "observe" && span.Name == "decide") {
			t.Errorf("%s of trace %s: request_id %q, want %q", span.Name, trace, attributes(span)["request_id"], w.requestID)
		}
		if span.TraceState != "vendor="+strings.TrimLeft(trace, "0") {
			t.Errorf("%s: tracestate %q", span.Name, span.TraceState)
		}
		if hex.EncodeToString(span.ParentSpanId) != "a"+trace[17:] {
			continue
		}
		roots++
		a := attributes(span)
		failed := ""
		if span.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			failed = a["error.type"]
		}
		if span.Name != w.name || span.Kind != otlp.Span_SPAN_KIND_SERVER || failed != w.failed ||
			a["mcp.method.name"] != "tools/call" || a["gen_ai.operation.name"] != "execute_tool" || a["gen_ai.tool.name"] == "" ||
			a["network.transport"] != "pipe" || a["mcp.protocol.version"] != "2026-07-28" {
			t.Errorf("trace %s: %s %v, failed %q, attributes %v", trace, span.Name, span.Kind, failed, a)
		}
		var steps []string
		var stands string
		for _, part := range r.below(span) {
			steps = append(steps, part.Name)
			if seq := attributes(part)["ledger.seq"]; seq != "" {
				stands += seq + " "
			}
		}
		if got := strings.Join(steps, " "); got != w.steps {
			t.Errorf("trace %s: steps %s, want %s", trace, got, w.steps)
		}
		if stands != seqs[trace] {
			t.Errorf("trace %s: spans name the records %s, the ledger has them at %s", trace, stands, seqs[trace])
		}
		if !slices.Equal(told[trace], w.records) {
			t.Errorf("trace %s: records %q, want %q", trace, told[trace], w.records)
		}
	}
	if roots != len(wants) {
		t.Errorf("%d of %d calls have a span below the client's", roots, len(wants))
	}

	// The effect names the same request id, and log finds the records by the trace.
	var effect struct {
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(read(t, p.notes()+"/"+digest("req-0001")+".json"), &effect); err != nil || effect.RequestID != "req-0001" {
		t.Errorf("the effect: %v, %+v", err, effect)
	}
	out, err := exec.Command(program(t, "ledgerctl"), "log", "--trace-id", fmt.Sprintf("%032x", 1), "--format", "json", p.ledger).Output()
	if err != nil || bytes.Count(out, []byte("\n")) != 2 || bytes.Count(out, []byte(`"request_id":"req-0001"`)) != 2 {
		t.Errorf("log --trace-id: %v\n%s", err, out)
	}
}

// TestTraceWithoutTracing: where nothing is sent, the record still says in which
// trace the call was, if that is a trace.
func TestTraceWithoutTracing(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	want := []string{"", ""}
	for i, parent := range []string{`"00-` + trace + `-b7ad6b7169203331-00"`, `"00-` + trace + `-0000000000000000-01"`, `{"a":1}`, `"\u001b[2K"`} {
		id := fmt.Sprintf(`"call-%d"`, i)
		if got := s.wait(s.ask(id, tracedLine(id, "read_ledger", "{}", `"traceparent":`+parent))).kind(); got != "read" {
			t.Errorf("traceparent %s: %s", parent, got)
		}
		want = append(want, "")
	}
	want = want[2:]
	want[0] = trace
	s.close()
	records, _ := chain(t, p.audit())
	var got []string
	for _, r := range records {
		got = append(got, r.TraceID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("traces %q, want %q", got, want)
	}
}

// TestCollectorAway: calls do not wait for a collector that refuses, is silent or
// is not there; the end of the server does not hang on it, and stdout stays the
// protocol's.
func TestCollectorAway(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, address := range map[string]string{"refuses": refusing.URL, "silent": "http://" + silent.Addr().String(), "gone": "http://" + gone.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s := p.start(t, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + address + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=10"})
			for i := range 300 { // more spans than the queue holds
				if got := s.call("write_note", note(fmt.Sprintf("req-%04d", i), "secret")).kind(); got != "committed" {
					t.Fatal(got)
				}
			}
			s.close()
			log := string(read(t, s.stderr))
			if n := strings.Count(log, "spans could not be sent"); n > 2 || name == "refuses" && n == 0 {
				t.Errorf("%d lines of log:\n%s", n, log)
			}
			if strings.Contains(log, "secret") {
				t.Errorf("an argument is in the log:\n%s", log)
			}
			if strings.Contains(log, "the last spans were not sent") != (name == "silent") {
				t.Errorf("of the last spans it says:\n%s", log)
			}
			records, _ := chain(t, p.audit())
			for _, r := range records {
				if len(r.TraceID) != 32 {
					t.Fatalf("record %d names the trace %q", r.Seq, r.TraceID)
				}
			}
		})
	}
}

// TestSettingsLost: a server starts where the SDK cannot read a setting, and its
// log says which, and no value of it.
func TestSettingsLost(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"OTEL_EXPORTER_OTLP_HEADERS=Bearer secret", "parse headers"},
		{"OTEL_EXPORTER_OTLP_HEADERS=authorization=%secret", "escape header value"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=soon", "parse duration"},
		{"OTEL_TRACES_SAMPLER=some", "unsupported sampler"},
	} {
		r := newReceiver(t)
		p := newPlace(t)
		s := p.start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL, c.env})
		if got := s.call("write_note", note("req-0001", "text")).kind(); got != "committed" {
			t.Error(got)
		}
		s.close()
		for line := range strings.Lines(string(read(t, s.stderr))) {
			if !strings.HasPrefix(line, "time=") || !strings.Contains(line, "a setting of OpenTelemetry is not in force") || !strings.Contains(line, c.want) || strings.Contains(line, "secret") {
				t.Errorf("%s: %s", c.env, line)
			}
		}
		if len(read(t, s.stderr)) == 0 {
			t.Errorf("%s: nothing is said", c.env)
		}
	}
}

// TestTracingRefused: what cannot be done is said before anything is touched.
// The console would be stdout.
func TestTracingRefused(t *testing.T) {
	for _, env := range []string{"OTEL_TRACES_EXPORTER=console", "OTEL_TRACES_EXPORTER=zipkin"} {
		p := newPlace(t)
		s := p.start(t, []string{env})
		s.exit(1)
		if log := string(read(t, s.stderr)); !strings.Contains(log, "OTEL_TRACES_EXPORTER") || exists(p.ledger) {
			t.Errorf("%s: the ledger is there: %v, stderr:\n%s", env, exists(p.ledger), log)
		}
	}
	for _, bad := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=secret@127.0.0.1:4318", "OTEL_BSP_MAX_QUEUE_SIZE=-1"} {
		p := newPlace(t)
		s := p.start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317", bad})
		s.exit(1)
		name, _, _ := strings.Cut(bad, "=")
		if log := string(read(t, s.stderr)); !strings.Contains(log, name) || strings.Contains(log, "secret") || strings.Count(log, "\n") != 1 || exists(p.ledger) {
			t.Errorf("%s: the ledger is there: %v, stderr:\n%s", bad, exists(p.ledger), log)
		}
	}
	for _, env := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"} {
		r := newReceiver(t)
		p := newPlace(t)
		s := p.start(t, []string{env, "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL})
		if got := s.call("read_ledger", "{}").kind(); got != "read" {
			t.Error(got)
		}
		s.close()
		if len(r.spans) != 0 {
			t.Errorf("%s: %d spans", env, len(r.spans))
		}
	}
}
