//go:build unix

package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// layout writes lines over segments that begin at the ordinals in at, every
// second of them compressed, and a head.json.
func layout(t testing.TB, lines [][]byte, at []int, head ledger.Head) string {
	files := split(t, lines, at...)
	n := 0
	for _, from := range append([]int{0}, at...)[:len(at)] {
		name := ledger.SegmentName(uint64(from + 1))
		if n++; n%2 == 0 {
			data := files[name]
			delete(files, name)
			files[name+".zst"] = squeeze(t, data[:len(data)/3], data[len(data)/3:])
		}
	}
	files[ledger.HeadName] = headText(t, head.Seq, head.Sum)
	return write(t, files)
}

// TestRandomChange makes one change to a ledger of many segments. It must
// always be found, at the changed line or the record after it.
func TestRandomChange(t *testing.T) {
	const records = 120
	base := calls(records)
	head := ledger.Head{Seq: records, Sum: sumOfLine(t, base[records-1])}
	rounds := 600
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		r := newRand(uint64(round))
		lines := clone(base)
		i := r.IntN(records)
		what := ""
		switch r.IntN(7) {
		case 0:
			what = "byte"
			b := lines[i]
			k := r.IntN(len(b))
			old := b[k]
			for b[k] == old {
				b[k] = byte(r.Uint32())
			}
		case 1:
			what = "bit"
			b := lines[i]
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		case 2:
			what = "remove"
			lines = without(lines, i)
		case 3:
			what = "insert a copy"
			lines = slices.Insert(lines, i, lines[r.IntN(records)])
		case 4:
			what = "insert a forged record"
			var prev ledger.Hash
			if i > 0 {
				prev = sumOfLine(t, lines[i-1])
			}
			lines = slices.Insert(lines, i, reseal(t, lines[r.IntN(records)], prev, map[string]any{"name": "forged"}))
		case 5:
			what = "swap"
			k := r.IntN(records)
			if k == i {
				continue
			}
			lines[i], lines[k] = lines[k], lines[i]
			i = min(i, k)
		case 6:
			what = "insert rubbish"
			b := make([]byte, r.IntN(600))
			for k := range b {
				b[k] = byte(' ' + r.IntN(90))
			}
			lines = slices.Insert(lines, i, b)
		}
		var at []int
		for k := 0; k < 5; k++ {
			at = append(at, 1+r.IntN(len(lines)-1))
		}
		slices.Sort(at)
		at = slices.Compact(at)
		dir := layout(t, lines, at, head)
		o := Options{blockSize: 1 + r.IntN(4000), Workers: 1 + r.IntN(4)}
		report := checkDir(t, dir, o)
		if report.Verdict != Tampered || len(report.Faults) == 0 {
			t.Fatalf("round %d: %s at line %d: %s\n%s", round, what, i+1, report.Verdict, asText(report))
		}
		if first := report.Faults[0].at; first < int64(i) || first > int64(i)+1 {
			t.Fatalf("round %d: %s at line %d: first fault at %d\n%s", round, what, i+1, first+1, asText(report))
		}
		checkText(t, report)
	}
}

func checkText(t *testing.T, r *Report) {
	t.Helper()
	text := asText(r)
	if !strings.Contains(text, "\n"+strings.ToUpper(string(r.Verdict))+": ") {
		t.Fatalf("the verdict is not in the text:\n%s", text)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"verdict", "records", "head", "anchored_through", "faults", "warnings", "in_doubt", "segments", "notes", "not_checked"} {
		if v, ok := m[key]; !ok || v == nil {
			t.Fatalf("no %s in %s", key, b)
		}
	}
}

// TestEveryEdge replaces, removes and doubles each record in turn, so that each
// stands at the edges of blocks and segments once.
func TestEveryEdge(t *testing.T) {
	const records = 40
	base := calls(records)
	head := ledger.Head{Seq: records, Sum: sumOfLine(t, base[records-1])}
	at := []int{9, 10, 25}
	place := func(line int, at []int) string {
		name, from := ledger.ActiveName, 0
		for k, n := range append([]int{0}, at...) {
			if line >= n {
				from = n
				name = ledger.SegmentName(uint64(n + 1))
				if k == len(at) {
					name = ledger.ActiveName
				} else if k%2 == 1 {
					name += ".zst"
				}
			}
		}
		return fmt.Sprintf("%s:%d", name, line-from+1)
	}
	for i := range base {
		for _, size := range []int{1, 900, 2000, 0} {
			o := Options{blockSize: size}
			lines := clone(base)
			lines[i] = bytes.Replace(lines[i], []byte(`"decision":"`), []byte(`"decision":"x`), 1)
			want(t, checkDir(t, layout(t, lines, at, head), o), Tampered, "altered "+place(i, at))

			forged := clone(base)
			var prev ledger.Hash
			if i > 0 {
				prev = sumOfLine(t, base[i-1])
			}
			forged[i] = reseal(t, base[i], prev, map[string]any{"decision": "deny!"})
			expect := fmt.Sprintf("forked %s:%d", ledger.ActiveName, records-25+1)
			if i < records-1 {
				expect = "missing " + place(i+1, at)
			}
			want(t, checkDir(t, layout(t, forged, at, head), o), Tampered, expect)

			// Without a record, the segments after it begin one line earlier.
			var earlier []int
			for _, n := range at {
				if n > i {
					n--
				}
				earlier = append(earlier, n)
			}
			var kept []int
			for k, n := range earlier {
				if k == 0 && n > 0 || k > 0 && n > earlier[k-1] {
					kept = append(kept, n)
				}
			}
			r := checkDir(t, layout(t, without(base, i), kept, head), o)
			kind := Missing
			if i == records-1 {
				kind = Truncated
			}
			if r.Verdict != Tampered || r.Faults[0].Kind != kind || r.Faults[0].at != int64(i) {
				t.Errorf("without record %d: %s", i+1, asText(r))
			}
		}
	}
}

