// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var writeCorpus = flag.Bool("write-corpus", false, "write the seeds of the fuzz targets into testdata/fuzz")

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestTheCorpusHasEverySeed keeps the committed corpus what the tables of cases say. Beside the seeds it has what fuzzing
// found.
func TestTheCorpusHasEverySeed(t *testing.T) {
	for target, seeds := range map[string]map[string][]byte{
		"FuzzFrames": frameSeeds(), "FuzzSetIRQs": irqSeeds(), "FuzzMappings": mappingSeeds(), "FuzzSharedMemory": memorySeeds(),
	} {
		dir := filepath.Join("testdata", "fuzz", target)
		if *writeCorpus {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range sortedKeys(seeds) {
			path, want := filepath.Join(dir, name), fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", seeds[name])
			if *writeCorpus {
				if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s is not the seed %s (%v): run go test -run TheCorpusHas -write-corpus", path, name, err)
			}
		}
	}
}
