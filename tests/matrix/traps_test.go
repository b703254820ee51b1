// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// trap is a mistake that this kind of device invites, or that QEMU's device of the same kind made, and the tests that would
// find it here.
type trap struct {
	words string
	// tests are names of test functions by the package's folder; a folder's fuzz targets run over their corpora.
	tests []string
}

// cves are the known vulnerabilities of QEMU's pvrdma device, all fixed or gone with it.
var cves = []trap{
	{"CVE-2018-20123: a start that fails leaks what it had made", []string{
		"tests/matrix.TestAThousandFailedStartsLeaveNothing", "pvrdma/pcifn.TestAFunctionThatCannotBeOpenedLeavesNothing",
		"tests/spine.TestConnectionsLeaveNothingBehindInTheDaemon",
	}},
	{"CVE-2018-20124: more elements in a work request than the queue allows", []string{
		"tests/matrix.TestARequestThatBreaksARuleIsOneFailedRequestAndTheQueueGoesOn",
		"tests/spine.TestACountOfPiecesBeyondTheQueuesIsOneFailedReceive",
		"pvrdma.TestTooManyElementsFailOneRequestAndTheQueueGoesOn",
	}},
	{"CVE-2018-20125: a queue of no pages or of too many", []string{"tests/matrix.TestEveryFieldOutOfItsRange"}},
	{"CVE-2018-20126: a queue whose creation fails half-way is not freed", []string{
		"pvrdma.TestFailingCommandsLeakNothing", "tests/matrix.TestEveryFieldOutOfItsRange",
	}},
	{"CVE-2018-20191: a read of the doorbell pages", []string{
		"pvrdma/pcifn.TestEveryByteOfEveryBARCanBeRead", "tests/spine.TestEveryOffsetOfEveryRegionCanBeReadInEverySize",
	}},
	{"CVE-2018-20216: an index that is not valid makes an endless loop", []string{
		"pvrdma.TestAnInvalidIndexEndsTheQueuePairOnce", "pvrdma.TestAnInvalidReceiveIndexEndsTheQueuePairOnce",
		"ringbuf.TestNoIndexLeadsOutOfARing", "tests/spine.TestARingIndexThatIsNotValidEndsItsQueueAlone",
	}},
	{"CVE-2021-3582: a region longer than its pages", []string{
		"tests/matrix.TestEveryFieldOutOfItsRange", "pvrdma.TestARegistrationThatCannotBeIsRefused",
	}},
	{"CVE-2021-3607: an event ring of no pages", []string{
		"pvrdma/pcifn.TestASharedRegionThatIsWrongIsRefused", "pvrdma/pcifn.TestRingsOfTheSmallestAndTheLargestSize",
	}},
	{"CVE-2021-3608: an event ring with pages that cannot be mapped", []string{
		"pvrdma/pcifn.TestARingThatCannotBeMappedFailsActivate", "pvrdma.TestADirectoryThatLiesIsRefused",
	}},
	{"CVE-2022-1050: a command before there is a shared region, or after it was refused", []string{
		"tests/matrix.TestNoCommandIsExecutedOutsideOfActive", "pvrdma/pcifn.TestEveryRegisterWriteInEveryState",
		"pvrdma/pcifn.TestDoorbellsOutsideOfActiveAreIgnored",
	}},
	{"CVE-2023-1544: an event ring of more pages than a table names, or of more after it was loaded", []string{
		"pvrdma/pcifn.TestASharedRegionThatIsWrongIsRefused", "pvrdma/pcifn.TestWhatIsWrittenIntoTheRegionLaterIsNotLookedAt",
	}},
}

func TestEveryKnownTrapHasATest(t *testing.T) {
	seen := map[string]bool{}
	for _, trap := range slices.Concat(cves, defects(), channelTraps(), ringTraps(), memoryTraps(), privilegeTraps(), lateTraps()) {
		if seen[trap.words] {
			t.Errorf("%q is there twice", trap.words)
		}
		seen[trap.words] = true
		for _, fault := range missing(trap) {
			t.Error(fault)
		}
	}
	t.Logf("%d traps, %d of them vulnerabilities with a number", len(seen), len(cves))
}

func TestATrapWithoutATestIsFound(t *testing.T) {
	for name, c := range map[string]struct{ tests []string }{
		"none at all":             {nil},
		"one that does not exist": {[]string{"tests/matrix.TestThatNobodyWrote"}},
		"one of another package":  {[]string{"ringbuf.TestATrapWithoutATestIsFound"}},
		"a folder that is gone":   {[]string{"tests/nowhere.TestATrapWithoutATestIsFound"}},
		"a mere beginning":        {[]string{"tests/matrix.TestATrap"}},
	} {
		if len(missing(trap{"planted", c.tests})) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

// missing returns what is wrong with a trap's tests.
func missing(tr trap) (faults []string) {
	if len(tr.tests) == 0 {
		return []string{tr.words + " has no test"}
	}
	for _, test := range tr.tests {
		folder, name, ok := strings.Cut(test, ".")
		if !ok || !hasTest(folder, name) {
			faults = append(faults, fmt.Sprintf("%s: there is no %s", tr.words, test))
		}
	}
	return faults
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// hasTest reports whether a folder's tests have a function.
func hasTest(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			if string(m[1]) == name {
				return true
			}
		}
	}
	return false
}
