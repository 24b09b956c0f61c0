package s3anchor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/anchor/s3anchor"
	"github.com/auditledger/auditledger/ledger"
)

// records is a ledger of which only the number of records matters.
type records int

func (n records) sum(i int) ledger.Hash { return ledger.Digest(fmt.Append(nil, i)) }

func (n records) Identity(context.Context) (ledger.Hash, error) { return n.sum(1), nil }

func (n records) Extend(context.Context, *anchor.Mark) (anchor.Mark, error) {
	return anchor.Mark{Head: ledger.Head{Seq: uint64(n), Sum: n.sum(int(n))}}, nil
}

// pushes pushes to one sink with one file of receipts.
type pushes struct {
	t        *testing.T
	sink     anchor.Sink
	receipts string
	retain   time.Duration
	mode     anchor.Mode
}

func newPushes(t *testing.T, s anchor.Sink) *pushes {
	return &pushes{t: t, sink: s, receipts: filepath.Join(t.TempDir(), anchor.ReceiptsName), retain: time.Hour, mode: anchor.Compliance}
}

func (p *pushes) push(n records) (*anchor.Result, error) {
	return anchor.Push(p.t.Context(), anchor.Options{Sink: p.sink, Ledger: n, Receipts: p.receipts, Retain: p.retain, Mode: p.mode, Tool: "test", Now: time.Now})
}

func (p *pushes) must(n records) *anchor.Result {
	p.t.Helper()
	r, err := p.push(n)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *pushes) count() int {
	all, err := anchor.ReadReceipts(p.receipts)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(all)
}

