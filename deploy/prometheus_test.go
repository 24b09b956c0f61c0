package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/auditledger/auditledger/internal/bareenv"
)

// built is the folder of the programs under test.
var built string

func TestMain(m *testing.M) {
	bareenv.Clear()
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "deploy-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built)
		return m.Run()
	}())
}

var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", built+string(filepath.Separator), "../cmd/gated-mcp", "../cmd/ledgerctl").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// program is a program of ours.
func program(t testing.TB, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(built, name)
}

// foreign is a program of Prometheus, or the test is skipped.
func foreign(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if path, err := filepath.Abs(filepath.Join("..", "bin", "tools", name)); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if slices.Contains(strings.Split(os.Getenv("AUDITLEDGER_REQUIRE"), ","), "prometheus") {
		t.Fatalf("%s is not here, and AUDITLEDGER_REQUIRE wants it: make prometheus", name)
	}
	t.Skipf("%s is not here: make prometheus", name)
	return ""
}

func promtool(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(foreign(t, "promtool"), args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestPromtool(t *testing.T) {
	for _, args := range []string{"check config prometheus.yml", "check rules rules.yml alerts.yml", "test rules rules_test.yml"} {
		t.Run(strings.ReplaceAll(args, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if out, err := promtool(t, "prometheus", strings.Fields(args)...); err != nil {
				t.Errorf("promtool %s: %v\n%s", args, err, out)
			}
		})
	}
}

// ruleTests are the tests of rules_test.yml, each as a file of its own.
func ruleTests(t *testing.T) map[string]string {
	t.Helper()
	head, rest, _ := strings.Cut(read(t, "prometheus/rules_test.yml"), "\ntests:\n")
	all := map[string]string{}
	for _, one := range strings.Split("\n"+rest, "\n  - name: ")[1:] {
		name, _, _ := strings.Cut(one, "\n")
		all[name] = head + "\ntests:\n  - name: " + one + "\n"
	}
	return all
}

var alertOf = regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (?:\|\n(?:          .*\n)+|.*\n)`)

// TestRuleTestsCanFail breaks the rules, one thing at a time, and wants the test
// that guards it to fail.
func TestRuleTestsCanFail(t *testing.T) {
	foreign(t, "promtool")
	tests := ruleTests(t)
	type mutant struct{ name, file, text, test string }
	var mutants []mutant
	alerts := read(t, "prometheus/alerts.yml")

	// Each alert has a test in which it fires.
	silenced := map[string]bool{}
	for _, m := range alertOf.FindAllStringSubmatch(alerts, -1) {
		for name, test := range tests {
			if strings.Contains(test, `- labels: '`) && strings.Contains(test, `alertname="`+m[1]+`"`) && !silenced[m[1]] {
				silenced[m[1]] = true
				mutants = append(mutants, mutant{m[1] + " never", "alerts.yml", strings.Replace(alerts, m[0], "      - alert: "+m[1]+"\n        expr: vector(0) > 1\n", 1), name})
			}
		}
		if !silenced[m[1]] {
			t.Errorf("no test expects %s", m[1])
		}
	}
	if n := strings.Count(alerts, "- alert: "); len(silenced) != n {
		t.Errorf("%d alerts were found, there are %d", len(silenced), n)
	}

	for _, m := range []struct{ file, at, old, new, test string }{
		// After the line that holds at, the first old becomes new.
		{"rules.yml", "tool_calls:rate1h", "max by", "sum by", "two jobs"},
		{"rules.yml", "tool_calls:rate1h", "max by (host, ", "max by (", "two jobs"},
		{"rules.yml", "tool_calls:rate5m", " or ledger_tool_calls_total * 0", "", "an idle"},
		{"rules.yml", "tool_calls:rate1h", " or ledger_tool_calls_total * 0", "", "an idle"},
		{"rules.yml", "tool_calls:rate1h", "ledger_tool_calls_total * 0", "ledger_tool_calls_total", "an exporter that restarts"},
		{"rules.yml", "ratio_rate5m", "rate5m > 0)", "rate5m)", "an idle"},
		{"rules.yml", "ratio_rate1h", "rate1h > 0)", "rate1h)", "an idle"},
		{"rules.yml", "ratio_rate5m", "or host_ledger_tool_outcome:ledger_tool_calls:rate5m * 0\n", "\n", "an idle"},
		{"rules.yml", "tool_calls:rate1h", "[1h]", "[5m]", "high ratios"},
		{"rules.yml", "tool_calls:rate5m", "rate(ledger_tool_calls_total[5m])", "ledger_tool_calls_total", "high ratios"},
		{"alerts.yml", "LedgerReplayRatioHigh", `outcome="replay"} > 0.2`, `outcome="replay"} >= 0`, "high ratios"},
		{"alerts.yml", "LedgerReplayRatioHigh", "19.5", "0", "low ratios"},
		{"alerts.yml", "LedgerReplayRatioHigh", `"replay",tool!="other"} > 0.2`, `"replay",tool!="other"} > 0.05`, "low ratios"},
		{"alerts.yml", "LedgerDenyRatioHigh", `,tool!="other"`, "", "low ratios"},
		{"alerts.yml", "LedgerDenyRatioHigh", "19.5", "0", "low ratios"},
		{"alerts.yml", "LedgerDeniedToolCalled", `reason="tool_not_allowed",`, "", "the first denial"},
		{"alerts.yml", "LedgerDeniedToolCalled", `,tool!="other"`, "", "the first denial"},
		{"alerts.yml", "LedgerUnknownToolCalls", `,outcome="deny"`, "", "low ratios"},
		{"alerts.yml", "LedgerUnknownToolCalls", "> 4.5", "> 3.5", "low ratios"},
		{"alerts.yml", "LedgerUnknownToolCalls", "> 4.5", "> 5.5", "low ratios"},
		{"alerts.yml", "LedgerErrorRatioHigh", "19.5", "0", "the first failure"},
		{"alerts.yml", "LedgerErrorRatioHigh", `outcome="error"} > 0.1`, `outcome="error"} >= 0`, "high ratios"},
		{"alerts.yml", "LedgerCallsInDoubt", "for: 1m", "for: 0m", "calls in doubt"},
		{"alerts.yml", "LedgerWriteFailures", "max_over_time(ledger_write_last_failure_timestamp_seconds[15m])", "ledger_write_last_failure_timestamp_seconds", "failures to write"},
		{"alerts.yml", "LedgerWriteFailures", "[15m]) > 0)", "[15m]))", "failures to write"},
		{"alerts.yml", "LedgerTampered", "max by", "min by", "of the verdicts"},
		{"alerts.yml", "LedgerTampered", `verdict="tampered"`, `verdict=~"tampered|torn"`, "of the verdicts"},
		{"alerts.yml", "LedgerRecordsFell", "resets", "changes", "an exporter that restarts"},
		{"alerts.yml", "LedgerUnproven", "for: 15m", "for: 5m", "of the verdicts"},
		{"alerts.yml", "LedgerUnproven", "records_total) > 0", "records_total) >= 0", "of the verdicts"},
		{"alerts.yml", "LedgerUnproven", "torn|unchecked", "torn|unchecked|intact", "of the verdicts"},
		{"alerts.yml", "LedgerVerifyOld", "> 1800", "> 3600", "a verification"},
		{"alerts.yml", "LedgerVerifyOld", "> 1800", "> 900", "a verification"},
		{"alerts.yml", "LedgerAnchorOld", "> 2 * 3600", "> 3600", "anchors that"},
		{"alerts.yml", "LedgerAnchorOld", " > 0) >", ") >", "anchors that"},
		{"alerts.yml", "LedgerAnchorFailing", "> max by", ">= max by", "anchors that"},
		{"alerts.yml", "LedgerAnchorFailing", "for: 15m", "for: 5m", "anchors that"},
		{"alerts.yml", "LedgerAnchorFailing", "records_total) > 0", "records_total) >= 0", "anchors that"},
		{"alerts.yml", "LedgerNeverAnchored", "for: 2h", "for: 1h", "anchors that"},
		{"alerts.yml", "LedgerNeverAnchored", "records_total) > 0", "records_total) >= 0", "anchors that"},
		{"alerts.yml", "LedgerUnreadable", "min by", "max by", "a ledger that is absent"},
		{"alerts.yml", "LedgerUnreadable", "for: 5m", "for: 1m", "a ledger that is absent"},
		{"alerts.yml", "LedgerExporterDown", `up{job="ledger"}`, "up", "an exporter that is down"},
		{"alerts.yml", "LedgerSeriesAbsent", ") unless on (job, instance) ledger_readable == 0", ")", "a ledger that is absent"},
		{"alerts.yml", "LedgerSeriesAbsent", "on (job, instance) ledger_tool_calls_total", "on (job) ledger_tool_calls_total", "a series of another name"},
		{"alerts.yml", "LedgerSeriesAbsent", "unless on (job, instance) ledger_denials_total", "unless on (job, instance) up", "an exporter that has none"},
	} {
		text := read(t, "prometheus/"+m.file)
		before, rest, ok := strings.Cut(text, ": "+prefixed(m.at)+"\n")
		if !ok || !strings.Contains(rest, m.old) {
			t.Errorf("%s, %s: %q is not there any more", m.file, m.at, m.old)
			continue
		}
		mutants = append(mutants, mutant{m.at + " " + m.old + " becomes " + m.new, m.file,
			before + ": " + prefixed(m.at) + "\n" + strings.Replace(rest, m.old, m.new, 1), m.test})
	}

	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			content := map[string]string{"rules.yml": read(t, "prometheus/rules.yml"), "alerts.yml": alerts}
			content[m.file] = m.text
			for name, test := range tests {
				if strings.HasPrefix(name, m.test) {
					content["test.yml"] = test
				}
			}
			for name, text := range content {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := promtool(t, dir, "check", "rules", m.file); err != nil {
				t.Fatalf("the mutant is no rule: %v\n%s", err, out)
			}
			if out, err := promtool(t, dir, "test", "rules", "test.yml"); err == nil || !strings.Contains(out, "FAILED") {
				t.Errorf("the test %q passes (%v)\n%s", m.test, err, out)
			}
		})
	}
}

