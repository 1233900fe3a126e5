# SPDX-License-Identifier: MIT
"""Products of a large matrix with one or eight vectors: as fast as the weights can be read.

The weights are as many matrices, used in turn, as no cache can hold. Once they have served some
times they may be packed: before anything is timed, and what that costs is a row of its own.
"""

import itertools
import time

import peers
from case import DTYPE_BYTES, Case, Probe, add, median
from gates import Share, ValueAtMost
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


def packing_beside_a_product(form, dtype):
    """How many calls longer than a first one the call takes that packs."""

    def measure():
        lib = peers.load("cermet")
        x = lib.normal(8, N, dtype=dtype)
        f = lib.call(FORMS[form](lib.xp.matmul))

        def calls(count):
            w = lib.normal(N, N, dtype=dtype)
            lib.wait([x, w])
            for _ in range(count):
                begin = time.perf_counter()
                lib.wait(f(x, w))
                yield time.perf_counter() - begin

        def ratio():
            taken = list(calls(5))
            first = min(taken[:2])
            return (max(taken) - first) / first

        ratio()
        return median([ratio() for _ in range(5)])

    return measure


for dtype in ("f32", "bf16"):
    for form in ("8 rows x@W", "8 rows x@W.T"):
        add(
            Probe(
                f"packing W for {form}, {dtype}",
                packing_beside_a_product(form, dtype),
                ValueAtMost(8),
                "× of a product",
                runs=3,
                shape=(N, N),
                dtype=dtype,
            )
        )
