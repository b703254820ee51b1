// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func streamBlocks(dst, src unsafe.Pointer, n uintptr)
// n is a multiple of 128 and not 0, dst a multiple of 32. The loads are ordinary: to prefetch with PREFETCHNTA, as the
// runtime does, made it slower in pieces of 256 KiB and less.
TEXT ·streamBlocks(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), BX
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 0x20(SI), Y1
	VMOVDQU 0x40(SI), Y2
	VMOVDQU 0x60(SI), Y3
	ADDQ $0x80, SI
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 0x20(DI)
	VMOVNTDQ Y2, 0x40(DI)
	VMOVNTDQ Y3, 0x60(DI)
	ADDQ $0x80, DI
	SUBQ $0x80, BX
	JA loop
	VZEROUPPER
	RET

// func streamFence()
TEXT ·streamFence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func prefetchRead(p unsafe.Pointer, n uintptr)
// It asks for the lines of n bytes, n not 0.
TEXT ·prefetchRead(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), BX
	LEAQ -1(SI)(BX*1), BX
	ANDQ $-64, SI
line:
	PREFETCHT0 (SI)
	ADDQ $64, SI
	CMPQ SI, BX
	JLS line
	RET
