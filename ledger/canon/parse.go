package canon

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest: a text of MaxDepth opening
// brackets and as many closing ones is accepted, one more is refused.
const MaxDepth = 512

// MaxLen is the length in bytes, 256 MiB, of the longest text accepted.
const MaxLen = 1 << 28

// A node is a value or a key of a parsed text. Nodes lie in the order of the
// text, so the first element of an array follows its array.
//
// The offsets fit 32 bits: a text has at most as many nodes as bytes, and its
// decoded form is less than four times as long ("1e9," is the worst).
type node struct {
	kind Kind
	a    uint32 // String, Number: offset in the text arena. Object: offset in order
	n    uint32 // String, Number: length in bytes. Array, Object: elements, members. Bool: 0 or 1
	next uint32 // the node after this one and all beneath it. For a key: its offset in the source
}

// A parser holds the flat tree of one text.
type parser struct {
	src   []byte
	text  []byte   // decoded strings and canonical numbers, end to end
	nodes []node   // nodes[0] is the value
	order []uint32 // the key nodes of each finished object, sorted
	open  []uint32 // the key nodes of the objects not finished yet
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// newParser returns an empty parser, to be given back with free.
func newParser() *parser {
	p := parsers.Get().(*parser)
	p.text, p.nodes, p.order, p.open = p.text[:0], p.nodes[:0], p.order[:0], p.open[:0]
	return p
}

// free gives p back, unless one large text has made it too big to keep.
func (p *parser) free() {
	p.src = nil
	if cap(p.text) <= 1<<18 && cap(p.nodes) <= 1<<14 {
		parsers.Put(p)
	}
}

// parse reads src, one value with white space around it.
func (p *parser) parse(src []byte) *Error {
	if len(src) > MaxLen {
		return &Error{Offset: MaxLen, Reason: TooLarge}
	}
	p.src = src
	i := skipSpace(src, 0)
	if i == len(src) {
		return &Error{Offset: i, Reason: Empty}
	}
	i, err := p.value(i, 0)
	if err != nil {
		return err
	}
	if i = skipSpace(src, i); i < len(src) {
		return &Error{Offset: i, Reason: TrailingData}
	}
	return nil
}

// value reads the value that begins at src[i], inside depth arrays and
// objects, and returns the offset after it.
func (p *parser) value(i, depth int) (int, *Error) {
	if i == len(p.src) {
		return i, unexpectedEnd(i)
	}
	switch c := p.src[i]; c {
	case '{':
		return p.object(i, depth+1)
	case '[':
		return p.array(i, depth+1)
	case '"':
		return p.string(i)
	case 't':
		return p.literal(i, "true", node{kind: Bool, n: 1})
	case 'f':
		return p.literal(i, "false", node{kind: Bool})
	case 'n':
		return p.literal(i, "null", node{kind: Null})
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return p.number(i)
		}
		return i, &Error{Offset: i, Reason: Syntax, Detail: "no value begins with this byte"}
	}
}

// object reads the object whose opening brace is src[i].
func (p *parser) object(i, depth int) (int, *Error) {
	if depth > MaxDepth {
		return i, &Error{Offset: i, Reason: TooDeep}
	}
	self, base := len(p.nodes), len(p.open)
	p.nodes = append(p.nodes, node{kind: Object})
	i = skipSpace(p.src, i+1)
	if i < len(p.src) && p.src[i] == '}' {
		i++
	} else {
		for more := true; more; {
			if i == len(p.src) {
				return i, unexpectedEnd(i)
			}
			if p.src[i] != '"' {
				return i, &Error{Offset: i, Reason: Syntax, Detail: "want a key in quotes"}
			}
			key, at := len(p.nodes), i
			var err *Error
			if i, err = p.string(i); err != nil {
				return i, err
			}
			p.nodes[key].next = uint32(at)
			p.open = append(p.open, uint32(key))
			i = skipSpace(p.src, i)
			if i == len(p.src) {
				return i, unexpectedEnd(i)
			}
			if p.src[i] != ':' {
				return i, &Error{Offset: i, Reason: Syntax, Detail: "want a colon after the key"}
			}
			if i, err = p.value(skipSpace(p.src, i+1), depth); err != nil {
				return i, err
			}
			if i, more, err = p.comma(i, '}'); err != nil {
				return i, err
			}
		}
	}
	keys := p.open[base:]
	if err := p.sort(keys); err != nil {
		return i, err
	}
	p.nodes[self].a = uint32(len(p.order))
	p.nodes[self].n = uint32(len(keys))
	p.nodes[self].next = uint32(len(p.nodes))
	p.order = append(p.order, keys...)
	p.open = p.open[:base]
	return i, nil
}

