// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
)

// A 32-bit guest's compiler aligns 64-bit members to 4 bytes. No field may move by that,
// or one codec would not do for both; only padding at a structure's end may go.
func TestA32BitGuestHasTheSameFieldOffsets(t *testing.T) {
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	// Debian keeps asm/ in a directory for the architecture, which -m32 does not search;
	// types.h there is the same for both.
	narrow, err := compileLayout(t.TempDir(), tree, "", "-m32", "-I/usr/include/x86_64-linux-gnu")
	if err != nil {
		t.Fatal(err)
	}
	wide := mustLayout(t)

	var sizes []string
	for _, tag := range slices.Sorted(maps.Keys(wide.Structs)) {
		w, n := wide.Structs[tag], narrow.Structs[tag]
		if n == nil {
			t.Errorf("no struct %s", tag)
			continue
		}
		if diff := gocmp.Diff(places(w), places(n)); diff != "" {
			t.Errorf("struct %s (-64 bit +32 bit):\n%s", tag, diff)
		}
		if w.Size != n.Size {
			sizes = append(sizes, fmt.Sprintf("%s %d %d", tag, w.Size, n.Size))
		}
	}

	want := []string{"pvrdma_cmd_create_qp_resp_v2 48 44"}
	if diff := gocmp.Diff(want, sizes); diff != "" {
		t.Errorf("sizes that differ (-want +got):\n%s", diff)
	}
}

// places returns the offsets of all fields and the sizes of those without members.
func places(s *cStruct) map[string][2]int64 {
	p := map[string][2]int64{}
	for path, f := range s.Fields {
		p[path] = [2]int64{f.Offset, f.Size}
		if f.aggregate {
			p[path] = [2]int64{f.Offset}
		}
	}
	return p
}
