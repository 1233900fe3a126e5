# SPDX-License-Identifier: MIT
"""Layer norm, RMS norm and softmax, forward and backward, in plain ops and as library ops."""

from case import ARRAY_PEERS, Case, add
from gates import Share

SHAPE = ROWS, DIMS = 4096, 4096
ONE = 4 * ROWS * DIMS  # bytes of one array
GRADIENT_PEERS = ("mlx", "torch", "torch_compiled", "jax")
EPS = 1e-5


def layer_norm(lib):
    def f(x, weight, bias):
        mean = lib.xp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = lib.xp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / lib.xp.sqrt(variance + EPS) * weight + bias

    return f


def rms_norm(lib):
    def f(x, weight):
        square = lib.xp.mean(x * x, axis=-1, keepdims=True)
        return x / lib.xp.sqrt(square + EPS) * weight

    return f


def softmax(lib):
    def f(x):
        e = lib.xp.exp(x - lib.max(x, axis=-1, keepdims=True))
        return e / lib.xp.sum(e, axis=-1, keepdims=True)

    return f


def forward(make, vectors):
    def build(lib):
        x, rest = lib.normal(*SHAPE), [lib.normal(DIMS, seed=i) for i in range(vectors)]
        f = lib.call(make(lib))
        return lambda: f(x, *rest)

    return build


def backward(make, vectors):
    def build(lib):
        x, rest = lib.normal(*SHAPE), [lib.normal(DIMS, seed=i) for i in range(vectors)]
        cotangent = lib.normal(*SHAPE, seed=9)
        f = lib.call(lib.gradient(make(lib)))
        return lambda: f(x, *rest, cotangent)

    return build


FAST = {
    "layer norm": lambda lib: lib.layer_norm,
    "RMS norm": lambda lib: lib.rms_norm,
    "softmax": lambda lib: lib.softmax,
}
# name, plain ops, vectors beside x, shares of copy: forward and backward
for name, plain, vectors, least, least_backward in (
    ("layer norm", layer_norm, 2, 0.85, 0.60),
    ("RMS norm", rms_norm, 1, 0.85, 0.60),
    ("softmax", softmax, 0, 0.70, 0.70),
):
    for spelling, make in (("plain ops", plain), ("library op", FAST[name])):
        add(
            Case(
                f"{name}, {spelling}",
                SHAPE,
                forward(make, vectors),
                Share(least, "copy"),
                bytes=2 * ONE,
                peers=(*ARRAY_PEERS[:2], "torch_compiled", *ARRAY_PEERS[2:]),
            )
        )
        add(
            Case(
                f"{name} backward, {spelling}",
                SHAPE,
                backward(make, vectors),
                Share(least_backward, "copy"),
                bytes=3 * ONE,
                peers=GRADIENT_PEERS,
            )
        )
