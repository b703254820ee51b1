// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// Load reads the file at path and the drop-ins in guests.d beside it. Its error is Problems, or one *fs.PathError if the
// main file cannot be read.
func Load(path string) (*Config, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	c := Default()
	var ps Problems
	doc, err := parseDocument(path, src)
	if err != nil {
		ps = append(ps, asProblem(path, err))
	} else {
		d := decoder{doc: doc, problems: &ps}
		d.table(doc.root, "", "", reflect.ValueOf(&c).Elem(), c.origin)
	}
	c.loadDropIns(filepath.Join(filepath.Dir(path), DropInDir), &ps)
	if len(c.Guests) > MaxGuests {
		ps.add(Origin{File: path}, "guest", "%d guests: one daemon serves at most %d, start another", len(c.Guests), MaxGuests)
		return nil, ps.errOrNil()
	}
	if err := c.finish(&ps); err != nil {
		return nil, err
	}
	return &c, nil
}

// finish completes and checks all guests.
func (c *Config) finish(ps *Problems) error {
	for i := range c.Guests {
		c.Guests[i].complete(ps)
	}
	c.checkWorkers(ps)
	c.checkUnique(ps)
	return ps.errOrNil()
}

// loadDropIns reads the *.toml files of dir in the order of their names. A directory that is not there has none.
func (c *Config) loadDropIns(dir string, ps *Problems) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			*ps = append(*ps, asProblem(dir, err))
		}
		return
	}
	for _, e := range entries {
		name := e.Name()
		if filepath.Ext(name) != ".toml" || strings.HasPrefix(name, ".") {
			continue
		}
		if len(c.Guests) > MaxGuests {
			return
		}
		c.loadDropIn(filepath.Join(dir, name), ps)
	}
}

// loadDropIn reads one guest, whose name is the file's unless it says the same itself.
func (c *Config) loadDropIn(path string, ps *Problems) {
	src, err := readFile(path)
	if err != nil {
		*ps = append(*ps, asProblem(path, err))
		return
	}
	doc, err := parseDocument(path, src)
	if err != nil {
		*ps = append(*ps, asProblem(path, err))
		return
	}
	g := DefaultGuest()
	g.origin[""] = Origin{File: path, Line: 1}
	d := decoder{doc: doc, problems: ps}
	d.table(doc.root, "", "", reflect.ValueOf(&g).Elem(), g.origin)
	stem := strings.TrimSuffix(filepath.Base(path), ".toml")
	switch _, given := g.origin["name"]; {
	case !given:
		if err := g.Name.UnmarshalText([]byte(stem)); err != nil {
			ps.add(Origin{File: path}, "", "the file's name is the guest's, and %v", err)
			return
		}
	case g.Name != "" && string(g.Name) != stem:
		ps.add(g.at("name"), "name", "%q is not the file's name: leave name out, or rename the file to %s.toml", g.Name, g.Name)
	}
	c.Guests = append(c.Guests, g)
}

// readFile reads a regular file of a bounded size.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxFileSize {
		return "", &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("longer than %d bytes", maxFileSize)}
	}
	return string(b), nil
}

// asProblem makes a problem of a file's error.
func asProblem(path string, err error) Problem {
	var p Problem
	if errors.As(err, &p) {
		return p
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return Problem{Origin: Origin{File: path}, Msg: fmt.Sprintf("cannot be read: %v", err)}
}
