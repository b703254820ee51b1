// SPDX-License-Identifier: Apache-2.0

package klog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTakesHeadsOffAndKeepsContinuations(t *testing.T) {
	raw := "<6>[    0.000000] Linux version 6.12\n<12>[   12.5] from user space\n  second line\n<3>[ 7654.321098] infiniband x: bad\n"

	got := Parse(raw)

	want := Log{
		{Priority: 6, Text: "Linux version 6.12"},
		{Priority: 4, Text: "from user space"}, // facility 1, priority 4
		{Priority: 4, Text: "  second line"},
		{Priority: 3, Text: "infiniband x: bad"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parsed log (-want +got):\n%s", diff)
	}
}

func TestTroubleIsFoundAtAnyPriority(t *testing.T) {
	for _, text := range []string{
		"WARNING: CPU: 0 PID: 12 at drivers/infiniband/core/cq.c:119 __ib_process_cq+0x1/0x2 [ib_core]",
		"BUG: kernel NULL pointer dereference, address: 0000000000000010",
		"watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [kworker/1:0:17]",
		"Oops: 0000 [#1] PREEMPT SMP NOPTI",
		"Call Trace:",
		"INFO: task modprobe:222 blocked for more than 30 seconds.",
		"Kernel panic - not syncing: Fatal exception",
		"general protection fault, probably for non-canonical address",
		"refcount_t: underflow; use-after-free.",
		"list_del corruption. prev->next should be x",
		"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
		"rcu: INFO: rcu_preempt self-detected stall on CPU",
		"UBSAN: array-index-out-of-bounds in x.c:1:2",
		"unregister_netdevice: waiting for eth0 to become free. Usage count = 2",
	} {
		for _, priority := range []int{0, 4, 6} {
			if got := (Log{{priority, text}}).Check(nil); len(got) != 1 {
				t.Errorf("priority %d: %q is not found", priority, text)
			}
		}
	}
}

func TestHarmlessLinesAreNotTrouble(t *testing.T) {
	for _, line := range []Line{
		{6, "rcu: Hierarchical RCU implementation."},
		{6, "Debugging: nothing of BUGS here"},
		{4, "shpchp 0000:00:03.0: pci_hp_register failed with error -16"},
		{5, "vmw_pvrdma: module verification failed: signature and/or required key missing - tainting kernel"},
		{6, "infiniband vmw_pvrdma0: device is up"},
		{4, "warning: process `x' used the deprecated sysctl system call"},
	} {
		if got := (Log{line}).Check(nil); len(got) != 0 {
			t.Errorf("found %q", got)
		}
	}
}

func TestComplaintsOfRDMAModulesCountUnlessTheBaselineHasThem(t *testing.T) {
	log := Log{
		{4, "vmw_pvrdma: loading out-of-tree module taints kernel."},
		{3, "vmw_pvrdma 0000:01:01.1: failed to allocate 3 of 0xdeadbeef"},
		{4, "ib_core: something about 12"},
		{3, "infiniband vmw_pvrdma0: Couldn't open port 1"},
		{6, "ib_core: chatter"},
		{4, "nvme nvme0: I/O tag 9 (0009) opcode 0x1 (I/O Cmd) QID 1 timeout"},
		{3, "nvmet: ctrl 1 keep-alive timer (5 seconds) expired!"},
		{3, "nvmet_rdma: sending cmd response failed"},
		{6, "nvme nvme0: new ctrl: NQN \"x\""},
	}
	known := NewBaseline(Log{log[0], {3, "vmw_pvrdma 0000:07:02.9: failed to allocate 99 of 0x1"}})

	got := log.Check(known)

	if diff := cmp.Diff([]string{log[2].Text, log[3].Text, log[5].Text, log[6].Text, log[7].Text}, got); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
}

func TestABaselineNeverHidesTrouble(t *testing.T) {
	log := Log{{4, "WARNING: CPU: 0 PID: 1 at drivers/infiniband/core/x.c ib_core"}}

	if got := log.Check(NewBaseline(log)); len(got) != 1 {
		t.Errorf("found %q, want the warning though the baseline has it", got)
	}
}

func TestReadBaselineSkipsComments(t *testing.T) {
	got, err := ReadBaseline(strings.NewReader("# comment\n\nib_core: N\n"))

	if diff := cmp.Diff(Baseline{"ib_core: N": true}, got); err != nil || diff != "" {
		t.Errorf("baseline: %v (-want +got):\n%s", err, diff)
	}
}
