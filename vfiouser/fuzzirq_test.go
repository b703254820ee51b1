// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// irqModel is what testdata/cases.md says of interrupts, written down a second time and in the plainest way: vectors
// point to one of a few eventfds, of which the model knows how often each was signalled.
type irqModel struct {
	vectors [NumIRQs][]modelVector
	signals [irqPool]uint64
}

type modelVector struct {
	to              int // index of the eventfd, -1 for none
	masked, latched bool
}

const (
	irqPool     = 4       // eventfds
	irqNoEvent  = irqPool // a file that is none
	irqSelector = irqPool + 1
)

func newIRQModel(counts [NumIRQs]uint32) *irqModel {
	m := &irqModel{}
	for i, n := range counts {
		for range n {
			m.vectors[i] = append(m.vectors[i], modelVector{to: -1})
		}
	}
	return m
}

func (m *irqModel) raise(index IRQIndex, vector uint32) {
	if index >= NumIRQs || vector >= uint32(len(m.vectors[index])) {
		return
	}
	m.vectors[index][vector].latched = true
	m.deliver(index, vector)
}

func (m *irqModel) deliver(index IRQIndex, vector uint32) {
	v := &m.vectors[index][vector]
	if v.latched && !v.masked && v.to >= 0 {
		m.signals[v.to]++
		v.latched = false
		v.masked = index == IRQINTx
	}
}

func (m *irqModel) reset() {
	for _, vs := range m.vectors {
		for i := range vs {
			vs[i].latched = false
		}
	}
}

// refusal returns the errno with which a payload with files has to be refused, 0 if it must not be.
func (m *irqModel) refusal(p []byte, files []int) unix.Errno {
	if len(p) < 20 {
		return unix.EINVAL
	}
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(p[4*i:])) }
	argsz, flags, index, start, count := word(0), word(1), word(2), word(3), word(4)
	data, action, bools := flags&7, flags&0x38, uint64(len(p)-20)
	one := func(f uint64) bool { return f == 1 || f == 2 || f == 4 || f == 8 || f == 16 || f == 32 }
	n := uint64(len(files))
	switch {
	case argsz < 20, flags > 0x3f, !one(data), !one(action), index >= NumIRQs:
	case count == 0 && (data != 1 || action != 32 || start != 0):
	case data == 2 && bools != count, data != 2 && bools != 0:
	case n != 0 && (data != 4 || n != count):
	case index >= 3 && action != 32:
	case data == 4 && action != 32:
		return unix.EOPNOTSUPP
	case start+count > uint64(len(m.vectors[index])):
	default:
		for _, f := range files {
			if f == irqNoEvent {
				return unix.EINVAL
			}
		}
		return 0
	}
	return unix.EINVAL
}

// set does what a payload that is not refused says.
func (m *irqModel) set(p []byte, files []int) {
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(p[4*i:]) }
	flags, index, start, count := word(1), IRQIndex(word(2)), word(3), word(4)
	if count == 0 {
		for i := range m.vectors[index] {
			m.vectors[index][i].to, m.vectors[index][i].masked = -1, false
		}
		return
	}
	for i := range count {
		v := &m.vectors[index][start+i]
		switch {
		case flags&4 != 0:
			v.to = -1
			if len(files) > 0 {
				v.to = files[i]
				m.deliver(index, start+i)
			}
		case flags&2 != 0 && p[20+i] == 0:
		case flags&32 != 0:
			m.raise(index, start+i)
		default:
			v.masked = flags&8 != 0
			m.deliver(index, start+i)
		}
	}
}

// irqRun is one input's run: a session without a socket, the model beside it, and the client's files.
type irqRun struct {
	t     testing.TB
	s     *Session
	seen  *ledger
	model *irqModel
	pool  [irqSelector]int
}

// bareSession returns a session whose messages come from the test and not from a socket, after its handshake.
func bareSession(t testing.TB) (*Session, *ledger) {
	t.Helper()
	d := newRecordingDevice(0)
	seen := &ledger{t: t, device: d}
	s := &Session{
		cfg: Config{Open: func(*Session) (Device, error) { return d, nil }}, obs: seen,
		link: &link{out: make([]byte, headerSize, headerSize+regionAccessSize+MaxTransfer)}, shook: true,
	}
	s.irqs.signal.prepare(func() { t.Error("an eventfd blocks") })
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s, seen
}

// take has a session handle a message as if it had come from a socket, and returns the errno that the client would be
// told.
func (s *Session) take(c Command, body []byte, fds ...int) unix.Errno {
	m := &message{header: header{command: c, flags: headerNoReply}, body: body}
	for _, fd := range fds {
		m.fds.add(fd)
	}
	var got unix.Errno
	_, err := s.dispatch(m)
	m.fds.close()
	if err != nil {
		got = errnoOf(err)
		s.refused(m, err, false)
	}
	s.obs.Handled(Handling{Command: c, Errno: got})
	return got
}

// dup returns copies of files of the pool.
func (r *irqRun) dup(files []int) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fd, err := unix.FcntlInt(uintptr(r.pool[f]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		fds[i] = fd
	}
	return fds
}

// compare checks that the eventfds have been signalled as the model says, and no more.
func (r *irqRun) compare(after string) {
	r.t.Helper()
	for i := range irqPool {
		if got := readEvents(r.t, r.pool[i]); got != r.model.signals[i] {
			r.t.Errorf("after %s, eventfd %d has %d signals, want %d", after, i, got, r.model.signals[i])
		}
		r.model.signals[i] = 0
	}
}

