// SPDX-License-Identifier: Apache-2.0

//go:build vm

package perf

import (
	"slices"
	"strings"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// cell is one way to call perftest.
type cell struct {
	program, options string
	// short says that make test has it; make test-long has all.
	short bool
}

func (c cell) String() string { return strings.TrimSpace(c.program + " " + c.options) }

// latency reports whether the cell measures that, or bandwidth.
func (c cell) latency() bool { return strings.HasSuffix(c.program, "_lat") }

// throughCM reports whether the two sides find each other through rdma_cm, and not over TCP.
func (c cell) throughCM() bool { return slices.Contains(strings.Fields(c.options), "-R") }

// cells are all of them: programs with what they measure, times modes. 1024 bytes fit a datagram of rdma_rxe over
// Ethernet.
func cells() []cell {
	var all []cell
	for _, base := range []cell{
		{program: "ib_send_bw", options: "-s 65536 -n 200"},
		{program: "ib_send_bw", options: "-c UD -s 1024 -n 200"},
		{program: "ib_write_bw", options: "-s 65536 -n 200"},
		{program: "ib_read_bw", options: "-s 65536 -n 200"},
		{program: "ib_atomic_bw", options: "-A FETCH_AND_ADD -n 200"},
		{program: "ib_atomic_bw", options: "-A CMP_AND_SWAP -n 200"},
		{program: "ib_send_lat", options: "-s 64 -n 200"},
		{program: "ib_send_lat", options: "-c UD -s 64 -n 200"},
		{program: "ib_write_lat", options: "-s 64 -n 200"},
		{program: "ib_read_lat", options: "-s 64 -n 200"},
		{program: "ib_atomic_lat", options: "-A FETCH_AND_ADD -n 200"},
		{program: "ib_atomic_lat", options: "-A CMP_AND_SWAP -n 200"},
	} {
		for _, mode := range modes(base) {
			c := base
			c.options = strings.TrimSpace(c.options + " " + mode)
			c.short = slices.Contains(shortCells, c.String())
			all = append(all, c)
		}
	}
	return append(all, shared...)
}

// shared are SENDs into one shared receive queue, whose receives perftest makes longer than the memory behind them. For
// datagrams it posts 100 receives at most if there are few iterations, and up to 512 otherwise, and sends as fast as it can to
// each queue pair: what finds no receive is dropped, and the server waits for it for ever, over rdma_rxe too. So here there
// are as many datagrams as receives.
var shared = []cell{
	{program: "ib_send_bw", options: "-s 1024 -n 200 --use-srq"},
	{program: "ib_send_bw", options: "-s 1024 -n 200 --use-srq -q 4"},
	{program: "ib_send_bw", options: "-c UD -s 1024 -n 25 --use-srq -q 4"},
	{program: "ib_send_lat", options: "-c UD -s 64 -n 200 --use-srq"},
}

// modes are polled, by events, through rdma_cm, and for bandwidth several queue pairs. perftest has no events for WRITE.
func modes(c cell) []string {
	switch c.program {
	case "ib_write_bw":
		return []string{"", "-R", "-q 4", "-R -q 4"}
	case "ib_write_lat":
		return []string{"", "-R"}
	case "ib_send_bw", "ib_read_bw", "ib_atomic_bw":
		return []string{"", "-e", "-R", "-q 4", "-e -R -q 4"}
	}
	return []string{"", "-e", "-R"}
}

// shortCells have each operation, transport and mode.
var shortCells = []string{
	"ib_send_bw -s 65536 -n 200",
	"ib_send_bw -c UD -s 1024 -n 200 -e",
	"ib_write_bw -s 65536 -n 200 -R -q 4",
	"ib_read_bw -s 65536 -n 200 -q 4",
	"ib_read_bw -s 65536 -n 200 -R",
	"ib_atomic_bw -A FETCH_AND_ADD -n 200 -q 4",
	"ib_send_lat -s 64 -n 200 -e",
	"ib_send_lat -c UD -s 64 -n 200 -R",
	"ib_write_lat -s 64 -n 200",
	"ib_write_lat -s 64 -n 200 -R",
	"ib_read_lat -s 64 -n 200",
	"ib_atomic_lat -A CMP_AND_SWAP -n 200",
}

// chosen are the cells of this run.
func chosen() []cell {
	all := cells()
	if stage.Long() {
		return all
	}
	return slices.DeleteFunc(all, func(c cell) bool { return !c.short })
}
