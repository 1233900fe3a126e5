#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the packages of tools/packages.txt that are missing (sudo if not root); with --list only
# names them. Does nothing, and asks for nothing, when none is missing.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"

mapfile -t wanted < <(grep -v '^#' packages.txt | sort)
installed=$(dpkg-query -W -f '${Package} ${Status}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/ install ok installed$//p' | sort -u || true)
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}") <(echo "$installed"))
[ ${#missing[@]} -gt 0 ] || exit 0

echo "missing packages: ${missing[*]}"
[ "${1:-}" != "--list" ] || exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}
# The package lists are fetched only where those at hand do not serve.
install || { "${as_root[@]}" apt-get update -q && install; }
