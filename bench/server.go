package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/auditledger/auditledger/server/policy"
)

// gated is a running gated-mcp.
type gated struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex // of in
	next  int
	wait  map[int]chan json.RawMessage
	waitM sync.Mutex
}

// startServer starts a server; env is added to the environment, flags to the arguments.
func startServer(bin, dir, policyFile string, env []string, flags ...string) *gated {
	g := &gated{cmd: exec.Command(bin, append([]string{"--ledger", dir, "--policy", policyFile, "--seal-at", "-1"}, flags...)...), wait: map[int]chan json.RawMessage{}}
	g.cmd.Env = append(os.Environ(), env...)
	in, err := g.cmd.StdinPipe()
	check(err)
	out, err := g.cmd.StdoutPipe()
	check(err)
	g.in = in
	check(g.cmd.Start())
	go func() {
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m struct {
				ID     int             `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			check(json.Unmarshal(line, &m))
			if m.Result == nil {
				check(fmt.Errorf("the server answered %s", line))
			}
			g.waitM.Lock()
			c := g.wait[m.ID]
			delete(g.wait, m.ID)
			g.waitM.Unlock()
			c <- m.Result
		}
	}()
	return g
}

const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func (g *gated) request(method, params string) {
	c := make(chan json.RawMessage, 1)
	g.mu.Lock()
	g.next++
	id := g.next
	g.waitM.Lock()
	g.wait[id] = c
	g.waitM.Unlock()
	_, err := fmt.Fprintf(g.in, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":{%s"_meta":%s}}`+"\n", id, method, params, meta)
	g.mu.Unlock()
	check(err)
	<-c
}

func (g *gated) write(id string) {
	g.request("tools/call", fmt.Sprintf(`"name":"write_note","arguments":{"request_id":"%s","text":"a note of usual length, as agents write them"},`, id))
}

// memory is a line of /proc/PID/status in MiB.
func (g *gated) memory(line string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for _, l := range strings.Split(string(status), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == line+":" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

func (g *gated) stop() {
	g.in.Close()
	check(g.cmd.Wait())
}

// cpu is the processor time that the server has used, once it was stopped.
func (g *gated) cpu() time.Duration {
	return g.cmd.ProcessState.UserTime() + g.cmd.ProcessState.SystemTime()
}

// newFiles tells what the file system takes for a new file, without any sync:
// each note is one, and in a crowded part of a disk it can cost a millisecond.
func (b *bench) newFiles() {
	const n = 200
	start := time.Now()
	for i := range n {
		f, err := os.OpenFile(filepath.Join(b.dir, fmt.Sprintf("new-%d", i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		check(err)
		check(f.Close())
	}
	note("a new file costs %.0f µs here", time.Since(start).Seconds()*1e6/n)
}

// bareNotes is what the disk alone takes for the files of notes: n of them, by
// so many writers at once, each written, synced and renamed, and its directory
// synced. It is the limit for notes of which nothing is recorded.
func (b *bench) bareNotes(writers, n int) time.Duration {
	dir, err := os.MkdirTemp(b.dir, "bare")
	check(err)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range n / writers {
				name := filepath.Join(dir, fmt.Sprintf("%d-%d", w, i))
				f, err := os.OpenFile(name+".tmp", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
				check(err)
				_, err = f.WriteString(`{"request_id":"req-00000001","text":"a note of usual length, as agents write them"}`)
				check(err)
				check(f.Sync())
				check(f.Close())
				check(os.Rename(name+".tmp", name))
				d, err := os.Open(dir)
				check(err)
				check(d.Sync())
				check(d.Close())
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func (b *bench) server() {
	fmt.Println("gated-mcp over stdio")
	bin := b.build("gated-mcp")
	policyFile := filepath.Join(b.dir, "policy.json")
	check(os.WriteFile(policyFile, policy.Starter(), 0o600))

	g := startServer(bin, filepath.Join(b.dir, "calls"), policyFile, nil)
	g.request("server/discover", "")
	serial := 0
	one := func(n int) []time.Duration {
		all := make([]time.Duration, 0, n)
		for range n {
			serial++
			id := fmt.Sprintf("one-%08d", serial)
			start := time.Now()
			g.write(id)
			all = append(all, time.Since(start))
		}
		return all
	}
	many := func(callers, each int) time.Duration {
		serial++
		round := serial
		start := time.Now()
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range each {
					g.write(fmt.Sprintf("many-%d-%d-%d", round, c, i))
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	b.diskSyncs(100)
	b.newFiles()
	one(100)
	const rounds, each = 7, 200
	var over, ratio, p50s, syncs, bareOne, bareMany, ofBare []float64
	for range rounds {
		sync := quantile(b.diskSyncs(each), 0.5).Seconds() * 1000
		calls := one(each)
		alone := float64(each) / sum(calls).Seconds()
		p50 := quantile(calls, 0.5).Seconds() * 1000
		together := 32 * 60 / many(32, 60).Seconds()
		p50s, syncs = append(p50s, p50), append(syncs, sync)
		bare := 32 * 20 / b.bareNotes(32, 32*20).Seconds()
		bareOne, bareMany = append(bareOne, 100/b.bareNotes(1, 100).Seconds()), append(bareMany, bare)
		ofBare = append(ofBare, together/bare)
		over, ratio = append(over, (p50-0.3)/sync), append(ratio, together/alone)
	}
	note("write_note p50 %.2f ms; one sync p50 %.3f ms (medians of %d rounds)", median(p50s), median(syncs), rounds)
	b.figure("(write_note p50 - 0.3 ms) / one sync", median(over), false, 3.5, "")
	b.figure("32 callers in flight / one", median(ratio), true, 8, "")
	note("the files of notes alone, with no server: %.0f/s by one writer, %.0f/s by 32; write_note by 32 callers is %.2f of that",
		median(bareOne), median(bareMany), median(ofBare))
	calls := g.next
	g.stop()
	note("processor time per call: %.0f µs", g.cpu().Seconds()*1e6/float64(calls))

	large := filepath.Join(b.dir, "million")
	_, size := makeLedger(large, 1_000_000, 0)
	var starts, peaks, rests []float64
	for range 5 {
		start := time.Now()
		g := startServer(bin, large, policyFile, nil)
		g.request("server/discover", "")
		starts = append(starts, time.Since(start).Seconds())
		serial++
		g.write(fmt.Sprintf("large-%08d", serial))
		rests, peaks = append(rests, g.memory("VmRSS")), append(peaks, g.memory("VmHWM"))
		g.stop()
	}
	b.figure("start on a ledger of 1,000,000 records, s", median(starts), false, 2, "%d MiB, every record checked", size>>20)
	b.figure("resident memory with it, MiB", median(rests), false, 40, "peak %.0f MiB", median(peaks))
}
