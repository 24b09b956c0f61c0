package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is how long anything may take that has to happen.
const patience = time.Minute

// eventually polls until check is content; what it says at last is the failure.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	begun := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// A place is a folder with a policy, a ledger, and the address at which its
// servers show metrics.
type place struct{ root, ledger, policy, metrics string }

func newPlace(t testing.TB) *place {
	t.Helper()
	p := &place{root: t.TempDir(), metrics: "127.0.0.1:0"}
	p.ledger, p.policy = filepath.Join(p.root, "ledger"), filepath.Join(p.root, "policy.json")
	c := exec.Command(program(t, "gated-mcp"), "--init", "--policy", p.policy)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("gated-mcp --init: %v: %s", err, out)
	}
	return p
}

// A child is a process that serves at an address.
type child struct {
	cmd     *exec.Cmd
	log     string // a file
	address string
}

// start starts a process, and waits until its log says where it serves.
func (p *place) start(t testing.TB, c *exec.Cmd, serves string) *child {
	t.Helper()
	log, err := os.CreateTemp(p.root, "log-")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.Dir, c.Stderr = p.root, log
	c.Env = append(c.Environ(), "LEDGER_ANCHOR=")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	k := &child{cmd: c, log: log.Name()}
	t.Cleanup(func() {
		k.kill()
		if t.Failed() {
			t.Logf("log of %s:\n%.6000s", filepath.Base(c.Path), read(t, k.log))
		}
	})
	eventually(t, filepath.Base(c.Path)+" serves", func() error {
		m := regexp.MustCompile(serves + `(?:http://)?(127\.0\.0\.1:[1-9][0-9]*)`).FindStringSubmatch(read(t, k.log))
		if m == nil {
			return fmt.Errorf("its log has no address:\n%s", read(t, k.log))
		}
		k.address = m[1]
		return nil
	})
	return k
}

func (k *child) kill() {
	if k.cmd.ProcessState == nil {
		k.cmd.Process.Kill()
		k.cmd.Wait()
	}
}

func (p *place) exporter(t testing.TB, verifyEvery string) *child {
	t.Helper()
	return p.start(t, exec.Command(program(t, "ledgerctl"), "exporter", p.ledger, "--listen", "127.0.0.1:0", "--policy", p.policy, "--verify-every", verifyEvery,
		"--checkpoint", filepath.Join(p.root, "checkpoint.json")), `serving metrics" address=`)
}

// A server is gated-mcp, with its client's ends of the pipes.
type server struct {
	*child
	stdin  io.WriteCloser
	stdout *bufio.Reader
	serial int
}

// server starts a server, at the address of the one before.
func (p *place) server(t testing.TB, env ...string) *server {
	t.Helper()
	c := exec.Command(program(t, "gated-mcp"), "--ledger", p.ledger, "--policy", p.policy, "--metrics", p.metrics)
	c.Env = append(os.Environ(), env...)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{stdin: stdin, stdout: bufio.NewReader(stdout)}
	s.child = p.start(t, c, `metrics are served" address=`)
	p.metrics = s.address
	return s
}

// send begins a call.
func (s *server) send(t testing.TB, tool string, args any) {
	t.Helper()
	s.serial++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.serial, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}}}})
	if err == nil {
		_, err = s.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// call makes a call, whose answer must hold a text.
func (s *server) call(t testing.TB, tool string, args any, want string) {
	t.Helper()
	s.send(t, tool, args)
	for {
		line, err := s.stdout.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s was not answered: %v", tool, err)
		}
		var m struct{ ID int }
		if json.Unmarshal(line, &m) == nil && m.ID == s.serial {
			if !bytes.Contains(line, []byte(want)) {
				t.Fatalf("%s was answered %s, want %s", tool, line, want)
			}
			return
		}
	}
}

// end ends a server as its client does.
func (s *server) end(t testing.TB) {
	t.Helper()
	s.stdin.Close()
	io.Copy(io.Discard, s.stdout)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

type note struct {
	RequestID string `json:"request_id"`
	Text      string `json:"text"`
}

// ledgerctl runs a command, which must end with a status.
func (p *place) ledgerctl(t testing.TB, status int, args ...string) string {
	t.Helper()
	c := exec.Command(program(t, "ledgerctl"), args...)
	c.Env = append(os.Environ(), "LEDGER_DIR="+p.ledger, "LEDGER_ANCHOR=")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, _ := c.Output()
	if got := c.ProcessState.ExitCode(); got != status {
		t.Fatalf("ledgerctl %s: status %d, want %d: %s%s", strings.Join(args, " "), got, status, out, errs.Bytes())
	}
	return string(out)
}

func fetch(address string) (string, error) {
	r, err := (&http.Client{Timeout: 20 * time.Second}).Get(address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", address, r.Status, b)
	}
	return string(b), err
}

func get(t testing.TB, address string) string {
	t.Helper()
	text, err := fetch(address)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A prometheus is a running one, with the shipped files, in which only the
// addresses, the intervals and the patience of the alerts are others.
type prometheus struct{ *child }

// An edit is a regular expression and what stands for its matches, one or more.
type edit struct{ from, to string }

// prometheus starts one. The alerts wait for nothing, and where old says so, what
// is older than 2 s is old for them.
func (p *place) prometheus(t testing.TB, old bool, exporters ...*child) prometheus {
	t.Helper()
	path := foreign(t, "prometheus")
	dir := filepath.Join(p.root, "prometheus")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	targets := ""
	for _, e := range exporters {
		targets += "${1}" + e.address + "\n"
	}
	alerts := []edit{{`(?m)^        for: .*$`, "        for: 0s"}}
	if old {
		alerts = append(alerts, edit{`(ledger_verify_last_run_timestamp_seconds\)) > 1800\b`, "$1 > 2"},
			edit{`(ledger_anchor_last_success_timestamp_seconds > 0\)) > 2 \* 3600\b`, "$1 > 2"})
	}
	for name, edits := range map[string][]edit{
		"prometheus.yml": {{`(?m)^(  scrape_interval|  evaluation_interval): .*$`, "$1: 1s"}, {`(?m)^( +- )127\.0\.0\.1:9464\n`, targets}, {`(- )127\.0\.0\.1:9465`, "${1}" + p.metrics}},
		"alerts.yml":     alerts,
		"rules.yml":      nil,
	} {
		text := read(t, "prometheus/"+name)
		for _, e := range edits {
			re := regexp.MustCompile(e.from)
			if !re.MatchString(text) {
				t.Fatalf("%s: %s is not there", name, e.from)
			}
			text = re.ReplaceAllString(text, e.to)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return prometheus{p.start(t, exec.Command(path, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0"), `msg="Listening on" address=`)}
}

// api asks the HTTP API.
func (pr prometheus) api(path string, data any) error {
	text, err := fetch("http://" + pr.address + "/api/v1/" + path)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Warnings      []string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status != "success" || answer.Warnings != nil {
		return fmt.Errorf("%s: %w: %.300s", path, err, text)
	}
	return nil
}

// ask is an instant query: values by those labels whose names are given.
func (pr prometheus) ask(query string, labels ...string) (map[string]float64, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := pr.api("query?query="+url.QueryEscape(query), &data); err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, r := range data.Result {
		var key []string
		for _, l := range labels {
			key = append(key, r.Metric[l])
		}
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		if _, twice := all[strings.Join(key, " ")]; twice {
			return nil, fmt.Errorf("%s: %v twice", query, key)
		}
		all[strings.Join(key, " ")] = v
	}
	return all, nil
}

// firing are the alerts that fire, each with its tool or series. Their texts
// must be whole.
func (pr prometheus) firing() ([]string, error) {
	var data struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		}
	}
	if err := pr.api("alerts", &data); err != nil {
		return nil, err
	}
	var all []string
	for _, a := range data.Alerts {
		if a.State != "firing" {
			continue
		}
		all = append(all, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["tool"]+a.Labels["series"]))
		for name, text := range a.Annotations {
			if strings.Contains(text, "no value") || strings.Contains(text, "error") && strings.Contains(text, "expanding") || strings.Contains(text, "''") || strings.Contains(text, "  of") {
				return nil, fmt.Errorf("%s: %s: %s", a.Labels["alertname"], name, text)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// evaluated reports whether each group of rules was evaluated after a moment.
func (pr prometheus) evaluated(after time.Time) error {
	var data struct {
		Groups []struct {
			Name           string
			LastEvaluation time.Time
			Rules          []struct{ Name, Health, LastError string }
		}
	}
	if err := pr.api("rules", &data); err != nil {
		return err
	}
	if len(data.Groups) != 4 {
		return fmt.Errorf("%d groups of rules", len(data.Groups))
	}
	for _, g := range data.Groups {
		if !g.LastEvaluation.After(after) {
			return fmt.Errorf("%s was not evaluated yet", g.Name)
		}
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	return nil
}

// fires waits until those alerts fire and no others.
func (pr prometheus) fires(t testing.TB, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, what, func() error {
		got, err := pr.firing()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("firing are %q, want %q", got, want)
		}
		return err
	})
}

// stats are the figures of ledgerctl stats, with the names that no policy knows
// in one: counts and ratios by tool and outcome.
func (p *place) stats(t testing.TB) (counts, ratios map[string]float64) {
	t.Helper()
	var all struct {
		Tools []struct {
			Tool   string
			Counts map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(p.ledgerctl(t, 0, "stats", "--format", "json")), &all); err != nil {
		t.Fatal(err)
	}
	counts, ratios = map[string]float64{}, map[string]float64{}
	calls := map[string]float64{}
	outcomes := map[string]bool{}
	for _, s := range all.Tools {
		tool := s.Tool
		if !slices.Contains(tools, tool) {
			tool = "other"
		}
		for outcome, n := range s.Counts {
			outcomes[outcome] = true
			counts[tool+" "+outcome] += n
			calls[tool] += n
		}
	}
	for _, tool := range tools {
		for outcome := range outcomes {
			key := tool + " " + outcome
			counts[key] += 0
			ratios[key] = counts[key] / max(calls[tool], 1)
		}
	}
	return counts, ratios
}

// tools are the values of the label tool under the starter policy.
var tools = []string{"other", "read_ledger", "rm_rf", "write_note"}

// agrees waits until Prometheus has what the ledger holds.
func (pr prometheus) agrees(t testing.TB, p *place) {
	t.Helper()
	counts, ratios := p.stats(t)
	if len(counts) != len(tools)*7 {
		t.Fatalf("stats tells %d figures of %d tools: %v", len(counts), len(tools), counts)
	}
	for query, want := range map[string]map[string]float64{
		`max by (tool, outcome) (ledger_tool_calls_total{job="ledger"})`: counts,
		`ledger_tool_calls_total{job="gated-mcp"}`:                       counts,
		`host_ledger_tool_outcome:ledger_tool_calls:ratio_rate5m`:        ratios,
		`host_ledger_tool_outcome:ledger_tool_calls:ratio_rate1h`:        ratios,
	} {
		eventually(t, query, func() error {
			got, err := pr.ask(query, "tool", "outcome")
			if err == nil && !maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				err = fmt.Errorf("got %v, want %v", got, want)
			}
			return err
		})
	}
}

// TestPrometheusAtWork has a Prometheus scrape an exporter and a server that
// works, and asks it for every ratio, and for every alert but those of the next
// test.
func TestPrometheusAtWork(t *testing.T) {
	foreign(t, "prometheus")
	p := newPlace(t)
	s := p.server(t)
	exporter := p.exporter(t, "1s")
	pr := p.prometheus(t, false, exporter)

	// Idle: every ratio is there and 0, and no alert fires.
	eventually(t, "an idle server has every ratio at 0", func() error {
		for _, window := range []string{"5m", "1h"} {
			got, err := pr.ask("host_ledger_tool_outcome:ledger_tool_calls:ratio_rate"+window, "tool", "outcome")
			if err != nil {
				return err
			}
			for key, v := range got {
				if v != 0 {
					return fmt.Errorf("%s is %g", key, v)
				}
			}
			if len(got) != len(tools)*7 {
				return fmt.Errorf("%d ratios over %s, want %d", len(got), window, len(tools)*7)
			}
		}
		up, err := pr.ask("up", "job")
		if err == nil && !maps.Equal(up, map[string]float64{"ledger": 1, "gated-mcp": 1}) {
			err = fmt.Errorf("up is %v", up)
		}
		return err
	})
	since := time.Now()
	eventually(t, "all rules are evaluated", func() error { return pr.evaluated(since) })
	pr.fires(t, "nothing fires")

	// The first denial.
	const denied = "LedgerDeniedToolCalled rm_rf"
	s.call(t, "rm_rf", map[string]string{"path": "/"}, `"tool_not_allowed"`)
	pr.fires(t, "the first denial fires, and the ledger has something to anchor now", denied, "LedgerNeverAnchored")
	anchors := "file://" + filepath.ToSlash(p.root)
	p.ledgerctl(t, 0, "anchor", "push", "--to", anchors)
	pr.fires(t, "the anchor is seen", denied)
	pr.agrees(t, p)

	// One of each kind: 8 times committed, repeated, in conflict and against a rule.
	for i := range 8 {
		n := note{fmt.Sprintf("request-%d", i), "text"}
		s.call(t, "write_note", n, `"committed"`)
		s.call(t, "write_note", n, `"replay"`)
		s.call(t, "write_note", note{n.RequestID, "other text"}, `"isError":true`)
		s.call(t, "write_note", note{"short", "text"}, `"argument_rule"`)
	}
	for i := range 6 {
		s.call(t, fmt.Sprintf("tool_%d", i), map[string]string{}, `"tool_not_allowed"`)
	}
	for range 3 {
		s.call(t, "read_ledger", map[string]string{}, `"result"`)
	}
	ratios := []string{denied, "LedgerDenyRatioHigh write_note", "LedgerErrorRatioHigh write_note", "LedgerReplayRatioHigh write_note", "LedgerUnknownToolCalls"}
	pr.fires(t, "the ratios fire", ratios...)
	pr.agrees(t, p)

	// Each panel has something to show.
	replace := strings.NewReplacer("$host", ".*", "$ledger", ".*", "$tool", ".*")
	eventually(t, "every panel has something to show", func() error {
		for name, query := range theDashboard(t).queries() {
			got, err := pr.ask("count(" + replace.Replace(query) + ")")
			if err != nil || len(got) == 0 {
				return fmt.Errorf("%s: %v, %v: %s", name, got, err, query)
			}
		}
		return nil
	})

	// Killed half-way in a call: in doubt until a server starts again and looks.
	s.end(t)
	marker := filepath.Join(p.root, "marker")
	s = p.server(t, "CRASH_MARKER="+marker)
	s.send(t, "write_note", note{"request-killed", "text"})
	eventually(t, "the call is half-way", func() error {
		_, err := os.Stat(marker)
		return err
	})
	s.kill()
	p.ledgerctl(t, 1, "doubt")
	pr.fires(t, "the killed call is in doubt", append(ratios, "LedgerCallsInDoubt write_note")...)
	s = p.server(t)
	pr.fires(t, "the next server settles it", ratios...)
	pr.agrees(t, p)

	// Anchoring that fails.
	p.ledgerctl(t, 3, "anchor", "push", "--to", "file:///dev/null/nowhere")
	pr.fires(t, "anchoring fails", append(ratios, "LedgerAnchorFailing")...)
	p.ledgerctl(t, 0, "anchor", "push", "--to", anchors)
	pr.fires(t, "anchoring goes well again", ratios...)

	// A ledger that cannot be written: its file was moved away, and is put back.
	audit := filepath.Join(p.ledger, "audit.jsonl")
	if err := os.Rename(audit, audit+".away"); err != nil {
		t.Fatal(err)
	}
	s.call(t, "write_note", note{"request-unwritten", "text"}, `-32603`)
	if err := os.Rename(audit+".away", audit); err != nil {
		t.Fatal(err)
	}
	pr.fires(t, "failures to write fire", append(ratios, "LedgerWriteFailures")...)
	s.end(t)

	// A ledger whose last record was cut off.
	whole := read(t, audit)
	if err := os.WriteFile(audit, []byte(whole[:strings.LastIndexByte(whole[:len(whole)-1], '\n')+1]), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cut is seen", func() error {
		got, err := pr.firing()
		if err == nil && (!slices.Contains(got, "LedgerTampered") || !slices.Contains(got, "LedgerRecordsFell")) {
			err = fmt.Errorf("firing are %q", got)
		}
		return err
	})
	p.ledgerctl(t, 1, "verify")

	exporter.kill()
	eventually(t, "the exporter is missed", func() error {
		got, err := pr.firing()
		if err == nil && !slices.Contains(got, "LedgerExporterDown") {
			err = fmt.Errorf("firing are %q", got)
		}
		return err
	})
}

// TestPrometheusOfOldAndUnreadable has a Prometheus scrape three exporters: of a
// ledger that was anchored and verified long ago, of one that is not verified,
// and of one that is gone.
func TestPrometheusOfOldAndUnreadable(t *testing.T) {
	foreign(t, "prometheus")
	var places []*place
	for range 3 {
		p := newPlace(t)
		s := p.server(t)
		s.call(t, "write_note", note{"request-1", "text"}, `"committed"`)
		s.end(t)
		p.ledgerctl(t, 0, "anchor", "push", "--to", "file://"+filepath.ToSlash(p.root))
		places = append(places, p)
	}
	old, unverified, gone := places[0], places[1], places[2]
	exporters := []*child{old.exporter(t, "1h"), unverified.exporter(t, "0"), gone.exporter(t, "1s")}
	for i, e := range exporters {
		eventually(t, "the totals are known", func() error { _, err := fetch("http://" + e.address + "/readyz"); return err })
		if i == 1 {
			continue
		}
		eventually(t, "it was verified", func() error {
			text, err := fetch("http://" + e.address + "/metrics")
			if err == nil && !regexp.MustCompile(`ledger_verify_verdict\{.*"intact"\} 1\n`).MatchString(text) {
				err = fmt.Errorf("%s", text)
			}
			return err
		})
	}
	if err := os.Rename(gone.ledger, gone.ledger+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gone.ledger, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pr := places[0].prometheus(t, true, exporters...)
	// Each of them was anchored some seconds ago.
	pr.fires(t, "old, unverified and unreadable ledgers fire", "LedgerAnchorOld", "LedgerVerifyOld", "LedgerUnreadable", "LedgerUnproven",
		"LedgerSeriesAbsent ledger_verify_verdict", "LedgerSeriesAbsent ledger_verify_last_run_timestamp_seconds")
	for alert, p := range map[string]*place{"LedgerVerifyOld": old, "LedgerUnreadable": gone, "LedgerUnproven": gone} {
		got, err := pr.ask(fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert), "ledger")
		if err != nil || !maps.Equal(got, map[string]float64{p.ledger: 1}) {
			t.Errorf("%s fires for %v, %v, want %s", alert, got, err, p.ledger)
		}
	}
}
