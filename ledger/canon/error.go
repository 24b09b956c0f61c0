package canon

import "strconv"

// A Reason says why a text was refused. The constants below are all there are.
type Reason string

const (
	Empty         Reason = "empty"          // no value: nothing, or white space alone
	Syntax        Reason = "syntax"         // not JSON
	TrailingData  Reason = "trailing_data"  // a value, then something other than white space
	InvalidUTF8   Reason = "invalid_utf8"   // bytes in a string that are not UTF-8
	LoneSurrogate Reason = "lone_surrogate" // an escape that is half of a surrogate pair
	DuplicateKey  Reason = "duplicate_key"  // two members of one object with the same decoded key
	NumberRange   Reason = "number_range"   // a float that rounds to an infinity of binary64
	TooDeep       Reason = "too_deep"       // arrays and objects nested deeper than MaxDepth
	TooLarge      Reason = "too_large"      // a text longer than MaxLen
	NotCanonical  Reason = "not_canonical"  // an acceptable text that is not in canonical form; from Check only
)

// An Error tells where and why a text was refused. It never holds any of the
// text, so it may be logged where the text may not.
type Error struct {
	Offset int    // bytes before the fault; the length of the text where more was needed
	Reason Reason // for programs
	Detail string // for people: a fixed phrase, or empty
}

// Error returns one line for people.
func (e *Error) Error() string {
	s := "canon: " + string(e.Reason) + " at byte " + strconv.Itoa(e.Offset)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}