// prefixed is the full name of a recorded series.
func prefixed(name string) string {
	switch {
	case strings.HasPrefix(name, "ratio_"):
		return "host_ledger_tool_outcome:ledger_tool_calls:" + name
	case strings.HasPrefix(name, "tool_calls:"):
		return "host_ledger_tool_outcome:ledger_" + name
	}
	return name
}

// A selection is what a query asks of one series: its name, and matchers of
// labels.
type selection struct {
	metric   string
	matchers [][3]string // label, operator, value
}

var promToken = regexp.MustCompile(`^(?:[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9][0-9a-zA-Z.]*|"(?:[^"\\]|\\.)*"|[=!]~|[=!<>]=|[-+*/%^<>=(){},\[\]])`)

// selections reads a query in PromQL: what it selects, and the labels by which
// it groups or joins.
func selections(query string) (all []selection, groups []string, err error) {
	var tokens []string
	for rest := query; ; {
		rest = strings.TrimSpace(rest)
		if rest == "" {
			break
		}
		token := promToken.FindString(rest)
		if token == "" {
			return nil, nil, fmt.Errorf("not understood: %q", rest)
		}
		tokens, rest = append(tokens, token), rest[len(token):]
	}
	tokens = append(tokens, "", "")
	for i := 0; i < len(tokens)-2; i++ {
		token := tokens[i]
		switch {
		case slices.Contains([]string{"by", "without", "on", "ignoring", "group_left", "group_right"}, token):
			if tokens[i+1] != "(" {
				return nil, nil, fmt.Errorf("no list of labels after %s", token)
			}
			for i += 2; tokens[i] != ")" && tokens[i] != ""; i++ {
				if tokens[i] != "," {
					groups = append(groups, tokens[i])
				}
			}
		case slices.Contains([]string{"and", "or", "unless", "bool"}, token):
		case token == "{":
			return nil, nil, fmt.Errorf("a selection without a name")
		case regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(token):
			if tokens[i+1] == "(" || tokens[i+1] == "by" || tokens[i+1] == "without" {
				continue // a function
			}
			s := selection{metric: token}
			if tokens[i+1] == "{" {
				for i += 2; tokens[i] != "}"; i++ {
					if tokens[i] == "," {
						continue
					}
					var value string
					if i+3 >= len(tokens) || json.Unmarshal([]byte(tokens[i+2]), &value) != nil {
						return nil, nil, fmt.Errorf("not understood: the matchers of %s", s.metric)
					}
					s.matchers = append(s.matchers, [3]string{tokens[i], tokens[i+1], value})
					i += 2
				}
			}
			all = append(all, s)
		}
	}
	return all, groups, nil
}

