// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOptionsComeFromTheKernelCommandLine(t *testing.T) {
	got := parseOptions("console=ttyS0 pvrdmad.name=b quiet pvrdmad.ip=10.77.0.2/24 pvrdmad.modules=x,y\n")

	want := options{name: "b", address: netip.MustParsePrefix("10.77.0.2/24"), modules: []string{"x", "y"}}
	equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), equal); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestABadAddressIsReported(t *testing.T) {
	if got := parseOptions("pvrdmad.ip=10.77.0.2"); len(got.errs) != 1 || got.address.IsValid() {
		t.Errorf("options %+v, want an error and no address", got)
	}
}
