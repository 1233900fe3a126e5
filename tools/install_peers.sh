#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Puts the libraries that the bench compares with into .venv-peers: bench/requirements.txt, pinned.
# They are gigabytes, so the size is said first and 10 GB must be free. A package that cannot be
# installed is left out; the bench then prints "not installed" in its column.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-peers
stamp=$venv/.installed
if [ -e "$stamp" ] && ! [ bench/requirements.txt -nt "$stamp" ]; then exit 0; fi
free_gb=$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)
echo "The peers (torch, jax, mlx, …) take about 7 GB in $venv; $free_gb GB are free."
if [ "$free_gb" -lt 10 ]; then
  echo "10 GB must be free: the peers are left out."
  exit 0
fi
[ -x $venv/bin/python ] || "${PYTHON:-python3}" -m venv $venv
grep -v '^#' bench/requirements.txt | while read -r requirement; do
  $venv/bin/python -m pip install -q "$requirement" || echo "not installed: $requirement"
done
touch "$stamp"
