# SPDX-License-Identifier: MIT
"""Checks of the arguments of layers, losses, optimizers and schedules: what fails them raises
`[op] name is value; it must be what is wanted`.

An array passes where a number, not a size, is wanted: in a trace its value is not known.
"""

import re
from functools import wraps

import cermet.core as mx


def _refuse(kind, op, name, value, wanted):
    plain = isinstance(value, (bool, int, float, complex, str, tuple, list, type(None)))
    shown = repr(value) if plain else ""
    shown = shown if 0 < len(shown) < 60 else f"of type {type(value).__name__}"
    raise kind(f"[{op}] {name} is {shown}; it must be {wanted}")


def require(op, wanted, test, **values):
    """ValueError unless `test` is true of each of the values; TypeError where it has no meaning."""
    for name, value in values.items():
        if isinstance(value, mx.array):
            continue
        try:
            holds = test(value)
        except TypeError:
            _refuse(TypeError, op, name, value, wanted)
        except (ValueError, OverflowError):
            holds = False
        if not holds:
            _refuse(ValueError, op, name, value, wanted)


def require_sizes(op, least=1, **sizes):
    """Each is an int of at least `least`."""
    for name, size in sizes.items():
        wanted = f"an int of at least {least}"
        if not hasattr(type(size), "__index__") or isinstance(size, (bool, mx.array)):
            _refuse(TypeError, op, name, size, wanted)
        if size < least:
            _refuse(ValueError, op, name, size, wanted)


def require_numbers(op, least=0, **numbers):
    """Each is a number of at least `least`."""
    require(op, f"a number of at least {least}", lambda n: n >= least, **numbers)


def require_callable(op, **functions):
    """Each can be called."""
    for name, function in functions.items():
        if not callable(function):
            _refuse(TypeError, op, name, function, "callable")


def require_type(op, wanted, kind, **values):
    """Each is an instance of `kind`."""
    for name, value in values.items():
        if not isinstance(value, kind):
            _refuse(TypeError, op, name, value, wanted)


def require_arrays(op, **arrays):
    """Each is an array."""
    require_type(op, "an array", mx.array, **arrays)


def _in_package(traceback):
    while traceback is not None:
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith("cermet."):
            return False
        traceback = traceback.tb_next
    return True


def names_errors(function):
    """The function, or a layer's call, whose errors name it: what the ops that it is made of refuse
    is told of as what was called. Errors of functions that the user gave stay as they are.
    """
    owner, _, method = function.__qualname__.rpartition(".")
    name = owner if method == "__call__" else function.__qualname__

    @wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            text = error.args[0] if error.args else None
            if isinstance(text, str) and _in_package(error.__traceback__):
                error.args = (re.sub(r"^\[[\w.]+\] ", f"[{name}] ", text), *error.args[1:])
            raise

    return call


def path_pairs(op, tree):
    """The (path, value) pairs of a dict or of a list of them."""
    pairs = tree.items() if isinstance(tree, dict) else tree
    try:
        pairs = [(path, value) for path, value in pairs]
    except (TypeError, ValueError):
        pairs = None
    if pairs is None or not all(isinstance(path, str) for path, _ in pairs):
        raise TypeError(
            f"[{op}] what was given, of type {type(tree).__name__}, holds no (path, value) pairs; "
            "give a list of them or a dict"
        )
    return pairs
