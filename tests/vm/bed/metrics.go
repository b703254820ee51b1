// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"strconv"
	"strings"
)

// Sum adds up all series of a metric in a scrape.
func Sum(scrape, name string) uint64 {
	var total uint64
	for _, v := range Series(scrape, name) {
		total += v
	}
	return total
}

// Series returns the value of each series of a metric in a scrape, by the series' whole name.
func Series(scrape, name string) map[string]uint64 {
	series := map[string]uint64{}
	for line := range strings.Lines(scrape) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, name)
		at := strings.LastIndexByte(line, ' ')
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') || at < 0 {
			continue
		}
		v, _ := strconv.ParseFloat(line[at+1:], 64)
		series[line[:at]] = uint64(v)
	}
	return series
}
