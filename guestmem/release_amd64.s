// SPDX-License-Identifier: Apache-2.0

//go:build !race

#include "textflag.h"

// func storeRelease32(p unsafe.Pointer, v uint32)
// The processor keeps stores in order: an ordinary one is seen after all before it.
TEXT ·storeRelease32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET
