# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The machine's own package sources, pointed at other suites, and roots made from them.

TOOLS="mmdebstrap squashfs-tools cpio zstd xz-utils debian-archive-keyring"

install_tools() {
	local missing=()
	local tool
	for tool in $TOOLS; do
		dpkg-query -W -f '${db:Status-Status}' "$tool" 2>/dev/null | grep -qx installed || missing+=("$tool")
	done
	if [ ${#missing[@]} = 0 ]; then return 0; fi
	say "installing ${missing[*]} ..."
	mkdir -p "$CACHE/logs"
	if ! (apt-get update && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends "${missing[@]}") >"$CACHE/logs/tools.log" 2>&1; then
		tail -n 15 "$CACHE/logs/tools.log" >&3
		die "cannot install ${missing[*]} (log: $CACHE/logs/tools.log)"
	fi
}

# apt_sources FILE SUITES: writes FILE with the machine's main archive and the given suites.
apt_sources() {
	local codename
	codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
	[ -n "$codename" ] || die "/etc/os-release names no VERSION_CODENAME: is this Debian?"
	if deb822_stanza "$codename" "$2" >"$1" || one_line_source "$codename" "$2" >"$1"; then return 0; fi
	die "found no apt source for $codename in /etc/apt/sources.list*: add the Debian archive there"
}

# The first enabled deb822 stanza which lists the suite $1, with its suites replaced by $2.
deb822_stanza() {
	local files=(/etc/apt/sources.list.d/*.sources)
	[ -e "${files[0]}" ] || return 1
	# An empty line between two files keeps their stanzas apart; RS= then splits at empty lines.
	awk 'FNR == 1 { print "" } !/^#/' "${files[@]}" | awk -v RS= -v old="$1" -v new="$2" '
		!/(^|\n)Types:[^\n]*deb( |\n|$)/ || /(^|\n)Enabled: *no/ { next }
		$0 !~ "(^|\n)Suites:([^\n]* )?" old "( |\n|$)" { next }
		{ sub(/Suites:[^\n]*/, "Suites: " new); sub(/Types:[^\n]*/, "Types: deb"); print; found = 1; exit }
		END { exit !found }'
}

# The first "deb ... SUITE ..." line for the suite $1, once for each suite in $2.
one_line_source() {
	local files=(/etc/apt/sources.list /etc/apt/sources.list.d/*.list)
	cat "${files[@]}" 2>/dev/null | awk -v old="$1" -v suites="$2" '
		$1 != "deb" { next }
		{ for (i = 2; i <= NF; i++) if ($i == old) {
			n = split(suites, s, " ")
			for (k = 1; k <= n; k++) { $i = s[k]; print }
			found = 1; exit } }
		END { exit !found }'
}

# make_root DIR VARIANT PACKAGES SUITES [MMDEBSTRAP OPTION...]
make_root() {
	local dir=$1 variant=$2 packages=$3 suites=$4 sources
	shift 4
	sources=$dir.sources
	apt_sources "$sources" "$suites"
	# The packages are signed by the archive; force-unsafe-io only spares fsync in a root we may throw away.
	mmdebstrap --mode=root --variant="$variant" --include="$packages" \
		--dpkgopt=force-unsafe-io "$@" '' "$dir" "$sources"
}
