# SPDX-License-Identifier: MIT
"""python -m cermet.as_mlx, in processes of its own, and python -m cermet.env."""

import os
import subprocess
import sys

import cermet.env
import pytest

SCRIPT = """
import sys
import helper_beside_the_script
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.nn.layers.base import Module
from mlx.utils import tree_map
import mlx
import cermet, cermet.core, cermet.nn, cermet.optimizers, cermet.utils

assert mx is cermet.core and nn is cermet.nn and optim is cermet.optimizers
assert mlx is cermet and mlx.utils.tree_map is cermet.utils.tree_map is tree_map
assert Module is nn.Module is nn.layers.base.Module
assert nn.__name__ == nn.__spec__.name == "cermet.nn"

model = nn.Linear(2, 1)
optimizer = optim.SGD(0.1)
step = nn.value_and_grad(model, lambda x: model(x).square().sum())
x = mx.array([[1.0, 2.0]])
before = step(x)[0].item()
optimizer.update(model, step(x)[1])
assert step(x)[0].item() < before
try:
    import mlx.nothing
except ModuleNotFoundError as error:
    assert error.name == "mlx.nothing" and "cermet.nothing" in str(error)
else:
    raise AssertionError("mlx.nothing was found")
print(__name__, sys.argv)
"""


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "cermet.as_mlx", *arguments],
        cwd=cwd,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def program(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "program.py").write_text(SCRIPT)
    (folder / "helper_beside_the_script.py").write_text("")
    return folder / "program.py"


def test_a_script_with_arguments(program, tmp_path):
    done = run("folder/program.py", "a", "--b", cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout == "__main__ ['folder/program.py', 'a', '--b']\n"


def test_a_module_with_arguments(program):
    done = run("-m", "program", "a", cwd=program.parent)
    assert done.stderr == ""
    assert done.stdout == f"__main__ ['{program}', 'a']\n"


def test_exit_status_of_the_program(tmp_path):
    (tmp_path / "leave.py").write_text("raise SystemExit(3)")
    assert run("leave.py", cwd=tmp_path).returncode == 3


def test_without_a_program(tmp_path):
    for arguments, status in (([], 2), (["-m"], 2), (["--help"], 0)):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == status and "python -m cermet.as_mlx script.py" in done.stdout


def test_refuses_when_mlx_itself_is_loaded():
    import mlx.core  # noqa: F401
    from cermet import as_mlx

    finders = list(sys.meta_path)
    with pytest.raises(ImportError, match="already imported"):
        as_mlx.install()
    assert sys.meta_path == finders


def test_env_table(monkeypatch):
    rows = [("CERMET_TIER", "auto|fused|single", "auto", "how regions run"), ("C_DIR", "", "", "x")]
    monkeypatch.setattr(cermet.env.mx, "_env_table", lambda: rows, raising=False)
    assert cermet.env.table() == rows
    assert cermet.env.format_table(rows).splitlines() == [
        "variable     choices            value  meaning",
        "CERMET_TIER  auto|fused|single  auto   how regions run",
        "C_DIR        -                  -      x",
    ]
