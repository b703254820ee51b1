// SPDX-License-Identifier: Apache-2.0

package stage

import "os"

// Long reports whether this is make test-long.
func Long() bool { return os.Getenv("LONG") != "" }

// Count is how often a test does something: short in make test, long in make test-long.
func Count(short, long int) int {
	if Long() {
		return long
	}
	return short
}
