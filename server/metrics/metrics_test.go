//go:build unix

package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server/policy"
	"github.com/auditledger/auditledger/verify"
)

func starter(t testing.TB) *policy.Policy { return policyOf(t, string(policy.Starter())) }

func policyOf(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// try makes metrics of dirs, by the starter policy where c names none.
func try(t testing.TB, c Config, dirs ...string) *Metrics {
	t.Helper()
	c.Dirs = dirs
	if c.Policies == nil {
		c.Policies = []*policy.Policy{starter(t)}
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, w := range m.watches {
			w.close()
		}
	})
	return m
}

// onceMore reads and verifies; what cannot be read is for the page to tell.
func (m *Metrics) onceMore(t testing.TB) *Metrics {
	t.Helper()
	m.once(t.Context())
	return m
}

// samples are the values of a page by their series, such as
// ledger_records_total or ledger_tool_calls_total{a="1",b="2"}. The label ledger
// is left out where there is one ledger.
type samples map[string]float64

func (s samples) want(t testing.TB, series string, value float64) {
	t.Helper()
	if got, ok := s[series]; !ok || got != value {
		t.Errorf("%s is %v (there: %v), want %v", series, got, ok, value)
	}
}

func callsOf(tool, outcome string) string {
	return fmt.Sprintf("%s{outcome=%q,tool=%q}", toolCalls, outcome, tool)
}

// page is what a scrape gives.
func page(t testing.TB, m *Metrics) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

func scrape(t testing.TB, m *Metrics) samples {
	t.Helper()
	return parse(t, page(t, m), len(m.watches) > 1)
}

func parse(t testing.TB, text []byte, several bool) samples {
	t.Helper()
	if problems, err := promlint.New(bytes.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Fatalf("lint: %v, %v", problems, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	all := samples{}
	for name, f := range families {
		if f.GetHelp() != Help(name) || f.GetHelp() == "" {
			t.Errorf("%s: HELP %q", name, f.GetHelp())
		}
		for _, metric := range f.Metric {
			var labels []string
			for _, l := range metric.Label {
				if several || l.GetName() != "ledger" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			slices.Sort(labels)
			series := name
			if len(labels) > 0 {
				series += "{" + strings.Join(labels, ",") + "}"
			}
			if _, twice := all[series]; twice {
				t.Errorf("%s is there twice", series)
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				all[series] = metric.Counter.GetValue()
			case dto.MetricType_GAUGE:
				all[series] = metric.Gauge.GetValue()
			case dto.MetricType_HISTOGRAM:
				all[series] = float64(metric.Histogram.GetSampleCount())
			default:
				t.Errorf("%s is a %s", name, f.GetType())
			}
		}
	}
	return all
}

func verdictOf(t testing.TB, s samples) (verdict string) {
	t.Helper()
	for _, v := range verdicts {
		if s[fmt.Sprintf("%s{verdict=%q}", verifyVerdict, v)] == 1 {
			verdict += string(v)
		}
	}
	return verdict
}

// open opens a ledger to write until the test ends.
func open(t testing.TB, dir string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t testing.TB, s *store.Store, entries ...ledger.Entry) (head ledger.Head) {
	t.Helper()
	for _, e := range entries {
		var err error
		if head, err = s.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return head
}

func entry(tool, decision, outcome, reason string) ledger.Entry {
	return ledger.Entry{RequestID: "request", Method: ledger.MethodCall, Name: tool, Decision: decision, Outcome: outcome, Reason: reason,
		ArgsDigest: ledger.Hash{}.String()}
}

func denial(tool string) ledger.Entry {
	return entry(tool, ledger.Deny, ledger.NotExecuted, ledger.ReasonToolNotAllowed)
}

// write writes a ledger without a store, n records made by of, which is given
// the hash of the record before.
func write(t testing.TB, dir string, n int, of func(i int, last ledger.Hash) ledger.Entry) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var text []byte
	var sum ledger.Hash
	for i := range n {
		e := of(i, sum)
		text, sum = e.AppendLine(text, uint64(i+1), int64(i+1)*1e9, sum)
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.ActiveName), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHostileNames holds that nothing that a client sends becomes a value of a
// label, and that names of policies, which may be as odd, come through whole.
func TestHostileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	odd := []string{"new\nline", `quo"te`, `back\slash`, "\x01\x1b[31m", "\u202e", "{}", "it's,=", "日本", " ", "other", strings.Repeat("x", 300)}
	var list []string
	for _, name := range odd {
		list = append(list, string(canon.AppendString(nil, name)))
	}
	p := policyOf(t, `{"version":1,"allow":[`+strings.Join(list, ",")+`],"deny":["rm_rf"]}`)
	m := try(t, Config{Policies: []*policy.Policy{p}, Server: true, VerifyEvery: time.Minute}, dir)
	before := scrape(t, m.onceMore(t))

	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, r.IntN(100))
		for i := range b {
			b[i] = byte(r.UintN(256))
			if r.IntN(4) == 0 {
				b[i] = "\"\\\n\r\x00{}=,"[r.IntN(9)]
			}
		}
		return string(b)
	}
	decisions := []string{ledger.Allow, ledger.Deny, ledger.Pending, ledger.Void, ""}
	outcomes := []string{ledger.Committed, ledger.Replay, ledger.Observed, ledger.Error, ledger.NotExecuted, ledger.Intent, ""}
	var known, denials int
	write(t, dir, 10_000, func(i int, _ ledger.Hash) ledger.Entry {
		e := entry(text(), decisions[r.IntN(5)], outcomes[r.IntN(7)], text())
		e.RequestID = text()
		switch i % 4 {
		case 0:
			e.Method = text()
		case 1:
			e.Name = odd[0]
			e.Decision, e.Outcome, e.Reason = ledger.Deny, ledger.NotExecuted, ledger.ReasonArgumentRule
			known++
		}
		if e.Method == ledger.MethodCall && e.Decision == ledger.Deny {
			denials++
		}
		m.Called(e.Name, time.Second)
		return e
	})
	after := scrape(t, m.onceMore(t))
	if len(before) != len(after) {
		t.Errorf("%d series before, %d after 10,000 names", len(before), len(after))
	}
	for series := range after {
		if _, ok := before[series]; !ok {
			t.Errorf("%s is new", series)
		}
	}
	after.want(t, recordsTotal, 10_000)
	after.want(t, callsOf(odd[0], "deny"), float64(known))
	after.want(t, fmt.Sprintf("%s{reason=%q,tool=%q}", denialsTotal, ledger.ReasonArgumentRule, odd[0]), float64(known))
	after.want(t, callsOf(strings.Repeat("x", 256), "deny"), 0) // as records have it
	var sum float64
	for series, n := range after {
		if strings.HasPrefix(series, denialsTotal) {
			sum += n
		}
	}
	if int(sum) != denials {
		t.Errorf("%v denials, want %d", sum, denials)
	}
	m.Called(odd[10], time.Second)
	scrape(t, m).want(t, fmt.Sprintf("%s{tool=%q}", callDuration, strings.Repeat("x", 256)), 1)
	promtool(t, page(t, m))
}

// promtool checks a page as the people of Prometheus do.
func promtool(t testing.TB, text []byte) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		path = filepath.Join("..", "..", "bin", "tools", "promtool")
		if _, err := os.Stat(path); err != nil {
			if slices.Contains(strings.Split(os.Getenv("AUDITLEDGER_REQUIRE"), ","), "prometheus") {
				t.Fatal("there is no promtool, and AUDITLEDGER_REQUIRE wants it: make prometheus")
			}
			t.Skip("there is no promtool: make prometheus")
		}
	}
	c := exec.Command(path, "check", "metrics")
	c.Stdin = bytes.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// TestFirstDenial is there at 0 before it happens, without a ledger and with one,
