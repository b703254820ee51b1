// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What perftest 25.01 writes.
const (
	bandwidth = `
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      500              1011.52            903.16		     0.014451
---------------------------------------------------------------------------------------
`
	latency = `
 local address: LID 0000 QPN 0x0011 PSN 0x7e7a6d RKey 0x000700 VAddr 0x007f3c1b7e3000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      500          31.00          1912.35      55.50    	       61.98       	-nan		160.01  		1912.35
`
)

func TestTheLineOfFiguresIsRead(t *testing.T) {
	for _, c := range []struct {
		out  string
		want Result
	}{
		{bandwidth, Result{Bytes: 65536, Iterations: 500, MiBps: 903.16, Mpps: 0.014451}},
		{latency, Result{Bytes: 64, Iterations: 500, Typical: 55.5, P99: 160.01}},
	} {
		got, err := Parse(c.out)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestOutputWithoutFiguresIsAnError(t *testing.T) {
	for _, out := range []string{
		"", "Couldn't listen to port 18515\n", strings.ReplaceAll(bandwidth, "0.014451", "0.000000"),
		strings.ReplaceAll(latency, "55.50", "-nan"),
	} {
		if got, err := Parse(out); err == nil {
			t.Errorf("%q gave %+v", out, got)
		}
	}
}

func TestARunWithoutAClockIsToldApart(t *testing.T) {
	const busy = " 64      200          inf            inf          inf      	       inf         	-nan   		inf     		inf\n"
	for _, out := range []string{busy, strings.NewReplacer("1011.52", "inf", "903.16", "inf").Replace(bandwidth)} {
		if got, err := Parse(out); !errors.Is(err, ErrNoClock) {
			t.Errorf("%q gave %+v, %v", out, got, err)
		}
	}
}
