# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The build root: the guest's compiler, headers and libraries, and the unmodified vmw_pvrdma made with them.

# What tests read of the kernel's source; the rest of the tarball is not kept.
SOURCE_MEMBERS="drivers/infiniband/hw/vmw_pvrdma drivers/infiniband/core/verbs.c include/rdma include/uapi/rdma
	COPYING LICENSES"

devroot_build() {
	local start=$SECONDS
	say "[3/4] build root and vmw_pvrdma (Linux $GUEST_KERNEL): about 60 s ..."
	make_root "$GUEST_TMP/devroot" essential "$(list_of devroot)" "$GUEST_SUITES"
	source_extract
	module_build
	devroot_trim
	say "[3/4] build root and vmw_pvrdma: done in $((SECONDS - start)) s"
}

source_extract() {
	local name=linux-source-$GUEST_KERNEL dest=$GUEST_TMP/image/linux-source
	local members=()
	local member
	for member in $SOURCE_MEMBERS; do members+=("$name/$member"); done
	mkdir -p "$dest"
	tar -C "$dest" --strip-components=1 --no-same-owner -xJf "$GUEST_TMP/devroot/usr/src/$name.tar.xz" "${members[@]}"
	chroot "$GUEST_TMP/devroot" dpkg-query -W -f '${Version}\n' "$name" >"$dest/DEBIAN_VERSION"
}

# Debian leaves the driver out of its configuration, so the option is given on the command line.
module_build() {
	local root=$GUEST_TMP/devroot release
	release=$(basename "$(echo "$root"/lib/modules/*)")
	cp -r "$GUEST_TMP/image/linux-source/drivers/infiniband/hw/vmw_pvrdma" "$root/tmp/vmw_pvrdma"
	chroot "$root" make -j"$(nproc)" -C "/lib/modules/$release/build" M=/tmp/vmw_pvrdma \
		CONFIG_INFINIBAND_VMWARE_PVRDMA=m modules
	chroot "$root" strip --strip-debug /tmp/vmw_pvrdma/vmw_pvrdma.ko
	mkdir -p "$GUEST_TMP/module"
	mv "$root/tmp/vmw_pvrdma/vmw_pvrdma.ko" "$GUEST_TMP/module/"
	printf '%s\n' "$release" >"$GUEST_TMP/module/release"
}

# The compiler and the libraries stay, for pvcheck; the kernel's headers and source (500 MB) are done with.
devroot_trim() {
	local root=$GUEST_TMP/devroot
	remove_tree "$root"/usr/src/* "$root"/lib/modules/* "$root"/tmp/* "$root"/boot/* "$root"/usr/share/doc \
		"$root"/usr/share/man "$root"/usr/share/locale "$root"/var/cache/* "$root"/var/lib/apt
}