// TestEveryMember changes each member of a record in turn.
func TestEveryMember(t *testing.T) {
	var m maker
	m.call(2)
	m.add(ledger.Entry{RequestID: "r", Method: "m", Name: "n", Decision: "allow", Outcome: "o", ArgsDigest: "a", Intent: "i", Policy: "p", Reason: "w", Rule: "u"})
	m.call(3)
	for key := range map[string]any{"ts": 0, "request_id": 0, "method": 0, "name": 0, "decision": 0, "outcome": 0, "args_digest": 0, "prev_sha256": 0, "sha256": 0,
		"seq": 0, "intent": 0, "policy": 0, "reason": 0, "rule": 0} {
		lines := clone(m.lines)
		mark := []byte(`"` + key + `":`)
		k := bytes.Index(lines[2], mark) + len(mark)
		if lines[2][k] == '"' {
			k++
		}
		if c := &lines[2][k]; *c == '1' {
			*c = '2'
		} else {
			*c = '1'
		}
		want(t, checkBytes(t, join(lines), Options{}), Tampered, "altered -:3")
	}
}

func TestStream(t *testing.T) {
	lines := calls(2000)
	data := join(lines)
	for _, o := range []Options{{}, {blockSize: 100}, {Workers: 4, blockSize: 7000}} {
		want(t, checkBytes(t, data, o), Intact, "")
		r, err := Reader(t.Context(), "-", &oneByte{bytes.NewReader(data)}, o)
		if err != nil {
			t.Fatal(err)
		}
		want(t, r, Intact, "")
		want(t, checkBytes(t, squeeze(t, data[:1000], data[1000:]), o), Intact, "")
		moved := slices.Insert(without(lines, 50), 1500, lines[50])
		want(t, checkBytes(t, join(moved), o), Tampered, "reordered -:51")
		want(t, checkBytes(t, join(slices.Insert(slices.Clone(lines), 1500, lines[50])), o), Tampered, "duplicated -:1501")
	}
	// Past the memory, what cannot be found is missing, and that is said.
	moved := slices.Insert(without(lines, 50), 1500, lines[50])
	r := checkBytes(t, join(moved), Options{maxMemory: 500})
	if r.Verdict != Tampered || r.Faults[0].Kind != Missing || len(r.Notes) == 0 {
		t.Error(asText(r))
	}
	want(t, checkBytes(t, nil, Options{}), Unchecked, "")
	want(t, checkBytes(t, data[:100], Options{}), Unchecked, "")
	want(t, checkBytes(t, data[:len(data)-1], Options{}), Torn, "")
	r, err := Reader(t.Context(), "-", io.MultiReader(bytes.NewReader(data), &failed{errors.New("broken pipe")}), Options{})
	if err != nil || r.Verdict != Unchecked || r.Records != 2000 {
		t.Error(asText(r))
	}
}

type oneByte struct{ r io.Reader }

func (o *oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1+len(p)/2)]) }

func TestLongLines(t *testing.T) {
	var m maker
	var lines [][]byte
	var prev ledger.Hash
	for i, n := range []int{70_000, 1_100_000, 20_000_000, 10, 262_144, 20_000_000} {
		m.call(2)
		l := reseal(t, m.lines[0], prev, map[string]any{"request_id": strings.Repeat("r", n), "seq": i + 1})
		lines, prev = append(lines, l), sumOfLine(t, l)
	}
	data := join(lines)
	file := filepath.Join(write(t, map[string][]byte{"a": data}), "a")
	check := func(o Options, v Verdict, faults string) {
		t.Helper()
		want(t, checkBytes(t, data, o), v, strings.ReplaceAll(faults, "a:", "-:"))
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Files(t.Context(), []string{file}, o)
		if err != nil {
			t.Fatal(err)
		}
		want(t, r, v, faults)
	}
	check(Options{}, Intact, "")
	check(Options{Workers: 3, blockSize: 1000}, Intact, "")
	want(t, checkBytes(t, squeeze(t, data), Options{}), Intact, "")
	// Past MaxLine a line is not looked at.
	check(Options{maxLine: 10_000_000}, Tampered, "malformed a:3, malformed a:6")
	data[len(lines[0])+len(lines[1])+2+9_000_000] ^= 1
	check(Options{}, Tampered, "altered a:3")
}

