# SPDX-License-Identifier: MIT
"""Folds down long arrays of few columns, and of values made of each of their short rows: vectors
run down the columns. Values beside NumPy in float64, kernel counts, the same bits on every path."""

import hashlib
import os
import subprocess
import sys

import cermet.core as mx
import numpy as np
import pytest

SHAPES = [(20000, 2), (1500, 13), (9000, 3), (4097, 5), (3, 4096, 7), (2, 1025, 31), (2500, 32)]


def softmax(x, axis, xp):
    exponentials = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=axis, keepdims=True)


def logsumexp(x, axis, xp):
    most = xp.max(x, axis=axis, keepdims=True)
    return (most + xp.log(xp.sum(xp.exp(x - most), axis=axis, keepdims=True)))[..., 0]


# Of the second to last axis, the columns, and kernels.
CASES = {
    "sum": (lambda x, xp: xp.sum(x, axis=-2), 1),
    "max": (lambda x, xp: xp.max(x, axis=-2), 1),
    "mean": (lambda x, xp: xp.mean(x * 2 + 1, axis=-2), 1),
    "var": (lambda x, xp: xp.var(x, axis=-2), 1),
    "argmin": (lambda x, xp: xp.argmin(x, axis=-2), 1),
    "any": (lambda x, xp: xp.any(x > 3.5, axis=-2), 1),
    "standardised": (lambda x, xp: (x - xp.mean(x, axis=-2, keepdims=True)) / xp.std(x), 3),
    "softmax": (lambda x, xp: softmax(x, -2, xp), 2),
    "cumsum": (lambda x, xp: xp.cumsum(x, axis=-2), 1),
    "function of a cumsum": (lambda x, xp: xp.tanh(xp.cumsum(x * x, axis=-2)) + x, 1),
    "cumprod": (lambda x, xp: xp.cumprod(1 + x / 50, axis=-2), 1),
    "weighted by a column": (lambda x, xp: xp.sum(x * xp.tanh(x[..., :1]), axis=-2), 1),
    "beside a row": (lambda x, xp: xp.sum(xp.tanh(x + x[..., :1, :]), axis=-2), 1),
    "some columns": (lambda x, xp: xp.max(x[..., 1:], axis=-2), 1),
    "every second row": (lambda x, xp: xp.sum(x[..., ::2, :], axis=-2), 1),
    "and stored": (lambda x, xp: (lambda y: (y, xp.sum(y, axis=-2)))(xp.tanh(x)), 1),
    "both ways": (lambda x, xp: (xp.sum(x, axis=-1), xp.max(x, axis=-2)), 1),
    "of a softmax": (lambda x, xp: xp.sum(softmax(x, -1, xp), axis=-2), 1),
    "places of the largest": (lambda x, xp: xp.sum(xp.argmax(x, axis=-1), axis=-1), 1),
    "mean of rows": (lambda x, xp: xp.mean(logsumexp(x, -1, xp)), 1),
    "share that is right": (
        lambda x, xp: xp.mean(xp.argmax(x, axis=-1) == xp.argmin(x, axis=-1)),
        1,
    ),
}
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8"]


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_kernels(name, shape):
    f, kernels = CASES[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    a = mx.array(x)
    expected = as_tuple(f(x.astype(np.float64), np))
    for g in (lambda a: f(a, mx), mx.compile(lambda a: f(a, mx))):
        mx.eval(g(a))
        mx.counters(reset=True)
        got = as_tuple(g(a))
        mx.eval(got)
        assert mx.counters()["kernels_launched"] <= kernels + (len(shape) > 2)
        for one, right in zip(got, expected, strict=True):
            size = max(1.0, np.abs(right).max())
            np.testing.assert_allclose(np.array(one), right, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6, 8, 15, 17, 31])