// playIRQs plays a sequence of steps: interrupts raised by the device, resets, and SET_IRQS with any payload.
func playIRQs(t testing.TB, data []byte) {
	before := takeCensus(t)
	r := &irqRun{t: t}
	r.s, r.seen = bareSession(t)
	r.model = newIRQModel(r.seen.device.irqs)
	for i := range r.pool {
		var err error
		if r.pool[i], err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); i == irqNoEvent {
			_ = unix.Close(r.pool[i])
			r.pool[i], err = unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	for len(data) >= 3 {
		a, b, rest := data[1], data[2], data[3:]
		switch data[0] % 4 {
		case 0:
			r.s.Trigger(IRQIndex(a%6), uint32(b%5))
			r.model.raise(IRQIndex(a%6), uint32(b%5))
			r.compare("an interrupt")
		case 1:
			r.s.take(CommandDeviceReset, nil)
			r.model.reset()
			r.compare("a reset")
		default:
			n, size := min(int(a%(MaxMessageFDs+1)), len(rest)), int(b%64)
			files := make([]int, n)
			for i, sel := range rest[:n] {
				files[i] = int(sel) % irqSelector
			}
			body := rest[n:][:min(size, len(rest)-n)]
			rest = rest[n+len(body):]
			r.set(body, files)
		}
		data = rest
	}

	r.s.irqs.close()
	r.compare("the end")
	for _, fd := range r.pool {
		_ = unix.Close(fd)
	}
	before.check(t)
}

// set sends a SET_IRQS to session and model.
func (r *irqRun) set(body []byte, files []int) {
	r.t.Helper()
	want := r.model.refusal(body, files)
	got := r.s.take(CommandDeviceSetIRQs, body, r.dup(files)...)
	if got != want {
		r.t.Errorf("SET_IRQS % x with files %v: got errno %v, want %v", body, files, got, want)
		return
	}
	if want == 0 {
		r.model.set(body, files)
	}
	r.compare("SET_IRQS")
}

func FuzzSetIRQs(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { playIRQs(t, data) })
}

// irqStep is a step of playIRQs that sends a frame with files of the pool.
func irqStep(f frame, files ...byte) []byte {
	return append(append([]byte{2, byte(len(files)), byte(len(f.body))}, files...), f.body...)
}

// irqSeeds returns the inputs from which FuzzSetIRQs starts: each payload that is refused, and stories of those that are
// not.
func irqSeeds() map[string][]byte {
	raise := func(index IRQIndex, vector byte) []byte { return []byte{0, byte(index), vector} }
	join := func(steps ...[]byte) (all []byte) {
		for _, s := range steps {
			all = append(all, s...)
		}
		return all
	}
	reset := []byte{1, 0, 0}
	assign := irqStep(irqFrame(assignFlags, IRQMSIX, 0, 3), 0, 1, 2)
	mask, unmask := irqStep(irqFrame(irqDataNone|irqActionMask, IRQMSIX, 0, 3)), irqStep(irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, 0, 3))
	intx := irqStep(irqFrame(assignFlags, IRQINTx, 0, 1), 3)
	seeds := map[string][]byte{
		"latched":         join(raise(2, 0), raise(2, 0), assign, raise(2, 1), assign),
		"taken-away":      join(assign, irqStep(irqFrame(assignFlags, IRQMSIX, 0, 1)), raise(2, 0), assign),
		"disabled":        join(assign, raise(2, 2), irqStep(irqFrame(noneTrigger, IRQMSIX, 0, 0)), raise(2, 2), assign),
		"disabled-masked": join(assign, mask, irqStep(irqFrame(noneTrigger, IRQMSIX, 0, 0)), assign, raise(2, 1)),
		"masked":          join(assign, mask, raise(2, 0), raise(2, 0), unmask, raise(2, 0)),
		"masked-one":      join(assign, irqStep(irqFrame(irqDataBool|irqActionMask, IRQMSIX, 0, 3, 0, 1, 0)), raise(2, 1), raise(2, 2), unmask),
		"intx":            join(intx, raise(0, 0), raise(0, 0), irqStep(irqFrame(irqDataNone|irqActionUnmask, IRQINTx, 0, 1)), intx),
		"reset":           join(raise(2, 0), reset, assign, mask, raise(2, 0), reset, unmask, raise(5, 4)),
		"one-for-all": join(irqStep(irqFrame(assignFlags, IRQMSIX, 0, 3), 0, 0, 0),
			irqStep(irqFrame(noneTrigger, IRQMSIX, 0, 3)), irqStep(irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 3, 1, 0, 1))),
		"no-eventfd": join(irqStep(irqFrame(assignFlags, IRQMSIX, 0, 2), 0, 4), raise(2, 0)),
		"errors":     join(irqStep(irqFrame(assignFlags, IRQErr, 0, 1), 1), irqStep(irqFrame(assignFlags, IRQReq, 0, 1), 2), raise(3, 0), raise(4, 0)),
	}
	for _, b := range irqFaults() {
		seeds[b.id] = join(assign, irqStep(b.frame, make([]byte, b.files)...), raise(2, 0))
	}
	return seeds
}
