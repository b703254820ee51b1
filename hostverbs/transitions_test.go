// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// The state diagram told the other way round, attribute by attribute, as the manual page of ibv_modify_qp and the
// comments on the attributes tell it: where must it be, where may it be. What is not here is not allowed.
const attributeTable = `
PKEY_INDEX         RESET>INIT need RC UC UD SMI GSI
PKEY_INDEX         INIT>INIT  may  RC UC UD SMI GSI
PKEY_INDEX         INIT>RTR   may  RC UC UD SMI GSI
PKEY_INDEX         SQD>SQD    may  RC UC UD SMI GSI
PORT               RESET>INIT need RC UC UD RAW_PACKET
PORT               INIT>INIT  may  RC UC UD
PORT               SQD>SQD    may  RC
QKEY               RESET>INIT need UD SMI GSI
QKEY               INIT>INIT  may  UD SMI GSI
QKEY               INIT>RTR   may  UD SMI GSI
QKEY               RTR>RTS    may  UD SMI GSI
QKEY               RTS>RTS    may  UD SMI GSI
QKEY               SQD>RTS    may  UD SMI GSI
QKEY               SQD>SQD    may  UD SMI GSI
QKEY               SQE>RTS    may  UD SMI GSI
ACCESS_FLAGS       RESET>INIT need RC UC
ACCESS_FLAGS       INIT>INIT  may  RC UC
ACCESS_FLAGS       INIT>RTR   may  RC UC
ACCESS_FLAGS       RTR>RTS    may  RC UC
ACCESS_FLAGS       RTS>RTS    may  RC UC
ACCESS_FLAGS       SQD>RTS    may  RC UC
ACCESS_FLAGS       SQD>SQD    may  RC UC
ACCESS_FLAGS       SQE>RTS    may  UC
AV                 INIT>RTR   need RC UC
AV                 SQD>SQD    may  RC UC
PATH_MTU           INIT>RTR   need RC UC
DEST_QPN           INIT>RTR   need RC UC
RQ_PSN             INIT>RTR   need RC UC
MAX_DEST_RD_ATOMIC INIT>RTR   need RC
MAX_DEST_RD_ATOMIC SQD>SQD    may  RC
MIN_RNR_TIMER      INIT>RTR   need RC
MIN_RNR_TIMER      RTR>RTS    may  RC
MIN_RNR_TIMER      RTS>RTS    may  RC
MIN_RNR_TIMER      SQD>RTS    may  RC
MIN_RNR_TIMER      SQD>SQD    may  RC
SQ_PSN             RTR>RTS    need RC UC UD SMI GSI
TIMEOUT            RTR>RTS    need RC
TIMEOUT            SQD>SQD    may  RC
RETRY_CNT          RTR>RTS    need RC
RETRY_CNT          SQD>SQD    may  RC
RNR_RETRY          RTR>RTS    need RC
RNR_RETRY          SQD>SQD    may  RC
MAX_QP_RD_ATOMIC   RTR>RTS    need RC
MAX_QP_RD_ATOMIC   SQD>SQD    may  RC
ALT_PATH           INIT>RTR   may  RC UC
ALT_PATH           RTR>RTS    may  RC UC
ALT_PATH           RTS>RTS    may  RC UC
ALT_PATH           SQD>RTS    may  RC UC
ALT_PATH           SQD>SQD    may  RC UC
PATH_MIG_STATE     RTR>RTS    may  RC UC
PATH_MIG_STATE     RTS>RTS    may  RC UC
PATH_MIG_STATE     SQD>RTS    may  RC UC
PATH_MIG_STATE     SQD>SQD    may  RC UC
CUR_STATE          RTR>RTS    may  RC UC UD SMI GSI
CUR_STATE          RTS>RTS    may  RC UC UD SMI GSI
CUR_STATE          SQD>RTS    may  RC UC UD SMI GSI
CUR_STATE          SQE>RTS    may  UC UD SMI GSI
EN_SQD_ASYNC_NOTIFY RTS>SQD   may  RC UC UD SMI GSI
RATE_LIMIT         RTR>RTS    may  RAW_PACKET
RATE_LIMIT         RTS>RTS    may  RAW_PACKET
`