func TestArchives(t *testing.T) {
	lines := calls(3000)
	plain := join(lines[:2000])
	name := ledger.SegmentName(1) + ".zst"
	run := func(z []byte) *Report {
		return checkDir(t, write(t, map[string][]byte{name: z, ledger.ActiveName: join(lines[2000:])}), Options{})
	}
	k := len(plain) / 2
	want(t, run(squeeze(t, plain)), Intact, "")
	want(t, run(squeeze(t, plain[:k], plain[k:])), Intact, "")
	want(t, run(squeeze(t, plain[:k], nil, plain[k:])), Intact, "")
	z := squeeze(t, plain[:k], plain[k:])
	whole := squeeze(t, plain[:k])
	for what, bad := range map[string][]byte{
		"cut": z[:len(z)-20], "cut by one": z[:len(z)-1], "cut in the second magic": z[:len(whole)+2], "rubbish": append(slices.Clone(z), "rubbish"...),
		"one byte more": append(slices.Clone(z), 0), "three bytes more": append(slices.Clone(z), 1, 2, 3), "newline": append(slices.Clone(z), '\n'), "empty": {},
	} {
		r := run(bad)
		if r.Verdict != Tampered || !strings.Contains(asText(r), name) || len(r.Faults) != 1 {
			t.Errorf("%s: %s", what, asText(r))
		}
	}
	flipped := slices.Clone(z)
	flipped[len(flipped)/2] ^= 1
	if r := run(flipped); r.Verdict != Tampered {
		t.Error(asText(r))
	}
	// A whole frame less is a link that leads nowhere.
	r := run(whole)
	if r.Verdict != Tampered {
		t.Error(asText(r))
	}
}

func TestTwice(t *testing.T) {
	lines := calls(30)
	files := split(t, lines, 10)
	name := ledger.SegmentName(1)
	files[name+".zst"] = []byte("stray")
	r := checkDir(t, write(t, files), Options{})
	want(t, r, Intact, "")
	if w := warned(r, WarnStray); len(w) != 1 || w[0].Segment != name+".zst" || !strings.Contains(w[0].Detail, "not read: "+name+" is there") {
		t.Error(asText(r))
	}
}

// TestEndOfSegmentMissing: what is missing between two segments may be the end of
// the first, or a whole one; that there is no audit.jsonl is no fault, and is told.
func TestEndOfSegmentMissing(t *testing.T) {
	lines := calls(30)
	files := split(t, lines, 10, 20, 25)
	files[ledger.SegmentName(11)] = join(lines[10:19])
	r := checkDir(t, write(t, files), Options{})
	want(t, r, Tampered, "missing "+ledger.SegmentName(21)+":1")
	if d := r.Faults[0].Detail; !strings.Contains(d, "the end of "+ledger.SegmentName(11)+" is missing, or segment "+ledger.SegmentName(20)+" is missing") {
		t.Error(d)
	}
	files = split(t, lines, 10, 20)
	delete(files, ledger.ActiveName)
	r = checkDir(t, write(t, files), Options{})
	want(t, r, Intact, "")
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "there is no audit.jsonl") }) {
		t.Error(asText(r))
	}
}

