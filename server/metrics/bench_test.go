//go:build unix

package metrics

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/server/policy"
)

// million makes a ledger of 1,000,000 records of 200 tools, an intent and an
// outcome in turn, and a policy that names the tools.
func million(b *testing.B) (dir string, p *policy.Policy) {
	b.Helper()
	dir = filepath.Join(b.TempDir(), "ledger")
	tools := `"tool0"`
	for i := range 199 {
		tools += fmt.Sprintf(`,"tool%d"`, i+1)
	}
	write(b, dir, 1_000_000, func(i int, last ledger.Hash) ledger.Entry {
		e := entry(fmt.Sprintf("tool%d", i/2%200), ledger.Allow, ledger.Committed, "")
		e.RequestID = fmt.Sprintf("request-%d", i/2)
		if i%2 == 0 {
			e.Decision, e.Outcome = ledger.Pending, ledger.Intent
		} else {
			e.Intent = last.String()
		}
		return e
	})
	return dir, policyOf(b, `{"version":1,"allow":[`+tools+`]}`)
}

func BenchmarkCatchUp(b *testing.B) {
	dir, p := million(b)
	for b.Loop() {
		m := try(b, Config{Policies: []*policy.Policy{p}}, dir)
		if err := m.once(b.Context()); err != nil || m.watches[0].tally.records != 1_000_000 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkResume is from the start of a process to its first totals.
func BenchmarkResume(b *testing.B) {
	dir, p := million(b)
	c := Config{Policies: []*policy.Policy{p}, Checkpoint: filepath.Join(b.TempDir(), "checkpoint")}
	try(b, c, dir).once(b.Context())
	for b.Loop() {
		m := try(b, c, dir)
		n := m.watches[0].tally.records
		if err := m.once(b.Context()); err != nil || n != 1_000_000 || m.watches[0].shown.records != n {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkScrape is of a ledger with 200 tools.
func BenchmarkScrape(b *testing.B) {
	dir, p := million(b)
	m := try(b, Config{Policies: []*policy.Policy{p}, VerifyEvery: 1, Server: true}, dir).onceMore(b)
	text := page(b, m)
	for b.Loop() {
		page(b, m)
	}
	b.ReportMetric(float64(len(text)), "bytes")
	b.ReportMetric(float64(len(parse(b, text, false))), "series")
}

// BenchmarkCalled is what a call costs that is counted.
func BenchmarkCalled(b *testing.B) {
	m := try(b, Config{Server: true}, b.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		m.Called("write_note", 1e6)
		m.Appended(1e6, nil)
		m.Appended(1e6, nil)
	}
}
