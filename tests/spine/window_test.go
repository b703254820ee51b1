// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"fmt"
	"os"
)

// checkWindows checks that memory regions of pages scattered pages each do or do not have windows, as the lane says: each
// window takes a mapping for almost each of its pages.
func (d *daemon) checkWindows(pages int) {
	d.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	n := bytes.Count(maps, []byte("/memfd:"))
	if want := d.windows == "always"; (n > pages/2) != want || n == 0 {
		d.t.Fatalf("the daemon has %d mappings of guest memory with windows %s and regions of %d pages", n, d.windows, pages)
	}
}
