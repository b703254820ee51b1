// SPDX-License-Identifier: Apache-2.0

// Package verbstest is the contract that every engine behind hostverbs.Provider has to keep: what arrives, what
// completes and how, what is refused, and when. It plays the device's part, with posted requests, a posted receive
// queue and guest memory from the heap, so that the race detector sees every byte.
//
// An engine's test calls Run with a function that opens it. Each Case is a promise with a sentence for a name. The
// contract is what provider.go says; contract.md lists each sentence of it with the promises that check it, and a test
// compares the three. Besides, the suite's device looks at every call: callbacks come on the owner's thread, requests
// are not looked at again once PostSend has taken them, and guest memory is what it should be, to the byte.
//
// It may not know any engine: what only one of them can promise is tested with that engine.
package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// Env is an engine under test.
type Env struct {
	Provider hostverbs.Provider
	// Clock is the time that the engine's Progress is given.
	Clock Clock
	// LatePercent is how much later than due a timer may fire. The InfiniBand architecture allows 300.
	LatePercent int64
	// Owners is how many threads share the engine, 0 for one. The guests of a test belong to one after the other, so that
	// those that talk to each other belong to two.
	Owners int
}

// Case is one promise.
type Case struct {
	// Name is the promise as a sentence.
	Name string
	// Check fails t if the engine breaks it.
	Check func(t testing.TB, env Env)
}

// Run holds an engine to all promises. open returns a fresh one.
func Run(t *testing.T, open func(t testing.TB) Env) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Check(t, open(t)) })
	}
}

// Cases returns all promises.
func Cases() []Case {
	var all []Case
	for _, part := range [][]Case{
		engineCases(), orderCases(), dataCases(), layoutCases(), localCases(), remoteCases(), receiveCases(), rnrCases(), lossCases(), flushCases(),
		stateCases(), tableCases(), drainCases(), objectCases(), gidCases(), gsiCases(), faultCases(), progressCases(), fairnessCases(),
		stormCases(), takeawayCases(), atomicCases(), fastRegCases(), datagramCases(), datagramFaultCases(), unreliableCases(), srqCases(),
		attrCases(), linkCases(),
	} {
		all = append(all, part...)
	}
	return all
}
