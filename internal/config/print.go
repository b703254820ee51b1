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
	walk("", reflect.ValueOf(c).Elem(), func(path string, f field) {
		key := path
		if t, k, ok := strings.Cut(path, "."); ok {
			key = k
			if t != table {
				fmt.Fprintf(&b, "\n[%s]\n", t)
				table = t
			}
		}
		printLine(&b, key, f.value, c.origin[path])
	})
	for i := range c.Guests {
		g := &c.Guests[i]
		b.WriteString("\n[[guest]]\n")
		walk("", reflect.ValueOf(g).Elem(), func(path string, f field) {
			printLine(&b, path, f.value, g.origin[path])
		})
	}
	return b.String()
}

func printLine(b *strings.Builder, key string, v reflect.Value, o Origin) {
	line := key + " = " + render(v)
	pad := max(originColumn-utf8.RuneCountInString(line), 1)
	fmt.Fprintf(b, "%s%s# %s\n", line, strings.Repeat(" ", pad), strings.ReplaceAll(o.String(), "\n", " "))
}
