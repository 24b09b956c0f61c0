package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/store"
	"github.com/auditledger/auditledger/verify"
)

// ctl runs ledgerctl in this process.
func ctl(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	g := new(global)
	root := newRoot(g)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	if err != nil && !g.begun {
		err = usageError{err}
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(&errs, "ledgerctl: %v\n", err)
	}
	return out.String(), errs.String(), exitOf(err)
}

// exits wants a status, and a text in what is printed.
func exits(t testing.TB, code int, text string, args ...string) string {
	t.Helper()
	out, errs, got := ctl(t, args...)
	if got != code || !strings.Contains(out+errs, text) {
		t.Fatalf("ledgerctl %s: status %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, text, out, errs)
	}
	return out
}

// aws is an environment in which the SDK finds these credentials and no other.
func awsEnv(t testing.TB, id, secret, endpoint string) {
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "us-east-1",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_MAX_ATTEMPTS": "2",
		"AWS_ENDPOINT_URL_S3": endpoint, "LEDGER_ANCHOR": "",
	} {
		t.Setenv(name, value)
	}
}

// startS3 runs an S3 server with Object Lock and a bucket "bucket" until the test
// ends, and gives its directory and a client.
func startS3(t testing.TB) (dir string, client *s3.Client) {
	t.Helper()
	path := cmp.Or(os.Getenv("AUDITLEDGER_S3DEMO"), filepath.Join("..", "..", "bin", "tools", "s3demo"))
	if _, err := os.Stat(path); err != nil {
		if slices.Contains(strings.Split(os.Getenv("AUDITLEDGER_REQUIRE"), ","), "s3") {
			t.Fatal("s3demo is not built, and AUDITLEDGER_REQUIRE wants it: make bin/tools/s3demo")
		}
		t.Skip("s3demo is not built: make bin/tools/s3demo")
	}
	dir = t.TempDir()
	c := exec.Command(path, "-stdin", "-dir", dir)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		c.Wait()
	})
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address, _ = strings.CutPrefix(lines.Text(), "ready ")
		if !strings.HasPrefix(address, "http") {
			address = ""
		}
	}
	go io.Copy(io.Discard, out)
	awsEnv(t, "demo", "demo-secret", address)
	client = s3.New(s3.Options{BaseEndpoint: &address, UsePathStyle: true, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "demo", SecretAccessKey: "demo-secret"}, nil
		})})
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket"), ObjectLockEnabledForBucket: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEDGER_ANCHOR", "s3://bucket/p")
	return dir, client
}

func note(i int) ledger.Entry {
	return ledger.Entry{RequestID: fmt.Sprint(i), Method: ledger.MethodCall, Name: "write_note", Decision: ledger.Allow, Outcome: ledger.Committed,
		ArgsDigest: ledger.Digest(fmt.Append(nil, i)).String()}
}

