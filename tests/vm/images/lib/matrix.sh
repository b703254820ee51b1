# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Reads matrix.toml: `[[row]]` tables of `key = "value"` lines, nothing else.

MATRIX=$here/../matrix.toml

matrix_names() {
	awk -F'"' '/^name *=/ { print $2 }' "$MATRIX"
}

# matrix_value KEY: the value of KEY in the table whose name is $ROW.
matrix_value() {
	local value
	value=$(awk -F'"' -v row="$ROW" -v key="$1" '
		/^\[\[row\]\]/ { name = "" }
		/^name *=/ { name = $2 }
		name == row && $1 ~ "^" key " *= *$" { print $2; exit }' "$MATRIX")
	[ -n "$value" ] || die "matrix.toml: row $ROW has no $1"
	printf '%s\n' "$value"
}

matrix_load() {
	[ -n "$ROW" ] || ROW=$(matrix_names | head -n 1)
	matrix_names | grep -qxF -- "$ROW" ||
		die "matrix.toml has no row \"$ROW\"; it has: $(matrix_names | tr '\n' ' ')"
	QEMU_MIN=$(matrix_value qemu_min)
	QEMU_SUITES=$(matrix_value qemu_suites)
	QEMU_RELEASE=$(matrix_value qemu_release)
	GUEST_DEBIAN=$(matrix_value guest_debian)
	GUEST_SUITES=$(matrix_value guest_suites)
	GUEST_KERNEL=$(matrix_value guest_kernel)
}
