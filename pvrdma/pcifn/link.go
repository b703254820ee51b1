// SPDX-License-Identifier: Apache-2.0

package pcifn

import "sync"

// link is the state of a function's port as its operator wants it. It outlives the guest's connections.
type link struct {
	mu      sync.Mutex
	down    bool     // guarded by mu
	session *session // guarded by mu: nil without a client
}

// SetLink takes the guest's port down, or up again. A guest that is there is told, and one that comes finds it so. Any
// goroutine.
func (f *Function) SetLink(up bool) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.down = !up
	if s := f.link.session; s != nil {
		s.setLink(up)
	}
}

// LinkUp reports what SetLink has set last. Any goroutine.
func (f *Function) LinkUp() bool {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	return !f.link.down
}

// attach has a new session follow the link.
func (l *link) attach(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	s.setLink(!l.down)
}

func (l *link) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = nil
}

func (s *session) setLink(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.dev.SetLink(up)
	}
}