// write appends records from to to.
func write(t testing.TB, dir string, from, to int) {
	t.Helper()
	s, err := store.Open(t.Context(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := from; i <= to; i++ {
		if _, err := s.Append(t.Context(), note(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// forge writes a ledger of n records that differs from that of write from
// record "at" on, with all hashes right and head.json to fit.
func forge(t testing.TB, dir string, n, at int) {
	t.Helper()
	active := filepath.Join(dir, ledger.ActiveName)
	old, err := os.ReadFile(active)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	var head ledger.Head
	lines := ledger.NewLines(bytes.NewReader(old), 0)
	for i := 1; i <= n; i++ {
		e := note(i)
		if i >= at {
			e.Name = "harmless"
		}
		if i < at && lines.Next() {
			r, err := ledger.Parse(lines.Line())
			if err != nil {
				t.Fatal(err)
			}
			b, head = append(append(b, lines.Line()...), '\n'), ledger.Head{Seq: uint64(i), Sum: r.Sum}
			continue
		}
		head.Seq = uint64(i)
		b, head.Sum = e.AppendLine(b, head.Seq, 1e18, head.Sum)
	}
	text, err := head.MarshalText()
	if err = errors.Join(err, os.WriteFile(active, b, 0o600), os.WriteFile(filepath.Join(dir, ledger.HeadName), text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// verdictOf is what verify says as JSON.
func verdictOf(t testing.TB, dir string, args ...string) verify.Report {
	t.Helper()
	out, errs, code := ctl(t, append([]string{"verify", dir, "--format", "json"}, args...)...)
	var r verify.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Verdict.ExitCode() != code {
		t.Fatalf("status %d, %v: %s%s", code, err, out, errs)
	}
	return r
}

func faultsOf(r verify.Report) (all []verify.Kind) {
	for _, f := range r.Faults {
		all = append(all, f.Kind)
	}
	return all
}

// TestAnchors is the life of an anchored ledger, on each kind of place.
func TestAnchors(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		startS3(t)
		anchored(t)
	})
	t.Run("file", func(t *testing.T) {
		t.Setenv("LEDGER_ANCHOR", "file://"+filepath.ToSlash(t.TempDir()))
		anchored(t)
	})
}

func anchored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	exits(t, exitUnchecked, "there is no record to anchor", "anchor", "push", dir, "--receipts", filepath.Join(t.TempDir(), "r"))
	write(t, dir, 1, 20)
	if r := verdictOf(t, dir); r.Verdict != verify.Unchecked {
		t.Errorf("before the first anchor: %s", r.Verdict)
	}
	exits(t, exitOK, "anchored 20 records", "anchor", "push", dir)
	exits(t, exitOK, "anchored already", "anchor", "push", dir)
	write(t, dir, 21, 25)
	if r := verdictOf(t, dir); r.Verdict != verify.Anchored || r.AnchoredThrough != 20 || r.Records != 25 {
		t.Errorf("%+v", r)
	}
	exits(t, exitOK, "5 records since", "verify", dir)
	exits(t, exitOK, "anchored 5 records", "anchor", "push", dir)
	exits(t, exitOK, "anchored 0 records", "anchor", "push", dir, "--always")
	exits(t, exitOK, "", "anchor", "list", dir)
	if r := verdictOf(t, dir); r.Verdict != verify.Anchored || r.AnchoredThrough != 25 || r.Anchors != 3 {
		t.Errorf("%+v", r)
	}
	// A file by name is checked with anchors only where that is asked for.
	file := filepath.Join(dir, ledger.ActiveName)
	if r := verdictOf(t, file); r.Verdict != verify.Intact {
		t.Errorf("a file: %s", r.Verdict)
	}
	if r := verdictOf(t, file, "--anchors", os.Getenv("LEDGER_ANCHOR")); r.Verdict != verify.Anchored {
		t.Errorf("a file, with anchors: %+v", r)
	}
	// A file that begins after all that was anchored compares nothing.
	tail := filepath.Join(t.TempDir(), ledger.SegmentName(1000))
	e := note(1000)
	line, _ := e.AppendLine(nil, 1000, 1e18, ledger.Digest(nil))
	if err := os.WriteFile(tail, line, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verdictOf(t, tail, "--anchors", os.Getenv("LEDGER_ANCHOR")); r.Verdict != verify.Unchecked {
		t.Errorf("a file after the anchors: %+v", r)
	}
	if r := verdictOf(t, dir, "--anchors="); r.Verdict != verify.Intact {
		t.Errorf("asked for none: %s", r.Verdict)
	}
	from := filepath.Join(t.TempDir(), "checkpoint")
	exits(t, exitOK, "", "verify", dir, "--write-checkpoint", from)
	if r := verdictOf(t, dir, "--from", from); r.Verdict != verify.Anchored || r.AnchoredThrough != 25 {
		t.Errorf("from a checkpoint: %+v", r)
	}
	// The receipts are a cache.
	if err := os.Remove(filepath.Join(dir, anchor.ReceiptsName)); err != nil {
		t.Fatal(err)
	}
	exits(t, exitOK, "anchored already", "anchor", "push", dir)

	good := copyOf(t, dir)
	forget := func() { os.Remove(filepath.Join(dir, anchor.ReceiptsName)) }
	for name, c := range map[string]struct {
		do   func()
		want verify.Kind
	}{
		"cut":                    {func() { forge(t, dir, 22, 23) }, verify.Truncated},
		"rewritten":              {func() { forge(t, dir, 30, 5) }, verify.Forked},
		"cut and goes on":        {func() { forge(t, dir, 30, 24) }, verify.Forked},
		"another ledger instead": {func() { forge(t, dir, 30, 1) }, "anchor_foreign"},
		"emptied":                {func() { os.Truncate(file, 0); os.Remove(filepath.Join(dir, ledger.HeadName)) }, verify.Truncated},
		"deleted": {func() {
			os.RemoveAll(dir)
			os.Mkdir(dir, 0o700)
		}, verify.Truncated},
	} {
		for _, also := range []func(){func() {}, forget} {
			restore(t, good, dir)
			c.do()
			also()
			if r := verdictOf(t, dir); r.Verdict != verify.Tampered || !slices.Contains(faultsOf(r), c.want) {
				t.Errorf("%s: %s, %v", name, r.Verdict, faultsOf(r))
			}
			exits(t, exitTampered, "refused", "anchor", "push", dir)
		}
	}
	os.RemoveAll(dir)
	if r := verdictOf(t, dir); r.Verdict != verify.Tampered {
		t.Errorf("a ledger that is gone: %s", r.Verdict)
	}
	restore(t, good, dir)
	if r := verdictOf(t, dir); r.Verdict != verify.Anchored {
		t.Errorf("restored: %+v", r)
	}
}

func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func restore(t testing.TB, from, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(from)), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestAnchorsTampered is what a storage administrator or a thief of credentials
// does to the anchors, as verify tells it.
func TestAnchorsTampered(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(t *testing.T, client *s3.Client, key, file string)
		verdict verify.Verdict
		want    string
	}{
		"edited underneath": {func(t *testing.T, _ *s3.Client, _, file string) {
			if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, verify.Tampered, "anchor_forged"},
		"deleted underneath": {func(t *testing.T, _ *s3.Client, _, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, verify.Tampered, "anchor_lost"},
		"forged version on top": {func(t *testing.T, client *s3.Client, key, _ string) {
			if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: &key, Body: strings.NewReader("{}")}); err != nil {
				t.Fatal(err)
			}
		}, verify.Tampered, "anchor_forged"},
		"delete marker": {func(t *testing.T, client *s3.Client, key, _ string) {
			if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String("bucket"), Key: &key}); err != nil {
				t.Fatal(err)
			}
		}, verify.Anchored, "anchor_marker"},
	} {
		t.Run(name, func(t *testing.T) {
			data, client := startS3(t)
			dir := filepath.Join(t.TempDir(), "ledger")
			write(t, dir, 1, 10)
			exits(t, exitOK, "", "anchor", "push", dir)
			write(t, dir, 11, 20)
			exits(t, exitOK, "", "anchor", "push", dir)
			receipts, err := anchor.ReadReceipts(filepath.Join(dir, anchor.ReceiptsName))
			if err != nil || len(receipts) != 2 {
				t.Fatal(receipts, err)
			}
			key := "p/" + receipts[1].Key
			c.do(t, client, key, filepath.Join(data, "data", "bucket", filepath.FromSlash(key)))
			r := verdictOf(t, dir)
			text := fmt.Sprint(r.Faults, r.Warnings)
			if r.Verdict != c.verdict || !strings.Contains(text, c.want) {
				t.Errorf("%s: %s", r.Verdict, text)
			}
			exits(t, r.Verdict.ExitCode(), c.want, "verify", dir)
			// The one before still counts, and a cut behind it is found.
			forge(t, dir, 9, 10)
			if r := verdictOf(t, dir); !slices.Contains(faultsOf(r), verify.Truncated) {
				t.Errorf("cut as well: %v", faultsOf(r))
			}
		})
	}
}

// TestAnchorsOutOfReach is never green, and not tampered either.
func TestAnchorsOutOfReach(t *testing.T) {
	awsEnv(t, "x", "y", "http://127.0.0.1:1")
	t.Setenv("LEDGER_ANCHOR", "s3://bucket/p")
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 1, 10)
	if r := verdictOf(t, dir); r.Verdict != verify.Unchecked || len(r.NotChecked) == 0 {
		t.Errorf("%+v", r)
	}
	forge(t, dir, 10, 5)
	b, err := os.ReadFile(filepath.Join(dir, ledger.ActiveName))
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, ledger.ActiveName), bytes.Replace(b, []byte("harmless"), []byte("harmful!"), 1), 0o600)); err != nil {
		t.Fatal(err)
	}
	if r := verdictOf(t, dir); r.Verdict != verify.Tampered {
		t.Errorf("with a fault: %s", r.Verdict)
	}
	t.Setenv("LEDGER_ANCHOR", "file:///no/such/directory")
	exits(t, exitUnchecked, "does not exist", "anchor", "push", dir, "--receipts", filepath.Join(t.TempDir(), "r"))
	exits(t, exitUnchecked, "does not exist", "anchor", "list", dir)
}

