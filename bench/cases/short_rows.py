# SPDX-License-Identifier: MIT
"""Rows of few elements, as of classifiers, routers of experts and points: a large part of what the
memory allows, or as fast as the fastest peer."""

from case import ARRAY_PEERS, DTYPE_BYTES, Case, add
from gates import ShareOrBestPeer

SHAPES = ((1 << 20, 3), (1 << 20, 8), (1 << 19, 16), (1 << 18, 40))
OPS = {
    "softmax": lambda lib: lib.softmax,
    "RMS norm": lambda lib: lib.rms_norm,
    "sum": lambda lib: lambda x: lib.xp.sum(x, axis=-1),
    "argmax": lambda lib: lambda x: lib.xp.argmax(x, axis=-1),
    "cumsum": lambda lib: lambda x: lib.xp.cumsum(x, -1),
}


def short_rows(name, shape, dtype):
    def build(lib):
        x = lib.normal(*shape, dtype=dtype)
        rest = [lib.normal(shape[-1], dtype=dtype)] if name == "RMS norm" else []
        f = lib.call(OPS[name](lib))
        return lambda: f(x, *rest)

    return build


for name in OPS:
    for shape, dtype in (*((shape, "f32") for shape in SHAPES), (SHAPES[1], "bf16")):
        size = DTYPE_BYTES[dtype]
        given = size * shape[0] * shape[1]
        made = {"sum": size * shape[0], "argmax": 4 * shape[0]}.get(name, given)
        with_numpy = dtype == "f32" and name not in ("softmax", "RMS norm")
        add(
            Case(
                f"{name} of short rows",
                shape,
                short_rows(name, shape, dtype),
                ShareOrBestPeer(0.35, "copy"),
                dtype=dtype,
                bytes=given + made,
                peers=ARRAY_PEERS if with_numpy else ARRAY_PEERS[:3],
            )
        )
