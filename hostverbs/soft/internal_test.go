// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

func TestAQueuePairIsSmall(t *testing.T) {
	const limit = 2048
	if n := reflect.TypeFor[qp]().Size(); n > limit {
		t.Errorf("a queue pair takes %d bytes, more than %d", n, limit)
	}
}

func TestRNRTimerCodesAreThoseOfTheManual(t *testing.T) {
	// ibv_modify_qp(3), in milliseconds.
	ms := [32]float64{
		655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
		2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
	}
	for code, want := range ms {
		if got := time.Duration(rnrDelay(uint8(code))); got != time.Duration(want*1000+0.5)*time.Microsecond {
			t.Errorf("code %d: %v, want %v ms", code, got, want)
		}
	}
}

func TestTimeoutCodesArePowersOfTwoOf4Microseconds(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 8796093022208 * time.Nanosecond,
	} {
		if got := time.Duration(ackTimeout(code)); got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}

func TestQPNumbersWrapAroundThoseInUse(t *testing.T) {
	p := newQPNPool()
	first, err := p.take()
	if err != nil || first != firstQPN {
		t.Fatalf("the first number is %#x, %v", first, err)
	}
	p.next = lastQPN
	for _, want := range []uint32{lastQPN, firstQPN + 1, firstQPN + 2} {
		if n, err := p.take(); err != nil || n != want {
			t.Errorf("got %#x, %v; want %#x", n, err, want)
		}
	}
	p.give(first)
	if n, err := p.take(); err != nil || n != firstQPN+3 {
		t.Errorf("a freed number is used at once: %#x, %v", n, err)
	}
}

func TestAKeyMatchesNothingUntilItsSlotWasUsedOften(t *testing.T) {
	var tab keyTable
	const limit = 4
	seen := map[uint32]int{}
	for i := range keyGenMask {
		key, grown, err := tab.reserve(limit, false)
		if err != nil {
			t.Fatal(err)
		}
		if grown != nil {
			tab.slots = grown
		}
		if before, ok := seen[key]; ok || key == 0 {
			t.Fatalf("key %#x of registration %d was there at %d", key, i, before)
		}
		seen[key] = i
		m := &mr{id: key, key: key}
		tab.set(m)
		if tab.find(key) != m || tab.find(key^1) != nil || tab.find(key^1<<keyGenBits) != nil {
			t.Fatalf("key %#x finds the wrong region", key)
		}
		tab.unset(m)
		if tab.find(key) != nil {
			t.Fatalf("key %#x finds a region that is gone", key)
		}
		tab.release(key)
	}
}

func TestAKeyOfARegionForFastRegistrationComesBackAfterAllOthersOfItsSlot(t *testing.T) {
	const all = keyGenMask / (keyByteMask + 1)
	gen, seen := uint16(0), map[uint16]int{}
	for i := range 2 * all {
		use, last := nextGen(gen, true)
		if use&keyByteMask != 0 || last != use|keyByteMask || use == 0 {
			t.Fatalf("region %d has the generations %#x to %#x", i, use, last)
		}
		if before, there := seen[use]; there != (i >= all) || there && before != i-all {
			t.Fatalf("generation %#x of region %d was there at %d, want %d others between the two", use, i, before, all-1)
		}
		seen[use] = i
		gen = last
	}
}

func TestTheKeyTableGrowsToItsLimit(t *testing.T) {
	var tab keyTable
	all := map[uint32]*mr{}
	for range maxMR {
		key, grown, err := tab.reserve(maxMR, false)
		if err != nil {
			t.Fatal(err)
		}
		if grown != nil {
			tab.slots = grown
		}
		m := &mr{id: key, key: key}
		tab.set(m)
		all[key] = m
	}
	if _, _, err := tab.reserve(maxMR, false); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("one too many: %v, want ENOMEM", err)
	}
	if len(all) != maxMR {
		t.Errorf("%d keys for %d regions", len(all), maxMR)
	}
	for key, m := range all {
		if tab.find(key) != m {
			t.Fatalf("key %#x finds the wrong region", key)
		}
	}
	if tab.find(0) != nil || tab.find(1<<32-1) != nil {
		t.Error("keys of nothing find a region")
	}
}

func TestTurnsGoRoundGuestsAndTheirQueuePairs(t *testing.T) {
	var tr turns
	var a, b context
	qs := map[string]*qp{"a1": {ctx: &a}, "a2": {ctx: &a}, "a3": {ctx: &a}, "b1": {ctx: &b}, "b2": {ctx: &b}}
	names := map[*qp]string{}
	for _, n := range []string{"a1", "a2", "a3", "b1", "b2"} {
		names[qs[n]] = n
		tr.push(qs[n])
	}
	tr.remove(qs["a2"])
	tr.remove(qs["a2"])
	var got []string
	for tr.n > 0 {
		q := tr.next().waiting.head
		tr.remove(q)
		got = append(got, names[q])
		if names[q] == "a1" && len(got) == 1 {
			tr.push(q)
		}
	}
	want := []string{"a1", "b1", "a3", "b2", "a1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("turns %v, want %v", got, want)
	}
	if tr.guests.n != 0 || tr.guests.head != nil || a.waiting.tail != nil {
		t.Error("the lists are not empty")
	}
}

func TestPacketsOfAMessage(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		mtu  hostverbs.MTU
		want uint32
	}{{0, hostverbs.MTU256, 1}, {1, hostverbs.MTU256, 1}, {256, hostverbs.MTU256, 1}, {257, hostverbs.MTU256, 2}, {1 << 31, hostverbs.MTU256, 1 << 23}} {
		if got := packets(c.n, c.mtu); got != c.want {
			t.Errorf("%d bytes at %s: %d packets, want %d", c.n, c.mtu, got, c.want)
		}
	}
}
