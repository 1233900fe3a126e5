# SPDX-License-Identifier: MIT
"""Rows, short runs and elements that are put in another order, as of heads, patches and pixels:
large kernels go over them as memory does. All bits as NumPy has them, in one kernel."""

import cermet.core as mx
import numpy as np
import pytest

B = 2
# name: (shape, rearranged), 2 to 8 MiB of float32.
CASES = {
    "heads": ((B, 512, 16, 64), lambda x: x.transpose(0, 2, 1, 3)),
    "heads, joined": ((B, 16, 512, 64), lambda x: x.transpose(0, 2, 1, 3).reshape(B, 512, 1024)),
    "narrow heads": ((B, 2048, 16, 16), lambda x: x.transpose(0, 2, 1, 3)),
    "heads of four": ((B, 4096, 64, 4), lambda x: x.transpose(0, 2, 1, 3)),
    "odd heads": ((3, 500, 11, 80), lambda x: x.transpose(0, 2, 1, 3)),
    "batches and heads": ((16, 24, 32, 96), lambda x: x.transpose(2, 1, 0, 3)),
    "patches": (
        (B, 8, 256, 256),
        lambda x: x.reshape(B, 8, 16, 16, 16, 16).transpose(0, 2, 4, 1, 3, 5).reshape(B, 256, -1),
    ),
    "small patches": (
        (B, 8, 256, 256),
        lambda x: x.reshape(B, 8, 64, 4, 64, 4).transpose(0, 2, 4, 1, 3, 5).reshape(B, 4096, -1),
    ),
    "patches of pixels": (
        (B, 224, 224, 3),
        lambda x: x.reshape(B, 56, 4, 56, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(B, 3136, 48),
    ),
    "patches of some pixels": (
        (B, 64, 100, 3),
        lambda x: x.reshape(B, 16, 4, 20, 5, 3).transpose(0, 1, 3, 2, 4, 5).reshape(B, 320, 60),
    ),
    "heads of twelve": ((B, 1024, 20, 12), lambda x: x.transpose(0, 2, 1, 3)),
    "heads of parts of rows": (
        (B, 1024, 256),
        lambda x: x[..., 3:255].reshape(B, 1024, 28, 9).transpose(0, 2, 1, 3),
    ),
    "heads of twenty-four": ((B, 1024, 20, 24), lambda x: x.transpose(0, 2, 1, 3)),
    "windows of pixels": (
        (B, 224, 224, 3),
        lambda x: x.reshape(B, 32, 7, 32, 7, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 49, 3),
    ),
    "few columns of many": ((4096, 64), lambda x: x[:, 5:14]),
    "rows of eleven, backwards": ((64, 90, 4, 11), lambda x: x[:, ::-3]),
    "windows": (
        (B, 252, 252, 9),
        lambda x: x.reshape(B, 36, 7, 36, 7, 9).transpose(0, 1, 3, 2, 4, 5).reshape(B, -1, 49, 9),
    ),
    "space to depth": (
        (B, 8, 256, 256),
        lambda x: (
            x.reshape(B, 8, 128, 2, 128, 2).transpose(0, 1, 3, 5, 2, 4).reshape(B, 32, 128, 128)
        ),
    ),
    "space to depth by four": (
        (B, 8, 256, 256),
        lambda x: x.reshape(B, 8, 64, 4, 64, 4).transpose(0, 3, 5, 1, 2, 4).reshape(B, -1, 64, 64),
    ),
    "depth to space": (
        (B, 16, 256, 128),
        lambda x: (
            x.reshape(B, 4, 2, 2, 256, 128).transpose(0, 1, 4, 2, 5, 3).reshape(B, 4, 512, 256)
        ),
    ),
    "depth to space, channels last": (
        (B, 128, 128, 32),
        lambda x: (
            x.reshape(B, 128, 128, 2, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(B, 256, 256, 8)
        ),
    ),
    "pixels in pairs": (
        (B, 16, 256, 256),
        lambda x: x.reshape(B, 16, 256, 64, 2, 2).transpose(0, 1, 4, 2, 5, 3),
    ),
    "channels shuffled": (
        (B, 128, 128, 64),
        lambda x: x.reshape(B, 128, 128, 4, 16).swapaxes(3, 4).reshape(B, 128, 128, 64),
    ),
    "backwards": ((B, 512, 16, 64), lambda x: x[:, ::-1].transpose(0, 2, 1, 3)),
    "every second": ((B, 512, 16, 64), lambda x: x[:, ::2, :, :].transpose(0, 2, 1, 3)),
    "one before the other": ((4, 600, 700), lambda x: x.transpose(1, 0, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_rearranged(name, dtype):
    shape, rearranged = CASES[name]
    x = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    a = mx.array(x)
    expected = rearranged(x)
    got = mx.contiguous(rearranged(a))
    np.testing.assert_array_equal(np.array(got), expected)
    mx.counters(reset=True)
    twice = rearranged(a) * 2
    mx.eval(twice)
    assert mx.counters()["kernels_launched"] == 1
    np.testing.assert_array_equal(np.array(twice), expected * np.array(2, dtype))


@pytest.mark.parametrize("name", CASES)
def test_beside_others(name):
    """Functions of two arrays, of which one or both are rearranged, and several results."""
    shape, rearranged = CASES[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    y = rng.normal(size=rearranged(x).shape).astype(np.float32)
    a, b = mx.array(x), mx.array(y)
    for f in (
        lambda x, y, xp: rearranged(x) + y,
        lambda x, y, xp: rearranged(x) * rearranged(x * x) - 1,
        lambda x, y, xp: (rearranged(x) - y, rearranged(x) * y),
    ):
        expected = f(x, y, np)
        for way in (lambda a, b, f=f: f(a, b, mx), mx.compile(lambda a, b, f=f: f(a, b, mx))):
            got = way(a, b)
            for one, right in zip(
                got if isinstance(got, tuple) else (got,),
                expected if isinstance(expected, tuple) else (expected,),
                strict=True,
            ):
                np.testing.assert_array_equal(np.array(one), right)
