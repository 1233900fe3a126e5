# SPDX-License-Identifier: MIT
"""Small programs on arrays of points, images and features: faster than every peer."""

from case import ARRAY_PEERS, Case, add
from gates import Faster

POINTS = 200_000


def positional_encoding(lib, x):
    """Mildenhall et al. 2020, eq. 4."""
    parts = [f(2.0**i * x) for i in range(10) for f in (lib.xp.sin, lib.xp.cos)]
    return lib.xp.concatenate([x, *parts], axis=-1)


def harmonics(lib, x):
    """The real spherical harmonics of degrees 0 to 2."""
    a, b, c = x[:, 0], x[:, 1], x[:, 2]
    first = [0.282095 + 0 * a, 0.488603 * b, 0.488603 * c, 0.488603 * a]
    second = [1.092548 * a * b, 1.092548 * b * c, 0.946175 * c * c - 0.315392, 1.092548 * a * c]
    return lib.xp.stack([*first, *second, 0.546274 * (a * a - b * b)], axis=-1)


def columns(lib, x):
    return x[:, :3] * 2 - 1


def features(lib, x):
    return lib.xp.exp(x[:, 1:31])


def group_norm(lib, x):
    """Of 32 groups of 4 channels, which are last."""
    groups = x.reshape(x.shape[0], -1, 32, 4)
    mean = groups.mean((1, 3)).reshape(-1, 1, 32, 1)
    apart = groups - mean
    variance = (apart * apart).mean((1, 3)).reshape(-1, 1, 32, 1)
    return (apart / lib.xp.sqrt(variance + 1e-5)).reshape(x.shape)


def forces(lib, x):
    """Of points on each other: softened inverse squares."""
    apart = x[None] - x[:, None]
    square = (apart * apart).sum(-1) + 0.01
    return (apart * (square**-1.5)[:, :, None]).sum(1)


def timed(program, shape):
    def build(lib):
        x = lib.normal(*shape)
        f = lib.call(lambda x: program(lib, x))
        return lambda: f(x)

    return build


for name, program, shape in (
    ("positional encoding", positional_encoding, (POINTS, 3)),
    ("spherical harmonics", harmonics, (POINTS, 3)),
    ("columns of a matrix", columns, (1_000_000, 9)),
    ("exponentials of 30 columns", features, (POINTS, 36)),
    ("group norm by reshapes", group_norm, (16, 1024, 128)),
    ("forces between points", forces, (1500, 3)),
):
    add(Case(name, shape, timed(program, shape), Faster(), peers=ARRAY_PEERS))
