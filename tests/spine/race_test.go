// SPDX-License-Identifier: Apache-2.0

//go:build race

package spine

// raceEnabled says that these tests are built with the race detector.
const raceEnabled = true
