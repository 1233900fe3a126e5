# SPDX-License-Identifier: MIT
"""The bench: every op of the table is measured, here or in a row of its own; Ctrl-C keeps rows."""

import json
import os
import pathlib
import re
import signal
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


def test_an_interrupted_run_keeps_what_it_measured(tmp_path):
    command = [sys.executable, ROOT / "bench/run.py", "--ceiling", "true", "--results", tmp_path]
    run = subprocess.Popen(
        [*command, "--peers", "cermet", "--only", "later kernels"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches its processes, too
    )
    bar = ""
    while " 1/2 " not in bar and (character := run.stderr.read(1)):
        bar += character
    os.killpg(run.pid, signal.SIGINT)
    output, errors = run.communicate(timeout=60)
    assert "interrupted: 1 of 2 cases were measured" in output, bar + errors
    assert "later kernels of up to 20 IR ops " in output
    (file,) = tmp_path.glob("*.json")
    assert len(json.loads(file.read_text())["rows"]) == 1
    assert run.returncode == 1
