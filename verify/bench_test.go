package verify

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// benchSize is the size of the ledger that is measured.
const benchSize = 256 << 20

// benchFile is a ledger of benchSize bytes, as a server writes it, and the
// messages that its hashes are over, split for each processor.
func benchFile(b *testing.B) (path string, messages [][][]byte) {
	path = filepath.Join(b.TempDir(), ledger.ActiveName)
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	n := runtime.GOMAXPROCS(0)
	messages = make([][][]byte, n)
	var m maker
	size := 0
	for i := 0; size < benchSize; i++ {
		m.call(i)
		if len(m.lines) < 1000 {
			continue
		}
		data := join(m.lines)
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		all := make([]byte, 0, len(data))
		for _, l := range m.lines {
			var v ledger.View
			if err := v.Parse(l); err != nil {
				b.Fatal(err)
			}
			head, tail := v.Body()
			start := len(all)
			all, _ = v.Prev.AppendText(all)
			all = append(append(all, head...), tail...)
			k := i % n
			messages[k] = append(messages[k], all[start:len(all):len(all)])
		}
		size += len(data)
		m.lines = nil
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return path, messages
}

// median is the middle of what runs took.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return d[len(d)/2].Seconds()
}

// BenchmarkVerify prints the time of verify over that of the same hashes made
// from memory on all processors, and over that of "openssl dgst -sha256" on the
// same file. They take turns, so that all have the same machine.
func BenchmarkVerify(b *testing.B) {
	path, messages := benchFile(b)
	var verify, floor, openssl []time.Duration
	clock := func(d *[]time.Duration, f func()) {
		start := time.Now()
		f()
		*d = append(*d, time.Since(start))
	}
	b.SetBytes(benchSize)
	for b.Loop() {
		clock(&verify, func() {
			r, err := Files(b.Context(), []string{path}, Options{})
			if err != nil || r.Verdict != Intact {
				b.Fatal(r, err)
			}
		})
		b.StopTimer()
		clock(&floor, func() {
			var wg sync.WaitGroup
			for _, part := range messages {
				wg.Go(func() {
					for _, m := range part {
						sha256.Sum256(m)
					}
				})
			}
			wg.Wait()
		})
		clock(&openssl, func() {
			if exec.CommandContext(b.Context(), "openssl", "dgst", "-sha256", path).Run() != nil {
				openssl = nil
			}
		})
		b.StartTimer()
	}
	b.ReportMetric(median(floor)/median(verify), "of-floor-speed")
	if len(openssl) > 0 {
		b.ReportMetric(median(verify)/median(openssl), "of-openssl-time")
	}
}

func BenchmarkVerifyZstd(b *testing.B) {
	path, _ := benchFile(b)
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	z := squeeze(b, data)
	b.Logf("%d to %d bytes", len(data), len(z))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := Reader(b.Context(), "-", bytes.NewReader(z), Options{})
		if err != nil || r.Verdict != Intact {
			b.Fatal(asText(r), err)
		}
	}
}

// BenchmarkCheck is one worker on one block.
func BenchmarkCheck(b *testing.B) {
	data := join(calls(550))
	orig := slices.Concat(make([]byte, headroom), data, bytes.Repeat([]byte{'\n'}, padding))
	buf := make([]byte, len(orig))
	w := newWorker(newWatch(), false, 10)
	var r result
	blk := block{buf: buf, n: len(data), last: true}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		copy(buf, orig)
		w.check(b.Context(), &blk, &r)
	}
}
