package ledger

import (
	"maps"
	"slices"
	"strconv"

	"github.com/auditledger/auditledger/ledger/canon"
)

// An OpenIntent is a mutation that was about to happen and of which no later
// record says how it ended.
type OpenIntent struct {
	Sum        Hash // of the intent record
	Seq        uint64
	TS         int64
	RequestID  string
	Name       string
	ArgsDigest string
	Policy     string
	TraceID    string // "" where the intent bears none
}

// appendJSON appends o as an element of a seal record's member open.
func (o OpenIntent) appendJSON(dst []byte) []byte {
	dst = canon.AppendString(append(dst, `{"args_digest":`...), o.ArgsDigest)
	dst = canon.AppendString(append(dst, `,"name":`...), o.Name)
	dst = canon.AppendString(append(dst, `,"policy":`...), o.Policy)
	dst = canon.AppendString(append(dst, `,"request_id":`...), o.RequestID)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), o.Seq, 10)
	dst, _ = o.Sum.AppendText(append(dst, `,"sha256":"`...))
	dst = append(dst, '"')
	if o.TraceID != "" {
		dst = canon.AppendString(append(dst, `,"trace_id":`...), o.TraceID)
	}
	dst = strconv.AppendInt(append(dst, `,"ts":`...), o.TS, 10)
	return append(dst, '}')
}

// openOf reads the member open of a seal record.
func openOf(line []byte) (all []OpenIntent) {
	record, err := canon.Parse(line)
	if err != nil {
		return nil
	}
	list, _ := record.Get("open")
	for v := range list.Elems() {
		get := func(key string) canon.Value { m, _ := v.Get(key); return m }
		sum, ok := ParseHash([]byte(get("sha256").Str()))
		seq, isSeq := get("seq").Int()
		if ts, isTS := get("ts").Int(); ok && isSeq && isTS {
			all = append(all, OpenIntent{Sum: sum, Seq: uint64(seq), TS: ts, RequestID: get("request_id").Str(), Name: get("name").Str(),
				ArgsDigest: get("args_digest").Str(), Policy: get("policy").Str(), TraceID: Clip(get("trace_id").Str())})
		}
	}
	return all
}

// Intents follows the intents of a chain: which are open after the records
// seen so far. Its memory is bounded by what is open. The zero value is ready;
// it is not safe for concurrent use.
type Intents struct {
	open map[Hash]OpenIntent
	ids  map[string][]Hash
}

// Observe takes the next record of the chain, whose position is seq.
func (t *Intents) Observe(v *View, seq uint64) {
	switch {
	case Is(v.Method, MethodSeal):
		for _, o := range openOf(v.Line) {
			t.Add(o)
		}
	case v.Intent == nil:
		if !Is(v.Decision, Pending) || !Is(v.Outcome, Intent) {
			return
		}
		t.Add(OpenIntent{Sum: v.Sum, Seq: seq, TS: v.TS, RequestID: text(v.RequestID), Name: text(v.Name),
			ArgsDigest: text(v.ArgsDigest), Policy: text(v.Policy), TraceID: Clip(text(v.TraceID))})
	case Is(v.Decision, Allow), Is(v.Decision, Void):
		sum, ok := ParseHash(v.Intent[1 : len(v.Intent)-1])
		if o, found := t.open[sum]; ok && found {
			delete(t.open, sum)
			if left := slices.DeleteFunc(t.ids[o.RequestID], func(h Hash) bool { return h == sum }); len(left) > 0 {
				t.ids[o.RequestID] = left
			} else {
				delete(t.ids, o.RequestID)
			}
		}
	}
}

// Add takes an intent that was found open before, of an earlier record.
func (t *Intents) Add(o OpenIntent) {
	if t.open == nil {
		t.open, t.ids = make(map[Hash]OpenIntent), make(map[string][]Hash)
	}
	if _, known := t.open[o.Sum]; !known {
		t.open[o.Sum] = o
		t.ids[o.RequestID] = append(t.ids[o.RequestID], o.Sum)
	}
}

// Len is how many intents are open.
func (t *Intents) Len() int { return len(t.open) }

// Of is the open intents of one request id, oldest first.
func (t *Intents) Of(requestID string) []OpenIntent {
	var all []OpenIntent
	for _, sum := range t.ids[requestID] {
		all = append(all, t.open[sum])
	}
	return all
}

// All is every open intent, oldest first.
func (t *Intents) All() []OpenIntent {
	return slices.SortedFunc(maps.Values(t.open), func(a, b OpenIntent) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
}
