// SPDX-License-Identifier: Apache-2.0

//go:build vm

package perf

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }
