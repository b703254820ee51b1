// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

func TestAGuestBootsAndTheUnmodifiedDriverLoads(t *testing.T) {
	guest := bootGuest(t, harness.Config{Name: "one", Number: 1})

	if out := output(t, guest, 10*time.Second, "grep -c ^vmw_pvrdma /proc/modules || :"); out != "0" {
		t.Errorf("vmw_pvrdma is loaded before a test asks for it")
	}
	output(t, guest, 20*time.Second, "modprobe vmw_pvrdma && modprobe -a ib_uverbs rdma_ucm rdma_rxe")
	if out := output(t, guest, 10*time.Second, "cat /sys/module/vmw_pvrdma/initstate"); out != "live" {
		t.Errorf("vmw_pvrdma is %q after modprobe, want live", out)
	}
}
