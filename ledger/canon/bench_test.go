package canon

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const vectors = "../../testdata/vectors"

// records returns the record lines of the ledger vector, without "\n".
func records(tb testing.TB) [][]byte {
	text, err := os.ReadFile(filepath.Join(vectors, "ledger.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

func size(lines [][]byte) (n int64) {
	for _, l := range lines {
		n += int64(len(l))
	}
	return n
}

func BenchmarkCheck(b *testing.B) {
	lines := records(b)
	b.SetBytes(size(lines))
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range lines {
			if err := Check(l); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	lines := records(b)
	b.SetBytes(size(lines))
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range lines {
			if err := Walk(l, func(Member) bool { return true }); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	lines := records(b)
	b.SetBytes(size(lines))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		for _, l := range lines {
			var err error
			if dst, err = Append(dst[:0], l); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	lines := records(b)
	b.SetBytes(size(lines))
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range lines {
			if _, err := Parse(l); err != nil {
				b.Fatal(err)
			}
		}
	}
}
