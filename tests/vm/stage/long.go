// SPDX-License-Identifier: Apache-2.0

package stage

import "os"

// Count is how often a test does something: short in make test, long in make test-long.
func Count(short, long int) int {
	if os.Getenv("LONG") != "" {
		return long
	}
	return short
}
