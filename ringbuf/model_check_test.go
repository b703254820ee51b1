// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// at is a step of a hand-written history.
func at(client int, call, back int64, x step) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: x, Call: call, Return: back}
}

func in(n int, ok bool) step { return step{kind: push, value: element(0, n), ok: ok} }
func seen(n int) step        { return step{kind: show, value: element(0, n)} }
func out(n int, ok bool, count int) step {
	return step{kind: pop, value: element(0, n), ok: ok, count: uint8(count)}
}
func free(count int) step    { return step{kind: release, count: uint8(count)} }
func nothing(count int) step { return step{kind: pop, count: uint8(count)} }

func TestTheSpecificationTellsRightFromWrong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []porcupine.Operation
		want  bool
	}{
		{"one in, one out", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(0, 3, 4, seen(1)), at(1, 5, 6, out(1, true, 0))}, true},
		{"out before in", []porcupine.Operation{at(1, 1, 2, out(1, true, 0)), at(0, 3, 4, in(1, true)), at(0, 5, 6, seen(1))}, false},
		{"out while it goes in", []porcupine.Operation{at(1, 1, 9, out(1, true, 0)), at(0, 3, 4, in(1, true)), at(0, 5, 6, seen(1))}, true},
		{"out before it is shown", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(1, 3, 4, out(1, true, 0)), at(0, 5, 6, seen(1))}, false},
		{"nothing while it is hidden", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(1, 3, 4, nothing(0)), at(0, 5, 6, seen(1))}, true},
		{"nothing though it is shown", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(0, 3, 4, seen(1)), at(1, 5, 6, nothing(0))}, false},
		{"the second first", []porcupine.Operation{
			at(0, 1, 2, in(1, true)), at(0, 3, 4, in(2, true)), at(0, 5, 6, seen(2)), at(1, 7, 8, out(2, true, 0)),
		}, false},
		{"the same twice", []porcupine.Operation{
			at(0, 1, 2, in(1, true)), at(0, 3, 4, seen(1)), at(1, 7, 8, out(1, true, 0)), at(1, 9, 10, out(1, true, 1)),
		}, false},
		{"torn", []porcupine.Operation{
			at(0, 1, 2, in(1, true)), at(0, 3, 4, seen(1)), at(1, 5, 6, step{kind: pop, value: torn, ok: true}),
		}, false},
		{"three into two", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(0, 3, 4, in(2, true)), at(0, 5, 6, in(3, true))}, false},
		{"full with one of two", []porcupine.Operation{at(0, 1, 2, in(1, true)), at(0, 3, 4, in(2, false))}, false},
		{"full before the release", []porcupine.Operation{
			at(0, 1, 2, in(1, true)), at(0, 3, 4, in(2, true)), at(0, 5, 6, seen(2)), at(1, 7, 8, out(1, true, 0)),
			at(0, 9, 10, in(3, false)), at(1, 11, 12, free(1)), at(0, 13, 14, in(3, true)),
		}, true},
		{"full after the release", []porcupine.Operation{
			at(0, 1, 2, in(1, true)), at(0, 3, 4, in(2, true)), at(0, 5, 6, seen(2)), at(1, 7, 8, out(1, true, 0)),
			at(1, 9, 10, free(1)), at(0, 11, 12, in(3, false)),
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := history{size: 2, steps: tt.steps}
			if got := h.linearizable(); got != tt.want {
				t.Errorf("linearizable is %v, want %v: %v", got, tt.want, h)
			}
		})
	}
}

func TestOverlapIsCountedBetweenClientsOnly(t *testing.T) {
	x := in(1, true)
	for _, tt := range []struct {
		name  string
		steps []porcupine.Operation
		want  int
	}{
		{"one after the other", []porcupine.Operation{at(0, 1, 2, x), at(1, 3, 4, x)}, 0},
		{"one begins when the other ends", []porcupine.Operation{at(0, 1, 2, x), at(1, 2, 4, x)}, 0},
		{"two of one client", []porcupine.Operation{at(0, 1, 4, x), at(0, 2, 5, x)}, 0},
		{"one in the other, and a third", []porcupine.Operation{at(0, 1, 4, x), at(1, 2, 3, x), at(2, 5, 6, x)}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := overlapping(tt.steps); got != tt.want {
				t.Errorf("%d steps overlap, want %d", got, tt.want)
			}
		})
	}
}

func TestAHistoryIsPrintedInTheOrderOfItsCalls(t *testing.T) {
	h := history{size: 2, steps: []porcupine.Operation{at(1, 5, 6, out(1, true, 0)), at(0, 1, 2, in(1, true))}}
	got := h.String()
	if p, q := strings.Index(got, "push 0.1 true"), strings.Index(got, "pop 0.1 true"); p < 0 || q < p {
		t.Errorf("printed as %s", got)
	}
}
