# SPDX-License-Identifier: MIT
"""Products of a large matrix with one or eight vectors: as fast as the weights can be read.

The weights are as many matrices, used in turn, as no cache can hold.
"""

import itertools

from case import DTYPE_BYTES, Case, add
from gates import Share
from peers import normal_values

N = 4096
ROTATED_BYTES = 512 << 20


def rotating(form, dtype):
    def build(lib):
        count = ROTATED_BYTES // (N * N * DTYPE_BYTES[dtype])
        values = normal_values((N, N), seed=1)
        turn = itertools.cycle([lib.array(values, dtype) for _ in range(count)])
        rows = 8 if form.startswith("8") else 1
        x = lib.normal(rows, N, dtype=dtype) if rows > 1 else lib.normal(N, dtype=dtype)
        f = lib.call(FORMS[form](lib.xp.matmul))
        return lambda: f(x, next(turn))

    return build


FORMS = {
    "x@W": lambda matmul: lambda x, w: matmul(x, w),
    "x@W.T": lambda matmul: lambda x, w: matmul(x, w.T),
    "W@x": lambda matmul: lambda x, w: matmul(w, x),
    "W.T@x": lambda matmul: lambda x, w: matmul(w.T, x),
    "8 rows x@W": lambda matmul: lambda x, w: matmul(x, w),
    "8 rows x@W.T": lambda matmul: lambda x, w: matmul(x, w.T),
}

for dtype in ("f32", "bf16"):
    for form in FORMS:
        add(
            Case(
                form,
                (N, N),
                rotating(form, dtype),
                Share(0.90, "read"),
                dtype=dtype,
                bytes=N * N * DTYPE_BYTES[dtype],
            )
        )
