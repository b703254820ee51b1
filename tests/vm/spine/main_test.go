// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// world is a stage with two guests, a and b, unless its maker wants others.
type world struct{ *stage.Stage }

func makeWorld(t *testing.T, opts bed.Options) *world {
	t.Helper()
	return &world{stage.New(t, opts)}
}
