package snapshot

import (
	"errors"
	"io"
	"strings"
)

// A Kind is what differs at one path.
type Kind string

const (
	Added          Kind = "added"
	Removed        Kind = "removed"
	TypeChanged    Kind = "type"
	LinkChanged    Kind = "link"
	ContentChanged Kind = "content"
	TimeChanged    Kind = "time"
	KindUnknown    Kind = "unknown"
	Unchanged      Kind = "same" // never in a Change
)

// Kinds are those of changes, in the order of the table.
var Kinds = []Kind{Added, Removed, TypeChanged, LinkChanged, ContentChanged, TimeChanged, KindUnknown}

// A Change is a path at which two snapshots differ, or at which that cannot be
// told.
type Change struct {
	Path          string
	Kind          Kind
	Before, After *Entry // nil where the snapshot has none of that path
	Reason        string // of KindUnknown
}

// Counts says what a comparison found.
type Counts struct {
	Same    int64
	LeftOut int64
	Of      map[Kind]int64
}

// Differs reports whether there is a difference that is known.
func (c *Counts) Differs() bool {
	for k, n := range c.Of {
		if k != KindUnknown && n > 0 {
			return true
		}
	}
	return false
}

// side is one of the two snapshots.
type side struct {
	r     *Reader
	e     *Entry   // the next; nil at the end
	blind []string // entries of which it is not known what is below them, each a prefix of the next path
	why   []string
}

func (s *side) next() error {
	e, err := s.r.Next()
	if errors.Is(err, io.EOF) {
		s.e = nil
		return nil
	}
	s.e = &e
	return err
}

// unseen says why s has no entry at path though something may be there; "" if
// nothing is.
func (s *side) unseen(path string) string {
	for i, b := range s.blind {
		if strings.HasPrefix(path, below(b)) {
			return s.why[i]
		}
	}
	if !s.r.Header.covers(path) {
		return "it lies in no root"
	}
	return ""
}

// note keeps what the entry at path says of those below it.
func (s *side) note(path string) {
	for len(s.blind) > 0 && !strings.HasPrefix(path, s.blind[len(s.blind)-1]) {
		s.blind, s.why = s.blind[:len(s.blind)-1], s.why[:len(s.why)-1]
	}
	if e := s.e; e != nil && e.Path == path && e.State == Unknown {
		b := strings.TrimSuffix(path, "/")
		if b == "" {
			b = "/"
		}
		s.blind, s.why = append(s.blind, b), append(s.why, e.Reason)
	}
}

// Compare reads both snapshots to their ends and calls f with each path at
// which they differ or at which that cannot be told, in order. Its memory does
// not grow with them. With an error nothing is known.
func Compare(before, after *Reader, f func(Change) error) (Counts, error) {
	c := Counts{Of: map[Kind]int64{}}
	b, a := side{r: before}, side{r: after}
	read := func(s *side, name string) error {
		if err := s.next(); err != nil {
			return &sideError{name, err}
		}
		return nil
	}
	if err := errors.Join(read(&b, "before"), read(&a, "after")); err != nil {
		return c, err
	}
	for b.e != nil || a.e != nil {
		path := ""
		switch {
		case b.e == nil:
			path = a.e.Path
		case a.e == nil:
			path = b.e.Path
		default:
			path = min(b.e.Path, a.e.Path)
		}
		b.note(path)
		a.note(path)
		ch := Change{Path: path}
		if b.e != nil && b.e.Path == path {
			ch.Before = b.e
		}
		if a.e != nil && a.e.Path == path {
			ch.After = a.e
		}
		ch.Kind, ch.Reason = judge(ch.Before, ch.After, &b, &a, path)
		switch ch.Kind {
		case Unchanged:
			c.Same++
		case leftOut:
			c.LeftOut++
		default:
			c.Of[ch.Kind]++
			if err := f(ch); err != nil {
				return c, err
			}
		}
		if ch.Before != nil {
			if err := read(&b, "before"); err != nil {
				return c, err
			}
		}
		if ch.After != nil {
			if err := read(&a, "after"); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// sideError names the snapshot that could not be read.
type sideError struct {
	side string
	err  error
}

func (e *sideError) Error() string { return "the snapshot " + e.side + ": " + e.err.Error() }
func (e *sideError) Unwrap() error { return e.err }

// leftOut is only counted.
const leftOut Kind = "left_out"

var nothing = &Entry{State: Absent}

// judge is the table in the package comment.
func judge(before, after *Entry, bs, as *side, path string) (Kind, string) {
	if before == nil {
		if why := bs.unseen(path); why != "" && after.State != LeftOut {
			return KindUnknown, "before: " + why
		}
		before = nothing
	}
	if after == nil {
		if why := as.unseen(path); why != "" && before.State != LeftOut {
			return KindUnknown, "after: " + why
		}
		after = nothing
	}
	for _, x := range []struct {
		e, other *Entry
		name     string
	}{{before, after, "before: "}, {after, before, "after: "}} {
		switch {
		case x.e.State == LeftOut && x.e.Reason == reasonLedger && x.other.State != LeftOut && x.other.State != Absent:
			return KindUnknown, x.name + "left out as a ledger's own file"
		case x.e.State == LeftOut:
			return leftOut, ""
		}
	}
	if before.State == Unknown {
		return KindUnknown, "before: " + before.Reason
	}
	if after.State == Unknown {
		return KindUnknown, "after: " + after.Reason
	}
	return Judge(before, after)
}

// Judge compares two entries that are not left out. The reason is that of
// KindUnknown. Equal entries are Unchanged.
func Judge(before, after *Entry) (kind Kind, reason string) {
	switch {
	case before.State == Unknown:
		return KindUnknown, "before: " + before.Reason
	case after.State == Unknown:
		return KindUnknown, "after: " + after.Reason
	case before.State == Absent && after.State == Absent:
		return Unchanged, ""
	case before.State == Absent:
		return Added, ""
	case after.State == Absent:
		return Removed, ""
	case before.Type != after.Type:
		return TypeChanged, ""
	case before.Unhashed != "":
		return KindUnknown, "before: " + before.Unhashed + ": " + before.Reason
	case after.Unhashed != "":
		return KindUnknown, "after: " + after.Unhashed + ": " + after.Reason
	case before.Link != after.Link:
		return LinkChanged, ""
	case before.SHA256 != after.SHA256 || before.Size != after.Size:
		return ContentChanged, ""
	case before.MTime != after.MTime:
		return TimeChanged, ""
	}
	return Unchanged, ""
}
