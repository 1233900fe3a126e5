# SPDX-License-Identifier: MIT
"""The bench's lists: every op of the table is measured, here or in a row of its own."""

import pathlib
import re
import subprocess
import sys

import cermet.core as mx

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_op_is_measured():
    listed = subprocess.run(
        [sys.executable, ROOT / "bench/run.py", "--ceiling", "none", "--list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(listed) == len(set(listed))
    swept = {m[1] for line in listed if (m := re.match(r"op (\w+)", line))}
    source = (ROOT / "bench/cases/ops.py").read_text()
    elsewhere = set(re.findall(r'"(\w+)"', re.search(r"ELSEWHERE = \{(.*?)\}", source, re.S)[1]))
    assert {row["name"] for row in mx._op_table()} == swept | elsewhere
