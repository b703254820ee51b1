// SPDX-License-Identifier: Apache-2.0

package hostverbs

// typeSet is a set of QPType, bit n for type n.
type typeSet uint16

const (
	setSMI typeSet = 1 << QPTypeSMI
	setGSI typeSet = 1 << QPTypeGSI
	setRC  typeSet = 1 << QPTypeRC
	setUC  typeSet = 1 << QPTypeUC
	setUD  typeSet = 1 << QPTypeUD
	setRaw typeSet = 1 << QPTypeRawPacket

	setConnected = setRC | setUC
	// setQP01 are the two that the management layer uses: they have a queue key, but no port of their own choice.
	setQP01     = setSMI | setGSI
	setDatagram = setUD | setQP01
	setAll      = setConnected | setDatagram | setRaw
)

// rule is one arrow of the queue pair's state diagram for some types: an attribute mask must hold all of need, and
// nothing but need, may and QPStateMask.
type rule struct {
	from, to  QPState
	types     typeSet
	need, may AttrMask
}

const (
	attrsInitConnected = QPPKeyIndex | QPPort | QPAccessFlagsMask
	attrsInitUD        = QPPKeyIndex | QPPort | QPQKey
	attrsKeys          = QPPKeyIndex | QPQKey

	attrsRTRUC = QPAV | QPPathMTU | QPDestQPN | QPRQPSN
	attrsRTRRC = attrsRTRUC | QPMaxDestRdAtomic | QPMinRNRTimer
	attrsRTSRC = QPTimeout | QPRetryCnt | QPRNRRetry | QPSQPSN | QPMaxQPRdAtomic

	// attrsLive are what a UC queue pair may change while it runs.
	attrsLive = QPCurState | QPAltPath | QPAccessFlagsMask | QPPathMigState

	attrsSQDUC = QPAV | QPAltPath | QPAccessFlagsMask | QPPKeyIndex | QPPathMigState
	attrsSQDRC = attrsSQDUC | QPPort | QPTimeout | QPRetryCnt | QPRNRRetry | QPMaxQPRdAtomic | QPMaxDestRdAtomic | QPMinRNRTimer
)

// rules is the state diagram, without the arrows to RESET and ERR (see tabulate). It says what the function
// ib_modify_qp_is_ok of drivers/infiniband/core/verbs.c accepts, for the types that exist here.
var rules = [...]rule{
	{from: StateReset, to: StateInit, types: setConnected, need: attrsInitConnected},
	{from: StateReset, to: StateInit, types: setUD, need: attrsInitUD},
	{from: StateReset, to: StateInit, types: setQP01, need: attrsKeys},
	{from: StateReset, to: StateInit, types: setRaw, need: QPPort},

	{from: StateInit, to: StateInit, types: setConnected, may: attrsInitConnected},
	{from: StateInit, to: StateInit, types: setUD, may: attrsInitUD},
	{from: StateInit, to: StateInit, types: setQP01, may: attrsKeys},
	{from: StateInit, to: StateInit, types: setRaw},

	{from: StateInit, to: StateRTR, types: setRC, need: attrsRTRRC, may: QPAltPath | QPAccessFlagsMask | QPPKeyIndex},
	{from: StateInit, to: StateRTR, types: setUC, need: attrsRTRUC, may: QPAltPath | QPAccessFlagsMask | QPPKeyIndex},
	{from: StateInit, to: StateRTR, types: setDatagram, may: attrsKeys},
	{from: StateInit, to: StateRTR, types: setRaw},

	{from: StateRTR, to: StateRTS, types: setRC, need: attrsRTSRC, may: attrsLive | QPMinRNRTimer},
	{from: StateRTR, to: StateRTS, types: setUC, need: QPSQPSN, may: attrsLive},
	{from: StateRTR, to: StateRTS, types: setDatagram, need: QPSQPSN, may: QPCurState | QPQKey},
	{from: StateRTR, to: StateRTS, types: setRaw, may: QPRateLimit},

	{from: StateRTS, to: StateRTS, types: setRC, may: attrsLive | QPMinRNRTimer},
	{from: StateRTS, to: StateRTS, types: setUC, may: attrsLive},
	{from: StateRTS, to: StateRTS, types: setDatagram, may: QPCurState | QPQKey},
	{from: StateRTS, to: StateRTS, types: setRaw, may: QPRateLimit},

	{from: StateRTS, to: StateSQD, types: setConnected | setDatagram, may: QPEnSQDAsyncNotify},
	{from: StateRTS, to: StateSQD, types: setRaw},

	{from: StateSQD, to: StateRTS, types: setRC, may: attrsLive | QPMinRNRTimer},
	{from: StateSQD, to: StateRTS, types: setUC, may: attrsLive},
	{from: StateSQD, to: StateRTS, types: setDatagram, may: QPCurState | QPQKey},
	{from: StateSQD, to: StateRTS, types: setRaw},

	{from: StateSQD, to: StateSQD, types: setRC, may: attrsSQDRC},
	{from: StateSQD, to: StateSQD, types: setUC, may: attrsSQDUC},
	{from: StateSQD, to: StateSQD, types: setDatagram, may: attrsKeys},
	{from: StateSQD, to: StateSQD, types: setRaw},

	{from: StateSQE, to: StateRTS, types: setRC | setRaw},
	{from: StateSQE, to: StateRTS, types: setUC, may: QPCurState | QPAccessFlagsMask},
	{from: StateSQE, to: StateRTS, types: setDatagram, may: QPCurState | QPQKey},
}

