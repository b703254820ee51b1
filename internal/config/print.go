// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// originColumn is where the origins start, in characters.
const originColumn = 44

// String prints the effective configuration as a file that Load reads, each value with its origin.
func (c *Config) String() string {
	var b strings.Builder
	table := ""
	walk("", reflect.ValueOf(c).Elem(), func(path string, v reflect.Value) {
		key := path
		if t, k, ok := strings.Cut(path, "."); ok {
			key = k
			if t != table {
				fmt.Fprintf(&b, "\n[%s]\n", t)
				table = t
			}
		}
		printLine(&b, key, v, c.origin[path])
	})
	for i := range c.Guests {
		g := &c.Guests[i]
		b.WriteString("\n[[guest]]\n")
		walk("", reflect.ValueOf(g).Elem(), func(path string, v reflect.Value) {
			printLine(&b, path, v, g.origin[path])
		})
	}
	return b.String()
}

func printLine(b *strings.Builder, key string, v reflect.Value, o Origin) {
	line := key + " = " + render(v)
	pad := max(originColumn-utf8.RuneCountInString(line), 1)
	fmt.Fprintf(b, "%s%s# %s\n", line, strings.Repeat(" ", pad), strings.ReplaceAll(o.String(), "\n", " "))
}
