package anchor

import (
	"context"
	"time"
)

// A Checker is a Sink that can be tried out: whether it keeps what it is given,
// and whether the credentials may do what they need and no more.
type Checker interface {
	Sink
	// Check makes trial objects below Trials. What it finds is told, never an
	// error; it ends early where ctx does.
	Check(ctx context.Context, o CheckOptions) []Check
}

// CheckOptions of a trial.
type CheckOptions struct {
	Mode   Mode          // that push would ask for
	Retain time.Duration // how long the trial object is locked
	Beside string        // the ledger directory, which should be elsewhere
	Now    func() time.Time
}

// A State is the outcome of a check.
type State string

const (
	OK      State = "ok"
	Warning State = "warning" // anchors hold, and something should be better
	Unknown State = "unknown" // it could not be found out
	Failed  State = "failed"  // anchors there prove nothing, or cannot be made
)

// A Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
}
