// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"strconv"
	"strings"
)

func hex(v uint32) string { return hex64(uint64(v)) }

func hex64(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }

// enumString returns names[v], or v in hexadecimal if it has no name.
func enumString(v uint32, names []string) string {
	if uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return hex(v)
}

// flagString joins the names of v's bits, lowest first, and the rest in hexadecimal.
func flagString(v uint32, names []string) string {
	if v == 0 {
		return "0"
	}
	var b strings.Builder
	for i, name := range names {
		if v&(1<<i) == 0 || name == "" {
			continue
		}
		v &^= 1 << i
		b.WriteString(name)
		b.WriteByte('|')
	}
	if v != 0 {
		return b.String() + hex(v)
	}
	return strings.TrimSuffix(b.String(), "|")
}
