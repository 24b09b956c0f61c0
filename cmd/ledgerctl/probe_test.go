//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func (w *workbench) probe(want int, server []string, flags ...string) string {
	w.t.Helper()
	args := append([]string{"probe", "--tool", "rm_rf", "--args", `{"path":"target"}`, "--target", "target"}, flags...)
	if server != nil {
		args = append(append(args, "--"), server...)
	}
	return w.ledgerctl(want, args...)
}

func TestProbeProven(t *testing.T) {
	w := newWorkbench(t)
	w.write("target", "keep me")
	out := w.probe(0, []string{"gated-mcp"})
	w.contains(out, "protocol 2026-07-28", "1  hidden     yes", "2  refused    yes      error -32602: tool denied: rm_rf", "recorded   yes      record 1, deny/not_executed", "3  untouched  yes", "PROVEN")
	var report probeReport
	if err := json.Unmarshal([]byte(w.probe(0, []string{"gated-mcp"}, "--format", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Verdict != "proven" || len(report.Signals) != 4 || report.Record == nil || report.Record.Seq != 2 {
		t.Errorf("%+v", report)
	}
	w.contains(w.ledgerctl(0, "verify"), "INTACT")
	if w.read("target") != "keep me" {
		t.Error("the target was touched")
	}
	// A directory, and a path that is not there.
	w.ledgerctl(0, "probe", "--tool", "rm_rf", "--target", "ledger", "--target", "gone", "--", "gated-mcp")
}

// Each signal is missing once, and named.
func TestProbeDisproven(t *testing.T) {
	for kind, want := range map[string][]string{
		"executes":      {"2  refused    NO       the call was answered with a result", "3  untouched  NO       target: content: 7 bytes", "DISPROVEN: refused, untouched\n", "1  hidden     yes"},
		"result":        {"2  refused    NO       the call was answered with a result", "DISPROVEN: refused\n"},
		"touches":       {"2  refused    yes", "3  untouched  NO ", "DISPROVEN: untouched\n"},
		"no record":     {"recorded   NO       no record of the call in ", "DISPROVEN: recorded\n"},
		"no ledger":     {"recorded   NO       no record: there is no ledger at ", "DISPROVEN: recorded\n"},
		"records allow": {"recorded   NO       record 1 of the call says allow/observed", "DISPROVEN: recorded\n"},
		"lists":         {"1  hidden     NO       the tool is listed", "DISPROVEN: hidden\n"},
		"other code":    {"2  refused    NO       error -32603, not -32602: no", "DISPROVEN: refused\n"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorkbench(t)
			w.write("target", "keep me")
			w.contains(w.probe(1, w.self(kind)), want...)
		})
	}
}

// The control: the same fake server without a fault is proven, also in the old revision, where server/discover is
// answered with an error or with nothing.
func TestProbeFakeServers(t *testing.T) {
	for kind, protocol := range map[string]string{"good": "2026-07-28", "legacy": "2025-11-25", "silent": "2025-11-25"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorkbench(t)
			w.write("target", "keep me")
			timeout := "1m"
			if kind == "silent" {
				timeout = "200ms" // nothing comes, however long one waits
			}
			w.contains(w.probe(0, w.self(kind), "--discover-timeout", timeout), "protocol "+protocol, "PROVEN")
		})
	}
}

func TestProbeHTTP(t *testing.T) {
	w := newWorkbench(t)
	w.write("target", "keep me")
	address := filepath.Join(w.dir, "address")
	argv := w.self("good", "LEDGERCTL_FAKE_HTTP="+address)
	server := exec.Command(argv[0], argv[1:]...)
	server.Dir, server.Env, server.Stderr = w.dir, append(os.Environ(), w.env...), os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); server.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if _, err := os.Stat(address); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the server does not start")
		}
	}
	w.contains(w.probe(0, nil, "--http", w.read("address")), "protocol 2026-07-28", "PROVEN")
}

// What could not be told is not called either.
func TestProbeUnknown(t *testing.T) {
	w := newWorkbench(t)
	w.write("target", "keep me")
	w.contains(w.probe(3, w.self("unsupported")), "error -32022", "there is no falling back to initialize")
	if methods := w.read("methods"); methods != "server/discover\n" {
		t.Errorf("the server was asked %q", methods)
	}
	w.contains(w.probe(3, []string{"no-such-server"}), "no-such-server")
	w.probe(3, []string{"false"})
	w.probe(2, nil)
	w.probe(2, []string{"gated-mcp"}, "--http", "http://127.0.0.1:1")
	w.probe(2, []string{"gated-mcp"}, "--args", "[]")
	w.ledgerctl(2, "probe", "--tool", "rm_rf", "--", "gated-mcp")
	w.probe(3, nil, "--http", "http://127.0.0.1:1")

	// The server dies with the call: no answer, and the record is there or not.
	w = newWorkbench(t)
	w.write("target", "keep me")
	w.contains(w.probe(3, w.self("dies")), "refused    unknown  no answer", "recorded   yes", "UNKNOWN: refused\n")

	// A ledger with lines that are no records may hold the record in one of them.
	w = newWorkbench(t)
	w.write("target", "keep me")
	if err := os.Mkdir(filepath.Join(w.dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("other/audit.jsonl", "no record\n")
	out := w.probe(3, append([]string{"env", "LEDGER_DIR=" + filepath.Join(w.dir, "ledger")}, "gated-mcp"), "--ledger", "other")
	w.contains(out, "recorded   unknown", "are no records")
}

// Text of the server is escaped.
func TestProbeEscapes(t *testing.T) {
	w := newWorkbench(t)
	w.write("target", "keep me")
	out := w.ledgerctl(0, "probe", "--tool", "rm\x1b[2K\nPROVEN", "--target", "target", "--", "gated-mcp")
	if strings.Contains(out, "\x1b") || strings.Count(out, "\nPROVEN") != 1 {
		t.Errorf("%q", out)
	}
}
