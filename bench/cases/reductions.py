# SPDX-License-Identifier: MIT
"""Sums over all, rows and columns, and argmax over rows: as fast as the memory can be read. A sum
of terms that take work: faster than every peer."""

from case import Case, add
from gates import NotSlower, Share

SHAPE = (8192, 8192)


def reduction(function, axis):
    def build(lib):
        x = lib.normal(*SHAPE)
        reduce = getattr(lib.xp, function)
        f = lib.call(lambda x: reduce(x) if axis is None else reduce(x, axis=axis))
        return lambda: f(x)

    return build


for name, function, axis in (
    ("sum of all", "sum", None),
    ("sums of rows", "sum", 1),
    ("sums of columns", "sum", 0),
    ("argmax of rows", "argmax", 1),
):
    add(Case(name, SHAPE, reduction(function, axis), Share(0.90, "read"), bytes=4 * 8192 * 8192))


def logarithms(lib):
    x = lib.uniform(*SHAPE, low=0.1, high=2)
    f = lib.call(lambda x: lib.xp.sum(lib.xp.log(x)))
    return lambda: f(x)


add(Case("sum of logarithms", SHAPE, logarithms, NotSlower(1.0)))
