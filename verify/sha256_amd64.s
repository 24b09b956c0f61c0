// SHA-256 of two messages at once with the SHA instructions. The rounds of one
// message depend on each other and leave the unit idle for half of the time;
// the rounds of a second one fill the gaps.

#include "textflag.h"

// Of a block: X1 and X2 are the state of message a as ABEF and CDGH, X5 to X8
// its words; X3, X4 and X9 to X12 are those of message b. X0 holds the words
// plus constants that SHA256RNDS2 takes.

#define LOAD(p, off, m) \
	MOVOU  off(p), m \
	PSHUFB X15, m

// m0 becomes the four words after m3.
#define SCHEDULE(m0, m1, m2, m3) \
	SHA256MSG1 m1, m0     \
	MOVO       m3, X13    \
	PALIGNR    $4, m2, X13 \
	PADDD      X13, m0    \
	SHA256MSG2 m3, m0

#define ROUNDS(off, ma, mb) \
	MOVO        ma, X0          \
	PADDD       off(AX), X0     \
	SHA256RNDS2 X0, X1, X2      \
	PSHUFD      $0x0e, X0, X13  \
	MOVO        mb, X0          \
	PADDD       off(AX), X0     \
	SHA256RNDS2 X0, X3, X4      \
	PSHUFD      $0x0e, X0, X14  \
	MOVO        X13, X0         \
	SHA256RNDS2 X0, X2, X1      \
	MOVO        X14, X0         \
	SHA256RNDS2 X0, X4, X3

// The state in memory is ABCD and EFGH.
#define UNPACK(p, s0, s1) \
	MOVOU   (p), s0        \
	MOVOU   16(p), s1      \
	PSHUFD  $0xb1, s0, s0  \
	PSHUFD  $0x1b, s1, s1  \
	MOVO    s0, X13        \
	PALIGNR $8, s1, s0     \
	PBLENDW $0xf0, X13, s1

#define PACK(s0, s1, p) \
	PSHUFD  $0x1b, s0, s0  \
	PSHUFD  $0xb1, s1, s1  \
	MOVO    s0, X13        \
	PBLENDW $0xf0, s1, s0  \
	PALIGNR $8, X13, s1    \
	MOVOU   s0, (p)        \
	MOVOU   s1, 16(p)

// func block2(sa, sb *[8]uint32, pa, pb *byte, n int)
TEXT ·block2(SB), NOSPLIT, $64-40
	MOVQ  sa+0(FP), SI
	MOVQ  sb+8(FP), DI
	MOVQ  pa+16(FP), DX
	MOVQ  pb+24(FP), R8
	MOVQ  n+32(FP), CX
	LEAQ  k<>(SB), AX
	MOVOU flip<>(SB), X15
	UNPACK(SI, X1, X2)
	UNPACK(DI, X3, X4)

