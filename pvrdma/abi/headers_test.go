// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
)

func TestTheKernelsUserHeaderAgreesWithTheInstalledOne(t *testing.T) {
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	installed := mustLayout(t)

	// Only the one header is taken from the tree: the others beside it would need the
	// kernel's own preparation.
	uapi := t.TempDir()
	text, err := os.ReadFile(filepath.Join(tree, uapiDir, uapiHeader))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(uapi, "rdma"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(uapi, uapiHeader), text, 0o600); err != nil {
		t.Fatal(err)
	}
	kernels, err := compileLayout(t.TempDir(), tree, uapi)
	if err != nil {
		t.Fatal(err)
	}

	if diff := gocmp.Diff(installed, kernels, gocmp.AllowUnexported(cField{})); diff != "" {
		t.Errorf("headers (-installed +kernel tree):\n%s", diff)
	}
}

func TestTheCompilerReportsTheMissingHeaderPackage(t *testing.T) {
	tree := t.TempDir()
	_, err := gcc(tree, "", "-c", "-o", filepath.Join(tree, "x.o"), "testdata/abi.c")
	if err == nil || !strings.Contains(err.Error(), "pvrdma_dev_api.h") {
		t.Errorf("a tree without headers: %v", err)
	}
}
