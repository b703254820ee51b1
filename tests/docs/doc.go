// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands that the documents show, so that none of them rots. It holds no code but the tests.
package docs
