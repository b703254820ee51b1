// SPDX-License-Identifier: Apache-2.0

//go:build vm

package field

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// older is the row of matrix.toml with the oldest guests. The default row has the newest.
const older = "debian12"

// TestGuestsOfTwoDistributionsTalkToTheirLikeAndToEachOther: two guests are of the older distribution, one of the newer.
func TestGuestsOfTwoDistributionsTalkToTheirLikeAndToEachOther(t *testing.T) {
	s := stage.New(t, bed.Options{Guests: 3, Rows: []string{older, older}})
	s.LoadDrivers(t)
	before := s.Objects(t)
	for _, c := range []struct {
		name string
		pair stage.Pair
	}{
		{"older and older", stage.Pair{Server: 0, Client: 1}},
		{"older serves newer", stage.Pair{Server: 0, Client: 2}},
		{"newer serves older", stage.Pair{Server: 2, Client: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			talk(t, s, c.pair)
			s.Pvcheck(t, c.pair, "--errors")
		})
	}
	s.CheckObjects(t, before)
	s.CheckKernelLogs(t)
	s.CheckDaemon(t)
}

// talk runs the library's own program and the payload check between two guests, polled and with events.
func talk(t *testing.T, s *stage.Stage, p stage.Pair) {
	t.Helper()
	for _, options := range []string{"-s 1 -n 100", "-s 65536 -n 50 -e", "-s 1048576 -n 20"} {
		s.Pingpong(t, p, options)
	}
	s.Pvcheck(t, p, "-n 300")
	s.Pvcheck(t, p, "-n 200 -e")
}