func TestContinuation(t *testing.T) {
	var m maker
	for i := range 5 {
		m.call(i)
	}
	n := len(m.lines)
	m.seal()
	m.call(2)
	dir := write(t, split(t, m.lines, n))
	active := filepath.Join(dir, ledger.ActiveName)
	files := func(names ...string) *Report {
		r, err := Files(t.Context(), names, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want(t, checkDir(t, dir, Options{}), Intact, "")
	r := files(active)
	want(t, r, Intact, "")
	if !strings.Contains(asText(r), fmt.Sprintf("starts at seq %d, linked to an earlier segment", n+1)) || r.Head.Seq != uint64(len(m.lines)) {
		t.Error(asText(r))
	}
	want(t, files(filepath.Join(dir, ledger.SegmentName(1)), active), Intact, "")
	r = files(active, filepath.Join(dir, ledger.SegmentName(1)))
	if r.Verdict != Tampered {
		t.Error(asText(r))
	}
	// Without the record of the seal, it is a ledger without its beginning.
	if err := os.WriteFile(active, join(m.lines[n+1:]), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, files(active), Tampered, "missing audit.jsonl:1")
	named := write(t, map[string][]byte{ledger.SegmentName(uint64(n + 2)): join(m.lines[n+1:])})
	want(t, files(filepath.Join(named, ledger.SegmentName(uint64(n+2)))), Intact, "")
	want(t, checkDir(t, named, Options{}), Tampered, fmt.Sprintf("missing %s:1", ledger.SegmentName(uint64(n+2))))
	want(t, files(filepath.Join(dir, "absent")), Unchecked, "")
	want(t, files(dir), Unchecked, "")
}

func TestOddFiles(t *testing.T) {
	lines := calls(20)
	dir := write(t, split(t, lines, 10))
	sealed := filepath.Join(dir, ledger.SegmentName(1))
	elsewhere := filepath.Join(t.TempDir(), "x")
	if err := os.Rename(sealed, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, sealed); err != nil {
		t.Fatal(err)
	}
	r := checkDir(t, dir, Options{})
	want(t, r, Unchecked, "")
	if !strings.Contains(asText(r), "symbolic link") {
		t.Error(asText(r))
	}
	os.Remove(sealed)
	if err := syscall.Mkfifo(sealed, 0o600); err != nil {
		t.Skip(err)
	}
	want(t, checkDir(t, dir, Options{}), Unchecked, "")
	os.Remove(sealed)
	if err := os.Mkdir(sealed, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, checkDir(t, dir, Options{}), Unchecked, "")
	os.Remove(sealed)
	if os.Getuid() != 0 {
		if err := os.WriteFile(sealed, join(lines[:10]), 0o000); err != nil {
			t.Fatal(err)
		}
		want(t, checkDir(t, dir, Options{}), Unchecked, "")
	}

	want(t, checkDir(t, filepath.Join(dir, "absent"), Options{}), Unchecked, "")
	want(t, checkDir(t, elsewhere, Options{}), Unchecked, "")
	empty := t.TempDir()
	want(t, checkDir(t, empty, Options{}), Unchecked, "")
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Error("something was created")
	}
}

func TestEmptySegment(t *testing.T) {
	lines := calls(20)
	files := split(t, lines, 10)
	files[ledger.SegmentName(1)] = nil
	want(t, checkDir(t, write(t, files), Options{}), Tampered, "missing audit-00000000000000000001.jsonl:0")
	files = split(t, lines, 20)
	want(t, checkDir(t, write(t, files), Options{}), Intact, "") // sealed, and nothing written since
	delete(files, ledger.ActiveName)
	want(t, checkDir(t, write(t, files), Options{}), Intact, "")
}

func TestWarnings(t *testing.T) {
	var m maker
	m.call(0)
	m.ts += int64(time.Hour)
	m.call(0)
	m.ts -= 2 * int64(time.Hour)
	m.add(ledger.Entry{RequestID: "r", Method: "m", Name: "n", Decision: ledger.Pending, Outcome: ledger.Intent})
	m.ts += int64(30 * time.Hour)
	m.add(ledger.Entry{RequestID: "r2", Method: "m", Name: "n", Decision: ledger.Pending, Outcome: ledger.Intent})
	open := m.add(ledger.Entry{RequestID: "r3", Method: "m", Name: "n", Decision: ledger.Pending, Outcome: ledger.Intent})
	m.add(ledger.Entry{RequestID: "r3", Method: "m", Name: "n", Decision: ledger.Pending, Outcome: ledger.Error, Intent: open.String()})
	m.add(ledger.Entry{RequestID: "r3", Method: "m", Name: "n", Decision: ledger.Void, Outcome: ledger.NotExecuted, Intent: open.String()})
	files := map[string][]byte{ledger.ActiveName: join(m.lines), ledger.HeadName: []byte("{}"), "evil\x1b[2J\u202e.jsonl": nil, "audit-1.jsonl": join(m.lines), ledger.LockName: nil}
	dir := write(t, files)
	os.Chmod(filepath.Join(dir, ledger.ActiveName), 0o640)
	now := func() time.Time { return time.Unix(0, day0+m.ts+int64(time.Minute)) }
	for _, size := range []int{1, 500, 0} {
		r := checkDir(t, dir, Options{Now: now, blockSize: size})
		want(t, r, Intact, "")
		for kind, n := range map[string]int{WarnClock: 1, WarnDoubt: 1, WarnStale: 1, WarnStray: 2, WarnMode: 1, WarnHeadFile: 1} {
			if got := warned(r, kind); len(got) != n {
				t.Errorf("%d warnings of kind %s, want %d\n%s", len(got), kind, n, asText(r))
			}
		}
		if r.InDoubt != 2 || r.ClockSteps != 1 || !r.Stable.Locked {
			t.Error(asText(r))
		}
		if text := asText(r); strings.ContainsAny(text, "\x1b\u202e\r") || !strings.Contains(text, `evil\x1b[2J\u202e.jsonl`) {
			t.Errorf("not escaped: %q", text)
		}
		if w := warned(r, WarnStale)[0]; w.Seq != 3 || w.Line != 3 {
			t.Errorf("%+v", w)
		}
		if w := warned(r, WarnClock)[0]; w.Seq != 3 || w.Line != 3 {
			t.Errorf("%+v", w)
		}
	}
}

func TestAllOpen(t *testing.T) {
	var m maker
	for range 3000 {
		m.add(ledger.Entry{RequestID: "r", Method: "m", Name: "n", Decision: ledger.Pending, Outcome: ledger.Intent})
	}
	r := checkBytes(t, join(m.lines), Options{maxIntents: 1000, blockSize: 10_000})
	want(t, r, Intact, "")
	if r.InDoubt != 1000 || !r.InDoubtAtLeast || !strings.Contains(asText(r), "at least 1000 calls") {
		t.Error(asText(r))
	}
	r = checkBytes(t, join(m.lines), Options{})
	if r.InDoubt != 3000 || r.InDoubtAtLeast || len(r.Warnings) > maxDoubts+1 {
		t.Error(asText(r))
	}
}

// TestManyFaults counts all and tells of some.
func TestManyFaults(t *testing.T) {
	lines := calls(200)
	for i := range lines {
		lines[i] = bytes.Replace(lines[i], []byte("allow"), []byte("Allow"), 1)
	}
	altered := 0
	for _, l := range lines {
		if bytes.Contains(l, []byte("Allow")) {
			altered++
		}
	}
	data := join(lines)
	blank := 5000
	data = append(data, strings.Repeat("\n", blank)...)
	for _, size := range []int{1, 1000, 0} {
		r := checkBytes(t, data, Options{MaxFaults: 30, blockSize: size})
		if r.FaultsTotal != int64(altered+blank) || len(r.Faults) != 30 || r.Verdict != Tampered {
			t.Errorf("%d faults, %d told", r.FaultsTotal, len(r.Faults))
		}
	}
	r := checkBytes(t, []byte(strings.Repeat("\n", 3_000_000)), Options{})
	if r.FaultsTotal != 3_000_000 || len(r.Faults) != 10_000 || r.Faults[9999].Line != 10_000 {
		t.Errorf("%d faults, %d told", r.FaultsTotal, len(r.Faults))
	}
}

func TestTrustedStart(t *testing.T) {
	var m maker
	for i := range 10 {
		m.call(i)
	}
	n := len(m.lines)
	m.seal()
	for i := range 20 {
		m.call(i)
	}
	files := split(t, m.lines, n)
	dir := write(t, files)
	full := checkDir(t, dir, Options{})
	want(t, full, Intact, "")
	for seq := 1; seq <= len(m.lines); seq++ {
		from := &Checkpoint{Seq: uint64(seq), Sum: sumOfLine(t, m.lines[seq-1])}
		r := checkDir(t, dir, Options{From: from, blockSize: 1500})
		want(t, r, Intact, "")
		if r.Records != uint64(len(m.lines)-seq+1) || r.Head != full.Head || r.From.Seq != uint64(seq) || len(r.NotChecked) == 0 {
			t.Fatal(asText(r))
		}
		if *r.Checkpoint != *full.Checkpoint {
			t.Fatalf("checkpoint %+v, want %+v", r.Checkpoint, full.Checkpoint)
		}
	}
	// A change before it is not seen, and the report says that it was not looked
	// at; one after it is.
	edited := clone(m.lines)
	edited[2] = bytes.Replace(edited[2], []byte("pending"), []byte("Pending"), 1)
	old := write(t, split(t, edited, n))
	for _, seq := range []int{5, n + 5} {
		from := &Checkpoint{Seq: uint64(seq), Sum: sumOfLine(t, m.lines[seq-1])}
		r := checkDir(t, old, Options{From: from})
		want(t, r, Intact, "")
		if !strings.Contains(asText(r), "not looked at") {
			t.Error(asText(r))
		}
	}
	if r := checkDir(t, old, Options{From: &Checkpoint{Seq: 2, Sum: sumOfLine(t, m.lines[1])}}); r.Verdict != Tampered {
		t.Error(asText(r))
	}
	if r := checkDir(t, old, Options{}); r.Verdict != Tampered {
		t.Error(asText(r))
	}

	// As JSON, with the place, and after sealing and compressing.
	text, err := json.Marshal(full.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	var cp Checkpoint
	if err := json.Unmarshal(text, &cp); err != nil || cp != *full.Checkpoint {
		t.Fatal(err, cp)
	}
	r := checkDir(t, dir, Options{From: &cp})
	want(t, r, Intact, "")
	if r.Records != 1 {
		t.Error(asText(r))
	}
	grown := m
	grown.call(2)
	k := len(m.lines)
	sealedSince := write(t, split(t, grown.lines, n, k))
	r = checkDir(t, sealedSince, Options{From: &cp})
	want(t, r, Intact, "")
	if r.Records != 3 {
		t.Error(asText(r))
	}
	packed := split(t, grown.lines, n, k)
	name := ledger.SegmentName(uint64(n + 1))
	packed[name+".zst"] = squeeze(t, packed[name])
	delete(packed, name)
	r = checkDir(t, write(t, packed), Options{From: &cp})
	want(t, r, Intact, "")
	if r.Records != 3 {
		t.Error(asText(r))
	}

	// A start that is not there is a fault.
	other := cp
	other.Sum[0] ^= 1
	r = checkDir(t, dir, Options{From: &other})
	if r.Verdict != Tampered || r.Faults[0].Kind != Forked || r.Records != uint64(k) {
		t.Error(asText(r))
	}
	r = checkDir(t, write(t, split(t, m.lines[:k-1], n)), Options{From: &cp})
	if r.Verdict != Tampered || r.Faults[0].Kind != Truncated {
		t.Error(asText(r))
	}
	for _, bad := range []string{"", "5", "x:y", "0:" + cp.Sum.String(), "5:" + strings.ToUpper(cp.Sum.String()), "5:abc"} {
		if _, err := ParseFrom(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	if got, err := ParseFrom("7:" + cp.Sum.String()); err != nil || got.Seq != 7 || got.Sum != cp.Sum {
		t.Error(got, err)
	}
	for _, bad := range []string{"{}", "null", `{"line":1,"offset":0,"segment":1,"seq":1,"sha256":""}`, strings.Replace(string(text), `"seq"`, `"Seq"`, 1)} {
		if json.Unmarshal([]byte(bad), &cp) == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

func TestExpectations(t *testing.T) {
	lines := calls(30)
	data := join(lines)
	h5, h30 := sumOfLine(t, lines[4]), sumOfLine(t, lines[29])
	n30, n31, n5 := uint64(30), uint64(31), uint64(5)
	want(t, checkBytes(t, data, Options{ExpectHeads: []ledger.Hash{h5, h30}, ExpectRecords: &n30}), Intact, "")
	r := checkBytes(t, data, Options{ExpectHeads: []ledger.Hash{h5}, ExpectRecords: &n5})
	want(t, r, Intact, "")
	if len(r.Notes) != 2 {
		t.Error(asText(r))
	}
	want(t, checkBytes(t, data, Options{ExpectRecords: &n31}), Tampered, "truncated -:31")
	want(t, checkBytes(t, nil, Options{ExpectHeads: []ledger.Hash{h5}}), Tampered, "truncated -:1")
	r, err := Files(t.Context(), []string{filepath.Join(t.TempDir(), "absent")}, Options{ExpectRecords: &n5})
	if err != nil {
		t.Fatal(err)
	}
	want(t, r, Tampered, "truncated absent:1")
	claims := []Claim{{"a", ledger.Head{Seq: 5, Sum: h5}}, {"b", ledger.Head{Seq: 29, Sum: sumOfLine(t, lines[28])}}}
	r = checkBytes(t, data, Options{Anchors: claims})
	want(t, r, Anchored, "")
	if r.AnchoredThrough != 29 || !strings.Contains(asText(r), "1 record since") {
		t.Error(asText(r))
	}
	claims = append(claims, Claim{"evil\x1b", ledger.Head{Seq: 7, Sum: h5}})
	r = checkBytes(t, data, Options{Anchors: claims})
	want(t, r, Tampered, "forked -:31")
	if strings.Contains(asText(r), "\x1b") {
		t.Error("not escaped")
	}
}

func TestCancel(t *testing.T) {
	data := join(calls(3000))
	for _, at := range []int64{0, 1, 500_000} {
		ctx, cancel := context.WithCancel(t.Context())
		if at == 0 {
			cancel()
		}
		r, err := Reader(ctx, "-", bytes.NewReader(data), Options{blockSize: 2000, Progress: func(done, _ int64) {
			if done >= at {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) || r.Verdict != Unchecked {
			t.Errorf("%v, %v", err, r)
		}
		cancel()
	}
}

func TestProgress(t *testing.T) {
	dir := write(t, split(t, calls(300), 100))
	var last, total, calls int64
	r := checkDir(t, dir, Options{blockSize: 1000, Workers: 3, Progress: func(done, all int64) {
		if done < last {
			t.Errorf("%d after %d", done, last)
		}
		last, total = done, all
		calls++
	}})
	if last != total || last != r.Bytes || calls < 10 {
		t.Errorf("%d of %d in %d calls", last, total, calls)
	}
}

// TestShrink cuts a file while it is read.
func TestShrink(t *testing.T) {
	lines := calls(20_000)
	dir := write(t, map[string][]byte{ledger.ActiveName: join(lines)})
	path := filepath.Join(dir, ledger.ActiveName)
	cut := false
	r := checkDir(t, dir, Options{blockSize: 4000, Progress: func(done, _ int64) {
		if !cut {
			cut = true
			os.Truncate(path, 500_000)
		}
	}})
	if r.Verdict != Tampered || len(r.Faults) != 1 || r.Faults[0].Kind != Truncated {
		t.Error(asText(r))
	}
}

// TestLive verifies a ledger while it is written and sealed.
func TestLive(t *testing.T) {
	dir := write(t, map[string][]byte{ledger.LockName: nil})
	lock, err := os.OpenFile(filepath.Join(dir, ledger.LockName), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	path := filepath.Join(dir, ledger.ActiveName)
	var m maker
	var first uint64 = 1
	var done atomic.Bool
	flushed := 0
	// Lines are written in two halves, so that without the lock one would be seen
	// unfinished.
	turn := func() {
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Error(err)
		}
		defer syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)
		if len(m.lines)%50 == 49 {
			os.Rename(path, filepath.Join(dir, ledger.SegmentName(first)))
			first = m.seq + 1
			m.seal()
		}
		m.call(int(m.seq))
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		for _, l := range m.lines[flushed:] {
			f.Write(l[:100])
			f.Write(append(l[100:len(l):len(l)], '\n'))
		}
		flushed = len(m.lines)
		f.Close()
		os.WriteFile(filepath.Join(dir, ledger.HeadName), headText(t, m.seq, m.prev), 0o600)
	}
	turn()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !done.Load() && !t.Failed() {
			turn()
		}
	}()
	var last uint64
	for i := 0; i < 60 || last < 200; i++ {
		r := checkDir(t, dir, Options{blockSize: 5000})
		if r.Verdict != Intact || r.Records < last || r.Stable == nil || !r.Stable.Locked {
			t.Error(asText(r))
			break
		}
		last = r.Records
		runtime.Gosched()
	}
	done.Store(true)
	<-stopped
}

func TestLockHeld(t *testing.T) {
	dir := write(t, map[string][]byte{ledger.LockName: nil, ledger.ActiveName: join(calls(5))})
	lock, err := os.Open(filepath.Join(dir, ledger.LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r := checkDir(t, dir, Options{lockWait: time.Millisecond})
	want(t, r, Intact, "")
	if r.Stable.Locked || !strings.Contains(asText(r), "without the lock") {
		t.Error(asText(r))
	}
}

// TestNoAllocation checks a block again and again.
func TestNoAllocation(t *testing.T) {
	data := join(calls(500))
	w := newWorker(newWatch(), false, 10)
	var r result
	orig := slices.Concat(make([]byte, headroom), data, bytes.Repeat([]byte{'\n'}, padding))
	buf := make([]byte, len(orig))
	ctx := t.Context()
	b := block{buf: buf, n: len(data), last: true}
	n := testing.AllocsPerRun(20, func() {
		copy(buf, orig)
		w.check(ctx, &b, &r)
	})
	if r.records != 500 || len(r.items) > 250 {
		t.Fatalf("%d records in %d items", r.records, len(r.items))
	}
	if n > 0 {
		t.Errorf("%v allocations for 500 records", n)
	}
}

// generated gives a ledger without holding it.
type generated struct {
	n    int
	m    maker
	rest []byte
}

func (g *generated) Read(p []byte) (int, error) {
	if len(g.rest) == 0 {
		if g.n == 0 {
			return 0, io.EOF
		}
		g.n--
		if g.n%4000 == 2000 {
			g.m.add(ledger.Entry{RequestID: "r", Method: strings.Repeat("m", 3<<20), Name: "n", Decision: ledger.Allow, Outcome: ledger.Observed})
		}
		g.m.call(g.n)
		g.rest = join(g.m.lines)
		g.m.lines = g.m.lines[:0]
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// TestMemory checks that what is held does not grow with the ledger.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	peak := func(n int) (held uint64) {
		blocks := 0
		var ms runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&ms)
		before := ms.HeapAlloc // of other tests
		r, err := Reader(t.Context(), "-", &generated{n: n}, Options{Progress: func(int64, int64) {
			if blocks++; blocks%32 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&ms)
				held = max(held, ms.HeapAlloc-min(before, ms.HeapAlloc))
			}
		}})
		if err != nil || r.Verdict != Intact {
			t.Fatal(r, err)
		}
		return held
	}
	small, large := peak(60_000), peak(240_000)
	t.Logf("%d and %d KiB", small>>10, large>>10)
	// A stream remembers 8 bytes of each record, in a slice that grows.
	if large > small+12<<20 || large > 48<<20 {
		t.Errorf("%d KiB held, %d KiB for a quarter", large>>10, small>>10)
	}
}

// checkScan compares scan with the parser of package ledger.
func checkScan(t *testing.T, line []byte) bool {
	t.Helper()
	if bytes.IndexByte(line, '\n') >= 0 {
		return false
	}
	buf := slices.Concat(make([]byte, headroom), line, []byte{'\n'}, bytes.Repeat([]byte{'\n'}, padding))
	var l lane
	ok := l.scan(buf, headroom)
	if ok {
		_, ok = ledger.ParseHash(buf[l.prev : l.prev+hexLen])
	}
	if ok {
		_, ok = ledger.ParseHash(buf[l.sum : l.sum+hexLen])
	}
	var v ledger.View
	err := v.Parse(line)
	if !ok {
		return false
	}
	if err != nil {
		t.Fatalf("accepted %q: %v", line, err)
	}
	head, tail := v.Body()
	prev, _ := ledger.ParseHash(buf[l.prev : l.prev+hexLen])
	sum, _ := ledger.ParseHash(buf[l.sum : l.sum+hexLen])
	if l.end != headroom+len(line) || l.cut != headroom+len(head) || l.tail != l.end-len(tail) || l.seq != v.Seq || l.ts != v.TS || prev != v.Prev || sum != v.Sum {
		t.Fatalf("%q: %+v, want %+v", line, l.shape, v)
	}
	opens := v.Intent == nil && ledger.Is(v.Decision, ledger.Pending) && ledger.Is(v.Outcome, ledger.Intent)
	closes := v.Intent != nil && len(v.Intent) == hexLen+2 && (ledger.Is(v.Decision, ledger.Allow) || ledger.Is(v.Decision, ledger.Void))
	if l.opens != opens || l.closes != closes || l.seal != ledger.Is(v.Method, ledger.MethodSeal) {
		t.Fatalf("%q: %+v", line, l.shape)
	}
	// The message is what the hash is over, and restore gives the line back.
	whole := slices.Clone(buf)
	l.prepare(buf, headroom)
	var b []byte
	computed := v.Compute(&b)
	if got := slices.Concat(buf[l.prev:l.prev+hexLen], buf[l.at:l.msg]); !bytes.Equal(got, b) {
		t.Fatalf("message %q, want %q", got, b)
	}
	w := newWorker(newWatch(), false, 1)
	if hasBlock2 {
		state := initial
		block2(&state, &w.idle.state, &buf[l.prev], &buf[l.prev], 1)
		block2(&state, &w.idle.state, &buf[l.at], &buf[l.at], l.blocks())
		if sumOf(state) != computed {
			t.Fatalf("%q: wrong hash", line)
		}
	}
	l.hash(buf, w.digest)
	if sumOf(l.state) != computed {
		t.Fatalf("%q: wrong hash", line)
	}
	l.restore(buf)
	if i := headroom + len(line) + 1; !bytes.Equal(buf[:i], whole[:i]) {
		t.Fatalf("restored %q, want %q", buf[:i], whole[:i])
	}
	return true
}

func TestDigits(t *testing.T) {
	r := newRand(3)
	for range 100_000 {
		text := strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
		if r.IntN(4) == 0 {
			text = text[:r.IntN(len(text))] + string(rune(r.IntN(128))) + text
		}
		buf := append([]byte(text+"}"), bytes.Repeat([]byte{'\n'}, padding)...)
		want := 0
		for want < len(text) && text[want] >= '0' && text[want] <= '9' {
			want++
		}
		n, err := strconv.ParseInt(text[:want], 10, 64)
		if err != nil || text[0] == '0' {
			n = 0
		}
		if i, got := digits(buf, 0); got != uint64(n) || n > 0 && i != want {
			t.Fatalf("%q: %d to %d, want %d to %d", text, got, i, n, want)
		}
	}
}

func scanSeeds(t testing.TB) [][]byte {
	data, err := os.ReadFile(sourceFile)
	if err != nil {
		t.Fatal(err)
	}
	return append(calls(12), bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))...)
}

func TestScan(t *testing.T) {
	seeds := scanSeeds(t)
	fast := 0
	for _, l := range seeds {
		if checkScan(t, l) {
			fast++
		}
	}
	if fast < len(seeds)*9/10 {
		t.Errorf("%d of %d lines take the fast path", fast, len(seeds))
	}
	rounds := 100_000
	if testing.Short() {
		rounds = 10_000
	}
	r := newRand(1)
	for range rounds {
		checkScan(t, mutate(r, seeds))
	}
}

const odd = " \"\\{}[]:,01-é\x00\x7f\xff"

// mutate makes a line that is nearly a record.
func mutate(r *rand.Rand, seeds [][]byte) []byte {
	l := bytes.Clone(seeds[r.IntN(len(seeds))])
	for range 1 + r.IntN(2) {
		i := r.IntN(len(l))
		switch r.IntN(5) {
		case 0:
			l[i] = byte(r.Uint32())
		case 1:
			l = slices.Delete(l, i, min(len(l), i+1+r.IntN(20)))
		case 2:
			l = slices.Insert(l, i, odd[r.IntN(len(odd))])
		case 3:
			o := seeds[r.IntN(len(seeds))]
			k := r.IntN(len(o))
			l = append(l[:i:i], o[k:]...)
		case 4:
			k := r.IntN(len(l))
			l = slices.Insert(l, i, l[k:min(len(l), k+r.IntN(30))]...)
		}
		if len(l) == 0 {
			return l
		}
	}
	return l
}

func FuzzScan(f *testing.F) {
	for _, l := range scanSeeds(f) {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, line []byte) { checkScan(t, line) })
}

// FuzzVerify looks for panics, and for a ledger that is called good with a line
// in it that no record of it is.
func FuzzVerify(f *testing.F) {
	lines := calls(4)
	f.Add(join(lines))
	f.Add(append(join(lines[:2]), "{}\n\nnull\n"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := checkBytes(t, data, Options{blockSize: 100, Workers: 1})
		if r.Verdict == Intact && int(r.Records) != bytes.Count(data, []byte("\n")) {
			t.Errorf("%d records of %q", r.Records, data)
		}
	})
}
