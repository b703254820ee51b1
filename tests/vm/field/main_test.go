// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package field holds the tests with guests as they are found in the field: of other distributions, older and newer side
// by side, and with devices of every version.
package field

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }
