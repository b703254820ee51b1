// SPDX-License-Identifier: Apache-2.0

//go:build !race

package guestmem_test

const raceEnabled = false
