// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// Key describes one key for documentation and for flags.
type Key struct {
	// Path is the key with its table, "log.level" or "guest.mac" for example.
	Path string
	// Default is the value as it is written in a file; empty if it follows from other keys.
	Default string
	// Doc says what the key is, on one line.
	Doc string
}

// Keys lists every key that a file may have, in the order in which they are printed.
func Keys() []Key {
	var keys []Key
	c, g := Default(), DefaultGuest()
	for _, s := range []struct {
		table string
		v     any
	}{{"", &c}, {"guest", &g}} {
		walk(s.table, reflect.ValueOf(s.v).Elem(), func(path string, f field) {
			keys = append(keys, Key{Path: path, Default: render(f.value), Doc: f.doc})
		})
	}
	for i, k := range keys {
		if k.Path == "guest.name" || k.Path == "guest.socket_path" || k.Path == "guest.mac" {
			keys[i].Default = ""
		}
	}
	return keys
}

// field is a struct field that has a key.
type field struct {
	key, doc string
	value    reflect.Value
}

// fieldsOf returns the fields of a struct that have keys, in order.
func fieldsOf(v reflect.Value) []field {
	var fs []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if key := tag.Get("toml"); key != "" {
			fs = append(fs, field{key: key, doc: tag.Get("doc"), value: v.Field(i)})
		}
	}
	return fs
}

// isTable reports whether the value is a table of keys, not a value written in one place.
func isTable(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	_, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	return !isText
}

// walk calls fn for every field of the struct v whose keys begin with table, but for the list of guests.
func walk(table string, v reflect.Value, fn func(path string, f field)) {
	for _, f := range fieldsOf(v) {
		path := join(table, f.key)
		switch {
		case isTable(f.value):
			walk(path, f.value, fn)
		case f.value.Type() == reflect.TypeFor[[]Guest]():
		default:
			fn(path, f)
		}
	}
}

// render writes a value as TOML.
func render(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, err := m.MarshalText()
		if err != nil {
			return `""`
		}
		return tomlString(string(b))
	}
	switch v.Kind() {
	case reflect.String:
		return tomlString(v.String())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = render(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(v.Interface())
	}
}

// tomlString writes s as a basic string of TOML.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
