package ledger

import (
	"maps"
	"slices"
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
	case v.Intent == nil:
		if !Is(v.Decision, Pending) || !Is(v.Outcome, Intent) {
			return
		}
		if t.open == nil {
			t.open, t.ids = make(map[Hash]OpenIntent), make(map[string][]Hash)
		}
		o := OpenIntent{Sum: v.Sum, Seq: seq, TS: v.TS, RequestID: text(v.RequestID), Name: text(v.Name),
			ArgsDigest: text(v.ArgsDigest), Policy: text(v.Policy)}
		t.open[o.Sum] = o
		t.ids[o.RequestID] = append(t.ids[o.RequestID], o.Sum)
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
