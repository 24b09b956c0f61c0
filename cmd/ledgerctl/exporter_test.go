//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/server/policy"
)

// samples are the values of a page by their series, labels in the order of their
// names: ledger_records_total{ledger="/x"}.
type samples map[string]float64

func samplesOf(text []byte) (samples, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	all := samples{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			value := m.Gauge.GetValue()
			if f.GetType() == dto.MetricType_COUNTER {
				value = m.Counter.GetValue()
			}
			all[name+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return all, nil
}

// An exporter is a real process.
type exporter struct {
	t       testing.TB
	cmd     *exec.Cmd
	log     string // a file
	address string
}

func policyFileOf(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startExporter starts an exporter on a free port, and waits until it says which.
func startExporter(t testing.TB, args ...string) *exporter {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e := &exporter{t: t, log: log.Name(), cmd: exec.Command("ledgerctl", append([]string{"exporter", "--listen", "127.0.0.1:0"}, args...)...)}
	e.cmd.Stderr = log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	e.await("it says where it listens", func() bool {
		m := regexp.MustCompile(`serving metrics" address=http://([0-9.:]+)`).FindStringSubmatch(e.said())
		if m != nil {
			e.address = m[1]
		}
		return m != nil
	})
	return e
}

func (e *exporter) await(what string, f func() bool) {
	e.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("%s: not after %s\n%s", what, patience, e.said())
		}
	}
}

func (e *exporter) said() string {
	b, _ := os.ReadFile(e.log)
	return string(b)
}

// kill kills it where it still runs.
func (e *exporter) kill() {
	if e.cmd.ProcessState == nil {
		e.cmd.Process.Kill()
		e.cmd.Wait()
	}
}

// scrape is what it shows now.
func (e *exporter) scrape() samples {
	e.t.Helper()
	res, err := http.Get("http://" + e.address + "/metrics")
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.said())
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		e.t.Fatalf("%s, %v: %s", res.Status, err, text)
	}
	s, err := samplesOf(text)
	if err != nil {
		e.t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// statsOf is what ledgerctl stats says, in another process, as the series that
// an exporter must show; what the names do not hold is "other".
func statsOf(t testing.TB, dir string, names ...string) samples {
	t.Helper()
	out, err := exec.Command("ledgerctl", "stats", dir, "--format", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		Records float64
		Tools   []toolStats
	}
	if err := json.Unmarshal(out, &stats); err != nil {
		t.Fatal(err)
	}
	all := samples{fmt.Sprintf("ledger_records_total{ledger=%q}", dir): stats.Records}
	for _, tool := range append(names, "other") {
		all[fmt.Sprintf("ledger_calls_in_doubt{ledger=%q,tool=%q}", dir, tool)] = 0
		for _, outcome := range ledger.CallOutcomes {
			all[fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q}", dir, outcome, tool)] = 0
		}
	}
	for _, s := range stats.Tools {
		if !slices.Contains(names, s.Tool) {
			s.Tool = "other"
		}
		all[fmt.Sprintf("ledger_calls_in_doubt{ledger=%q,tool=%q}", dir, s.Tool)] += float64(s.InDoubt)
		for outcome, n := range s.Counts {
			all[fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q}", dir, outcome, s.Tool)] += float64(n)
		}
	}
	// The same by another way.
	if out, err = exec.Command("ledgerctl", "stats", dir, "--by", "tool,outcome,hour", "--format", "json").Output(); err != nil {
		t.Fatal(err)
	}
	var by struct {
		Records float64
		Rows    []row
	}
	if err := json.Unmarshal(out, &by); err != nil {
		t.Fatal(err)
	}
	left := maps.Clone(all)
	for _, r := range by.Rows {
		if !slices.Contains(names, *r.Tool) {
			*r.Tool = "other"
		}
		left[fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q}", dir, *r.Outcome, *r.Tool)] -= float64(r.Calls)
	}
	for series, n := range left {
		if strings.HasPrefix(series, "ledger_tool_calls_total") && n != 0 {
			t.Errorf("stats and stats --by differ by %v in %s", n, series)
		}
	}
	if by.Records != stats.Records {
		t.Errorf("%v records, and %v with --by", stats.Records, by.Records)
	}
	return all
}

// work is a ledger that is written, sealed, compressed and torn while it is read,
// and what was begun to be written of it.
type work struct {
	t     testing.TB
	dir   string
	store *store.Store
	begun [4][len(ledger.CallOutcomes)]atomic.Int64 // by tool of workTools
	all   atomic.Int64                              // records
}

// workTools are three of the starter policy, and all others.
var workTools = []string{"read_ledger", "rm_rf", "write_note", "other"}

func (w *work) open() {
	var err error
	if w.store, err = store.Open(w.t.Context(), w.dir, store.Options{SealAt: 4 << 20}); err != nil {
		w.t.Error(err)
	}
}

// crash ends the store as a crash would, in the middle of a line.
func (w *work) crash() {
	w.store.Close()
	f, err := os.OpenFile(filepath.Join(w.dir, ledger.ActiveName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		w.t.Error(err)
		return
	}
	f.WriteString(`{"args_digest":"0000`)
	f.Close()
	w.all.Add(1) // of the recovery
	w.open()
}

// call writes the records of one call, at most two, and says how many.
func (w *work) call(r *rand.Rand, i int) int {
	tool := r.IntN(len(workTools))
	e := ledger.Entry{RequestID: fmt.Sprint("request-", i), Method: ledger.MethodCall, Name: workTools[tool], ArgsDigest: ledger.Hash{}.String()}
	if workTools[tool] == "other" {
		e.Name = fmt.Sprint("tool\n", r.IntN(50))
	}
	write := func(outcome int, e ledger.Entry) (sum ledger.Hash) {
		w.all.Add(1)
		if outcome >= 0 {
			w.begun[tool][outcome].Add(1)
		}
		head, err := w.store.Append(w.t.Context(), e)
		if err != nil {
			w.t.Error(err)
		}
		return head.Sum
	}
	end := func(outcome int, decision, result, reason string) {
		e.Decision, e.Outcome, e.Reason = decision, result, reason
		write(outcome, e)
	}
	switch r.IntN(6) {
	case 0:
		end(2, ledger.Allow, ledger.Observed, "")
		return 1
	case 1:
		end(3, ledger.Deny, ledger.NotExecuted, ledger.DenialReasons[r.IntN(4)])
		return 1
	case 2:
		end(1, ledger.Allow, ledger.Replay, "")
		return 1
	}
	e.Decision, e.Outcome = ledger.Pending, ledger.Intent
	e.Intent = write(-1, e).String()
	switch r.IntN(20) {
	case 0:
		end(4, ledger.Void, ledger.Error, ledger.ReasonToolError)
	case 1:
		end(5, ledger.Void, ledger.Error, ledger.ReasonCancelled)
	case 2:
		end(6, ledger.Void, ledger.NotExecuted, ledger.ReasonRecovered)
	case 3:
		end(4, ledger.Pending, ledger.Error, ledger.ReasonPanic)
	case 4:
		return 1 // it crashed
	default:
		end(0, ledger.Allow, ledger.Committed, "")
	}
	return 2
}

// TestExporterKilled kills a real exporter at random times, again and again,
// while the ledger grows by 100,000 records. Its totals are never above what was
// written, never shrink over the restarts, and in the end are those of stats.
func TestExporterKilled(t *testing.T) {
	const records = 100_000
	w := &work{t: t, dir: filepath.Join(t.TempDir(), "ledger")}
	args := []string{w.dir, "--policy", policyFileOf(t, string(policy.Starter())), "--checkpoint", filepath.Join(t.TempDir(), "checkpoint"), "--verify-every", "250ms"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.open()
		const rounds, writers = 10, 100
		for round := range rounds {
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(round), uint64(i)))
					for n := 0; n < records/rounds/writers && !t.Failed(); {
						n += w.call(r, i)
					}
				})
			}
			wg.Wait()
			if _, err := w.store.Compress(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
			w.crash()
		}
		w.store.Close()
	}()

	last := samples{}
	resumed, kills, whole := 0, 0, 0
	r := rand.New(rand.NewPCG(1, 2))
	// look scrapes and compares; it ends with the page.
	look := func(e *exporter) samples {
		t.Helper()
		now := e.scrape()
		written := w.all.Load()
		if n, shown := now[fmt.Sprintf("ledger_records_total{ledger=%q}", w.dir)]; shown {
			whole++
			// Each seal is a record too, and is written before the store says so.
			sealed, _ := filepath.Glob(filepath.Join(w.dir, "audit-*"))
			if int64(n) > written+int64(len(sealed)) {
				t.Errorf("shows %v records of %d", n, written)
			}
		}
		for tool, name := range workTools {
			for i, outcome := range ledger.CallOutcomes {
				series := fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q}", w.dir, outcome, name)
				n, shown := now[series]
				if most := float64(w.begun[tool][i].Load()); shown && (n > most || n < last[series]) {
					t.Errorf("%s is %v, was %v, and %v were begun", series, n, last[series], most)
				}
				if shown {
					last[series] = n
				}
			}
		}
		if now[fmt.Sprintf("ledger_verify_verdict{ledger=%q,verdict=%q}", w.dir, "tampered")] == 1 {
			t.Errorf("the verdict is tampered\n%s", e.said())
		}
		return now
	}
	for running := true; running && !t.Failed(); {
		e := startExporter(t, args...)
		// Some are killed at any time, so most of those while they begin, the others after some looks.
		enough := time.Now().Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		for some := whole + r.IntN(8); running && (time.Now().Before(enough) || kills%3 > 0 && whole < some); {
			select {
			case <-done:
				running = false
			default:
				look(e)
			}
		}
		if regexp.MustCompile(`going on from the checkpoint.* seq=[1-9]`).MatchString(e.said()) {
			resumed++
		}
		e.kill()
		kills++
	}
	<-done
	e := startExporter(t, args...)
	want := statsOf(t, w.dir, workTools[:3]...)
	e.await("it is ready", func() bool { return len(look(e)) > 20 })
	got := look(e)
	for series, n := range want {
		if got[series] != n {
			t.Errorf("%s is %v, and stats says %v", series, got[series], n)
		}
	}
	e.await("it is verified", func() bool {
		return e.scrape()[fmt.Sprintf("ledger_verify_verdict{ledger=%q,verdict=%q}", w.dir, "intact")] == 1
	})
	compressed, _ := filepath.Glob(filepath.Join(w.dir, "audit-*.zst"))
	t.Logf("%d kills, %d starts from the checkpoint, %d scrapes with totals, %d compressed segments, %v records",
		kills, resumed, whole, len(compressed), want[fmt.Sprintf("ledger_records_total{ledger=%q}", w.dir)])
	if kills < 5 || resumed < 3 || whole < 20 || len(compressed) < 3 || want[fmt.Sprintf("ledger_records_total{ledger=%q}", w.dir)] < records {
		t.Error("too little happened: the test shows nothing")
	}
}

