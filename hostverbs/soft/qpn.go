// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

const (
	// firstAsked to lastAsked are the numbers that a device may ask for: they follow the GSI's, which each guest has; 0 is the
	// SMI's, which nobody has. They are unique in a context.
	firstAsked = gsi.QPN + 1
	lastAsked  = 0xffff
	// firstQPN to lastQPN are the engine's to choose.
	firstQPN = 0x10000
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

// giveQPN frees a queue pair number, if it is one that the engine chose.
func (e *Engine) giveQPN(n uint32) {
	if n < firstQPN {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.qpns.give(n)
}

// takeQPN returns the number for a new queue pair: the one that is asked for, or any if that is 0.
func (c *context) takeQPN(asked uint32) (uint32, error) {
	switch {
	case asked == 0:
		return c.eng.takeQPN()
	case asked < firstAsked || asked > lastAsked:
		return 0, fmt.Errorf("number %#x (%d to %#x can be asked for): %w", asked, firstAsked, lastAsked, unix.EINVAL)
	case c.qps[asked] != nil:
		return 0, fmt.Errorf("number %#x: another queue pair has it: %w", asked, unix.EADDRINUSE)
	}
	return asked, nil
}
