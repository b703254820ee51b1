// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxValueLines bounds the lines of one value: a list of gids has at most 256 entries, the size of a GID table.
const maxValueLines = 300

// document is a parsed TOML file and the line of each of its keys.
type document struct {
	file string
	root map[string]any
	// lines maps a path such as "guest[1].mac" to the line on which the key was written.
	lines map[string]int
}

// parseDocument parses src, which was read from file.
func parseDocument(file, src string) (*document, error) {
	d := &document{file: file, root: map[string]any{}, lines: map[string]int{}}
	if _, err := toml.Decode(src, &d.root); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			// Position.Line is one too many where the parser stumbled over the end of a line, and Start may be negative.
			line := 1 + strings.Count(src[:min(max(pe.Position.Start, 0), len(src))], "\n")
			return nil, Problem{Origin: Origin{File: file, Line: line}, Msg: "not TOML: " + pe.Message}
		}
		return nil, Problem{Origin: Origin{File: file}, Msg: "not TOML: " + err.Error()}
	}
	if line := d.indexLines(src); line != 0 {
		msg := fmt.Sprintf("the value that begins here has more than %d lines: shorten it", maxValueLines)
		return nil, Problem{Origin: Origin{File: file, Line: line}, Msg: msg}
	}
	return d, nil
}

// indexLines finds the line of every key. The parser does not tell, so the file is cut into its expressions: a group of
// lines that parses by itself is one, because no beginning of a longer expression does. It returns the line of a
// value that has too many lines, or 0.
func (d *document) indexLines(src string) int {
	prefix := ""
	counts := map[string]int{}
	start, pending := 1, ""
	for i, line := range strings.Split(src, "\n") {
		if pending == "" {
			start = i + 1
		}
		pending += line + "\n"
		var values map[string]any
		md, err := toml.Decode(pending, &values)
		if err != nil {
			if i+2-start > maxValueLines {
				return start
			}
			continue
		}
		header := strings.HasPrefix(strings.TrimSpace(pending), "[")
		pending = ""
		keys := md.Keys()
		if !header {
			for _, k := range keys {
				d.note(join(prefix, strings.Join(k, ".")), start)
			}
			continue
		}
		if len(keys) == 0 {
			continue
		}
		last := keys[len(keys)-1]
		prefix = strings.Join(last, ".")
		if md.Type(last...) == "ArrayHash" {
			n := counts[prefix]
			counts[prefix]++
			prefix = fmt.Sprintf("%s[%d]", prefix, n)
		}
		d.note(prefix, start)
	}
	return 0
}

func (d *document) note(path string, line int) {
	if _, ok := d.lines[path]; !ok {
		d.lines[path] = line
	}
}

// origin returns where path was written; for what was written inside another value, where that value began.
func (d *document) origin(path string) Origin {
	for p := path; p != ""; {
		if line, ok := d.lines[p]; ok {
			return Origin{File: d.file, Line: line}
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return Origin{File: d.file, Line: 1}
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
