package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func padded(m []byte) []byte {
	p := append(append([]byte(nil), m...), 0x80)
	for len(p)%64 != 56 {
		p = append(p, 0)
	}
	return binary.BigEndian.AppendUint64(p, uint64(len(m))*8)
}

func sumOf(s [8]uint32) (h [32]byte) {
	for i, w := range s {
		binary.BigEndian.PutUint32(h[4*i:], w)
	}
	return h
}

func TestBlock2(t *testing.T) {
	if !hasBlock2 {
		t.Skip("no SHA instructions")
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for n := range 1000 {
		a, b := random(n), random(n)
		sa, sb := initial, initial
		pa, pb := padded(a), padded(b)
		block2(&sa, &sb, &pa[0], &pb[0], len(pa)/64)
		if sumOf(sa) != sha256.Sum256(a) || sumOf(sb) != sha256.Sum256(b) {
			t.Fatalf("wrong hash of %d bytes", n)
		}
	}
}

func BenchmarkBlock2(b *testing.B) {
	m := make([]byte, 8192)
	sa, sb := initial, initial
	b.SetBytes(8192)
	for b.Loop() {
		block2(&sa, &sb, &m[0], &m[4096], 64)
	}
}

func BenchmarkSum256(b *testing.B) {
	m := make([]byte, 8192)
	b.SetBytes(8192)
	for b.Loop() {
		sha256.Sum256(m)
	}
}
