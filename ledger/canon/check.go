package canon

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"
)

// Check returns nil if src is its own canonical form: if Append(nil, src)
// would give src. Otherwise it returns an *Error, with the reason NotCanonical
// where Append would give other bytes and the reason of Append where it would
// refuse. It allocates only to return an error.
func Check(src []byte) error {
	i := check(src)
	if i == len(src) {
		return nil
	}
	if i >= 0 {
		i = ^i
	}
	p := newParser()
	defer p.free()
	if err := p.parse(src); err != nil {
		return err
	}
	return &Error{Offset: ^i, Reason: NotCanonical}
}

// check returns the offset after the canonical value that begins src. Like the
// functions beneath it, it returns ^i where what is at src[i] is not canonical: a
// byte, or the first byte of a key, an escape or a number.
func check(src []byte) int {
	if len(src) > MaxLen {
		return ^MaxLen
	}
	return checkValue(src, 0, 0)
}

// checkValue checks the value at src[i], inside depth arrays and objects.
func checkValue(src []byte, i, depth int) int {
	if i >= len(src) {
		return ^i
	}
	switch src[i] {
	case '"':
		return checkString(src, i+1)
	case '{':
		return checkObject(src, i, depth+1)
	case '[':
		return checkArray(src, i, depth+1)
	case 't':
		return checkWord(src, i, "true")
	case 'f':
		return checkWord(src, i, "false")
	case 'n':
		return checkWord(src, i, "null")
	}
	return checkNumber(src, i)
}

// checkObject checks the object whose opening brace is src[i].
func checkObject(src []byte, i, depth int) int {
	if depth > MaxDepth {
		return ^i
	}
	i++
	if i < len(src) && src[i] == '}' {
		return i + 1
	}
	// The key before this one: src[last:lastEnd], none if last is 0, and the
	// first eight bytes of its decoded form, the first the most significant
	// and zeros after the last. If the next key has a greater number, then it
	// sorts after; if it has the same, all bytes are compared.
	last, lastEnd, lastHead := 0, 0, uint64(0)
	for {
		if i >= len(src) || src[i] != '"' {
			return ^i
		}
		i++
		key := i
		var head uint64
		if len(src)-i >= 8 {
			w := binary.LittleEndian.Uint64(src[i:])
			head = bits.ReverseBytes64(w)
			if m := special(w); m == 0 {
				i = skipPlain(src, i+8)
			} else {
				n := bits.TrailingZeros64(m) &^ 7
				i += n / 8
				head &^= math.MaxUint64 >> n
			}
		} else {
			i = skipPlain(src, i)
			head = keyHead(src[key:i])
		}
		if i >= len(src) {
			return ^i
		}
		end := i
		if src[i] == '"' {
			i++
		} else {
			if i = checkString(src, i); i < 0 {
				return i
			}
			end = i - 1
			head = keyHead(src[key:end])
		}
		if head <= lastHead && last > 0 && (head < lastHead || compareKeys(src[last:lastEnd], src[key:end]) >= 0) {
			return ^key
		}
		last, lastEnd, lastHead = key, end, head

		if len(src)-i < 2 || src[i] != ':' {
			return ^i
		}
		if src[i+1] != '"' {
			i = checkValue(src, i+1, depth)
		} else if i = skipPlain(src, i+2); i < len(src) && src[i] == '"' {
			i++
		} else {
			i = checkString(src, i)
		}
		if i < 0 {
			return i
		}
		if i >= len(src) {
			return ^i
		}
		if c := src[i]; c != ',' {
			if c == '}' {
				return i + 1
			}
			return ^i
		}
		i++
	}
}

// checkArray checks the array whose opening bracket is src[i].
func checkArray(src []byte, i, depth int) int {
	if depth > MaxDepth {
		return ^i
	}
	i++
	if i < len(src) && src[i] == ']' {
		return i + 1
	}
	for {
		if i = checkValue(src, i, depth); i < 0 {
			return i
		}
		if i >= len(src) {
			return ^i
		}
		if c := src[i]; c != ',' {
			if c == ']' {
				return i + 1
			}
			return ^i
		}
		i++
	}
}

func checkWord(src []byte, i int, word string) int {
	if len(src)-i < len(word) || string(src[i:i+len(word)]) != word {
		return ^i
	}
	return i + len(word)
}