func (p *pushes) look(s anchor.Sink) *anchor.Survey {
	p.t.Helper()
	receipts, err := anchor.ReadReceipts(p.receipts)
	if err != nil {
		p.t.Fatal(err)
	}
	found, err := anchor.Look(p.t.Context(), s, receipts, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

func kinds(s *anchor.Survey) (all []anchor.Kind) {
	for _, f := range s.Findings {
		all = append(all, f.Kind)
	}
	return all
}

// TestWire looks at the put itself, under each setting of checksums that there
// is.
func TestWire(t *testing.T) {
	s := newServer(t)
	s.bucket("wire", true)
	p := newProxy(t, s.address)
	for i, setting := range []string{"", "when_required", "when_supported"} {
		t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", setting)
		r := newPushes(t, sink(t, fmt.Sprintf("s3://wire/%d", i), p.URL)).must(10)
		puts := p.seen(isPut)
		if len(puts) != i+1 {
			t.Fatalf("%d puts for %d anchors", len(puts), i+1)
		}
		h := puts[i].Header
		if got, want := h.Get("X-Amz-Checksum-Sha256"), base64.StdEncoding.EncodeToString(r.Digest[:]); got != want {
			t.Errorf("%q: checksum header %q, want %q", setting, got, want)
		}
		for name, want := range map[string]string{
			"If-None-Match": "*", "X-Amz-Object-Lock-Mode": "COMPLIANCE", "X-Amz-Trailer": "", "Content-Encoding": "", "Transfer-Encoding": "",
			"X-Amz-Object-Lock-Retain-Until-Date": r.Lock.Until.Format("2006-01-02T15:04:05Z"),
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%q: header %s is %q, want %q", setting, name, got, want)
			}
		}
		if sum := h.Get("X-Amz-Content-Sha256"); strings.Contains(sum, "TRAILER") || strings.Contains(sum, "STREAMING") {
			t.Errorf("%q: content hash %s", setting, sum)
		}
	}
}

// TestRequests counts what a push and a verify ask: a bucket charges for it.
func TestRequests(t *testing.T) {
	s := newServer(t)
	s.bucket("count", true)
	p := newProxy(t, s.address)
	a := newPushes(t, sink(t, "s3://count/p", p.URL))
	for n := records(10); n <= 100; n += 10 {
		a.must(n)
	}
	all := func(*http.Request) bool { return true }
	before := len(p.seen(all))
	a.must(110)
	if n := len(p.seen(all)) - before; n > 10 {
		t.Errorf("a push after ten others makes %d requests", n)
	}
	before = len(p.seen(all))
	a.must(110)
	if n := len(p.seen(all)) - before; n > 6 {
		t.Errorf("a push of a head that is anchored makes %d requests", n)
	}
}

// TestAnswers holds what a server or what is before it may answer.
func TestAnswers(t *testing.T) {
	s := newServer(t)
	s.bucket("answers", true)
	once := func(status int, code string, n int) func(*proxy) {
		return func(p *proxy) {
			p.before = times(n, func(w http.ResponseWriter, r *http.Request) bool {
				if isPut(r) {
					refuse(w, status, code)
				}
				return isPut(r)
			})
		}
	}
	// done is that the put was done, and this is answered.
	done := func(answer func(*http.Response) error) func(*proxy) {
		return func(p *proxy) {
			first := true
			p.after = func(r *http.Response) error {
				if isPut(r.Request) || r.Request.Method == http.MethodPut {
					if first {
						first = false
						return answer(r)
					}
				}
				return nil
			}
		}
	}
	on := func(query, method string, status int, code string) func(*proxy) {
		return func(p *proxy) {
			p.before = func(w http.ResponseWriter, r *http.Request) bool {
				hit := r.Method == method && strings.Contains(r.URL.RawQuery, query)
				if hit {
					refuse(w, status, code)
				}
				return hit
			}
		}
	}
	for _, c := range []struct {
		name   string
		spoil  func(*proxy)
		puts   int    // that are made
		want   string // of the error, "" where there is none
		target error
	}{
		{"nothing", func(*proxy) {}, 1, "", nil},
		{"the first answer dropped", done(func(*http.Response) error { return errors.New("drop") }), 2, "", nil},
		{"done, and 412", done(func(r *http.Response) error { r.StatusCode = 412; return nil }), 1, "", nil},
		{"done, and 304", done(func(r *http.Response) error { r.StatusCode, r.Body = 304, http.NoBody; return nil }), 1, "", nil},
		{"done, and 500", done(func(r *http.Response) error { r.StatusCode = 500; return nil }), 2, "", nil},
		{"409 twice", once(409, "ConditionalRequestConflict", 2), 3, "", nil},
		{"409 for ever", once(409, "ConditionalRequestConflict", 1<<30), 5, "another request was in flight, for 5 attempts", nil},
		{"throttled twice", once(503, "SlowDown", 2), 3, "", nil},
		{"throttled for ever", once(503, "SlowDown", 1<<30), 5, "5 attempts were made; try again later", nil},
		{"412 and nothing there", once(412, "PreconditionFailed", 1<<30), 1, "the key is taken", anchor.ErrExists},
		{"304 and nothing there", once(304, "", 1<<30), 1, "the key is taken", anchor.ErrExists},
		{"put denied", once(403, "AccessDenied", 1<<30), 1, "may lack s3:PutObject and s3:PutObjectRetention", nil},
		{"expired once", once(403, "ExpiredToken", 1), 2, "", nil},
		{"expired for ever", once(403, "ExpiredToken", 1<<30), 5, "have expired, and were no better when they were read again", nil},
		{"bad checksum", once(400, "BadDigest", 1<<30), 1, "BadDigest (400)", nil},
		{"listing denied", on("versions", "GET", 403, "AccessDenied"), 0, "may lack s3:ListBucketVersions", nil},
		{"versioning denied", on("versioning", "GET", 403, "AccessDenied"), 0, "may lack s3:GetBucketVersioning", nil},
		{"lock configuration denied", on("object-lock", "GET", 403, "AccessDenied"), 0, "may lack s3:GetBucketObjectLockConfiguration", nil},
		{"reading back denied", on("", "HEAD", 403, "Forbidden"), 1, "may lack s3:GetObject", nil},
		{"no bucket", on("", "GET", 404, "NoSuchBucket"), 0, "the bucket does not exist", nil},
		{"wrong key", on("", "GET", 403, "InvalidAccessKeyId"), 0, "the server does not take these credentials", nil},
		{"clock", func(p *proxy) {
			p.before = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Date", time.Now().Add(-2*time.Hour).UTC().Format(http.TimeFormat))
				refuse(w, 403, "RequestTimeTooSkewed")
				return true
			}
		}, 0, "it is 2h0m", nil},
		{"clock, and the server does not mind", func(p *proxy) {
			p.after = func(r *http.Response) error {
				r.Header.Set("Date", time.Now().Add(26*time.Minute).UTC().Format(http.TimeFormat))
				return nil
			}
		}, 0, "behind it; set the clock of this machine right", nil},
		{"lock headers swallowed", func(p *proxy) {
			p.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if isPut(r) {
					r.Header.Del("X-Amz-Object-Lock-Mode")
					r.Header.Del("X-Amz-Object-Lock-Retain-Until-Date")
				}
				return false
			}
		}, 1, "has no lock: this anchor does not count", anchor.ErrNotLocking},
		{"lock shortened", func(p *proxy) {
			p.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if isPut(r) {
					r.Header.Set("X-Amz-Object-Lock-Retain-Until-Date", time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
				}
				return false
			}
		}, 1, "this anchor does not count", anchor.ErrNotLocking},
		{"create-only ignored", func(p *proxy) {
			p.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if isPut(r) {
					r.Header.Del("If-None-Match")
				}
				return false
			}
		}, 1, "", nil},
		{"pages of two", func(p *proxy) {
			p.before = func(_ http.ResponseWriter, r *http.Request) bool {
				cutPages(r, "2")
				return false
			}
		}, 1, "", nil},
		{"a listing without end", func(p *proxy) {
			p.after = func(r *http.Response) error {
				return rewrite(r, "versions", "<IsTruncated>false", "<NextKeyMarker>a</NextKeyMarker><IsTruncated>true")
			}
		}, 0, "not where to go on", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, s.address)
			prefix := "s3://answers/" + strings.ReplaceAll(c.name, " ", "-")
			a := newPushes(t, sink(t, prefix, p.URL))
			c.spoil(p)
			r, err := a.push(10)
			if n := len(p.seen(isPut)); n != c.puts {
				t.Errorf("%d puts, want %d", n, c.puts)
			}
			if c.want == "" {
				if err != nil || r.Already || a.count() != 1 {
					t.Fatalf("%+v, %v, %d receipts", r, err, a.count())
				}
				honest := sink(t, prefix, s.address)
				if s := a.look(honest); len(s.Anchors) != 1 || len(s.Findings) != 0 {
					t.Errorf("%+v", s)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || c.target != nil && !errors.Is(err, c.target) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if a.count() != 0 {
				t.Error("a push that failed left a receipt")
			}
		})
	}
}

// cutPages makes a listing give n at a time.
func cutPages(r *http.Request, n string) {
	if q := r.URL.Query(); q.Has("versions") {
		q.Set("max-keys", n)
		r.URL.RawQuery = q.Encode()
	}
}

// rewrite changes the text of an answer to a query.
func rewrite(r *http.Response, query, from, to string) error {
	if !r.Request.URL.Query().Has(query) {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte(from), []byte(to))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	r.Header.Set("Content-Length", fmt.Sprint(len(b)))
	return nil
}

// TestCredentialsAreReadAnew renews them in the file while a push is under way.
func TestCredentialsAreReadAnew(t *testing.T) {
	s := newServer(t)
	s.bucket("renew", true)
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(id string) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", id, access.SecretAccessKey), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write("old")
	p := newProxy(t, s.address)
	p.before = func(w http.ResponseWriter, r *http.Request) bool {
		old := strings.Contains(r.Header.Get("Authorization"), "Credential=old/")
		if old && isPut(r) {
			write("new")
			refuse(w, 403, "ExpiredToken")
		}
		return old && isPut(r)
	}
	newPushes(t, sink(t, "s3://renew/p", p.URL)).must(10)
	puts := p.seen(isPut)
	if len(puts) != 2 || !strings.Contains(puts[1].Header.Get("Authorization"), "Credential=new/") {
		t.Errorf("%d puts, the last with %s", len(puts), puts[len(puts)-1].Header.Get("Authorization"))
	}
}