// series are names, with the labels of each, with the values of each.
type series map[string]map[string]map[string]bool

func (s series) add(name, label, value string) {
	if s[name] == nil {
		s[name] = map[string]map[string]bool{}
	}
	if label == "" {
		return
	}
	if s[name][label] == nil {
		s[name][label] = map[string]bool{}
	}
	s[name][label][value] = true
}

var (
	sample  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	labeled = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// scraped adds what a process shows, as a job of Prometheus sees it.
func (s series) scraped(t *testing.T, job, exposition string) {
	t.Helper()
	for line := range strings.Lines(exposition) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no sample: %q", line)
		}
		s.add(m[1], "job", job)
		s.add(m[1], "instance", "")
		s.add(m[1], "host", "")
		for _, l := range labeled.FindAllStringSubmatch(m[2], -1) {
			s.add(m[1], l[1], l[2])
		}
	}
}

// wrong says what a query asks that no series can answer.
func (s series) wrong(query string) (faults []string) {
	all, groups, err := selections(query)
	if err != nil {
		return []string{err.Error()}
	}
	grouped := map[string]bool{}
	for _, sel := range all {
		labels, ok := s[sel.metric]
		if !ok {
			faults = append(faults, "there is no series "+sel.metric)
			continue
		}
		for l := range labels {
			grouped[l] = true
		}
		for _, m := range sel.matchers {
			values, ok := labels[m[0]]
			switch {
			case !ok:
				faults = append(faults, fmt.Sprintf("%s has no label %s", sel.metric, m[0]))
			case strings.HasPrefix(m[2], "$") || m[0] == "instance" || m[0] == "host":
			case m[1] == "=" || m[1] == "!=":
				if !values[m[2]] {
					faults = append(faults, fmt.Sprintf("%s has no %s %q", sel.metric, m[0], m[2]))
				}
			default:
				for _, alternative := range strings.Split(m[2], "|") {
					re, err := regexp.Compile("^(?:" + alternative + ")$")
					if err != nil || !slices.ContainsFunc(slices.Collect(maps.Keys(values)), re.MatchString) {
						faults = append(faults, fmt.Sprintf("%s has no %s like %q", sel.metric, m[0], alternative))
					}
				}
			}
		}
	}
	for _, g := range groups {
		if !grouped[g] {
			faults = append(faults, "no series of it has the label "+g)
		}
	}
	return faults
}

