// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder writes a document's values into structs and collects what is wrong with them.
type decoder struct {
	doc      *document
	problems *Problems
}

// table decodes the keys of m into the struct dst. path is where the table lies in the document, key how its values are
// named in origin.
func (d *decoder) table(m map[string]any, path, key string, dst reflect.Value, origin origins) {
	fields := fieldsOf(dst)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at, name := join(path, k), join(key, k)
		i := indexOf(fields, k)
		if i < 0 {
			d.problems.add(d.doc.origin(at), name, "unknown key%s", suggestion(k, fields))
			continue
		}
		f := fields[i]
		if f.value.Type() == reflect.TypeFor[[]Guest]() {
			d.guests(m[k], at, f.value)
			continue
		}
		if isTable(f.value) {
			sub, ok := m[k].(map[string]any)
			if !ok {
				d.problems.add(d.doc.origin(at), name, "is a table: write [%s] and its keys below", name)
				continue
			}
			d.table(sub, at, name, f.value, origin)
			continue
		}
		origin[name] = d.doc.origin(at)
		if err := setValue(f.value, m[k]); err != nil {
			d.problems.add(d.doc.origin(at), name, "%v", err)
		}
	}
}

// guests decodes the list [[guest]].
func (d *decoder) guests(v any, path string, dst reflect.Value) {
	list, ok := asTables(v)
	if !ok {
		d.problems.add(d.doc.origin(path), path, "is a list of tables: write [[%s]] before each guest's keys", path)
		return
	}
	if len(list) > MaxGuests {
		d.problems.add(d.doc.origin(path), path, "%d guests: one daemon serves at most %d, start another", len(list), MaxGuests)
		return
	}
	for i, m := range list {
		g := DefaultGuest()
		at := fmt.Sprintf("%s[%d]", path, i)
		g.origin[""] = d.doc.origin(at)
		d.table(m, at, "", reflect.ValueOf(&g).Elem(), g.origin)
		dst.Set(reflect.Append(dst, reflect.ValueOf(g)))
	}
}

func asTables(v any) ([]map[string]any, bool) {
	switch l := v.(type) {
	case []map[string]any:
		return l, true
	case []any:
		tables := make([]map[string]any, len(l))
		for i := range l {
			m, ok := l[i].(map[string]any)
			if !ok {
				return nil, false
			}
			tables[i] = m
		}
		return tables, true
	}
	return nil, false
}

// setValue writes a TOML value into dst, whose type decides what is allowed.
func setValue(dst reflect.Value, v any) error {
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		s, ok := v.(string)
		if n, isInt := v.(int64); isInt && n == 0 && isDuration(dst) {
			s, ok = "0", true
		}
		if !ok {
			return fmt.Errorf("want a string such as %s, have %s", example(dst), describe(v))
		}
		return u.UnmarshalText([]byte(s))
	}
	switch dst.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("want a string in quotes, have %s", describe(v))
		}
		dst.SetString(s)
	case reflect.Uint32:
		n, ok := v.(int64)
		if !ok {
			return fmt.Errorf("want a whole number without quotes, have %s", describe(v))
		}
		if n < 0 || n > math.MaxUint32 {
			return fmt.Errorf("%d is out of range", n)
		}
		dst.SetUint(uint64(n))
	case reflect.Slice:
		return setSlice(dst, v)
	default:
		return fmt.Errorf("has no way to be set to %s", describe(v))
	}
	return nil
}

func setSlice(dst reflect.Value, v any) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("want a list such as [%s], have %s", example(reflect.New(dst.Type().Elem()).Elem()), describe(v))
	}
	out := reflect.MakeSlice(dst.Type(), len(list), len(list))
	for i := range list {
		if err := setValue(out.Index(i), list[i]); err != nil {
			return err
		}
	}
	dst.Set(out)
	return nil
}

func isDuration(v reflect.Value) bool {
	t := v.Type()
	return t == reflect.TypeFor[Duration]() || t == reflect.TypeFor[Spin]()
}

// example is a value that a key of dst's type takes.
func example(dst reflect.Value) string {
	switch dst.Interface().(type) {
	case MAC:
		return `"02:00:00:00:00:01"`
	case Doorbells:
		return `"poll"`
	case Link:
		return `"up"`
	case Windows:
		return `"auto"`
	case LogLevel:
		return `"info"`
	case LogFormat:
		return `"text"`
	case FileMode:
		return `"0660"`
	case GID:
		return `"fe80::1"`
	case Listen:
		return `"127.0.0.1:9861"`
	case Name:
		return `"vm1"`
	default:
		return `"20us"`
	}
}

// describe names a TOML value's type as the person who wrote it would.
func describe(v any) string {
	switch x := v.(type) {
	case string:
		return "the string " + quote(x)
	case int64:
		return "the number " + strconv.FormatInt(x, 10)
	case float64:
		return "the number " + strconv.FormatFloat(x, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(x)
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	default:
		return "a list"
	}
}

// suggestion names the key that was probably meant, or the ones that there are.
func suggestion(k string, fields []field) string {
	best, dist := "", len(k)/3+2
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
		if n := editDistance(strings.ToLower(k), f.key); n < dist {
			best, dist = f.key, n
		}
	}
	if best != "" {
		return ": write " + strconv.Quote(best)
	}
	return ": there are " + strings.Join(names, ", ")
}

// editDistance is the number of bytes to insert, delete or replace to get from a to b. Keys longer than any of ours
// are far from all.
func editDistance(a, b string) int {
	if len(a) > 2*len(b) {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func indexOf(fields []field, key string) int {
	return slices.IndexFunc(fields, func(f field) bool { return f.key == key })
}
