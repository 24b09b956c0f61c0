package verify

// block2 goes on with the hashes sa and sb by n blocks of 64 bytes each, at pa
// and pb.
//
//go:noescape
func block2(sa, sb *[8]uint32, pa, pb *byte, n int)

func cpuid(leaf uint32) (eax, ebx, ecx uint32)

// hasBlock2 reports whether the processor has what block2 needs: SSSE3, SSE4.1
// and the SHA instructions.
var hasBlock2 = func() bool {
	most, _, _ := cpuid(0)
	if most < 7 {
		return false
	}
	_, _, ecx := cpuid(1)
	_, ebx, _ := cpuid(7)
	return ecx>>9&1 == 1 && ecx>>19&1 == 1 && ebx>>29&1 == 1
}()
