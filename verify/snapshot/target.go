package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A Look is what a look at one target found, small enough for a record: an
// Entry without its path. Of a directory SHA256 is the hash of the entries' lines
// of a snapshot whose root is ".", the directory itself, and Entries says how many they are.
type Look struct {
	Entry
	Entries int64
}

// NotLookedAt is the state of a target that was not looked at, by a rule or a
// limit that Reason names.
const NotLookedAt State = "not_looked_at"

// NotLooked is a look that was not made, by a rule or limit.
func NotLooked(reason string) Look { return notLookedAt("%s", reason) }

func notLookedAt(format string, args ...any) Look {
	return Look{Entry: Entry{State: NotLookedAt, Reason: strings.ToValidUTF8(ledger.Escape(fmt.Sprintf(format, args...)), "\uFFFD")}}
}

// Limits of one look.
type Limits struct {
	Time    time.Duration
	Bytes   int64 // of the files that are hashed, together
	Entries int64 // of a directory
}

// Target looks at path, which relative paths of the working directory begin,
// as a tool would that is given it. It must lie in the directory root by its
// text. On the way to it links are followed as far as they stay in root, and
// the last name is not followed. Target returns when l.Time is over, even where
// the file system does not answer.
func Target(ctx context.Context, root, path string, l Limits) Look {
	rel, why := inside(root, path)
	if why != "" {
		return notLookedAt("%s", why)
	}
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	done := make(chan Look, 1)
	go func() { done <- target(ctx, root, rel, l) }()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
		if context.Cause(ctx) != context.DeadlineExceeded {
			return notLookedAt("cancelled")
		}
		return notLookedAt("it took more than %v", l.Time)
	}
}

// inside is path as seen from root, or why it may not be looked at.
func inside(root, path string) (rel, why string) {
	slashed := filepath.ToSlash(path)
	switch {
	case path == "":
		return "", "an empty path"
	case strings.ContainsRune(path, 0):
		return "", "a zero byte, which no path holds"
	case len(path) > MaxTarget:
		return "", fmt.Sprintf("a path of more than %d bytes", MaxTarget)
	case slices.Contains(strings.Split(slashed, "/"), ".."):
		return "", `".." in the path, which means another place where a link stands before it`
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return "", reasonOf(err)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", reasonOf(err)
	}
	rel, err = filepath.Rel(top, full)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", "outside of target_root"
	}
	return rel, ""
}

// MaxTarget is the length in bytes of the longest path of a target.
const MaxTarget = 4096

