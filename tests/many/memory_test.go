// SPDX-License-Identifier: Apache-2.0

package many

import (
	"runtime"
	"testing"
)

// Bytes of the daemon's memory that an object may take, all that it leads to included.
const (
	bytesPerQP    = 4096
	bytesPerMR    = 512
	bytesPerGuest = 20 << 20
)

// heap is what is allocated and can be reached.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAGuestsObjectsTakeLittleMemory(t *testing.T) {
	c := newCrowd(newHost(t), "a")
	c.makeQPs(1)
	c.makeMRs(1)
	c.makeCQs(1)
	for _, kind := range []struct {
		name string
		make func(n int)
		n    int
		most uint64
	}{
		{"queue pair", c.makeQPs, manyQPs, bytesPerQP},
		{"memory region", c.makeMRs, manyMRs, bytesPerMR},
		{"completion queue", c.makeCQs, manyQPs, bytesPerQP},
	} {
		before := heap()
		kind.make(kind.n)
		each := (heap() - before) / uint64(kind.n)
		t.Logf("a %s takes %d bytes", kind.name, each)
		if each > kind.most {
			t.Errorf("a %s takes %d bytes, want %d at most", kind.name, each, kind.most)
		}
	}

	before := heap()
	c.Must(c.Request("destroy_uc").Set("ctx_handle", uint64(c.ctx)), "", "")

	if now := heap(); before-now < manyQPs*1024 {
		t.Errorf("%d bytes are allocated after the process ended, %d were before", now, before)
	}
	if o := c.Fn.Objects(); o.QPs != 0 || o.MRs != 0 {
		t.Errorf("the process has ended, and left %+v", o)
	}
}

func TestAnIdleGuestTakesLittleMemory(t *testing.T) {
	h := newHost(t)
	const guests = 64
	before := heap()
	for i := range guests {
		newCrowd(h, string(rune('A'+i)))
	}

	each := (heap() - before) / guests

	t.Logf("an idle guest takes %d bytes", each)
	if each > bytesPerGuest {
		t.Errorf("an idle guest takes %d bytes, want %d at most", each, bytesPerGuest)
	}
}
