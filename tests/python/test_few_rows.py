# SPDX-License-Identifier: MIT
"""Folds of short rows of which few lie beside each other, and many such groups: (N, K, D) with
small K and D, where what is added has no K, or no N, so that the axes stay apart. Vectors run
across N.
"""

import cermet.core as mx
import numpy as np
import pytest

SHAPES = [
    *((1000, 8, 4), (515, 3, 3), (2048, 2, 17), (129, 63, 4), (700, 5, 48)),
    *((64, 40, 16), (65, 64, 5), (30, 33, 40), (5, 300, 3, 7), (3, 70, 6, 9)),
]
DTYPES = ["float32", "float64", "float16", "int32", "complex64"]
rng = np.random.default_rng(17)


def operands(shape, dtype):
    """x of the shape, one value for each group, one for each row of it; small integers."""
    outer = (*shape[:-2], 1, shape[-1])
    kinds = (shape, outer, (shape[-2], 1))
    values = [rng.integers(-9, 10, s).astype(dtype) for s in kinds]
    return values, [mx.array(v, dtype=getattr(mx, dtype)) for v in values]


def logsumexp(x):
    most = x.max(-1, keepdims=True)
    return np.log(np.exp(x - most).sum(-1)) + most[..., 0]


FOLDS = [
    (lambda x: mx.sum(x, axis=-1), lambda x: x.sum(-1)),
    (lambda x: mx.prod(x * 0 + 1, axis=-1), lambda x: (x * 0 + 1).prod(-1)),
    (lambda x: mx.max(x, axis=-1), lambda x: x.max(-1)),
    (lambda x: mx.argmin(x, axis=-1), lambda x: x.argmin(-1)),  # which have an order
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_folds(shape, dtype):
    (x, g, r), (a, b, c) = operands(shape, dtype)
    for ours, numpys in FOLDS if dtype != "complex64" else FOLDS[:2]:
        for f in (ours, mx.compile(ours)):
            assert np.array_equal(np.asarray(f(a * b - c)), numpys(x * g - r))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_passes(shape, dtype):
    (x, g, r), (a, b, c) = operands(shape, dtype)

    def both(m, x, g, r):
        z = (x - g) * m.exp(0.1 * r)
        total = -0.5 * z * z - r
        return z, total

    z, total = both(np, x.astype(float), g.astype(float), r.astype(float))
    most = np.abs(z).sum(-1).max()  # of what is added up
    tolerance = {
        "atol": 4 * np.finfo(dtype).eps * most,
        "rtol": 1e-5 if dtype == "float32" else 1e-9,
    }

    def ours(a, b, c):
        z, total = both(mx, a, b, c)
        scores = mx.logsumexp(total, axis=-1)
        return scores, mx.softmax(z, axis=-1), (z - z.mean(axis=-1, keepdims=True)) / 3, z.sum(-1)

    for f in (ours, mx.compile(ours)):
        scores, weights, centred, sums = (np.asarray(v) for v in f(a, b, c))
        np.testing.assert_allclose(scores, logsumexp(total), **tolerance)
        e = np.exp(z - z.max(-1, keepdims=True))
        np.testing.assert_allclose(weights, e / e.sum(-1, keepdims=True), **tolerance)
        np.testing.assert_allclose(centred, (z - z.mean(-1, keepdims=True)) / 3, **tolerance)
        np.testing.assert_allclose(sums, z.sum(-1), **tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_other_layouts(shape):
    (x, g, r), (a, b, c) = operands(shape, "float32")
    turned = mx.array(np.ascontiguousarray(np.swapaxes(x, -1, -2))).swapaxes(-1, -2)
    apart = mx.array(np.repeat(x, 2, axis=-2))[..., ::2, :]
    backwards = mx.array(np.ascontiguousarray(x[::-1]))[::-1]
    for operand in (turned, apart, backwards):
        mx.eval(operand)
        got = np.asarray(mx.sum(operand * b - c, axis=-1))
        assert np.array_equal(got, (x * g - r).sum(-1))
        index = np.asarray(mx.argmax(operand * b - c, axis=-1))
        assert np.array_equal(index, (x * g - r).argmax(-1))


def test_gradients_of_a_mixture():
    n, k, d = 300, 5, 3
    values = [rng.normal(size=s) for s in ((n, k), (n, k, d), (n, k, d), (n, d))]

    def loss(logits, mean, scale, y):
        z = (y[:, None] - mean) * mx.exp(-scale)
        parts = logits - mx.logsumexp(logits, axis=1, keepdims=True)
        return -mx.mean(mx.logsumexp(parts + mx.sum(-0.5 * z * z - scale, axis=2), axis=1))

    wide = [mx.array(v, dtype=mx.float64) for v in values]
    exact = mx.grad(loss, argnums=(0, 1, 2))(*wide)
    for at in ((0, 0), (7, 3), (299, 4)):
        for i in range(3):
            place = at if i == 0 else (*at, 1)
            results = []
            for step in (1e-6, -1e-6):
                moved = [v.copy() for v in values]
                moved[i][place] += step
                results.append(loss(*(mx.array(v, dtype=mx.float64) for v in moved)).item())
            slope = (results[0] - results[1]) / 2e-6
            np.testing.assert_allclose(np.asarray(exact[i])[place], slope, rtol=1e-4, atol=1e-9)
    narrow = [mx.array(v.astype("float32")) for v in values]
    for f in (loss, mx.compile(loss)):
        for got, right in zip(mx.grad(f, argnums=(0, 1, 2))(*narrow), exact, strict=True):
            right = np.asarray(right)
            np.testing.assert_allclose(np.asarray(got), right, atol=2e-6 * np.abs(right).max())


def test_vectors_run_across_many():
    (_, _, _), (a, b, _) = operands((1000, 8, 4), "float32")
    (kernel,) = mx.explain(lambda: mx.sum(a - b, axis=-1)).kernels
    assert kernel.form == "row"
    assert kernel.ir.count("most 48") == 2  # the few, and the elements
