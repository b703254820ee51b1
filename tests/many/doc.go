// SPDX-License-Identifier: Apache-2.0

// Package many holds the tests of large numbers: a guest with as many objects as it may have, many guests, what each takes
// of the daemon's memory, and that work with one of them does not depend on how many others there are.
//
// The guests are those of tests/inproc: requests are bytes in a slot, so that hardly anything but the device allocates.
package many
