package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger/canon"
)

// A Record is the decoded form of one line.
type Record struct {
	TS         int64  // nanoseconds since 1970
	RequestID  string // at most MaxText code points in records of this writer
	Method     string
	Name       string
	Decision   string
	Outcome    string
	ArgsDigest string
	Prev       Hash
	Sum        Hash // as stored; that it is right is for a verifier to say
	Seq        uint64
	Intent     string
	Policy     string
	Reason     string
	Rule       string
	TraceID    string

	// Line is the record as stored, without its "\n". It is the evidence; the
	// other fields are a reading of it.
	Line []byte
}

// An Entry is what a caller knows of a record before it has a place in a
// chain. Empty optional fields are left out of the line.
type Entry struct {
	RequestID  string
	Method     string
	Name       string
	Decision   string
	Outcome    string
	ArgsDigest string
	Intent     string
	Policy     string
	Reason     string
	Rule       string
	TraceID    string

	// Targets is what was seen of the targets of the call, a canonical JSON
	// array (see package verify/snapshot). Nil leaves the member out.
	Targets []byte

	// Open is for a seal record: the intents that are open where the segment
	// before ends, so that a reader of this one knows them. Nil leaves the
	// member out.
	Open []OpenIntent
}

// AppendLine appends the line of e, with its "\n", as record number seq that
// links to prev, and returns its hash. RequestID and Name are cut to MaxText
// code points, and bytes that are not UTF-8 are replaced by U+FFFD.
func (e *Entry) AppendLine(dst []byte, seq uint64, ts int64, prev Hash) ([]byte, Hash) {
	start := len(dst)
	str := func(key, value string) {
		dst = append(dst, key...)
		dst = canon.AppendString(dst, value)
	}
	opt := func(key, value string) {
		if value != "" {
			str(key, value)
		}
	}
	str(`{"args_digest":`, e.ArgsDigest)
	str(`,"decision":`, e.Decision)
	opt(`,"intent":`, e.Intent)
	str(`,"method":`, e.Method)
	str(`,"name":`, Clip(e.Name))
	if e.Open != nil {
		dst = append(dst, `,"open":[`...)
		for i, o := range e.Open {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = o.appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	str(`,"outcome":`, e.Outcome)
	opt(`,"policy":`, e.Policy)
	dst = append(dst, `,"prev_sha256":"`...)
	dst, _ = prev.AppendText(dst)
	dst = append(dst, '"')
	opt(`,"reason":`, e.Reason)
	str(`,"request_id":`, Clip(e.RequestID))
	opt(`,"rule":`, e.Rule)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, ',')
	cut := len(dst)
	if e.Targets != nil {
		dst = append(append(append(dst, `"targets":`...), e.Targets...), ',')
	}
	if e.TraceID != "" {
		str(`"trace_id":`, e.TraceID)
		dst = append(dst, ',')
	}
	dst = append(dst, `"ts":`...)
	dst = strconv.AppendInt(dst, ts, 10)
	dst = append(dst, '}')

	d := sha256.New()
	var link [hashLen]byte
	text, _ := prev.AppendText(link[:0])
	d.Write(text)
	d.Write(dst[start:])
	var sum Hash
	d.Sum(sum[:0])

	tail := string(dst[cut:])
	dst = append(dst[:cut], `"sha256":"`...)
	dst, _ = sum.AppendText(dst)
	dst = append(dst, `",`...)
	dst = append(dst, tail...)
	return append(dst, '\n'), sum
}

// Clip is s as a record keeps it: valid UTF-8, at most MaxText code points.
func Clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxText {
		return s
	}
	n := 0
	for i := range s {
		if n == MaxText {
			return s[:i]
		}
		n++
	}
	return s
}

// A View is a line looked at in place: what a reader of many records needs of
// each, without a copy. Its slices point into the line given to Parse and are
// raw JSON. A View may be used again; its zero value is ready.
type View struct {
	Line []byte
	TS   int64
	Seq  uint64 // 0 where the record bears none
	Prev Hash
	Sum  Hash

	RequestID, Method, Name, Decision, Outcome, ArgsDigest []byte // JSON strings with their quotes
	Intent, Policy, Reason, Rule                           []byte // the same; nil where absent
	TraceID                                                []byte // the same; nil where it is no string too

	cut, end int // where the sha256 member begins, and where it ends with its comma
}

// ErrNotCanonical is what Parse finds of a record in other bytes than the
// canonical ones. The values may still be had: canonicalise and parse again.
var ErrNotCanonical = errors.New("not in canonical form")

// ErrMalformed is wrapped by what Parse finds of a line that is no record.
var ErrMalformed = errors.New("no record")

// Parse reads line, which has no "\n", into v. It checks that the line is
// canonical and that the members of the table in the package comment are there
// and of their types; it does not check the hash. Its error wraps
// ErrNotCanonical or ErrMalformed. It does not allocate where it succeeds.
func (v *View) Parse(line []byte) error {
	if err := canon.Check(line); err != nil {
		var fault *canon.Error
		if errors.As(err, &fault) && fault.Reason == canon.NotCanonical {
			return fmt.Errorf("%w: byte %d: %s", ErrNotCanonical, fault.Offset, fault.Detail)
		}
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	*v = View{Line: line}
	var seen, wrong member
	var twin []byte
	err := canon.Walk(line, func(m canon.Member) bool {
		which := memberOf(m.Key)
		if which == 0 {
			if twin == nil && foldsToMember(m.Key) {
				twin = m.Key
			}
			return true
		}
		seen |= which
		if !v.set(which, m) {
			wrong |= which
		}
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case seen&required != required:
		return fmt.Errorf("%w: member %s is missing", ErrMalformed, required&^seen)
	case wrong != 0:
		return fmt.Errorf("%w: member %s is of another type than a record's", ErrMalformed, wrong)
	case twin != nil:
		return fmt.Errorf("%w: a member is named like a known one but for letter case", ErrMalformed)
	}
	return nil
}

// Compute is the hash that the line should bear, over its bytes as stored.
// Buf is scratch space, kept between calls.
func (v *View) Compute(buf *[]byte) Hash {
	b, _ := v.Prev.AppendText((*buf)[:0])
	b = append(b, v.Line[:v.cut]...)
	b = append(b, v.Line[v.end:]...)
	*buf = b
	return sha256.Sum256(b)
}

// Body is what the hash covers after the link: the line before and after its
// sha256 member. The parts lie in the line.
func (v *View) Body() (head, tail []byte) { return v.Line[:v.cut], v.Line[v.end:] }

// Record decodes v. The result does not share memory with the line.
func (v *View) Record() Record {
	return Record{
		TS: v.TS, Seq: v.Seq, Prev: v.Prev, Sum: v.Sum,
		RequestID: text(v.RequestID), Method: text(v.Method), Name: text(v.Name),
		Decision: text(v.Decision), Outcome: text(v.Outcome), ArgsDigest: text(v.ArgsDigest),
		Intent: text(v.Intent), Policy: text(v.Policy), Reason: text(v.Reason), Rule: text(v.Rule), TraceID: text(v.TraceID),
		Line: append([]byte(nil), v.Line...),
	}
}

// Parse decodes one line without its "\n"; its errors are those of View.Parse.
func Parse(line []byte) (Record, error) {
	var v View
	if err := v.Parse(line); err != nil {
		return Record{}, err
	}
	return v.Record(), nil
}

// Is reports whether the raw JSON string field is the plain word.
func Is(field []byte, word string) bool {
	return len(field) == len(word)+2 && string(field[1:len(field)-1]) == word
}

func text(raw []byte) string {
	s, _ := canon.Unquote(raw)
	return s
}

// member is a set of members of the table.
type member uint16

const (
	mTS member = 1 << iota
	mRequestID
	mMethod
	mName
	mDecision
	mOutcome
	mArgsDigest
	mPrev
	mSum
	mSeq
	mIntent
	mPolicy
	mReason
	mRule
	mTraceID

	required = mTS | mRequestID | mMethod | mName | mDecision | mOutcome | mArgsDigest | mPrev | mSum
)

var memberNames = [...]string{"ts", "request_id", "method", "name", "decision", "outcome", "args_digest",
	"prev_sha256", "sha256", "seq", "intent", "policy", "reason", "rule", "trace_id"}

// String names the first member of the set.
func (m member) String() string {
	for i, name := range memberNames {
		if m&(1<<i) != 0 {
			return name
		}
	}
	return ""
}

func memberOf(key []byte) member {
	switch string(key) {
	case "ts":
		return mTS
	case "request_id":
		return mRequestID
	case "method":
		return mMethod
	case "name":
		return mName
	case "decision":
		return mDecision
	case "outcome":
		return mOutcome
	case "args_digest":
		return mArgsDigest
	case "prev_sha256":
		return mPrev
	case "sha256":
		return mSum
	case "seq":
		return mSeq
	case "intent":
		return mIntent
	case "policy":
		return mPolicy
	case "reason":
		return mReason
	case "rule":
		return mRule
	case "trace_id":
		return mTraceID
	}
	return 0
}

// foldsToMember reports whether key is a member of the table but for letter
// case.
func foldsToMember(key []byte) bool {
	for _, name := range tableNames {
		// A folding may change the length: U+017F folds to s.
		if len(key) >= len(name) && len(key) <= 3*len(name) && string(key) != name && strings.EqualFold(string(key), name) {
			return true
		}
	}
	return false
}

// tableNames is every member of the table, those that a View does not read too.
var tableNames = append(memberNames[:len(memberNames):len(memberNames)], "open", "targets")

// set stores one member and reports whether it has its type.
func (v *View) set(which member, m canon.Member) bool {
	raw := m.Raw
	switch which {
	case mTS:
		n, ok := parseInt(raw)
		v.TS = n
		return ok
	case mSeq:
		n, ok := parseInt(raw)
		v.Seq = uint64(n)
		return ok && n > 0
	case mTraceID:
		// Ledgers were written before it had a meaning: what is no string has none.
		if raw[0] == '"' {
			v.TraceID = raw
		}
		return true
	}
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	var ok bool
	switch which {
	case mPrev:
		v.Prev, ok = ParseHash(raw[1 : len(raw)-1])
		return ok
	case mSum:
		v.Sum, ok = ParseHash(raw[1 : len(raw)-1])
		v.cut, v.end = m.Off, m.End+1
		// The comma is there in every canonical record: ts sorts after sha256.
		return ok && v.end < len(v.Line) && v.Line[m.End] == ','
	case mRequestID:
		v.RequestID = raw
	case mMethod:
		v.Method = raw
	case mName:
		v.Name = raw
	case mDecision:
		v.Decision = raw
	case mOutcome:
		v.Outcome = raw
	case mArgsDigest:
		v.ArgsDigest = raw
	case mIntent:
		v.Intent = raw
	case mPolicy:
		v.Policy = raw
	case mReason:
		v.Reason = raw
	case mRule:
		v.Rule = raw
	}
	return true
}

// parseInt reads a canonical JSON integer that fits int64.
func parseInt(raw []byte) (int64, bool) {
	digits, neg := raw, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, neg = digits[1:], true
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	switch {
	case neg && n <= 1<<63:
		return -int64(n), true
	case !neg && n < 1<<63:
		return int64(n), true
	}
	return 0, false
}
