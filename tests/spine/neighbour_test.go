// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// neighbour runs messages within guest b for as long as the test does something to guest a. What is done to a must not
// be felt by b: at the end all of b's messages have arrived whole and on time, and more arrive.
func (d *daemon) neighbour() *neighbour {
	d.t.Helper()
	p := d.guest("b").Open()
	shape := testguest.Shape{Mode: verbs.Events}
	x, y := p.Endpoint(shape), p.Endpoint(shape)
	testguest.Connect(x, y)
	n := &neighbour{d: d, flow: testguest.StartFlow(x, y, 4000, 300*time.Microsecond)}
	d.t.Cleanup(n.check)
	return n
}

type neighbour struct {
	d       *daemon
	flow    *testguest.Flow
	checked bool
}

// check ends the neighbour's messages.
func (n *neighbour) check() {
	n.d.t.Helper()
	if n.checked {
		return
	}
	n.checked = true
	n.d.alive()
	count, err := n.flow.Stop()
	if err != nil {
		n.d.t.Errorf("the other guest was disturbed after %d messages: %v", count, err)
	}
	x, y := n.flow.From, n.flow.To
	recv := y.Recv(0, 100)
	x.Sent(x.Send(0, 100), "SUCCESS")
	y.Received(recv, "SUCCESS")
}
