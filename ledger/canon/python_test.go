package canon

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// strictPython prints, for each line of its input, "=" and the canonical form,
// or "!" where this package should refuse the line.
const strictPython = `
import json, math, sys
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)

def pairs(members):
    found = dict(members)
    if len(found) != len(members):
        raise ValueError
    return found

def number(text):
    value = float(text)
    if math.isinf(value):
        raise ValueError
    return value

def constant(text):
    raise ValueError

for line in sys.stdin.buffer.read().split(b"\n")[:-1]:
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=pairs, parse_float=number, parse_constant=constant)
        form = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except ValueError:
        sys.stdout.buffer.write(b"!\n")
    else:
        sys.stdout.buffer.write(b"=" + form + b"\n")
`

// TestPython holds Append against Python's json on generated texts, a part of
// them spoilt.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	const count = 30_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := &generator{rand.New(rand.NewPCG(seed, 0))}
	var input bytes.Buffer
	var texts [][]byte
	for range count {
		text := []byte(g.value(0))
		if g.IntN(4) == 0 {
			for range 1 + g.IntN(2) {
				i := g.IntN(len(text))
				switch g.IntN(4) {
				case 0:
					text[i] = byte(g.IntN(256))
				case 1:
					text[i] = `"\,:{}[]0-+.eEu d8`[g.IntN(18)]
				case 2:
					text = append(text[:i], text[i+1:]...)
				case 3:
					text = text[:i+1]
				}
				if len(text) == 0 {
					text = []byte(" ")
				}
			}
		}
		text = bytes.ReplaceAll(text, []byte("\n"), []byte(" "))
		texts = append(texts, text)
		input.Write(text)
		input.WriteByte('\n')
	}
	cmd := exec.Command(python, "-c", strictPython)
	cmd.Stdin = &input
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	answers := bytes.Split(out, []byte("\n"))
	if len(answers) != count+1 {
		t.Fatalf("%d answers to %d texts", len(answers)-1, count)
	}
	refused := 0
	for i, text := range texts {
		want := answers[i]
		form, err := agree(t, text)
		switch {
		case err != nil && want[0] == '=':
			t.Errorf("%.200q: %v, Python gives %.200q", text, err, want[1:])
		case err == nil && want[0] == '!':
			t.Errorf("%.200q: Python refuses, got %.200q", text, form)
		case err == nil && string(form) != string(want[1:]):
			t.Errorf("%.200q: got %.200q, Python gives %.200q", text, form, want[1:])
		}
		if err != nil {
			refused++
		}
	}
	if refused < count/50 || refused > count/2 {
		t.Errorf("%d of %d refused: the texts test too little", refused, count)
	}
}

// A generator makes texts that are JSON in many spellings.
type generator struct{ *rand.Rand }

func (g *generator) space() string {
	if g.IntN(6) > 0 {
		return ""
	}
	return []string{" ", "\t", "\r", "  "}[g.IntN(4)]
}

func (g *generator) value(depth int) string {
	s := g.space()
	kind := g.IntN(10)
	if depth > 8 {
		kind = g.IntN(7)
	}
	switch kind {
	case 0:
		s += []string{"true", "false", "null"}[g.IntN(3)]
	case 1:
		s += g.integer()
	case 2, 3, 4:
		s += g.float()
	case 5, 6:
		s += g.str()
	case 7:
		s += "["
		for i := range g.IntN(5) {
			if i > 0 {
				s += ","
			}
			s += g.value(depth + 1)
		}
		s += g.space() + "]"
	default:
		s += "{"
		seen := map[string]bool{}
		for range g.IntN(7) {
			key := g.str()
			text, ok := Unquote([]byte(key))
			if !ok || seen[text] {
				continue
			}
			if len(seen) > 0 {
				s += ","
			}
			seen[text] = true
			s += g.space() + key + g.space() + ":" + g.value(depth+1)
		}
		s += g.space() + "}"
	}
	return s + g.space()
}

