// Command bench prints every figure that the README claims, each beside the
// limit that the machine sets, measured in the same run.
//
//	go run ./bench            all of it
//	go run ./bench -only append,server,verify,anchor,snapshot,metrics
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/auditledger/auditledger/internal/bareenv"
	"github.com/auditledger/auditledger/ledger"
)

// bench is one run. Its directory is on the disk that is measured.
type bench struct {
	dir    string
	missed int
}

func main() {
	bareenv.Clear()
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	only := flag.String("only", "append,server,verify,anchor,snapshot,metrics", "which parts to run")
	dir := flag.String("dir", "/var/tmp", "a directory on the disk to measure, which must not be memory")
	flag.Parse()
	work, err := os.MkdirTemp(*dir, ".bench-")
	if err != nil {
		log.Fatal(err)
	}
	b := &bench{dir: work}
	fmt.Printf("%s, %d cores, %s, %s\n", cpu(), runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format("2006-01-02"))
	for _, part := range strings.Split(*only, ",") {
		switch part {
		case "append":
			b.appends()
		case "server":
			b.server()
		case "verify":
			b.verify()
		case "anchor":
			b.anchor()
		case "snapshot":
			b.snapshot()
		case "metrics":
			b.metrics()
		default:
			log.Printf("no part is called %q", part)
		}
	}
	os.RemoveAll(work)
	fmt.Printf("%d figures are not reached\n", b.missed)
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "model name"); ok {
			return strings.TrimLeft(name, "\t :")
		}
	}
	return runtime.GOARCH
}

// figure prints one figure and whether it reaches its bound.
func (b *bench) figure(what string, value float64, atLeast bool, bound float64, detail string, args ...any) {
	sign, ok := "<=", value <= bound
	if atLeast {
		sign, ok = ">=", value >= bound
	}
	word := "reached"
	if !ok {
		word = "NOT REACHED"
		b.missed++
	}
	fmt.Printf("  %-58s %9.2f  (%s %g: %s)  %s\n", what, value, sign, bound, word, fmt.Sprintf(detail, args...))
}

func note(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// quantile of d, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func median(f []float64) float64 {
	slices.Sort(f)
	return f[len(f)/2]
}

// entry is a record of usual size.
func entry(i int) ledger.Entry {
	return ledger.Entry{RequestID: fmt.Sprintf("req-%08d", i), Method: ledger.MethodCall, Name: "write_note", Decision: ledger.Allow,
		Outcome: ledger.Committed, ArgsDigest: ledger.Digest([]byte{byte(i)}).String(), Policy: ledger.Digest([]byte("policy")).String()}
}

// makeLedger writes a ledger of n records, or of at least so many bytes where n
// is 0, without a store.
func makeLedger(dir string, n int, bytes int64) (records int, size int64) {
	check(os.MkdirAll(dir, 0o700))
	f, err := os.OpenFile(filepath.Join(dir, ledger.ActiveName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	check(err)
	w := bufio.NewWriterSize(f, 1<<20)
	var head ledger.Head
	var line []byte
	for ; n == 0 && size < bytes || records < n; records++ {
		e := entry(records)
		line, head.Sum = e.AppendLine(line[:0], head.Seq+1, time.Now().UnixNano(), head.Sum)
		head.Seq++
		w.Write(line)
		size += int64(len(line))
	}
	check(w.Flush())
	check(f.Sync())
	check(f.Close())
	text, _ := head.MarshalText()
	check(os.WriteFile(filepath.Join(dir, ledger.HeadName), text, 0o600))
	return records, size
}

// build builds a command of this module and returns its path.
func (b *bench) build(name string) string {
	path := filepath.Join(b.dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/auditledger/auditledger/cmd/"+name)
	cmd.Stderr = os.Stderr
	check(cmd.Run())
	path, err := filepath.Abs(path)
	check(err)
	return path
}
