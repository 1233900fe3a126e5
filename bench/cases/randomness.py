# SPDX-License-Identifier: MIT
"""Random numbers: bits as fast as they are written, normal ones as two cores' arithmetic."""

from case import ARRAY_PEERS, THREADS, Case, add
from gates import All, Faster, RateAtLeast, Share
from peers import Absent

ELEMENTS = 1 << 24
IN_CACHE = 1 << 16


def with_seeds(f):
    """JAX wants another key for each call."""

    def make(lib, *shape):
        seed = iter(range(1 << 30))
        g = lib.jax.jit(lambda key: f(lib, key, shape))
        return lambda: g(lib.jax.random.key(next(seed)))

    return make


def absent(lib, *shape):
    raise Absent


def numpy_bits(lib, *shape):
    import numpy as np

    rng = np.random.default_rng(0)
    return lambda: rng.integers(1 << 32, size=shape, dtype=np.uint32)


def numpy_normal(lib, *shape):
    import numpy as np

    rng = np.random.default_rng(0)
    return lambda: rng.standard_normal(shape, np.float32)


def mlx_normal(lib, *shape):
    return lambda: lib.xp.random.normal(shape)


BITS = {
    "cermet": lambda lib, *shape: lambda: lib.xp.random.bits(shape),
    "mlx": absent,
    "torch": lambda lib, *shape: lambda: lib.xp.empty(shape, dtype=lib.dtype("i32")).random_(),
    "jax": with_seeds(lambda lib, key, shape: lib.jax.random.bits(key, shape)),
    "numpy": numpy_bits,
}
NORMAL = {
    "cermet": mlx_normal,
    "mlx": mlx_normal,
    "torch": lambda lib, *shape: lambda: lib.xp.randn(shape),
    "jax": with_seeds(lambda lib, key, shape: lib.jax.random.normal(key, shape)),
    "numpy": numpy_normal,
}


def numbers(makers, *shape):
    def build(lib):
        return makers[lib.name](lib, *shape)

    return build


add(
    Case(
        "random bits",
        (ELEMENTS,),
        numbers(BITS, ELEMENTS),
        All(Share(0.70, "write"), Faster()),
        dtype="u32",
        bytes=4 * ELEMENTS,
        peers=ARRAY_PEERS,
    )
)
add(
    Case(
        "random normal",
        (ELEMENTS,),
        numbers(NORMAL, ELEMENTS),
        All(RateAtLeast(0.80, f"{THREADS} cores', in cache"), Faster()),
        flops=ELEMENTS,
        peers=ARRAY_PEERS,
        baseline=numbers(NORMAL, IN_CACHE),
        baseline_flops=IN_CACHE * THREADS,
        baseline_threads=1,
    )
)
