# SPDX-License-Identifier: MIT
"""Runs a program written for MLX on Cermet, unchanged.

    python -m cermet.as_mlx script.py [arguments]
    python -m cermet.as_mlx -m module [arguments]

Every import of `mlx` or of a module below it gives Cermet's module of that name. `install()` does
the same for the rest of a running program.
"""

import importlib
import importlib.abc
import importlib.util
import os
import runpy
import sys

import cermet


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds mlx and mlx.x as cermet and cermet.x: the same module objects, not copies."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "mlx" and not fullname.startswith("mlx."):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        # What stands in sys.modules after this call is what the import gives.
        try:
            sys.modules[name] = importlib.import_module("cermet" + name[len("mlx") :])
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{error} (imported as {name})", name=name) from None


def install():
    """Make all later imports of `mlx` give Cermet."""
    loaded = sys.modules.get("mlx")
    if loaded is not None and loaded is not cermet:
        raise ImportError("[as_mlx] mlx itself is already imported; install() must come before")
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())


def main(argv):
    """Run what the command line `argv` (without the interpreter and -m) names; see above."""
    if not argv or argv == ["-m"] or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    install()
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
