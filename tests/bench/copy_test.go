// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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

func TestPagesThatAreMappedSideBySideAreThoseOfTheRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(file, bytes.Repeat([]byte("abcdefgh"), 4*pageSize/8), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // each page begins with its number
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{byte('0' + i)}, int64(i)*pageSize)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	m := memoryFile{Path: file, Runs: []memoryRun{{3 * pageSize, pageSize}, {0, pageSize}, {pageSize, 2 * pageSize}}}
	b, err := copyRequest{SideBySide: true}.mapMemory(&m)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	got := []byte{b[0], b[pageSize], b[2*pageSize], b[3*pageSize]}
	if string(got) != "3012" || len(m.Runs) != 1 || m.Runs[0] != (memoryRun{0, 4 * pageSize}) {
		t.Errorf("the pages begin with %q, the runs are %v", got, m.Runs)
	}
}
