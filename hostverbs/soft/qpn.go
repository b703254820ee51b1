// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

const (
	// firstQPN follows the GSI's, which each guest has; 0 is the SMI's, which nobody has.
	firstQPN = gsi.QPN + 1
	lastQPN  = 0xfffffe // 0xffffff is the multicast QP number
)

// qpnPool hands out queue pair numbers, unique in the engine. They go upwards, so that a number comes back only after
// 16 million others: a packet for its last holder must not find the next one. Guarded by Engine.mu.
type qpnPool struct {
	next uint32
	used map[uint32]struct{}
}

func newQPNPool() qpnPool {
	return qpnPool{next: firstQPN, used: make(map[uint32]struct{})}
}

// take returns a number that nobody has.
func (p *qpnPool) take() (uint32, error) {
	if len(p.used) > lastQPN-firstQPN {
		return 0, fmt.Errorf("all QP numbers are in use: %w", unix.ENOMEM)
	}
	for {
		n := p.next
		p.next++
		if p.next > lastQPN {
			p.next = firstQPN
		}
		if _, taken := p.used[n]; !taken {
			p.used[n] = struct{}{}
			return n, nil
		}
	}
}

// give takes a number back.
func (p *qpnPool) give(n uint32) { delete(p.used, n) }

// takeQPN reserves a queue pair number.
func (e *Engine) takeQPN() (uint32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.qpns.take()
}

// giveQPN frees a queue pair number, unless it is the GSI's.
func (e *Engine) giveQPN(n uint32) {
	if n == gsi.QPN {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.qpns.give(n)
}
