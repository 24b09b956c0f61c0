package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// anchor runs the benchmark of ledgerctl anchor push, which has the S3 server
// of the tests beside it: a push of 1,000 new records in 1,000,000, and a full
// verify in the same run.
func (b *bench) anchor() {
	fmt.Println("ledgerctl anchor push, 1,000 new records of 1,000,000")
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "BenchmarkPush", "-benchtime", "10x", "github.com/auditledger/auditledger/cmd/ledgerctl")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	check(err)
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Benchmark") || strings.Contains(line, "SKIP") {
			note("%s", strings.TrimSpace(line))
		}
	}
}
