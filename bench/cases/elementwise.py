# SPDX-License-Identifier: MIT
"""Element-wise chains: bound by memory when large, by arithmetic when in cache."""

import math

from case import ARRAY_PEERS, Case, add
from gates import PerElement, Share, SpeedupAtLeast

PEERS = ("mlx", "torch", "torch_compiled", "jax", "numpy")
GELU_SHAPES = ((4096, 4096), (1024, 1024), (256, 256))


def bytes_of(shape, arrays):
    return 4 * math.prod(shape) * arrays


def relu_chain(lib, shape):
    a, b, c = (lib.normal(*shape, seed=i) for i in range(3))
    f = lib.call(lambda a, b, c: lib.relu(a * b + c))
    return lambda: f(a, b, c)


def gelu_erf(lib, shape):
    x = lib.normal(*shape)
    f = lib.call(lambda x: 0.5 * x * (1 + lib.erf(x * math.sqrt(0.5))))
    return lambda: f(x)


def gelu_divided(lib, shape):
    """As `nn.gelu` is written in MLX."""
    x = lib.normal(*shape)
    f = lib.call(lambda x: x * (1 + lib.erf(x / math.sqrt(2))) / 2)
    return lambda: f(x)


def gelu_tanh(lib, shape):
    x = lib.normal(*shape)
    scale = math.sqrt(2 / math.pi)
    f = lib.call(lambda x: 0.5 * x * (1 + lib.xp.tanh(scale * (x + 0.044715 * x * x * x))))
    return lambda: f(x)


CHAIN = (1 << 24,)
add(
    Case(
        "relu(a·b+c)",
        CHAIN,
        lambda lib: relu_chain(lib, CHAIN),
        Share(0.90, "copy"),
        bytes=bytes_of(CHAIN, 4),
        peers=PEERS,
    )
)
GELUS = {
    "gelu erf, plain ops": gelu_erf,
    "gelu erf, by divisions": gelu_divided,
    "gelu tanh, plain ops": gelu_tanh,
}
for name, gelu in GELUS.items():
    for shape in GELU_SHAPES:
        add(
            Case(
                name,
                shape,
                lambda lib, gelu=gelu, shape=shape: gelu(lib, shape),
                PerElement(0.45, 1.1),
                bytes=bytes_of(shape, 2),
                peers=PEERS if shape == GELU_SHAPES[0] else ARRAY_PEERS,
            )
        )
for shape in GELU_SHAPES[1:]:
    add(
        Case(
            "gelu erf, 1 → 2 threads",
            shape,
            lambda lib, shape=shape: gelu_erf(lib, shape),
            SpeedupAtLeast(1.9),
            peers=(),
        )
    )
