# SPDX-License-Identifier: MIT
"""The type stubs of cermet.core, generated from the extension: python/cermet/core/*.pyi.

    python tools/stubs.py [--output FOLDER]

Run it after a change of names, signatures or docstrings; a test compares.
"""

import argparse
import io
import pathlib
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUBS = ROOT / "python/cermet/core"


def with_builtins(text):
    """The stub, whose annotations say builtins.bool: the module has a dtype of that name."""
    lines = text.splitlines(keepends=True)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    places = [t.start for t in tokens if t.type == tokenize.NAME and t.string == "bool"]
    for row, column in reversed(places):
        line = lines[row - 1]
        if column > 0:
            lines[row - 1] = f"{line[:column]}builtins.{line[column:]}"
    return "".join(lines).replace("\nfrom collections", "\nimport builtins\nfrom collections", 1)


def generate(folder):
    """Write the stubs of cermet.core, as the running Python imports it, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-r", "-m", "cermet.core"]
    subprocess.run([*command, "-O", folder.parent], check=True)
    stub = folder / "__init__.pyi"
    stub.write_text(with_builtins(stub.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=STUBS)
    generate(parser.parse_args().output)


if __name__ == "__main__":
    main()
