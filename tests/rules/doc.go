// SPDX-License-Identifier: Apache-2.0

// Package rules checks what a compiler does not: which package may import which, where unsafe may be used, and how large
// a file and a function may grow. It holds no code but the checks, and nothing imports it.
package rules
