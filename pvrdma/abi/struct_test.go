// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

func TestEveryCodecAgreesWithTheCompiler(t *testing.T) {
	l := mustLayout(t)
	for _, c := range counterparts() {
		name := reflect.TypeOf(c.new()).Elem().Name()
		t.Run(name, func(t *testing.T) {
			s := l.Structs[c.tag]
			if s == nil {
				t.Fatalf("the headers have no struct %s", c.tag)
			}
			for _, w := range checkCodec(c, s) {
				t.Error(w)
			}
		})
	}
}

func TestEveryStructureAndFieldOfTheHeadersHasACounterpart(t *testing.T) {
	for _, w := range checkCoverage(mustLayout(t), counterparts()) {
		t.Error(w)
	}
}

// checkCoverage returns the C structures and fields that no counterpart accounts for.
func checkCoverage(l *cLayout, all []counterpart) []string {
	covered := map[string]bool{}
	tags := map[string]bool{
		// No codecs: a GID is an array, the unions are sizes. They have tests of their own.
		"pvrdma_gid": true, "pvrdma_cmd_req": true, "pvrdma_cmd_resp": true,
	}
	var wrong []string
	for tag := range tags {
		if l.Structs[tag] == nil {
			wrong = append(wrong, "the headers have no union "+tag)
		}
	}
	for _, c := range all {
		s := l.Structs[c.tag]
		if s == nil {
			wrong = append(wrong, "the headers have no struct "+c.tag)
			continue
		}
		_, paths := c.leaves(s)
		for _, p := range paths {
			covered[c.tag+"."+p] = true
		}
	}
	for tag, s := range l.Structs {
		for path, f := range s.Fields {
			if !tags[tag] && !f.aggregate && !covered[tag+"."+path] {
				wrong = append(wrong, "C field "+tag+"."+path+" has no counterpart in Go")
			}
		}
	}
	return wrong
}

func TestEveryGoStructureHasACounterpartInC(t *testing.T) {
	known := map[string]bool{}
	for _, c := range counterparts() {
		known[reflect.TypeOf(c.new()).Elem().Name()] = true
	}

	scope := mustPackage(t).Scope()
	found := 0
	for _, name := range scope.Names() {
		if !isStructType(scope.Lookup(name)) {
			continue
		}
		found++
		if !known[name] {
			t.Errorf("type %s stands for no C structure", name)
		}
	}
	if found != len(counterparts()) {
		t.Errorf("%d structure types in Go, %d counterparts", found, len(counterparts()))
	}
}

// The compiler's list of types is checked against the text of the headers, so that a type
// cannot get lost on the way through the debug information.
func TestTheDebugInformationHasEveryTypeOfTheHeadersText(t *testing.T) {
	l := mustLayout(t)
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	definition := regexp.MustCompile(`(?m)^(struct|union|enum) (\w+) \{`)
	seen := 0
	for _, h := range abiHeaders {
		path := filepath.Join(tree, driverDir, h)
		if h == filepath.Base(uapiHeader) {
			path = "/usr/include/" + uapiHeader
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range definition.FindAllStringSubmatch(string(text), -1) {
			seen++
			if l.Structs[m[2]] == nil && l.Enums[m[2]] == nil {
				t.Errorf("%s: %s %s is not in the debug information", h, m[1], m[2])
			}
		}
	}
	unnamed := 0
	for tag := range l.Enums {
		if strings.HasPrefix(tag, "first:") {
			unnamed++
		}
	}
	if got := len(l.Structs) + len(l.Enums) - unnamed; seen != got {
		t.Errorf("the headers' text has %d named types, the debug information %d", seen, got)
	}
}

func TestTheCommandUnionsHaveASizeAndAStructureForEachMember(t *testing.T) {
	l := mustLayout(t)
	for _, u := range []struct {
		tag, suffix string
		size        int64
	}{
		{"pvrdma_cmd_req", "", abi.CmdReqSize},
		{"pvrdma_cmd_resp", "", abi.CmdRespSize},
	} {
		s := l.Structs[u.tag]
		if s.Size != u.size {
			t.Errorf("union %s has %d bytes, the constant is %d", u.tag, s.Size, u.size)
		}
		for path, f := range s.Fields {
			if strings.Contains(path, ".") || path == "hdr" {
				continue
			}
			if want := "struct pvrdma_cmd_" + path; f.Type != want {
				t.Errorf("union %s: member %s is a %s, not a %s", u.tag, path, f.Type, want)
			}
		}
	}
	for c := range abi.CmdMax {
		member := l.Structs["pvrdma_cmd_req"].Fields[strings.ToLower(c.String())]
		if int64(c.ReqSize()) != member.Size {
			t.Errorf("%v: request of %d bytes, C has %d", c, c.ReqSize(), member.Size)
		}
	}
	if abi.CmdMax.ReqSize() != 0 {
		t.Errorf("code %v is no command and has a size", abi.CmdMax)
	}
}

func TestAGIDsHalvesAreWhereCHasThem(t *testing.T) {
	s := mustLayout(t).Structs["pvrdma_gid"]
	var g abi.GID
	for i := range g {
		g[i] = byte(i + 1)
	}

	got := map[string]uint64{
		"global.subnet_prefix": g.SubnetPrefix(),
		"global.interface_id":  g.InterfaceID(),
	}

	if s.Size != int64(len(g)) {
		t.Errorf("union pvrdma_gid has %d bytes, GID %d", s.Size, len(g))
	}
	for path, f := range s.Fields {
		if f.aggregate || path == "raw" {
			continue
		}
		want := binary.BigEndian.Uint64(g[f.Offset : f.Offset+f.Size])
		if v, ok := got[path]; !ok || v != want || f.Order != "big" {
			t.Errorf("%s: got %#x, want %#x (%+v)", path, v, want, f)
		}
	}
}

func TestADecodeErrorNamesTheStructureAndWrapsEINVAL(t *testing.T) {
	for _, c := range counterparts() {
		name := reflect.TypeOf(c.new()).Elem().Name()
		err := c.new().Decode(nil)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), " "+name+" ") {
			t.Errorf("%s: Decode(nil) = %v", name, err)
		}
	}
}

func TestCounterpartsAreListedOnce(t *testing.T) {
	var names []string
	for _, c := range counterparts() {
		names = append(names, reflect.TypeOf(c.new()).Elem().Name())
	}
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d names, %d different: %v", len(names), n, names)
	}
}