// expressions are the queries of a file of rules, by their names.
func expressions(text string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^      - (?:record|alert): (\S+)\n        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2] + m[3]
	}
	return all
}

// A dashboard is what we look at of a dashboard of Grafana.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Datasource             datasource
		}
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		GridPos    struct{ X, Y, W, H int }
		Datasource datasource
		Targets    []struct {
			RefID, Expr string
			Datasource  datasource
		}
	}
}

type datasource struct{ Type, UID string }

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "prometheus/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// queries are those of the dashboard, by panel, with the variables of Grafana
// itself filled in.
func (d dashboard) queries() map[string]string {
	all := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			all["variable "+v.Name] = "group by (" + m[2] + ") (" + m[1] + ")"
		}
	}
	return all
}

func TestDashboard(t *testing.T) {
	d := theDashboard(t)
	if d.SchemaVersion < 36 || d.Title == "" || d.UID == "" {
		t.Errorf("schema %d, title %q, uid %q", d.SchemaVersion, d.Title, d.UID)
	}
	chosen := datasource{"prometheus", "${datasource}"}
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type == "query" && (v.Datasource != chosen || d.queries()["variable "+v.Name] == "") {
			t.Errorf("variable %s: %q of %v is no query of label values", v.Name, v.Definition, v.Datasource)
		}
	}
	for _, name := range []string{"datasource", "host", "ledger", "tool"} {
		if !variables[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	ids, cells, queries := map[int]bool{}, map[[2]int]string{}, 0
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d is there twice, or has no title", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if cells[at] != "" || at[0] >= 24 {
					t.Fatalf("%q lies over %q, or outside", p.Title, cells[at])
				}
				cells[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			queries++
			if p.Datasource != chosen || target.Datasource != chosen {
				t.Errorf("%q asks %v and %v", p.Title, p.Datasource, target.Datasource)
			}
			for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(target.Expr, -1) {
				if !variables[v[1:]] && v != "$__rate_interval" {
					t.Errorf("%q: no variable %s", p.Title, v)
				}
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries", queries)
	}
}

// TestQueriesNameWhatIsThere holds every query of the dashboard, the rules and
// the alerts against what a new exporter and a new server show.
func TestQueriesNameWhatIsThere(t *testing.T) {
	p := newPlace(t)
	p.server(t)
	exporter := p.exporter(t, "1s")

	known := series{}
	jobs := regexp.MustCompile(`(?m)^  - job_name: (\S+)$`).FindAllStringSubmatch(read(t, "prometheus/prometheus.yml"), -1)
	if len(jobs) != 2 || jobs[0][1] != "ledger" || jobs[1][1] != "gated-mcp" {
		t.Fatalf("the jobs are %v", jobs)
	}
	known.scraped(t, "ledger", get(t, "http://"+exporter.address+"/metrics"))
	known.scraped(t, "gated-mcp", get(t, "http://"+p.metrics+"/metrics"))
	shown := slices.Sorted(maps.Keys(known))

	known.scraped(t, "ledger", "up 1\n")
	known.scraped(t, "gated-mcp", "up 1\n")
	rules, alerts := expressions(read(t, "prometheus/rules.yml")), expressions(read(t, "prometheus/alerts.yml"))
	for _, state := range []string{"pending", "firing"} {
		for name := range alerts {
			for label, value := range map[string]string{"alertname": name, "alertstate": state, "severity": "", "host": "", "ledger": "", "tool": ""} {
				known.add("ALERTS", label, value)
			}
		}
	}
	for name := range rules {
		level, rest, _ := strings.Cut(name, ":")
		metric, _, _ := strings.Cut(rest, ":")
		for _, label := range strings.Split(level, "_") {
			known.add(name, label, "")
			for value := range known[metric+"_total"][label] {
				known.add(name, label, value)
			}
		}
	}

	asked := map[string]bool{}
	for what, queries := range map[string]map[string]string{"rule": rules, "alert": alerts, "panel": theDashboard(t).queries()} {
		if len(queries) < 6 {
			t.Errorf("only %d queries of each %s were found", len(queries), what)
		}
		for name, query := range queries {
			for _, fault := range known.wrong(query) {
				t.Errorf("%s %s: %s", what, name, fault)
			}
			all, _, _ := selections(query)
			for _, s := range all {
				asked[s.metric] = true
			}
		}
	}
	// And what is shown is looked at somewhere.
	for _, name := range shown {
		if name = strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count"); !asked[name] && !asked[name+"_bucket"] {
			t.Errorf("nothing asks for %s", name)
		}
	}

	for query, fault := range map[string]string{
		`rate(ledger_tool_call_total[5m])`:                            "there is no series ledger_tool_call_total",
		`ledger_tool_calls_total{outcom="deny"}`:                      "ledger_tool_calls_total has no label outcom",
		`ledger_tool_calls_total{outcome="denied"}`:                   `ledger_tool_calls_total has no outcome "denied"`,
		`ledger_verify_verdict{verdict=~"torn|cut"}`:                  `ledger_verify_verdict has no verdict like "cut"`,
		`max by (host, ledgers) (ledger_readable) == 0`:               "no series of it has the label ledgers",
		`sum(ledger_readable) by (verdict)`:                           "no series of it has the label verdict",
		`up{job="ledgers"} == 0`:                                      `up has no job "ledgers"`,
		`{job="ledger"}`:                                              "a selection without a name",
		`ledger_readable & 1`:                                         `not understood: "& 1"`,
		`host_ledger_tool:ledger_tool_calls:rate5m{outcome="replay"}`: "host_ledger_tool:ledger_tool_calls:rate5m has no label outcome",
	} {
		if got := known.wrong(query); !slices.Equal(got, []string{fault}) {
			t.Errorf("%s: found %q, want %q", query, got, fault)
		}
	}
}

