// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// uarTable hands out doorbell pages. Page 0 is the kernel's.
type uarTable struct {
	mu   sync.Mutex
	used map[int]bool
}

// AllocUAR takes a doorbell page for a user context.
func (d *Device) AllocUAR() (int, error) {
	d.uars.mu.Lock()
	defer d.uars.mu.Unlock()
	if d.uars.used == nil {
		d.uars.used = map[int]bool{}
	}
	for i := 1; i < int(d.Caps().Get32("max_uar")); i++ {
		if !d.uars.used[i] {
			d.uars.used[i] = true
			return i, nil
		}
	}
	return 0, fmt.Errorf("allocate a doorbell page: %w", unix.ENOMEM)
}

// FreeUAR gives a doorbell page back.
func (d *Device) FreeUAR(page int) {
	d.uars.mu.Lock()
	defer d.uars.mu.Unlock()
	delete(d.uars.used, page)
}