// numTypes and numStates are the lengths of the state table's sides.
const (
	numTypes  = int(QPTypeRawPacket) + 1
	numStates = int(StateErr) + 1
)

// cell is what the rules say of one transition of one type. An attribute mask must hold all of need and nothing but
// allowed, which holds need and QPStateMask. Of a transition that does not exist both are such that no mask will do.
type cell struct {
	need, allowed AttrMask
}

// nowhere is a transition that does not exist: it needs what it does not allow.
var nowhere = cell{need: ^AttrMask(0)}

// cells is the state table, made of the rules once. Nothing writes to it afterwards.
var cells = tabulate()

// tabulate writes the rules out as a table.
func tabulate() (table [numTypes][numStates][numStates]cell) {
	for typ := range table {
		for from := range table[typ] {
			for to := range table[typ][from] {
				table[typ][from][to] = nowhere
			}
		}
	}
	for i := range rules {
		r := &rules[i]
		r.types.each(func(typ QPType) {
			table[typ][r.from][r.to] = cell{need: r.need, allowed: r.need | r.may | QPStateMask}
		})
	}
	// Every state leads to RESET, and every one but RESET to ERR, with nothing but the state.
	setAll.each(func(typ QPType) {
		for from := StateReset; from <= StateErr; from++ {
			table[typ][from][StateReset] = cell{allowed: QPStateMask}
			if from != StateReset {
				table[typ][from][StateErr] = cell{allowed: QPStateMask}
			}
		}
	})
	return table
}

// each calls fn for the types of the set.
func (s typeSet) each(fn func(QPType)) {
	for typ := range QPType(numTypes) {
		if s&(1<<typ) != 0 {
			fn(typ)
		}
	}
}

// lookup returns the transition from one state to another for a type of queue pair. States and types may be anything.
func lookup(typ QPType, from, to QPState) cell {
	if int(typ) >= numTypes || int(from) >= numStates || int(to) >= numStates {
		return nowhere
	}
	return cells[typ][from][to]
}

// accepts says whether the attribute mask is a legal one for the transition.
func (c cell) accepts(mask AttrMask) bool {
	return c.need&^mask == 0 && mask&^c.allowed == 0
}

// Transition returns what the state table says of moving a queue pair of the type typ from one state to another, which may
// be the same: the attributes that a modify must name, and those that it may name besides. QPStateMask is in neither: it
// is always allowed, and needed if the states differ. exists is false if there is no such transition.
func Transition(typ QPType, from, to QPState) (required, optional AttrMask, exists bool) {
	c := lookup(typ, from, to)
	if c == nowhere {
		return 0, 0, false
	}
	return c.need, c.allowed &^ (c.need | QPStateMask), true
}
