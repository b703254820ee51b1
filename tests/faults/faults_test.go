// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const whole = `oracle = "o"
fault = "f"
package = "./p"
run = "^TestX$"
expect = "got 2"

[[change]]
file = "p/x.go"
old = "return 1"
new = "return 2"
`

// tree is a module with one file.
func tree(text string) fstest.MapFS {
	return fstest.MapFS{"p/x.go": {Data: []byte(text)}}
}

func mustParse(t *testing.T, text string) *fault {
	t.Helper()
	f, err := parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFaultIsReadWhole(t *testing.T) {
	f := mustParse(t, whole)
	if f.name != "x" || f.Expect != "got 2" || len(f.Change) != 1 || f.Change[0].New != "return 2" {
		t.Errorf("read as %+v", f)
	}
}

func TestAFaultThatSaysTooLittleOrTooMuchIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a key that nobody knows": {whole + "\n[[chang]]\n", "unknown key chang"},
		"no oracle":               {strings.Replace(whole, `oracle = "o"`, "", 1), "oracle is missing"},
		"no expectation":          {strings.Replace(whole, "got 2", "", 1), "expect is missing"},
		"no change":               {whole[:strings.Index(whole, "[[")], "no change"},
		"no TOML":                 {"=", "toml"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse("x", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestAChangeAppliesInOnePlaceOrNotAtAll(t *testing.T) {
	f := mustParse(t, whole)
	texts, err := f.apply(tree("func x() int { return 1 }"))
	if err != nil || texts["p/x.go"] != "func x() int { return 2 }" {
		t.Errorf("changed to %q, error %v", texts, err)
	}
	for name, text := range map[string]string{"the text is gone": "return 3", "it is there twice": "return 1\nreturn 1"} {
		if _, err := f.apply(tree(text)); err == nil || !strings.Contains(err.Error(), "want one") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := f.apply(fstest.MapFS{}); err == nil {
		t.Error("a file that is gone is no error")
	}
	f.Change[0].New = f.Change[0].Old
	if _, err := f.apply(tree("return 1")); err == nil {
		t.Error("a change that changes nothing is no error")
	}
}

// What a fault proves depends on what the test says without it and with it.
func TestOnlyAFailureForTheExpectedReasonProvesSomething(t *testing.T) {
	const pass, fail = "--- PASS: TestX (0.00s)\nPASS\n", "--- FAIL: TestX (0.00s)\n\tx_test.go:1: "
	for name, tt := range map[string]struct {
		without, with   string
		passes, notices bool
		want            string
	}{
		"noticed":                        {pass, fail + "got 2, want 1", true, true, ""},
		"not noticed":                    {pass, pass, true, false, "nobody noticed"},
		"another failure":                {pass, fail + "no such file", true, true, `without saying "got 2"`},
		"a change that does not compile": {pass, "x.go:1: undefined: y, got 2\nFAIL p [build failed]", true, true, "does not compile"},
		"a test that is red anyway":      {fail + "got 3", fail + "got 2", false, true, "fails without the fault"},
		"no test of that name":           {"testing: warning: no tests to run\nPASS\n", pass, true, true, "no test runs"},
		"a text that is always there":    {pass + "got 2", fail + "got 2", true, true, "without the fault, too"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(moduleWith(t, "func x() int { return 1 }"))
			r.test = func(_ context.Context, _ *fault, at place) (string, bool, error) {
				if at.overlay == "" {
					return tt.without, tt.passes, nil
				}
				return tt.with, !tt.notices, nil
			}
			_, err := r.plant(t.Context(), mustParse(t, whole))
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// moduleWith makes a folder with p/x.go.
func moduleWith(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "p", "x.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// The go command itself, on a module of three files: what is planted is what is compiled, and the checkout stays as it is.
func TestAFaultIsPlantedIntoWhatIsCompiledOnly(t *testing.T) {
	const text = "package p\n\nfunc x() int { return 1 }\n"
	root := moduleWith(t, text)
	for file, content := range map[string]string{
		"go.mod":      "module m\n\ngo 1.26.0\n",
		"p/x_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {\n\tif x() != 1 {\n\t\tt.Errorf(\"got %d\", x())\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, copied := range []bool{false, true} {
		var said bytes.Buffer
		r := newRunner(root)
		r.show = &said
		f := mustParse(t, whole)
		f.Copy = copied
		if _, err := r.plant(t.Context(), f); err != nil {
			t.Errorf("in a copy: %v: %v", copied, err)
		}
		if !strings.Contains(said.String(), "got 2") {
			t.Errorf("in a copy: %v: the red test says %q", copied, said.String())
		}
	}
	if now, err := os.ReadFile(filepath.Join(root, "p", "x.go")); err != nil || string(now) != text {
		t.Errorf("the file is %q, %v", now, err)
	}
}

func TestTheFaultsOfThisProjectCanBeReadAndPlanted(t *testing.T) {
	all, err := load(os.DirFS("planted"))
	if err != nil {
		t.Fatal(err)
	}
	oracles := map[string]bool{}
	for _, f := range all {
		oracles[f.Oracle] = true
		if _, err := f.apply(os.DirFS("../..")); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
	if len(all) < 25 || len(oracles) < 10 {
		t.Errorf("%d faults for %d oracles", len(all), len(oracles))
	}
	var out bytes.Buffer
	if err := table(&out, results(all)); err != nil || strings.Count(out.String(), "\n") != len(all)+2 {
		t.Errorf("the table is %s, error %v", out.String(), err)
	}
	if some, err := choose(all, []string{all[3].name}); err != nil || len(some) != 1 || some[0] != all[3] {
		t.Errorf("chose %v, error %v", some, err)
	}
	if _, err := choose(all, []string{"nothing"}); err == nil {
		t.Error("a name that is none is no error")
	}
}

func TestAFaultThatProvesNothingIsCounted(t *testing.T) {
	r := newRunner(moduleWith(t, "func x() int { return 1 }"))
	r.test = func(context.Context, *fault, place) (string, bool, error) {
		return "", false, errors.New("no go command")
	}
	var out bytes.Buffer
	if _, bad := plantAll(t.Context(), &out, r, []*fault{mustParse(t, whole)}); bad != 1 {
		t.Errorf("%d faults prove nothing, want 1", bad)
	}
	if !strings.Contains(out.String(), "PROVES NOTHING: no go command") {
		t.Errorf("printed %q", out.String())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, bad := plantAll(over, &out, r, []*fault{mustParse(t, whole)}); bad != 1 {
		t.Errorf("after the end %d faults prove nothing, want 1", bad)
	}
}
