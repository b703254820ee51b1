// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestValuesAreReadAndWrittenAsPeopleWriteThem(t *testing.T) {
	tests := []struct {
		name, text string
		into       encoding.TextUnmarshaler
		want       string // how it is written again; empty if it is refused
	}{
		{"name", "vm-1", new(Name), "vm-1"},
		{"longest name", strings.Repeat("a", 32), new(Name), strings.Repeat("a", 32)},
		{"name too long", strings.Repeat("a", 33), new(Name), ""},
		{"empty name", "", new(Name), ""},
		{"name begins with dash", "-a", new(Name), ""},
		{"name ends with dash", "a-", new(Name), ""},
		{"name with slash", "a/b", new(Name), ""},
		{"name not ASCII", "vmö", new(Name), ""},
		{"MAC", "02:AA:00:00:00:01", new(MAC), "02:aa:00:00:00:01"},
		{"MAC of 8 bytes", "02:00:00:00:00:00:00:01", new(MAC), ""},
		{"zero MAC", "00:00:00:00:00:00", new(MAC), ""},
		{"duration", "1500us", new(Duration), "1.5ms"},
		{"microseconds", "20us", new(Duration), "20us"},
		{"no unit", "20", new(Duration), ""},
		{"zero without unit", "0", new(Duration), "0s"},
		{"longest duration", "1s", new(Duration), "1s"},
		{"duration too long", "1001ms", new(Duration), ""},
		{"negative duration", "-1us", new(Duration), ""},
		{"auto spin", "auto", new(Spin), "auto"},
		{"no spin", "0", new(Spin), "0s"},
		{"mode", "660", new(FileMode), "0660"},
		{"mode that keeps the owner out", "0066", new(FileMode), ""},
		{"mode with set-uid", "4660", new(FileMode), ""},
		{"GID", "fe80:0::1", new(GID), "fe80::1"},
		{"IPv4 GID", "192.0.2.1", new(GID), "192.0.2.1"},
		{"GID with zone", "fe80::1%eth0", new(GID), ""},
		{"multicast GID", "ff02::1", new(GID), ""},
		{"zero GID", "::", new(GID), ""},
		{"listen", "[::1]:80", new(Listen), "[::1]:80"},
		{"listen on all", ":9861", new(Listen), ":9861"},
		{"listen on a path", "unix:/run/x", new(Listen), "unix:/run/x"},
		{"listen on no path", "unix:", new(Listen), ""},
		{"listen on a path too long", "unix:/" + strings.Repeat("x", 103), new(Listen), ""},
		{"listen off", "off", new(Listen), "off"},
		{"port by name", "localhost:http", new(Listen), ""},
		{"port too large", "127.0.0.1:65536", new(Listen), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.into.UnmarshalText([]byte(tt.text))
			if tt.want == "" {
				if err == nil {
					t.Errorf("%q was taken", tt.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := tt.into.(encoding.TextMarshaler).MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("%q is written %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestAnErrorRepeatsABoundedPartOfAWrongValue(t *testing.T) {
	err := new(Name).UnmarshalText([]byte(strings.Repeat("\x1b", 1<<16)))
	if len(err.Error()) > 6*maxQuoted || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error of %d bytes repeats the value as it is: %.80s", len(err.Error()), err)
	}
}

func TestADerivedMACIsALocalUnicastAddressThatDependsOnTheNameAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]{1,8}`).Draw(t, "name")
		m := DeriveMAC(name)
		if m[0]&1 != 0 || m[0]&2 == 0 {
			t.Fatalf("DeriveMAC(%q) = %s is not locally administered unicast", name, m)
		}
		if m != DeriveMAC(name) {
			t.Fatalf("DeriveMAC(%q) differs from call to call", name)
		}
		if m == DeriveMAC(name+"x") {
			t.Fatalf("DeriveMAC(%q) is that of another name", name)
		}
	})
	// The address is what a guest's GUIDs are made from: it must be the same after an upgrade too.
	if diff := cmp.Diff("aa:eb:b6:4f:b4:e3", DeriveMAC("vm1").String()); diff != "" {
		t.Errorf("address of vm1 differs from that of the first release (-want +got):\n%s", diff)
	}
}

func TestASuggestionIsTheNearestKey(t *testing.T) {
	fields := []field{{key: "max_qp"}, {key: "max_cq"}, {key: "mac"}, {key: "socket_path"}}
	for in, want := range map[string]string{
		"maxqp": `: write "max_qp"`, "MAC": `: write "mac"`, "socketpath": `: write "socket_path"`,
		"socket": ": there are max_qp, max_cq, mac, socket_path",
		"":       ": there are max_qp, max_cq, mac, socket_path",
	} {
		if got := suggestion(in, fields); got != want {
			t.Errorf("suggestion(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestTheEditDistanceIsSymmetricAndZeroForEqualWordsOnly(t *testing.T) {
	word := rapid.StringMatching(`[a-c]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := editDistance(a, b)
		if (d == 0) != (a == b) {
			t.Fatalf("editDistance(%q, %q) = %d", a, b, d)
		}
		if len(a) <= 2*len(b) && len(b) <= 2*len(a) && d != editDistance(b, a) {
			t.Fatalf("editDistance(%q, %q) = %d is not symmetric", a, b, d)
		}
	})
}

// TestTheExampleInAMistakeIsOneOfItsKey: what the error about a wrong type says to write can be written.
func TestTheExampleInAMistakeIsOneOfItsKey(t *testing.T) {
	c, g := Default(), DefaultGuest()
	for _, v := range []any{&c, &g} {
		walk("", reflect.ValueOf(v).Elem(), func(path string, f field) {
			err := setValue(reflect.New(f.value.Type()).Elem(), true)
			if err == nil {
				t.Errorf("%s can be set to true", path)
				return
			}
			_, rest, ok := strings.Cut(err.Error(), " such as ")
			if !ok {
				return
			}
			text, _, _ := strings.Cut(rest, ", have ")
			if err := setText(reflect.New(f.value.Type()).Elem(), strings.Trim(text, `[]"`)); err != nil {
				t.Errorf("%s: the example %s is none: %v", path, text, err)
			}
		})
	}
}
