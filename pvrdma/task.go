// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// task is one call of Do on its way to the worker and back.
type task struct {
	fn    func()
	panic any
	// state is one of the constants below. The caller and the worker write it.
	state atomic.Uint32
}

// Values of task.state.
const (
	taskOpen  uint32 = iota
	taskSlept        // the caller sleeps until it is done
	taskDone
)

// spinLooks is how often a caller of Do looks whether a worker that polls has come to its task, some microseconds, before
// it sleeps: as long as a pass takes.
const spinLooks = 10_000

// Do implements hostverbs.Owner. A panic of fn is raised again on the calling goroutine. After Close, when there is no
// thread to exclude, fn runs on the caller's.
//
// A worker that sleeps is not woken: the caller takes its place until fn is done.
func (w *Worker) Do(fn func()) {
	if w.isHere() {
		w.runNow(fn)
		return
	}
	if w.idle.borrow() {
		w.runInPlace(fn)
		return
	}
	t := &task{fn: fn}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.done
		w.runNow(fn)
		return
	}
	w.tasks = append(w.tasks, t)
	w.mu.Unlock()
	w.pending.Add(1)
	w.idle.wake()
	t.wait(w.idle.spin > 0)
	if t.panic != nil {
		panic(t.panic)
	}
}

// Barrier returns when neither the worker nor another that shares its engine is still at what it did before the call. Not on a
// worker's thread.
func (w *Worker) Barrier() {
	w.Do(func() {})
	w.provider.Barrier()
}

// tell is Do for who must not wait, another worker for example: fn runs soon, on the worker's thread. It does not panic.
func (w *Worker) tell(fn func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.done
		w.runNow(fn)
		return
	}
	w.tasks = append(w.tasks, &task{fn: fn})
	w.mu.Unlock()
	w.pending.Add(1)
	w.idle.wake()
}

// isHere reports whether the caller is on the worker's thread, or has taken its place. Only a goroutine that is locked to its
// thread may compare: another one could be moved to a second thread between the two numbers, and the first be the thread
// of who takes the worker's place meanwhile.
func (w *Worker) isHere() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return int32(unix.Gettid()) == w.tid.Load()
}

// runNow runs fn and shows the completions that it has made.
func (w *Worker) runNow(fn func()) {
	defer w.show()
	fn()
}

// runInPlace runs fn on the caller's thread, which is the worker's meanwhile: the worker's own waits. It makes a pass
// afterwards, and has the worker go on if that finds work, or a reason to sleep for less time.
func (w *Worker) runInPlace(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	again := true
	own := w.tid.Swap(int32(unix.Gettid()))
	defer func() {
		w.tid.Store(own)
		w.idle.giveBack(again)
	}()
	w.runNow(fn)
	now := w.clock()
	worked, next := w.pass(now)
	again = worked || earlier(next, now+w.maxSleep) < w.idle.until.Load()
}

// runTasks runs what Do has queued and reports whether the worker is closed.
func (w *Worker) runTasks() (closed bool) {
	// Before the look at the queue: what is queued after the look counts again.
	w.pending.Store(0)
	w.mu.Lock()
	tasks := w.tasks
	w.tasks = nil
	closed = w.closed
	w.mu.Unlock()
	for _, t := range tasks {
		t.run(w)
	}
	return closed
}

func (t *task) run(w *Worker) {
	defer t.finish()
	defer func() { t.panic = recover() }()
	w.runNow(t.fn)
}

// finish tells the caller. Not by a channel: the runtime would queue the caller behind the worker, which never yields.
func (t *task) finish() {
	if t.state.Swap(taskDone) == taskSlept {
		futexWake(&t.state)
	}
}

// wait returns when the task is done.
func (t *task) wait(spin bool) {
	for n := 0; spin && n < spinLooks; n++ {
		if t.state.Load() == taskDone {
			return
		}
	}
	if !t.state.CompareAndSwap(taskOpen, taskSlept) {
		return
	}
	for t.state.Load() != taskDone {
		futexWait(&t.state, taskSlept, forever)
	}
}
