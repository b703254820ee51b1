// SPDX-License-Identifier: Apache-2.0

// Package matrix tries every field of every command with values out of its range, and every command in every wrong state and
// order.
//
// What has no row fails: the fields come from the headers' layout. A refused command must leave the whole device, the
// engine and all guest memory as they were, and move one counter. The package holds tests alone.
package matrix