// checkString checks a string from src[i], after its opening quote, and
// returns the offset after its closing quote.
func checkString(src []byte, i int) int {
	for {
		i = skipPlain(src, i)
		if i >= len(src) {
			return ^i
		}
		switch c := src[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			_, n := unescapeCanonical(src[i:])
			if n == 0 {
				return ^i
			}
			i += n
		case c < 0x20:
			return ^i
		default:
			for i < len(src) && src[i] >= utf8.RuneSelf {
				_, n := utf8.DecodeRune(src[i:])
				if n == 1 {
					return ^i
				}
				i += n
			}
		}
	}
}

// unescapeCanonical returns the byte that the escape at the start of s stands
// for, and its length, 0 if the canonical form does not write that escape.
func unescapeCanonical(s []byte) (c byte, n int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\':
		return s[1], 2
	case 'b':
		return '\b', 2
	case 't':
		return '\t', 2
	case 'n':
		return '\n', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	case 'u':
		if len(s) < 6 || s[2] != '0' || s[3] != '0' || s[4] != '0' && s[4] != '1' {
			return 0, 0
		}
		switch d := s[5]; {
		case '0' <= d && d <= '9':
			c = d - '0'
		case 'a' <= d && d <= 'f':
			c = d - 'a' + 10
		default:
			return 0, 0
		}
		c |= (s[4] - '0') << 4
		if escapes[c] == 'u' {
			return c, 6
		}
	}
	return 0, 0
}

// nextByte returns the first byte of the decoded form of a canonical string,
// and the string after it. s is not empty.
func nextByte(s []byte) (byte, []byte) {
	if s[0] == '\\' {
		c, n := unescapeCanonical(s)
		return c, s[n:]
	}
	return s[0], s[1:]
}

// keyHead returns the first eight bytes of the decoded form of a canonical
// key, the first the most significant, with zeros after the last.
func keyHead(key []byte) uint64 {
	var head uint64
	for shift := 56; shift >= 0 && len(key) > 0; shift -= 8 {
		var c byte
		c, key = nextByte(key)
		head |= uint64(c) << shift
	}
	return head
}

// compareKeys compares canonical keys by their decoded form.
func compareKeys(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		var x, y byte
		x, a = nextByte(a)
		y, b = nextByte(b)
		if x != y {
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}

// checkNumber checks the number at src[i], or finds that there is none.
func checkNumber(src []byte, i int) int {
	start := i
	if src[i] == '-' {
		i++
	}
	first := i
	i = skipDigits(src, i)
	if i < len(src) && (src[i] == '.' || src[i] == 'e') {
		return checkFloat(src, start)
	}
	if i == first {
		return ^i
	}
	if src[first] == '0' && i-start > 1 { // -0 or a leading zero
		return ^first
	}
	return i
}

// checkFloat checks the number at src[i], which has a fraction or an exponent.
func checkFloat(src []byte, i int) int {
	end, _, err := scanNumber(src, i)
	// No repr is longer than "-1.2345678901234567e-308".
	if err != nil || end-i > 24 {
		return ^i
	}
	f := parseFloat(src[i:end])
	if math.IsInf(f, 0) {
		return ^i
	}
	var buf [32]byte
	if string(appendFloat(buf[:0], f)) != string(src[i:end]) {
		return ^i
	}
	return end
}

// special returns a word whose lowest bit set is the highest bit of the first
// byte of w, the one of least significance first, that is not a plain byte of
// a string: a quote, a backslash, a control character or not ASCII. It is 0 if
// all are plain.
func special(w uint64) uint64 {
	const ones = 0x0101010101010101
	// A subtraction sets the high bit of a byte less than what is taken from
	// it; the borrow can do so to the bytes above, but not to those below.
	// Exclusive or with 2 puts the quote, 0x22, just above the control
	// characters, and the space and what follows the quote above 0x20.
	return (w | ((w ^ ones*2) - ones*0x21) | ((w ^ ones*'\\') - ones)) & (ones * 0x80)
}

// skipPlain returns the offset of the first byte from i on that is special, or
// len(src).
func skipPlain(src []byte, i int) int {
	for ; len(src)-i >= 8; i += 8 {
		if m := special(binary.LittleEndian.Uint64(src[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(src) && src[i] < utf8.RuneSelf && escapes[src[i]] == 0 {
		i++
	}
	return i
}

// skipDigits returns the offset of the first byte from i on that is not a
// decimal digit, or len(src).
func skipDigits(src []byte, i int) int {
	const ones = 0x0101010101010101
	for ; len(src)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(src[i:]) ^ ones*'0' // a digit's value, or more than 9
		if m := (w | (w + ones*(0x80-10))) & (ones * 0x80); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(src) && '0' <= src[i] && src[i] <= '9' {
		i++
	}
	return i
}
