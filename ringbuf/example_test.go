// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// A device empties a send queue: the guest's index is looked at once and checked before it is used.
func ExampleRing() {
	ring, err := ringbuf.NewRing(4)
	if err != nil {
		fmt.Println(err)
		return
	}
	cons := uint32(6) // our own index, kept where no guest can write
	prod := uint32(1) // what the guest's memory said

	n, ok := ring.Pending(prod, cons)
	fmt.Println(n, ok)
	for range n {
		fmt.Println("slot", ring.Slot(cons))
		cons = ring.Inc(cons)
	}

	_, ok = ring.Pending(8, cons) // no index of a ring of 4
	fmt.Println(ok)
	_, ok = ring.Pending(0, cons) // 7 entries in a ring of 4
	fmt.Println(ok)
	// Output:
	// 3 true
	// slot 2
	// slot 3
	// slot 0
	// false
	// false
}

// The ring of asynchronous events has three pages of 8-byte entries, but the driver uses a third of them.
func ExampleEventRing() {
	ring, err := ringbuf.NewEventRing(3 * 4096 / 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ring.Slots(), ring.Capacity())
	fmt.Println(ring.Full(512, 0), ring.Inc(1023))
	// Output:
	// 1536 512
	// true 0
}

// A batch travels with one store that the consumer looks at.
func ExampleSPSC() {
	q, err := ringbuf.NewSPSC[string](8)
	if err != nil {
		fmt.Println(err)
		return
	}
	q.Push("one")
	q.Push("two")
	_, ok := q.Pop()
	fmt.Println(ok)
	q.Publish()
	for s, ok := q.Pop(); ok; s, ok = q.Pop() {
		fmt.Println(s)
	}
	q.Release()
	// Output:
	// false
	// one
	// two
}

// A batch costs one store of an index on each side, however long it is.
func ExampleSPSC_PushBatch() {
	q, err := ringbuf.NewSPSC[int](4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(q.PushBatch([]int{1, 2, 3, 4, 5})) // one too many
	dst := make([]int, 8)
	fmt.Println(dst[:q.PopBatch(dst)])
	// Output:
	// 4
	// [1 2 3 4]
}

// Several goroutines hand tasks to one, which is woken if it sleeps. The bell is rung after the push, and the consumer
// pops until there is nothing: no task is left lying.
func ExampleMPSC() {
	tasks, err := ringbuf.NewMPSC[func()](16)
	if err != nil {
		fmt.Println(err)
		return
	}
	bell := make(chan struct{}, 1)
	var producers sync.WaitGroup
	var sum atomic.Int64
	for n := range int64(10) {
		producers.Go(func() {
			for !tasks.Push(func() { sum.Add(n) }) {
				runtime.Gosched() // full
			}
			select {
			case bell <- struct{}{}:
			default: // it rings already
			}
		})
	}
	for done := 0; done < 10; {
		<-bell
		for task, ok := tasks.Pop(); ok; task, ok = tasks.Pop() {
			task()
			done++
		}
		tasks.Release()
	}
	producers.Wait()
	fmt.Println(sum.Load())
	// Output:
	// 45
}
