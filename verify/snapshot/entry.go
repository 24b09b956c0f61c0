package snapshot

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A State says whether a path is there.
type State string

const (
	Exists  State = "exists"
	Absent  State = "absent"   // the system said so
	Unknown State = "unknown"  // it could not be told
	LeftOut State = "left_out" // by a rule
)

// A Type is what stands at a path.
type Type string

const (
	File   Type = "file"
	Dir    Type = "dir"
	Link   Type = "link"
	Pipe   Type = "pipe"
	Socket Type = "socket"
	Device Type = "device"
	Other  Type = "other"
)

// Words of Entry.Unhashed.
const (
	Unstable   = "unstable"
	TooLarge   = "too_large"
	Unreadable = "unreadable"
)

// Reasons of what is left out.
const (
	reasonLedger   = "ledger"
	reasonSnapshot = "snapshot"
)

// A Stamp is a time since 1970, in whole nanoseconds. Two are the same time if
// and only if they are ==.
type Stamp struct {
	Sec  int64
	Nsec int32 // 0 to 999999999
}

// Time is s as a time.Time.
func (s Stamp) Time() time.Time { return time.Unix(s.Sec, int64(s.Nsec)) }

// AppendText appends s in nanoseconds, exact.
func (s Stamp) AppendText(b []byte) ([]byte, error) {
	const most = (1<<63-1)/1_000_000_000 - 1
	if -most < s.Sec && s.Sec < most {
		return strconv.AppendInt(b, s.Sec*1e9+int64(s.Nsec), 10), nil
	}
	n := new(big.Int).Mul(big.NewInt(s.Sec), big.NewInt(1e9))
	return n.Add(n, big.NewInt(int64(s.Nsec))).Append(b, 10), nil
}

func parseStamp(raw []byte) (Stamp, bool) {
	if len(raw) > 30 {
		return Stamp{}, false
	}
	n, ok := new(big.Int).SetString(string(raw), 10)
	if !ok {
		return Stamp{}, false
	}
	var rest big.Int
	sec, _ := n.DivMod(n, big.NewInt(1e9), &rest)
	return Stamp{sec.Int64(), int32(rest.Int64())}, sec.IsInt64()
}

// An Entry is what was found at one path. The package comment says which
// fields are set when.
type Entry struct {
	Path     string // any bytes
	State    State
	Type     Type
	MTime    Stamp
	Size     int64
	SHA256   ledger.Hash
	Hashed   bool // SHA256 is set
	Link     string
	Unhashed string
	Reason   string
}

// names reports whether e speaks of the names in a directory, and of which.
func (e *Entry) names() bool { return len(e.Path) > 1 && e.Path[len(e.Path)-1] == '/' }

// appendText appends a member for text that may not be UTF-8, first in its object or not.
func appendText(dst []byte, key, text string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(append(dst, '"'), key...)
	if utf8.ValidString(text) {
		return canon.AppendString(append(dst, `":`...), text)
	}
	dst = append(dst, `_b64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, []byte(text)), '"')
}

// Append appends e as canonical JSON, without a newline.
func (e *Entry) Append(dst []byte) []byte {
	dst = append(dst, '{')
	if e.Type == Link && e.Unhashed == "" {
		dst = appendText(dst, "link", e.Link)
	}
	if e.State == Exists {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst, _ = e.MTime.AppendText(append(dst, `"mtime_ns":`...))
	}
	dst = appendText(dst, "path", e.Path)
	if e.Reason != "" {
		dst = canon.AppendString(append(dst, `,"reason":`...), e.Reason)
	}
	if e.Hashed {
		dst, _ = e.SHA256.AppendText(append(dst, `,"sha256":"`...))
		dst = append(dst, '"')
	}
	if e.Type == File {
		dst = strconv.AppendInt(append(dst, `,"size":`...), e.Size, 10)
	}
	dst = append(append(append(dst, `,"state":"`...), e.State...), '"')
	if e.State == Exists {
		dst = append(append(append(dst, `,"type":"`...), e.Type...), '"')
	}
	if e.Unhashed != "" {
		dst = append(append(append(dst, `,"unhashed":"`...), e.Unhashed...), '"')
	}
	return append(dst, '}')
}

// ParseEntry reads what Append writes, and nothing else.
func ParseEntry(line []byte) (Entry, error) {
	if err := canon.Check(line); err != nil {
		return Entry{}, err
	}
	var e Entry
	bad := ""
	err := canon.Walk(line, func(m canon.Member) bool {
		ok := true
		switch key := string(m.Key); key {
		case "link":
			e.Link, ok = canon.Unquote(m.Raw)
		case "path":
			e.Path, ok = canon.Unquote(m.Raw)
		case "link_b64":
			e.Link, ok = decode64(m.Raw)
		case "path_b64":
			e.Path, ok = decode64(m.Raw)
		case "mtime_ns":
			e.MTime, ok = parseStamp(m.Raw)
		case "reason":
			e.Reason, ok = canon.Unquote(m.Raw)
		case "sha256":
			e.SHA256, e.Hashed = ledger.ParseHash(bytes.Trim(m.Raw, `"`))
			ok = e.Hashed
		case "size":
			var err error
			e.Size, err = strconv.ParseInt(string(m.Raw), 10, 64)
			ok = err == nil && e.Size >= 0
		case "state":
			var s string
			s, ok = canon.Unquote(m.Raw)
			e.State = State(s)
		case "type":
			var s string
			s, ok = canon.Unquote(m.Raw)
			e.Type = Type(s)
		case "unhashed":
			e.Unhashed, ok = canon.Unquote(m.Raw)
		default:
			ok = false
		}
		if !ok {
			bad = string(m.Key)
		}
		return ok
	})
	switch {
	case err != nil:
		return Entry{}, err
	case bad != "":
		return Entry{}, fmt.Errorf("the member %s is unknown, or not as an entry has it", strconv.QuoteToASCII(bad))
	}
	if err := e.valid(); err != nil {
		return Entry{}, err
	}
	// A member too many or too few, or a name in base64 that is UTF-8, would be
	// a second form of the same entry.
	if !bytes.Equal(e.Append(nil), line) {
		return Entry{}, errors.New("not in the form in which this entry is written")
	}
	return e, nil
}

func decode64(raw []byte) (string, bool) {
	text, ok := canon.Unquote(raw)
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), ok && err == nil
}

func (e *Entry) valid() error {
	switch e.State {
	case Exists:
	case Absent, Unknown, LeftOut:
		if e.Type != "" || e.Hashed || e.Unhashed != "" {
			return fmt.Errorf("an entry that is %s has neither type nor content", e.State)
		}
	default:
		return errors.New("no known state")
	}
	if e.State == Exists {
		switch e.Type {
		case File, Dir, Link, Pipe, Socket, Device, Other:
		default:
			return errors.New("no known type")
		}
	}
	switch e.Unhashed {
	case "", Unstable, TooLarge, Unreadable:
	default:
		return errors.New("no known word in unhashed")
	}
	switch {
	case e.Path == "":
		return errors.New("no path")
	case e.names() && e.State != Unknown:
		return errors.New("a path that ends in a slash is of unknown names")
	case e.Type == File && e.Hashed == (e.Unhashed != ""):
		return errors.New("a file has either sha256 or unhashed")
	case e.Type != File && e.Hashed, e.Type != File && e.Type != Link && e.Unhashed != "":
		return errors.New("only files are hashed")
	}
	return nil
}
