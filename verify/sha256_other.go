//go:build !amd64

package verify

const hasBlock2 = false

func block2(sa, sb *[8]uint32, pa, pb *byte, n int) { panic("verify: block2 without it") }
