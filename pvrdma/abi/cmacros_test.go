// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bufio"
	"bytes"
	"debug/dwarf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// macroPrefix is put before a macro's name to make an enumerator that holds its value.
const macroPrefix = "VALUE_OF_"

// readMacros returns the values of the headers' object-like macros. The preprocessor lists
// them, the compiler computes them.
func readMacros(dir, tree, uapi string) (map[string]uint32, error) {
	dump, err := gcc(tree, uapi, "-E", "-dM", "testdata/macros.c")
	if err != nil {
		return nil, err
	}
	src := filepath.Join(dir, "macros.c")
	if err := os.WriteFile(src, macroProgram(dump), 0o600); err != nil {
		return nil, err
	}
	obj := filepath.Join(dir, "macros.o")
	_, err = gcc(tree, uapi, "-g", "-c", "-fno-eliminate-unused-debug-types", "-o", obj, src)
	if err != nil {
		return nil, err
	}
	return readMacroValues(obj)
}

// isOurs tells a macro of the headers from the compiler's and the shim's.
func isOurs(name string) bool {
	return strings.HasPrefix(name, "PVRDMA_") || name == "PCI_DEVICE_ID_VMWARE_PVRDMA"
}

// macroProgram turns the output of gcc -E -dM into a C file with one enumeration for each
// object-like macro.
func macroProgram(dump []byte) []byte {
	var defs, enums bytes.Buffer
	sc := bufio.NewScanner(bytes.NewReader(dump))
	for sc.Scan() {
		name, value, _ := strings.Cut(strings.TrimPrefix(sc.Text(), "#define "), " ")
		switch {
		case name == "BIT(n)":
			fmt.Fprintln(&defs, sc.Text())
		case isOurs(name) && value != "" && !strings.Contains(name, "("):
			fmt.Fprintln(&defs, sc.Text())
			fmt.Fprintf(&enums, "enum { %s%s = (int)(%s) };\n", macroPrefix, name, name)
		}
	}
	return append(defs.Bytes(), enums.Bytes()...)
}

// functionMacros returns the names of the headers' function-like macros.
func functionMacros(tree string) ([]string, error) {
	dump, err := gcc(tree, "", "-E", "-dM", "testdata/macros.c")
	if err != nil {
		return nil, err
	}
	var names []string
	sc := bufio.NewScanner(bytes.NewReader(dump))
	for sc.Scan() {
		def := strings.TrimPrefix(sc.Text(), "#define ")
		if name, _, ok := strings.Cut(def, "("); ok && isOurs(name) && !strings.Contains(name, " ") {
			names = append(names, name)
		}
	}
	return names, nil
}

func readMacroValues(obj string) (map[string]uint32, error) {
	d, err := debugInformation(obj)
	if err != nil {
		return nil, err
	}
	values := map[string]uint32{}
	r := d.Reader()
	for {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return values, nil
		}
		if e.Tag != dwarf.TagEnumerator {
			continue
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		value, ok := e.Val(dwarf.AttrConstValue).(int64)
		if !ok {
			return nil, fmt.Errorf("macro %s has no value", name)
		}
		values[strings.TrimPrefix(name, macroPrefix)] = uint32(value)
	}
}