// TestPushFails ends with a status that is not 0 and one line, whatever the
// server says, and leaves all that tells of success as it was.
func TestPushFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	write(t, dir, 1, 10)
	metrics := filepath.Join(t.TempDir(), "anchor.prom")
	t.Setenv("LEDGER_ANCHOR", "file://"+filepath.ToSlash(t.TempDir()))
	exits(t, exitOK, "", "anchor", "push", dir, "--textfile", metrics)
	receipts, err := os.ReadFile(filepath.Join(dir, anchor.ReceiptsName))
	if err != nil {
		t.Fatal(err)
	}
	before := valuesOf(t, metrics)
	for _, code := range []string{"ExpiredToken", "AccessDenied", "SignatureDoesNotMatch", "InternalError", "no credentials"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(map[bool]int{true: 500, false: 403}[code == "InternalError"])
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>two\nlines</Message></Error>", code)
		}))
		awsEnv(t, "x", "y", server.URL)
		if code == "no credentials" {
			awsEnv(t, "", "", server.URL)
		}
		out, errs, status := ctl(t, "anchor", "push", dir, "--to", "s3://bucket/p", "--textfile", metrics)
		server.Close()
		if status != exitUnchecked || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, code) {
			t.Errorf("%s: status %d, %q, %q", code, status, out, errs)
		}
		if now, _ := os.ReadFile(filepath.Join(dir, anchor.ReceiptsName)); !bytes.Equal(now, receipts) {
			t.Errorf("%s: the receipts changed", code)
		}
		after := valuesOf(t, metrics)
		for name, value := range before {
			moved := after[name] != value
			if run := strings.HasPrefix(name, "ledger_anchor_last_run"); moved != run {
				t.Errorf("%s: %s was %s and is %s", code, name, value, after[name])
			}
		}
	}
	for _, args := range [][]string{{"--to", "ftp://x"}, {"--to", "s3://"}, {"--to", "file://host/x"}, {"--to", ""}, {"--mode", "hard"}, {"--retain", "0d"}, {"--retain", "soon"}, {"--addressing", "wild", "--to", "s3://bucket/p"}} {
		t.Setenv("LEDGER_ANCHOR", "")
		exits(t, exitUsage, "", append([]string{"anchor", "push", dir}, args...)...)
	}
}

