// Package s3anchor keeps anchors in a bucket with S3 Object Lock, of AWS or of
// a server that speaks its protocol.
//
// # On the wire
//
// An anchor is one PutObject from memory with these headers, and no trailer:
//
//	If-None-Match: *
//	x-amz-checksum-sha256: …
//	x-amz-object-lock-mode: COMPLIANCE
//	x-amz-object-lock-retain-until-date: …
//
// AWS_REQUEST_CHECKSUM_CALCULATION and the like change nothing of that. What
// was stored is read back by its version: HeadObject, and where that shows no
// lock, GetObjectRetention, since a server may leave it out of the first, and
// AWS does so where s3:GetObjectRetention is not granted.
//
// # Errors
//
// Throttling, answers of 5xx, broken connections, conflicts in flight (409)
// and expired credentials are tried again, Attempts times at most; for the
// last, the credentials are read anew from where they came. 412 and 304 say
// that the key is taken. A clock that the server calls skewed is named with the
// difference, and not corrected, since the lock's date is made with it.
//
// # Addresses
//
// s3://BUCKET/PREFIX. Credentials, region and profile are found as by every
// SDK. With an endpoint of one's own (Options.Endpoint, AWS_ENDPOINT_URL_S3)
// the bucket is put into the path, else before the host name; only
// Options.Addressing changes that, the addressing_style of a shared config file
// is not looked at.
package s3anchor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
)

// Options of a sink. The zero value is for AWS.
type Options struct {
	Endpoint   string     // of a server of one's own, "http://127.0.0.1:7070"
	Region     string     // where the SDK finds none, or another
	Addressing Addressing // how the bucket is named

	Attempts   int           // of a request; 5 if 0
	MaxBackoff time.Duration // between them; 5 s if 0
	Timeout    time.Duration // of an attempt; 30 s if 0
	PageSize   int32         // of a listing; the server's if 0
	Now        func() time.Time
}

// Addressing is how a bucket is named in a request.
type Addressing string

const (
	Auto        Addressing = ""        // path with an endpoint of one's own, else virtual
	Path        Addressing = "path"    // http://HOST/BUCKET/KEY
	VirtualHost Addressing = "virtual" // http://BUCKET.HOST/KEY
)

// Sink is a prefix in a bucket.
type Sink struct {
	client   *s3.Client
	bucket   string
	prefix   string // ends in "/" where there is one
	endpoint string // "" for AWS
	o        Options
}

var _ anchor.Checker = (*Sink)(nil)

// New is the sink at address, "s3://BUCKET/PREFIX". It asks nothing of the
// server.
func New(ctx context.Context, address string, o Options) (*Sink, error) {
	rest, ok := strings.CutPrefix(address, "s3://")
	bucket, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	if !ok || bucket == "" || strings.ContainsAny(rest, "?# ") || strings.Contains(prefix, "//") {
		return nil, fmt.Errorf("%q is no address of a bucket: want s3://BUCKET/PREFIX", address)
	}
	if o.Endpoint != "" {
		if u, err := url.Parse(o.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%q is no endpoint: want http://HOST:PORT or https://HOST", o.Endpoint)
		}
	}
	if prefix != "" {
		prefix += "/"
	}
	s := &Sink{bucket: bucket, prefix: prefix, o: o}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.Attempts == 0 {
		s.o.Attempts = 5
	}
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(cmp.Or(o.Timeout, 30*time.Second)))}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration for %s: %w", address, err)
	}
	// The chain keeps what it once read from the environment or a file. Asked
	// anew, it reads anew.
	credentials := aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		fresh, err := config.LoadDefaultConfig(ctx, load...)
		if err != nil {
			return aws.Credentials{}, err
		}
		return fresh.Credentials.Retrieve(ctx)
	}))
	if cfg.RetryMaxAttempts > 0 {
		s.o.Attempts = cfg.RetryMaxAttempts
	}
	standard := retry.NewStandard(func(so *retry.StandardOptions) {
		so.MaxAttempts = s.o.Attempts
		so.MaxBackoff = cmp.Or(o.MaxBackoff, 5*time.Second)
		so.Backoff = retry.NewExponentialJitterBackoff(so.MaxBackoff)
	})
	s.client = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.Credentials = credentials
		so.Retryer = &retryer{standard, credentials}
		so.RetryMaxAttempts = 0
		so.DisableClockSkewCorrection = true
		so.DisableLogOutputChecksumValidationSkipped = true
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
		if so.BaseEndpoint != nil {
			s.endpoint = *so.BaseEndpoint
			if so.Region == "" {
				so.Region = "us-east-1" // servers of one's own rarely care
			}
		}
		so.UsePathStyle = o.Addressing == Path || o.Addressing == Auto && s.endpoint != ""
	})
	if s.client.Options().Region == "" {
		return nil, fmt.Errorf("%s: no region is known: give --region, or set AWS_REGION", address)
	}
	return s, nil
}

