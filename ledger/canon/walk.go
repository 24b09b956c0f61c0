package canon

// A Member is a member of an object as it stands in the text. Key and Raw are
// parts of the text: they change with it, and must not be changed.
type Member struct {
	Key []byte // without its quotes, escapes as written
	Raw []byte // the value as written
	Off int    // of the opening quote of the key, in bytes from the start of the text
	End int    // of the byte after the value
}

// Walk calls f for each member of the object src, in the order of the text,
// until f returns false. It is made for text that Check accepts. From other
// text it may return an *Error or pass on members that are not valid, but they
// lie within src. Walk does not allocate.
func Walk(src []byte, f func(Member) bool) error {
	if len(src) == 0 {
		return &Error{Reason: Empty}
	}
	if src[0] != '{' {
		return &Error{Reason: Syntax, Detail: "want an object"}
	}
	i := 1
	if len(src) == 2 && src[1] == '}' {
		return nil
	}
	for {
		off := i
		if i >= len(src) || src[i] != '"' {
			return &Error{Offset: i, Reason: Syntax, Detail: "want a key in quotes"}
		}
		i = skipString(src, i+1)
		if i < 0 || i >= len(src) || src[i] != ':' {
			return &Error{Offset: off, Reason: Syntax, Detail: "want a colon after the key"}
		}
		val := i + 1
		i = skipValue(src, val)
		if i == val || i >= len(src) {
			return &Error{Offset: val, Reason: Syntax, Detail: "want a value"}
		}
		if !f(Member{Key: src[off+1 : val-2], Raw: src[val:i], Off: off, End: i}) {
			return nil
		}
		switch {
		case src[i] == ',':
			i++
		case src[i] != '}':
			return &Error{Offset: i, Reason: Syntax, Detail: "want a comma or the closing bracket"}
		case i+1 < len(src):
			return &Error{Offset: i + 1, Reason: TrailingData}
		default:
			return nil
		}
	}
}

// skipString returns the offset after the closing quote of a string, from i,
// after its opening quote, or -1 if there is none.
func skipString(src []byte, i int) int {
	for {
		i = skipPlain(src, i)
		if i >= len(src) {
			return -1
		}
		switch src[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
}

// skipValue returns the offset after the value at src[i], at most len(src),
// or i if there is none.
func skipValue(src []byte, i int) int {
	start, depth := i, 0
	i = skipDigits(src, i)
	for i < len(src) {
		switch src[i] {
		case '"':
			end := skipString(src, i+1)
			if end < 0 {
				return start
			}
			if i = end; depth == 0 {
				return i
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
			if depth == 0 {
				return i
			}
		case ',':
			if depth == 0 {
				return i
			}
			i++
		default:
			i++
		}
	}
	return start
}

// Unquote returns the decoded text of raw, which is one JSON string with its
// quotes and nothing around it, and reports whether it is one that Parse
// accepts.
func Unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if i := skipPlain(raw, 1); i == len(raw)-1 && raw[i] == '"' {
		return string(raw[1:i]), true
	}
	text, end, err := appendDecoded(make([]byte, 0, len(raw)), raw, 1)
	if err != nil || end != len(raw) {
		return "", false
	}
	return string(text), true
}
