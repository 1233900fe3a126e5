# SPDX-License-Identifier: MIT
"""Long arrays of few columns, as of points, channels and classes, reduced down the columns: a large
part of what the memory allows, or as fast as the fastest peer."""

from case import ARRAY_PEERS, Case, add
from gates import ShareOrBestPeer

SHAPES = ((1 << 21, 2), (1 << 20, 4), (1 << 19, 10))
OPS = {
    "sum": lambda lib, x: lib.xp.sum(x, axis=0),
    "variance": lambda lib, x: lib.xp.var(x, axis=0),
    "argmax": lambda lib, x: lib.xp.argmax(x, axis=0),
    "cumsum": lambda lib, x: lib.xp.cumsum(x, 0),
    "sum of places of maxima": lambda lib, x: lib.xp.sum(lib.xp.argmax(x, axis=1)),
}


def down(op, shape):
    def build(lib):
        x = lib.normal(*shape)
        f = lib.call(lambda x: op(lib, x))
        return lambda: f(x)

    return build


for name, op in OPS.items():
    for shape in SHAPES:
        given = 4 * shape[0] * shape[1]
        add(
            Case(
                f"{name}, few columns",
                shape,
                down(op, shape),
                ShareOrBestPeer(0.35, "copy"),
                bytes=2 * given if name == "cumsum" else given,
                peers=ARRAY_PEERS,
            )
        )
