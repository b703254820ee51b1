// SPDX-License-Identifier: Apache-2.0

// Package layout knows the bytes of pvrdma's structures from the C compiler's own account of the driver's headers, kept
// as JSON beside the device's codecs.
//
// It may not use those codecs: a test guest that shared them would share their mistakes.
package layout

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is where the layout lies, from the module's root.
const file = "pvrdma/abi/testdata/layout.json"

// Layout is every structure and constant of the headers.
type Layout struct {
	structs   map[string]structure
	constants map[string]uint32
}

type structure struct {
	Size   int              `json:"size"`
	Fields map[string]Field `json:"fields"`
}

// document is the file's shape. Enumerators and macros share one name space in C, so they do here.
type document struct {
	Structs map[string]structure         `json:"structs"`
	Enums   map[string]map[string]uint32 `json:"enums"`
	Macros  map[string]uint32            `json:"macros"`
}

// Load reads the layout of the module that the working directory belongs to.
func Load() (*Layout, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the layout of the headers: %w", err)
	}
	for {
		l, err := LoadFile(filepath.Join(dir, file))
		if !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, fmt.Errorf("no %s above the working directory; "+
				"next: run the test inside the checkout", file)
		}
		dir = parent
	}
}

// LoadFile reads a layout from a file.
func LoadFile(path string) (*Layout, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the layout of the headers: %w", err)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("decode %s: %w", path, err)
	}
	l := &Layout{structs: d.Structs, constants: d.Macros}
	if l.constants == nil {
		l.constants = map[string]uint32{}
	}
	for _, values := range d.Enums {
		for name, v := range values {
			if other, ok := l.constants[name]; ok && other != v {
				return nil, fmt.Errorf("%s: %s is both %d and %d", path, name, other, v)
			}
			l.constants[name] = v
		}
	}
	if len(l.structs) == 0 || len(l.constants) == 0 {
		return nil, fmt.Errorf("%s holds no structures or no constants", path)
	}
	return l, nil
}

// Const returns an enumerator or macro. It panics if the headers have none of that name: a test that misspells one has
// nothing to test.
func (l *Layout) Const(name string) uint32 {
	v, ok := l.constants[name]
	if !ok {
		panic("the headers have no constant " + name)
	}
	return v
}

// ConstName returns the name of a value among those that begin with prefix, or the number if there is none.
func (l *Layout) ConstName(prefix string, value uint32) string {
	best := ""
	for name, v := range l.constants {
		if v == value && len(name) > len(prefix) && name[:len(prefix)] == prefix && (best == "" || name < best) {
			best = name
		}
	}
	if best == "" {
		return fmt.Sprintf("%s%d", prefix, value)
	}
	return best
}

// Structs returns the names of all structures that begin with prefix, sorted.
func (l *Layout) Structs(prefix string) []string {
	var names []string
	for name := range l.structs {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Leaves returns the paths of a structure's fields that are no structures or unions themselves, by offset. Members of a
// union are all among them.
func (l *Layout) Leaves(name string) []string {
	fields := l.structure(name).Fields
	var paths []string
	for path, f := range fields {
		if !strings.HasPrefix(f.Type, "struct") && !strings.HasPrefix(f.Type, "union") {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(fields[a].Offset-fields[b].Offset, cmp.Compare(a, b))
	})
	return paths
}

// Size returns a structure's size in bytes. It panics if there is none of that name.
func (l *Layout) Size(name string) int { return l.structure(name).Size }

// Field returns a field of a structure; a path of nested fields is joined with dots. It panics if there is none.
func (l *Layout) Field(structName, path string) Field {
	f, ok := l.structure(structName).Fields[path]
	if !ok {
		panic("struct " + structName + " of the headers has no field " + path)
	}
	return f
}

func (l *Layout) structure(name string) structure {
	s, ok := l.structs[name]
	if !ok {
		panic("the headers have no struct " + name)
	}
	return s
}
