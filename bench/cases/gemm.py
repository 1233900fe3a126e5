# SPDX-License-Identifier: MIT
"""Matrix products against the FMA peak, a transposed operand, and a chain after the product."""

import math

from case import ARRAY_PEERS, Case, add
from gates import Faster, RelativeAtMost, Share, ShareOrBestPeer


def product(n, transpose_a=False, transpose_b=False, dtype="f32"):
    def build(lib):
        a, b = (lib.normal(n, n, seed=i, dtype=dtype) for i in (1, 2))
        f = lib.call(
            lambda a, b: lib.xp.matmul(a.T if transpose_a else a, b.T if transpose_b else b)
        )
        return lambda: f(a, b)

    return build


def batch(count, m, k, n):
    """Of small matrices, as of windows, groups and factors."""

    def build(lib):
        a, b = lib.normal(count, m, k, seed=1), lib.normal(count, k, n, seed=2)
        f = lib.call(lib.xp.matmul)
        return lambda: f(a, b)

    return build


def gelu_after(n):
    def build(lib):
        x, w, b = lib.normal(n, n, seed=1), lib.normal(n, n, seed=2), lib.normal(n, seed=3)

        def f(x, w, b):
            y = lib.xp.matmul(x, w) + b
            return 0.5 * y * (1 + lib.erf(y * math.sqrt(0.5)))

        f = lib.call(f)
        return lambda: f(x, w, b)

    return build


def gathered(tokens, experts, k, n):
    """Rows times matrices that indices choose, two for each token, as in a mixture of experts."""

    def build(lib):
        x, w = lib.normal(tokens, 1, 1, k, seed=1), lib.normal(experts, k, n, seed=2)
        chosen = lib.integers(tokens, 2, high=experts)
        f = lib.call(lambda x, w, chosen: lib.xp.gather_mm(x, w, rhs_indices=chosen))
        return lambda: f(x, w, chosen)

    return build


for n in (256, 512, 1024, 2048, 4096):
    gate = Share(0.75, "fma") if n == 256 else ShareOrBestPeer(0.85, "fma")
    add(Case("x@w", (n, n, n), product(n), gate, flops=2 * n**3))

for count, m, k, n in (
    (16384, 8, 8, 8),
    (8192, 16, 16, 16),
    (8192, 16, 64, 16),
    (2048, 32, 32, 32),
    (4096, 49, 32, 49),
    (8192, 1, 64, 64),
):
    add(
        Case(
            "batch of products",
            (count, m, k, n),
            batch(count, m, k, n),
            Faster(),
            peers=ARRAY_PEERS,
        )
    )

for name, a, b in (("x@w.T", False, True), ("x.T@w", True, False)):
    add(
        Case(
            name,
            (1024, 1024, 1024),
            product(1024, a, b),
            RelativeAtMost(1.03, "x@w"),
            flops=2 * 1024**3,
            baseline=product(1024),
            pairs=15,
        )
    )
add(
    Case(
        "gelu(x@w+b)",
        (1024, 1024, 1024),
        gelu_after(1024),
        RelativeAtMost(1.05, "x@w"),
        flops=2 * 1024**3,
        baseline=product(1024),
        pairs=15,
        peers=("mlx", "torch", "torch_compiled", "jax", "numpy"),
    )
)
for dtype in ("f16", "bf16"):
    for n in (1024, 4096):
        gate = Share(0.85, "dot")
        build = product(n, dtype=dtype)
        peers = ("torch", "jax") if n == 4096 else ("mlx", "torch", "jax")
        add(Case("x@w", (n, n, n), build, gate, dtype, flops=2 * n**3, peers=peers))
for tokens in (1, 512):
    add(
        Case(
            "gather_mm",
            (tokens, 8, 1024, 2048),
            gathered(tokens, 8, 1024, 2048),
            Faster(),
            flops=2 * 2 * tokens * 1024 * 2048,
            peers=("mlx",),
        )
    )
