#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts the QEMU beside this file with the libraries beside it, whatever the machine's own are.
root=$(dirname "$(readlink -f "$0")")
lib=$root/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR="$lib/qemu"
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$lib:$lib/pulseaudio" \
	"$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
