// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// romPage is a page that the device may only read.
const romPage = inproc.ROMAddr + 4096

func at(addr uint64) func(*board) uint64 { return func(*board) uint64 { return addr } }

// off is the spare directory's address and some bytes.
func off(n uint64) func(*board) any { return func(b *board) any { return b.spare.Dir.Addr() + n } }

// spoiledPage is a directory in which one page is somewhere else.
func spoiledPage(what string, page int, addr uint64) named {
	return named{fmt.Sprintf("page %d %s", page, what), func(b *board) any {
		return b.spoiled(func(d *driver.PageDir) { d.SetPage(page, addr) })
	}}
}

// spoiledDirectories are directories in which the table, the first or the second page is somewhere else. No honest request
// has fewer than two pages.
func spoiledDirectories(what string, addr uint64, want unix.Errno) []cell {
	return refused(want,
		named{"the table " + what, func(b *board) any {
			return b.spoiled(func(d *driver.PageDir) { d.SetTable(0, addr) })
		}},
		spoiledPage(what, 0, addr), spoiledPage(what, 1, addr))
}