// TestExporterPort has two exporters of two ledgers each; only one gets the port.
func TestExporterPort(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	write(t, one, 1, 5)
	file := policyFileOf(t, string(policy.Starter()))
	e := startExporter(t, one, two, one+"/", "--policy", file, "--checkpoint=")
	check := func(second float64) {
		t.Helper()
		e.await("both are shown", func() bool { return len(e.scrape()) > 80 })
		s := e.scrape()
		for dir, n := range map[string]float64{one: 5, two: second} {
			if got := s[fmt.Sprintf("ledger_records_total{ledger=%q}", dir)]; got != n {
				t.Errorf("%s: %v records, want %v", dir, got, n)
			}
		}
	}
	check(0)
	out, err := exec.Command("ledgerctl", "exporter", one, "--policy", file, "--checkpoint=", "--listen", e.address).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if code := err.(*exec.ExitError).ExitCode(); code != exitUnchecked || !strings.HasPrefix(last, "ledgerctl: listen on "+e.address+": ") || !strings.Contains(last, "in use") {
		t.Errorf("status %d:\n%s", code, out)
	}
	write(t, two, 1, 7)
	e.await("the second ledger is there", func() bool {
		return e.scrape()[fmt.Sprintf("ledger_records_total{ledger=%q}", two)] == 7
	})
	check(7)

	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	again := startExporter(t, one, "--policy", file, "--checkpoint=", "--listen", strings.TrimPrefix(e.address, "127.0.0.1"))
	if again.address != e.address {
		t.Errorf("without a host it listens on %s", again.address)
	}
}

