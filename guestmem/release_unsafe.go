// SPDX-License-Identifier: Apache-2.0

//go:build amd64 && !race

package guestmem

import "unsafe"

// storeRelease32 writes an aligned word: what was stored before is seen before it.
//
//go:noescape
func storeRelease32(p unsafe.Pointer, v uint32)
