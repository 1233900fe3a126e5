# SPDX-License-Identifier: MIT
"""The C++ face: which calls of MLX's C++ API cermet.h takes, the installed package, the
examples.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess

import cermet.core as mx
import cxx_api
import pytest

ROOT = cxx_api.ROOT
# Of all 938 declarations of MLX 0.32.4's C++ API, sorted: none may go from both lists.
LISTING_SHA256 = "5ad389dfd0af98354e0672990d66f42ee6dde25289e1f804c1261d43959910df"


def test_served_declarations_compile(tmp_path):
    assert cxx_api.not_served(cxx_api.lines("served.txt"), tmp_path) == {}


def test_missing_declarations_are_missing(tmp_path):
    missing = cxx_api.lines("missing.txt")
    now_served = set(missing) - set(cxx_api.not_served(missing, tmp_path))
    assert not now_served, "move these to served.txt"


def test_the_two_lists_are_the_listing():
    served, missing = (set(cxx_api.lines(f)) for f in ("served.txt", "missing.txt"))
    assert not served & missing
    listed = "\n".join(sorted(served | missing))
    assert hashlib.sha256(listed.encode()).hexdigest() == LISTING_SHA256


# --- examples and the package, of the build folder that the extension is from ---

BUILD = pathlib.Path(mx.__file__).parents[2]


def run(*command, **arguments):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, env=environment, **arguments
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("example", ["train", "custom_op"])
def test_example_runs(example):
    out = run(BUILD / "examples/cpp" / example)
    print(out)
    assert "FAILED" not in out


@pytest.mark.parametrize("tree", ["build", "installed"])
def test_a_project_finds_the_package(tree, tmp_path):
    where = BUILD
    if tree == "installed":
        run("cmake", "--install", BUILD, "--prefix", tmp_path / "prefix", "--component", "cxx")
        where = next((tmp_path / "prefix").rglob("cermet-config.cmake")).parent
    shutil.copytree(ROOT / "examples/cpp", tmp_path / "project")
    out = tmp_path / "out"
    options = [f"-Dcermet_DIR={where}", f"-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld -B{BUILD}/linker"]
    run("cmake", "-S", tmp_path / "project", "-B", out, *options)
    run("cmake", "--build", out, "--target", "custom_op")
    assert "FAILED" not in run(out / "custom_op")
