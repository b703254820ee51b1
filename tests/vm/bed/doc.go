// SPDX-License-Identifier: Apache-2.0

// Package bed puts guests and the daemon together: pvrdmad as a process of its own, and virtual machines whose device it
// serves. The demonstration and the tests share it.
//
// It may not know package testing, nor decide what a test means.
package bed