// arrows are the transitions that exist, for every type alike.
const arrows = "RESET>INIT INIT>INIT INIT>RTR RTR>RTS RTS>RTS RTS>SQD SQD>RTS SQD>SQD SQE>RTS " +
	"RESET>RESET INIT>RESET RTR>RESET RTS>RESET SQD>RESET SQE>RESET ERR>RESET " +
	"INIT>ERR RTR>ERR RTS>ERR SQD>ERR SQE>ERR ERR>ERR"

// allTypes returns the types that the state table knows.
func allTypes() []QPType {
	return []QPType{QPTypeSMI, QPTypeGSI, QPTypeRC, QPTypeUC, QPTypeUD, QPTypeRawPacket}
}

// maskBits returns the bits that a mask can have.
func maskBits() (all []AttrMask) {
	for bit := range 32 {
		if b := AttrMask(1) << bit; b&^(QPAttrStandardBits|QPRateLimit) == 0 {
			all = append(all, b)
		}
	}
	return all
}

// spoken is the attribute table by transition and type.
type spoken map[string]struct{ need, may AttrMask }

// readAttributeTable parses attributeTable.
func readAttributeTable(t *testing.T) spoken {
	t.Helper()
	bitOf := map[string]AttrMask{}
	for bit := range 32 {
		bitOf[(AttrMask(1) << bit).String()] = 1 << bit
	}
	said := spoken{}
	for _, line := range strings.Split(strings.TrimSpace(attributeTable), "\n") {
		f := strings.Fields(line)
		bit, ok := bitOf[f[0]]
		if !ok || !strings.Contains(" "+arrows+" ", " "+f[1]+" ") {
			t.Fatalf("the table of this test is wrong at %q", line)
		}
		for _, typ := range f[3:] {
			e := said[typ+" "+f[1]]
			if f[2] == "need" {
				e.need |= bit
			} else {
				e.may |= bit
			}
			said[typ+" "+f[1]] = e
		}
	}
	return said
}

// accepts is the rule in words: the transition exists, all that must be there is, and nothing that may not.
func (s spoken) accepts(typ QPType, from, to QPState, mask AttrMask) bool {
	arrow := fmt.Sprintf("%s>%s", from, to)
	if !strings.Contains(" "+arrows+" ", " "+arrow+" ") {
		return false
	}
	e := s[typ.String()+" "+arrow]
	return mask&e.need == e.need && mask&^(e.need|e.may|QPStateMask) == 0
}

// wholesome returns limits and attributes with which no value is wrong, so that only the mask decides.
func wholesome(from, to QPState) (*QPAttr, *PortLimits) {
	attr := &QPAttr{
		QPState: to, CurQPState: from, PathMTU: MTU1024, PortNum: 1, AltPortNum: 1,
		AHAttr: AHAttr{GRH: true, PortNum: 1}, AltAHAttr: AHAttr{GRH: true, PortNum: 1},
	}
	return attr, &PortLimits{
		Ports: 1, ActiveMTU: MTU4096, PKeys: 1, GIDs: 1, MaxRdAtomic: 16, MaxDestRdAtomic: 16, RateLimit: true,
	}
}

// place names a cell of the state table.
type place struct {
	typ      QPType
	from, to QPState
}

func (p place) String() string { return fmt.Sprintf("%s %s>%s", p.typ, p.from, p.to) }

// everyCell returns every pair of states of every type.
func everyCell() (all []place) {
	for _, typ := range allTypes() {
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				all = append(all, place{typ, from, to})
			}
		}
	}
	return all
}

