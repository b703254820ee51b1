#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure that the parts of the Linux source which tests compare this project with are
# on this machine, and prints the directory that holds them (a small part of the tree):
#
#   drivers/infiniband/hw/vmw_pvrdma   the driver, with its device headers
#   drivers/infiniband/core/verbs.c    the state table of queue pairs
#   include/rdma/ib_verbs.h            its words
#   include/uapi/rdma                  the headers shared with user space
#
# They are Debian's, unmodified. They stay outside the checkout, in a directory named after
# the package and the list above; it appears at once and complete, so any number of callers
# may run at the same time.
#
#   PVRDMAD_LINUX_SOURCE_PACKAGE  Debian package to take the source from (linux-source-6.1)
#   PVRDMAD_CACHE                 cache directory (${XDG_CACHE_HOME:-~/.cache}/pvrdmad)
set -eu

package=${PVRDMAD_LINUX_SOURCE_PACKAGE:-linux-source-6.1}
cache=${PVRDMAD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pvrdmad}/linux-source
members="drivers/infiniband/hw/vmw_pvrdma drivers/infiniband/core/verbs.c include/rdma/ib_verbs.h include/uapi/rdma"

fail() {
	echo "fetch.sh: $*" >&2
	exit 1
}

# download puts the package into the directory $1. Package lists can be absent or old.
download() (
	cd "$1"
	apt="apt-get -q -o APT::Sandbox::User=root"
	$apt download "$package" >&2 && exit 0
	[ "$(id -u)" = 0 ] || fail "cannot download $package; run as root: apt-get update"
	$apt -o DPkg::Lock::Timeout=300 update >&2 && $apt download "$package" >&2
)

# extract unpacks the members from the package in the directory $1 into the directory $1/tree.
extract() {
	set -- "$1" "$1"/"$package"_*.deb
	mkdir "$1/tree"
	dpkg-deb --fsys-tarfile "$2" | tar -xO "./usr/src/$package.tar.xz" >"$1/source.tar.xz"
	# shellcheck disable=SC2046
	tar -xJf "$1/source.tar.xz" -C "$1/tree" --no-same-owner --strip-components=1 \
		$(for m in $members; do echo "$package/$m"; done)
	dpkg-deb -f "$2" Version >"$1/tree/DEBIAN_VERSION"
}

tree=$cache/$package-$(echo "$members" | cksum | cut -d ' ' -f 1)
if [ ! -d "$tree" ]; then
	for tool in apt-get dpkg-deb xz flock; do
		command -v "$tool" >/dev/null || fail "$tool is missing"
	done
	mkdir -p "$cache"
	# One caller downloads and extracts; the others wait here and find the result.
	exec 9>"$cache/.lock"
	flock 9
fi
if [ ! -d "$tree" ]; then
	new=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	download "$new" || fail "no $package; see the output of apt-get above"
	extract "$new" || fail "cannot unpack $package"
	mv -T "$new/tree" "$tree"
fi
echo "$tree"