// TestExporterReload reads the policies again, all of them or none.
func TestExporterReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 1, 5)
	first, second := policyFileOf(t, `{"version":1,"allow":["a"]}`), policyFileOf(t, `{"version":1,"deny":["b"]}`)
	e := startExporter(t, dir, "--policy", first, "--policy", second, "--checkpoint=")
	count := func(tool string) (float64, bool) {
		n, there := e.scrape()[fmt.Sprintf("ledger_tool_calls_total{ledger=%q,outcome=%q,tool=%q}", dir, "committed", tool)]
		return n, there
	}
	has := func(tool string) bool { _, there := count(tool); return there }
	e.await("both count", func() bool { return has("a") && has("b") })
	if n, _ := count("other"); n != 5 {
		t.Errorf("%v others", n)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := e.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	put(second, `{"version":1,"deny":["`)
	e.await("a bad policy is told", func() bool { return strings.Contains(e.said(), "names of before stay") })
	if !has("a") || !has("b") {
		t.Error("the names of before are gone")
	}
	put(second, `{"version":1,"deny":["write_note"]}`)
	e.await("the new name counts", func() bool { n, _ := count("write_note"); return n == 5 && has("a") && !has("b") })
	if n, _ := count("other"); n != 0 {
		t.Errorf("%v others", n)
	}
}