// retryer also retries what may be over at the next attempt for an anchor.
type retryer struct {
	aws.RetryerV2
	credentials *aws.CredentialsCache
}

func (r *retryer) IsErrorRetryable(err error) bool {
	switch codeOf(err) {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		r.credentials.Invalidate()
		return true
	case "ConditionalRequestConflict", "OperationAborted":
		return true
	}
	return r.RetryerV2.IsErrorRetryable(err)
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func (s *Sink) String() string {
	return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/")
}

// where is the sink for people: with its endpoint.
func (s *Sink) where() string {
	if s.endpoint == "" {
		return s.String()
	}
	return s.String() + " at " + s.endpoint
}

// Ready asks whether the bucket has versions and Object Lock.
func (s *Sink) Ready(ctx context.Context) (time.Time, error) {
	v, err := s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	if err != nil {
		return time.Time{}, s.fail("ask for the versioning of", "", err)
	}
	if v.Status != types.BucketVersioningStatusEnabled {
		return time.Time{}, s.notLocking("versioning of the bucket is not enabled, and without versions nothing is locked")
	}
	l, err := s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.bucket})
	switch {
	case codeOf(err) == "ObjectLockConfigurationNotFoundError" || codeOf(err) == "NotImplemented":
		return time.Time{}, s.notLocking("Object Lock is not enabled")
	case err != nil:
		return time.Time{}, s.fail("ask for the Object Lock of", "", err)
	case l.ObjectLockConfiguration == nil || l.ObjectLockConfiguration.ObjectLockEnabled != types.ObjectLockEnabledEnabled:
		return time.Time{}, s.notLocking("Object Lock is not enabled: the server answers, and does not say so")
	}
	now, _ := awsmiddleware.GetServerTime(l.ResultMetadata)
	return now, nil
}

func (s *Sink) notLocking(why string) error {
	return fmt.Errorf("%s: %w: %s; create the bucket with Object Lock (see deploy/terraform), and try it out with ledgerctl anchor check",
		s.where(), anchor.ErrNotLocking, why)
}

// Create is one plain put.
func (s *Sink) Create(ctx context.Context, key string, body []byte, lock anchor.Lock) (string, error) {
	return s.put(ctx, key, body, &lock, true)
}

