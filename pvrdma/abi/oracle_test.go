// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// runOracle compiles and runs testdata/oracle.c with the headers' own macros.
func runOracle(t *testing.T) []byte {
	t.Helper()
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(t.TempDir(), "oracle")
	if _, err := gcc(tree, "", "-o", exe, "testdata/oracle.c"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFunctionsDoWhatTheHeadersMacrosDo(t *testing.T) {
	lines := 0
	sc := bufio.NewScanner(bytes.NewReader(runOracle(t)))
	for sc.Scan() {
		lines++
		var in, out [3]uint32
		switch line := sc.Text(); {
		case scan(line, "supported %d %d %d = %d", &in[0], &in[1], &in[2], &out[0]):
			got := abi.AcceptCaps(in[0], abi.DeviceMode(in[1]), abi.GIDTypes(in[2]))
			if got != (out[0] != 0) {
				t.Errorf("C: %s; AcceptCaps is %v", line, got)
			}
		case scan(line, "page %d = %d %d %d", &in[0], &out[0], &out[1], &out[2]):
			got := [3]uint32{in[0] >> abi.PDirShift, abi.PDirTable(in[0]), abi.PDirPage(in[0])}
			if got != out {
				t.Errorf("C: %s; Go: %v", line, got)
			}
		default:
			t.Errorf("unknown line of the oracle: %s", line)
		}
	}
	if want := 40*5*256 + 2048; lines < want {
		t.Errorf("the oracle printed %d lines, want at least %d", lines, want)
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

func TestEveryFunctionMacroOfTheHeadersIsKnown(t *testing.T) {
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	got, err := functionMacros(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PVRDMA_GET_CAP",        // by the caller, with EffectiveVersion
		"PVRDMA_IS_VERSION17",   // AcceptCaps
		"PVRDMA_IS_VERSION18",   // AcceptCaps
		"PVRDMA_MASK",           // QPMaskAll, in ownConstants
		"PVRDMA_PAGE_DIR_DIR",   // PDirShift
		"PVRDMA_PAGE_DIR_PAGE",  // PDirPage
		"PVRDMA_PAGE_DIR_TABLE", // PDirTable
		"PVRDMA_SUPPORTED",      // AcceptCaps
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("function-like macros (-known +headers):\n%s", diff)
	}
}
