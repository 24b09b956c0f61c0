package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

const day0 = 1785200000000000000

// A maker makes ledgers.
type maker struct {
	seq   uint64
	ts    int64
	prev  ledger.Hash
	lines [][]byte // without "\n"
}

func (m *maker) add(e ledger.Entry) ledger.Hash {
	m.seq++
	m.ts += 1_000_003
	line, sum := e.AppendLine(nil, m.seq, day0+m.ts, m.prev)
	m.prev = sum
	m.lines = append(m.lines, line[:len(line)-1])
	return sum
}

// call adds the records of one call of a tool: an intent and its outcome, a
// read, or a denial.
func (m *maker) call(n int) {
	args := ledger.Digest(fmt.Append(nil, n)).String()
	id := fmt.Sprintf("req-%06d", n)
	switch n % 5 {
	case 0:
		m.add(ledger.Entry{RequestID: "observe", Method: ledger.MethodCall, Name: "read_ledger", Decision: ledger.Allow, Outcome: ledger.Observed, ArgsDigest: args})
	case 1:
		m.add(ledger.Entry{RequestID: "missing", Method: ledger.MethodCall, Name: "rm_rf \"é\"\t", Decision: ledger.Deny, Outcome: ledger.NotExecuted, ArgsDigest: args,
			Reason: ledger.ReasonArgumentRule, Rule: "text.max_len"})
	default:
		e := ledger.Entry{RequestID: id, Method: ledger.MethodCall, Name: "write_note", Decision: ledger.Pending, Outcome: ledger.Intent, ArgsDigest: args, Policy: args}
		e.Intent = m.add(e).String()
		e.Decision, e.Outcome = ledger.Allow, ledger.Committed
		m.add(e)
	}
}

func (m *maker) seal() {
	m.add(ledger.Entry{RequestID: "missing", Method: ledger.MethodSeal, Name: "seal", Decision: ledger.Allow, Outcome: ledger.Committed, ArgsDigest: ledger.Digest(nil).String()})
}

// calls is a ledger of n records.
func calls(n int) [][]byte {
	var m maker
	for i := 0; len(m.lines) < n; i++ {
		m.call(i)
	}
	return m.lines[:n]
}

func join(lines [][]byte) []byte {
	var b []byte
	for _, l := range lines {
		b = append(append(b, l...), '\n')
	}
	return b
}

// reseal gives a record, with changes, the link prev and a hash that is right.
func reseal(t testing.TB, line []byte, prev ledger.Hash, changes map[string]any) []byte {
	t.Helper()
	var rec map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&rec); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		rec[k] = v
	}
	rec["prev_sha256"] = prev.String()
	delete(rec, "sha256")
	body := canonicalOf(t, rec)
	rec["sha256"] = ledger.Hash(sha256.Sum256(append([]byte(prev.String()), body...))).String()
	return canonicalOf(t, rec)
}

func canonicalOf(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	b, err := canon.Append(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sumOfLine(t testing.TB, line []byte) ledger.Hash {
	t.Helper()
	r, err := ledger.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return r.Sum
}

// squeeze compresses parts as one frame each.
func squeeze(t testing.TB, parts ...[]byte) []byte {
	t.Helper()
	w, err := encoder()
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, p := range parts {
		b = w.EncodeAll(p, b)
	}
	return b
}

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) { return zstd.NewWriter(nil, zstd.WithEncoderCRC(true)) })

// write makes a directory of files, with modes that give no warnings.
func write(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// split spreads lines, which are the records 1, 2, 3 …, over segments that
// begin at the given positions.
func split(t testing.TB, lines [][]byte, at ...int) map[string][]byte {
	files := map[string][]byte{}
	from := 0
	for _, n := range at {
		files[ledger.SegmentName(uint64(from+1))] = join(lines[from:n])
		from = n
	}
	files[ledger.ActiveName] = join(lines[from:])
	return files
}

func headText(t testing.TB, seq uint64, sum ledger.Hash) []byte {
	b, err := ledger.Head{Seq: seq, Sum: sum}.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkDir(t testing.TB, dir string, o Options) *Report {
	t.Helper()
	r, err := Dir(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkBytes(t testing.TB, data []byte, o Options) *Report {
	t.Helper()
	r, err := Reader(t.Context(), "-", bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// brief is a report's faults as text: "kind segment:line".
func brief(r *Report) string {
	var s []string
	for _, f := range r.Faults {
		s = append(s, fmt.Sprintf("%s %s:%d", f.Kind, f.Segment, f.Line))
	}
	return strings.Join(s, ", ")
}

func want(t testing.TB, r *Report, v Verdict, faults string) {
	t.Helper()
	if r.Verdict != v || brief(r) != faults {
		t.Errorf("got %s [%s], want %s [%s]\n%s", r.Verdict, brief(r), v, faults, asText(r))
	}
}

func asText(r *Report) string {
	var b bytes.Buffer
	r.WriteText(&b, Since{})
	return b.String()
}

func warned(r *Report, kind string) (w []Warning) {
	for _, x := range r.Warnings {
		if x.Kind == kind {
			w = append(w, x)
		}
	}
	return w
}

func clone(lines [][]byte) [][]byte {
	c := make([][]byte, len(lines))
	for i := range lines {
		c[i] = bytes.Clone(lines[i])
	}
	return c
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func without(lines [][]byte, i int) [][]byte {
	return slices.Delete(slices.Clone(lines), i, i+1)
}
