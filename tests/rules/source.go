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
		if s.isTest() {
			for _, pos := range skips(f) {
				complain(pos, "skips a test: a lane that cannot run fails")
			}
		}
	}
	return faults
}

// skips returns where a function skips a test or benchmark. A property test that passes over a step which makes no sense
// calls a method of the same name on its *rapid.T; that is no skip.
func skips(f *ast.FuncDecl) (found []token.Pos) {
	var walk func(n ast.Node, rapid map[string]bool)
	walk = func(n ast.Node, rapid map[string]bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.FuncLit:
				walk(x.Body, withParams(rapid, x.Type))
				return false
			case *ast.SelectorExpr:
				id, ok := x.X.(*ast.Ident)
				if ok && strings.HasPrefix(x.Sel.Name, "Skip") && isTestingName(id.Name) && !rapid[id.Name] {
					found = append(found, x.Pos())
				}
			}
			return true
		})
	}
	walk(f.Body, withParams(nil, f.Type))
	return found
}

// withParams returns which names stand for a *rapid.T inside a function of type t.
func withParams(outer map[string]bool, t *ast.FuncType) map[string]bool {
	inner := map[string]bool{}
	for name := range outer {
		inner[name] = true
	}
	for _, field := range t.Params.List {
		star, _ := field.Type.(*ast.StarExpr)
		isRapid := false
		if star != nil {
			if sel, ok := star.X.(*ast.SelectorExpr); ok {
				pkg, _ := sel.X.(*ast.Ident)
				isRapid = pkg != nil && pkg.Name == "rapid" && sel.Sel.Name == "T"
			}
		}
		for _, name := range field.Names {
			inner[name.Name] = isRapid
		}
	}
	return inner
}

// isTestingName reports whether a name is a test's or benchmark's handle by custom.
func isTestingName(name string) bool {
	return name == "t" || name == "b" || name == "tb" || name == "f"
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
