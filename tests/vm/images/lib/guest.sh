# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The guest's root file system and kernel.

guest_locate() {
	GUEST_DIR=$CACHE/guest-$(key_of "$GUEST_DEBIAN $GUEST_SUITES $GUEST_KERNEL" "$here/lib/guest.sh" \
		"$here/lib/devroot.sh" "$here/lib/apt.sh" "$here/packages/guest.list" "$here/packages/devroot.list")
}

guest_root_build() {
	local start=$SECONDS
	say "[2/4] guest root (Debian $GUEST_DEBIAN, Linux $GUEST_KERNEL): about 60 s ..."
	# Without that hook no /boot/initrd.img is made: the guest starts from ours.
	make_root "$GUEST_TMP/root" essential "$(list_of guest)" "$GUEST_SUITES" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/etc/kernel/postinst.d/initramfs-tools'
	say "[2/4] guest root: done in $((SECONDS - start)) s"
}

# guest_assemble: root + module -> rootfs.squashfs, vmlinux and the modules that initrd.sh needs.
guest_assemble() {
	local start=$SECONDS
	local root=$GUEST_TMP/root image=$GUEST_TMP/image release
	say "[4/4] guest image: about 10 s ..."
	release=$(basename "$(echo "$root"/lib/modules/*)")
	[ "$release" = "$(cat "$GUEST_TMP/module/release")" ] ||
		die "the guest's kernel is $release, the module's $(cat "$GUEST_TMP/module/release"): run again"
	install -D -m 644 "$GUEST_TMP/module/vmw_pvrdma.ko" "$root/lib/modules/$release/updates/vmw_pvrdma.ko"
	chroot "$root" depmod "$release"
	guest_configure "$root"
	extract_vmlinux "$root/boot/vmlinuz-$release" "$image/vmlinux"
	boot_modules "$root" "$release" "$GUEST_TMP/boot-modules"
	remove_tree "$root"/boot/* "$root"/var/cache/* "$root"/var/lib/apt
	mksquashfs "$root" "$image/rootfs.squashfs" -noI -noD -noF -noX -no-xattrs -no-progress -quiet >/dev/null
	remove_tree "$root" "$root.sources" "$GUEST_TMP/devroot.sources" "$GUEST_TMP/module"
	piece_commit "$GUEST_TMP" "$GUEST_DIR"
	say "[4/4] guest image: done in $((SECONDS - start)) s"
}

guest_configure() {
	local root=$1
	# Tests load the driver when they want it; nothing else may.
	echo "blacklist vmw_pvrdma" >"$root/etc/modprobe.d/pvrdmad.conf"
	echo "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin" >"$root/etc/environment"
	mkdir -p "$root/opt/rdma-core-tests"
	cp -r "$root/usr/share/doc/rdma-core/tests" "$root/opt/rdma-core-tests/"
	find "$root/opt/rdma-core-tests" -name '*.gz' -exec gunzip {} +
}

# extract_vmlinux BZIMAGE OUT: the ELF kernel inside, which QEMU starts through PVH.
# It spares the guest the decompression of itself: a second under emulation.
extract_vmlinux() {
	local offset
	# What follows the compressed kernel is no part of it, so that both programs end with an error.
	for offset in $(LC_ALL=C grep -aboP '\x28\xb5\x2f\xfd' "$1" | cut -d: -f1); do
		tail -c "+$((offset + 1))" "$1" | zstd -dcq >"$2" 2>/dev/null || true
		if is_elf "$2"; then return 0; fi
	done
	for offset in $(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$1" | cut -d: -f1); do
		tail -c "+$((offset + 1))" "$1" | xz -dcq >"$2" 2>/dev/null || true
		if is_elf "$2"; then return 0; fi
	done
	die "found no kernel compressed with zstd or xz in $1"
}

is_elf() { [ "$(head -c 4 "$1" | tr -d '\0')" = $'\x7fELF' ]; }

# boot_modules ROOT RELEASE DIR: uncompressed modules, and their order in DIR/order.
boot_modules() {
	local root=$1 release=$2 dir=$3 module path name
	mkdir -p "$dir"
	# Older kernels have more of virtio as modules.
	for module in virtio_pci virtio_console virtio_blk squashfs overlay vmxnet3; do
		chroot "$root" modprobe -S "$release" --show-depends "$module"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$dir/paths"
	while read -r path; do
		name=$(basename "$path" .xz)
		case $path in
		*.xz) xz -dc "$root$path" >"$dir/$name" ;;
		*) cp "$root$path" "$dir/$name" ;;
		esac
		printf '%s\n' "$name" >>"$dir/order"
	done <"$dir/paths"
	rm "$dir/paths"
}
