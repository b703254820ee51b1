// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"sync"
)

// Probe asks whether a thread makes progress, by something that the thread does for it. However many ask, and however
// long the thread is stuck, one question is under way at most.
type Probe struct {
	what string
	ask  func()

	mu      sync.Mutex
	pending chan struct{} // guarded by mu: closed when the question that is under way is answered; nil if there is none
}

// NewProbe returns a probe of what; ask returns when it has made progress.
func NewProbe(what string, ask func()) *Probe { return &Probe{what: what, ask: ask} }

// Check waits for an answer, but not longer than ctx.
func (p *Probe) Check(ctx context.Context) error {
	p.mu.Lock()
	pending := p.pending
	if pending == nil {
		pending = make(chan struct{})
		p.pending = pending
		go p.run(pending)
	}
	p.mu.Unlock()
	select {
	case <-pending:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s makes no progress: %w", p.what, ctx.Err())
	}
}

func (p *Probe) run(pending chan struct{}) {
	p.ask()
	p.mu.Lock()
	p.pending = nil
	p.mu.Unlock()
	close(pending)
}