func TestEveryCellOfTheStateTableIsWhatTheManualSays(t *testing.T) {
	said := readAttributeTable(t)
	for _, p := range everyCell() {
		attr, port := wholesome(p.from, p.to)
		check := func(what string, mask AttrMask) {
			t.Helper()
			next, err := CheckModify(p.typ, p.from, attr, mask, port)
			switch want := said.accepts(p.typ, p.from, p.to, mask); {
			case want && (err != nil || next != p.to):
				t.Errorf("%s with %s (%s): got state %s, error %v; want it accepted", p, mask, what, next, err)
			case !want && !errors.Is(err, unix.EINVAL):
				t.Errorf("%s with %s (%s): got error %v, want EINVAL", p, mask, what, err)
			case !want && next != p.from:
				t.Errorf("%s with %s (%s): a refused change moves to %s", p, mask, what, next)
			}
		}
		e := said[p.String()]
		least := QPStateMask | e.need
		check("least", least)
		check("all", least|e.may)
		for _, b := range maskBits() {
			if b != QPStateMask {
				check("one bit turned", least^b)
				check("all but one bit turned", (least|e.may)^b)
			}
		}
	}
}

func TestAnyMaskIsJudgedByTheRuleInWords(t *testing.T) {
	said := readAttributeTable(t)
	rapid.Check(t, func(r *rapid.T) {
		typ := rapid.SampledFrom(allTypes()).Draw(r, "type")
		from := QPState(rapid.IntRange(0, int(StateErr)).Draw(r, "from"))
		to := QPState(rapid.IntRange(0, int(StateErr)).Draw(r, "to"))
		mask := AttrMask(rapid.Uint32().Draw(r, "mask"))&(QPAttrStandardBits|QPRateLimit) | QPStateMask
		attr, port := wholesome(from, to)
		_, err := CheckModify(typ, from, attr, mask, port)
		if got, want := err == nil, said.accepts(typ, from, to, mask); got != want {
			r.Fatalf("accepted %t (%v), want %t", got, err, want)
		}
	})
}

func TestTheLeastAttributesAreThoseOfTheManual(t *testing.T) {
	// Written out once more as bits, so that the names do not vouch for themselves: struct ibv_qp_attr's mask bits are
	// ABI (include/rdma/ib_verbs.h).
	cases := []struct {
		typ      QPType
		from, to QPState
		mask     AttrMask
	}{
		{QPTypeRC, StateReset, StateInit, 0x39},
		{QPTypeRC, StateInit, StateRTR, 0x12_9181},
		{QPTypeRC, StateRTR, StateRTS, 0x1_2e01},
		{QPTypeUC, StateInit, StateRTR, 0x10_1181},
		{QPTypeUC, StateRTR, StateRTS, 0x1_0001},
		{QPTypeUD, StateReset, StateInit, 0x71},
		{QPTypeUD, StateInit, StateRTR, 0x1},
		{QPTypeUD, StateRTR, StateRTS, 0x1_0001},
		{QPTypeGSI, StateReset, StateInit, 0x51},
		{QPTypeGSI, StateInit, StateRTR, 0x1},
		{QPTypeGSI, StateRTR, StateRTS, 0x1_0001},
		{QPTypeRawPacket, StateReset, StateInit, 0x21},
		{QPTypeRawPacket, StateInit, StateRTR, 0x1},
		{QPTypeRawPacket, StateRTR, StateRTS, 0x1},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s to %s", c.typ, c.from, c.to), func(t *testing.T) {
			attr, port := wholesome(c.from, c.to)
			if next, err := CheckModify(c.typ, c.from, attr, c.mask, port); err != nil || next != c.to {
				t.Errorf("the least mask is refused: state %s, %v", next, err)
			}
			for bit := range 21 {
				b := AttrMask(1) << bit
				if b == QPStateMask || c.mask&b == 0 {
					continue
				}
				if _, err := CheckModify(c.typ, c.from, attr, c.mask&^b, port); !errors.Is(err, unix.EINVAL) {
					t.Errorf("without %s: error %v, want EINVAL", b, err)
				}
			}
		})
	}
}
