package auditledger_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestVerifierOfTheFormat runs the verifier that FORMAT.md holds on every
// vector: a stranger who reads that page alone must agree with us.
func TestVerifierOfTheFormat(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3 to run the verifier of FORMAT.md with")
	}
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(string(text))
	if found == nil {
		t.Fatal("FORMAT.md holds no verifier")
	}
	if n := strings.Count(found[1], "\n"); n > 25 {
		t.Errorf("the verifier has %d lines, 25 are promised", n)
	}
	script := filepath.Join(t.TempDir(), "verify.py")
	if err := os.WriteFile(script, []byte(found[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	vectors, err := filepath.Glob("testdata/ledgers/*/expect.json")
	if err != nil || len(vectors) < 10 {
		t.Fatal(vectors, err)
	}
	for _, v := range vectors {
		dir := filepath.Dir(v)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want struct {
				Verdict       string
				Records       int
				ExpectHead    string `json:"expect_head"`
				ExpectRecords int    `json:"expect_records"`
				Anchors       []struct {
					Seq    int
					SHA256 string
				}
			}
			content, err := os.ReadFile(v)
			if err == nil {
				err = json.Unmarshal(content, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			plain, whole := decompressed(t, dir)
			args := []string{script, plain}
			for _, a := range want.Anchors {
				args = append(args, fmt.Sprintf("%d:%s", a.Seq, a.SHA256))
			}
			// That a hash or so many records must be there is a claim about a
			// position past the end, where they are not.
			if want.ExpectHead != "" || want.ExpectRecords > 0 {
				args = append(args, fmt.Sprintf("%d:%s", max(want.ExpectRecords, want.Records+1), want.ExpectHead))
			}
			out, err := exec.Command(python, args...).Output()
			good := err == nil && whole
			if wantGood := want.Verdict == "intact" || want.Verdict == "anchored"; good != wantGood {
				t.Errorf("the verdict is %s, and the verifier of FORMAT.md says %v: %s", want.Verdict, good, out)
			}
			if good && !strings.HasPrefix(string(out), fmt.Sprintf("%d ", want.Records)) {
				t.Errorf("%d records are in it, and the verifier of FORMAT.md says %s", want.Records, out)
			}
		})
	}
}

// decompressed is a copy of a ledger without compressed segments, and whether
// all could be decompressed.
func decompressed(t *testing.T, dir string) (plain string, whole bool) {
	t.Helper()
	plain, whole = t.TempDir(), true
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "expect.json" || e.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name, compressed := strings.CutSuffix(e.Name(), ".zst")
		if compressed {
			d, err := zstd.NewReader(strings.NewReader(string(content)))
			if err != nil {
				t.Fatal(err)
			}
			content, err = io.ReadAll(d)
			d.Close()
			whole = whole && err == nil
		}
		if err := os.WriteFile(filepath.Join(plain, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return plain, whole
}
