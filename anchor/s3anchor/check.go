package s3anchor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/auditledger/auditledger/anchor"
)

// doctor collects what Check finds.
type doctor struct {
	*Sink
	o   anchor.CheckOptions
	all []anchor.Check
}

func (d *doctor) say(name string, state anchor.State, format string, args ...any) {
	d.all = append(d.all, anchor.Check{Name: name, State: state, Detail: fmt.Sprintf(format, args...)})
}

// unless says that an answer was not had.
func (d *doctor) unless(name string, state anchor.State, err error) {
	d.say(name, state, "%v", d.fail("ask", "", err))
}

// Check looks at the bucket and makes two trial objects, one with a lock and
// one without. That the locked one cannot be deleted proves the lock only where
// the other can be: else it may be the permissions that are missing. The locked
// one stays until its lock ends.
func (s *Sink) Check(ctx context.Context, o anchor.CheckOptions) []anchor.Check {
	d := &doctor{Sink: s, o: o}
	if o.Now == nil {
		d.o.Now = s.o.Now
	}
	if _, err := s.client.Options().Credentials.Retrieve(ctx); err != nil {
		why, hint := s.noAnswer(fmt.Errorf("get credentials: %w", err), 0)
		d.say("credentials", anchor.Failed, "%s; %s", why, hint)
		return d.all
	}
	d.say("credentials", anchor.OK, "found")
	if !d.bucket(ctx) {
		return d.all
	}
	d.public(ctx)
	d.listing(ctx)
	d.trial(ctx)
	return d.all
}

// bucket looks at versioning, lock and clock, and reports whether to go on.
func (d *doctor) bucket(ctx context.Context) bool {
	v, err := d.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &d.Sink.bucket})
	switch {
	case err != nil:
		d.unless("versioning", anchor.Failed, err)
		return false
	case v.Status != types.BucketVersioningStatusEnabled:
		d.say("versioning", anchor.Failed, "it is not enabled, and without versions nothing is locked")
	default:
		d.say("versioning", anchor.OK, "enabled")
	}
	now, err := d.Ready(ctx)
	switch {
	case errors.Is(err, anchor.ErrNotLocking):
		d.say("object lock", anchor.Failed, "%v", err)
	case err != nil:
		d.say("object lock", anchor.Failed, "%v", err)
		return false
	default:
		d.say("object lock", anchor.OK, "enabled")
		d.defaults(ctx)
	}
	if !now.IsZero() {
		if diff := d.o.Now().Sub(now); diff > anchor.MaxSkew || diff < -anchor.MaxSkew {
			d.say("clock", anchor.Failed, "%v", anchor.SkewError(d.o.Now(), now))
		} else {
			d.say("clock", anchor.OK, "within %s of the server's", anchor.MaxSkew)
		}
	}
	return true
}

// defaults looks at the default retention, which anchors do not rely on.
func (d *doctor) defaults(ctx context.Context) {
	l, err := d.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &d.Sink.bucket})
	if err != nil || l.ObjectLockConfiguration == nil {
		return
	}
	if r := l.ObjectLockConfiguration.Rule; r != nil && r.DefaultRetention != nil {
		length := fmt.Sprintf("%d days", aws.ToInt32(r.DefaultRetention.Days))
		if y := aws.ToInt32(r.DefaultRetention.Years); y > 0 {
			length = fmt.Sprintf("%d years", y)
		}
		d.say("default retention", anchor.OK, "%s for %s", r.DefaultRetention.Mode, length)
		return
	}
	d.say("default retention", anchor.Warning, "none: anchors name their own lock, but what others put there without one has none")
}

func (d *doctor) public(ctx context.Context) {
	out, err := d.client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: &d.Sink.bucket})
	switch {
	case codeOf(err) == "NoSuchPublicAccessBlockConfiguration":
		d.say("public access", anchor.Warning, "it is not blocked for this bucket")
	case err != nil:
		d.say("public access", anchor.Unknown, "%v", d.fail("ask for the public access of", "", err))
	case out.PublicAccessBlockConfiguration == nil:
		d.say("public access", anchor.Unknown, "the server does not say")
	default:
		c := out.PublicAccessBlockConfiguration
		if aws.ToBool(c.BlockPublicAcls) && aws.ToBool(c.BlockPublicPolicy) && aws.ToBool(c.IgnorePublicAcls) && aws.ToBool(c.RestrictPublicBuckets) {
			d.say("public access", anchor.OK, "blocked")
		} else {
			d.say("public access", anchor.Warning, "it is blocked in part only")
		}
	}
}

func (d *doctor) listing(ctx context.Context) {
	n := 0
	for _, err := range d.Versions(ctx, "") {
		if err != nil {
			d.say("list versions", anchor.Failed, "%v", err)
			return
		}
		if n++; n == 1000 {
			break
		}
	}
	d.say("list versions", anchor.OK, "permitted")
}

