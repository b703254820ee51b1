// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"sync"
	"testing"
)

// goPackage is this package as the Go type checker sees it: a list of all its exported
// names that nobody had to write down.
var goPackage = sync.OnceValues(func() (*types.Package, error) {
	info, err := build.ImportDir(".", 0)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range info.GoFiles {
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{
		Importer:         noImports{}, // types and constants here need none
		IgnoreFuncBodies: true,
		Error:            func(error) {},
	}
	pkg, _ := conf.Check(info.ImportPath, fset, files, nil)
	return pkg, nil
})

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, errors.New("not needed: " + path)
}

func mustPackage(t *testing.T) *types.Package {
	t.Helper()
	pkg, err := goPackage()
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

func isStructType(o types.Object) bool {
	n, ok := o.(*types.TypeName)
	if !ok || !n.Exported() {
		return false
	}
	_, ok = n.Type().Underlying().(*types.Struct)
	return ok
}

// goConstants returns the exported constants with their values as 32-bit patterns, and the
// name of each one's type ("" if untyped or of a basic type).
func goConstants(pkg *types.Package) (values map[string]uint32, typeOf map[string]string) {
	values, typeOf = map[string]uint32{}, map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		v, _ := constant.Int64Val(constant.ToInt(c.Val()))
		values[name] = uint32(v)
		if _, basic := c.Type().(*types.Basic); !basic {
			typeOf[name] = strings.TrimPrefix(c.Type().String(), pkg.Path()+".")
		}
	}
	return values, typeOf
}
