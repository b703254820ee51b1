// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheKeysInTheManualAreThoseThatThereAre keeps the table of docs/operations.md whole: each key, its default, what it is.
func TestTheKeysInTheManualAreThoseThatThereAre(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, k := range Keys() {
		def := k.Default
		if def == "" {
			def = "from the name"
			if k.Path == "guest.name" {
				def = "the file's name"
			}
		} else {
			def = "`" + def + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", k.Path, def, k.Doc))
	}
	var have []string
	for line := range strings.Lines(string(manual)) {
		for _, prefix := range []string{"| `workers`", "| `spin`", "| `windows`", "| `log.", "| `metrics.", "| `guest."} {
			if strings.HasPrefix(line, prefix) {
				have = append(have, strings.TrimSpace(line))
			}
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the table differs from the keys (-keys +manual):\n%s", diff)
	}
}

func TestTheFilesThatAreShippedAreReadAndSayTheTruthAboutDefaults(t *testing.T) {
	c, err := Load("../../deploy/pvrdmad.toml")
	if err != nil {
		t.Fatal(err)
	}
	want, g := Default(), DefaultGuest()
	g.Name, g.SocketPath, g.MAC = "example", "/run/pvrdmad/example.sock", DeriveMAC("example")
	g.SocketGroup, g.MaxQP, g.MaxCQ = "kvm", 256, 512
	want.Guests = []Guest{g}
	if diff := cmp.Diff(&want, c, ignoreOrigins()); diff != "" {
		t.Errorf("configuration differs (-want +got):\n%s", diff)
	}
}

// TestWhatIsCommentedOutInTheExampleIsTheDefault reads the example with every commented key switched on.
func TestWhatIsCommentedOutInTheExampleIsTheDefault(t *testing.T) {
	src, err := os.ReadFile("../../deploy/guests.d/example.toml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, k := range Keys() {
		known[strings.TrimPrefix(k.Path, "guest.")] = k.Default
	}
	seen := 0
	for line := range strings.Lines(string(src)) {
		key, value, ok := strings.Cut(strings.TrimPrefix(line, "# "), " = ")
		def, isKey := known[key]
		if !ok || !isKey {
			continue
		}
		seen++
		if strings.HasPrefix(line, "# ") && def != "" && strings.TrimSpace(value) != def {
			t.Errorf("the example shows %s = %s as default, it is %s", key, strings.TrimSpace(value), def)
		}
	}
	// All of a guest's keys but its name.
	if want := len(known) - len([]string{"workers", "spin", "windows", "log.level", "log.format", "metrics.listen", "name"}); seen != want {
		t.Errorf("the example shows %d keys, a guest has %d", seen, want)
	}
}
