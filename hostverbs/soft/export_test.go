// SPDX-License-Identifier: Apache-2.0

package soft

// Constants for tests.
const (
	PieceCost    = pieceCost
	MaxPollers   = maxPollers
	CrowdedBytes = crowdedBytes
	CrowdedFor   = crowdedFor
	InboxLen     = inboxLen
)
