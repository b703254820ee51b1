// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// rocePort is a RoCE port as an engine without special powers has it.
func rocePort() *PortLimits {
	return &PortLimits{
		Ports: 1, ActiveMTU: MTU2048, PKeys: 1, GIDs: 8, MaxRdAtomic: 16, MaxDestRdAtomic: 16, GRHRequired: true,
	}
}

const (
	maskRCInit = QPStateMask | QPPKeyIndex | QPPort | QPAccessFlagsMask
	maskRCRTR  = QPStateMask | QPAV | QPPathMTU | QPDestQPN | QPRQPSN | QPMaxDestRdAtomic | QPMinRNRTimer
	maskRCRTS  = QPStateMask | QPTimeout | QPRetryCnt | QPRNRRetry | QPSQPSN | QPMaxQPRdAtomic
)

// goodAttr returns attributes that a RoCE port accepts for every transition of an RC queue pair.
func goodAttr(next QPState) QPAttr {
	return QPAttr{
		QPState: next, PortNum: 1, PathMTU: MTU1024, DestQPNum: 0xffffff, RQPSN: 0xffffff, SQPSN: 0xffffff,
		AHAttr: AHAttr{GRH: true, PortNum: 1, SGIDIndex: 7}, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
		MinRNRTimer: 31, Timeout: 31, RetryCnt: 7, RNRRetry: 7,
	}
}

func TestAValueOutOfItsRangeIsRefused(t *testing.T) {
	cases := []struct {
		name     string
		from, to QPState
		mask     AttrMask
		spoil    func(*QPAttr)
	}{
		{"pkey index beyond the table", StateReset, StateInit, maskRCInit, func(a *QPAttr) { a.PKeyIndex = 1 }},
		{"port 0", StateReset, StateInit, maskRCInit, func(a *QPAttr) { a.PortNum = 0 }},
		{"port 2 of 1", StateReset, StateInit, maskRCInit, func(a *QPAttr) { a.PortNum = 2 }},
		{"path MTU 0", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.PathMTU = 0 }},
		{"path MTU above the active MTU", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.PathMTU = MTU4096 }},
		{"path MTU that is none", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.PathMTU = 6 }},
		{"address without GRH", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.AHAttr.GRH = false }},
		{"address with port 0", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.AHAttr.PortNum = 0 }},
		{"address with port 2 of 1", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.AHAttr.PortNum = 2 }},
		{"address with a GID index beyond the table", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.AHAttr.SGIDIndex = 8 }},
		{"QP number of 25 bits", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.DestQPNum = 1 << 24 }},
		{"RNR timer code 32", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.MinRNRTimer = 32 }},
		{"too many responder resources", StateInit, StateRTR, maskRCRTR, func(a *QPAttr) { a.MaxDestRdAtomic = 17 }},
		{"alternate path", StateInit, StateRTR, maskRCRTR | QPAltPath, func(*QPAttr) {}},
		{"timeout code 32", StateRTR, StateRTS, maskRCRTS, func(a *QPAttr) { a.Timeout = 32 }},
		{"retry count 8", StateRTR, StateRTS, maskRCRTS, func(a *QPAttr) { a.RetryCnt = 8 }},
		{"RNR retry count 8", StateRTR, StateRTS, maskRCRTS, func(a *QPAttr) { a.RNRRetry = 8 }},
		{"too many outstanding reads", StateRTR, StateRTS, maskRCRTS, func(a *QPAttr) { a.MaxRdAtomic = 17 }},
		{"a wrong current state", StateRTR, StateRTS, maskRCRTS | QPCurState, func(a *QPAttr) { a.CurQPState = StateSQD }},
		{"a migration without alternate paths", StateRTS, StateRTS, QPPathMigState, func(a *QPAttr) { a.PathMigState = 1 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			attr := goodAttr(c.to)
			c.spoil(&attr)
			next, err := CheckModify(QPTypeRC, c.from, &attr, c.mask, rocePort())
			if !errors.Is(err, unix.EINVAL) || next != c.from {
				t.Errorf("got state %s, error %v; want %s, EINVAL", next, err, c.from)
			}
		})
	}
}