// and is seen by the first scrape after it.
func TestFirstDenial(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	m := try(t, Config{VerifyEvery: time.Minute, Server: true}, dir)
	if s := scrape(t, m); len(s) == 0 || s[readable] != 0 {
		t.Errorf("before anything was looked at: %v", s)
	} else if _, shown := s[recordsTotal]; shown {
		t.Error("totals are shown before they are known")
	}
	m.onceMore(t)
	s := scrape(t, m)
	series := fmt.Sprintf(`%s{reason="tool_not_allowed",tool="rm_rf"}`, denialsTotal)
	for _, tool := range []string{"read_ledger", "rm_rf", "write_note", "other"} {
		for _, outcome := range ledger.CallOutcomes {
			s.want(t, callsOf(tool, outcome), 0)
		}
		for _, reason := range reasons {
			s.want(t, fmt.Sprintf("%s{reason=%q,tool=%q}", denialsTotal, reason, tool), 0)
		}
		s.want(t, fmt.Sprintf("%s{tool=%q}", callsInDoubt, tool), 0)
		s.want(t, fmt.Sprintf("%s{tool=%q}", callDuration, tool), 0)
	}
	for _, name := range []string{recordsTotal, headSeq, lastRecord, readable, AnchoredSeq, UnanchoredRecords, AnchorLastRun, AnchorLastSuccess,
		verifyLastSuccess, writeFailures, appendDuration} {
		s.want(t, name, 0)
	}
	if v := verdictOf(t, s); v != "unchecked" || s[verifyLastRun] == 0 {
		t.Errorf("verdict of an absent ledger %s at %v", v, s[verifyLastRun])
	}
	for name := range helps {
		if !slices.ContainsFunc(slices.Collect(mapKeys(s)), func(series string) bool { return strings.HasPrefix(series+"{", name+"{") }) {
			t.Errorf("there is no %s", name)
		}
	}

	st := open(t, dir, store.Options{})
	m.onceMore(t)
	s = scrape(t, m)
	s.want(t, readable, 1)
	s.want(t, series, 0)
	if v := verdictOf(t, s); v != "unchecked" || s[verifyLastSuccess] != 0 {
		t.Errorf("an empty ledger is %s", v)
	}
	add(t, st, denial("rm_rf"))
	s = scrape(t, m)
	s.want(t, series, 1)
	s.want(t, callsOf("rm_rf", "deny"), 1)
	s.want(t, headSeq, 1)
	s.want(t, UnanchoredRecords, 1)
	if at := s[lastRecord]; at < float64(time.Now().Add(-time.Hour).Unix()) {
		t.Errorf("the last record is of %v", at)
	}
	s = scrape(t, m.onceMore(t))
	if v := verdictOf(t, s); v != "intact" || s[verifyLastSuccess] != s[verifyLastRun] {
		t.Errorf("verdict %s, %v, %v", v, s[verifyLastSuccess], s[verifyLastRun])
	}
}

func mapKeys(s samples) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range s {
			if !yield(k) {
				return
			}
		}
	}
}

