package ledger

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape is s as it may be printed: characters that a terminal obeys, or that
// hide or reorder what stands beside them, are written as escapes of Go. Those
// are control characters, U+2028 and U+2029, format characters such as marks
// of direction and of no width, and bytes that are not UTF-8. A backslash is
// doubled, so that two texts never print as the same.
func Escape(s string) string {
	clean := func(r rune) bool {
		return r != '\\' && r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			writeHex(&b, `\x`, uint32(s[i]), 2)
		case r == utf8.RuneError || clean(r):
			b.WriteString(s[i : i+n])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			writeHex(&b, `\x`, uint32(r), 2)
		case r < 0x10000:
			writeHex(&b, `\u`, uint32(r), 4)
		default:
			writeHex(&b, `\U`, uint32(r), 8)
		}
		i += n
	}
	return b.String()
}

func writeHex(b *strings.Builder, prefix string, v uint32, digits int) {
	b.WriteString(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b.WriteByte("0123456789abcdef"[v>>shift&15])
	}
}
