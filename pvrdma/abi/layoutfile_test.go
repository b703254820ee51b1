// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

//go:generate go test -run ^TestTheLayoutFileIsFresh$ . -update

var update = flag.Bool("update", false, "write testdata/layout.json from the C headers")

// layoutFile is the layout for readers that must not depend on this package's codecs.
const layoutFile = "testdata/layout.json"

// json writes the layout with one field or enumerator on a line, fields by offset.
func (l *cLayout) json() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\n\"structs\": {")
	for i, tag := range slices.Sorted(maps.Keys(l.Structs)) {
		s := l.Structs[tag]
		fmt.Fprintf(&b, "%s\n %q: {\"kind\": %q, \"size\": %d, \"fields\": {",
			comma(i), tag, s.Kind, s.Size)
		for i, path := range s.paths() {
			f, err := json.Marshal(s.Fields[path])
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%s\n  %q: %s", comma(i), path, f)
		}
		b.WriteString("}}")
	}
	b.WriteString("},\n\"enums\": {")
	for i, tag := range slices.Sorted(maps.Keys(l.Enums)) {
		fmt.Fprintf(&b, "%s\n %q: {", comma(i), tag)
		writeValues(&b, l.Enums[tag])
	}
	b.WriteString("},\n\"macros\": {")
	writeValues(&b, l.Macros)
	b.WriteString("}\n")
	return b.Bytes(), nil
}

func writeValues(b *bytes.Buffer, values map[string]uint32) {
	names := slices.SortedFunc(maps.Keys(values), func(x, y string) int {
		return cmp.Or(cmp.Compare(values[x], values[y]), cmp.Compare(x, y))
	})
	for i, name := range names {
		fmt.Fprintf(b, "%s\n  %q: %d", comma(i), name, values[name])
	}
	b.WriteString("}")
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

func TestTheLayoutFileIsFresh(t *testing.T) {
	want, err := mustLayout(t).json()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(layoutFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	got, err := os.ReadFile(layoutFile)
	if err != nil {
		t.Fatalf("%v\nnext: go generate ./pvrdma/abi", err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs from the C headers (-headers +file):\n%s\n"+
			"next: go generate ./pvrdma/abi", layoutFile, diff)
	}
}