// TestOutcomes has one call of each kind.
func TestOutcomes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	st := open(t, dir, store.Options{})
	intent := func() string { return add(t, st, entry("write_note", ledger.Pending, ledger.Intent, "")).Sum.String() }
	closing := func(decision, outcome, reason string) ledger.Entry {
		e := entry("write_note", decision, outcome, reason)
		e.Intent = intent()
		return e
	}
	add(t, st, closing(ledger.Allow, ledger.Committed, ""),
		entry("write_note", ledger.Allow, ledger.Replay, ""),
		entry("read_ledger", ledger.Allow, ledger.Observed, ""),
		denial("nobody knows it"),
		entry("write_note", ledger.Deny, ledger.NotExecuted, "a new reason"),
		closing(ledger.Void, ledger.Error, ledger.ReasonToolError),
		closing(ledger.Void, ledger.Error, ledger.ReasonCancelled),
		closing(ledger.Void, ledger.NotExecuted, ledger.ReasonRecovered),
		closing(ledger.Pending, ledger.Error, ledger.ReasonToolError)) // in doubt
	intent()
	s := scrape(t, try(t, Config{}, dir).onceMore(t))
	for _, outcome := range []string{"committed", "replay", "deny", "cancelled", "void"} {
		s.want(t, callsOf("write_note", outcome), 1)
	}
	s.want(t, callsOf("write_note", "error"), 2)
	s.want(t, callsOf("read_ledger", "observed"), 1)
	s.want(t, callsOf("other", "deny"), 1)
	s.want(t, denialsTotal+`{reason="other",tool="write_note"}`, 1)
	s.want(t, callsInDoubt+`{tool="write_note"}`, 2)
	if _, there := s[verifyLastRun]; there || verdictOf(t, s) != "" {
		t.Error("series of a verification where nobody verifies")
	}
}

// TestInDoubt does not take a call for one in doubt that some process is at work
// on, or that ended while it was asked about.
func TestInDoubt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	st := open(t, dir, store.Options{})
	e := entry("write_note", ledger.Pending, ledger.Intent, "")
	sum := add(t, st, e).Sum
	var asked func() bool
	m := try(t, Config{InFlight: func(in, id string) bool {
		if in != dir || id != "request" {
			t.Errorf("asked about %s in %s", id, in)
		}
		return asked()
	}}, dir).onceMore(t)
	want := func(n float64) {
		t.Helper()
		scrape(t, m).want(t, callsInDoubt+`{tool="write_note"}`, n)
	}
	asked = func() bool { return true }
	want(0)
	asked = func() bool { return false }
	want(1)
	asked = func() bool { // its outcome is written, and only then its lock let go
		e := entry("write_note", ledger.Allow, ledger.Committed, "")
		e.Intent = sum.String()
		add(t, st, e)
		return false
	}
	want(0)
	asked = func() bool { t.Error("there is nothing to ask"); return false }
	want(0)
}

// TestCut says so in the verdict, also where head.json was made to fit, and also
// after a restart; the exporter goes on. What was restored is good again.
func TestCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	c := Config{VerifyEvery: time.Minute, Checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
	st := open(t, dir, store.Options{})
	add(t, st, denial("rm_rf"))
	before := st.Head()
	headFile, err := os.ReadFile(filepath.Join(dir, ledger.HeadName))
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
	if err != nil {
		t.Fatal(err)
	}
	add(t, st, denial("rm_rf"), denial("rm_rf"))
	whole, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	m := try(t, c, dir)
	want := func(verdict string, records float64) samples {
		t.Helper()
		m.onceMore(t)
		s := scrape(t, m)
		if v := verdictOf(t, s); v != verdict {
			t.Errorf("verdict %s, want %s", v, verdict)
		}
		s.want(t, recordsTotal, records)
		s.want(t, callsOf("rm_rf", "deny"), records)
		return s
	}
	good := want("intact", 3)

	put := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(ledger.ActiveName, short)
	put(ledger.HeadName, headFile)
	if r, err := verify.Dir(t.Context(), dir, verify.Options{}); err != nil || r.Verdict != verify.Intact || r.Head.Seq != before.Seq {
		t.Fatalf("by itself the cut ledger is %s, %v: the test shows nothing", r.Verdict, err)
	}
	for i := range 3 {
		s := want("tampered", 1)
		if s[verifyLastSuccess] != good[verifyLastSuccess] || s[verifyLastRun] <= good[verifyLastRun] && i > 0 {
			t.Errorf("last success %v, last run %v, and they were %v and %v", s[verifyLastSuccess], s[verifyLastRun], good[verifyLastSuccess], good[verifyLastRun])
		}
		if i == 1 {
			m = try(t, c, dir)
		}
	}
	// Records that were not there before do not make it better.
	st = open(t, dir, store.Options{})
	add(t, st, denial("rm_rf"), denial("rm_rf"), denial("rm_rf"))
	st.Close()
	want("tampered", 4)
	os.Remove(filepath.Join(dir, ledger.HeadName))
	put(ledger.ActiveName, whole)
	want("intact", 3)

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s := want("tampered", 3)
	s.want(t, readable, 0)
	m = try(t, c, dir)
	m.onceMore(t)
	s = scrape(t, m)
	s.want(t, readable, 0)
	if n, there := s[recordsTotal]; there || verdictOf(t, s) != "tampered" {
		t.Errorf("after a restart: %v records, %s", n, verdictOf(t, s))
	}
}

