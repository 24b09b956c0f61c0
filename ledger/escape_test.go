package ledger

import "testing"

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain, é日😀":                   "plain, é日😀",
		"\x1b[31mrm\n0 faults\r\t":     `\x1b[31mrm\n0 faults\r\t`,
		"\x00\x7f\u0085\u009b":         `\x00\x7f\u0085\u009b`,
		"a\u202eb\u2066c\u200bd\ufeff": `a\u202eb\u2066c\u200bd\ufeff`,
		"\u2028\u2029\u00ad\U000e0001": `\u2028\u2029\u00ad\U000e0001`,
		"\xff\xc3 \ufffd":              `\xff\xc3 ` + "\ufffd",
		`C:\x1b`:                       `C:\\x1b`,
		"\xed\xa0\x80":                 `\xed\xa0\x80`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}