func target(ctx context.Context, root, rel string, l Limits) Look {
	top, err := os.OpenRoot(root)
	if err != nil {
		return notLookedAt("target_root: %s", reasonOf(err))
	}
	defer top.Close()
	parent, err := beneath(top, filepath.Dir(rel))
	switch {
	case err != nil && isAbsent(err):
		return Look{Entry: Entry{State: Absent, Reason: reasonOf(err)}}
	case err != nil && strings.Contains(err.Error(), "escapes from parent"):
		return notLookedAt("a link leads out of target_root")
	case err != nil:
		return Look{Entry: Entry{State: Unknown, Reason: reasonOf(err)}}
	}
	var first *Entry
	bad := ""
	d := digester{h: sha256.New()}
	o := Options{Workers: 1, maxEntries: l.Entries, maxBytes: l.Bytes}
	_, err = each(ctx, parent, []entryRoot{{filepath.Base(rel), "."}}, o, func(e *Entry) error {
		d.add(e)
		if first == nil {
			c := *e
			first = &c
		}
		if bad == "" && (e.State == Unknown || e.Unhashed != "") {
			if bad = "of " + e.Path + ": " + e.Reason; e.Unhashed != "" {
				bad = e.Unhashed + ": " + bad
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errLimit):
		return notLookedAt("more than %d entries", l.Entries)
	case err != nil && ctx.Err() != nil:
		return notLookedAt("it took more than %v", l.Time)
	case err != nil:
		return Look{Entry: Entry{State: Unknown, Reason: reasonOf(err)}}
	}
	found := Look{Entry: *first}
	found.Path = ""
	switch {
	case found.Unhashed == TooLarge:
		return notLookedAt("more than %d bytes", l.Bytes)
	case found.Type != Dir:
	case strings.HasPrefix(bad, TooLarge):
		return notLookedAt("more than %d bytes in it", l.Bytes)
	case bad != "":
		found.Unhashed, found.Reason = Unreadable, strings.ToValidUTF8(ledger.Escape(bad), "\uFFFD")
	default:
		s := d.sum()
		found.Hashed, found.SHA256, found.Entries = true, s.Sum, s.Entries
	}
	return found
}

// appendJSON appends l as canonical JSON.
func (l *Look) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	comma := func() {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	str := func(key, value string) {
		if value != "" {
			comma()
			dst = canon.AppendString(append(append(append(dst, '"'), key...), `":`...), value)
		}
	}
	num := func(key string, value int64) {
		comma()
		dst = strconv.AppendInt(append(append(append(dst, '"'), key...), `":`...), value, 10)
	}
	if l.Hashed && l.Type == Dir {
		num("entries", l.Entries)
	}
	if l.Type == Link && l.Unhashed == "" {
		dst = appendText(dst, "link", l.Link)
	}
	if l.State == Exists {
		comma()
		dst, _ = l.MTime.AppendText(append(dst, `"mtime_ns":`...))
	}
	str("reason", l.Reason)
	if l.Hashed {
		str("sha256", l.SHA256.String())
	}
	if l.Type == File {
		num("size", l.Size)
	}
	str("state", string(l.State))
	str("type", string(l.Type))
	str("unhashed", l.Unhashed)
	return append(dst, '}')
}

func parseLook(v canon.Value) (Look, error) {
	var l Look
	get := func(key string) canon.Value { m, _ := v.Get(key); return m }
	l.State, l.Type = State(get("state").Str()), Type(get("type").Str())
	l.Reason, l.Unhashed, l.Link = get("reason").Str(), get("unhashed").Str(), get("link").Str()
	if b, ok := v.Get("link_b64"); ok {
		l.Link, _ = decode64(b.Append(nil))
	}
	l.Entries, _ = get("entries").Int()
	l.Size, _ = get("size").Int()
	if m, ok := v.Get("mtime_ns"); ok {
		l.MTime, _ = parseStamp(m.Append(nil))
	}
	if s, ok := v.Get("sha256"); ok {
		l.SHA256, l.Hashed = ledger.ParseHash([]byte(s.Str()))
	}
	if string(l.appendJSON(nil)) != string(v.Append(nil)) {
		return Look{}, errors.New("not in the form in which it is written")
	}
	return l, nil
}

// Evidence is what a record says of one target of a call.
type Evidence struct {
	Argument string // whose value names the target
	Path     string // the value, "" where it is no path that could be looked at
	Before   Look
	After    *Look // nil in an intent
}

// CompareLooks is Judge for targets. The numbers of entries count as content.
func CompareLooks(before, after *Look) (kind Kind, reason string) {
	for _, l := range []*Look{before, after} {
		if l.State == NotLookedAt {
			return KindUnknown, "not looked at: " + l.Reason
		}
	}
	return Judge(&before.Entry, &after.Entry)
}

// Unchanged reports whether the target was the same after the call; known is
// false where that cannot be told.
func (e *Evidence) Unchanged() (unchanged, known bool) {
	if e.After == nil {
		return false, false
	}
	kind, _ := CompareLooks(&e.Before, e.After)
	return kind == Unchanged, kind != KindUnknown
}

// AppendEvidence appends the member targets of a record, in canonical JSON.
//
//	after      the target when the record was about to be written; absent in an intent
//	argument   the name of the argument
//	before     the target when the call came in
//	path       the argument's value; path_b64 cannot be, JSON's text is UTF-8
//	unchanged  true, false, or null where that cannot be told; absent in an intent
//
// A look has state (exists, absent, unknown, or not_looked_at by a rule or limit
// that reason names) and the members of an entry without its path.
func AppendEvidence(dst []byte, all []Evidence) []byte {
	dst = append(dst, '[')
	for i := range all {
		e := &all[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if e.After != nil {
			dst = append(e.After.appendJSON(append(dst, `"after":`...)), ',')
		}
		dst = canon.AppendString(append(dst, `"argument":`...), e.Argument)
		dst = e.Before.appendJSON(append(dst, `,"before":`...))
		if e.Path != "" {
			dst = canon.AppendString(append(dst, `,"path":`...), e.Path)
		}
		if e.After != nil {
			dst = append(dst, `,"unchanged":`...)
			if same, known := e.Unchanged(); known {
				dst = strconv.AppendBool(dst, same)
			} else {
				dst = append(dst, "null"...)
			}
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// ParseEvidence reads what AppendEvidence writes, and nothing else.
func ParseEvidence(v canon.Value) ([]Evidence, error) {
	if v.Kind() != canon.Array {
		return nil, errors.New("targets is no list")
	}
	var all []Evidence
	i := 0
	for t := range v.Elems() {
		fail := func(err error) ([]Evidence, error) { return nil, fmt.Errorf("targets[%d]: %w", i, err) }
		argument, _ := t.Get("argument")
		path, _ := t.Get("path")
		e := Evidence{Argument: argument.Str(), Path: path.Str()}
		before, _ := t.Get("before")
		var err error
		if e.Before, err = parseLook(before); err != nil {
			return fail(err)
		}
		if after, ok := t.Get("after"); ok {
			l, err := parseLook(after)
			if err != nil {
				return fail(err)
			}
			e.After = &l
		}
		all = append(all, e)
		i++
	}
	if string(AppendEvidence(nil, all)) != string(v.Append(nil)) {
		return nil, errors.New("targets is not in the form in which it is written")
	}
	return all, nil
}
