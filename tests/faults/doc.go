// SPDX-License-Identifier: Apache-2.0

// Command faults plants faults in this module, one at a time, and sees whether a test notices each. A test that was
// never seen red proves nothing, and one that was may have gone blind since.
//
//	go run ./tests/faults            all faults
//	go run ./tests/faults NAME...    some
//	go run ./tests/faults -list      what there is
//
// A fault is a file of planted/: which oracle it is to test, what it gets wrong, a change of the source, a test, and a
// text that the test's failure must have in it. The change goes to the compiler through an overlay (see go help build);
// no file of the checkout is touched. For each fault the test must pass without it and fail with it, by its own judgement
// and for that reason: a change that applies no more, that does not compile, or that nobody notices fails the run.
//
// The command tests tests; it may hold no test of the product itself.
package main
