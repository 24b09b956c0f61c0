package verify

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/auditledger/auditledger/ledger"
)

// headroom is how many bytes may be written before the first line of a block:
// the hash that a record is linked to stands there while the record is hashed.
// padding is how many may be read after the last; they are line ends.
const (
	headroom = hexLen
	padding  = 80
	hexLen   = 64
)

// A shape is where the parts of a record lie in a block. Offsets are into the
// block.
type shape struct {
	prev, sum int    // first hexadecimal digit
	cut, tail int    // the sha256 member with its comma is [cut,tail)
	end       int    // of the line, where its "\n" is
	intent    int    // first digit of the intent member's 64; 0 if there is none of that length
	seq       uint64 // 0 if there is none
	ts        int64
	opens     bool // an intent
	closes    bool // says how the intent ended
	seal      bool // method ledger/seal
}

// scan reads the line at b[i:] in one pass if it is a canonical record of known
// members only, with numbers of the usual size; such are nearly all. It refuses
// all else, for the slow path to judge. The digits of the prev and sum hashes
// are for the caller to check. What scan accepts and the caller finds to have
// good digits, ledger.View.Parse accepts too.
//
// b must have padding bytes after its last line.
func (s *shape) scan(b []byte, i int) bool {
	if string(b[i:i+16]) != `{"args_digest":"` {
		return false
	}
	if i = text64(b, i+16); i < 0 || string(b[i:i+13]) != `,"decision":"` {
		return false
	}
	decision := i + 13
	if i = plain(b, decision); i < 0 {
		return false
	}
	decisionEnd := i - 1
	s.intent = 0
	hasIntent := false
	if string(b[i:i+11]) == `,"intent":"` {
		hasIntent = true
		at := i + 11
		if i = text64(b, at); i < 0 {
			return false
		}
		if i-1-at == hexLen {
			s.intent = at
		}
	}
	if string(b[i:i+11]) != `,"method":"` {
		return false
	}
	method := i + 11
	if i = plain(b, method); i < 0 || string(b[i:i+9]) != `,"name":"` {
		return false
	}
	s.seal = i-1-method == 11 && string(b[method:method+11]) == "ledger/seal"
	if i = plain(b, i+9); i < 0 || string(b[i:i+12]) != `,"outcome":"` {
		return false
	}
	outcome := i + 12
	if i = plain(b, outcome); i < 0 {
		return false
	}
	outcomeEnd := i - 1
	if string(b[i:i+11]) == `,"policy":"` {
		if i = text64(b, i+11); i < 0 {
			return false
		}
	}
	if string(b[i:i+16]) != `,"prev_sha256":"` {
		return false
	}
	s.prev = i + 16
	if i = s.prev + hexLen; i >= len(b)-padding || b[i] != '"' {
		return false
	}
	i++
	if string(b[i:i+11]) == `,"reason":"` {
		if i = plain(b, i+11); i < 0 {
			return false
		}
	}
	if string(b[i:i+15]) != `,"request_id":"` {
		return false
	}
	if i = plain(b, i+15); i < 0 {
		return false
	}
	if string(b[i:i+9]) == `,"rule":"` {
		if i = plain(b, i+9); i < 0 {
			return false
		}
	}
	s.seq = 0
	if string(b[i:i+7]) == `,"seq":` {
		if i, s.seq = digits(b, i+7); s.seq == 0 {
			return false
		}
	}
	if string(b[i:i+11]) != `,"sha256":"` {
		return false
	}
	s.cut, s.sum = i+1, i+11
	if i = s.sum + hexLen; i >= len(b)-padding || string(b[i:i+7]) != `","ts":` {
		return false
	}
	s.tail = i + 2
	var ts uint64
	if i, ts = digits(b, i+7); ts == 0 || b[i] != '}' || b[i+1] != '\n' {
		return false
	}
	s.ts, s.end = int64(ts), i+1

	s.opens, s.closes = false, false
	switch n := decisionEnd - decision; {
	case hasIntent:
		s.closes = s.intent > 0 && (n == 5 && string(b[decision:decision+5]) == "allow" || n == 4 && string(b[decision:decision+4]) == "void")
	case n == 7 && string(b[decision:decision+7]) == "pending":
		s.opens = outcomeEnd-outcome == 6 && string(b[outcome:outcome+6]) == "intent"
	}
	return true
}

// special has a bit set in each byte that ends a run of plain ones, in the
// first of them for certain: a quote, a backslash, a control character, a byte
// that is not ASCII.
func special(w uint64) uint64 {
	const ones = 0x0101010101010101
	return (w | ((w ^ ones*2) - ones*0x21) | ((w ^ ones*'\\') - ones)) & (ones * 0x80)
}

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

