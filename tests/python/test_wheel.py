# SPDX-License-Identifier: MIT
"""The wheel: what it holds is small, and runs where nothing else is: no programs, no other
packages, no place for temporary files.

Its files are taken from the build that is tested: those that `make wheel` puts together."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import cermet.core as mx
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(mx.__file__).parents[2]
MOST_BYTES = 25 << 20

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with the wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    install = ["cmake", "--install", BUILD, "--component", "python", "--strip", "--prefix", folder]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "python/cermet", folder / "cermet", ignore=leave_out, dirs_exist_ok=True)
    return folder


def test_size(unpacked, tmp_path):
    names = {path.name for path in (unpacked / "cermet").iterdir()}
    assert "kernels.seed" in names and any(re.fullmatch(r"core\..*\.so", name) for name in names)
    with zipfile.ZipFile(tmp_path / "cermet.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in unpacked.rglob("*"):
            wheel.write(path, path.relative_to(unpacked))
    size = (tmp_path / "cermet.whl").stat().st_size
    assert 1 << 20 < size <= MOST_BYTES, f"{size / 2**20:.1f} MiB"


PROGRAM = """
import math, sys
import cermet.core as mx
import cermet.nn as nn, cermet.optimizers as optim, cermet.utils

def loss(w, x):  # no kernel of the seed
    return (mx.tanh(x * w + 0.25) * mx.exp(-mx.square(w - x))).sum()

x, w = mx.arange(1, 6).astype(mx.float32) / 8, mx.full((5,), 0.5)
step = mx.compile(lambda w: w - 0.5 * mx.grad(loss)(w, x))
for _ in range(3):
    got = step(w).tolist()
for i in range(5):
    a = (i + 1) / 8
    t, e = math.tanh(a * 0.5 + 0.25), math.exp(-((0.5 - a) ** 2))
    want = 0.5 - 0.5 * ((1 - t * t) * a * e - t * e * 2 * (0.5 - a))
    assert abs(got[i] - want) < 1e-6, (i, got[i], want)
assert mx.counters()["kernels_compiled"] > 0
assert "numpy" not in sys.modules
print("right")
"""


def test_runs_where_nothing_else_is(unpacked, tmp_path):
    temporary, home, log = tmp_path / "temporary", tmp_path / "home", tmp_path / "calls"
    home.mkdir()
    temporary.mkdir(mode=0o555)  # which root could write to all the same: the calls are looked at
    calls = "execve,execveat,open,openat,creat,mkdir,mkdirat,mknod,mknodat,memfd_create"
    strace = [shutil.which("strace"), "-f", "-qq", "-o", log, "-e", f"trace={calls}"]
    # -S: without the packages of this interpreter.
    python = [os.path.realpath(sys.executable), "-S", "-B", "-c", PROGRAM]
    variables = {"PATH": "", "PYTHONPATH": unpacked, "TMPDIR": temporary, "HOME": home}
    done = subprocess.run(
        [*strace, *python], env=variables, cwd=home, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr
    lines = log.read_text().splitlines()
    started = [line for line in lines if re.search(r"\bexecve(at)?\(", line)]
    assert len(started) == 1 and python[0] in started[0], started
    makes = re.compile(r"O_CREAT|O_TMPFILE|O_WRONLY|O_RDWR|\b(creat|mkdir|mkdirat|mknod|mknodat)\(")
    made = [line for line in lines if makes.search(line) and " = -1 " not in line]
    own = (f'"{home}/', '"/dev/', '"/proc/self/')
    elsewhere = [line for line in made if not any(place in line for place in own)]
    assert made and not elsewhere, elsewhere
    assert not list(temporary.iterdir())
