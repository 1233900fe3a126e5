# SPDX-License-Identifier: MIT
"""Scripts in processes of their own, so that a hang or a crash is that of one test."""

import os
import subprocess
import sys
import textwrap

LIMIT = 600  # seconds: a hang, not slowness


def run(script, **variables):
    """What the script prints; it must end well."""
    return run_logged(script, **variables)[0]


def run_logged(script, **variables):
    """What the script prints to stdout and to stderr; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr
