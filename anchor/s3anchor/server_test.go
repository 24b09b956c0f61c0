package s3anchor_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/auditledger/auditledger/anchor/s3anchor"
	"github.com/auditledger/auditledger/internal/bareenv"
)

func TestMain(m *testing.M) {
	bareenv.Clear()
	os.Exit(m.Run())
}

// Credentials of the test servers. They open nothing else.
var access = aws.Credentials{AccessKeyID: "demo", SecretAccessKey: "demo-secret"}

// withCredentials is an environment in which the SDK finds these and no other.
func withCredentials(t testing.TB) {
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": access.AccessKeyID, "AWS_SECRET_ACCESS_KEY": access.SecretAccessKey, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "",
		"AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_MAX_ATTEMPTS": "", "AWS_REQUEST_CHECKSUM_CALCULATION": "",
	} {
		t.Setenv(name, value)
	}
}

// start runs one of the servers of the tools module until the test ends, and
// gives its address.
func start(t testing.TB, name string, args ...string) string {
	t.Helper()
	path := cmp.Or(os.Getenv("AUDITLEDGER_"+strings.ToUpper(name)), filepath.Join("..", "..", "bin", "tools", name))
	if _, err := os.Stat(path); err != nil {
		if slices.Contains(strings.Split(os.Getenv("AUDITLEDGER_REQUIRE"), ","), "s3") {
			t.Fatalf("%s is not built, and AUDITLEDGER_REQUIRE wants it: make bin/tools/%[1]s", name)
		}
		t.Skipf("%s is not built: make bin/tools/%[1]s", name)
	}
	c := exec.Command(path, append([]string{"-stdin"}, args...)...)
	c.Stderr = os.Stderr
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
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			go io.Copy(io.Discard, out)
			return address
		}
	}
	t.Fatalf("%s did not get ready", name)
	return ""
}

// server is an S3 server with Object Lock.
type server struct {
	t       testing.TB
	address string
	dir     string
	client  *s3.Client
}

func newServer(t testing.TB) *server {
	withCredentials(t)
	dir := t.TempDir()
	s := &server{t: t, dir: dir, address: start(t, "s3demo", "-dir", dir)}
	s.client = clientAt(s.address)
	return s
}

func clientAt(address string) *s3.Client {
	return s3.New(s3.Options{BaseEndpoint: &address, UsePathStyle: true, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return access, nil })})
}

// bucket makes a bucket, with or without Object Lock.
func (s *server) bucket(name string, lock bool) {
	s.t.Helper()
	if _, err := s.client.CreateBucket(s.t.Context(), &s3.CreateBucketInput{Bucket: &name, ObjectLockEnabledForBucket: &lock}); err != nil {
		s.t.Fatal(err)
	}
}

// sink is a sink of that server, or of a proxy before it.
func sink(t testing.TB, address, at string, change ...func(*s3anchor.Options)) *s3anchor.Sink {
	t.Helper()
	o := s3anchor.Options{Endpoint: at, MaxBackoff: time.Millisecond}
	for _, f := range change {
		f(&o)
	}
	s, err := s3anchor.New(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// proxy stands before a server and does to requests and answers what the test
// wants.
type proxy struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	// before answers itself where it returns true, or changes the request: it
	// is signed anew.
	before func(w http.ResponseWriter, r *http.Request) bool
	// after changes the answer; an error drops the connection.
	after func(r *http.Response) error
}

func newProxy(t testing.TB, to string) *proxy {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := new(proxy)
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, target.Host
			for name := range r.Out.Header {
				if strings.HasPrefix(name, "X-Forwarded") || strings.HasPrefix(name, "Amz-Sdk") {
					r.Out.Header.Del(name)
				}
			}
			var body []byte
			if r.Out.Body != nil {
				body, _ = io.ReadAll(r.Out.Body)
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
			}
			sum := sha256.Sum256(body)
			digest := hex.EncodeToString(sum[:])
			r.Out.Header.Set("X-Amz-Content-Sha256", digest)
			r.Out.Header.Del("Authorization")
			if err := v4.NewSigner().SignHTTP(r.Out.Context(), access, r.Out, digest, "s3", "us-east-1", time.Now(),
				func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }); err != nil {
				t.Error(err)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if p.after == nil {
				return nil
			}
			return p.after(r)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, r.Clone(context.Background()))
		p.mu.Unlock()
		if p.before != nil && p.before(w, r) {
			return
		}
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// seen is the requests so far of which f holds.
func (p *proxy) seen(f func(*http.Request) bool) []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*http.Request
	for _, r := range p.requests {
		if f(r) {
			all = append(all, r)
		}
	}
	return all
}

func isPut(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.RawQuery == "x-id=PutObject"
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if status != http.StatusNotModified {
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>said the test</Message></Error>`, code)
	}
}

// times is how often a proxy does something.
func times(n int, f func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if n > 0 && f(w, r) {
			n--
			return true
		}
		return false
	}
}
