# SPDX-License-Identifier: MIT
"""The gradient through what was broadcast is a sum. A factor that is one along the summed axes
comes out of it: the gradients of norms, spelled out, take as few passes as those of the library.
"""

import re

import cermet.core as mx
import numpy as np
import pytest

rng = np.random.default_rng(11)
X, G = rng.normal(size=(2, 24, 40)) * 2 + 0.5
W, B = rng.normal(size=(2, 40))


def mean(x, axis):
    return x.mean(axis=axis, keepdims=True)


def layer_norm(x, w, b):
    centred = x - mean(x, -1)
    return centred / (mean(centred * centred, -1) + 1e-5) ** 0.5 * w + b


def rms_norm(x, w, b):
    return x / (mean(x * x, -1) + 1e-5) ** 0.5 * w + b


def batch_norm(x, w, b):
    centred = x - mean(x, 0)
    return centred * (mean(centred * centred, 0) + 1e-5) ** -0.5 * w + b


def instance_norm(x, w, b):
    y = x.reshape(4, 6, 40)
    centred = y - mean(y, 1)
    return (centred / (mean(centred * centred, 1) + 1e-5) ** 0.5).reshape(24, 40) * w - b


def cosine(x, w, b):
    return -x / (x * x).sum(axis=-1, keepdims=True) ** 0.5 * w + x * b


def weighted(x, w, b):
    a = x * w / (x * x).sum(axis=-1, keepdims=True)
    return (a.sum(axis=0, keepdims=True) * x - b) * 3


FUNCTIONS = [layer_norm, rms_norm, batch_norm, instance_norm, cosine, weighted]


def gradient(f):
    return lambda x, w, b, g: mx.vjp(f, [x, w, b], [g])[1]


def array_of(values, dtype="float32"):
    return mx.array(values.astype(dtype), dtype=getattr(mx, dtype))


def gradients(f, dtype, call=lambda f: f):
    arrays = [array_of(a, dtype) for a in (X, W, B, G)]
    return [np.asarray(r) for r in call(gradient(f))(*arrays)]


def by_differences(f):
    """Along each element of each operand, of the sum of f times G, in float64."""
    results, step = [], 1e-6
    for k, operand in enumerate((X, W, B)):
        result = np.empty(operand.shape)
        for at in np.ndindex(operand.shape):
            values = []
            for sign in (1, -1):
                moved = [X, W, B]
                moved[k] = operand.copy()
                moved[k][at] += sign * step
                values.append((f(*moved) * G).sum())
            result[at] = (values[0] - values[1]) / (2 * step)
        results.append(result)
    return results


@pytest.mark.parametrize("f", FUNCTIONS)
def test_gradients(f):
    want = by_differences(f)
    for got, right in zip(gradients(f, "float64"), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-7)
    exact = gradients(f, "float64")
    for call in (lambda f: f, mx.compile):
        for got, right in zip(gradients(f, "float32", call), exact, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize("f", FUNCTIONS)
def test_batched_gradients(f):
    stacked = [array_of(np.stack([a, 0.5 * a + 0.1])) for a in (X, W, B, G)]
    batched = mx.vmap(gradient(f))(*stacked)
    for i in range(2):
        alone = mx.vjp(f, [a[i] for a in stacked[:3]], [stacked[3][i]])[1]
        for got, right in zip(batched, alone, strict=True):
            got, right = np.asarray(got[i]), np.asarray(right)
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


def kernels_of(f):
    arrays = [array_of(a) for a in (X, W, B, G)]
    return mx.explain(gradient(f), *arrays).kernels


@pytest.mark.parametrize("f", [layer_norm, rms_norm, cosine])
def test_sums_over_rows_do_not_wait(f):
    """But for the mean: all sums of a row can be made in one pass."""
    (kernel,) = kernels_of(f)
    sums = kernel.ir.split("\n    fold ")[1:]
    of_rows = [s for s in sums if "(a1) last lanes" in s]
    made = {s.split()[0] for s in of_rows[1 if f is layer_norm else 0 :]}
    defined = dict(re.findall(r"(%\d+) = (.*)", kernel.ir))

    def values_in(text):
        found = set(re.findall(r"\bv\d+", text))
        return found.union(*(values_in(defined[e]) for e in re.findall(r"%\d+", text)))

    for fold in of_rows:
        assert not values_in(fold.split("step")[1].split("merge")[0]) & made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_alone_stay(dtype):
    x, g, row = (array_of(a, dtype) for a in (X, G, X[:, :1]))
    got = mx.vjp(lambda r: mx.broadcast_to(r, x.shape) * 3.0, [row], [g])[1][0]
    assert np.array_equal(np.asarray(got), np.asarray((g * 3.0).sum(axis=1, keepdims=True)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_keep_their_factors(dtype):
    """The sum without its factor, 40 * 300 * 300, is more than float16 holds."""
    scale = mx.full((1, 1), 300.0).astype(getattr(mx, dtype))
    x = mx.full((1, 40), 300.0).astype(getattr(mx, dtype))
    g = mx.full((1, 40), 300.0).astype(getattr(mx, dtype))
    got = mx.vjp(lambda s: x / s, [scale], [g])[1][0].astype(mx.float32)
    np.testing.assert_allclose(np.asarray(got), -40, rtol=2e-2)


def test_a_sum_of_nothing_is_zero():
    x, zero = mx.ones((3, 0)), mx.zeros((3, 1))
    got = mx.vjp(lambda s: x / s, [zero], [x])[1][0]
    assert np.array_equal(np.asarray(got), np.zeros((3, 1)))


def test_sizes_of_one_and_none():
    for shape in ((0, 5), (5, 0), (1, 1), (1, 5), (5, 1)):
        x = np.ones(shape, "float32") * 2
        got = mx.vjp(lambda x: x / mx.sum(x, axis=-1, keepdims=True), [mx.array(x)], [mx.array(x)])
        assert got[1][0].shape == shape
        np.testing.assert_allclose(np.asarray(got[1][0]), 0, atol=1e-6)
