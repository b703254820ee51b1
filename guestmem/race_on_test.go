// SPDX-License-Identifier: Apache-2.0

//go:build race

package guestmem_test

// raceEnabled: under the race detector atomic operations run in C code, after a probe of the address. Memory that
// goes between the two is a fault that cannot be recovered there.
const raceEnabled = true
