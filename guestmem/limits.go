// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// maxMapCount returns vm.max_map_count: how many memory mappings the kernel allows this process.
var maxMapCount = sync.OnceValue(func() int { return readMapCount("/proc/sys/vm/max_map_count") })

// readMapCount reads the sysctl from a file. Where there is none, it takes the kernel's default (DEFAULT_MAX_MAP_COUNT).
func readMapCount(file string) int {
	const byDefault = 65530
	b, err := os.ReadFile(file)
	if err != nil {
		return byDefault
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n <= 0 {
		return byDefault
	}
	return n
}
