package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/policy"
)

// freeAddress is one that nobody listens on just now.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()
	return l.Addr().String()
}

// get is a page, nil where it is not there yet.
func get(address, path string) []byte {
	res, err := http.Get("http://" + address + path)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return page
}

// exporter is a running ledgerctl exporter.
type exporter struct {
	cmd     *exec.Cmd
	address string
	took    time.Duration // from its start to ready
}

func startExporter(bin, dir, policyFile, checkpoint string) *exporter {
	e := &exporter{address: freeAddress()}
	e.cmd = exec.Command(bin, "exporter", dir, "--policy", policyFile, "--listen", e.address, "--verify-every", "0", "--checkpoint", checkpoint)
	start := time.Now()
	check(e.cmd.Start())
	for get(e.address, "/readyz") == nil {
		if time.Since(start) > time.Minute {
			check(fmt.Errorf("the exporter is not ready after a minute"))
		}
		time.Sleep(time.Millisecond)
	}
	e.took = time.Since(start)
	return e
}

func (e *exporter) stop() {
	check(e.cmd.Process.Signal(syscall.SIGTERM))
	check(e.cmd.Wait())
}

func (b *bench) metrics() {
	fmt.Println("ledgerctl exporter, gated-mcp --metrics, and tracing")
	ctl, bin := b.build("ledgerctl"), b.build("gated-mcp")
	policyFile := filepath.Join(b.dir, "metrics-policy.json")
	check(os.WriteFile(policyFile, policy.Starter(), 0o600))

	small, large := filepath.Join(b.dir, "watched-small"), filepath.Join(b.dir, "watched")
	makeLedger(small, 10_000, 0)
	const records = 1_000_000
	makeLedger(large, records, 0)
	warm(filepath.Join(large, ledger.ActiveName))
	floor := parseFloor(filepath.Join(large, ledger.ActiveName))
	var cold, ofFloor, again, growth []float64
	for i := range 5 {
		point := func(of string) string { return filepath.Join(b.dir, fmt.Sprintf("checkpoint-%s-%d", of, i)) }
		e := startExporter(ctl, large, policyFile, point("large"))
		e.stop()
		cold, ofFloor = append(cold, e.took.Seconds()), append(ofFloor, e.took.Seconds()/floor.Seconds())
		startExporter(ctl, small, policyFile, point("small")).stop()
		few, many := startExporter(ctl, small, policyFile, point("small")), startExporter(ctl, large, policyFile, point("large"))
		few.stop()
		many.stop()
		again, growth = append(again, many.took.Seconds()), append(growth, many.took.Seconds()/few.took.Seconds())
	}
	note("catching up on 1,000,000 records, from the start of the process: %.2f s, %.0f records/s", median(cold), records/median(cold))
	b.figure("catching up / parsing the same lines from memory, one core", median(ofFloor), false, 2, "")
	b.figure("start with a checkpoint, 1,000,000 records / 10,000", median(growth), false, 1.2, "%.0f ms", median(again)*1000)

	b.scrapes(ctl)

	// The disk is most of a call and varies: so calls are taken in turn.
	b.figure("a call beside one on an equal server, p50", b.sideBySide(bin, policyFile, nil, nil, nil).p50, false, 1.02, "what this way of measuring sees where there is nothing")
	scraped := freeAddress()
	watched := b.sideBySide(bin, policyFile, nil, []string{"--metrics", scraped}, func() { get(scraped, "/metrics") })
	b.figure("write_note with --metrics, scraped every second / without, p50", watched.p50, false, 1.02, "processor time %.3f", watched.cpu)
	away := freeAddress()
	traced := b.sideBySide(bin, policyFile, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + away}, nil, nil)
	b.figure("write_note traced, no collector there / untraced, p50", traced.p50, false, 1.05, "processor time %.3f", traced.cpu)
}

// parseFloor is the time to parse the lines of a file from memory.
func parseFloor(path string) time.Duration {
	data, err := os.ReadFile(path)
	check(err)
	var v ledger.View
	start := time.Now()
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		check(v.Parse(data[:i]))
		data = data[i+1:]
	}
	return time.Since(start)
}

// scrapes times pages of 200 tools, beside the same bytes from memory.
func (b *bench) scrapes(ctl string) {
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprintf("tool_%03d", i)
	}
	text, err := json.Marshal(map[string]any{"version": 1, "allow": names})
	check(err)
	policyFile, dir := filepath.Join(b.dir, "policy-200.json"), filepath.Join(b.dir, "tools-200")
	check(os.WriteFile(policyFile, text, 0o600))
	makeLedger(dir, 1000, 0)
	e := startExporter(ctl, dir, policyFile, "")
	defer e.stop()
	page := get(e.address, "/metrics")
	still := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	defer still.Close()
	var made, kept []time.Duration
	for range 200 {
		start := time.Now()
		get(e.address, "/metrics")
		made = append(made, time.Since(start))
		start = time.Now()
		get(still.Listener.Addr().String(), "/metrics")
		kept = append(kept, time.Since(start))
	}
	note("a scrape with 200 tools: p50 %.1f ms, p99 %.1f ms; %d lines, %d KiB; the same bytes from memory %.1f ms",
		quantile(made, 0.5).Seconds()*1000, quantile(made, 0.99).Seconds()*1000, bytes.Count(page, []byte("\n")), len(page)>>10,
		quantile(kept, 0.5).Seconds()*1000)
}

// A cost is how much more a call takes, by its median and by processor time.
type cost struct{ p50, cpu float64 }

// sideBySide compares two servers, of which the second one has env and flags, by
// calls in turn, in rounds: the files of the one that begins last lie elsewhere on
// the disk, so they begin in turn too. Each second meanwhile is called.
func (b *bench) sideBySide(bin, policyFile string, env, flags []string, meanwhile func()) cost {
	const rounds, warmUp, each = 7, 100, 1000
	var p50s, cpus []float64
	for round := range rounds {
		dir, err := os.MkdirTemp(b.dir, "side")
		check(err)
		var servers [2]*gated
		for k := range servers {
			if which := k ^ round&1; which == 0 {
				servers[which] = startServer(bin, filepath.Join(dir, "plain"), policyFile, nil)
			} else {
				servers[which] = startServer(bin, filepath.Join(dir, "other"), policyFile, env, flags...)
			}
			servers[k^round&1].write("first-call")
		}
		var calls [2][]time.Duration
		last := time.Now()
		for i := range warmUp + each {
			for k := range servers {
				which := k ^ i&1 // neither is always the first
				start := time.Now()
				servers[which].write(fmt.Sprintf("side-%08d", i))
				if i >= warmUp {
					calls[which] = append(calls[which], time.Since(start))
				}
			}
			if meanwhile != nil && time.Since(last) > time.Second {
				meanwhile()
				last = time.Now()
			}
		}
		for _, g := range servers {
			g.stop()
		}
		p50s = append(p50s, quantile(calls[1], 0.5).Seconds()/quantile(calls[0], 0.5).Seconds())
		cpus = append(cpus, servers[1].cpu().Seconds()/servers[0].cpu().Seconds())
	}
	return cost{median(p50s), median(cpus)}
}
