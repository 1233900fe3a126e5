# SPDX-License-Identifier: MIT
"""The bench: every op of the table is measured, here or in a row of its own; Ctrl-C keeps rows."""

import json
import pathlib
import re
import subprocess
import sys
import textwrap

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
    """Ctrl-C amid the second of two cases."""
    script = """
        import sys
        sys.path.insert(0, "bench")
        import case as case_module, run

        class Interrupted(run.Bench):
            def __init__(self, ceiling):
                self.workers, self.versions, self.seconds, self.measured = {}, {}, {}, 0
            def measure(self, case):
                self.measured += 1
                if self.measured == 2:
                    raise KeyboardInterrupt
                return case_module.Result(value=1.0)
            def close(self):
                print("closed")

        run.Bench = Interrupted
        sys.argv = ["run.py", "--ceiling", "none", "--only", "later kernels", "--results", RESULTS]
        sys.exit(2 if run.main() == 1 else 3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script).replace("RESULTS", repr(str(tmp_path)))],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "interrupted: 1 of 2 cases were measured" in done.stdout
    assert "later kernels of up to 20 IR ops " in done.stdout and "closed" in done.stdout
    (file,) = tmp_path.glob("*.json")
    assert len(json.loads(file.read_text())["rows"]) == 1
