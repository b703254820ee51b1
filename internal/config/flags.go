// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// FlagName is the flag that sets a key: "guest.socket_path" is "socket-path", "log.level" is "log-level".
func FlagName(path string) string {
	path = strings.TrimPrefix(path, "guest.")
	return strings.NewReplacer(".", "-", "_", "-").Replace(path)
}

// ForFlags makes the configuration of a single guest from flags: values maps a flag's name to its text. Metrics are off
// unless a flag turns them on, so that several daemons can be started side by side. The error is Problems.
func ForFlags(values map[string]string) (*Config, error) {
	c, g := Default(), DefaultGuest()
	c.Metrics.Listen = Listen{}
	g.Name = nameFromSocket(values[FlagName("socket_path")])
	var ps Problems
	g.origin[""] = Origin{Flag: "name"}
	c.applyFlags(values, &ps)
	walk("", reflect.ValueOf(&g).Elem(), func(path string, f field) {
		applyFlag(values, path, f.value, g.origin, &ps)
	})
	c.Guests = []Guest{g}
	if err := c.finish(&ps); err != nil {
		return nil, err
	}
	return &c, nil
}

// nameFromSocket names a guest that no flag names after its socket, so that two daemons' guests differ.
func nameFromSocket(path string) Name {
	base := filepath.Base(path)
	var n Name
	if n.UnmarshalText([]byte(strings.TrimSuffix(base, filepath.Ext(base)))) != nil {
		return "guest"
	}
	return n
}

// Override lets flags replace the global keys of a file.
func (c *Config) Override(values map[string]string) error {
	var ps Problems
	c.applyFlags(values, &ps)
	c.checkWorkers(&ps)
	c.checkUnique(&ps)
	return ps.errOrNil()
}

func (c *Config) applyFlags(values map[string]string, ps *Problems) {
	walk("", reflect.ValueOf(c).Elem(), func(path string, f field) {
		applyFlag(values, path, f.value, c.origin, ps)
	})
}

func applyFlag(values map[string]string, path string, v reflect.Value, origin origins, ps *Problems) {
	flag := FlagName(path)
	text, ok := values[flag]
	if !ok {
		return
	}
	origin[path] = Origin{Flag: flag}
	if err := setText(v, text); err != nil {
		ps.add(origin[path], path, "%v", err)
	}
}

// setText writes a flag's text into dst; a list is separated by commas.
func setText(dst reflect.Value, text string) error {
	switch dst.Kind() {
	case reflect.Slice:
		items := strings.Split(text, ",")
		list := make([]any, len(items))
		for i := range items {
			list[i] = strings.TrimSpace(items[i])
		}
		return setValue(dst, list)
	case reflect.Uint32:
		if _, isText := dst.Interface().(FileMode); isText {
			break
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%s is no whole number that fits", quote(text))
		}
		return setValue(dst, int64(n))
	}
	return setValue(dst, text)
}