def test_dtypes(dtype, columns):
    x = np.random.default_rng(1).integers(0, 9, size=(20001 // columns + 1000, columns))
    a = mx.array(x).astype(getattr(mx, dtype))
    wide = x.astype(np.float64)
    for f in (
        lambda x, xp: xp.max(x, axis=0),
        lambda x, xp: xp.argmax(x, axis=0),
        lambda x, xp: xp.argmin(x, axis=1).sum(),
        lambda x, xp: xp.sum(x.astype(xp.float32), axis=0),
        lambda x, xp: xp.sum(x.astype(xp.float32) * x[:, :1].astype(xp.float32), axis=0),
    ):
        right = f(wide, np)
        np.testing.assert_array_equal(np.array(f(a, mx)).astype(np.float64), right)


def test_columns_of_a_wider_array_and_of_a_view():
    x = np.random.default_rng(2).normal(size=(3000, 40)).astype(np.float32)
    a, wide = mx.array(x), x.astype(np.float64)
    for take in (
        lambda x: x[:, 5:12],
        lambda x: x[7:2900:3, 20:29],
        lambda x: x[::-1, 1:4],
        lambda x: x[:, 11:2:-1],
        lambda x: x.reshape(3000, 8, 5)[:, 3],
        lambda x: x.reshape(2, 1500, 40)[:, :, :6],
    ):
        for axis in (-2, -1):
            for xp_sum in (lambda x, axis=axis: x.sum(axis), lambda x, axis=axis: x.max(axis)):
                right = xp_sum(take(wide))
                np.testing.assert_allclose(
                    np.array(xp_sum(take(a))), right, rtol=1e-4, atol=1e-3 if axis == -2 else 1e-5
                )


def test_rows_that_are_nan_or_infinite_stay_in_their_columns():
    x = np.zeros((5000, 4), np.float32)
    x[123, 1], x[4999, 2], x[0, 3] = np.nan, np.inf, -np.inf
    a = mx.array(x)
    np.testing.assert_array_equal(np.array(a.sum(0)), x.sum(0))
    np.testing.assert_array_equal(np.array(a.max(0)), x.max(0))
    np.testing.assert_array_equal(np.array(a.argmax(0)), x.argmax(0))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.array(a.var(0)), x.var(0))


def test_gradients():
    x = np.random.default_rng(3).normal(size=(4000, 6)).astype(np.float32)
    b = np.random.default_rng(4).normal(size=6).astype(np.float32)
    g = mx.grad(lambda x, b: mx.tanh(x + b).sum(), argnums=(0, 1))(mx.array(x), mx.array(b))
    slope = 1 - np.tanh(x.astype(np.float64) + b) ** 2
    np.testing.assert_allclose(np.array(g[0]), slope, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.array(g[1]), slope.sum(0), rtol=1e-5)


@pytest.mark.parametrize("level", ["avx512", "avx2", "generic"])
def test_bits_do_not_depend_on_how_it_is_run(level):
    """Of all cases: eager and compiled, and in a process with one thread that runs op by op."""
    environment = {**os.environ, "CERMET_CPU_FEATURES": level}
    command = [sys.executable, __file__]
    one = {**environment, "CERMET_NUM_THREADS": "1", "CERMET_TIER": "single"}
    runs = [
        subprocess.run(command, env=e, capture_output=True, text=True, check=True).stdout.split()
        for e in (environment, one)
    ]
    assert runs[0] == runs[1] == digests(mx.compile) == digests(lambda f: f)


def digests(how):
    found = []
    for shape in [(1500, 13), (9000, 3)]:
        a = mx.array(np.random.default_rng(2).normal(size=shape).astype(np.float32))
        for f, _ in CASES.values():
            result = as_tuple(how(lambda a, f=f: f(a, mx))(a))
            found.append(hashlib.sha256(b"".join(np.array(r).tobytes() for r in result)))
    return [each.hexdigest() for each in found]


if __name__ == "__main__":
    print(*digests(lambda f: f))
