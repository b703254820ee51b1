// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package storage holds the tests of kernel storage over the device: a block device of one guest's kernel is a disk in
// another guest.
package storage

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }
