# SPDX-License-Identifier: MIT
"""The committed stubs are what the extension says."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import stubs  # noqa: E402


def texts(folder):
    return {path.name: path.read_text() for path in sorted(folder.glob("*.pyi"))}


def test_stubs_are_up_to_date(tmp_path):
    stubs.generate(tmp_path / "core")
    made, kept = texts(tmp_path / "core"), texts(stubs.STUBS)
    assert made.keys() == kept.keys()
    for name, text in made.items():
        assert text == kept[name], f"{name} has changed: run tools/stubs.py"
