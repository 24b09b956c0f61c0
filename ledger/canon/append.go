package canon

import "unicode/utf8"

// Append appends the canonical form of src, which is one JSON value with white
// space around it, and returns the extended buffer. If src is refused, it
// returns dst as it was and an *Error. It writes only after it has read all of
// src, so src may lie in the memory of dst.
func Append(dst, src []byte) ([]byte, error) {
	p := newParser()
	defer p.free()
	if err := p.parse(src); err != nil {
		return dst, err
	}
	return appendNode(dst, p.text, p.nodes, p.order, 0), nil
}

// appendNode appends the value at nodes[i] in canonical form.
func appendNode[T []byte | string](dst []byte, text T, nodes []node, order []uint32, i uint32) []byte {
	switch n := &nodes[i]; n.kind {
	case Object:
		dst = append(dst, '{')
		for j, k := range order[n.a : n.a+n.n] {
			if j > 0 {
				dst = append(dst, ',')
			}
			key := &nodes[k]
			dst = appendQuoted(dst, text[key.a:key.a+key.n])
			dst = append(dst, ':')
			dst = appendNode(dst, text, nodes, order, k+1)
		}
		return append(dst, '}')
	case Array:
		dst = append(dst, '[')
		for j, k := uint32(0), i+1; j < n.n; j, k = j+1, nodes[k].next {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendNode(dst, text, nodes, order, k)
		}
		return append(dst, ']')
	case String:
		return appendQuoted(dst, text[n.a:n.a+n.n])
	case Number:
		return append(dst, text[n.a:n.a+n.n]...)
	case Bool:
		if n.n == 0 {
			return append(dst, "false"...)
		}
		return append(dst, "true"...)
	}
	return append(dst, "null"...)
}

// AppendString appends s as a canonical JSON string, quotes included. s should
// be valid UTF-8: each byte of it that is not becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return appendQuoted(dst, s)
}

// escapes has, for each byte, 0 where it stands for itself in a string, the
// letter after the backslash, or 'u'.
var escapes = func() (t [256]byte) {
	for c := range 0x20 {
		t[c] = 'u'
	}
	t['\b'], t['\t'], t['\n'], t['\f'], t['\r'] = 'b', 't', 'n', 'f', 'r'
	t['"'], t['\\'] = '"', '\\'
	return t
}()

// appendQuoted appends s, which is valid UTF-8, as a string.
func appendQuoted[T []byte | string](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		e := escapes[s[i]]
		if e == 0 {
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = append(dst, '\\', e)
		if e == 'u' {
			dst = append(dst, '0', '0', hex[s[i]>>4], hex[s[i]&15])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
