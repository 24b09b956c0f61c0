package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/auditledger/auditledger/ledger"
)

var update = flag.Bool("update", false, "write testdata/ledgers anew")

const (
	vectorsDir = "../testdata/ledgers"
	sourceFile = "../testdata/vectors/ledger.jsonl"
)

// An expectation is the expect.json of a vector. The vector is the directory
// that holds it; expect.json is no part of the ledger.
type expectation struct {
	About         string      `json:"about"`
	Class         string      `json:"class"` // the one kind of fault, or the verdict where there is none
	Verdict       Verdict     `json:"verdict"`
	Exit          int         `json:"exit"`
	Records       uint64      `json:"records"`
	Faults        []wantFault `json:"faults"`
	ExpectHead    string      `json:"expect_head,omitempty"`
	ExpectRecords *uint64     `json:"expect_records,omitempty"`
	Anchors       []Position  `json:"anchors,omitempty"`
}

type wantFault struct {
	Kind    Kind   `json:"kind"`
	Segment string `json:"segment"`
	Line    int64  `json:"line"`
}

// A vector is what -update writes.
type vector struct {
	expectation
	files map[string][]byte
}

func makeVectors(t *testing.T) map[string]vector {
	data, err := os.ReadFile(sourceFile)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	base := all[:12]
	sum := func(i int) ledger.Hash { return sumOfLine(t, all[i]) }
	numbered := calls(12)
	var sealed maker
	for i := range 3 {
		sealed.call(i)
	}
	first := len(sealed.lines)
	sealed.seal()
	for i := range 3 {
		sealed.call(i)
	}
	second := len(sealed.lines)
	sealed.seal()
	sealed.call(2)

	vs := map[string]vector{}
	add := func(name, about, class string, v Verdict, records int, files map[string][]byte, faults ...wantFault) *vector {
		if faults == nil {
			faults = []wantFault{}
		}
		vs[name] = vector{expectation{About: about, Class: class, Verdict: v, Exit: v.ExitCode(), Records: uint64(records), Faults: faults}, files}
		x := vs[name]
		return &x
	}
	active := func(lines [][]byte) map[string][]byte { return map[string][]byte{ledger.ActiveName: join(lines)} }
	at := func(k Kind, line int64) wantFault { return wantFault{k, ledger.ActiveName, line} }
	change := func(name string, x *vector) { vs[name] = *x }
	put := func(i int, line []byte) [][]byte {
		l := slices.Clone(base)
		l[i] = line
		return l
	}
	edit := func(i int, old, new string) [][]byte {
		return put(i, bytes.Replace(base[i], []byte(old), []byte(new), 1))
	}

	add("intact", "the first records of the reference ledger", "intact", Intact, 12, active(base))
	add("intact-long", "the reference ledger", "intact", Intact, 160, active(all))
	add("intact-numbered", "records that bear seq", "intact", Intact, 12, active(numbered))
	add("intact-mixed", "records without seq, then with", "intact", Intact, 14, active(append(slices.Clone(base),
		reseal(t, base[11], sum(11), map[string]any{"seq": 13, "ts": int64(day0)}), []byte(nil))[:13:13]))
	{
		l := append(slices.Clone(base), reseal(t, base[11], sum(11), map[string]any{"seq": 13}))
		l = append(l, reseal(t, base[11], sumOfLine(t, l[12]), map[string]any{"seq": 14}))
		add("intact-mixed", "records without seq, then with", "intact", Intact, 14, active(l))
	}
	add("intact-unknown-members", "a record with members that are in no table", "intact", Intact, 12,
		active(append(slices.Clone(base[:11]), reseal(t, base[11], sum(10), map[string]any{"x": []any{1, "y", nil}, "a.b": 1.5}))))
	three := split(t, all, 50, 120)
	add("intact-segments", "the reference ledger in three segments", "intact", Intact, 160, three)
	packed := map[string][]byte{}
	for name, data := range three {
		if name == ledger.ActiveName {
			packed[name] = data
		} else {
			half := len(data) / 2
			packed[name+".zst"] = squeeze(t, data[:half], data[half:])
		}
	}
	add("intact-compressed", "the same, two of them compressed, of two frames each", "intact", Intact, 160, packed)
	add("intact-sealed", "segments as the store seals them", "intact", Intact, len(sealed.lines), split(t, sealed.lines, first, second))
	whole := active(base)
	whole[ledger.HeadName] = headText(t, 12, sum(11))
	add("intact-head", "with head.json", "intact", Intact, 12, whole)
	behind := active(base)
	behind[ledger.HeadName] = headText(t, 10, sum(9))
	add("intact-head-behind", "with a head.json that is older than the records", "intact", Intact, 12, behind)
	x := add("anchored", "an anchor agrees with the last record", "anchored", Anchored, 12, active(base))
	x.Anchors = []Position{{12, sum(11).String()}}
	change("anchored", x)
	x = add("anchored-behind", "an anchor agrees with a record before the last", "anchored", Anchored, 12, active(base))
	x.Anchors = []Position{{7, sum(6).String()}, {3, sum(2).String()}}
	change("anchored-behind", x)

	add("torn", "half of a line at the end", "torn", Torn, 11, map[string][]byte{ledger.ActiveName: append(join(base[:11]), base[11][:100]...)})
	add("torn-whole", "a record at the end that lacks its newline", "torn", Torn, 11, map[string][]byte{ledger.ActiveName: append(join(base[:11]), base[11]...)})
	add("unchecked-empty", "an empty file", "unchecked", Unchecked, 0, map[string][]byte{ledger.ActiveName: {}})
	add("unchecked-nothing", "no ledger at all", "unchecked", Unchecked, 0, map[string][]byte{})

	for name, line := range map[string]string{"null": "null", "number": "42", "string": `"sha256"`, "list": `["sha256"]`, "object": "{}", "blank": "", "spaces": "   ",
		"nul": "\x00\x00", "not-utf8": "\xff\xfe", "half": string(base[5][:40])} {
		add("malformed-"+name, fmt.Sprintf("the line %q in place of a record", line), "malformed", Tampered, 11, active(put(5, []byte(line))), at(Malformed, 6))
	}
	add("malformed-doubled", "a doubled key", "malformed", Tampered, 11, active(put(5, append(bytes.TrimSuffix(base[5], []byte("}")), `,"outcome":"observed"}`...))), at(Malformed, 6))
	add("malformed-case", "a key like a known one but for case", "malformed", Tampered, 11, active(edit(5, `{`, `{"Outcome":"observed",`)), at(Malformed, 6))
	add("malformed-type", "a member of another type", "malformed", Tampered, 11, active(edit(5, `"ts":`, `"ts":-0.5,"tz":`)), at(Malformed, 6))
	last := func(old, new string) map[string][]byte {
		return active(append(slices.Clone(base[:11]), rehash(regexp.MustCompile(old).ReplaceAllString(string(base[11]), new))))
	}
	add("malformed-nan", "a record that is linked and hashed as it should, with a value that is no JSON", "malformed", Tampered, 11,
		last(`}$`, `,"x":NaN}`), at(Malformed, 12))
	add("malformed-range", "a record that is linked and hashed as it should, with a time past an int64", "malformed", Tampered, 11,
		last(`"ts":[0-9]+`, `"ts":9223372036854775808`), at(Malformed, 12))
	add("malformed-added", "blank lines between records", "malformed", Tampered, 12, active(slices.Insert(slices.Clone(base), 5, nil, []byte(" "))), at(Malformed, 6), at(Malformed, 7))
	cutSegment := split(t, all[:12], 6)
	cutSegment[ledger.SegmentName(1)] = bytes.TrimSuffix(cutSegment[ledger.SegmentName(1)], []byte("\n"))
	add("malformed-segment-end", "a sealed segment that does not end in a newline", "malformed", Tampered, 11, cutSegment,
		wantFault{Malformed, ledger.SegmentName(1), 6})
	z := squeeze(t, join(all[:50]))
	name := ledger.SegmentName(1) + ".zst"
	for what, data := range map[string][]byte{"cut": z[:len(z)-20], "dirty": append(slices.Clone(z), "rubbish"...)} {
		n := 0
		if what == "dirty" {
			n = 50
		}
		add("malformed-archive-"+what, "a compressed segment: "+what, "malformed", Tampered, n+10,
			map[string][]byte{name: data, ledger.ActiveName: join(all[50:60])}, wantFault{Malformed, name, int64(n + 1)})
	}

	add("not-canonical-spaces", "blanks between members", "not_canonical", Tampered, 12, active(edit(5, `,"method"`, `, "method"`)), at(NotCanonical, 6))
	add("not-canonical-escape", "an escape that is not needed", "not_canonical", Tampered, 12, active(edit(5, `tools/call`, `tools\/call`)), at(NotCanonical, 6))
	add("not-canonical-crlf", "a carriage return", "not_canonical", Tampered, 12, active(put(11, append(slices.Clone(base[11]), '\r'))), at(NotCanonical, 12))
	add("not-canonical-bom", "a byte-order mark", "not_canonical", Tampered, 12, active(put(0, append([]byte(bom), base[0]...))), at(NotCanonical, 1))
	add("not-canonical-order", "another order of members", "not_canonical", Tampered, 12, active(put(5, reorderMembers(t, base[5]))), at(NotCanonical, 6))

	for _, i := range []int{0, 5, 11} {
		add(fmt.Sprintf("altered-%d", i+1), "a record edited", "altered", Tampered, 12, active(edit(i, "tools/call", "tools/cal1")), at(Altered, int64(i+1)))
	}
	add("altered-sum", "a hash edited", "altered", Tampered, 12, active(put(5, flipHex(base[5], `"sha256":"`))), at(Altered, 6))
	add("altered-link", "a link edited", "altered", Tampered, 12, active(put(5, flipHex(base[5], `"prev_sha256":"`))), at(Altered, 6))
	add("altered-linked", "an edited record, to whose new hash the next record is linked", "altered", Tampered, 12, active(func() [][]byte {
		l := edit(5, "tools/call", "tools/cal1")
		var v ledger.View
		var buf []byte
		if err := v.Parse(l[5]); err != nil {
			t.Fatal(err)
		}
		prev := v.Compute(&buf)
		for i := 6; i < len(l); i++ {
			l[i] = reseal(t, l[i], prev, nil)
			prev = sumOfLine(t, l[i])
		}
		return l
	}()), at(Altered, 6))

	for _, i := range []int{0, 5, 10} {
		add(fmt.Sprintf("missing-%d", i+1), "a record removed", "missing", Tampered, 11, active(without(base, i)), at(Missing, int64(i+1)))
	}
	add("missing-rewritten", "a record edited and hashed anew", "missing", Tampered, 12, active(put(5, reseal(t, base[5], sum(4), map[string]any{"outcome": "observed"}))), at(Missing, 7))
	gone := split(t, sealed.lines, first, second)
	delete(gone, ledger.SegmentName(uint64(first+1)))
	add("missing-segment", "a segment removed from the middle", "missing", Tampered, len(sealed.lines)-(second-first), gone, at(Missing, 1))
	gone = split(t, sealed.lines, first, second)
	delete(gone, ledger.SegmentName(1))
	add("missing-first-segment", "the first segment removed", "missing", Tampered, len(sealed.lines)-first, gone, wantFault{Missing, ledger.SegmentName(uint64(first + 1)), 1})
	gone = split(t, sealed.lines, first, second)
	delete(gone, ledger.SegmentName(uint64(first+1)))
	delete(gone, ledger.SegmentName(1))
	add("missing-all-segments", "all sealed segments removed", "missing", Tampered, len(sealed.lines)-second, gone, at(Missing, 1))

	add("duplicated", "a record doubled", "duplicated", Tampered, 13, active(slices.Insert(slices.Clone(base), 6, base[5])), at(Duplicated, 7))
	add("duplicated-block", "four records doubled", "duplicated", Tampered, 16, active(slices.Insert(slices.Clone(base), 8, base[4:8]...)), at(Duplicated, 9))
	add("duplicated-far", "an early record repeated later", "duplicated", Tampered, 13, active(slices.Insert(slices.Clone(base), 9, base[1])), at(Duplicated, 10))
	add("duplicated-last", "the last record repeated", "duplicated", Tampered, 13, active(append(slices.Clone(base), base[11])), at(Duplicated, 13))

	forged := reseal(t, base[5], sum(5), map[string]any{"request_id": "req-forged"})
	add("inserted", "a record put between two", "inserted", Tampered, 13, active(slices.Insert(slices.Clone(base), 6, forged)), at(Inserted, 8))
	forged2 := reseal(t, base[5], sumOfLine(t, forged), map[string]any{"request_id": "req-forged-2"})
	add("inserted-two", "two records put between two", "inserted", Tampered, 14, active(slices.Insert(slices.Clone(base), 6, forged, forged2)), at(Inserted, 9))
	add("inserted-foreign", "a record of another ledger", "inserted", Tampered, 13, active(slices.Insert(slices.Clone(base), 6, numbered[7])), at(Inserted, 7))
	add("inserted-first", "a record put before the first", "inserted", Tampered, 13, active(slices.Insert(slices.Clone(base), 0, reseal(t, base[5], ledger.Hash{}, nil))), at(Inserted, 2))

	swapped := slices.Clone(base)
	swapped[5], swapped[6] = swapped[6], swapped[5]
	add("reordered-swapped", "two neighbours swapped", "reordered", Tampered, 12, active(swapped), at(Reordered, 6))
	add("reordered-later", "a record moved towards the end", "reordered", Tampered, 12, active(slices.Insert(without(base, 2), 9, base[2])), at(Reordered, 3))
	add("reordered-earlier", "a record moved towards the beginning", "reordered", Tampered, 12, active(slices.Insert(without(base, 9), 3, base[9])), at(Reordered, 4))
	turned := split(t, all[:12], 4, 8)
	turned[ledger.SegmentName(1)], turned[ledger.SegmentName(5)] = turned[ledger.SegmentName(5)], turned[ledger.SegmentName(1)]
	add("reordered-segments", "two segments swapped", "reordered", Tampered, 12, turned, wantFault{Reordered, ledger.SegmentName(1), 1})

	wrong := slices.Clone(numbered[:6])
	prev := sumOfLine(t, wrong[5])
	for _, seq := range []int{9, 10, 11} {
		l := reseal(t, numbered[6], prev, map[string]any{"seq": seq})
		wrong, prev = append(wrong, l), sumOfLine(t, l)
	}
	add("misnumbered", "a jump in seq that the links do not show", "misnumbered", Tampered, 9, active(wrong), at(Misnumbered, 7))
	renamed := split(t, sealed.lines, first, second)
	renamed[ledger.SegmentName(uint64(first+2))] = renamed[ledger.SegmentName(uint64(first+1))]
	delete(renamed, ledger.SegmentName(uint64(first+1)))
	first6 := split(t, all[:12], 6)
	first6[ledger.SegmentName(2)] = first6[ledger.SegmentName(1)]
	delete(first6, ledger.SegmentName(1))
	add("misnumbered-first-name", "the name of the first segment is not 1", "misnumbered", Tampered, 12, first6, wantFault{Misnumbered, ledger.SegmentName(2), 1})
	add("misnumbered-name", "a segment's name that is not its first seq", "misnumbered", Tampered, len(sealed.lines), renamed, wantFault{Misnumbered, ledger.SegmentName(uint64(first + 2)), 1})

	short := active(base[:9])
	short[ledger.HeadName] = headText(t, 12, sum(11))
	add("truncated-head", "head.json knows more records", "truncated", Tampered, 9, short, at(Truncated, 10))
	add("truncated-empty", "an empty file of which head.json knows more", "truncated", Tampered, 0,
		map[string][]byte{ledger.ActiveName: {}, ledger.HeadName: short[ledger.HeadName]}, at(Truncated, 1))
	add("truncated-gone", "no file, of which head.json knows more", "truncated", Tampered, 0,
		map[string][]byte{ledger.HeadName: short[ledger.HeadName]}, at(Truncated, 1))
	x = add("truncated-expect-head", "an expected head that is not there", "truncated", Tampered, 9, active(base[:9]), at(Truncated, 10))
	x.ExpectHead = sum(11).String()
	change("truncated-expect-head", x)
	x = add("truncated-expect-records", "fewer records than expected", "truncated", Tampered, 9, active(base[:9]), at(Truncated, 10))
	n := uint64(12)
	x.ExpectRecords = &n
	change("truncated-expect-records", x)
	x = add("truncated-anchor", "an anchor knows more records", "truncated", Tampered, 9, active(base[:9]), at(Truncated, 10))
	x.Anchors = []Position{{5, sum(4).String()}, {12, sum(11).String()}}
	change("truncated-anchor", x)

	rewritten := active(append(slices.Clone(base[:11]), reseal(t, base[11], sum(10), map[string]any{"outcome": "observed"})))
	x = add("forked", "an anchor knows another last record", "forked", Tampered, 12, rewritten, at(Forked, 13))
	x.Anchors = []Position{{12, sum(11).String()}}
	change("forked", x)
	rewritten = active(append(slices.Clone(base[:11]), reseal(t, base[11], sum(10), map[string]any{"outcome": "observed"})))
	rewritten[ledger.HeadName] = headText(t, 12, sum(11))
	add("forked-head", "head.json knows another last record", "forked", Tampered, 12, rewritten, at(Forked, 13))
	return vs
}

