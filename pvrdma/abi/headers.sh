#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure the C headers of the pvrdma ABI are on this machine and prints the
# directory that holds them (a small part of a Linux source tree):
#
#   drivers/infiniband/hw/vmw_pvrdma/*       the driver, with its device headers
#   include/uapi/rdma/vmw_pvrdma-abi.h       the header shared with user space
#
# What is absent is installed by apt-get (needs root). The files stay outside the
# checkout, in a directory named after the package version; it appears at once and
# complete, so any number of callers may run at the same time.
#
#   PVRDMAD_LINUX_SOURCE_PACKAGE  Debian package to take the source from (linux-source-6.1)
#   PVRDMAD_CACHE                 cache directory (${XDG_CACHE_HOME:-~/.cache}/pvrdmad)
set -eu

package=${PVRDMAD_LINUX_SOURCE_PACKAGE:-linux-source-6.1}
cache=${PVRDMAD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pvrdmad}/linux-headers
tarball=/usr/src/$package.tar.xz

fail() {
	echo "headers.sh: $*" >&2
	exit 1
}

# ensure PACKAGE FILE: installs PACKAGE when FILE is absent.
ensure() {
	[ -e "$2" ] && return 0
	[ "$(id -u)" = 0 ] || fail "$2 is missing; run as root: apt-get install $1"
	apt="apt-get -q -y -o DPkg::Lock::Timeout=300"
	{
		DEBIAN_FRONTEND=noninteractive $apt update &&
			DEBIAN_FRONTEND=noninteractive $apt install --no-install-recommends "$1"
	} >&2 || fail "apt-get install $1 failed; see its output above"
	[ -e "$2" ] || fail "package $1 does not contain $2"
}

mkdir -p "$cache"
# One caller installs and extracts; the others wait here and find the result.
exec 9>"$cache/.lock"
flock 9

ensure linux-libc-dev /usr/include/rdma/vmw_pvrdma-abi.h
ensure "$package" "$tarball"

version=$(dpkg-query -W -f '${Version}' "$package") || fail "$package is not a dpkg package"
tree=$cache/$version
if [ ! -d "$tree" ]; then
	new=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	tar -xf "$tarball" -C "$new" --strip-components=1 --wildcards \
		'*/drivers/infiniband/hw/vmw_pvrdma/*' '*/include/uapi/rdma/vmw_pvrdma-abi.h' ||
		fail "extract $tarball"
	chmod 0755 "$new"
	mv -T "$new" "$tree"
	trap - EXIT
fi
echo "$tree"