// TestHeld: what a writer that keeps the lock may not have made durable is shown,
// and when it goes again that is no tampering.
func TestHeld(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: a server has the lock for its life")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	st := open(t, dir, store.Options{})
	add(t, st, denial("rm_rf"))
	m := try(t, Config{VerifyEvery: time.Minute}, dir).onceMore(t)
	active, head := filepath.Join(dir, ledger.ActiveName), filepath.Join(dir, ledger.HeadName)
	durable, err := os.ReadFile(active)
	if err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	add(t, st, denial("rm_rf"))
	st.Close()
	lock, err := os.OpenFile(filepath.Join(dir, ledger.LockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	is := func(records float64) {
		t.Helper()
		m.onceMore(t)
		s := scrape(t, m)
		s.want(t, recordsTotal, records)
		if v := verdictOf(t, s); v != "intact" {
			t.Errorf("with %v records: %s", records, v)
		}
	}
	is(2)
	if err := errors.Join(os.WriteFile(active, durable, 0o600), os.WriteFile(head, known, 0o600), lock.Close()); err != nil {
		t.Fatal(err)
	}
	is(1)
	is(1)
}

// TestSegmentsGone: sealed segments that are gone are missed at the next check,
// and what was not counted while one was away is counted when it is back.
func TestSegmentsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	st := open(t, dir, store.Options{})
	for range 3 {
		add(t, st, denial("rm_rf"), denial("rm_rf"), denial("rm_rf"))
		if _, err := st.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add(t, st, denial("rm_rf"))
	st.Close()
	m := try(t, Config{VerifyEvery: time.Minute}, dir)
	is := func(what, verdict string, denied float64) {
		t.Helper()
		m.onceMore(t)
		m.onceMore(t)
		s := scrape(t, m)
		s.want(t, callsOf("rm_rf", "deny"), denied)
		if v := verdictOf(t, s); v != verdict {
			t.Errorf("%s: %s", what, v)
		}
	}
	is("whole", "intact", 10)
	names, err := filepath.Glob(filepath.Join(dir, "audit-*"))
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	away := filepath.Join(filepath.Dir(dir), "away")
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		move(name, away)
		is("without "+filepath.Base(name), "tampered", 10)
		move(away, name)
		is("with it again", "intact", 10)
	}
	move(names[1], away)
	m = try(t, Config{VerifyEvery: time.Minute}, dir)
	is("begun without the middle", "tampered", 7)
	move(away, names[1])
	is("with the middle again", "intact", 10)
}

// TestCutUnverified cuts off records that were read and not verified yet, and
// makes head.json fit. The verdict says so, at once where the metrics run, and
// also where reading began anew meanwhile.
func TestCutUnverified(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(t *testing.T, m *Metrics, again func(names ...string) *Metrics) *Metrics // between reading and the cut
	}{
		{"nothing", func(_ *testing.T, m *Metrics, _ func(...string) *Metrics) *Metrics { return m }},
		{"a restart", func(_ *testing.T, _ *Metrics, again func(...string) *Metrics) *Metrics { return again() }},
		{"a restart with other names", func(_ *testing.T, _ *Metrics, again func(...string) *Metrics) *Metrics { return again("other") }},
		{"two restarts", func(t *testing.T, _ *Metrics, again func(...string) *Metrics) *Metrics {
			m := again("other")
			m.save(t.Context())
			return again("third")
		}},
		{"other names", func(t *testing.T, m *Metrics, _ func(...string) *Metrics) *Metrics {
			m.SetPolicies(policyOf(t, `{"version":1,"allow":["other"],"deny":[]}`))
			return m
		}},
		{"it was away", func(t *testing.T, m *Metrics, _ func(...string) *Metrics) *Metrics {
			dir := m.watches[0].dir
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
			m.onceMore(t)
			if err := os.Rename(dir+".away", dir); err != nil {
				t.Fatal(err)
			}
			return m
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ledger")
			config := Config{VerifyEvery: time.Hour, Checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
			again := func(names ...string) *Metrics {
				config.Policies = nil
				for _, name := range names {
					config.Policies = append(config.Policies, policyOf(t, fmt.Sprintf(`{"version":1,"allow":[%q],"deny":[]}`, name)))
				}
				return try(t, config, dir)
			}
			file := func(name string) []byte {
				t.Helper()
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			st := open(t, dir, store.Options{})
			add(t, st, denial("rm_rf"))
			m := again().onceMore(t)
			add(t, st, denial("rm_rf"))
			active, head := file(ledger.ActiveName), file(ledger.HeadName)
			add(t, st, denial("rm_rf"))
			whole := file(ledger.ActiveName)
			st.Close()
			if err := m.watches[0].update(t.Context(), m.names.Load()); err != nil {
				t.Fatal(err)
			}
			m.save(t.Context())
			m = c.after(t, m, again)
			put := func(name string, content []byte) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(ledger.ActiveName, active)
			put(ledger.HeadName, head)
			if r, err := verify.Dir(t.Context(), dir, verify.Options{}); err != nil || r.Verdict != verify.Intact {
				t.Fatalf("by itself the cut ledger is %s, %v: the test shows nothing", r.Verdict, err)
			}
			for range 3 {
				m.onceMore(t)
				if v := verdictOf(t, scrape(t, m)); v != "tampered" {
					t.Fatalf("verdict %s, want tampered", v)
				}
				m = again()
			}
			// Other records do not make it better, and the old ones do.
			st = open(t, dir, store.Options{})
			add(t, st, denial("write_note"), denial("write_note"))
			st.Close()
			if v := verdictOf(t, scrape(t, m.onceMore(t))); v != "tampered" {
				t.Errorf("with other records in their place: %s", v)
			}
			os.Remove(filepath.Join(dir, ledger.HeadName))
			put(ledger.ActiveName, whole)
			if v := verdictOf(t, scrape(t, m.onceMore(t))); v != "intact" {
				t.Errorf("what is back is %s", v)
			}
			if n := len(m.watches[0].left); n != 0 {
				t.Errorf("%d records are looked for that were found", n)
			}
		})
	}
}

// TestCutWakes verifies at once what changed under a running process, and shows
// no good verdict of what is not there any more.
func TestCutWakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	m := try(t, Config{VerifyEvery: 1000 * time.Hour}, dir)
	st := open(t, dir, store.Options{})
	add(t, st, denial("rm_rf"), denial("rm_rf"))
	st.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	until := func(verdict string, records float64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			s := scrape(t, m)
			v := verdictOf(t, s)
			if s[recordsTotal] == records && v == verdict {
				return
			}
			if s[recordsTotal] == 1 && v == "intact" {
				t.Fatal("a cut ledger was called intact")
			}
			if time.Now().After(end) {
				t.Fatalf("%s with %v records, want %s with %v", v, s[recordsTotal], verdict, records)
			}
		}
	}
	until("intact", 2)
	active := filepath.Join(dir, ledger.ActiveName)
	text, err := os.ReadFile(active)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, ledger.HeadName))
	if err := os.Truncate(active, int64(bytes.IndexByte(text, '\n')+1)); err != nil {
		t.Fatal(err)
	}
	until("tampered", 1)
}