// reorderMembers puts the first member of a record last.
func reorderMembers(t *testing.T, line []byte) []byte {
	i := bytes.Index(line, []byte(`,"decision"`))
	first, rest := line[1:i], line[i+1:len(line)-1]
	return slices.Concat([]byte("{"), rest, []byte(","), first, []byte("}"))
}

// rehash makes the hash of a record fit its other bytes, whatever those are.
func rehash(line string) []byte {
	sum := regexp.MustCompile(`"sha256":"[0-9a-f]{64}",`)
	prev := regexp.MustCompile(`"prev_sha256":"([0-9a-f]{64})"`).FindStringSubmatch(line)[1]
	h := sha256.Sum256([]byte(prev + sum.ReplaceAllString(line, "")))
	return []byte(sum.ReplaceAllString(line, fmt.Sprintf(`"sha256":"%x",`, h)))
}

// flipHex changes the first digit after key.
func flipHex(line []byte, key string) []byte {
	line = slices.Clone(line)
	i := bytes.Index(line, []byte(key)) + len(key)
	if line[i] == '0' {
		line[i] = '1'
	} else {
		line[i] = '0'
	}
	return line
}

func writeVectors(t *testing.T) {
	if err := os.RemoveAll(vectorsDir); err != nil {
		t.Fatal(err)
	}
	for name, v := range makeVectors(t) {
		dir := filepath.Join(vectorsDir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(v.expectation, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		v.files["expect.json"] = append(text, '\n')
		for file, data := range v.files {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// classes are what a vector may stand for.
func classes() []string {
	c := []string{string(Anchored), string(Intact), string(Torn), string(Unchecked)}
	for _, k := range Kinds() {
		c = append(c, string(k))
	}
	return c
}

// checkVector runs one vector and returns what is wrong with it.
func checkVector(t *testing.T, dir string, e *expectation, o Options) error {
	if !slices.Contains(classes(), e.Class) {
		return fmt.Errorf("unknown class %q", e.Class)
	}
	if e.ExpectHead != "" {
		h, ok := ledger.ParseHash([]byte(e.ExpectHead))
		if !ok {
			return fmt.Errorf("expect_head is no hash")
		}
		o.ExpectHeads = []ledger.Hash{h}
	}
	o.ExpectRecords = e.ExpectRecords
	for _, a := range e.Anchors {
		h, _ := ledger.ParseHash([]byte(a.SHA256))
		o.Anchors = append(o.Anchors, Claim{"anchor", ledger.Head{Seq: a.Seq, Sum: h}})
	}
	r := checkDir(t, dir, o)
	if r.Verdict != e.Verdict || r.Verdict.ExitCode() != e.Exit || r.Records != e.Records {
		return fmt.Errorf("%s, exit %d, %d records; want %s, %d, %d\n%s", r.Verdict, r.Verdict.ExitCode(), r.Records, e.Verdict, e.Exit, e.Records, asText(r))
	}
	got := []wantFault{}
	for _, f := range r.Faults {
		got = append(got, wantFault{f.Kind, f.Segment, f.Line})
		if string(f.Kind) != e.Class {
			return fmt.Errorf("a fault of class %s\n%s", f.Kind, asText(r))
		}
	}
	if !slices.Equal(got, e.Faults) {
		return fmt.Errorf("faults %v, want %v\n%s", got, e.Faults, asText(r))
	}
	if len(e.Faults) == 0 && string(r.Verdict) != e.Class {
		return fmt.Errorf("class %s, verdict %s", e.Class, r.Verdict)
	}
	return nil
}

// view is the vector's directory without its expect.json.
func view(t *testing.T, dir string) (string, *expectation) {
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var e expectation
	for _, f := range entries {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() != "expect.json" {
			files[f.Name()] = data
			continue
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
	}
	return write(t, files), &e
}

func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	dirs, err := os.ReadDir(vectorsDir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			dir, e := view(t, filepath.Join(vectorsDir, d.Name()))
			seen[e.Class] = true
			// Blocks of any size find the same, up to less than a line.
			for _, size := range []int{0, 1, 100, 400, 1000, 5000} {
				for _, workers := range []int{1, 3} {
					if err := checkVector(t, dir, e, Options{blockSize: size, Workers: workers}); err != nil {
						t.Fatalf("blocks of %d: %v", size, err)
					}
				}
			}
		})
	}
	for _, c := range classes() {
		if !seen[c] {
			t.Errorf("no vector of class %s", c)
		}
	}
}

func TestVectorOfUnknownClass(t *testing.T) {
	dir, e := view(t, filepath.Join(vectorsDir, "intact"))
	e.Class = "fine"
	if checkVector(t, dir, e, Options{}) == nil {
		t.Error("accepted")
	}
	if Verdict("fine").ExitCode() != 1 || Verdict("").ExitCode() != 1 {
		t.Error("an unknown verdict must have the status of tampered")
	}
}