// sort puts the key nodes of one object in order and refuses equal keys.
func (p *parser) sort(keys []uint32) *Error {
	sorted := true
	for i := 1; i < len(keys) && sorted; i++ {
		sorted = string(p.bytes(keys[i-1])) < string(p.bytes(keys[i]))
	}
	if sorted {
		return nil
	}
	slices.SortFunc(keys, func(a, b uint32) int {
		if c := bytes.Compare(p.bytes(a), p.bytes(b)); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	at := -1
	for i := 1; i < len(keys); i++ {
		if string(p.bytes(keys[i-1])) == string(p.bytes(keys[i])) {
			if off := int(p.nodes[keys[i]].next); at < 0 || off < at {
				at = off
			}
		}
	}
	if at >= 0 {
		return &Error{Offset: at, Reason: DuplicateKey}
	}
	return nil
}

// bytes returns the decoded text of a String or key.
func (p *parser) bytes(i uint32) []byte {
	n := &p.nodes[i]
	return p.text[n.a : n.a+n.n]
}

// array reads the array whose opening bracket is src[i].
func (p *parser) array(i, depth int) (int, *Error) {
	if depth > MaxDepth {
		return i, &Error{Offset: i, Reason: TooDeep}
	}
	self := len(p.nodes)
	p.nodes = append(p.nodes, node{kind: Array})
	var n uint32
	i = skipSpace(p.src, i+1)
	if i < len(p.src) && p.src[i] == ']' {
		i++
	} else {
		for more := true; more; n++ {
			var err *Error
			if i, err = p.value(i, depth); err != nil {
				return i, err
			}
			if i, more, err = p.comma(i, ']'); err != nil {
				return i, err
			}
		}
	}
	p.nodes[self].n = n
	p.nodes[self].next = uint32(len(p.nodes))
	return i, nil
}

// comma reads what follows a member or an element: a comma, and then more is
// true and the offset is that of the next one, or the closing bracket.
func (p *parser) comma(i int, closing byte) (next int, more bool, err *Error) {
	i = skipSpace(p.src, i)
	if i == len(p.src) {
		return i, false, unexpectedEnd(i)
	}
	switch p.src[i] {
	case closing:
		return i + 1, false, nil
	case ',':
		return skipSpace(p.src, i+1), true, nil
	}
	return i, false, &Error{Offset: i, Reason: Syntax, Detail: "want a comma or the closing bracket"}
}

// literal reads the word at src[i].
func (p *parser) literal(i int, word string, n node) (int, *Error) {
	if len(p.src)-i < len(word) || string(p.src[i:i+len(word)]) != word {
		return i, &Error{Offset: i, Reason: Syntax, Detail: "neither true nor false nor null"}
	}
	n.next = uint32(len(p.nodes) + 1)
	p.nodes = append(p.nodes, n)
	return i + len(word), nil
}

// string reads the string whose opening quote is src[i].
func (p *parser) string(i int) (int, *Error) {
	start := len(p.text)
	var err *Error
	if p.text, i, err = appendDecoded(p.text, p.src, i+1); err != nil {
		return i, err
	}
	p.leaf(String, start)
	return i, nil
}

// leaf adds a node for the text since start.
func (p *parser) leaf(kind Kind, start int) {
	p.nodes = append(p.nodes, node{
		kind: kind,
		a:    uint32(start),
		n:    uint32(len(p.text) - start),
		next: uint32(len(p.nodes) + 1),
	})
}

// appendDecoded appends the decoded text of the string whose first byte after
// the opening quote is src[i], and returns the offset after the closing quote.
func appendDecoded(dst, src []byte, i int) ([]byte, int, *Error) {
	for {
		j := skipPlain(src, i)
		dst = append(dst, src[i:j]...)
		if j == len(src) {
			return dst, j, unexpectedEnd(j)
		}
		switch c := src[j]; {
		case c == '"':
			return dst, j + 1, nil
		case c == '\\':
			r, n, err := unescape(src, j)
			if err != nil {
				return dst, j, err
			}
			dst = utf8.AppendRune(dst, r)
			i = j + n
		case c < 0x20:
			return dst, j, &Error{Offset: j, Reason: Syntax, Detail: "a control character that is not escaped"}
		default:
			_, n := utf8.DecodeRune(src[j:])
			if n == 1 {
				return dst, j, &Error{Offset: j, Reason: InvalidUTF8}
			}
			dst = append(dst, src[j:j+n]...)
			i = j + n
		}
	}
}

// unescape decodes the escape whose backslash is src[i], both halves of a
// surrogate pair, and returns its length.
func unescape(src []byte, i int) (r rune, n int, err *Error) {
	if i+1 == len(src) {
		return 0, 0, unexpectedEnd(i + 1)
	}
	switch src[i+1] {
	case '"', '\\', '/':
		return rune(src[i+1]), 2, nil
	case 'b':
		return '\b', 2, nil
	case 't':
		return '\t', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'r':
		return '\r', 2, nil
	case 'u':
		if r = hex4(src, i+2); r < 0 {
			return 0, 0, &Error{Offset: i, Reason: Syntax, Detail: `want four hexadecimal digits after \u`}
		}
		if r < 0xd800 || 0xdfff < r {
			return r, 6, nil
		}
		if r < 0xdc00 && i+7 < len(src) && src[i+6] == '\\' && src[i+7] == 'u' {
			if low := hex4(src, i+8); 0xdc00 <= low && low <= 0xdfff {
				return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12, nil
			}
		}
		return 0, 0, &Error{Offset: i, Reason: LoneSurrogate}
	}
	return 0, 0, &Error{Offset: i, Reason: Syntax, Detail: "an escape that JSON does not have"}
}

// hex4 returns the value of the four hexadecimal digits at src[i], or -1.
func hex4(src []byte, i int) rune {
	if len(src)-i < 4 {
		return -1
	}
	var r rune
	for _, c := range src[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

// skipSpace returns the offset of the first byte from i on that is not white
// space.
func skipSpace(src []byte, i int) int {
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
		i++
	}
	return i
}

func unexpectedEnd(i int) *Error {
	return &Error{Offset: i, Reason: Syntax, Detail: "the text ends too early"}
}
