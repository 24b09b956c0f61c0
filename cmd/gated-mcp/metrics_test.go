//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var servedAt = regexp.MustCompile(`metrics are served" address=(\S+)`)

// metricsAt is where the server says that its metrics are.
func (s *process) metricsAt() string {
	s.t.Helper()
	var m [][]byte
	eventually(s.t, "the server says where its metrics are", func() bool {
		m = servedAt.FindSubmatch(read(s.t, s.stderr))
		return m != nil
	})
	return string(m[1])
}

// samples are the values of one scrape by their series: name{a="1",b="2"},
// without the label ledger.
type samples map[string]float64

// scrape is the series of a page, without the label ledger and those of buckets,
// of which the count is enough.
func scrape(t *testing.T, address string) samples {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", res.Status, err, page)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	all := samples{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "ledger" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			slices.Sort(labels)
			series := name
			if len(labels) > 0 {
				series += "{" + strings.Join(labels, ",") + "}"
			}
			all[series] = value(f, m)
		}
	}
	return all
}

func value(f *dto.MetricFamily, m *dto.Metric) float64 {
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		return m.Counter.GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Gauge.GetValue()
}

func (s samples) want(t *testing.T, want samples) {
	t.Helper()
	for series, v := range want {
		if got, ok := s[series]; !ok || got != v {
			t.Errorf("%s is %v (there: %v), want %v", series, got, ok, v)
		}
	}
}

// TestMetrics: every pair is there at 0 before the first call; the totals are
// those of the ledger, and so last over sessions, while what a process measures
// of itself begins anew.
func TestMetrics(t *testing.T) {
	p := newPlace(t)
	for session := range 3 {
		s := p.start(t, nil, "--metrics", ":0").ready()
		at := s.metricsAt()
		if !strings.HasPrefix(at, "127.0.0.1:") {
			t.Errorf("without a host metrics are at %s", at)
		}
		n := float64(session)
		before := samples{
			`ledger_tool_calls_total{outcome="committed",tool="write_note"}`: n,
			`ledger_tool_calls_total{outcome="replay",tool="write_note"}`:    n,
			`ledger_tool_calls_total{outcome="error",tool="write_note"}`:     n,
			`ledger_tool_calls_total{outcome="cancelled",tool="write_note"}`: 0,
			`ledger_tool_calls_total{outcome="observed",tool="read_ledger"}`: n,
			`ledger_tool_calls_total{outcome="deny",tool="rm_rf"}`:           n,
			`ledger_tool_calls_total{outcome="deny",tool="other"}`:           n,
			`ledger_denials_total{reason="tool_not_allowed",tool="rm_rf"}`:   n,
			`ledger_denials_total{reason="argument_rule",tool="write_note"}`: n,
			`ledger_calls_in_doubt{tool="write_note"}`:                       0,
			`ledger_records_total`:                            8 * n,
			`ledger_head_seq`:                                 8 * n,
			`ledger_write_failures_total`:                     0,
			`ledger_write_last_failure_timestamp_seconds`:     0,
			`ledger_append_duration_seconds`:                  0,
			`ledger_call_duration_seconds{tool="write_note"}`: 0,
			`ledger_call_duration_seconds{tool="other"}`:      0,
			`ledger_readable`:                                 1,
		}
		first := scrape(t, at)
		eventually(t, "the ledger was read once", func() bool { first = scrape(t, at); return first["ledger_readable"] == 1 })
		first.want(t, before)
		for name := range first {
			if strings.HasPrefix(name, "ledger_verify_") {
				t.Errorf("%s: this server verifies nothing", name)
			}
		}
		id := fmt.Sprintf("req-%04d", session)
		s.call("write_note", note(id, "x"))      // intent, committed
		s.call("write_note", note(id, "x"))      // replay
		s.call("write_note", note(id, "y"))      // conflict
		s.call("write_note", note("short", "x")) // denied by a rule
		s.call("read_ledger", "{}")              // observed
		s.call("rm_rf", `{"path":"/"}`)          // denied
		s.call("no_such_tool", "{}")             // denied
		for series := range before {
			switch {
			case strings.Contains(series, "records_total"), strings.Contains(series, "head_seq"):
				before[series] += 8
			case strings.Contains(series, "append_duration"):
				before[series] = 8
			case strings.Contains(series, "call_duration_seconds{tool=\"write_note\"}"):
				before[series] = 4
			case strings.Contains(series, "failure"), strings.Contains(series, "doubt"), strings.Contains(series, "readable"), strings.Contains(series, "cancelled"):
			default:
				before[series]++
			}
		}
		after := scrape(t, at) // at once: a scrape reads what the ledger has by then
		after.want(t, before)
		if len(after) != len(first) {
			t.Errorf("%d series became %d", len(first), len(after))
		}
		s.close()
	}
}

// TestMetricsNames: nothing that a client sends becomes a value of a label.
func TestMetricsNames(t *testing.T) {
	calls := 10_000
	if testing.Short() {
		calls = 1000
	}
	p := newPlace(t)
	s := p.start(t, nil, "--metrics", "127.0.0.1:0")
	at := s.metricsAt()
	var before samples
	eventually(t, "the ledger was read once", func() bool { before = scrape(t, at); return before["ledger_readable"] == 1 })
	letters := []string{"a", "Z", "9", "\u00e9", "\u202e", "\x00", "\n", `"`, `\`, "{", "}", "=", ",", "other", "write_note", "😀"}
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			word := func() string {
				var b strings.Builder
				for range 1 + random.IntN(20) {
					b.WriteString(letters[random.IntN(len(letters))])
				}
				return b.String()
			}
			for range calls / 16 {
				if got := s.call(word()+"!", "{}").kind(); got != "-32602 tool_not_allowed" {
					t.Error(got)
					return
				}
			}
			for range 20 {
				id := fmt.Sprintf(`"odd-%d"`, s.serial.Add(1))
				s.wait(s.ask(id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%s,"params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":%s,"version":"1"}}}}`, id, quote(word()), quote(word()))))
			}
		})
	}
	wait.Wait()
	after := scrape(t, at)
	if len(after) != len(before) {
		t.Errorf("%d series became %d", len(before), len(after))
	}
	if got := after[`ledger_tool_calls_total{outcome="deny",tool="other"}`]; got != float64(calls/16*16) {
		t.Errorf("%v denials of other, want %d", got, calls/16*16)
	}
	s.close()
}