// plain returns the offset after the closing quote of the string whose content
// is at b[i:], or -1 if the string is not canonical.
func plain(b []byte, i int) int {
	for i < len(b)-8 {
		m := special(word(b, i))
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) / 8
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			n := escape(b[i+1:])
			if n == 0 {
				return -1
			}
			i += 1 + n
			continue
		case c < utf8.RuneSelf:
			return -1
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return -1
		}
		i += n
	}
	return -1
}

// escape returns the length of the escape that begins b, after its backslash,
// or 0 if the canonical form has no such escape.
func escape(b []byte) int {
	switch b[0] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if string(b[1:4]) != "000" && string(b[1:4]) != "001" {
			return 0
		}
		var c byte
		switch d := b[4]; {
		case d >= '0' && d <= '9':
			c = b[3]&1<<4 | (d - '0')
		case d >= 'a' && d <= 'f':
			c = b[3]&1<<4 | (d - 'a' + 10)
		default:
			return 0
		}
		switch c {
		case '\b', '\f', '\n', '\r', '\t':
			return 0
		}
		return 5
	}
	return 0
}

// text64 is plain for a string that probably is of 64 characters.
func text64(b []byte, i int) int {
	if i < len(b)-padding && b[i+hexLen] == '"' {
		c := b[i : i+hexLen : i+hexLen]
		if special(word(c, 0))|special(word(c, 8))|special(word(c, 16))|special(word(c, 24))|
			special(word(c, 32))|special(word(c, 40))|special(word(c, 48))|special(word(c, 56)) == 0 {
			return i + hexLen + 1
		}
	}
	return plain(b, i)
}

// digits reads a positive canonical integer that fits int64. It returns 0 for
// all else.
func digits(b []byte, i int) (int, uint64) {
	const (
		ones  = 0x0101010101010101
		high  = ones * 0xf0
		zeros = ones * '0'
	)
	start, n := i, uint64(0)
	for i-start <= 8 {
		w := word(b, i)
		if w&high != zeros || (w+6*ones)&high != zeros {
			break
		}
		// Pairs, then fours, then all eight.
		w -= zeros
		w = w*10 + w>>8
		w = (w&0x000000ff000000ff*(100+1000000<<32) + w>>16&0x000000ff000000ff*(1+10000<<32)) >> 32
		n = n*100000000 + w
		i += 8
	}
	for ; i-start < 20; i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		n = n*10 + uint64(c)
	}
	// 19 digits are less than 2^64.
	if i == start || i-start > 19 || b[start] == '0' || n >= 1<<63 {
		return i, 0
	}
	return i, n
}

// A hexHash is the text of a hash as eight words in memory order.
type hexHash [8]uint64

// set makes h the text of sum.
func (h *hexHash) set(sum *[32]byte) {
	const ones = 0x0001000100010001
	for i := range h {
		v := uint64(binary.LittleEndian.Uint32(sum[4*i:]))
		v = (v | v<<16) & 0x0000ffff0000ffff
		v = (v | v<<8) & 0x00ff00ff00ff00ff
		v = v>>4&(ones*0x0f) | v&(ones*0x0f)<<8
		letter := (v + 0x0606060606060606) >> 4 & 0x0101010101010101
		h[i] = v + 0x3030303030303030 + letter*('a'-'0'-10)
	}
}

// load makes h the 64 bytes at b[i:].
func (h *hexHash) load(b []byte, i int) {
	c := b[i : i+hexLen : i+hexLen]
	for k := range h {
		h[k] = word(c, 8*k)
	}
}

// is reports whether h is the 64 bytes at b[i:].
func (h *hexHash) is(b []byte, i int) bool {
	c := b[i : i+hexLen : i+hexLen]
	return h[0] == word(c, 0) && h[1] == word(c, 8) && h[2] == word(c, 16) && h[3] == word(c, 24) &&
		h[4] == word(c, 32) && h[5] == word(c, 40) && h[6] == word(c, 48) && h[7] == word(c, 56)
}

// hash is the hash that h is the text of, if it is one.
func (h *hexHash) hash() (ledger.Hash, bool) {
	var text [hexLen]byte
	h.store(text[:], 0)
	return ledger.ParseHash(text[:])
}

// store writes h to b[i:].
func (h *hexHash) store(b []byte, i int) {
	c := b[i : i+hexLen : i+hexLen]
	for k := range h {
		binary.LittleEndian.PutUint64(c[8*k:], h[k])
	}
}
