// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// clause is a sentence of the contract in provider.go, and what holds an engine to it.
type clause struct {
	// of is the type, or the type and its method or field, that the sentence is written at; says is the sentence.
	of, says string
	// promises are the cases that check it.
	promises []string
	// untested says why there is none: the sentence says what a word means, or what the other side has to do.
	untested string
}

const (
	// whatHolds says what holds an engine to the contract.
	whatHolds = "contract.md"
	// beyond is the heading of the promises that no sentence asks for.
	beyond = "Beyond the contract"
)

// contract is where the contract is written.
var contract = []string{"../provider.go", "../srq.go"}

// clauses reads the page.
func clauses(t *testing.T) (all []clause) {
	t.Helper()
	text, err := os.ReadFile(whatHolds)
	if err != nil {
		t.Fatal(err)
	}
	of := ""
	for _, paragraph := range strings.Split(string(text), "\n\n") {
		last := len(all) - 1
		switch heading, isHeading := strings.CutPrefix(paragraph, "## "); {
		case isHeading:
			of = strings.TrimSpace(heading)
			if of == beyond {
				all = append(all, clause{of: of})
			}
		case of == "":
		case strings.HasPrefix(paragraph, "> "):
			words := strings.Fields(strings.ReplaceAll("\n"+paragraph, "\n> ", " "))
			all = append(all, clause{of: of, says: strings.Join(words, " ")})
		case strings.HasPrefix(paragraph, "- "):
			for _, line := range strings.Split(strings.TrimSpace(paragraph), "\n") {
				all[last].promises = append(all[last].promises, strings.TrimPrefix(line, "- "))
			}
		case strings.HasPrefix(paragraph, "Not tested: "):
			all[last].untested = strings.TrimSpace(strings.TrimPrefix(paragraph, "Not tested: "))
		}
	}
	return all
}

// sentence ends at a full stop before a space or the end.
var sentence = regexp.MustCompile(`\S.*?\.(?:\s|$)`)

// sentences returns what is written at every type of a Go file, and at every method and field.
func sentences(t *testing.T, path string) (all []clause) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	say := func(of string, doc *ast.CommentGroup) {
		for _, s := range sentence.FindAllString(strings.Join(strings.Fields(doc.Text()), " "), -1) {
			all = append(all, clause{of: of, says: strings.TrimSpace(s)})
		}
	}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for i, spec := range group.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				if i == 0 {
					say(s.Names[0].Name, group.Doc)
				}
				say(s.Names[0].Name, s.Doc)
			case *ast.TypeSpec:
				say(s.Name.Name, cmp.Or(s.Doc, group.Doc))
				ast.Inspect(s.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok && len(f.Names) > 0 {
						say(s.Name.Name+"."+f.Names[0].Name, f.Doc)
					}
					return true
				})
			}
		}
	}
	return all
}

// gaps compares the sentences that are written with the clauses that name what checks them, and the promises of the
// clauses with the cases.
func gaps(written, clauses []clause, cases []Case) (found []string) {
	promised, kept := map[string]bool{}, map[string]bool{}
	for _, c := range cases {
		promised[c.Name] = true
	}
	known := map[string]bool{}
	for _, c := range clauses {
		if (len(c.promises) == 0) == (c.untested == "") {
			found = append(found, fmt.Sprintf("%s: %q has promises and a reason to have none, or neither", c.of, c.says))
		}
		for _, p := range c.promises {
			kept[p] = true
			if !promised[p] {
				found = append(found, fmt.Sprintf("%s: there is no promise %q", c.of, p))
			}
		}
		if c.of != beyond {
			known[c.of+": "+c.says] = true
		}
	}
	for _, s := range written {
		if !known[s.of+": "+s.says] {
			found = append(found, fmt.Sprintf("%s: nothing holds an engine to %q", s.of, s.says))
		}
		delete(known, s.of+": "+s.says)
	}
	for sentence := range known {
		found = append(found, "the contract does not say "+sentence)
	}
	for _, c := range cases {
		if !kept[c.Name] {
			found = append(found, fmt.Sprintf("no sentence of the contract asks for %q", c.Name))
		}
	}
	return found
}

func TestEverySentenceOfTheContractHasItsPromise(t *testing.T) {
	var written []clause
	for _, path := range contract {
		written = append(written, sentences(t, path)...)
	}
	if len(written) < 60 {
		t.Fatalf("found %d sentences: does this test still read them?", len(written))
	}
	for _, gap := range gaps(written, clauses(t), Cases()) {
		t.Error(gap)
	}
}

func TestASentenceThatNothingChecksIsFound(t *testing.T) {
	a := clause{of: "QP.Modify", says: "It does.", promises: []string{"it does"}}
	does := Case{Name: "it does"}
	for what, c := range map[string]struct {
		written, clauses []clause
		cases            []Case
		want             string
	}{
		"nothing":         {written: []clause{a}, clauses: []clause{a}, cases: []Case{does}},
		"a sentence more": {[]clause{a, {of: "QP.Modify", says: "And more."}}, []clause{a}, []Case{does}, "nothing holds"},
		"a sentence less": {nil, []clause{a}, []Case{does}, "does not say"},
		"no such promise": {[]clause{a}, []clause{a}, nil, "there is no promise"},
		"a promise more":  {[]clause{a}, []clause{a}, []Case{does, {Name: "it flies"}}, "no sentence"},
		"neither this":    {[]clause{{of: "X", says: "Y."}}, []clause{{of: "X", says: "Y."}}, nil, "or neither"},
		"no more than verbs": {
			[]clause{a}, []clause{a, {of: beyond, promises: []string{"it flies"}}}, []Case{does, {Name: "it flies"}}, "",
		},
		"another's comment": {[]clause{{of: "QP.Query", says: "It does."}}, []clause{a}, []Case{does}, "nothing holds"},
	} {
		got := strings.Join(gaps(c.written, c.clauses, c.cases), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", what, got, c.want)
		}
	}
}