// TestRunbooks: each alert says what it is and what to do, in commands that there
// are.
func TestRunbooks(t *testing.T) {
	text := read(t, "prometheus/alerts.yml")
	helps := map[string]string{}
	help := func(command string) string {
		if _, ok := helps[command]; !ok {
			out, err := exec.Command(program(t, "ledgerctl"), append(strings.Fields(command), "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("ledgerctl %s --help: %v: %s", command, err, out)
			}
			helps[command] = string(out)
		}
		return helps[command]
	}
	alerts := strings.Split(text, "      - alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		for _, needs := range []string{`\n          severity: (critical|warning)\n`, `\n          summary: '.+'\n`, `\n          description: >-\n`, `\n          runbook: \|-\n`,
			"request_id", "ledgerctl .*--request-id ID|ledgerctl (doubt|log)"} {
			if !regexp.MustCompile(needs).MatchString(alert) {
				t.Errorf("%s: %s is missing", name, needs)
			}
		}
		_, runbook, _ := strings.Cut(alert, "runbook: |-\n")
		runbook, _, _ = strings.Cut(runbook, "\n\n")
		commands := regexp.MustCompile(`(?m)ledgerctl ((?:anchor |doubt |policy )?[a-z]+)([^\n;]*)`).FindAllStringSubmatch(runbook, -1)
		if len(commands) == 0 {
			t.Errorf("%s: no command", name)
		}
		for _, c := range commands {
			command := c[1]
			usage := regexp.MustCompile(`(?m)^  ledgerctl (\S+(?: [a-z]+)?)`).FindStringSubmatch(help(command))
			if usage == nil || usage[1] != command {
				t.Errorf("%s: there is no command ledgerctl %s: %q", name, command, usage)
				continue
			}
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(c[2], -1) {
				if !strings.Contains(help(command), " "+flag+" ") {
					t.Errorf("%s: ledgerctl %s has no %s", name, command, flag)
				}
			}
		}
	}
	if len(alerts) < 15 {
		t.Errorf("%d alerts", len(alerts))
	}
}
