// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns two guests, the first of which has one object of each kind.
func pair(t *testing.T) (g, other *Guest, q QP) {
	t.Helper()
	h := NewHost(t)
	t.Cleanup(h.Close)
	g, other = h.Guest(Options{Name: "a"}), h.Guest(Options{Name: "b"})
	other.Probe()
	g.Probe()
	g.Bind(0)
	ctx := g.UC(1)
	pd, cq := g.PD(ctx), g.CQ(ctx, 64)
	g.MR(pd, 1, 2)
	return g, other, g.QP(pd, cq.Handle, cq.Handle, "RC")
}

func TestAStateDoesNotChangeByItself(t *testing.T) {
	g, other, _ := pair(t)
	before := g.State()
	for range 100 {
		if diff := before.Diff(g.State()); diff != "" {
			t.Fatalf("nothing has happened, and the state differs:\n%s", diff)
		}
	}
	if n := before.Len(); n < 400 {
		t.Errorf("a state of %d values can hardly hold two guests", n)
	}
	if !other.State().Mentions("MaxUAR") {
		t.Error("the state of the other guest has no configuration")
	}
}

// TestAStateSeesEveryChange plants a change of each kind, at either guest.
func TestAStateSeesEveryChange(t *testing.T) {
	g, other, q := pair(t)
	last := g.State()
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"a context", func() { g.UC(2) }},
		{"a domain", func() { g.PD(0) }},
		{"a queue", func() { g.CQ(0, 64) }},
		{"a region", func() { g.MR(1, 1, 1) }},
		{"a GID", func() { g.Bind(1) }},
		{"an attribute", func() { g.Must(g.ToInit(q.Handle), "", "") }},
		{"an attribute again", func() { g.Must(g.ToInit(q.Handle).Set("attrs.qp_access_flags", 1), "", "") }},
		{"a domain less", func() { g.Must(g.Request("destroy_pd").Set("pd_handle", 2), "", "") }},
		{"a register", func() { g.SetReg("DSRLOW", 0x1000) }},
		{"the mask of interrupts", func() { g.SetReg("IMR", 1) }},
		{"the bus master bit", func() { g.BusMaster(false) }},
		{"the other guest's domain", func() { other.PD(0) }},
		{"the other guest's reset", func() { other.Control("RESET") }},
	} {
		c.do()
		now := g.State()
		if last.Diff(now) == "" {
			t.Errorf("%s is not seen", c.name)
		}
		last = now
	}
}

// TestWhatAStateLeavesOutIsThere: a list of exceptions that names what is gone hides nothing, but says so.
func TestWhatAStateLeavesOutIsThere(t *testing.T) {
	g, _, _ := pair(t)
	w := walker{seen: map[uintptr]int{}, passed: map[string]bool{}}
	g.still(func() { w.walk(reflect.ValueOf(g.Device)) })
	for name := range passing {
		if !w.passed[name] {
			t.Errorf("the state leaves out %s, which it never meets", name)
		}
	}
}

func TestADifferenceSaysWhatChangedAndDoesNotFloodTheLog(t *testing.T) {
	a := State{lines: []string{"same 1", "x 1"}}
	if d := a.Diff(State{lines: []string{"same 1", "x 2"}}); d != "- x 1\n+ x 2" {
		t.Errorf("the difference is %q", d)
	}
	many := State{lines: slices.Repeat([]string{strings.Repeat("p", 500) + " 1"}, 50)}
	if d := a.Diff(many); len(d) > 14*130 {
		t.Errorf("a difference of %d bytes", len(d))
	}
}
