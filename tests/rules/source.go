// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// maxFileLines and maxFuncLines keep rooms small: a reader sees a function at once, and a file is about one thing.
	maxFileLines = 500
	maxFuncLines = 80
	license      = "// SPDX-License-Identifier: Apache-2.0"
)

// source is a parsed Go file of ours.
type source struct {
	// path is relative to the repository, with forward slashes.
	path string
	text string
	fset *token.FileSet
	file *ast.File
}

func (s *source) pkg() string { return filepath.ToSlash(filepath.Dir(s.path)) }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// parse reads one file.
func parse(path, text string) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return &source{path: path, text: text, fset: fset, file: f}, err
}

// sources parses every Go file below root that belongs to the module.
func sources(root fs.FS) ([]*source, error) {
	var all []*source
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "tools" || (strings.HasPrefix(d.Name(), ".") && path != ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		s, err := parse(path, string(text))
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
}

// check returns what a file does that it may not.
func check(s *source) (faults []string) {
	complain := func(pos token.Pos, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: %s", s.fset.Position(pos), fmt.Sprintf(format, args...)))
	}
	if !strings.HasPrefix(s.text, license+"\n") {
		complain(s.file.Package, "does not begin with %q", license)
	}
	if n := strings.Count(s.text, "\n"); n > maxFileLines {
		complain(s.file.Package, "has %d lines, more than %d: is a second thing living in it?", n, maxFileLines)
	}
	for _, im := range s.file.Imports {
		path, _ := strconv.Unquote(im.Path.Value)
		if path == "unsafe" && !strings.HasSuffix(strings.TrimSuffix(s.path, "_test.go"), "_unsafe") &&
			!strings.HasSuffix(s.path, "_unsafe.go") {
			complain(im.Pos(), "imports unsafe: only files named *_unsafe.go may")
		}
		if s.isTest() {
			continue // a test may bring the pieces together
		}
		if why := mayImport(s.pkg(), path); why != "" {
			complain(im.Pos(), "%s", why)
		}
	}
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line; n > maxFuncLines && !s.isTest() {
			complain(f.Pos(), "function %s has %d lines, more than %d", f.Name.Name, n, maxFuncLines)
		}
		if f.Name.Name == "init" && f.Recv == nil {
			complain(f.Pos(), "has an init function: nothing happens on import")
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && s.isTest() && strings.HasPrefix(sel.Sel.Name, "Skip") &&
				isTestingValue(sel.X) {
				complain(sel.Pos(), "skips a test: a lane that cannot run fails")
			}
			return true
		})
	}
	return faults
}

// isTestingValue reports whether an expression is a test's or benchmark's handle by its customary name.
func isTestingValue(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && (id.Name == "t" || id.Name == "b" || id.Name == "tb" || id.Name == "f")
}

// packageComments returns the packages that do not say what they are and what they may not do.
func packageComments(all []*source) (faults []string) {
	documented := map[string]bool{}
	seen := map[string]bool{}
	for _, s := range all {
		if s.isTest() {
			continue
		}
		seen[s.pkg()] = true
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			documented[s.pkg()] = true
		}
	}
	for pkg := range seen {
		if !documented[pkg] {
			faults = append(faults, fmt.Sprintf("package %s has no package comment", pkg))
		}
	}
	return faults
}
