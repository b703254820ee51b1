// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// rxeUp makes an RDMA device out of the NIC: the kernel's software RoCE, a second implementation to check pvcheck by.
const rxeUp = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"

// rxeDeviates are the checks that Linux 6.12's rxe does not pass, and what it does instead.
var rxeDeviates = strings.Join([]string{
	"atomic-misaligned",              // refused by ibv_post_send with EINVAL, not by the responder
	"send-wrong-lkey",                // completes as flushed, not with LOC_PROT_ERR
	"send-beyond-end",                // the same
	"send-wraps-around",              // the same
	"send-mr-of-another-pd",          // the same
	"receive-too-short",              // sender sees REM_OP_ERR, not REM_INV_REQ_ERR
	"receive-wrong-lkey",             // receiver sees LOC_QP_OP_ERR, not LOC_PROT_ERR
	"receive-mr-without-local-write", // the same
	"post-in-error",                  // a receive that is posted in ERR is never flushed
}, ",")

var passLine = regexp.MustCompile(`^pvcheck: PASS (ops=\S+ messages=[1-9]\d* bytes_compared=\d+ p50_us=[\d.]+|checks=[1-9]\d*)$`)

var differenceLine = regexp.MustCompile(`^pvcheck: FAIL \w+: op=\w+ iteration=\d+ offset=\d+ expected=0x.. got=0x..$`)

// runPvcheck runs a server in one guest and a client in the other; it returns how the client ended and its last line.
func runPvcheck(t *testing.T, server, client *harness.Guest, options string) (harness.Result, string) {
	t.Helper()
	const limit = 2 * time.Minute
	serving := start(t, server, limit, "pvcheck "+serverOptions(options))
	got, err := client.Run(within(t, limit), fmt.Sprintf("pvcheck %s %s", options, harness.Address(1)))
	if err != nil {
		t.Fatal(err)
	}
	there, err := serving.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if there.Status != got.Status {
		t.Errorf("server ended with %d, client with %d:\n%s\n%s", there.Status, got.Status, there.Stdout, got.Stdout)
	}
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	return got, lines[len(lines)-1]
}

// serverOptions are those that each side decides for itself.
func serverOptions(options string) string {
	var mine []string
	for option := range strings.FieldsSeq(options) {
		if option == "-e" || option == "-Q" {
			mine = append(mine, option)
		}
	}
	return strings.Join(mine, " ")
}

func pvcheckPasses(t *testing.T, a, b *harness.Guest) {
	for name, options := range map[string]string{
		"polled":             "-o all -n 560",
		"by events":          "-e -n 400",
		"shared receives":    "-Q -e -n 200",
		"mostly unsignalled": "-u 7 -n 200",
		"empty messages":     "-s 0 -n 100",
		"one at a time":      "-q 1 -s 64 -n 200",
		"protection":         "-E -x " + rxeDeviates,
	} {
		t.Run(name, func(t *testing.T) {
			got, last := runPvcheck(t, a, b, options)
			if got.Status != 0 || !passLine.MatchString(last) {
				t.Errorf("pvcheck %s: status %d:\n%s", options, got.Status, got.Stdout)
			}
		})
	}
}

func pvcheckFails(t *testing.T, a, b *harness.Guest) {
	for name, options := range map[string]string{
		"SEND":       "-o SEND -c 40",
		"RDMA_WRITE": "-o RDMA_WRITE -c 40",
		"RDMA_READ":  "-o RDMA_READ -c 40",
		"one byte":   "-o SEND -s 1 -c 3",
		"by events":  "-e -o RDMA_WRITE_WITH_IMM -c 40",
	} {
		t.Run(name, func(t *testing.T) {
			got, last := runPvcheck(t, a, b, options)
			if got.Status != 1 || !differenceLine.MatchString(last) {
				t.Errorf("pvcheck %s: status %d:\n%s", options, got.Status, got.Stdout)
			}
		})
	}
}

func pvcheckSelf(t *testing.T, guest *harness.Guest) {
	output(t, guest, 20*time.Second, rxeUp)

	out := output(t, guest, time.Minute, "pvcheck --self -o all -n 280")

	lines := strings.Split(out, "\n")
	if last := lines[len(lines)-1]; !passLine.MatchString(last) {
		t.Errorf("pvcheck --self: last line %q, want PASS", last)
	}
}

func pvcheckLosesPeer(t *testing.T, a, b *harness.Guest) {
	sent := func() (packets int) {
		text := output(t, b, 10*time.Second, "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts")
		if n, _ := fmt.Sscan(text, &packets); n != 1 {
			t.Fatalf("rxe0 has sent %q packets", text)
		}
		return packets
	}
	before := sent()
	start(t, a, 2*time.Minute, "pvcheck")
	client := start(t, b, 2*time.Minute, fmt.Sprintf("pvcheck --seconds 1000 %s", harness.Address(1)))
	for deadline := time.Now().Add(harness.Slow * 20 * time.Second); sent() < before+200; {
		if time.Now().After(deadline) {
			stdout, stderr := client.Output()
			t.Fatalf("no traffic to end:\n%s%s", stdout, stderr)
		}
	}

	a.Kill()

	got, err := client.Wait(t.Context())
	if err != nil || got.Status != 3 || !strings.Contains(got.Stdout, "pvcheck: LOST") {
		t.Errorf("client of a killed guest: status %d, %v, want 3 and LOST:\n%s", got.Status, err, got.Stdout)
	}
}