loop:
	SUBQ  $1, CX
	JLT   done
	MOVOU X1, 0(SP)
	MOVOU X2, 16(SP)
	MOVOU X3, 32(SP)
	MOVOU X4, 48(SP)
	LOAD(DX, 0, X5)
	LOAD(R8, 0, X9)
	ROUNDS(0, X5, X9)
	LOAD(DX, 16, X6)
	LOAD(R8, 16, X10)
	ROUNDS(16, X6, X10)
	LOAD(DX, 32, X7)
	LOAD(R8, 32, X11)
	ROUNDS(32, X7, X11)
	LOAD(DX, 48, X8)
	LOAD(R8, 48, X12)
	ROUNDS(48, X8, X12)
	SCHEDULE(X5, X6, X7, X8)
	SCHEDULE(X9, X10, X11, X12)
	ROUNDS(64, X5, X9)
	SCHEDULE(X6, X7, X8, X5)
	SCHEDULE(X10, X11, X12, X9)
	ROUNDS(80, X6, X10)
	SCHEDULE(X7, X8, X5, X6)
	SCHEDULE(X11, X12, X9, X10)
	ROUNDS(96, X7, X11)
	SCHEDULE(X8, X5, X6, X7)
	SCHEDULE(X12, X9, X10, X11)
	ROUNDS(112, X8, X12)
	SCHEDULE(X5, X6, X7, X8)
	SCHEDULE(X9, X10, X11, X12)
	ROUNDS(128, X5, X9)
	SCHEDULE(X6, X7, X8, X5)
	SCHEDULE(X10, X11, X12, X9)
	ROUNDS(144, X6, X10)
	SCHEDULE(X7, X8, X5, X6)
	SCHEDULE(X11, X12, X9, X10)
	ROUNDS(160, X7, X11)
	SCHEDULE(X8, X5, X6, X7)
	SCHEDULE(X12, X9, X10, X11)
	ROUNDS(176, X8, X12)
	SCHEDULE(X5, X6, X7, X8)
	SCHEDULE(X9, X10, X11, X12)
	ROUNDS(192, X5, X9)
	SCHEDULE(X6, X7, X8, X5)
	SCHEDULE(X10, X11, X12, X9)
	ROUNDS(208, X6, X10)
	SCHEDULE(X7, X8, X5, X6)
	SCHEDULE(X11, X12, X9, X10)
	ROUNDS(224, X7, X11)
	SCHEDULE(X8, X5, X6, X7)
	SCHEDULE(X12, X9, X10, X11)
	ROUNDS(240, X8, X12)

	MOVOU 0(SP), X13
	PADDD X13, X1
	MOVOU 16(SP), X14
	PADDD X14, X2
	MOVOU 32(SP), X13
	PADDD X13, X3
	MOVOU 48(SP), X14
	PADDD X14, X4
	ADDQ  $64, DX
	ADDQ  $64, R8
	JMP   loop

done:
	PACK(X1, X2, SI)
	PACK(X3, X4, DI)
	RET

// func cpuid(leaf uint32) (eax, ebx, ecx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-20
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	RET

// The bytes of words, which are big-endian in the message.
DATA flip<>+0(SB)/8, $0x0405060700010203
DATA flip<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL flip<>(SB), RODATA|NOPTR, $16

// The round constants.
DATA k<>+0(SB)/8, $0x71374491428a2f98
DATA k<>+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA k<>+16(SB)/8, $0x59f111f13956c25b
DATA k<>+24(SB)/8, $0xab1c5ed5923f82a4
DATA k<>+32(SB)/8, $0x12835b01d807aa98
DATA k<>+40(SB)/8, $0x550c7dc3243185be
DATA k<>+48(SB)/8, $0x80deb1fe72be5d74
DATA k<>+56(SB)/8, $0xc19bf1749bdc06a7
DATA k<>+64(SB)/8, $0xefbe4786e49b69c1
DATA k<>+72(SB)/8, $0x240ca1cc0fc19dc6
DATA k<>+80(SB)/8, $0x4a7484aa2de92c6f
DATA k<>+88(SB)/8, $0x76f988da5cb0a9dc
DATA k<>+96(SB)/8, $0xa831c66d983e5152
DATA k<>+104(SB)/8, $0xbf597fc7b00327c8
DATA k<>+112(SB)/8, $0xd5a79147c6e00bf3
DATA k<>+120(SB)/8, $0x1429296706ca6351
DATA k<>+128(SB)/8, $0x2e1b213827b70a85
DATA k<>+136(SB)/8, $0x53380d134d2c6dfc
DATA k<>+144(SB)/8, $0x766a0abb650a7354
DATA k<>+152(SB)/8, $0x92722c8581c2c92e
DATA k<>+160(SB)/8, $0xa81a664ba2bfe8a1
DATA k<>+168(SB)/8, $0xc76c51a3c24b8b70
DATA k<>+176(SB)/8, $0xd6990624d192e819
DATA k<>+184(SB)/8, $0x106aa070f40e3585
DATA k<>+192(SB)/8, $0x1e376c0819a4c116
DATA k<>+200(SB)/8, $0x34b0bcb52748774c
DATA k<>+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA k<>+216(SB)/8, $0x682e6ff35b9cca4f
DATA k<>+224(SB)/8, $0x78a5636f748f82ee
DATA k<>+232(SB)/8, $0x8cc7020884c87814
DATA k<>+240(SB)/8, $0xa4506ceb90befffa
DATA k<>+248(SB)/8, $0xc67178f2bef9a3f7
GLOBL k<>(SB), RODATA|NOPTR, $256
