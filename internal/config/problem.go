// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Origin is where a value was written: a line of a file, or a flag. The zero Origin is a default.
type Origin struct {
	File string
	Line int
	Flag string
}

// String returns "FILE:LINE", "--FLAG" or "default".
func (o Origin) String() string {
	switch {
	case o.Flag != "":
		return "--" + o.Flag
	case o.File != "" && o.Line > 0:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case o.File != "":
		return o.File
	default:
		return "default"
	}
}

// origins maps a key to where it was written; keys that are absent have their default.
type origins map[string]Origin

// Problem is one mistake in the configuration.
type Problem struct {
	Origin Origin
	// Key is the key that is wrong, empty if the whole file is.
	Key string
	// Msg says what is wrong and what to write instead.
	Msg string
}

// Error returns "FILE:LINE: KEY: MESSAGE".
func (p Problem) Error() string {
	if p.Key == "" || p.Origin.Flag != "" {
		return fmt.Sprintf("%s: %s", p.Origin, p.Msg)
	}
	return fmt.Sprintf("%s: %s: %s", p.Origin, p.Key, p.Msg)
}

// Problems is everything that is wrong with a configuration, in the order of files and lines.
type Problems []Problem

// Error returns one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// errOrNil sorts the problems and returns them as an error, or nil if there is none.
func (ps Problems) errOrNil() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Origin.File, b.Origin.File), cmp.Compare(a.Origin.Line, b.Origin.Line))
	})
	return ps
}

func (ps *Problems) add(o Origin, key, format string, args ...any) {
	*ps = append(*ps, Problem{Origin: o, Key: key, Msg: fmt.Sprintf(format, args...)})
}
