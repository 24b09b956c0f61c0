package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A Checkpoint is a record that a caller trusts, as found by an earlier check
// or told by someone else. Where the rest is there, Line and Offset say where
// the record's line began; they save the way to it and are not relied upon.
type Checkpoint struct {
	Segment string      // "" if not known
	Line    int64       // from 1; 0 if not known
	Offset  int64       // in the plain segment
	Seq     uint64      // position
	Sum     ledger.Hash // the record's hash
}

type checkpointJSON struct {
	Line    int64  `json:"line"`
	Offset  int64  `json:"offset"`
	Segment string `json:"segment"`
	Seq     uint64 `json:"seq"`
	SHA256  string `json:"sha256"`
}

// MarshalJSON gives canonical JSON.
func (c Checkpoint) MarshalJSON() ([]byte, error) {
	return json.Marshal(checkpointJSON{c.Line, c.Offset, c.Segment, c.Seq, c.Sum.String()})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Checkpoint) UnmarshalJSON(text []byte) error {
	v, err := canon.Parse(text)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	get := func(key string) canon.Value { m, _ := v.Get(key); return m }
	line, ok1 := get("line").Int()
	offset, ok2 := get("offset").Int()
	seq, ok3 := get("seq").Int()
	sum, ok4 := ledger.ParseHash([]byte(get("sha256").Str()))
	segment := get("segment")
	if !ok1 || !ok2 || !ok3 || !ok4 || v.Len() != 5 || segment.Kind() != canon.String || line < 0 || offset < 0 || seq < 1 {
		return errors.New("checkpoint: want the members line, offset, segment, seq and sha256")
	}
	*c = Checkpoint{Segment: segment.Str(), Line: line, Offset: offset, Seq: uint64(seq), Sum: sum}
	return nil
}

// ParseFrom reads a trusted start written as SEQ:SHA256.
func ParseFrom(s string) (*Checkpoint, error) {
	digits, hex, ok := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(digits, 10, 63)
	sum, isHash := ledger.ParseHash([]byte(hex))
	if !ok || err != nil || seq == 0 || !isHash {
		return nil, errors.New("want SEQ:SHA256, such as 1000:9f86d0…, in lower-case digits")
	}
	return &Checkpoint{Seq: seq, Sum: sum}, nil
}
