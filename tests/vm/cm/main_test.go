// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package cm holds the tests of connection management: rdma-core's own tools connect through rdma_cm, between guests
// among which there is always one that has no part in it.
package cm

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }
