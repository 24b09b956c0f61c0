// Package canon reads and writes the one form in which JSON may stand in an
// audit ledger, and checks for it. Two values are the same if and only if
// their canonical forms are the same bytes, so a hash of the form is a hash of
// the value. This comment is its specification.
//
// # Form
//
// The canonical form of a value is what Python's
//
//	json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
//
// gives, in UTF-8:
//
//	value   = "null" | "true" | "false" | integer | float | string | array | object
//	array   = "[" [ value { "," value } ] "]"
//	object  = "{" [ member { "," member } ] "}"
//	member  = string ":" value
//	string  = `"` { char | escape } `"`
//	char    = any code point but `"`, `\`, U+0000 to U+001F and surrogates
//	escape  = `\"` | `\\` | `\b` | `\t` | `\n` | `\f` | `\r` | `\u00` hex hex
//	integer = "0" | [ "-" ] nonzero { digit }
//
// There is no white space and no line end.
//
// Strings. A backslash stands before the quote and itself. Backspace, tab,
// line feed, form feed and carriage return are written as \b \t \n \f \r, the
// other code points below U+0020 as \u00 with two lower-case hexadecimal
// digits. All others stand for themselves, DEL, U+2028, "/", "<" and "&" too.
// Nothing is normalised: "é" and "e" with U+0301 differ.
//
// Objects. The decoded keys rise strictly in the order of their code points,
// which is that of their bytes in UTF-8: U+FB33 is before U+1F600. (RFC 8785
// orders by UTF-16 and has them the other way round.)
//
// Numbers. One written without fraction and exponent is an integer, and keeps
// all its digits; "-0" becomes "0". Any other is a float: it is rounded to the
// nearest binary64, ties to even, and written as Python's repr does, with the
// fewest digits that round to the same binary64, of those the nearest. Let the
// value be 0.d₁d₂…dₙ × 10ᵖ with d₁ not zero:
//
//	-3 ≤ p ≤ 16   plain, with at least one digit on either side of the point: 0.0001, 100.0
//	otherwise     d₁[.d₂…dₙ]e±xx with the exponent p-1 in two digits or more: 1e-05, 1.5e+300
//
// Zero is 0.0 or -0.0. What is too small for binary64 becomes zero. So 1 and
// 1.0 are different values, 1.0 and 1e0 the same.
//
// # Accepted texts
//
// Append and Parse accept the JSON of RFC 8259, with white space (space, tab,
// "\n", "\r") where it allows it, other than that they refuse, each with a
// Reason:
//
//   - keys of one object that are equal once decoded, however spelt
//   - \u escapes of half a surrogate pair
//   - bytes that are not UTF-8: overlong forms, encoded surrogates, what is cut
//     off or beyond U+10FFFF
//   - floats that round to an infinity, such as 1e400
//   - arrays and objects nested deeper than MaxDepth
//   - texts longer than MaxLen
//   - a byte order mark, NaN, Infinity, comments, and anything after the value
//
// Of several faults in one text one is reported. Check accepts a text if and
// only if Append accepts it and gives it back as it was.
//
// Python differs where its reader is laxer, and in that it by default refuses
// integers of more than 4300 digits and texts nested some 1000 deep.
//
// # Cost
//
// Time and memory are bounded by the length n of the text whatever is in it:
// they grow as n, and as n log n where an object's members are not in order.
// The stack is bounded by MaxDepth.
//
// # Example
//
// The text
//
//	{ "ts": 1.50e1, "n": -0, "\u0061": ["\u00e9\/\u001F", 1E-5] }
//
// has the canonical form
//
//	{"a":["é/\u001f",1e-05],"n":0,"ts":15.0}
//
// All functions may be called from several goroutines at once.
package canon
