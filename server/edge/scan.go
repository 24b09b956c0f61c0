package edge

import (
	"bytes"
	"fmt"
)

// A syntaxError tells where a text ends to be JSON. It holds none of the text.
type syntaxError struct {
	at   int // bytes before the fault
	what string
}

func (e *syntaxError) String() string { return fmt.Sprintf("byte %d: %s", e.at+1, e.what) }

const (
	unexpectedEnd = "the message ends in the middle of a value"
	wantValue     = "a value must stand here"
	wantKey       = "the name of a member must stand here"
	wantColon     = "a colon must stand here"
	wantComma     = "a comma or a closing bracket must stand here"
	badNumber     = "not a number as JSON writes them"
	badEscape     = "not an escape of JSON"
	bareControl   = "a control character in a string"
	moreText      = "something stands after the value"
	orderMark     = "a byte-order mark"
)

// scan reads text, one JSON value, by the grammar of RFC 8259 and no more: bytes
// that are not UTF-8, surrogates, doubled members and the size of numbers are
// not looked at. It returns how deep arrays and objects nest, however deep that
// is, in memory of one bit for each level.
//
// For each member of an object, or element of an array, visit is called with the
// raw key, nil in an array, and the raw value; only of the outermost one, and
// also of text that turns out to be malformed further on.
func scan(text []byte, visit func(key, value []byte)) (depth int, fault *syntaxError) {
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		return 0, &syntaxError{0, orderMark}
	}
	var (
		open  stack
		key   []byte
		start int // of the member's value
		i     int
	)
	// member reads the name of a member and its colon.
	member := func() *syntaxError {
		i = space(text, i)
		if i == len(text) {
			return &syntaxError{i, unexpectedEnd}
		}
		if text[i] != '"' {
			return &syntaxError{i, wantKey}
		}
		end, fault := str(text, i)
		if fault != nil {
			return fault
		}
		if open.depth == 1 {
			key = text[i:end]
		}
		i = space(text, end)
		if i == len(text) {
			return &syntaxError{i, unexpectedEnd}
		}
		if text[i] != ':' {
			return &syntaxError{i, wantColon}
		}
		i++
		return nil
	}
	for {
		i = space(text, i)
		if i == len(text) {
			return depth, &syntaxError{i, unexpectedEnd}
		}
		if open.depth == 1 {
			start = i
		}
		switch c := text[i]; {
		case c == '{' || c == '[':
			open.push(c == '{')
			depth = max(depth, open.depth)
			i = space(text, i+1)
			if i < len(text) && text[i] == c+2 { // '}' and ']' come two after '{' and '['
				i++
				open.pop()
				break
			}
			if c == '{' {
				if fault := member(); fault != nil {
					return depth, fault
				}
			}
			continue
		case c == '"':
			i, fault = str(text, i)
		case c == '-' || '0' <= c && c <= '9':
			i, fault = number(text, i)
		case c == 't':
			i, fault = word(text, i, "true")
		case c == 'f':
			i, fault = word(text, i, "false")
		case c == 'n':
			i, fault = word(text, i, "null")
		default:
			fault = &syntaxError{i, wantValue}
		}
		if fault != nil {
			return depth, fault
		}
		// A value ends before text[i]; close what ends with it.
		for {
			if open.depth == 0 {
				if i = space(text, i); i < len(text) {
					return depth, &syntaxError{i, moreText}
				}
				return depth, nil
			}
			if open.depth == 1 && visit != nil {
				visit(key, text[start:i])
			}
			i = space(text, i)
			if i == len(text) {
				return depth, &syntaxError{i, unexpectedEnd}
			}
			object := open.top()
			if text[i] == ',' {
				i++
				if object {
					if fault := member(); fault != nil {
						return depth, fault
					}
				}
				break
			}
			if text[i] != '}' && object || text[i] != ']' && !object {
				return depth, &syntaxError{i, wantComma}
			}
			i++
			open.pop()
		}
	}
}

// space returns the offset of the first byte from i on that is not white space.
func space(text []byte, i int) int {
	for i < len(text) && blank(text[i]) {
		i++
	}
	return i
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// str returns the offset after the string whose opening quote is text[i].
func str(text []byte, i int) (int, *syntaxError) {
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return 0, &syntaxError{i, bareControl}
		case c == '\\':
			i++
			if i == len(text) {
				return 0, &syntaxError{i, unexpectedEnd}
			}
			switch text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					i++
					if i == len(text) {
						return 0, &syntaxError{i, unexpectedEnd}
					}
					if c := text[i] | 0x20; !('0' <= text[i] && text[i] <= '9' || 'a' <= c && c <= 'f') {
						return 0, &syntaxError{i, badEscape}
					}
				}
			default:
				return 0, &syntaxError{i, badEscape}
			}
		}
	}
	return 0, &syntaxError{len(text), unexpectedEnd}
}

// number returns the offset after the number that begins at text[i].
func number(text []byte, i int) (int, *syntaxError) {
	digits := func() bool {
		from := i
		for i < len(text) && '0' <= text[i] && text[i] <= '9' {
			i++
		}
		return i > from
	}
	fail := func() (int, *syntaxError) {
		if i == len(text) {
			return 0, &syntaxError{i, unexpectedEnd}
		}
		return 0, &syntaxError{i, badNumber}
	}
	if text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
		if i < len(text) && '0' <= text[i] && text[i] <= '9' {
			return fail()
		}
	} else if !digits() {
		return fail()
	}
	if i < len(text) && text[i] == '.' {
		i++
		if !digits() {
			return fail()
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return fail()
		}
	}
	return i, nil
}

// word returns the offset after the word w at text[i].
func word(text []byte, i int, w string) (int, *syntaxError) {
	for j := range len(w) {
		if i+j == len(text) {
			return 0, &syntaxError{i + j, unexpectedEnd}
		}
		if text[i+j] != w[j] {
			return 0, &syntaxError{i, wantValue}
		}
	}
	return i + len(w), nil
}

// A stack holds one bit for each open array (0) and object (1).
type stack struct {
	bits  []uint64
	depth int
}

func (s *stack) push(object bool) {
	at, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if at == len(s.bits) {
		s.bits = append(s.bits, 0)
	}
	if object {
		s.bits[at] |= bit
	} else {
		s.bits[at] &^= bit
	}
	s.depth++
}

func (s *stack) pop() { s.depth-- }

func (s *stack) top() bool { return s.bits[(s.depth-1)/64]>>((s.depth-1)%64)&1 == 1 }