func TestValuesAtTheEndsOfTheirRangesAreAccepted(t *testing.T) {
	steps := []struct {
		from, to QPState
		mask     AttrMask
	}{
		{StateReset, StateInit, maskRCInit},
		{StateInit, StateRTR, maskRCRTR},
		{StateRTR, StateRTS, maskRCRTS},
	}
	for _, s := range steps {
		attr := goodAttr(s.to)
		if next, err := CheckModify(QPTypeRC, s.from, &attr, s.mask, rocePort()); err != nil || next != s.to {
			t.Errorf("%s to %s: state %s, %v", s.from, s.to, next, err)
		}
	}
}

func TestAttributesThatTheMaskDoesNotSelectAreNotLookedAt(t *testing.T) {
	attr := QPAttr{
		QPState: StateErr, CurQPState: 77, PathMTU: 99, PortNum: 99, PKeyIndex: 99, Timeout: 99, RetryCnt: 99,
		RNRRetry: 99, MinRNRTimer: 99, DestQPNum: 1 << 31, PathMigState: 9, MaxRdAtomic: 99, MaxDestRdAtomic: 99,
	}
	if next, err := CheckModify(QPTypeRC, StateRTS, &attr, QPStateMask, rocePort()); err != nil || next != StateErr {
		t.Errorf("got state %s, %v; want ERR", next, err)
	}
	if next, err := CheckModify(QPTypeRC, StateRTS, &attr, 0, rocePort()); err != nil || next != StateRTS {
		t.Errorf("the empty mask: got state %s, %v; want RTS", next, err)
	}
}

func TestTheFirstFailureInOrderDecides(t *testing.T) {
	bad := goodAttr(StateInit)
	bad.PortNum = 9
	cases := []struct {
		name string
		typ  QPType
		mask AttrMask
		want error
	}{
		{"unknown bit before a refused mask and a bad value", QPTypeRC, maskRCInit | QPCapMask | 1<<21, unix.EOPNOTSUPP},
		{"rate limit that the engine cannot", QPTypeRC, maskRCInit | QPRateLimit, unix.EOPNOTSUPP},
		{"unknown bit before an unknown type", QPType(9), 1 << 31, unix.EOPNOTSUPP},
		{"resize is refused by the mask", QPTypeRC, maskRCInit | QPCapMask, unix.EINVAL},
		{"bad value", QPTypeRC, maskRCInit, unix.EINVAL},
		{"unknown type", QPType(9), QPStateMask, unix.EINVAL},
		{"a type between those that exist", QPType(5), QPStateMask, unix.EINVAL},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := CheckModify(c.typ, StateReset, &bad, c.mask, rocePort()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestStatesThatDoNotExistLeadNowhere(t *testing.T) {
	for _, s := range [][2]QPState{{7, StateReset}, {StateReset, 7}, {255, 255}} {
		attr := QPAttr{QPState: s[1]}
		if _, err := CheckModify(QPTypeRC, s[0], &attr, QPStateMask, rocePort()); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s to %s: got %v, want EINVAL", s[0], s[1], err)
		}
	}
}

func TestAPortWithAlternatePathsChecksTheirValues(t *testing.T) {
	port := rocePort()
	port.GRHRequired = false
	attr := goodAttr(StateRTR)
	attr.AltPortNum, attr.AltAHAttr.PortNum = 1, 1
	mask := maskRCRTR | QPAltPath
	if _, err := CheckModify(QPTypeRC, StateInit, &attr, mask, port); err != nil {
		t.Fatalf("a good alternate path is refused: %v", err)
	}
	for name, spoil := range map[string]func(*QPAttr){
		"pkey":    func(a *QPAttr) { a.AltPKeyIndex = 1 },
		"port":    func(a *QPAttr) { a.AltPortNum = 2 },
		"timeout": func(a *QPAttr) { a.AltTimeout = 32 },
		"address": func(a *QPAttr) { a.AltAHAttr.PortNum = 0 },
	} {
		bad := attr
		spoil(&bad)
		if _, err := CheckModify(QPTypeRC, StateInit, &bad, mask, port); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: got %v, want EINVAL", name, err)
		}
	}
}

func TestPSNsAreCutToTheirBits(t *testing.T) {
	if got := MaskPSN(0xff_000001); got != 1 {
		t.Errorf("got %#x, want 1", got)
	}
}