func (g *generator) digits(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + g.IntN(10))
	}
	return string(b)
}

func (g *generator) integer() string {
	s := strings.TrimLeft(g.digits(1+g.IntN(30)), "0")
	if g.IntN(200) == 0 {
		s = "1" + g.digits(6000) // more than Python reads by default
	}
	if s == "" {
		s = "0"
	}
	if g.IntN(3) == 0 {
		s = "-" + s
	}
	return s
}

func (g *generator) float() string {
	var f float64
	switch g.IntN(8) {
	case 0: // any
		f = math.Float64frombits(g.Uint64())
	case 1: // powers of two and their neighbours
		f = math.Ldexp(1, g.IntN(2098)-1074)
		f = math.Float64frombits(math.Float64bits(f) + uint64(g.IntN(3)) - 1)
	case 2: // powers of ten and their neighbours
		f, _ = strconv.ParseFloat(fmt.Sprintf("1e%d", g.IntN(40)-20), 64)
		f = math.Float64frombits(math.Float64bits(f) + uint64(g.IntN(5)) - 2)
	case 3: // few digits
		f = float64(g.IntN(100000)) / 1000
	case 4: // digits as they come
		s := g.integer() + "." + g.digits(1+g.IntN(25))
		if g.IntN(2) == 0 {
			s += []string{"e", "E", "e+", "E-", "e-"}[g.IntN(5)] + g.digits(1+g.IntN(3))
		}
		return s
	case 5: // half way between neighbours, or just beside it
		f = math.Abs(math.Float64frombits(g.Uint64() &^ (1 << 62)))
		s := strconv.FormatFloat(f, 'f', 1074, 64)
		return strings.TrimRight(s, "0") + "5" + []string{"", "0", "01", g.digits(900)}[g.IntN(4)]
	case 6: // long runs of zeros that the exponent makes up for
		if g.IntN(10) > 0 {
			return "0.0"
		}
		n := g.IntN(20_000)
		if g.IntN(2) == 0 {
			return fmt.Sprintf("0.%s%se%d", strings.Repeat("0", n), g.digits(20), n+g.IntN(40)-20)
		}
		return fmt.Sprintf("1%s%s.5e-%d", g.digits(20), strings.Repeat("0", n), n+g.IntN(40))
	case 7: // small integers
		f = float64(g.Int64N(1<<62) >> g.IntN(62))
	}
	if math.IsInf(f, 0) || math.IsNaN(f) {
		f = 0
	}
	s := strconv.FormatFloat(f, "eEfgG"[g.IntN(5)], -1, 64)
	if !strings.ContainsAny(s, ".eE") {
		s += ".0"
	}
	return s
}

func (g *generator) str() string {
	s := `"`
	n := g.IntN(12)
	if g.IntN(4) == 0 {
		n = 0
	}
	for range n {
		var r rune
		switch g.IntN(6) {
		case 0:
			r = rune(g.IntN(0x20))
		case 1:
			r = []rune("\"\\/<>&\x7f\u0085\u2028\u2029\ufeff\ufb33\U0001f600\uffff\ud7ff\ue000")[g.IntN(16)]
		case 2:
			r = rune(g.IntN(0x110000))
		case 3:
			r = rune(g.IntN(0x800))
		default:
			r = 'a' + rune(g.IntN(6))
		}
		switch {
		case 0xd800 <= r && r <= 0xdfff:
			continue
		case r < 0x20 || r == '"' || r == '\\' || g.IntN(6) == 0:
			if short := strings.IndexRune("\"\\/\b\t\n\f\r", r); short >= 0 && g.IntN(2) == 0 {
				s += `\` + string(`"\/btnfr`[short])
			} else if r < 0x10000 {
				s += fmt.Sprintf([]string{`\u%04x`, `\u%04X`}[g.IntN(2)], r)
			} else {
				s += fmt.Sprintf(`\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			}
		default:
			s += string(r)
		}
	}
	return s + `"`
}
