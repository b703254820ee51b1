// SPDX-License-Identifier: Apache-2.0

package soft

// PieceCost is pieceCost.
const PieceCost = pieceCost
