// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"strings"
	"testing"
)

func TestAMetricIsSummedOverItsSeriesAlone(t *testing.T) {
	scrape := strings.Join([]string{
		"# HELP pvrdma_engine_messages_total x", `pvrdma_engine_messages_total{operation="send"} 3`,
		`pvrdma_engine_messages_total{operation="read"} 4`, "pvrdma_engine_messages_total_other 100",
	}, "\n")
	if got := Sum(scrape, "pvrdma_engine_messages_total"); got != 7 {
		t.Errorf("sum is %d, want 7", got)
	}
}