// TestHangs has somebody read a ledger who never comes back, as where its file
// system hangs: that is shown, a ledger beside it is followed, verified and
// saved as ever, and the process ends.
func TestHangs(t *testing.T) {
	root := t.TempDir()
	hung, well := filepath.Join(root, "hung"), filepath.Join(root, "well")
	checkpoint := filepath.Join(root, "checkpoint")
	for _, dir := range []string{hung, well} {
		add(t, open(t, dir, store.Options{}), denial("rm_rf"))
	}
	st := open(t, well, store.Options{})
	synctest.Test(t, func(t *testing.T) {
		m := try(t, Config{VerifyEvery: time.Minute, Checkpoint: checkpoint}, hung, well).onceMore(t)
		is := func(hungReadable, wellRecords float64) {
			t.Helper()
			s := scrape(t, m)
			s.want(t, fmt.Sprintf("ledger_readable{ledger=%q}", hung), hungReadable)
			s.want(t, fmt.Sprintf("ledger_readable{ledger=%q}", well), 1)
			s.want(t, fmt.Sprintf("ledger_records_total{ledger=%q}", hung), 1)
			s.want(t, fmt.Sprintf("ledger_records_total{ledger=%q}", well), wellRecords)
		}
		is(1, 1)
		release, err := m.watches[0].own(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		add(t, st, denial("rm_rf"))
		is(1, 2)
		time.Sleep(stuckAfter)
		add(t, st, denial("rm_rf"))
		is(0, 3)
		time.Sleep(2 * time.Minute)
		m.watches[1].mu.Lock()
		v := m.watches[1].verified
		m.watches[1].mu.Unlock()
		if m.now().Sub(v.LastRun) > time.Minute || v.Trusted.Seq != 3 {
			t.Errorf("the other ledger was verified at %v, through %v", v.LastRun, v.Trusted)
		}
		cancel()
		<-ended
		release()
		is(1, 3)
		states, err := m.readStates()
		if err != nil || states[hung].Totals.Records != 1 || states[well].Totals.Records != 3 {
			t.Errorf("the checkpoint file holds %+v, %v", states, err)
		}
	})
}

// TestVerifyNext is when all is checked and when only what is new.
func TestVerifyNext(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	trusted := &verify.Checkpoint{Seq: 7, Sum: ledger.Digest(nil)}
	for _, c := range []struct {
		v          verification
		from, head bool
	}{
		{verification{}, false, false},
		{verification{Verdict: verify.Unchecked}, false, false},
		{verification{Verdict: verify.Intact, Trusted: trusted, LastFull: now.Add(-time.Hour)}, true, false},
		{verification{Verdict: verify.Torn, Trusted: trusted, LastFull: now.Add(-time.Hour)}, true, false},
		{verification{Verdict: verify.Intact, Trusted: trusted, LastFull: now.Add(-24 * time.Hour)}, false, true},
		{verification{Verdict: verify.Intact, Trusted: trusted, LastFull: now.Add(time.Hour)}, false, true}, // the clock was set back
		{verification{Verdict: verify.Tampered, Trusted: trusted, LastFull: now}, false, true},
		{verification{Verdict: verify.Unchecked, Trusted: trusted, LastFull: now}, false, true},
	} {
		o, full := c.v.next(now, nil)
		again, all := c.v.next(now, []verify.Checkpoint{*trusted})
		if len(again.ExpectHeads) != 1 || !all {
			t.Errorf("%+v: with the record left: heads %v, full %v", c.v, again.ExpectHeads, all)
		}
		if (o.From != nil) != c.from || (len(o.ExpectHeads) == 1) != c.head || full == c.from || o.Workers != 1 {
			t.Errorf("%+v: from %v, head %v, full %v", c.v, o.From, o.ExpectHeads, full)
		}
	}
}

// TestWeather changes what stands at the path in every way that it must survive:
// the totals are those of what is there now, or the last ones.
func TestWeather(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	m := try(t, Config{VerifyEvery: time.Minute}, dir)
	check := func(what string, records, isReadable float64) {
		t.Helper()
		m.onceMore(t)
		s := scrape(t, m)
		if s[recordsTotal] != records || s[readable] != isReadable || s[callsOf("write_note", "committed")] != s[recordsTotal]-s[callsOf("rm_rf", "deny")] {
			t.Errorf("%s: %v records, readable %v", what, s[recordsTotal], s[readable])
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	check("absent", 0, 0)
	write(t, dir, 1000, func(i int, _ ledger.Hash) ledger.Entry {
		if i%3 == 0 {
			return denial("rm_rf")
		}
		return entry("write_note", ledger.Allow, ledger.Committed, "")
	})
	check("there now", 1000, 1)
	move(dir, dir+".away")
	check("away", 1000, 0)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check("an empty directory", 1000, 0)
	os.Remove(dir)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("a file", 1000, 0)
	if v := verdictOf(t, scrape(t, m)); v != "unchecked" {
		t.Errorf("what cannot be listed is %s", v)
	}
	os.Remove(dir)
	move(dir+".away", dir)
	check("back", 1000, 1)
	if v := verdictOf(t, scrape(t, m)); v != "intact" {
		t.Errorf("what is back is %s", v)
	}
	active := filepath.Join(dir, ledger.ActiveName)
	move(active, active+".away")
	os.Mkdir(active, 0o700)
	check("unreadable", 1000, 0)
	os.Remove(active)
	move(active+".away", active)
	check("readable", 1000, 1)
	if err := os.Truncate(active, 0); err != nil {
		t.Fatal(err)
	}
	check("emptied", 0, 1)
	os.RemoveAll(dir)
	write(t, dir, 500, func(int, ledger.Hash) ledger.Entry { return entry("write_note", ledger.Allow, ledger.Committed, "") })
	check("another ledger", 500, 1)
}

// TestRotated is a ledger that is sealed and compressed between and during
// readings, over restarts.
func TestRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	st := open(t, dir, store.Options{SealAt: 4 << 10})
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range 600 {
			if _, err := st.Append(t.Context(), denial("rm_rf")); err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				if _, err := st.Compress(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var last float64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		m := try(t, Config{VerifyEvery: time.Minute, Checkpoint: checkpoint}, dir)
		for range 3 {
			m.onceMore(t)
			s := scrape(t, m)
			now, there := s[recordsTotal]
			if v := verdictOf(t, s); there && (now < last || v != "intact" && now > 0 && v != "unchecked") {
				t.Errorf("%v records after %v, %s", now, last, v)
			}
			last = max(last, now)
		}
	}
	wg.Wait()
	s := scrape(t, try(t, Config{VerifyEvery: time.Minute, Checkpoint: checkpoint}, dir).onceMore(t))
	s.want(t, callsOf("rm_rf", "deny"), 600)
	s.want(t, recordsTotal, float64(st.Head().Seq))
	if v := verdictOf(t, s); v != "intact" {
		t.Errorf("verdict %s", v)
	}
	if sealed, _ := filepath.Glob(filepath.Join(dir, "audit-*.zst")); len(sealed) < 5 {
		t.Fatalf("%d compressed segments: the test shows nothing", len(sealed))
	}
}

// TestNames counts anew when the policies name other tools, and shows what was
// known until that is done.
func TestNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 30, func(i int, _ ledger.Hash) ledger.Entry { return denial([]string{"rm_rf", "b", "c"}[i%3]) })
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	m := try(t, Config{Checkpoint: checkpoint}, dir).onceMore(t)
	s := scrape(t, m)
	s.want(t, callsOf("rm_rf", "deny"), 10)
	s.want(t, callsOf("other", "deny"), 20)
	b := policyOf(t, `{"version":1,"allow":["b"]}`)
	m.SetPolicies(b)
	scrape(t, m).want(t, callsOf("other", "deny"), 20)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	m.watches[0].update(stopped, m.names.Load())
	scrape(t, m).want(t, callsOf("other", "deny"), 20)
	m.onceMore(t)
	s = scrape(t, m)
	s.want(t, callsOf("b", "deny"), 10)
	s.want(t, callsOf("other", "deny"), 20)
	if _, there := s[callsOf("rm_rf", "deny")]; there {
		t.Error("a name that no policy has any more")
	}
	// The same policy once more changes nothing.
	tally := m.watches[0].tally
	m.SetPolicies(policyOf(t, `{"version":1,"deny":["b"]}`))
	m.onceMore(t)
	if m.watches[0].tally != tally {
		t.Error("counted anew for the same names")
	}
	s = scrape(t, try(t, Config{Checkpoint: checkpoint, Policies: []*policy.Policy{b, policyOf(t, `{"version":1,"allow":["c"]}`)}}, dir).onceMore(t))
	s.want(t, callsOf("c", "deny"), 10)
	s.want(t, callsOf("other", "deny"), 10)
}

// TestUnfinished shows no total of a reading that did not come to the end, and
// goes on where it ended.
func TestUnfinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	write(t, dir, 1000, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	m := try(t, Config{Checkpoint: checkpoint}, dir)
	w := m.watches[0]
	w.begin(m.names.Load())
	enough := errors.New("enough")
	for range 3 {
		n := 0
		err := w.tail.Read(t.Context(), func(p verify.Place, v *ledger.View) error {
			if n++; n > 100 {
				return enough
			}
			return w.tally.observe(p, v)
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	if _, there := scrape(t, m)[recordsTotal]; there {
		t.Error("shown half-way")
	}
	m.save(t.Context())
	// The next process knows that it was half-way, also where the ledger is away.
	os.Rename(dir, dir+".away")
	m = try(t, Config{Checkpoint: checkpoint}, dir)
	if n := m.watches[0].tally.records; n != 300 {
		t.Errorf("goes on after %d records", n)
	}
	if _, there := scrape(t, m.onceMore(t))[recordsTotal]; there {
		t.Error("shown half-way")
	}
	if len(m.hidden()) != 1 {
		t.Error("ready")
	}
	os.Rename(dir+".away", dir)
	scrape(t, m.onceMore(t)).want(t, callsOf("rm_rf", "deny"), 1000)
}

// TestCheckpointFile is of no use where it does not fit, does no harm then, and
// is mended.
func TestCheckpointFile(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	write(t, one, 50, func(i int, _ ledger.Hash) ledger.Entry { return entry("write_note", ledger.Pending, ledger.Intent, "") })
	write(t, two, 20, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	path := filepath.Join(t.TempDir(), "checkpoint")
	c := Config{Checkpoint: path, VerifyEvery: time.Minute}
	old := syscall.Umask(0o777)
	first := scrape(t, try(t, c, one).onceMore(t))
	syscall.Umask(old)
	first.want(t, callsInDoubt+`{tool="write_note"}`, 50)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	// resumed is after how many records a new process goes on.
	resumed := func(dirs ...string) uint64 {
		t.Helper()
		m := try(t, c, dirs...)
		var n uint64
		if m.watches[0].tally != nil {
			n = m.watches[0].tally.records
		}
		s := scrape(t, m.onceMore(t))
		if len(dirs) == 1 && dirs[0] == one {
			for series, value := range first {
				if series != verifyLastRun && series != verifyLastSuccess && s[series] != value {
					t.Errorf("%s is %v, want %v", series, s[series], value)
				}
			}
		}
		return n
	}
	if n := resumed(one); n != 50 {
		t.Errorf("goes on after %d records", n)
	}
	// Another process with another ledger shares it.
	if n := resumed(two); n != 0 {
		t.Errorf("goes on after %d records", n)
	}
	if n, m := resumed(one), resumed(two); n != 50 || m != 20 {
		t.Errorf("shared: goes on after %d and %d records", n, m)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digit := slices.Clone(good)
	at := bytes.LastIndex(digit, []byte(`"records":50`))
	digit[at+10] = '9'
	for what, content := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)/2], "no JSON": []byte("checkpoint\n"), "null": []byte("null"), "a digit": digit,
		"another version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if n := resumed(one); n != 0 {
			t.Errorf("%s: goes on after %d records", what, n)
		}
		if n := resumed(one); n != 50 {
			t.Errorf("%s: not mended, goes on after %d records", what, n)
		}
	}
	// Another ledger at the path.
	os.RemoveAll(one)
	write(t, one, 50, func(int, ledger.Hash) ledger.Entry { return entry("write_note", ledger.Allow, ledger.Committed, "") })
	s := scrape(t, try(t, c, one).onceMore(t))
	s.want(t, callsOf("write_note", "committed"), 50)
	s.want(t, callsInDoubt+`{tool="write_note"}`, 0)

	// One that cannot be written or read is a line of the log.
	var log bytes.Buffer
	c.Checkpoint, c.Log = filepath.Join(path, "below"), slog.New(slog.NewTextHandler(&log, nil))
	m := try(t, c, one)
	for range 3 {
		scrape(t, m.onceMore(t)).want(t, recordsTotal, 50)
	}
	if n := strings.Count(log.String(), "cannot be written"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
	if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// TestAnchors reads what pushes leave in the directory.
func TestAnchors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 10, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	m := try(t, Config{}, dir).onceMore(t)
	want := func(seq, unanchored, run, success float64) {
		t.Helper()
		s := scrape(t, m)
		s.want(t, AnchoredSeq, seq)
		s.want(t, UnanchoredRecords, unanchored)
		s.want(t, AnchorLastRun, run)
		s.want(t, AnchorLastSuccess, success)
	}
	want(0, 10, 0, 0)
	receipt := func(seq, ts int) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, anchor.ReceiptsName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		zero := ledger.Hash{}.String()
		fmt.Fprintf(f, `{"key":"k","ledger":"%s","line":1,"mode":"COMPLIANCE","offset":0,"segment":"audit.jsonl","seq":%d,"sha256":"%[1]s","sink":"s","statement":"%[1]s","ts":%[3]d,"until":0,"version":""}`+"\n", zero, seq, ts)
		f.Close()
	}
	receipt(7, 1000e9)
	want(7, 3, 1000, 1000)
	receipt(5, 900e9) // of another place
	want(7, 3, 1000, 1000)
	f, err := os.OpenFile(filepath.Join(dir, anchor.ReceiptsName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "no receipt")
	f.Close()
	receipt(10, 2000e9)
	want(10, 0, 2000, 2000)
	receipt(99, 3000e9) // of a ledger that was cut since
	want(99, 0, 3000, 3000)
	os.RemoveAll(dir)
	m.onceMore(t)
	want(99, 0, 3000, 3000)
}

// TestTextfile is written once by each process; a run that fails moves when it
// was and no more.
func TestTextfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 10, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	for _, checkpoint := range []string{"", filepath.Join(t.TempDir(), "checkpoint")} {
		path := filepath.Join(t.TempDir(), "ledger.prom")
		run := func() (samples, error) {
			t.Helper()
			old := syscall.Umask(0o777)
			err := try(t, Config{VerifyEvery: time.Minute, Checkpoint: checkpoint}, dir).Textfile(t.Context(), path)
			syscall.Umask(old)
			text, e := os.ReadFile(path)
			info, f := os.Stat(path)
			if e != nil || f != nil || info.Mode() != 0o644 {
				t.Fatal(e, f, info.Mode())
			}
			promtool(t, text)
			return parse(t, text, false), err
		}
		good, err := run()
		if err != nil {
			t.Fatal(err)
		}
		good.want(t, recordsTotal, 10)
		os.Rename(dir, dir+".away")
		os.WriteFile(dir, nil, 0o600)
		for range 2 {
			bad, err := run()
			if err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v", err)
			}
			if bad[verifyLastSuccess] != good[verifyLastSuccess] || good[verifyLastSuccess] == 0 || bad[verifyLastRun] <= good[verifyLastRun] || verdictOf(t, bad) != "unchecked" {
				t.Errorf("with checkpoint %q: %v after %v", checkpoint, bad, good)
			}
			if n, there := bad[recordsTotal]; there {
				t.Errorf("%v records", n)
			}
		}
		os.Remove(dir)
		os.Rename(dir+".away", dir)
		if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		before, _ := os.ReadFile(path)
		if err := try(t, Config{}, dir).Textfile(stopped, path); err == nil {
			t.Error("interrupted, and no error")
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Error("interrupted, and the file is another")
		}
		if err := try(t, Config{}, dir).Textfile(t.Context(), filepath.Join(path, "x")); err == nil {
			t.Error("written below a file")
		}
	}
}

// TestListen is on loopback unless asked.
func TestListen(t *testing.T) {
	for _, addr := range []string{":0", "127.0.0.1:0", "localhost:0"} {
		l, err := Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%s listens on %s", addr, l.Addr())
		}
		_, err = Listen(l.Addr().String())
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "end that one") {
			t.Errorf("a taken port: %v", err)
		}
		l.Close()
	}
	l, err := Listen("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		t.Errorf("asked for all, listens on %s", l.Addr())
	}
	l.Close()
	for _, addr := range []string{"", "9464", "127.0.0.1", "127.0.0.1:99999", "no.such.host.invalid:1", "127.0.0.1:\x1b"} {
		if l, err := Listen(addr); err == nil {
			t.Errorf("%q: listens on %s", addr, l.Addr())
		} else if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: %q", addr, err)
		}
	}
}

