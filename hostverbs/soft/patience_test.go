// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

func TestARequestThatNobodyReceivesIsTriedEverMoreRarely(t *testing.T) {
	// Arrange: a peer without receives, a timer of 10 us, and tries without end.
	r := newRig(1 << 20)
	r.db.none = true
	r.prepare(hostverbs.OpSend, 64, 1)
	if n := r.qa.PostSend(r.wrs); n != 1 {
		t.Fatalf("PostSend took %d requests", n)
	}

	// Act: ten seconds, with a look whenever the engine asks for one.
	tries := 0
	end := r.now + int64(10*time.Second)
	for r.now < end {
		worked, next := r.p.Progress(r.now)
		if worked {
			t.Fatal("a try in vain counts as work, so that the owner never sleeps")
		}
		if next == 0 {
			t.Fatal("the request is forgotten")
		}
		tries++
		r.now = max(next, r.now+1)
	}

	// Assert
	if tries > 600 {
		t.Errorf("%d tries in 10 s, want a few hundred", tries)
	}

	// And it is not given up: a receive that comes late completes it, late by an eighth of the wait at most.
	r.db.none = false
	late := r.now + int64(1500*time.Millisecond)
	for done := false; !done; {
		worked, next := r.p.Progress(r.now)
		done = worked
		if r.now = max(next, r.now+1); r.now > late {
			t.Fatal("the message does not arrive after its receive was posted")
		}
	}
}
