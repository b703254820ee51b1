// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneForm names the files whose tests are about one form, or about what is inside of a list.
var oneForm = []string{"window_test.go", "window_internal_test.go", "gate_test.go"}

// testFunctions returns what each function of the package's tests mentions, and the file of each.
func testFunctions(t *testing.T, sources map[string]any) (mentions map[string][]string, file map[string]string) {
	t.Helper()
	mentions, file = map[string][]string{}, map[string]string{}
	for name, src := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			file[fn.Name.Name] = filepath.Base(name)
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					mentions[fn.Name.Name] = append(mentions[fn.Name.Name], id.Name)
				}
				return true
			})
		}
	}
	return mentions, file
}

// reaches says whether a function mentions a name, itself or through others of the package's tests.
func reaches(mentions map[string][]string, from, name string, seen map[string]bool) bool {
	seen[from] = true
	for _, m := range mentions[from] {
		if m == name || (!seen[m] && mentions[m] != nil && reaches(mentions, m, name, seen)) {
			return true
		}
	}
	return false
}

// inOneFormOnly returns the tests that pin page lists and do not run in both forms.
func inOneFormOnly(t *testing.T, sources map[string]any) (bad []string, checked int) {
	t.Helper()
	mentions, file := testFunctions(t, sources)
	for _, fn := range slices.Sorted(maps.Keys(mentions)) {
		if !strings.HasPrefix(fn, "Test") && !strings.HasPrefix(fn, "Fuzz") || slices.Contains(oneForm, file[fn]) {
			continue
		}
		pins := reaches(mentions, fn, "Pin", map[string]bool{}) || reaches(mentions, fn, "PinContiguous", map[string]bool{})
		if !pins {
			continue
		}
		checked++
		if !slices.Contains(mentions[fn], "inBothForms") && !slices.Contains(mentions[fn], "bothForms") {
			bad = append(bad, fn)
		}
	}
	return bad, checked
}

func TestEveryTestOfPageListsRunsInBothForms(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]any{}
	for _, f := range files {
		sources[f] = nil
	}
	bad, checked := inOneFormOnly(t, sources)
	if len(bad) > 0 {
		t.Errorf("these tests pin page lists but do not run in both forms: %v", bad)
	}
	if checked < 10 {
		t.Errorf("only %d tests pin page lists: the rule looks for the wrong names", checked)
	}
}

func TestATestInOneFormOnlyIsFound(t *testing.T) {
	bad, _ := inOneFormOnly(t, map[string]any{"x_test.go": `package x
		func TestDirect(t *T)   { s.Pin(nil, rw) }
		func helper()           { s.PinContiguous(nil, rw) }
		func TestIndirect(t *T) { helper() }
		func TestBoth(t *T)     { inBothForms(t, func(f form) { helper() }) }
		func TestNone(t *T)     { s.Map(0) }`})
	if want := []string{"TestDirect", "TestIndirect"}; !slices.Equal(bad, want) {
		t.Errorf("found %v, want %v", bad, want)
	}
}