// TestServe runs all of it, and ends with its context.
func TestServe(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	write(t, one, 10, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	if err := os.WriteFile(two, nil, 0o600); err != nil { // cannot be read, for now
		t.Fatal(err)
	}
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	m := try(t, Config{VerifyEvery: time.Hour, Checkpoint: checkpoint}, one, two, one)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	served := make(chan error, 1)
	wg.Go(func() { served <- m.Serve(ctx, l) })
	get := func(method, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	eventually := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not after 30 s", what)
			}
		}
	}
	eventually("the first is ready", func() bool {
		code, text := get("GET", "/readyz")
		return code == 503 && strings.Contains(text, two) && !strings.Contains(text, one)
	})
	if _, text := get("GET", "/metrics"); parse(t, []byte(text), true)[recordsTotal+fmt.Sprintf("{ledger=%q}", one)] != 10 {
		t.Error(text)
	}
	os.Remove(two)
	write(t, two, 20, func(int, ledger.Hash) ledger.Entry { return denial("rm_rf") })
	eventually("both are ready", func() bool { code, _ := get("GET", "/readyz"); return code == 200 })
	eventually("both are verified", func() bool {
		_, text := get("GET", "/metrics")
		s := parse(t, []byte(text), true)
		return s[fmt.Sprintf("%s{ledger=%q,verdict=%q}", verifyVerdict, one, "intact")] == 1 && s[fmt.Sprintf("%s{ledger=%q}", recordsTotal, two)] == 20
	})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/", 200}, {"GET", "/healthz", 200}, {"HEAD", "/metrics", 200}, {"GET", "/nothing", 404},
		{"POST", "/metrics", 405}, {"PUT", "/healthz", 405}, {"DELETE", "/readyz", 405}, {"POST", "/", 405},
	} {
		if code, text := get(c.method, c.path); code != c.code {
			t.Errorf("%s %s: %d, %s", c.method, c.path, code, text)
		}
	}
	cancel()
	wg.Wait()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it listens after its end")
	}
	if text, err := os.ReadFile(checkpoint); err != nil || !bytes.Contains(text, []byte(`"records":20`)) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestServer is what a server tells of itself, by many goroutines at once while
