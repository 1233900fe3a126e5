# SPDX-License-Identifier: MIT
"""Products and attention on tile instructions (AMX), beside torch; no cases where the processor has
none.

Few rows: weights as many matrices, used in turn, as no cache can hold; torch has them in the layout
that is faster there.
"""

import itertools
import time

from case import Case, add, host_features
from gates import All, Faster, RateAtLeast, Share
from peers import normal_values

from cases.attention import DIMS, PASSES, forward, library_op
from cases.gemm import product
from cases.matvec import ROTATED_BYTES, N

HEADS, LENGTH = 8, 2048
BYTES = N * N * 2


def best_of(lib, steps, calls=9):
    """The one whose fastest call is shortest."""

    def seconds(step):
        begin = time.perf_counter()
        lib.wait(step())
        return time.perf_counter() - begin

    return min(steps, key=lambda step: min(seconds(step) for _ in range(calls)))


def few_rows(rows, along_k):
    """x @ w with w of N×N; along_k: as the transposed view of what is in memory, as in Linear."""

    def build(lib):
        values = normal_values((N, N), seed=1)
        weights = [lib.array(values, "bf16") for _ in range(ROTATED_BYTES // BYTES)]
        x = lib.normal(rows, N, dtype="bf16")

        def step(transposed):
            turn = itertools.cycle(weights)
            f = lib.call(lambda x, w: lib.xp.matmul(x, w.T if transposed else w))
            return lambda: f(x, next(turn))

        if lib.name == "cermet":
            return step(along_k)
        return best_of(lib, [step(False), step(True)])

    return build


def square(n, dtype):
    def build(lib):
        return product(n, dtype=dtype)(lib)

    return build


def attention(causal):
    def build(lib):
        return forward(library_op, LENGTH, causal, HEADS, "bf16")(lib)

    return build


if "amx_bf16" in host_features():
    for n in (512, 1024, 2048, 4096):
        for dtype, factor, ceiling in (("f32", 1.5, "fma"), ("bf16", 0.95, "tile")):
            add(
                Case(
                    "x@w, tiles",
                    (n, n, n),
                    square(n, dtype),
                    All(Share(0, ceiling), Faster(factor)),
                    dtype=dtype,
                    flops=2 * n**3,
                    peers=("torch",),
                )
            )
    for layout in ("x@W.T", "x@W"):
        for rows in (1, 8, 16, 64):
            gates = [Share(0.90 if rows == 1 else 0, "read")]
            add(
                Case(
                    f"{rows} rows {layout}, tiles",
                    (N, N),
                    few_rows(rows, layout == "x@W.T"),
                    All(*gates, *[Faster(1.5)] * (rows > 1)),
                    dtype="bf16",
                    bytes=BYTES,
                    peers=("torch",),
                )
            )
    for causal in (False, True):
        add(
            Case(
                f"attention, {'causal' if causal else 'full'}, tiles",
                (1, HEADS, LENGTH, DIMS),
                attention(causal),
                All(RateAtLeast(0.6, "x@w 1024³ bf16"), Faster()),
                dtype="bf16",
                flops=2 * PASSES[0] * LENGTH * LENGTH * HEADS * DIMS // (2 if causal else 1),
                peers=("torch",),
                baseline=square(1024, "bf16"),
                baseline_flops=2 * 1024**3,
            )
        )