// TestNoCredentials is a bare environment, as cron's.
func TestNoCredentials(t *testing.T) {
	withCredentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	p := newProxy(t, "http://127.0.0.1:1")
	_, err := newPushes(t, sink(t, "s3://b/p", p.URL)).push(1)
	if err == nil || !strings.Contains(err.Error(), "no credentials") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if n := len(p.seen(func(*http.Request) bool { return true })); n != 0 {
		t.Errorf("%d requests without credentials", n)
	}
}

// TestAddressing is which host is asked for which path, and what is no address.
func TestAddressing(t *testing.T) {
	withCredentials(t)
	p := newProxy(t, "http://127.0.0.1:1")
	p.before = func(w http.ResponseWriter, r *http.Request) bool { refuse(w, 404, "NoSuchBucket"); return true }
	if _, err := sink(t, "s3://the-bucket/p", p.URL).Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "s3://the-bucket/p at "+p.URL) {
		t.Errorf("%v", err)
	}
	if r := p.seen(func(*http.Request) bool { return true })[0]; !strings.HasPrefix(r.URL.Path, "/the-bucket") || r.Host != strings.TrimPrefix(p.URL, "http://") {
		t.Errorf("asked %s for %s", r.Host, r.URL)
	}
	virtual := func(o *s3anchor.Options) { o.Addressing = s3anchor.VirtualHost; o.Attempts = 1 }
	_, err := sink(t, "s3://the-bucket/p", "http://localhost.invalid:9", virtual).Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--addressing path") {
		t.Errorf("%v", err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", p.URL)
	if _, err := sink(t, "s3://the-bucket/p", "").Ready(t.Context()); err == nil || !strings.Contains(err.Error(), p.URL) {
		t.Errorf("with the endpoint of the environment: %v", err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	if _, err := s3anchor.New(t.Context(), "s3://b/p", s3anchor.Options{}); err == nil || !strings.Contains(err.Error(), "--region") {
		t.Errorf("without a region: %v", err)
	}
	for _, bad := range []string{"", "s3://", "s3:///p", "http://b/p", "s3://b/p?x=y", "s3://b/a//b"} {
		if _, err := s3anchor.New(t.Context(), bad, s3anchor.Options{Region: "us-east-1"}); err == nil {
			t.Errorf("%q passes for an address", bad)
		}
	}
}

// TestPlainBucket has no Object Lock: it is refused before anything is put
// there.
func TestPlainBucket(t *testing.T) {
	s := newServer(t)
	s.bucket("plain", false)
	p := newProxy(t, s.address)
	a := newPushes(t, sink(t, "s3://plain/p", p.URL))
	if _, err := a.push(1); !errors.Is(err, anchor.ErrNotLocking) || len(p.seen(isPut)) != 0 || a.count() != 0 {
		t.Errorf("%v, %d puts", err, len(p.seen(isPut)))
	}
}

// TestPages reads everything however small the pages are.
func TestPages(t *testing.T) {
	s := newServer(t)
	s.bucket("pages", true)
	honest := sink(t, "s3://pages/p", s.address)
	a := newPushes(t, honest)
	var last *anchor.Result
	for n := records(1); n <= 7; n++ {
		last = a.must(n)
	}
	for range 5 {
		s.put("pages", "p/"+last.Key, "{}")
	}
	s.remove("pages", "p/"+last.Key)
	want := a.look(honest)
	if len(want.Anchors) != 7 || want.Versions != 13 || want.Faults() != 5 {
		t.Fatalf("%d anchors, %d versions, %v", len(want.Anchors), want.Versions, kinds(want))
	}
	// Pages of one it repeats for ever; it begins each with the end of the last.
	for _, size := range []string{"2", "3", "5", "7", "1000"} {
		p := newProxy(t, s.address)
		p.before = func(_ http.ResponseWriter, r *http.Request) bool { cutPages(r, size); return false }
		got := a.look(sink(t, "s3://pages/p", p.URL))
		if len(got.Anchors) != 7 || got.Versions != 13 || !slices.Equal(kinds(got), kinds(want)) {
			t.Errorf("pages of %s: %d anchors, %d versions, %v", size, len(got.Anchors), got.Versions, kinds(got))
		}
		// And push finds the last of them without receipts.
		if r := newPushes(t, sink(t, "s3://pages/p", p.URL)).must(7); !r.Already || r.Version != last.Version {
			t.Errorf("pages of %s: push found %+v", size, r)
		}
	}
}

func (s *server) put(bucket, key, body string) {
	s.t.Helper()
	if _, err := s.client.PutObject(s.t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(body)}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) remove(bucket, key string) {
	s.t.Helper()
	if _, err := s.client.DeleteObject(s.t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		s.t.Fatal(err)
	}
}

// TestStorageAdministrator owns the disks under the server.
func TestStorageAdministrator(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, s *server, key, file string)
		want []anchor.Kind
	}{
		"edits the object": {func(t *testing.T, _ *server, _, file string) {
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, bytes.Replace(b, []byte(`"seq":30`), []byte(`"seq":31`), 1), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []anchor.Kind{anchor.Forged}},
		"makes the object longer": {func(t *testing.T, _ *server, _, file string) {
			if err := os.WriteFile(file, []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []anchor.Kind{anchor.Forged}},
		"deletes the object": {func(t *testing.T, _ *server, _, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, []anchor.Kind{anchor.Lost}},
		"lays a forged version on top": {func(_ *testing.T, s *server, key, _ string) { s.put("admin", key, "{}") }, []anchor.Kind{anchor.Forged}},
		"deletes the key":              {func(_ *testing.T, s *server, key, _ string) { s.remove("admin", key) }, []anchor.Kind{anchor.Marker}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.bucket("admin", true)
			at := sink(t, "s3://admin/p", s.address)
			a := newPushes(t, at)
			for n := records(10); n <= 30; n += 10 {
				a.must(n)
			}
			before := a.look(at)
			last := before.Anchors[2]
			c.do(t, s, "p/"+last.Key, filepath.Join(s.dir, "data", "admin", "p", filepath.FromSlash(last.Key)))
			after := a.look(at)
			var found []anchor.Kind
			for _, f := range after.Findings {
				if f.Key == last.Key {
					found = append(found, f.Kind)
				}
			}
			if len(found) == 0 || !slices.Contains(found, c.want[0]) {
				t.Errorf("found %+v, want %v", after.Findings, c.want)
			}
			for _, f := range after.Findings {
				t.Logf("%s: %s", f.Kind, f.Detail)
			}
		})
	}
}

// TestLocked shows that the server of the tests keeps what is locked, so
// that what these tests say is worth something.
func TestLocked(t *testing.T) {
	s := newServer(t)
	s.bucket("locked", true)
	a := newPushes(t, sink(t, "s3://locked/p", s.address))
	r := a.must(1)
	for _, bypass := range []bool{false, true} {
		in := &s3.DeleteObjectInput{Bucket: aws.String("locked"), Key: aws.String("p/" + r.Key), VersionId: &r.Version}
		if bypass {
			in.BypassGovernanceRetention = &bypass
		}
		if _, err := s.client.DeleteObject(t.Context(), in); err == nil {
			t.Errorf("an anchor was deleted, bypass %v", bypass)
		}
	}
	// Governance can be lifted, and that is noticed.
	g := newPushes(t, sink(t, "s3://locked/g", s.address))
	g.mode = anchor.Governance
	r = g.must(1)
	yes := true
	if _, err := s.client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String("locked"), Key: aws.String("g/" + r.Key), VersionId: &r.Version, BypassGovernanceRetention: &yes}); err != nil {
		t.Fatal(err)
	}
	if found := kinds(g.look(g.sink)); !slices.Equal(found, []anchor.Kind{anchor.Lost}) {
		t.Errorf("found %v", found)
	}
}

func check(t *testing.T, s *s3anchor.Sink, mode anchor.Mode) map[string]anchor.Check {
	t.Helper()
	all := map[string]anchor.Check{}
	for _, c := range s.Check(t.Context(), anchor.CheckOptions{Mode: mode, Retain: time.Minute, Now: time.Now}) {
		t.Logf("%s %s: %s", c.State, c.Name, c.Detail)
		all[c.Name] = c
	}
	return all
}

func TestCheck(t *testing.T) {
	s := newServer(t)
	s.bucket("good", true)
	s.bucket("plain", false)
	want := func(t *testing.T, all map[string]anchor.Check, states map[string]anchor.State) {
		t.Helper()
		for name, state := range states {
			if all[name].State != state {
				t.Errorf("%s is %q, want %q", name, all[name].State, state)
			}
		}
	}
	t.Run("good", func(t *testing.T) {
		at := sink(t, "s3://good/p", s.address)
		want(t, check(t, at, anchor.Compliance), map[string]anchor.State{
			"credentials": anchor.OK, "versioning": anchor.OK, "object lock": anchor.OK, "default retention": anchor.Warning, "public access": anchor.Unknown,
			"clock": anchor.OK, "list versions": anchor.OK, "create with a lock": anchor.OK, "create-only": anchor.OK, "read the lock back": anchor.OK,
			"permissions": anchor.Warning, "shorten a lock": anchor.OK, "delete what is locked": anchor.OK})
		// The trial objects are none of a ledger's.
		a := newPushes(t, at)
		a.must(1)
		if s := a.look(at); len(s.Anchors) != 1 || len(s.Findings) != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("governance that may be bypassed", func(t *testing.T) {
		want(t, check(t, sink(t, "s3://good/g", s.address), anchor.Governance), map[string]anchor.State{"delete what is locked": anchor.Warning})
	})
	t.Run("plain", func(t *testing.T) {
		want(t, check(t, sink(t, "s3://plain/p", s.address), anchor.Compliance), map[string]anchor.State{
			"versioning": anchor.Failed, "object lock": anchor.Failed, "create with a lock": anchor.Failed})
	})
	t.Run("least privilege", func(t *testing.T) {
		p := newProxy(t, s.address)
		p.before = func(w http.ResponseWriter, r *http.Request) bool {
			denied := r.Method == http.MethodDelete || r.URL.Query().Has("publicAccessBlock")
			if denied {
				refuse(w, 403, "AccessDenied")
			}
			return denied
		}
		all := check(t, sink(t, "s3://good/l", p.URL), anchor.Compliance)
		want(t, all, map[string]anchor.State{"permissions": anchor.OK, "delete what is locked": anchor.OK, "public access": anchor.Unknown})
		if d := all["delete what is locked"].Detail; !strings.Contains(d, "to see the lock alone") {
			t.Errorf("says %s", d)
		}
		if d := all["public access"].Detail; !strings.Contains(d, "s3:GetBucketPublicAccessBlock") {
			t.Errorf("says %s", d)
		}
	})
	t.Run("missing permission", func(t *testing.T) {
		p := newProxy(t, s.address)
		p.before = func(w http.ResponseWriter, r *http.Request) bool {
			if isPut(r) {
				refuse(w, 403, "AccessDenied")
			}
			return isPut(r)
		}
		c := check(t, sink(t, "s3://good/m", p.URL), anchor.Compliance)["create with a lock"]
		if c.State != anchor.Failed || !strings.Contains(c.Detail, "s3:PutObjectRetention") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("swallows locks", func(t *testing.T) {
		p := newProxy(t, s.address)
		p.before = func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("X-Amz-Object-Lock-Mode")
			r.Header.Del("X-Amz-Object-Lock-Retain-Until-Date")
			return false
		}
		want(t, check(t, sink(t, "s3://good/s", p.URL), anchor.Compliance), map[string]anchor.State{
			"read the lock back": anchor.Failed, "delete what is locked": anchor.Failed})
	})
	t.Run("unreachable", func(t *testing.T) {
		all := check(t, sink(t, "s3://good/s", "http://127.0.0.1:1", func(o *s3anchor.Options) { o.Attempts = 1 }), anchor.Compliance)
		want(t, all, map[string]anchor.State{"versioning": anchor.Failed})
	})
}

// TestPretender takes lock headers, repeats them, and locks nothing.
func TestPretender(t *testing.T) {
	withCredentials(t)
	address := start(t, "s3pretender")
	if _, err := clientAt(address).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("pretend"), ObjectLockEnabledForBucket: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, address)
	a := newPushes(t, sink(t, "s3://pretend/p", p.URL))
	_, err := a.push(1)
	if !errors.Is(err, anchor.ErrNotLocking) || !strings.Contains(err.Error(), "s3://pretend/p at "+p.URL) || len(p.seen(isPut)) != 0 {
		t.Errorf("push: %v", err)
	}
	honestLooking := regexp.MustCompile(`takes lock headers, and locks nothing`)
	c := check(t, sink(t, "s3://pretend/p", p.URL), anchor.Compliance)
	if d := c["delete what is locked"]; d.State != anchor.Failed || !honestLooking.MatchString(d.Detail) || !strings.Contains(d.Detail, "s3://pretend/p at "+p.URL) {
		t.Errorf("check: %+v", d)
	}
	if c["read the lock back"].State != anchor.OK {
		t.Error("this pretender does not even repeat what it was told: the trial is not put to the test")
	}
}

// TestExpiry waits for the end of a lock: the one thing that cannot be hurried.
func TestExpiry(t *testing.T) {
	s := newServer(t)
	s.bucket("expiry", true)
	at := sink(t, "s3://expiry/p", s.address)
	a := newPushes(t, at)
	a.retain = 2 * time.Second
	r := a.must(1)
	// Look is told the time, so that it need not wait.
	found, err := anchor.Look(t.Context(), at, nil, r.Lock.Until.Add(time.Second))
	if err != nil || !slices.Equal(kinds(found), []anchor.Kind{anchor.Expired}) || found.Through() != nil {
		t.Errorf("%v, %v", found, err)
	}
	in := &s3.DeleteObjectInput{Bucket: aws.String("expiry"), Key: aws.String("p/" + r.Key), VersionId: &r.Version}
	var gone bool
	for !gone && time.Now().Before(r.Lock.Until) {
		_, err := s.client.DeleteObject(t.Context(), in)
		if gone = err == nil; gone && time.Now().Before(r.Lock.Until.Add(-100*time.Millisecond)) {
			t.Fatal("deleted before its lock ended")
		}
	}
	for end := time.Now().Add(time.Minute); !gone && time.Now().Before(end); {
		_, err := s.client.DeleteObject(t.Context(), in)
		gone = err == nil
	}
	if !gone {
		t.Fatal("not deleted after its lock ended")
	}
	if k := kinds(a.look(at)); !slices.Equal(k, []anchor.Kind{anchor.Gone}) {
		t.Errorf("found %v", k)
	}
}
