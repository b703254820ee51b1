// SPDX-License-Identifier: Apache-2.0

// Package perf runs perftest, the field's own measuring programs, in virtual machines: every operation, between guests
// and beside the kernel's software RoCE.
//
// Its figures are those of emulated processors that share two real ones with the daemon. They compare, and no more.
package perf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Result is the line of figures that perftest ends with.
type Result struct {
	// Bytes is the size of a message, Iterations how many there were.
	Bytes, Iterations int
	// MiBps is the bandwidth on average, in MiB/s; Mpps are millions of messages in a second. 0 if latency was measured.
	MiBps, Mpps float64
	// Typical is the median of half a round trip (of a whole one for READ and atomics) and P99 the 99th percentile, in
	// microseconds. 0 if bandwidth was measured.
	Typical, P99 float64
}

// smallMessage is up to how many bytes messages in a second say more than bytes in a second, of which perftest prints two
// decimals.
const smallMessage = 4096

// Figure is what a measurement is about: MiB/s, or millions of small messages in a second, or the median in
// microseconds.
func (r Result) Figure() float64 {
	switch {
	case r.Mpps == 0:
		return r.Typical
	case r.Bytes <= smallMessage:
		return r.Mpps
	}
	return r.MiBps
}

// String is a cell of a table.
func (r Result) String() string {
	switch {
	case r.Mpps == 0:
		return fmt.Sprintf("%.0f us (p99 %.0f)", r.Typical, r.P99)
	case r.Bytes <= smallMessage:
		return fmt.Sprintf("%.1f k/s", 1000*r.Mpps)
	}
	return fmt.Sprintf("%.0f MiB/s", r.MiBps)
}

// Columns of perftest's lines: bytes, iterations, then peak, average and rate; or minimum, maximum, typical, average,
// deviation and two percentiles.
const (
	bandwidthColumns = 5
	latencyColumns   = 9
)

// ErrNoClock says that perftest could not tell how fast the processor's clock runs, which it measures over a few
// milliseconds: that fails if the machine is busy. All its figures are inf then, and the run says nothing.
var ErrNoClock = errors.New("perftest did not find out how fast the clock runs")

// Parse reads what perftest wrote. It leaves out the deviation, which perftest itself gives as -nan at times.
func Parse(out string) (Result, error) {
	for line := range strings.Lines(out) {
		columns := strings.Fields(line)
		switch len(columns) {
		case bandwidthColumns, latencyColumns:
			if columns[3] == "inf" {
				return Result{}, ErrNoClock
			}
		}
		switch len(columns) {
		case bandwidthColumns:
			if n, ok := numbers(columns, 0, 1, 3, 4); ok && n[3] > 0 {
				return Result{Bytes: int(n[0]), Iterations: int(n[1]), MiBps: n[2], Mpps: n[3]}, nil
			}
		case latencyColumns:
			if n, ok := numbers(columns, 0, 1, 4, 7); ok && n[2] > 0 {
				return Result{Bytes: int(n[0]), Iterations: int(n[1]), Typical: n[2], P99: n[3]}, nil
			}
		}
	}
	return Result{}, fmt.Errorf("no line of figures in what perftest wrote:\n%s", out)
}

// numbers returns some columns of a line, and whether they are numbers that perftest can have measured.
func numbers(columns []string, which ...int) ([]float64, bool) {
	var n []float64
	for _, i := range which {
		v, err := strconv.ParseFloat(columns[i], 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return nil, false
		}
		n = append(n, v)
	}
	return n, true
}
