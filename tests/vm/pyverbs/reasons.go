// SPDX-License-Identifier: Apache-2.0

package pyverbs

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// reason is why a test may be skipped.
type reason struct {
	// name is what the tables say.
	name string
	// why is what the device, its driver or the guest lacks.
	why string
	// says is what the suite says then, the whole of it.
	says *regexp.Regexp
}

func says(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)$`) }

// reasons is the closed list. That no port is active, that no GID is there, or that something is missing which the
// device should have (UD, atomic operations, shared receive queues, completion channels) is not in it.
var reasons = []reason{
	{"other-vendor", "the test is for the hardware of one vendor", says(
		`Can not run the test over non (EFA|MLX5) device|Could not open mlx5 context \(.*\)|PCI device must be passed by the user`)},
	skipOf("driver-query-in-reset", "the driver answers ibv_query_qp of a queue pair in RESET itself, and without its sizes"),
	skipOf("library-wraps-sizes", "rdma-core's provider makes one work request of more than 2^31 before the driver sees them"),
	{"no-cuda", "the guest has no graphics processor", says(`cuda-python 12\.0\+ must be installed to run CUDA tests`)},
	{"no-dmabuf", "the guest has no graphics device, or pyverbs is built without a way to it", says(
		`Device /dev/dri/renderD128 is not present|Allocating dmabuf is not supported by /dev/dri/renderD128`)},
	{"no-extended-cq", "rdma-core's provider has no ibv_create_cq_ex beyond a plain queue", says(
		`(Create )?Extended CQ is not supported`)},
	{"no-extended-qp", "rdma-core's provider has no ibv_qp_ex", says(`Extended QP is not supported on this device`)},
	{"no-xrc", "the driver has no XRC", says(`Create XRCD is not supported`)},
	{"no-uc", "the driver refuses UC queue pairs", says(`Create UC QP with(out)?( extended)? attrs is not supported`)},
	{"no-raw-packet", "the driver refuses raw packet queue pairs", says(
		`Create Raw Packet QP with(out)?( extended)? attrs is not supported|Create QP type 8 is not supported`)},
	{"no-mw", "the driver has no memory windows", says(
		`Create MW is not supported|Create memory window of type \d is not supported`)},
	{"no-dm", "the driver has no device memory", says(`Device memory is not supported`)},
	{"no-odp", "the driver has no on-demand paging", says(`ODP is not supported - No ODP caps`)},
	{"no-rereg", "the driver has no ibv_rereg_mr", says(`Rereg MR is not supported \(.* Errno: 95, Operation not supported\)`)},
	{"no-flush", "the driver has no FLUSH operation", says(
		`Create custom mr with additional access flags 258 is not supported`)},
	{"no-parent-domain", "rdma-core's provider has no parent domains", says(`Parent Domain is not supported on this device`)},
	{"no-device-clock", "the device has no clock that a program can read", says(`Query device real time is not supported`)},
	{"no-resize-cq", "the driver has no ibv_resize_cq", says(`Resize CQ is not supported`)},
	{"no-resize-srq", "the device has no ibv_modify_srq of the length", says(`SRQ resize is not supported`)},
	{"no-multicast", "the device has no multicast groups", says(`Multicast is not supported on this device`)},
}

// skipOf is a reason of ours: the suite does not know that it has to skip such a test, and is told.
func skipOf(name, why string) reason { return reason{name, why, says(regexp.QuoteMeta(why))} }

// skips are the tests that no device can make pass, and the names of the reasons. What they ask for never reaches it.
var skips = map[string]string{
	"tests.test_qp.QPTest.test_query_rc_qp":                                    "driver-query-in-reset",
	"tests.test_qp.QPTest.test_query_ud_qp":                                    "driver-query-in-reset",
	"tests.test_qp.QPTest.test_create_raw_qp_ex_with_illegal_caps_max_recv_wr": "library-wraps-sizes",
	"tests.test_qp.QPTest.test_create_raw_qp_ex_with_illegal_caps_max_send_wr": "library-wraps-sizes",
}

// Skips returns the argument of the runner that names those tests.
func Skips() string {
	texts := map[string]string{}
	for id, name := range skips {
		for _, r := range reasons {
			if r.name == name {
				texts[id] = r.why
			}
		}
	}
	text, err := json.Marshal(texts)
	if err != nil {
		panic(fmt.Sprintf("encode the tests to skip: %v", err)) // a map of strings always encodes
	}
	return string(text)
}

// reasonOf returns the name of the reason that the suite gives, or "" if the list has none.
func reasonOf(text string) string {
	for _, r := range reasons {
		if r.says.MatchString(text) {
			return r.name
		}
	}
	return ""
}

// known tells whether the list has a reason of that name.
func known(name string) bool {
	for _, r := range reasons {
		if r.name == name {
			return true
		}
	}
	return false
}
