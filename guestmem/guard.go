// SPDX-License-Identifier: Apache-2.0

package guestmem

import "runtime/debug"

// guard makes faults of the calling goroutine panics while a function runs, whatever the goroutine was set to.
type guard struct{ before bool }

func (g *guard) arm() { g.before = debug.SetPanicOnFault(true) }

// recover2 is deferred before arm: it restores the goroutine's setting and takes faults at memory of two Domains.
func (g *guard) recover2(d1, d2 *Domain, errp *error) {
	if r := recover(); r != nil {
		debug.SetPanicOnFault(g.before)
		*errp = faultOf(r, d1, d2)
		return
	}
	if !g.before {
		debug.SetPanicOnFault(false)
	}
}
