# SPDX-License-Identifier: MIT
"""The type stubs of cermet.core, generated from the extension: python/cermet/core/*.pyi.

    python tools/stubs.py [--output FOLDER]

Run it after a change of names, signatures or docstrings; a test compares.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUBS = ROOT / "python/cermet/core"


def generate(folder):
    """Write the stubs of cermet.core, as the running Python imports it, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-r", "-m", "cermet.core"]
    subprocess.run([*command, "-O", folder.parent], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=STUBS)
    generate(parser.parse_args().output)


if __name__ == "__main__":
    main()
