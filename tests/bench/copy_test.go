// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
)

func TestACopyFollowsTheRunsOfBothSides(t *testing.T) {
	from, to := make([]byte, 16), make([]byte, 16)
	for i := range from {
		from[i] = byte('a' + i)
	}
	q := copyRequest{
		From: memoryFile{Runs: []memoryRun{{8, 4}, {0, 8}}}, To: memoryFile{Runs: []memoryRun{{4, 6}, {12, 4}, {0, 2}}},
		Size: 6, Slots: 2,
	}
	pieces, err := q.pieces(from, to)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		copy(p.to, p.from)
	}
	want := []byte("gh\x00\x00ijklab\x00\x00cdef")
	if !bytes.Equal(to, want) {
		t.Errorf("the target is %q, want %q", to, want)
	}
	if len(pieces) != 4 {
		t.Errorf("%d copies, want 4", len(pieces))
	}
	q.Slots = 3
	if _, err := q.pieces(from, to); err == nil {
		t.Error("messages longer than the memory are taken")
	}
}
