# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Messages, the cache, its lock, its checksums, and jobs that run side by side.

CACHE=${PVRDMAD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pvrdmad}/vm
ROW=

# Messages for people go to the caller's stderr, even from a job whose own goes to a log.
exec 3>&2
say() { printf '%s\n' "$*" >&3; }

die() {
	say "vm lane${ROW:+ (row $ROW)}: $*"
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "building images needs root; run this once:
  sudo env PATH=\"\$PATH\" PVRDMAD_CACHE=\"${CACHE%/vm}\" $here/images build"
}

# key_of TEXT FILE...: 16 hex digits that change whenever the text or a file changes.
key_of() {
	local text=$1
	shift
	{ printf '%s\n' "$text" && cat -- "$@"; } | sha256sum | cut -c1-16
}

list_of() { sed -e 's/#.*//' -e "s/@KERNEL@/$GUEST_KERNEL/" "$here/packages/$1.list" | xargs | tr ' ' ','; }

# A piece is a directory with image/ and SUMS. It appears by one rename, so it is whole or absent.
piece_present() { [ -d "$1" ]; }

# CRC and size of every file: they find truncation and bit rot in 0.1 s where SHA-256 takes 1 s.
piece_sums() {
	(cd "$1" && find image -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum)
}

piece_verify() {
	local got bad
	got=$(piece_sums "$1") || die "cannot read a cached image; remove it: rm -rf $1"
	if bad=$(diff <(printf '%s\n' "$got") "$1/SUMS"); then return 0; fi
	bad=$(awk '/^>/ { print $4; exit }' <<<"$bad")
	die "a cached image is damaged or truncated:
  $1/${bad:-SUMS}
remove it, and the next run builds it anew:
  rm -rf $1"
}

# piece_commit TMP DIR: TMP/image becomes DIR.
piece_commit() {
	piece_sums "$1" >"$1/SUMS"
	chmod 755 "$1" # whoever runs the guests need not be who built them
	mv -T "$1" "$2"
}

# Work in progress lies beside its target, so that the rename stays within one file system.
work_dir() {
	mkdir -p "$CACHE"
	mktemp -d "$CACHE/tmp.$1.XXXXXX"
}

# --one-file-system: an interrupted build may have left a /proc mounted inside.
remove_tree() { rm -rf --one-file-system -- "$@"; }

# take_build_lock: one run builds at a time. The lock ends with the process.
take_build_lock() {
	mkdir -p "$CACHE"
	exec 9>"$CACHE/lock"
	if ! flock -n 9; then
		say "another run is building images; waiting for it (lock: $CACHE/lock) ..."
		flock 9
	fi
	remove_tree "$CACHE"/tmp.*
}

# start_job LIST NAME FUNCTION: runs FUNCTION beside us; only a failure shows its output.
# Call it outside of any condition: bash ignores set -e in there, and in all that is started from there.
start_job() {
	local -n list=$1
	mkdir -p "$CACHE/logs"
	"$3" 9>&- >"$CACHE/logs/$2.log" 2>&1 &
	list+=("$!:$2")
}

finish_jobs() {
	local job failed=
	for job in "$@"; do
		if wait "${job%%:*}"; then continue; fi
		failed="$failed ${job#*:}"
		tail -n 25 "$CACHE/logs/${job#*:}.log" >&2
	done
	[ -z "$failed" ] || die "building failed:$failed (logs: $CACHE/logs)"
}

cache_clean() {
	[ -d "$CACHE" ] || return 0
	take_build_lock
	remove_tree "$CACHE"/qemu-* "$CACHE"/guest-* "$CACHE"/initrd-* "$CACHE"/logs
}
