// SPDX-License-Identifier: Apache-2.0

//go:build !race

#include "textflag.h"

// func compareExchange64(p unsafe.Pointer, old, val uint64) (was uint64)
TEXT ·compareExchange64(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), BX
	MOVQ old+8(FP), AX
	MOVQ val+16(FP), CX
	LOCK
	CMPXCHGQ CX, (BX)
	MOVQ AX, was+24(FP)
	RET