// its policy changes.
func TestServer(t *testing.T) {
	m := try(t, Config{Server: true}, t.TempDir())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				m.Called([]string{"write_note", "rm_rf", fmt.Sprint("x", n)}[n%3], time.Millisecond)
				if n%2 == 0 {
					m.Appended(time.Millisecond, nil)
				} else {
					m.Appended(time.Second, errors.New("disk full"))
				}
				if i == 0 && n%10 == 0 {
					m.SetPolicies(policyOf(t, fmt.Sprintf(`{"version":1,"allow":["write_note","tool%d"]}`, n)), starter(t))
				}
			}
		})
	}
	wg.Wait()
	s := scrape(t, m.onceMore(t))
	s.want(t, writeFailures, 400)
	if at := s[lastWriteFailure]; math.Abs(at-float64(time.Now().Unix())) > 600 {
		t.Errorf("the last failure to write was at %v", at)
	}
	s.want(t, appendDuration, 800)
	s.want(t, callDuration+`{tool="write_note"}`, 8*34)
	s.want(t, callDuration+`{tool="rm_rf"}`, 8*33)
	s.want(t, callDuration+`{tool="other"}`, 8*33)
	if _, err := New(Config{Server: true, Dirs: []string{"a", "b"}}); err == nil {
		t.Error("a server of two ledgers")
	}
	// Two such paths would have one value for their label.
	if _, err := New(Config{Dirs: []string{"\xff"}}); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("a path that is not UTF-8: %v", err)
	}
}

// TestPedantic holds what is described against what is collected.
func TestPedantic(t *testing.T) {
	m := try(t, Config{Server: true, VerifyEvery: time.Minute}, t.TempDir()).onceMore(t)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{m})
	r.MustRegister(m.calls.collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(helps) {
		t.Errorf("%d families, %d help texts", len(families), len(helps))
	}
	promtool(t, page(t, m))
}
