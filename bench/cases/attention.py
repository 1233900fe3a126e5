# SPDX-License-Identifier: MIT
"""Attention against our own matmul: forward and backward, as the library op and in plain ops, and
the memory that it takes beside its inputs and outputs.

A causal call is counted as half the work of a full one.
"""

from case import Case, Probe, add
from gates import All, Faster, RateAtLeast, ValueAtMost

from cases.gemm import product

HEADS, DIMS = 16, 64
SQUARE = 1024
PASSES = 2, 7  # matmuls of T×T×D: forward; forward and backward


def new_inputs(lib, length, count=3, heads=HEADS, dtype="f32"):
    shape = (1, heads, length, DIMS) if lib.heads_first else (1, length, heads, DIMS)
    return [lib.normal(*shape, seed=i, dtype=dtype) for i in range(count)]


def library_op(lib, causal):
    return lambda q, k, v: lib.attention(q, k, v, causal)


def plain_ops(lib, causal):
    """As it is written by hand; the peers run their library op here, too."""
    if lib.name != "cermet":
        return library_op(lib, causal)
    mx = lib.xp

    def f(q, k, v):
        scores = (q * DIMS**-0.5) @ k.swapaxes(-1, -2)
        if causal:
            i = mx.arange(q.shape[2])
            scores = mx.where(i[:, None] >= i, scores, -mx.inf)
        return mx.softmax(scores, axis=-1) @ v

    return f


def forward(make, length, causal, heads=HEADS, dtype="f32"):
    def build(lib):
        inputs = new_inputs(lib, length, heads=heads, dtype=dtype)
        f = lib.call(make(lib, causal))
        return lambda: f(*inputs)

    return build


def backward(make, length, causal):
    def build(lib):
        inputs = new_inputs(lib, length, 4)
        f = lib.call(lib.gradient(make(lib, causal)))
        return lambda: f(*inputs)

    return build


def add_case(name, spelling, step, length, causal, least, passes):
    fast = spelling == "library op"
    peers = ["torch"]
    if fast:
        peers = ["mlx"] * (length <= 1024) + ["torch", "jax"]
    add(
        Case(
            f"attention{name}, {'causal' if causal else 'full'}, {spelling}",
            (1, HEADS, length, DIMS),
            step,
            All(RateAtLeast(least, f"x@w {SQUARE}³"), Faster()),
            flops=2 * passes * length * length * HEADS * DIMS // (2 if causal else 1),
            peers=tuple(peers),
            baseline=product(SQUARE),
            baseline_flops=2 * SQUARE**3,
        )
    )


for spelling, make in (("library op", library_op), ("plain ops", plain_ops)):
    for length in (512, 1024, 2048, 4096):
        add_case("", spelling, forward(make, length, False), length, False, 0.9, PASSES[0])
        least = 0.8 if length >= 1024 else 0
        add_case("", spelling, forward(make, length, True), length, True, least, PASSES[0])
    for causal in (False, True):
        step = backward(make, 2048, causal)
        add_case(" backward", spelling, step, 2048, causal, 0.75, PASSES[1])


# --- memory, in a process that has run the same kernels before ---


def megabytes_beside(make, length, gradient):
    """What a second call takes at its peak, less its results."""

    def measure():
        import peers
        from worker import memory_mb, reset_peak

        lib = peers.load("cermet")
        mx = lib.xp
        inputs = new_inputs(lib, length, 4 if gradient else 3)
        f = make(lib, False)
        f = lib.gradient(f) if gradient else f
        mx.eval(f(*inputs))
        mx.clear_cache()
        before = memory_mb("VmRSS")
        reset_peak()
        results = f(*inputs)
        mx.eval(results)
        results = results if gradient else [results]
        return memory_mb("VmHWM") - before - sum(r.nbytes for r in results) / (1 << 20)

    return measure


for spelling, make in (("library op", library_op), ("plain ops", plain_ops)):
    for length, gradient, limit in ((4096, False, 40), (8192, False, 72), (8192, True, 64)):
        add(
            Probe(
                f"attention{' gradients' if gradient else ''}, memory, T={length}, {spelling}",
                megabytes_beside(make, length, gradient),
                ValueAtMost(limit),
                "MB",
                runs=2,
            )
        )