// trial creates the two objects.
func (d *doctor) trial(ctx context.Context) {
	name := fmt.Sprintf("%s%s-%s", anchor.Trials, d.o.Now().UTC().Format("20060102T150405Z"), strings.ToLower(rand.Text()[:8]))
	body := []byte(`{"trial":"` + name + `"}`)
	lock := anchor.Lock{Mode: d.o.Mode, Until: d.o.Now().Add(d.o.Retain).Truncate(time.Second).Add(time.Second).UTC()}
	locked := name + "-locked"
	version, err := d.Create(ctx, locked, body, lock)
	if err != nil {
		d.say("create with a lock", anchor.Failed, "%v", err)
		return
	}
	if version == "" || version == "null" {
		d.say("create with a lock", anchor.Failed, "the server takes %s, and gives it no version: it keeps no versions", lock)
	} else {
		d.say("create with a lock", anchor.OK, "%s has %s", locked, lock)
	}
	if _, err := d.Create(ctx, locked, []byte("{}"), lock); errors.Is(err, anchor.ErrExists) {
		d.say("create-only", anchor.OK, "a second put at the same key is refused")
	} else if err == nil {
		d.say("create-only", anchor.Warning, "the server takes a second put at the same key, in spite of If-None-Match; the oldest version counts")
	} else {
		d.say("create-only", anchor.Unknown, "%v", err)
	}
	if back, _, err := d.Stat(ctx, locked, version); err != nil {
		d.say("read the lock back", anchor.Failed, "%v", err)
	} else if !back.Enough(lock) {
		d.say("read the lock back", anchor.Failed, "asked for %s, and the object has %s", lock, back)
	} else {
		d.say("read the lock back", anchor.OK, "%s", back)
	}

	// The control: is it permitted to delete a version that has no lock?
	plain := name + "-plain"
	control, err := d.put(ctx, plain, body, nil, true)
	mayDelete := false
	if err != nil {
		d.say("put without a lock", anchor.OK, "refused: %v", err)
	} else if state, err := d.delete(ctx, plain, control, false); err != nil {
		d.say("delete what has no lock", anchor.Unknown, "%v", err)
	} else if mayDelete = state == deleted; mayDelete {
		d.say("permissions", anchor.Warning, "too wide: these credentials may delete versions (s3:DeleteObjectVersion), and so whatever has no lock; see deploy/iam")
	} else {
		d.say("permissions", anchor.OK, "these credentials may not delete versions, or the bucket locks what names no lock")
	}
	d.refused(ctx, locked, version, mayDelete)
}

type deletion int

const (
	refused deletion = iota
	deleted
)

// delete tries to delete a version.
func (d *doctor) delete(ctx context.Context, key, version string, bypass bool) (deletion, error) {
	in := &s3.DeleteObjectInput{Bucket: &d.Sink.bucket, Key: aws.String(d.prefix + key), VersionId: versionID(version)}
	if bypass {
		in.BypassGovernanceRetention = aws.Bool(true)
	}
	_, err := d.client.DeleteObject(ctx, in)
	switch {
	case err == nil:
		return deleted, nil
	case statusOf(err) == http.StatusForbidden || codeOf(err) == "AccessDenied":
		return refused, nil
	}
	return refused, d.fail("delete", key, err)
}

// refused tries to get rid of the locked object, in each way that there is.
func (d *doctor) refused(ctx context.Context, key, version string, mayDelete bool) {
	const name = "delete what is locked"
	for _, bypass := range []bool{false, true} {
		state, err := d.delete(ctx, key, version, bypass)
		if err != nil {
			d.say(name, anchor.Unknown, "%v", err)
			return
		}
		gone := state == deleted
		if !gone && !d.still(ctx, key, version) {
			gone = true
		}
		switch {
		case gone && bypass && d.o.Mode == anchor.Governance:
			d.say(name, anchor.Warning, "these credentials may bypass governance mode (s3:BypassGovernanceRetention), and so remove anchors; use compliance mode, or take that right away")
			return
		case gone:
			d.say(name, anchor.Failed, "the server deleted it: %s takes lock headers, and locks nothing; anchors there prove nothing", d.where())
			return
		}
	}
	earlier := d.o.Now().Add(time.Second).UTC()
	_, err := d.client.PutObjectRetention(ctx, &s3.PutObjectRetentionInput{Bucket: &d.Sink.bucket, Key: aws.String(d.prefix + key), VersionId: versionID(version),
		Retention: &types.ObjectLockRetention{Mode: types.ObjectLockRetentionMode(d.o.Mode), RetainUntilDate: &earlier}})
	if err == nil {
		d.say("shorten a lock", anchor.Failed, "the server let it be shortened")
	} else {
		d.say("shorten a lock", anchor.OK, "refused")
	}
	if mayDelete {
		d.say(name, anchor.OK, "refused, with and without bypass, where what has no lock may be deleted: the lock holds")
	} else {
		d.say(name, anchor.OK, "refused, with and without bypass. These credentials may not delete anything, so that it was the permissions, the lock, or both: to see the lock alone, run this once with credentials that may delete versions")
	}
}

// still reports whether a version can be read.
func (d *doctor) still(ctx context.Context, key, version string) bool {
	_, _, err := d.Stat(ctx, key, version)
	return !errors.Is(err, anchor.ErrAbsent)
}
