// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
)

// kind is a kind of asynchronous event of the driver's interface: the tests that see it delivered once and with its object, or
// why this device never reports it.
type kind struct {
	tests []string
	never string
}

const (
	eachKind = "tests/spine.TestEachKindOfEventComesOnceAndNamesItsObject"
	noPath   = "no path migrates: a modify that names an alternate path is refused"
	noFabric = "InfiniBand's: a RoCE port has no LID and no subnet manager"
)

// kinds is enum pvrdma_eqe_type (pvrdma_dev_api.h).
func kinds() map[string]kind {
	return map[string]kind{
		"CQ_ERR":        {tests: []string{eachKind, "pvrdma.TestAnOverflowEndsTheQueueAndItsQueuePairsOnce"}},
		"QP_FATAL":      {tests: []string{eachKind, "pvrdma.TestAnInvalidIndexEndsTheQueuePairOnce"}},
		"QP_REQ_ERR":    {tests: []string{eachKind}},
		"QP_ACCESS_ERR": {tests: []string{eachKind}},
		"COMM_EST":      {tests: []string{eachKind}},
		"SQ_DRAINED":    {tests: []string{eachKind}},
		"PATH_MIG":      {never: noPath},
		"PATH_MIG_ERR":  {never: noPath},
		"DEVICE_FATAL":  {tests: []string{"pvrdma/pcifn.TestAFailedDeviceIsResetAndTheGuestIsTold", "pvrdma/pcifn.TestADeviceWhoseProbesMemoryIsTakenEnds"}},
		"PORT_ACTIVE":   {tests: []string{"tests/spine.TestAPortThatItsOperatorTakesDownIsDownForItsGuestAlone"}},
		"PORT_ERR":      {tests: []string{"tests/spine.TestAPortThatItsOperatorTakesDownIsDownForItsGuestAlone"}},
		"LID_CHANGE":    {never: noFabric},
		"PKEY_CHANGE":   {never: "the table has one entry that never changes"},
		"SM_CHANGE":     {never: noFabric},
		"SRQ_ERR":       {tests: []string{"tests/spine.TestASharedQueueWithABadIndexEndsWithItsQueuePairs"}},
		"SRQ_LIMIT_REACHED": {tests: []string{
			"tests/spine.TestTheLimitOfASharedQueueIsOneEventForEachArm",
		}},
		"QP_LAST_WQE_REACHED": {tests: []string{"hostverbs/soft.TestTheEngineKeepsTheContract"}},
		"CLIENT_REREGISTER":   {never: noFabric},
		"GID_CHANGE":          {never: "the guest's kernel makes its addresses, and reports their changes itself"},
	}
}

func TestEveryKindOfEventHasATestOrAReasonAndTheManualSaysSo(t *testing.T) {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	all, manual := kinds(), eventsOfTheManual(t)
	for i := uint32(0); ; i++ {
		name := strings.TrimPrefix(l.ConstName("PVRDMA_EVENT_", i), "PVRDMA_EVENT_")
		if strings.Trim(name, "0123456789") == "" { // a number without a name
			break
		}
		k, known := all[name]
		if !known || (len(k.tests) == 0) == (k.never == "") {
			t.Errorf("event %d, %s: want tests or a reason to have none", i, name)
		}
		for _, test := range k.tests {
			if folder, function, ok := strings.Cut(test, "."); !ok || !hasTest(folder, function) {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
		if slices.Contains(manual, name) == (k.never != "") {
			t.Errorf("docs/guest.md says of %s something else than this table", name)
		}
		delete(all, name)
	}
	for name := range all {
		t.Errorf("there is no event %s", name)
	}
}

// eventsOfTheManual are those that docs/guest.md lists.
func eventsOfTheManual(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/guest.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Asynchronous events")
	for line := range strings.Lines(table) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(rest, "`")
			names = append(names, name)
		}
	}
	return names
}

// hasTest reports whether a folder's tests have a function.
func hasTest(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	function := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && function.Match(text)
	})
}
