package gate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/policy"
	"github.com/auditledger/auditledger/verify/snapshot"
)

// Bounds of what is looked at for one record: a call must not become slow, nor
// a record long, by what its arguments name.
const (
	lookTime    = 2 * time.Second // for all targets, before and after each
	lookBytes   = 64 << 20        // of the files of one target
	lookEntries = 10_000          // of one directory
	lookTargets = 16              // of one call
)

// targets are the paths in the arguments of one call, and what was there. The
// nil value is that of a call without any; its methods cost nothing.
type targets struct {
	root string
	all  []snapshot.Evidence
}

// targetsOf finds the targets of c by p; nil where p names none for its tool.
func targetsOf(p *policy.Policy, c *Call) *targets {
	arguments := p.Targets(c.Name)
	if arguments == nil {
		return nil
	}
	t := &targets{root: p.TargetRoot()}
	none := func(argument, why string) {
		t.all = append(t.all, snapshot.Evidence{Argument: argument, Before: snapshot.NotLooked(why)})
	}
	for _, a := range arguments {
		v, ok := c.Value.Get(a)
		switch {
		case !ok:
			none(a, "the argument is absent")
		case v.Kind() == canon.String:
			t.all = append(t.all, snapshot.Evidence{Argument: a, Path: v.Str()})
		case v.Kind() == canon.Array:
			for e := range v.Elems() {
				if e.Kind() == canon.String && len(t.all) < lookTargets {
					t.all = append(t.all, snapshot.Evidence{Argument: a, Path: e.Str()})
				} else if len(t.all) < lookTargets {
					none(a, "an element that is no path")
				}
			}
			if v.Len() > lookTargets {
				none(a, fmt.Sprintf("a list of %d paths, of which not all are looked at", v.Len()))
			}
		default:
			none(a, "the argument is no path")
		}
	}
	for i := range t.all {
		if e := &t.all[i]; len(e.Path) > snapshot.MaxTarget {
			e.Path, e.Before = "", snapshot.NotLooked(fmt.Sprintf("a path of more than %d bytes", snapshot.MaxTarget))
		}
	}
	return t
}

// see looks at every target.
func (t *targets) see(put func(*snapshot.Evidence, snapshot.Look)) {
	// Apart from the call's own context: its end is no reason not to look.
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	for i := range t.all {
		e := &t.all[i]
		switch {
		case e.Path == "" && e.Before.State == snapshot.NotLookedAt:
			put(e, e.Before)
		case i >= lookTargets:
			put(e, snapshot.NotLooked(fmt.Sprintf("more than %d targets", lookTargets)))
		default:
			put(e, snapshot.Target(ctx, t.root, e.Path, snapshot.Limits{Time: lookTime, Bytes: lookBytes, Entries: lookEntries}))
		}
	}
}

// look notes what stands there before the call.
func (t *targets) look() {
	if t != nil {
		t.see(func(e *snapshot.Evidence, l snapshot.Look) { e.Before = l })
	}
}

// member is the member targets of a record, nil where there are none. Unless it
// is an intent, what stands there now is in it.
func (t *targets) member(after bool) []byte {
	if t == nil {
		return nil
	}
	now := targets{t.root, slices.Clone(t.all)}
	if after {
		now.see(func(e *snapshot.Evidence, l snapshot.Look) { e.After = &l })
	}
	return snapshot.AppendEvidence(nil, now.all)
}
