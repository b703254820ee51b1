# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The initramfs: the guest agent as /init, the modules it needs to reach the root, and pvcheck.
# All that changes often is in here, so that a change costs seconds.

initrd_locate() {
	local inputs
	mapfile -t inputs < <(find "$top/tests/vm/guest" "$top/tests/vm/harness/agentproto" -type f \
		\( -name '*.go' -o -name '*.[ch]' \) ! -name '*_test.go' | LC_ALL=C sort)
	INITRD_DIR=$CACHE/initrd-$(key_of "$(basename "$GUEST_DIR")" "$here/lib/initrd.sh" "${inputs[@]}")
}

initrd_build() {
	local tmp start=$SECONDS
	say "[4/4] initramfs: about 10 s ..."
	tmp=$(work_dir initrd)
	mkdir -p "$tmp/tree/payload" "$tmp/image"
	cp -r "$GUEST_DIR/boot-modules" "$tmp/tree/modules"
	agent_compile "$tmp/tree/init"
	programs_compile "$tmp/tree/payload"
	(cd "$tmp/tree" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) |
		zstd -1 -q -o "$tmp/image/initrd.zst"
	remove_tree "$tmp/tree"
	piece_commit "$tmp" "$INITRD_DIR"
	say "[4/4] initramfs: done in $((SECONDS - start)) s"
}

agent_compile() {
	command -v go >/dev/null || die "no go on PATH: the guest agent is a Go program"
	(cd "$top" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags='-s -w' -o "$1" ./tests/vm/guest/agent) ||
		die "cannot build tests/vm/guest/agent"
}

# programs_compile DIR: each directory of C files under guest/ becomes DIR/its-name, compiled in the build root
# against the libibverbs that the guest runs.
programs_compile() {
	local root=$GUEST_DIR/devroot source name
	for source in "$top"/tests/vm/guest/*/; do
		name=$(basename "$source")
		compgen -G "$source*.c" >/dev/null || continue
		remove_tree "$root/tmp/$name"
		cp -r "$source" "$root/tmp/$name"
		chroot "$root" sh -c "cd /tmp/$name && gcc -std=gnu17 -O2 -g1 -Wall -Wextra -Werror -o out ./*.c -libverbs" >&3 2>&3 ||
			die "cannot compile tests/vm/guest/$name"
		mv "$root/tmp/$name/out" "$1/$name"
	done
}
