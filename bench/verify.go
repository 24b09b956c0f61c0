package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
)

// timed runs a command and returns its wall time, its peak resident memory in
// MiB and what it printed.
func timed(name string, args ...string) (time.Duration, float64, []byte) {
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	start := time.Now()
	check(cmd.Run())
	wall := time.Since(start)
	return wall, peakMiB(cmd.ProcessState), out.Bytes()
}

// warm reads a file into the page cache.
func warm(path string) {
	f, err := os.Open(path)
	check(err)
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	check(err)
}

// verified runs ledgerctl verify on path, which must be intact.
func verified(bin, path string) (time.Duration, float64) {
	wall, peak, out := timed(bin, "verify", "--format", "json", path)
	var r struct{ Verdict string }
	check(json.Unmarshal(out, &r))
	if r.Verdict != "intact" {
		check(fmt.Errorf("%s is %s", path, r.Verdict))
	}
	return wall, peak
}

// hashFloor is the time that it takes to hash the same messages, the hash
// before and the body, from memory on all cores.
func hashFloor(messages [][]byte) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for w := range n {
		wg.Go(func() {
			for i := w * len(messages) / n; i < (w+1)*len(messages)/n; i++ {
				sha256.Sum256(messages[i])
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// messages is what is hashed for each record of a file.
func messages(path string) [][]byte {
	f, err := os.Open(path)
	check(err)
	defer f.Close()
	var all [][]byte
	var v ledger.View
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return all
		}
		check(err)
		line = line[:len(line)-1]
		check(v.Parse(line))
		cut := bytes.Index(line, []byte(`"sha256":"`))
		if at := bytes.Index(line, []byte(`,"sha256":"`)); at >= 0 {
			cut = at + 1
		}
		m := append(make([]byte, 0, len(line)), v.Prev.String()...)
		m = append(m, line[:cut]...)
		all = append(all, append(m, line[cut+76:]...))
	}
}

func (b *bench) verify() {
	fmt.Println("ledgerctl verify, file in the page cache")
	bin := b.build("ledgerctl")
	const size = 1 << 30
	dir := filepath.Join(b.dir, "verify")
	records, bytes := makeLedger(dir, 0, size)
	file := filepath.Join(dir, ledger.ActiveName)
	note("%d records, %d bytes", records, bytes)
	warm(file)

	const rounds = 5
	// Memory first: a process counts what its parent had when it was started.
	var peaks []float64
	for range 3 {
		_, peak := verified(bin, file)
		peaks = append(peaks, peak)
	}
	b.linear(bin)
	var ours, openssl, sum, floor, toOpenssl, toFloor []float64
	all := messages(file)
	// What hashing from memory costs is measured apart from the rest, in the
	// same rounds.
	for range rounds {
		wall, _ := verified(bin, file)
		o, _, _ := timed("openssl", "dgst", "-sha256", file)
		s, _, _ := timed("sha256sum", file)
		f := hashFloor(all)
		ours, openssl, sum, floor = append(ours, wall.Seconds()), append(openssl, o.Seconds()), append(sum, s.Seconds()), append(floor, f.Seconds())
		toOpenssl, toFloor = append(toOpenssl, wall.Seconds()/o.Seconds()), append(toFloor, f.Seconds()/wall.Seconds())
	}
	all = nil
	debug.FreeOSMemory()
	mib := float64(bytes) / (1 << 20)
	note("verify %.0f MiB/s, openssl dgst -sha256 %.0f MiB/s, sha256sum %.0f MiB/s, hashing from memory on all cores %.0f MiB/s (medians of %d)",
		mib/median(ours), mib/median(openssl), mib/median(sum), mib/median(floor), rounds)
	b.figure("wall time / openssl dgst -sha256", median(toOpenssl), false, 0.7, "")
	b.figure("throughput / hashing the same messages from memory", median(toFloor), true, 0.75, "")
	b.figure("peak resident memory, MiB", median(peaks), false, 64, "")

	if _, err := exec.LookPath("python3"); err == nil {
		b.python(bin, mib/median(ours))
	}
	b.zstd(bin, file, float64(bytes))
}

// python compares with the reference in Python, on a smaller ledger.
func (b *bench) python(bin string, ours float64) {
	dir := filepath.Join(b.dir, "python")
	_, bytes := makeLedger(dir, 0, 32<<20)
	script := "testdata/vectors/reference.py"
	if _, err := os.Stat(script); err != nil {
		note("run from the root of the repository to compare with %s", script)
		return
	}
	var walls []float64
	for range 3 {
		wall, _, _ := timed("python3", script, "verify", filepath.Join(dir, ledger.ActiveName))
		walls = append(walls, wall.Seconds())
	}
	b.figure("throughput / the Python reference", ours/(float64(bytes)/(1<<20)/median(walls)), true, 60, "")
}

// longLines appends a record of 4 KiB and one of 20 MiB to a ledger for every
// quarter of a GiB.
func longLines(dir string, quarters int64) {
	s, err := store.Open(context.Background(), dir, store.Options{SealAt: -1})
	check(err)
	defer s.Close()
	for range quarters {
		for _, size := range []int{4 << 10, 20 << 20} {
			e := entry(0)
			e.Reason = strings.Repeat("x", size)
			_, err := s.Append(context.Background(), e)
			check(err)
		}
	}
}

// linear is the time for 0.25, 0.5, 1 and 2 GiB, beside what is proportional.
func (b *bench) linear(bin string) {
	var perGiB []float64
	var peak float64
	for _, quarter := range []int64{1, 2, 4, 8} {
		dir := filepath.Join(b.dir, fmt.Sprintf("linear-%d", quarter))
		_, bytes := makeLedger(dir, 0, quarter<<28)
		longLines(dir, quarter)
		warm(filepath.Join(dir, ledger.ActiveName))
		var walls []float64
		for range 5 {
			wall, p := verified(bin, dir)
			walls, peak = append(walls, wall.Seconds()), max(peak, p)
		}
		perGiB = append(perGiB, median(walls)/float64(bytes)*(1<<30))
		os.RemoveAll(dir)
	}
	lowest, highest := perGiB[0], perGiB[0]
	for _, p := range perGiB {
		lowest, highest = min(lowest, p), max(highest, p)
	}
	note("seconds a GiB at 0.25, 0.5, 1 and 2 GiB: %s", strings.Trim(fmt.Sprintf("%.3f", perGiB), "[]"))
	b.figure("0.25 to 2 GiB: most / least time a byte", highest/lowest, false, 1.1, "peak memory %.0f MiB", peak)
}

// zstd verifies the same records as compressed segments.
func (b *bench) zstd(bin, file string, bytes float64) {
	dir := filepath.Join(b.dir, "zstd")
	check(os.MkdirAll(dir, 0o700))
	in, err := os.Open(file)
	check(err)
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, ledger.SegmentName(1)+".zst"))
	check(err)
	w, err := zstd.NewWriter(out)
	check(err)
	_, err = io.Copy(w, in)
	check(err)
	check(w.Close())
	check(out.Close())
	// The active segment holds the record that a seal leaves.
	cmd := exec.Command(bin, "seal", dir)
	cmd.Stderr = os.Stderr
	check(cmd.Run())
	var rates []float64
	for range 3 {
		wall, _ := verified(bin, dir)
		rates = append(rates, bytes/1e6/wall.Seconds())
	}
	b.figure("zstd segments, MB of plain bytes a second", median(rates), true, 400, "")
}
