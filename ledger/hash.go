package ledger

import (
	"crypto/sha256"
	"encoding/hex"
)

// Hash is a SHA-256. Its text is 64 lower-case hexadecimal digits; the zero
// Hash is what the first record of a ledger links to.
type Hash [sha256.Size]byte

// hashLen is the length of a Hash as text.
const hashLen = 2 * sha256.Size

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// AppendText appends the 64 digits of h.
func (h Hash) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, h[:]), nil }

// IsZero reports whether h is the link of a first record.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads 64 lower-case hexadecimal digits, and nothing else.
func ParseHash(text []byte) (h Hash, ok bool) {
	if len(text) != hashLen {
		return Hash{}, false
	}
	for i := range h {
		hi, lo := nibble[text[2*i]], nibble[text[2*i+1]]
		if hi|lo > 15 {
			return Hash{}, false
		}
		h[i] = hi<<4 | lo
	}
	return h, true
}

// nibble maps a lower-case hexadecimal digit to its value and all else to 255.
var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// Digest is the SHA-256 of b.
func Digest(b []byte) Hash { return sha256.Sum256(b) }
