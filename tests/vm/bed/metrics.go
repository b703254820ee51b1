// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"strconv"
	"strings"
)

// Sum adds up all series of a metric in a scrape.
func Sum(scrape, name string) uint64 {
	total := 0.0
	for line := range strings.Lines(scrape) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		if fields := strings.Fields(rest); len(fields) > 0 {
			v, _ := strconv.ParseFloat(fields[len(fields)-1], 64)
			total += v
		}
	}
	return uint64(total)
}
