// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// fault is one file of planted/.
type fault struct {
	// name is the file's, without .toml.
	name string
	// Oracle is the check that must notice, in the words of docs/testing.md.
	Oracle string
	// Fault is what the change gets wrong, as a sentence's beginning: "the index is stored before the element".
	Fault string
	// Package and Run choose the tests, as for go test. Run is a regular expression for -run.
	Package, Run string
	// Race runs the tests with the race detector, and Args are further arguments for the test's program.
	Race bool
	Args []string
	// Copy is for tests that read the source themselves and would not see an overlay: they run in a changed copy of the
	// module.
	Copy bool
	// Expect is a text of the failure by which the oracle shows that it noticed this and nothing else.
	Expect string
	Change []change
}

// change replaces a text that occurs once in a file. File is relative to the module's root.
type change struct {
	File, Old, New string
}

// load reads all faults of a folder, in the order of their names.
func load(dir fs.FS) ([]*fault, error) {
	files, err := fs.Glob(dir, "*.toml")
	if err != nil {
		return nil, err
	}
	var all []*fault
	for _, file := range files {
		text, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, err
		}
		f, err := parse(strings.TrimSuffix(file, ".toml"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b *fault) int { return strings.Compare(a.Oracle, b.Oracle) })
	return all, nil
}

func parse(name, text string) (*fault, error) {
	f := &fault{name: name}
	meta, err := toml.Decode(text, f)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) != 0 {
		return nil, fmt.Errorf("unknown key %v", unknown[0])
	}
	for key, value := range map[string]string{
		"oracle": f.Oracle, "fault": f.Fault, "package": f.Package, "run": f.Run, "expect": f.Expect,
	} {
		if value == "" {
			return nil, fmt.Errorf("%s is missing", key)
		}
	}
	if len(f.Change) == 0 {
		return nil, errors.New("no change")
	}
	return f, nil
}

// apply returns the changed texts by file, relative to root.
func (f *fault) apply(root fs.FS) (map[string]string, error) {
	texts := map[string]string{}
	for _, c := range f.Change {
		text, ok := texts[c.File]
		if !ok {
			b, err := fs.ReadFile(root, c.File)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if c.Old == c.New {
			return nil, fmt.Errorf("%s: the change changes nothing", c.File)
		}
		if n := strings.Count(text, c.Old); n != 1 {
			return nil, fmt.Errorf("%s has %d places with the text to change, want one:\n%s", c.File, n, c.Old)
		}
		texts[c.File] = strings.Replace(text, c.Old, c.New, 1)
	}
	return texts, nil
}

// overlay puts changed texts into dir and returns the name of a list for the go command: for each file of the module at
// root, the file to take instead.
func overlay(dir, root string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range texts {
		instead := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = instead
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// copyModule copies the module at root to dir, without what git and make leave in it, and with changed texts.
func copyModule(dir, root string, texts map[string]string) error {
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case rel == ".git" || rel == "bin" || rel == "out":
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		case !e.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), b, info.Mode().Perm())
	})
	for file, text := range texts {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.FromSlash(file)), []byte(text), 0o600))
	}
	return err
}
