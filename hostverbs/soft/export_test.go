// SPDX-License-Identifier: Apache-2.0

package soft

// Constants for tests.
const (
	PieceCost    = pieceCost
	CrowdedBytes = crowdedBytes
	CrowdedFor   = crowdedFor
)
