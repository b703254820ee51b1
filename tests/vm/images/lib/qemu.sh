# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# QEMU: the caller's, the machine's own if it is good enough, or one unpacked into the cache.

# qemu_locate: sets QEMU_BIN, and QEMU_DIR when it is (or will be) one of ours.
qemu_locate() {
	QEMU_DIR=
	QEMU_BIN=${PVRDMAD_QEMU:-}
	if [ -n "$QEMU_BIN" ]; then
		command -v "$QEMU_BIN" >/dev/null || die "PVRDMAD_QEMU=$QEMU_BIN is not a program"
		return 0
	fi
	QEMU_BIN=$(command -v qemu-system-x86_64 || true)
	if [ -n "$QEMU_BIN" ] && qemu_good "$QEMU_BIN"; then return 0; fi
	QEMU_DIR=$CACHE/qemu-$(key_of "$QEMU_SUITES $QEMU_RELEASE" "$here/lib/qemu.sh" "$here/lib/apt.sh" \
		"$here/packages/qemu.list" "$here/qemu-wrapper.sh")
	QEMU_BIN=$QEMU_DIR/image/qemu-system-x86_64
}

# qemu_good BIN: at least $QEMU_MIN, with the vfio-user-pci device.
qemu_good() {
	local version
	version=$("$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p')
	[ -n "$version" ] || return 1
	[ "$(printf '%s\n%s\n' "$QEMU_MIN" "$version" | sort -V | head -n 1)" = "$QEMU_MIN" ] || return 1
	"$1" -device help 2>/dev/null | grep -q '"vfio-user-pci"'
}

qemu_present() { [ -z "$QEMU_DIR" ] || piece_present "$QEMU_DIR"; }

# The root is only unpacked, never configured or entered: our wrapper starts QEMU by the root's own loader.
qemu_build() {
	local tmp start=$SECONDS
	say "[1/4] QEMU ($QEMU_RELEASE): about 10 s ..."
	tmp=$(work_dir qemu)
	make_root "$tmp/root" extract "$(list_of qemu)" "$QEMU_SUITES" \
		--aptopt="APT::Default-Release \"$QEMU_RELEASE\""
	mkdir -p "$tmp/image/usr/bin" "$tmp/image/usr/share"
	mv "$tmp/root/usr/lib" "$tmp/root/usr/lib64" "$tmp/image/usr/"
	mv "$tmp/root/usr/bin/qemu-system-x86_64" "$tmp/image/usr/bin/"
	mv "$tmp/root/usr/share/qemu" "$tmp/root/usr/share/seabios" "$tmp/image/usr/share/"
	install -m 755 "$here/qemu-wrapper.sh" "$tmp/image/qemu-system-x86_64"
	remove_tree "$tmp/root"
	qemu_good "$tmp/image/qemu-system-x86_64" ||
		die "QEMU from $QEMU_RELEASE is older than $QEMU_MIN, or lacks vfio-user-pci"
	piece_commit "$tmp" "$QEMU_DIR"
	say "[1/4] QEMU: done in $((SECONDS - start)) s"
}
