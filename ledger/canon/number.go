package canon

import (
	"math"
	"strconv"
)

// number reads the number that begins at src[i].
func (p *parser) number(i int) (int, *Error) {
	end, isFloat, err := scanNumber(p.src, i)
	if err != nil {
		return i, err
	}
	lit, start := p.src[i:end], len(p.text)
	switch {
	case isFloat:
		f := parseFloat(lit)
		if math.IsInf(f, 0) {
			return i, &Error{Offset: i, Reason: NumberRange}
		}
		p.text = appendFloat(p.text, f)
	case string(lit) == "-0":
		p.text = append(p.text, '0')
	default:
		p.text = append(p.text, lit...)
	}
	p.leaf(Number, start)
	return end, nil
}

// scanNumber returns the end of the number that begins at src[i], and whether
// it has a fraction or an exponent.
func scanNumber(src []byte, i int) (end int, isFloat bool, err *Error) {
	digits := func() bool {
		start := i
		i = skipDigits(src, i)
		return i > start
	}
	bad := func(detail string) (int, bool, *Error) {
		if i == len(src) {
			return i, false, unexpectedEnd(i)
		}
		return i, false, &Error{Offset: i, Reason: Syntax, Detail: detail}
	}
	if i < len(src) && src[i] == '-' {
		i++
	}
	first := i
	if !digits() {
		return bad("want a digit after the minus sign")
	}
	if src[first] == '0' && i > first+1 {
		i = first
		return bad("a number with a leading zero")
	}
	if i < len(src) && src[i] == '.' {
		isFloat = true
		i++
		if !digits() {
			return bad("want a digit after the decimal point")
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		isFloat = true
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if !digits() {
			return bad("want a digit in the exponent")
		}
	}
	return i, isFloat, nil
}

// parseFloat returns the binary64 nearest to the number lit, ties to even, or
// an infinity. It does not allocate if lit has at most 32 bytes.
func parseFloat(lit []byte) float64 {
	// strconv stops reading an exponent at five digits, which is exact for
	// literals that are not long themselves.
	if len(lit) > 32 {
		lit = shorten(lit)
	}
	f, _ := strconv.ParseFloat(string(lit), 64)
	return f
}

// shorten returns a number of bounded length that rounds to the same binary64
// as lit, however long its digits or its exponent.
//
// The point half way between two neighbours in binary64 has at most 767
// significant digits, so of what follows the first 800 it only matters whether
// it is zero.
func shorten(lit []byte) []byte {
	const maxDigits = 800
	out := make([]byte, 0, maxDigits+32)
	if lit[0] == '-' {
		out, lit = append(out, '-'), lit[1:]
	}
	out = append(out, '0', '.')
	first := len(out)
	var exp int64 // of a decimal point before the first significant digit
	point, rest := false, false
	i := 0
	for ; i < len(lit) && lit[i] != 'e' && lit[i] != 'E'; i++ {
		c := lit[i]
		switch {
		case c == '.':
			point = true
			continue
		case c == '0' && len(out) == first: // a leading zero
			if point {
				exp--
			}
			continue
		case len(out) < first+maxDigits:
			out = append(out, c)
		case c != '0':
			rest = true
		}
		if !point {
			exp++
		}
	}
	if len(out) == first {
		return append(out, '0')
	}
	if rest {
		out = append(out, '1')
	}
	if i++; i < len(lit) {
		negative := lit[i] == '-'
		if negative || lit[i] == '+' {
			i++
		}
		var e int64
		for ; i < len(lit); i++ {
			if e < 1<<40 { // more than any number of digits makes up for
				e = e*10 + int64(lit[i]-'0')
			}
		}
		if negative {
			e = -e
		}
		exp += e
	}
	out = append(out, 'e')
	return strconv.AppendInt(out, min(max(exp, -9999), 9999), 10)
}

// appendFloat appends f, which is finite, as Python's repr writes it: the
// fewest digits that round to f, with an exponent where the decimal point
// would come more than 16 digits after the first or more than 3 zeros before.
func appendFloat(dst []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, '.', '0')
}