func (s *Sink) put(ctx context.Context, key string, body []byte, lock *anchor.Lock, createOnly bool) (string, error) {
	sum := ledger.Digest(body)
	in := &s3.PutObjectInput{
		Bucket: &s.bucket, Key: aws.String(s.prefix + key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}
	if createOnly {
		in.IfNoneMatch = aws.String("*")
	}
	if lock != nil {
		in.ObjectLockMode, in.ObjectLockRetainUntilDate = types.ObjectLockMode(lock.Mode), &lock.Until
	}
	out, err := s.client.PutObject(ctx, in)
	if err != nil {
		if status := statusOf(err); status == http.StatusPreconditionFailed || status == http.StatusNotModified {
			return "", fmt.Errorf("create %s in %s: %w", key, s.where(), anchor.ErrExists)
		}
		return "", s.fail("create", key, err)
	}
	return aws.ToString(out.VersionId), nil
}

// Versions lists page by page.
func (s *Sink) Versions(ctx context.Context, begin string) iter.Seq2[anchor.Version, error] {
	return func(yield func(anchor.Version, error) bool) {
		in := &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &s.prefix, EncodingType: types.EncodingTypeUrl}
		if s.o.PageSize > 0 {
			in.MaxKeys = &s.o.PageSize
		}
		if begin != "" {
			// The marker is left out of the answer: one that sorts just before.
			in.KeyMarker = aws.String(s.prefix + begin[:len(begin)-1])
		}
		// A page may begin with what the page before ended with.
		lastKey, given := "", map[string]bool{}
		for {
			out, err := s.client.ListObjectVersions(ctx, in)
			if err != nil {
				yield(anchor.Version{}, s.fail("list the versions in", "", err))
				return
			}
			decode := func(k *string) string {
				if out.EncodingType == types.EncodingTypeUrl {
					if plain, err := url.QueryUnescape(aws.ToString(k)); err == nil {
						return plain
					}
				}
				return aws.ToString(k)
			}
			for _, v := range s.page(out, decode) {
				if v.Key != lastKey {
					lastKey, given = v.Key, map[string]bool{}
				}
				if v.Key < begin || given[v.ID] {
					continue
				}
				given[v.ID] = true
				if !yield(v, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			next := decode(out.NextKeyMarker)
			if next == "" || next == aws.ToString(in.KeyMarker) && aws.ToString(out.NextVersionIdMarker) == aws.ToString(in.VersionIdMarker) {
				yield(anchor.Version{}, fmt.Errorf("list the versions in %s: the server says that there is more, and not where to go on", s.where()))
				return
			}
			in.KeyMarker, in.VersionIdMarker = &next, out.NextVersionIdMarker
		}
	}
}

// page is one page in the order of keys, below the prefix.
func (s *Sink) page(out *s3.ListObjectVersionsOutput, decode func(*string) string) []anchor.Version {
	var all []anchor.Version
	add := func(key, id *string, t *time.Time, marker bool) {
		if k, ok := strings.CutPrefix(decode(key), s.prefix); ok && k != "" {
			all = append(all, anchor.Version{Key: k, ID: aws.ToString(id), Marker: marker, Time: aws.ToTime(t)})
		}
	}
	for _, m := range out.DeleteMarkers {
		add(m.Key, m.VersionId, m.LastModified, true)
	}
	for _, v := range out.Versions {
		add(v.Key, v.VersionId, v.LastModified, false)
	}
	slices.SortStableFunc(all, func(a, b anchor.Version) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Read gets a version whole, and compares it with its checksum.
func (s *Sink) Read(ctx context.Context, key, version string) ([]byte, anchor.Lock, error) {
	for attempt := 1; ; attempt++ {
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key), VersionId: versionID(version),
			ChecksumMode: types.ChecksumModeEnabled})
		if err != nil {
			return nil, anchor.Lock{}, s.failRead("read", key, err)
		}
		body, err := io.ReadAll(io.LimitReader(out.Body, anchor.MaxStatement+1))
		out.Body.Close()
		whole := int64(len(body)) == aws.ToInt64(out.ContentLength)
		if err != nil && !whole {
			if attempt < s.o.Attempts && ctx.Err() == nil {
				continue
			}
			return nil, anchor.Lock{}, s.fail("read", key, err)
		}
		lock := anchor.Lock{Mode: anchor.Mode(out.ObjectLockMode), Until: aws.ToTime(out.ObjectLockRetainUntilDate)}
		if lock.Mode == anchor.None {
			if lock, _, err = s.Stat(ctx, key, version); err != nil {
				return nil, anchor.Lock{}, err
			}
		}
		if sum, ok := hashOf(out.ChecksumSHA256); whole && ok && sum != ledger.Digest(body) {
			return body, lock, fmt.Errorf("%w: the server has %s for its SHA-256, and gives bytes with %s", anchor.ErrAltered, sum, ledger.Digest(body))
		}
		return body, lock, nil
	}
}

func versionID(version string) *string {
	if version == "" {
		return nil
	}
	return &version
}

func hashOf(checksum *string) (ledger.Hash, bool) {
	b, err := base64.StdEncoding.DecodeString(aws.ToString(checksum))
	if err != nil || len(b) != len(ledger.Hash{}) {
		return ledger.Hash{}, false
	}
	return ledger.Hash(b), true
}

// Stat asks for the lock of a version.
func (s *Sink) Stat(ctx context.Context, key, version string) (anchor.Lock, ledger.Hash, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key), VersionId: versionID(version),
		ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return anchor.Lock{}, ledger.Hash{}, s.failRead("look at", key, err)
	}
	sum, _ := hashOf(out.ChecksumSHA256)
	lock := anchor.Lock{Mode: anchor.Mode(out.ObjectLockMode), Until: aws.ToTime(out.ObjectLockRetainUntilDate)}
	if lock.Mode == anchor.None {
		if lock, err = s.retention(ctx, key, version); err != nil {
			return anchor.Lock{}, ledger.Hash{}, err
		}
	}
	return lock, sum, nil
}

func (s *Sink) retention(ctx context.Context, key, version string) (anchor.Lock, error) {
	out, err := s.client.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key), VersionId: versionID(version)})
	switch codeOf(err) {
	case "NoSuchObjectLockConfiguration", "ObjectLockConfigurationNotFoundError", "InvalidRequest", "NotImplemented":
		return anchor.Lock{}, nil
	}
	if err != nil {
		return anchor.Lock{}, s.failRead("ask for the lock of", key, err)
	}
	if out.Retention == nil {
		return anchor.Lock{}, nil
	}
	return anchor.Lock{Mode: anchor.Mode(out.Retention.Mode), Until: aws.ToTime(out.Retention.RetainUntilDate)}, nil
}