// TestMetricsPortTaken: who comes second does not start, or starts without
// metrics where a flag says so; the first one notices nothing.
func TestMetricsPortTaken(t *testing.T) {
	first := newPlace(t)
	one := first.start(t, nil, "--metrics", "127.0.0.1:0")
	at := one.metricsAt()

	second := newPlace(t)
	two := second.start(t, nil, "--metrics", at)
	two.exit(1)
	if log := string(read(t, two.stderr)); !strings.Contains(log, at) || !strings.Contains(log, "in use") || exists(second.ledger) {
		t.Errorf("the ledger is there: %v, stderr: %s", exists(second.ledger), log)
	}

	two = second.start(t, nil, "--metrics", at, "--metrics-optional").ready()
	if got := two.call("write_note", note("req-0001", "x")).kind(); got != "committed" {
		t.Error(got)
	}
	two.close()
	if log := string(read(t, two.stderr)); !strings.Contains(log, "without metrics") || !strings.Contains(log, at) {
		t.Errorf("stderr: %s", log)
	}
	if got := scrape(t, at)["ledger_records_total"]; got != 0 {
		t.Errorf("the first server tells of %v records of the other", got)
	}
	one.close()

	// Only a taken port is no matter.
	two = second.start(t, nil, "--metrics", "no-port", "--metrics-optional")
	two.exit(1)
}

// TestMetricsReload: a tool that a policy newly names has its series at once.
func TestMetricsReload(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil, "--metrics", "127.0.0.1:0").ready()
	at := s.metricsAt()
	s.call("drop_table", "{}")
	other := `ledger_tool_calls_total{outcome="deny",tool="other"}`
	eventually(t, "the denial is counted", func() bool { return scrape(t, at)[other] == 1 })
	p.setPolicy(t, `{"version":1,"allow":["read_ledger","write_note"],"deny":["rm_rf","drop_table"]}`)
	s.signal(syscall.SIGHUP)
	eventually(t, "the tool has its own series", func() bool {
		now := scrape(t, at)
		n, ok := now[`ledger_tool_calls_total{outcome="deny",tool="drop_table"}`]
		return ok && n == 1 && now[other] == 0
	})
	s.call("drop_table", "{}")
	scrape(t, at).want(t, samples{
		`ledger_tool_calls_total{outcome="deny",tool="drop_table"}`: 2, other: 0,
		`ledger_call_duration_seconds{tool="drop_table"}`: 1,
	})
	s.close()
}

// TestMetricsWriteFailures: what cannot be in the ledger is counted in the
// process: a mutation and a denial of which no record could be written.
func TestMetricsWriteFailures(t *testing.T) {
	p := newPlace(t)
	s := p.start(t, nil, "--metrics", "127.0.0.1:0").ready()
	at := s.metricsAt()
	s.call("read_ledger", "{}")
	if err := syscall.Rename(p.audit(), p.audit()+".away"); err != nil { // the writer stops for that
		t.Fatal(err)
	}
	if got := s.call("write_note", note("req-0001", "x")).kind(); got != "-32603 ledger_unavailable" {
		t.Error(got)
	}
	scrape(t, at).want(t, samples{"ledger_write_failures_total": 1})
	if got := s.call("rm_rf", "{}").kind(); got != "-32602 tool_not_allowed" {
		t.Error(got)
	}
	scrape(t, at).want(t, samples{"ledger_write_failures_total": 2})
	s.stdin.Close()
	<-s.ended
	s.cmd.Wait()
}

// TestMetricsInFlight: a call that runs is not in doubt, seen from its own
// process and from another.
func TestMetricsInFlight(t *testing.T) {
	p := newPlace(t)
	marker := p.root + "/marker"
	s := p.start(t, []string{"CRASH_MARKER=" + marker}, "--metrics", "127.0.0.1:0").ready()
	other := p.start(t, nil, "--metrics", "127.0.0.1:0").ready()
	s.begin("write_note", note("req-0001", "x"))
	eventually(t, "the call is between its intent and its effect", func() bool { return exists(marker) })
	inDoubt := `ledger_calls_in_doubt{tool="write_note"}`
	for _, at := range []string{s.metricsAt(), other.metricsAt()} {
		var now samples
		eventually(t, "the intent is seen", func() bool { now = scrape(t, at); return now["ledger_records_total"] == 1 })
		now.want(t, samples{inDoubt: 0})
	}
	s.kill()
	scrape(t, other.metricsAt()).want(t, samples{inDoubt: 1})
	// The retry looks at the effect, which is not there, and runs.
	if got := other.call("write_note", note("req-0001", "x")).kind(); got != "committed" {
		t.Error(got)
	}
	scrape(t, other.metricsAt()).want(t, samples{inDoubt: 0, `ledger_tool_calls_total{outcome="void",tool="write_note"}`: 1,
		`ledger_tool_calls_total{outcome="committed",tool="write_note"}`: 1})
	other.close()
}
