#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Proves that a fresh Debian 12 needs nothing but the README's commands: debootstraps bookworm into a
# folder, clones the current commit inside, and runs `make demo && make test` in the chroot. The daily
# machine has compilers and Pythons that a fresh one lacks. Needs root and debootstrap.
# Usage: tools/fresh.sh [folder]          (kept afterwards; a later run starts from the same base)
# Variables: MIRROR, DEMO_ARGS (for the demo; default "--seconds 60").
set -euo pipefail
cd "$(dirname "$0")/.."

root=${1:-${TMPDIR:-/var/tmp}/cermet-fresh}
mirror=${MIRROR:-http://deb.debian.org/debian}
demo_arguments=${DEMO_ARGS:---seconds 60}
[ "$(id -u)" = 0 ] || { echo "tools/fresh.sh must run as root: it makes a chroot" >&2; exit 1; }
command -v debootstrap > /dev/null || { echo "install the package debootstrap" >&2; exit 1; }

mkdir -p "$root"
root=$(realpath "$root")
if [ ! -e "$root/.bootstrapped" ]; then
  debootstrap --variant=minbase --include=ca-certificates,git,make bookworm "$root" "$mirror"
  touch "$root/.bootstrapped"
fi

# What the host uses to reach the network: names, proxies and certificates.
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
cp -n /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2> /dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

mounts=()
unmount() {
  for ((i = ${#mounts[@]} - 1; i >= 0; --i)); do umount -l "${mounts[i]}"; done
}
trap unmount EXIT
for folder in proc sys dev dev/shm dev/pts; do
  mkdir -p "$root/$folder"
  mount --bind "/$folder" "$root/$folder"
  mounts+=("$root/$folder")
done

rm -rf "$root/cermet" "$root/cermet.git"
git clone -q --bare . "$root/cermet.git"
git -C "$root/cermet.git" update-ref --no-deref HEAD "$(git rev-parse HEAD)"
git clone -q "$root/cermet.git" "$root/cermet"
start=$(date +%s)
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" \
  bash -c "cd /cermet && make demo ARGS='$demo_arguments' && make test"
echo "fresh Debian 12: demo and tests pass, $(($(date +%s) - start)) s from the clone"
