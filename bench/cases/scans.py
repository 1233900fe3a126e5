# SPDX-License-Identifier: MIT
"""Running sums over rows and over everything: read once, or twice, and written once."""

from case import Case, add
from gates import Share

SHAPE = (8192, 8192)


def running_sum(axis):
    def build(lib):
        x = lib.normal(*SHAPE)
        if axis is None:
            x = x.reshape(-1)
        scan = lib.xp.cumsum
        along = 0 if axis is None else axis
        f = lib.call(lambda x: scan(x, along))
        return lambda: f(x)

    return build


for name, axis in (("cumsum of rows", 1), ("cumsum of all", None)):
    add(Case(name, SHAPE, running_sum(axis), Share(0.70, "copy"), bytes=8 * 8192 * 8192))