func valuesOf(t testing.TB, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && line[0] != '#' {
			values[name] = value
		}
	}
	return values
}

// TestTextfile is read while it is written, by somebody else, of two
// ledgers, and after failures only.
func TestTextfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.prom")
	at := time.Unix(1700000000, 5e8)
	ok := &anchor.Result{Anchor: anchor.Anchor{Statement: anchor.Statement{Head: ledger.Head{Seq: 7}}}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(writeTextfile(path, `/a"b\`, at, nil, errors.New("failed")))
	if b, _ := os.ReadFile(path); string(b) != "# HELP ledger_anchor_last_run_timestamp_seconds When anchoring was last tried, whatever became of it.\n"+
		"# TYPE ledger_anchor_last_run_timestamp_seconds gauge\nledger_anchor_last_run_timestamp_seconds{ledger=\"/a\\\"b\\\\\"} 1700000000.500\n" {
		t.Errorf("after a failure alone:\n%s", b)
	}
	must(writeTextfile(path, `/a"b\`, at, ok, nil))
	whole, err := os.ReadFile(path)
	must(err)
	if len(valuesOf(t, path)) != 4 {
		t.Errorf("%s", whole)
	}
	info, err := os.Stat(path)
	must(err)
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode %#o", info.Mode())
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if b, err := os.ReadFile(path); err != nil || len(b) != len(whole) {
				t.Errorf("read %d bytes of %d, %v", len(b), len(whole), err)
				return
			}
		}
	})
	for range 300 {
		must(writeTextfile(path, `/a"b\`, at, ok, nil))
	}
	close(done)
	wg.Wait()
	if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
	other := filepath.Join(t.TempDir(), "other.prom")
	must(writeTextfile(other, "/other", at, ok, nil))
	b, err := os.ReadFile(other)
	must(err)
	for line := range strings.Lines(string(b)) {
		if line[0] == '#' && !strings.Contains(string(whole), line) {
			t.Errorf("%q is only in one of two files", line)
		}
	}
	if err := writeTextfile(filepath.Join(t.TempDir(), "no", "x.prom"), "/a", at, ok, nil); err == nil {
		t.Error("written where there is no directory")
	}
}

// TestPushesAtOnce, with one file of receipts, and each with its own.
func TestPushesAtOnce(t *testing.T) {
	startS3(t)
	for _, shared := range []bool{true, false} {
		t.Setenv("LEDGER_ANCHOR", fmt.Sprintf("s3://bucket/%v", shared))
		dir := filepath.Join(t.TempDir(), "ledger")
		write(t, dir, 1, 50)
		own := t.TempDir()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				args := []string{"anchor", "push", dir}
				if !shared {
					args = append(args, "--receipts", filepath.Join(own, fmt.Sprint(i)))
				}
				if out, errs, code := ctl(t, args...); code != exitOK {
					t.Errorf("status %d: %s%s", code, out, errs)
				}
			})
		}
		wg.Wait()
		if r := verdictOf(t, dir); r.Verdict != verify.Anchored || r.Anchors != 1 {
			t.Errorf("shared receipts %v: %s, %d anchors, %+v", shared, r.Verdict, r.Anchors, r.Faults)
		}
	}
}

// TestPushWhileWriting shows that every statement is a pair that the ledger has,
// with four callers that write at once and segments that are sealed.
func TestPushWhileWriting(t *testing.T) {
	startS3(t)
	dir := filepath.Join(t.TempDir(), "ledger")
	s, err := store.Open(t.Context(), dir, store.Options{SealAt: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(t.Context(), note(0)); err != nil {
		t.Fatal(err)
	}
	const pushes, callers = 40, 4
	// As many records are written for each push as it takes time to make it, at
	// about 200 a second.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			tick := time.NewTicker(callers * 5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				if _, err := s.Append(t.Context(), note(c<<20+i)); err != nil {
					t.Error(err)
					return
				}
				if c == 0 && i%4 == 3 {
					if _, err := s.Seal(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range pushes {
		if out, errs, code := ctl(t, "anchor", "push", dir); code != exitOK {
			t.Errorf("push: status %d: %s%s", code, out, errs)
		}
		if r := verdictOf(t, dir); r.Verdict != verify.Anchored {
			t.Errorf("verify meanwhile: %s, %+v, %v", r.Verdict, r.Faults, r.NotChecked)
		}
	}
	close(stop)
	wg.Wait()
	r := verdictOf(t, dir)
	receipts, err := anchor.ReadReceipts(filepath.Join(dir, anchor.ReceiptsName))
	if r.Verdict != verify.Anchored || r.Anchors != len(receipts) || err != nil || len(receipts) < 3 || len(r.Segments) < 2 {
		t.Errorf("%s, %d anchors of %d, %d segments, %v, %+v", r.Verdict, r.Anchors, len(receipts), len(r.Segments), err, r.Faults)
	}
	t.Logf("%d records in %d segments, %d anchors", r.Records, len(r.Segments), r.Anchors)
}

// TestAnchorCheck is the doctor's exit status and text.
func TestAnchorCheck(t *testing.T) {
	_, client := startS3(t)
	exits(t, exitOK, "the lock holds", "anchor", "check", "--retain", "1m")
	out := exits(t, exitOK, `"good":true`, "anchor", "check", "--format", "json")
	var r struct {
		Checks []anchor.Check
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Checks) < 10 {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("plain")}); err != nil {
		t.Fatal(err)
	}
	exits(t, exitTampered, "NO PLACE FOR ANCHORS", "anchor", "check", "--to", "s3://plain/p")
	exits(t, exitOK, "on the volume of the ledger", "anchor", "check", t.TempDir(), "--to", "file://"+filepath.ToSlash(t.TempDir()))
}

// TestHelpSaysTheStatus holds every anchor command to its exit statuses.
func TestHelpSaysTheStatus(t *testing.T) {
	for _, name := range []string{"push", "list", "check"} {
		exits(t, exitOK, "Exit status:", "anchor", name, "--help")
	}
}

// BenchmarkPush anchors 1,000 new records of a ledger of 1,000,000, and tells how
// many requests that takes, and its time beside that of a full verify.
func BenchmarkPush(b *testing.B) {
	startS3(b)
	target, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL_S3"))
	if err != nil {
		b.Fatal(err)
	}
	var requests atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		requests.Add(1)
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host // which is signed
	}})
	defer proxy.Close()
	b.Setenv("AWS_ENDPOINT_URL_S3", proxy.URL)
	dir := b.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, ledger.ActiveName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var head ledger.Head
	more := func(n int) {
		var buf []byte
		for range n {
			e := note(int(head.Seq))
			head.Seq++
			buf, head.Sum = e.AppendLine(buf, head.Seq, 1e18+int64(head.Seq), head.Sum)
		}
		if _, err := f.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	timed := func(args ...string) time.Duration {
		begun := time.Now()
		exits(b, exitOK, "", args...)
		return time.Since(begun)
	}
	more(1_000_000)
	timed("anchor", "push", dir)
	full := timed("verify", dir, "--anchors=")
	var total time.Duration
	requests.Store(0)
	b.ResetTimer()
	for range b.N {
		more(1000)
		total += timed("anchor", "push", dir)
	}
	b.StopTimer()
	push := total / time.Duration(b.N)
	b.ReportMetric(float64(requests.Load())/float64(b.N), "requests/push")
	b.ReportMetric(float64(push)/1e6, "ms/push")
	b.ReportMetric(float64(full)/1e6, "ms/verify")
	b.ReportMetric(float64(push)/float64(full), "push/verify")
}
