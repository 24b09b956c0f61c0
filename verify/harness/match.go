package harness

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// follow is the value at a place.
func follow(v canon.Value, tokens []string) (canon.Value, bool) {
	for _, t := range tokens {
		switch v.Kind() {
		case canon.Object:
			m, ok := v.Get(t)
			if !ok {
				return v, false
			}
			v = m
		case canon.Array:
			n, err := strconv.Atoi(t)
			if err != nil || n < 0 || strconv.Itoa(n) != t || n >= v.Len() {
				return v, false
			}
			i := 0
			for e := range v.Elems() {
				if i == n {
					v = e
					break
				}
				i++
			}
		default:
			return v, false
		}
	}
	return v, true
}

func equal(a, b canon.Value) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }

// contains reports whether v has part in it.
func contains(v, part canon.Value) bool {
	switch {
	case v.Kind() == canon.String && part.Kind() == canon.String:
		return strings.Contains(v.Str(), part.Str())
	case v.Kind() == canon.Array:
		for e := range v.Elems() {
			if covers(e, part) {
				return true
			}
		}
		return false
	}
	return covers(v, part)
}

// covers reports whether v is part, or an object that has all of its members.
func covers(v, part canon.Value) bool {
	if v.Kind() != canon.Object || part.Kind() != canon.Object {
		return equal(v, part)
	}
	for key, m := range part.Members() {
		if w, ok := v.Get(key); !ok || !covers(w, m) {
			return false
		}
	}
	return true
}

// holds reports whether found is as e says, and if not, how it is.
func (e *Expectation) holds(found canon.Value) (bool, string) {
	v, there := follow(found, e.tokens)
	at := "the result"
	if e.At != "" {
		at = ledger.Escape(e.At)
	}
	switch {
	case e.Rule == "absent":
		return !there, at + " is there, and should be absent"
	case !there:
		return false, at + " is absent"
	case e.Rule == "equals":
		return equal(v, e.Value), fmt.Sprintf("%s is %s, not %s", at, brief(v), brief(e.Value))
	}
	return contains(v, e.Value), fmt.Sprintf("%s is %s, without %s", at, brief(v), brief(e.Value))
}

// brief is v for one line of text.
func brief(v canon.Value) string {
	const most = 80
	s := ledger.Escape(string(v.Append(nil)))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
