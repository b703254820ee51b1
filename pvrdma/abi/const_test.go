// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// cConstant is an enumerator or macro with the Go name that it must have.
type cConstant struct {
	name   string
	goName string
	goType string // "" for any
	value  uint32
}

// cConstants returns all of the headers' constants that need a Go counterpart.
func cConstants(l *cLayout, enums []enumeration) (all []cConstant, wrong []string) {
	byTag := map[string]enumeration{}
	for _, e := range enums {
		byTag[e.tag] = e
	}
	for tag, values := range l.Enums {
		e, ok := byTag[tag]
		if tag == "first:PVRDMA_CMD_FIRST_RESP" {
			continue // Cmd.Ack stands for them: TestAckIsTheHeadersResponseCode
		}
		if !ok {
			wrong = append(wrong, "enum "+tag+" has no Go type")
			continue
		}
		for name, v := range values {
			all = append(all, cConstant{name, e.constName(name), e.goType, v})
		}
	}
	for name, v := range l.Macros {
		if unusedMacros()[name] != "" {
			continue
		}
		all = append(all, cConstant{name, macroName(name, enums), "", v})
	}
	return all, wrong
}

func (e enumeration) constName(c string) string {
	if name := goNames()[c]; name != "" {
		return name
	}
	return e.goPrefix + goName(strings.TrimPrefix(c, e.cPrefix))
}

func macroName(c string, enums []enumeration) string {
	for _, e := range enums {
		if e.tag == "" && strings.HasPrefix(c, e.cPrefix) {
			return e.constName(c)
		}
	}
	if name := goNames()[c]; name != "" {
		return name
	}
	return goName(strings.TrimPrefix(c, "PVRDMA_"))
}

// checkConstants compares the headers' constants with the package's, both ways.
func checkConstants(
	l *cLayout, enums []enumeration, values map[string]uint32, typeOf map[string]string,
) []string {
	all, wrong := cConstants(l, enums)
	used := map[string]bool{}
	for _, c := range all {
		used[c.goName] = true
		v, ok := values[c.goName]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s has no Go constant %s", c.name, c.goName))
		case v != c.value:
			wrong = append(wrong, fmt.Sprintf("%s is %#x, %s is %#x", c.name, c.value, c.goName, v))
		case c.goType != "" && typeOf[c.goName] != c.goType:
			wrong = append(wrong, fmt.Sprintf("%s is a %s, want %s", c.goName, typeOf[c.goName], c.goType))
		}
	}
	own := ownConstants(l)
	maps.Copy(own, structSizes(l))
	own["AckFirst"] = l.Enums["first:PVRDMA_CMD_FIRST_RESP"]["PVRDMA_CMD_FIRST_RESP"]
	own["AckMax"] = l.Enums["first:PVRDMA_CMD_FIRST_RESP"]["PVRDMA_CMD_MAX_RESP"]
	for name, v := range values {
		want, ok := own[name]
		if ok && want != v {
			wrong = append(wrong, fmt.Sprintf("%s is %#x, want %#x", name, v, want))
		}
		if !ok && !used[name] {
			wrong = append(wrong, fmt.Sprintf("%s stands for nothing in C", name))
		}
	}
	for name := range own {
		if _, ok := values[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("there is no Go constant %s", name))
		}
	}
	return wrong
}

// structSizes returns the size constant that each counterpart must have.
func structSizes(l *cLayout) map[string]uint32 {
	sizes := map[string]uint32{}
	for _, c := range counterparts() {
		name := reflect.TypeOf(c.new()).Elem().Name() + "Size"
		sizes[name] = uint32(c.size(l.Structs[c.tag]))
	}
	return sizes
}

func TestEveryConstantAgreesWithTheCompiler(t *testing.T) {
	values, typeOf := goConstants(mustPackage(t))
	for _, w := range checkConstants(mustLayout(t), enumerations(), values, typeOf) {
		t.Error(w)
	}
}

