package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// snapshot measures ledgerctl snapshot beside find and sha256sum on the same
// files, all of them in the cache, in turns.
func (b *bench) snapshot() {
	fmt.Println("ledgerctl snapshot, warm cache")
	bin := b.build("ledgerctl")
	random := rand.NewChaCha8([32]byte{1})

	const files = 100_000
	small := filepath.Join(b.dir, "small-files")
	var total int64
	content := make([]byte, 4096)
	for i := range files {
		dir := filepath.Join(small, fmt.Sprintf("%03d", i%1000))
		if i < 1000 {
			check(os.MkdirAll(dir, 0o700))
		}
		size := 1 + int(random.Uint64()%uint64(len(content)))
		random.Read(content[:size])
		check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%06d", i)), content[:size], 0o600))
		total += int64(size)
	}
	b.snapshotOf(bin, small, 7, 1.2, fmt.Sprintf("%d small files (%d MiB)", files, total>>20))
	check(os.RemoveAll(small))

	const size = 4 << 30
	large := filepath.Join(b.dir, "large-file")
	check(os.Mkdir(large, 0o700))
	f, err := os.Create(filepath.Join(large, "file"))
	check(err)
	_, err = io.CopyN(f, random, size)
	check(err)
	check(f.Close())
	b.snapshotOf(bin, large, 5, 1.05, "one file of 4 GiB")
	check(os.RemoveAll(large))
}

func (b *bench) snapshotOf(bin, dir string, rounds int, bound float64, what string) {
	run := func(name string, args ...string) (time.Duration, float64) {
		cmd := exec.Command(name, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		start := time.Now()
		if err := cmd.Run(); err != nil { // its output goes to the null device
			check(fmt.Errorf("%s: %w: %s", name, err, errs.Bytes()))
		}
		return time.Since(start), peakMiB(cmd.ProcessState)
	}
	theirs := func() time.Duration {
		d, _ := run("sh", "-c", `find "$0" -type f -print0 | xargs -0 -P2 sha256sum`, dir)
		return d
	}
	theirs() // into the cache
	var ratios, ours, others, peaks []float64
	for i := range rounds {
		var other time.Duration
		if i%2 == 0 {
			other = theirs()
		}
		d, peak := run(bin, "snapshot", dir)
		if i%2 == 1 {
			other = theirs()
		}
		ratios = append(ratios, d.Seconds()/other.Seconds())
		ours, others, peaks = append(ours, d.Seconds()), append(others, other.Seconds()), append(peaks, peak)
	}
	note("%s: %.2f s; find | xargs -P2 sha256sum: %.2f s (medians of %d rounds)", what, median(ours), median(others), rounds)
	b.figure(what+" / find and sha256sum", median(ratios), false, bound, "")
	if peaks[0] > 0 {
		median(peaks) // sorts
		b.figure("peak resident memory with it, MiB", peaks[len(peaks)-1], false, 64, "the worst of %d rounds", rounds)
	}
}