// failRead is fail, with the sentinel for what is not there.
func (s *Sink) failRead(what, key string, err error) error {
	switch codeOf(err) {
	case "NoSuchKey", "NoSuchVersion", "NotFound", "MethodNotAllowed":
		return fmt.Errorf("%s %s in %s: %w", what, key, s.where(), anchor.ErrAbsent)
	}
	return s.fail(what, key, err)
}

// needs says which permission an operation takes.
var needs = map[string]string{
	"PutObject":                  "s3:PutObject and s3:PutObjectRetention",
	"GetObject":                  "s3:GetObject and s3:GetObjectVersion",
	"HeadObject":                 "s3:GetObject and s3:GetObjectVersion",
	"GetObjectRetention":         "s3:GetObjectRetention",
	"ListObjectVersions":         "s3:ListBucketVersions",
	"GetBucketVersioning":        "s3:GetBucketVersioning",
	"GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
	"GetPublicAccessBlock":       "s3:GetBucketPublicAccessBlock",
	"DeleteObject":               "s3:DeleteObject, or s3:DeleteObjectVersion",
	"PutObjectRetention":         "s3:PutObjectRetention",
}

func statusOf(err error) int {
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return r.HTTPStatusCode()
	}
	return 0
}

// fail says in one line what was tried on what, why it failed, what to do.
func (s *Sink) fail(what, key string, err error) error {
	if key != "" {
		what += " " + key + " in"
	}
	what += " " + s.where()
	operation := ""
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		operation = op.Operation()
	}
	code, status := codeOf(err), statusOf(err)
	hint, why := "", ""
	switch code {
	case "":
	case "AccessDenied", "Forbidden", "AllAccessDisabled", "AccountProblem", "AccessDeniedException":
		hint = "the credentials may lack " + needs[operation]
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		hint = "the credentials have expired, and were no better when they were read again: renew them"
	case "InvalidAccessKeyId", "InvalidToken", "InvalidClientTokenId", "SignatureDoesNotMatch":
		hint = "the server does not take these credentials"
	case "RequestTimeTooSkewed", "RequestExpired":
		if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
			if there, e := http.ParseTime(r.Response.Header.Get("Date")); e == nil {
				return fmt.Errorf("%s: %s (%d): %w", what, code, status, anchor.SkewError(s.o.Now(), there))
			}
		}
		hint = "the clock of this machine is wrong; set it right (the credentials may be good)"
	case "NoSuchBucket":
		hint = "the bucket does not exist"
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		hint = "the bucket is in another region: give --region"
	case "SlowDown", "Throttling", "ServiceUnavailable", "RequestLimitExceeded":
		hint = fmt.Sprintf("%d attempts were made; try again later", s.o.Attempts)
	case "ConditionalRequestConflict", "OperationAborted":
		hint = fmt.Sprintf("another request was in flight, for %d attempts; try again", s.o.Attempts)
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		why = code
		if status != 0 {
			why = fmt.Sprintf("%s (%d)", code, status)
		}
		if m := api.ErrorMessage(); m != "" && m != code {
			why += ": " + m
		}
		if code == "Forbidden" || code == "UnknownError" {
			why = fmt.Sprintf("HTTP %d", status) // HeadObject has no body to say more
			if status == http.StatusForbidden {
				hint = "the credentials may lack " + needs[operation]
			}
		}
	} else {
		why, hint = s.noAnswer(err, status)
	}
	text := what + ": " + ledger.Escape(why)
	if hint != "" {
		text += "; " + hint
	}
	return &failure{text: text, err: err}
}

// failure is an error of the SDK in our words.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// noAnswer is for errors that are not the server's.
func (s *Sink) noAnswer(err error, status int) (why, hint string) {
	last := err
	for next := errors.Unwrap(last); next != nil; next = errors.Unwrap(last) {
		last = next
	}
	why = last.Error()
	text := err.Error()
	switch _, dns := errors.AsType[*net.DNSError](err); {
	case strings.Contains(text, "get credentials") || strings.Contains(text, "get identity") || strings.Contains(text, "retrieve credentials"):
		return "no credentials: " + why, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role; cron has an environment of its own"
	case dns && s.endpoint != "" && !s.client.Options().UsePathStyle:
		return why, "the bucket was put before the host name; with --addressing path it is put into the path"
	case dns:
		return why, "is the name of the bucket, the region or the endpoint right?"
	case status != 0:
		return fmt.Sprintf("HTTP %d: %s", status, why), ""
	}
	return why, fmt.Sprintf("%d attempts were made", s.o.Attempts)
}
