// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// standardMasks is how many masks the 21 standard bits make; every one of them is asked about with and without
	// RATE_LIMIT.
	standardMasks = 1 << 21
	cellMasks     = 2 * standardMasks
)

// maskNumber returns mask number n in the order of testdata/statetable.c.
func maskNumber(n uint32) AttrMask {
	if n < standardMasks {
		return AttrMask(n)
	}
	return AttrMask(n-standardMasks) | QPRateLimit
}

// judge writes our verdict on every mask of a cell as a bitmap. It shares nothing with anybody: under the race detector's
// eyes the 10^9 look-ups would take four times as long.
//
//go:norace
func judge(verdicts []byte, p place) {
	for i := range verdicts {
		var eight byte
		for bit := range uint32(8) {
			if lookup(p.typ, p.from, p.to).accepts(maskNumber(uint32(i)*8 + bit)) {
				eight |= 1 << bit
			}
		}
		verdicts[i] = eight
	}
}

// ask calls fn with the kernel's verdicts on every mask of every cell of a list.
func (k kernel) ask(t *testing.T, cells []place, fn func(p place, verdicts []byte)) {
	t.Helper()
	cmd := exec.Command(k.path)
	for _, p := range cells {
		cmd.Args = append(cmd.Args, "IB_QPT_"+p.typ.String(), "IB_QPS_"+p.from.String(), "IB_QPS_"+p.to.String())
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	verdicts := make([]byte, cellMasks/8)
	for _, p := range cells {
		if _, err := io.ReadFull(pipe, verdicts); err != nil {
			t.Errorf("the kernel's verdicts on %s: %v", p, err)
			break
		}
		fn(p, verdicts)
	}
	if n, err := io.Copy(io.Discard, pipe); n != 0 || err != nil {
		t.Errorf("the program writes %d bytes too many, %v", n, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
}

// differences compares our verdicts with the kernel's and returns the first difference of each cell.
func (k kernel) differences(t *testing.T, cells []place) (found []string) {
	t.Helper()
	ours := make([]byte, cellMasks/8)
	k.ask(t, cells, func(p place, theirs []byte) {
		judge(ours, p)
		if !bytes.Equal(ours, theirs) {
			found = append(found, fmt.Sprintf("%s %s", p, firstDifference(ours, theirs)))
		}
	})
	return found
}

// firstDifference describes the first mask that two bitmaps judge differently.
func firstDifference(ours, theirs []byte) string {
	for i := range ours {
		if x := ours[i] ^ theirs[i]; x != 0 {
			bit := bits.TrailingZeros8(x)
			mask := maskNumber(uint32(i*8 + bit))
			return fmt.Sprintf("with %s (%#x): legal here %t, for the kernel %t",
				mask, uint32(mask), ours[i]>>bit&1 != 0, theirs[i]>>bit&1 != 0)
		}
	}
	return "nowhere"
}

func TestTheStateTableAgreesWithTheKernelsOnEveryMask(t *testing.T) {
	if testing.CoverMode() == "atomic" { // as with -race -cover: 10^9 look-ups would be counted for a quarter of an hour
		out, err := exec.Command("go", "test", "-count=1", "-run", "^"+t.Name()+"$", ".").CombinedOutput()
		if err != nil {
			t.Errorf("without counters: %v\n%s", err, out)
		}
		return
	}
	cells := everyCell()
	for _, d := range buildKernel(t, unchanged).differences(t, cells) {
		t.Error(d)
	}
	t.Logf("%d masks in each of %d cells", cellMasks, len(cells))
}

func TestEveryMaskThatTheKernelTakesAndItsNeighboursAreJudgedAlikeByCheckModify(t *testing.T) {
	asked, legal := 0, 0
	buildKernel(t, unchanged).ask(t, everyCell(), func(p place, verdicts []byte) {
		legalFor := func(mask AttrMask) bool {
			n := uint32(mask & QPAttrStandardBits)
			if mask&QPRateLimit != 0 {
				n += standardMasks
			}
			return verdicts[n/8]>>(n%8)&1 != 0
		}
		attr, port := wholesome(p.from, p.to)
		check := func(mask AttrMask) {
			if mask&QPStateMask == 0 && p.from != p.to {
				return // without a state the transition is another one
			}
			asked++
			next, err := CheckModify(p.typ, p.from, attr, mask, port)
			switch want := legalFor(mask); {
			case want && (err != nil || next != p.to):
				t.Errorf("%s with %s: state %s, %v; the kernel takes it", p, mask, next, err)
			case !want && (!errors.Is(err, unix.EINVAL) || next != p.from):
				t.Errorf("%s with %s: state %s, %v; the kernel refuses it with EINVAL", p, mask, next, err)
			}
		}
		for i, eight := range verdicts {
			for ; eight != 0; eight &= eight - 1 {
				mask := maskNumber(uint32(i*8 + bits.TrailingZeros8(eight)))
				legal++
				check(mask)
				for _, b := range maskBits() {
					check(mask ^ b)
				}
			}
		}
	})
	t.Logf("%d masks are legal, %d calls with them and their neighbours", legal, asked)
	if legal < 1000 {
		t.Errorf("only %d masks are legal: is that the kernel's table?", legal)
	}
}

func TestTheWordsAreTheKernels(t *testing.T) {
	kernels := buildKernel(t, unchanged).words(t)
	ours := map[string]uint32{"IB_QP_ATTR_STANDARD_BITS": uint32(QPAttrStandardBits)}
	for _, typ := range allTypes() {
		ours["IB_QPT_"+typ.String()] = uint32(typ)
	}
	for s := StateReset; s <= StateErr; s++ {
		ours["IB_QPS_"+s.String()] = uint32(s)
	}
	for _, b := range maskBits() {
		ours["IB_QP_"+b.String()] = uint32(b)
	}
	for name, value := range ours {
		if theirs, ok := kernels[name]; !ok || theirs != value {
			t.Errorf("%s is %#x here, %#x for the kernel (which has it: %t)", name, value, theirs, ok)
		}
	}
}

func TestAFaultInOneCellIsFoundAndNamed(t *testing.T) {
	k := buildKernel(t, unchanged)
	for _, c := range []struct {
		name  string
		at    place
		plant func(c *cell)
		want  string
	}{
		{
			"a required attribute that is not asked for",
			place{QPTypeRC, StateRTR, StateRTS},
			func(c *cell) { c.need &^= QPMaxQPRdAtomic },
			"RC RTR>RTS with TIMEOUT|RETRY_CNT|RNR_RETRY|SQ_PSN (0x10e00): legal here true, for the kernel false",
		},
		{
			"an attribute too many",
			place{QPTypeUD, StateRTS, StateRTS},
			func(c *cell) { c.allowed |= QPDestQPN }, "UD RTS>RTS with DEST_QPN (0x100000): legal here true, for the kernel false",
		},
		{
			"an optional attribute too few",
			place{QPTypeRawPacket, StateRTR, StateRTS},
			func(c *cell) { c.allowed &^= QPRateLimit }, "RAW_PACKET RTR>RTS with RATE_LIMIT (0x2000000): legal here false, for the kernel true",
		},
		{
			"a transition too many",
			place{QPTypeRC, StateReset, StateErr},
			func(c *cell) { *c = cell{allowed: QPStateMask} }, "RC RESET>ERR with 0 (0x0): legal here true, for the kernel false",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours := &cells[c.at.typ][c.at.from][c.at.to]
			sound := *ours
			defer func() { *ours = sound }()
			c.plant(ours)
			if found := k.differences(t, []place{c.at}); len(found) != 1 || found[0] != c.want {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func TestAKernelThatJudgesOtherwiseIsFound(t *testing.T) {
	rule := regexp.MustCompile(`(?m)^\tif \(!qp_state_table\[cur_state\]\[next_state\]\.valid\)$`)
	changed := 0
	k := buildKernel(t, func(piece string) string {
		changed += len(rule.FindAllString(piece, -1))
		return rule.ReplaceAllString(piece, "\tif (false)")
	})
	found := k.differences(t, []place{{QPTypeUC, StateReset, StateRTS}})
	want := []string{"UC RESET>RTS with 0 (0x0): legal here false, for the kernel true"}
	if changed != 1 || !slices.Equal(found, want) {
		t.Errorf("changed %d lines, found %q; want %q", changed, found, want)
	}
}