func TestExceptionsFromTheNamingRuleAreStillNeeded(t *testing.T) {
	l := mustLayout(t)
	names := map[string]bool{}
	for name := range l.Macros {
		names[name] = true
	}
	for _, values := range l.Enums {
		for name := range values {
			names[name] = true
		}
	}
	for name := range goNames() {
		if !names[name] {
			t.Errorf("the headers have no %s", name)
		}
	}
	for name := range unusedMacros() {
		if !names[name] {
			t.Errorf("the headers have no %s", name)
		}
	}
}

// boundName matches enumerators that bound an enumeration instead of being part of it.
var boundName = regexp.MustCompile(`^(FIRST|LAST|MAX)$|(FLAGS|MASK)_MAX$`)

// namesOf returns each value's names without the prefix. Bounds are no names.
func (e enumeration) namesOf(l *cLayout) map[uint32][]string {
	values := l.Enums[e.tag]
	if e.tag == "" {
		values = map[string]uint32{}
		for name, v := range l.Macros {
			if strings.HasPrefix(name, e.cPrefix) {
				values[name] = v
			}
		}
	}
	names := map[uint32][]string{}
	for name, v := range values {
		short := strings.TrimPrefix(strings.TrimPrefix(name, e.cPrefix), "PVRDMA_")
		composite := e.flags && v&(v-1) != 0
		if !composite && !boundName.MatchString(short) {
			names[v] = append(names[v], short)
		}
	}
	return names
}

func TestStringIsTheHeadersNameOrAHexadecimalNumber(t *testing.T) {
	l := mustLayout(t)
	for _, e := range enumerations() {
		t.Run(e.goType, func(t *testing.T) {
			names := e.namesOf(l)
			if len(names) == 0 {
				t.Fatalf("no names for %s*", e.cPrefix)
			}
			for v := range uint32(256) {
				got := e.show(v).String()
				want := names[v]
				if e.flags {
					want = []string{flagName(v, names)}
				} else if want == nil {
					want = []string{fmt.Sprintf("%#x", v)}
				}
				if !slices.Contains(want, got) {
					t.Errorf("value %#x: String is %q, want %q", v, got, want)
				}
			}
			for v, want := range names {
				if got := e.show(v).String(); !slices.Contains(want, got) {
					t.Errorf("value %#x: String is %q, want %q", v, got, want)
				}
			}
		})
	}
}

// flagName joins the names of bits, lowest first.
func flagName(v uint32, names map[uint32][]string) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	rest := v
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if v&bit != 0 && names[bit] != nil {
			parts = append(parts, names[bit][0])
			rest &^= bit
		}
	}
	if rest != 0 {
		parts = append(parts, fmt.Sprintf("%#x", rest))
	}
	return strings.Join(parts, "|")
}

func TestALargeUnknownValuePrintsAsHex(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    fmt.Stringer
		want string
	}{
		{"an opcode from a hostile guest", abi.WROpcode(0xffffffff), "0xffffffff"},
		{"a command beyond the last", abi.CmdMax, "0x15"},
		{"a gap in an enumeration", abi.QPType(7), "0x7"},
		{"known and unknown flags", abi.AccessLocalWrite | 1<<20, "LOCAL_WRITE|0x100000"},
		{"no flags", abi.SendFlags(0), "0"},
		{"an SRQ mask", abi.SRQMaskLimit | abi.SRQMaskMaxWR | 4, "MAX_WR|LIMIT|0x4"},
	} {
		if got := tc.v.String(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestARegisterIsNamedAsInTheHeader(t *testing.T) {
	l := mustLayout(t)
	names := map[uint64]string{}
	for name, v := range l.Macros {
		if short, ok := strings.CutPrefix(name, "PVRDMA_REG_"); ok {
			names[uint64(v)] = short
		}
	}
	for off := range uint64(abi.RegsSize + 8) {
		want, ok := names[off]
		if !ok {
			want = fmt.Sprintf("%#x", off)
		}
		if got := abi.RegName(off); got != want {
			t.Errorf("offset %#x: %q, want %q", off, got, want)
		}
	}
	if got := abi.RegName(1 << 40); got != "0x10000000000" {
		t.Errorf("a far offset: %q", got)
	}
}
