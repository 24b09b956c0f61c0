package fileanchor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/auditledger/auditledger/anchor"
)

var _ anchor.Checker = (*Sink)(nil)

// Check makes a trial file and tries to make it a second time.
func (s *Sink) Check(ctx context.Context, o anchor.CheckOptions) []anchor.Check {
	var all []anchor.Check
	say := func(name string, state anchor.State, format string, args ...any) {
		all = append(all, anchor.Check{Name: name, State: state, Detail: fmt.Sprintf(format, args...)})
	}
	if _, err := s.Ready(ctx); err != nil {
		say("directory", anchor.Failed, "%v", err)
		return all
	}
	say("directory", anchor.OK, "it exists")
	switch same, err := sameVolume(s.dir, o.Beside); {
	case err != nil:
		say("volume", anchor.Unknown, "whether it is on another volume than the ledger: %v", err)
	case same:
		say("volume", anchor.Warning, "it is on the volume of the ledger: who can change the one can change the other")
	default:
		say("volume", anchor.OK, "another than the ledger's")
	}
	key := anchor.Trials + o.Now().UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:8])
	if _, err := s.Create(ctx, key, []byte("{}"), anchor.Lock{}); err != nil {
		say("create", anchor.Failed, "%v", err)
		return all
	}
	say("create", anchor.OK, "%s", key)
	if _, err := s.Create(ctx, key, []byte("[]"), anchor.Lock{}); errors.Is(err, anchor.ErrExists) {
		say("create-only", anchor.OK, "a second file of that name is refused")
	} else {
		say("create-only", anchor.Failed, "a second file of that name was not refused: %v", err)
	}
	if lock, _, err := s.Stat(ctx, key, version); err != nil || lock.Mode != anchor.ReadOnly {
		say("read-only", anchor.Failed, "the file can be written (%v)", err)
	} else {
		say("read-only", anchor.OK, "the file has no write permission")
	}
	if err := os.Remove(s.path(key)); err == nil {
		say("lock", anchor.Warning, "this user can remove what is there: weaker than a bucket with Object Lock")
	} else {
		say("lock", anchor.OK, "this user cannot remove what is there: %v", err)
	}
	return all
}