// TestExporterTextfile is read in a tight loop while processes write it and are
// killed half-way: it is always whole.
func TestExporterTextfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 1, 5)
	path := filepath.Join(t.TempDir(), "ledger.prom")
	args := []string{"exporter", dir, "--policy", policyFileOf(t, string(policy.Starter())), "--checkpoint", filepath.Join(t.TempDir(), "checkpoint"), "--textfile", path}
	begin := time.Now()
	if out, err := exec.Command("ledgerctl", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	took := time.Since(begin)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := samplesOf(whole)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	for line := range strings.Lines(string(whole)) {
		if strings.HasPrefix(line, "# ") && strings.Count(string(whole), line) != 1 {
			t.Errorf("not once: %s", line)
		}
	}
	stop := make(chan struct{})
	var reads int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			text, err := os.ReadFile(path)
			s, e := samplesOf(text)
			if err != nil || e != nil || len(s) != len(want) || text[len(text)-1] != '\n' {
				t.Errorf("%v, %v: %d series of %d", err, e, len(s), len(want))
				return
			}
			reads++
		}
	})
	r := rand.New(rand.NewPCG(3, 4))
	killed := 0
	for range 20 {
		c := exec.Command("ledgerctl", args...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(r.Int64N(int64(2*took))), func() { c.Process.Kill() })
		if c.Wait() != nil {
			killed++
		}
		kill.Stop()
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of 20 killed, %d reads", killed, reads)
	if killed == 0 || killed == 20 || reads < 100 {
		t.Error("the test shows nothing")
	}
	// What a killed one leaves is not read by the node exporter.
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.prom")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
