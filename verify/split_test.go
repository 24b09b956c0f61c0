package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/auditledger/auditledger/ledger"
)

// TestSplitVectors checks each vector of one plain file again with its lines
// over three segments, the first two of them compressed: the same faults at the
// same lines.
func TestSplitVectors(t *testing.T) {
	pack, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	split := 0
	all, _ := filepath.Glob(filepath.Join(vectorsDir, "*", "expect.json"))
	for _, path := range all {
		dir := filepath.Dir(path)
		var want expectation
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		entries, _ := os.ReadDir(dir)
		content, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
		lines := bytes.SplitAfter(content, []byte("\n"))
		if err != nil || len(entries) != 2 || len(lines) < 8 {
			continue
		}
		split++
		t.Run(filepath.Base(dir), func(t *testing.T) {
			to := t.TempDir()
			before := map[string]int64{ledger.ActiveName: 5}
			for _, part := range []struct{ from, to int }{{0, 2}, {2, 5}, {5, len(lines)}} {
				b := bytes.Join(lines[part.from:part.to], nil)
				name := ledger.ActiveName
				if part.to < len(lines) {
					name = ledger.SegmentName(uint64(part.from+1)) + ".zst"
					b = pack.EncodeAll(b, nil)
					before[name] = int64(part.from)
				}
				if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{ExpectRecords: want.ExpectRecords}
			if h, ok := ledger.ParseHash([]byte(want.ExpectHead)); ok {
				o.ExpectHeads = []ledger.Hash{h}
			}
			for _, a := range want.Anchors {
				h, _ := ledger.ParseHash([]byte(a.SHA256))
				o.Anchors = append(o.Anchors, Claim{Source: "vector", Head: ledger.Head{Seq: a.Seq, Sum: h}})
			}
			r, err := Dir(context.Background(), to, o)
			if err != nil {
				t.Fatal(err)
			}
			var got, wanted []string
			for _, f := range r.Faults {
				got = append(got, fmt.Sprintf("%s at %d", f.Kind, f.Line+before[f.Segment]))
			}
			for _, f := range want.Faults {
				wanted = append(wanted, fmt.Sprintf("%s at %d", f.Kind, f.Line))
			}
			if fmt.Sprint(got) != fmt.Sprint(wanted) || r.Verdict != want.Verdict || r.Records != want.Records {
				t.Errorf("%s with %d records and %v, want %s with %d and %v", r.Verdict, r.Records, got, want.Verdict, want.Records, wanted)
			}
		})
	}
	if split < 30 {
		t.Errorf("only %d vectors could be split", split)
	}
}
