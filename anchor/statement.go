package anchor

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A Statement says that a ledger had a record at a time.
type Statement struct {
	Ledger   ledger.Hash
	Previous ledger.Hash
	Records  uint64
	Head     ledger.Head
	Tool     string
	TS       int64
}

// MaxStatement is how long a statement may be.
const MaxStatement = 4096

// Bytes is the statement as it is kept.
func (s Statement) Bytes() []byte {
	b := fmt.Appendf(nil, `{"ledger":"%s","previous":"%s","records":%d,"seq":%d,"sha256":"%s","tool":`,
		s.Ledger, s.Previous, s.Records, s.Head.Seq, s.Head.Sum)
	b = canon.AppendString(b, s.Tool)
	return fmt.Appendf(b, `,"ts":%d}`, s.TS)
}

// Digest is what the next statement calls previous.
func (s Statement) Digest() ledger.Hash { return ledger.Digest(s.Bytes()) }

// ParseStatement reads what Bytes writes, and nothing else.
func ParseStatement(b []byte) (Statement, error) {
	if len(b) > MaxStatement {
		return Statement{}, fmt.Errorf("%d bytes are too long for a statement", len(b))
	}
	v, err := canon.Parse(b)
	if err != nil {
		return Statement{}, fmt.Errorf("no statement: %w", err)
	}
	m := members{v: v}
	s := Statement{Ledger: m.hash("ledger"), Previous: m.hash("previous"), Records: m.count("records"),
		Head: ledger.Head{Seq: m.count("seq"), Sum: m.hash("sha256")}, Tool: m.text("tool"), TS: m.int("ts")}
	switch {
	case m.wrong != "":
		return Statement{}, fmt.Errorf("no statement: member %s is missing or of a wrong type", m.wrong)
	case s.Head.Seq == 0 || s.Records != s.Head.Seq || s.Ledger.IsZero():
		return Statement{}, errors.New("no statement: it is of no record")
	case !bytes.Equal(s.Bytes(), b):
		return Statement{}, errors.New("no statement: it has other members, or another spelling")
	}
	return s, nil
}

// members reads members of an object, and remembers the first that is wrong.
type members struct {
	v     canon.Value
	wrong string
}

func (m *members) note(key string, ok bool) {
	if !ok && m.wrong == "" {
		m.wrong = key
	}
}

func (m *members) text(key string) string {
	v, _ := m.v.Get(key)
	m.note(key, v.Kind() == canon.String)
	return v.Str()
}

func (m *members) hash(key string) ledger.Hash {
	h, ok := ledger.ParseHash([]byte(m.text(key)))
	m.note(key, ok)
	return h
}

func (m *members) int(key string) int64 {
	v, _ := m.v.Get(key)
	n, ok := v.Int()
	m.note(key, ok)
	return n
}

func (m *members) count(key string) uint64 {
	n := m.int(key)
	m.note(key, n >= 0)
	return uint64(max(n, 0))
}

// A Key is what the name of a statement says of it.
type Key struct {
	Ledger ledger.Hash
	Seq    uint64
	Start  string // first 16 digits of the head's hash
	TS     int64  // of a heartbeat, else 0
}

// KeyOf is the key of s, below the sink's prefix.
func KeyOf(s Statement, heartbeat bool) Key {
	k := Key{Ledger: s.Ledger, Seq: s.Head.Seq, Start: s.Head.Sum.String()[:16]}
	if heartbeat {
		k.TS = s.TS
	}
	return k
}

func (k Key) String() string {
	beat := ""
	if k.TS != 0 {
		beat = fmt.Sprintf("_%020d", k.TS)
	}
	return fmt.Sprintf("%s/%020d-%s%s.json", k.Ledger, k.Seq, k.Start, beat)
}

// ParseKey reads what String writes, and nothing else.
func ParseKey(text string) (Key, bool) {
	id, name, ok := strings.Cut(text, "/")
	sum, isHash := ledger.ParseHash([]byte(id))
	name, isJSON := strings.CutSuffix(name, ".json")
	name, beat, beats := strings.Cut(name, "_")
	digits, start, dashed := strings.Cut(name, "-")
	if !ok || !isHash || !isJSON || !dashed || len(digits) != 20 || len(start) != 16 {
		return Key{}, false
	}
	seq, err := strconv.ParseUint(digits, 10, 63)
	k := Key{Ledger: sum, Seq: seq, Start: start}
	if beats {
		var bad error
		k.TS, bad = strconv.ParseInt(beat, 10, 64)
		err = errors.Join(err, bad)
	}
	return k, err == nil && k.String() == text
}

// Names reports whether k is the key of s.
func (k Key) Names(s Statement) bool { return k == KeyOf(s, k.TS != 0) }
