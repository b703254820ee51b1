// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Session is one client's connection. Its exported methods may be called from any goroutine, from Config.Open on.
type Session struct {
	cfg  Config
	obs  Observer
	link *link
	irqs interrupts
	done chan struct{} // closed when everything is over

	// The following belong to the session's goroutine. peer is constant from Config.Open on.
	peer    Peer
	shook   bool // the VERSION was accepted
	opened  bool // there is a device
	dev     Device
	regions [NumRegions]Region
	maps    mappings
	// unwatched is the time that messages took since somebody looked whether the client is still there.
	unwatched time.Duration

	over atomic.Bool // the session is to end; set before why is
	mu   sync.Mutex
	why  *ending // the first cause; guarded by mu
}

// newSession returns a session that run serves.
func newSession(conn *net.UnixConn, peer Peer, cfg Config) *Session {
	s := &Session{
		cfg:  cfg,
		obs:  cfg.Observer,
		link: newLink(conn, cfg.WriteTimeout),
		done: make(chan struct{}),
		peer: peer,
	}
	s.irqs.signal.prepare(func() { s.stop(&ending{ReasonBlockingEventFD, unix.EAGAIN}) })
	return s
}

// Peer returns who the client is and what it can do.
func (s *Session) Peer() Peer { return s.peer }

// Trigger raises an interrupt. If the client has assigned an eventfd to that vector and has not masked it, the
// eventfd is written; otherwise the interrupt is latched, and delivered once when an eventfd is assigned or the
// vector unmasked. It may be called from any goroutine, also after Device.Close; it does not allocate and does not
// wait for the client. A vector that the device does not have is ignored, and so are all before Device.IRQs was
// called.
func (s *Session) Trigger(index IRQIndex, vector uint32) { s.irqs.trigger(index, vector) }

// stop ends the session from any goroutine; the first cause is kept.
func (s *Session) stop(why *ending) {
	s.mu.Lock()
	if s.why == nil {
		s.why = why
	}
	s.mu.Unlock()
	s.over.Store(true)
	_ = s.link.conn.Close()
}

// isOver says whether the session is to end.
func (s *Session) isOver() bool { return s.over.Load() }

// leaving says whether the client is gone, even if the session has not come to notice it.
func (s *Session) leaving() bool { return s.isOver() || hungUp(s.link.conn) }

// run serves the client until one of the two ends. It is the session's goroutine.
func (s *Session) run() {
	defer close(s.done)
	s.stop(s.serve())
	if s.opened {
		s.closeDevice()
	}
	s.irqs.close()
	s.dev, s.maps = nil, nil
	s.obs.Disconnected(Disconnect{Peer: s.peer, Reason: s.why.reason, Err: s.why.err, Opened: s.opened})
}

// serve serves message after message.
func (s *Session) serve() *ending {
	if err := s.link.conn.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout)); err != nil {
		return &ending{ReasonIO, err}
	}
	for {
		m, err := s.link.receive()
		if err != nil {
			m.fds.close()
			why := readEnding(err, s.shook)
			if why.reason == ReasonProtocol {
				s.refused(m, err, true)
			}
			return why
		}
		if why := s.handle(m); why != nil {
			return why
		}
	}
}

// handle serves one message. It returns why the session ends, nil if it does not.
func (s *Session) handle(m *message) *ending {
	start := time.Now()
	ans, err := s.dispatch(m)
	m.fds.close()
	if p, ok := errors.AsType[*panicError](err); ok {
		return &ending{ReasonPanic, p}
	}
	var errno unix.Errno
	fatal := false
	if err != nil {
		errno = errnoOf(err)
		fatal = faultOf(err).Ends() || !s.shook
		s.refused(m, err, fatal)
	}
	if m.wantsReply() {
		if err := s.link.reply(m.header, errno, ans.file()); err != nil {
			return writeEnding(err)
		}
	}
	answered := time.Since(start)
	if ans.written && !s.isOver() {
		if err := s.replied(m.command); err != nil {
			return &ending{ReasonPanic, err}
		}
	}
	if fatal {
		return fatalEnding(err)
	}
	total := time.Since(start)
	s.obs.Handled(Handling{Command: m.command, Answer: answered, Total: total, Errno: errno})
	if s.deserted(total) {
		return &ending{ReasonClientClosed, nil}
	}
	return nil
}

// watchEvery is after how much work for a client somebody looks whether it is still there. It bounds what is done for one
// that is gone, whatever is left in its socket, and makes the look cost nothing.
const watchEvery = time.Millisecond

// deserted says, now and then, whether the client is gone: what it has asked for before is for nobody, and the next client
// waits for the end of it. took is how long the last piece of work took.
func (s *Session) deserted(took time.Duration) bool {
	if s.unwatched += took; s.unwatched < watchEvery {
		return false
	}
	s.unwatched = 0
	return disconnected(s.link.conn)
}

// fatalEnding says why a message that was answered with an error ends the session.
func fatalEnding(err error) *ending {
	if faultOf(err) == FaultDevice {
		return &ending{ReasonOpen, err}
	}
	return &ending{ReasonProtocol, err}
}

// refused reports a message that is not served.
func (s *Session) refused(m *message, err error, fatal bool) {
	s.obs.Refused(Refusal{
		Peer: s.peer, Command: m.command, Fault: faultOf(err), Errno: errnoOf(err), Err: err, Fatal: fatal,
	})
}

// panicError is a panic of the Device.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("device panicked: %v", p.value) }

// recovered turns a panic of the Device into a *panicError. It is deferred around every call of it.
func (s *Session) recovered(c Command, errp *error) {
	v := recover()
	if v == nil {
		return
	}
	s.obs.Panicked(Panic{Peer: s.peer, Command: c, Value: v, Stack: debug.Stack()})
	*errp = &panicError{v}
}

// replied calls Device.Replied.
func (s *Session) replied(c Command) (err error) {
	defer s.recovered(c, &err)
	s.dev.Replied()
	return nil
}

// closeDevice calls Device.Close.
func (s *Session) closeDevice() {
	var err error // reported by recovered; there is nobody left to tell
	defer s.recovered(0, &err)
	s.dev.Close()
}
