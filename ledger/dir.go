package ledger

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger/canon"
)

// Names in a ledger directory.
const (
	ActiveName = "audit.jsonl" // the segment that grows
	LockName   = "lock"        // flock: exclusive to write, shared to read a stable point
	HeadName   = "head.json"   // the highest seq and hash that were ever acknowledged
	NotesName  = "notes"       // effects of write_note
	TornName   = "torn"        // unfinished lines, set aside by recovery

	segmentPrefix, segmentSuffix, zstdSuffix = "audit-", ".jsonl", ".zst"
)

// SegmentName is the name of a sealed segment whose first record is seq.
func SegmentName(seq uint64) string {
	return fmt.Sprintf("%s%020d%s", segmentPrefix, seq, segmentSuffix)
}

// ParseSegmentName is the first seq of a sealed segment, and whether it is
// compressed; ok is false where name is no segment's. The rule is strict: 20
// digits, and nothing before or after that SegmentName does not write.
func ParseSegmentName(name string) (seq uint64, compressed, ok bool) {
	name, compressed = strings.CutSuffix(name, zstdSuffix)
	digits, found := strings.CutPrefix(name, segmentPrefix)
	digits, more := strings.CutSuffix(digits, segmentSuffix)
	if !found || !more || len(digits) != 20 {
		return 0, false, false
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, compressed, err == nil && seq > 0 && SegmentName(seq) == name
}

// Head is a position in a chain: the record numbered Seq has the hash Sum. The
// zero Head is that of an empty ledger.
type Head struct {
	Seq uint64
	Sum Hash
}

// headSize is the fixed length of head.json: it is overwritten in place by one
// write, and so has one length for every seq.
const headSize = 128

// MarshalText is the content of head.json: canonical JSON, blanks up to a
// fixed length, "\n".
func (h Head) MarshalText() ([]byte, error) {
	b := fmt.Appendf(make([]byte, 0, headSize), `{"seq":%d,"sha256":"%s"}`, h.Seq, h.Sum)
	return append(append(b, bytes.Repeat([]byte{' '}, headSize-1-len(b))...), '\n'), nil
}

// UnmarshalText reads what MarshalText writes, and nothing else.
func (h *Head) UnmarshalText(text []byte) error {
	v, err := canon.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", HeadName, err)
	}
	seq, _ := v.Get("seq")
	sum, _ := v.Get("sha256")
	n, ok := seq.Int()
	if !ok || n < 0 || v.Len() != 2 || sum.Kind() != canon.String {
		return fmt.Errorf("%s: not a position and a hash", HeadName)
	}
	s, ok := ParseHash([]byte(sum.Str()))
	if !ok {
		return fmt.Errorf("%s: not a position and a hash", HeadName)
	}
	*h = Head{Seq: uint64(n), Sum: s}
	return nil
}
