// SPDX-License-Identifier: Apache-2.0

//go:build race

package main

// raceSlowdown is by how much less is sent under the race detector.
const raceSlowdown = 20
