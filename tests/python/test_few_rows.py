# SPDX-License-Identifier: MIT
"""Folds in many small arrays: (N, K, D) with small K and D. Along D, where what is added has no K,
or no N, so that the axes stay apart, vectors run across N; along K a lane goes down each column.
"""

import cermet.core as mx
import numpy as np
import pytest

SHAPES = [
    *((1000, 8, 4), (515, 3, 3), (2048, 2, 17), (129, 63, 4), (700, 5, 48)),
    *((64, 40, 16), (65, 64, 5), (30, 33, 40), (5, 300, 3, 7), (3, 70, 6, 9)),
    *((100, 65, 8), (80, 50, 32), (81, 64, 33), (300, 60, 2)),
    *((16, 3, 700), (5, 16, 301), (2, 4, 3000), (70, 20, 100)),
]
DTYPES = ["float32", "float64", "float16", "int32", "complex64"]


def operands(shape, dtype):
    """x of the shape, one value for each group, one for each row of it; small integers."""
    outer = (*shape[:-2], 1, shape[-1])
    kinds = (shape, outer, (shape[-2], 1))
    rng = np.random.default_rng(shape)
    values = [rng.integers(-9, 10, s).astype(dtype) for s in kinds]
    return values, [mx.array(v, dtype=getattr(mx, dtype)) for v in values]


def logsumexp(x, axis):
    most = x.max(axis, keepdims=True)
    return np.log(np.exp(x - most).sum(axis)) + most.squeeze(axis)


FOLDS = [
    (lambda x, axis: mx.sum(x, axis=axis), lambda x, axis: x.sum(axis)),
    (lambda x, axis: mx.prod(x * 0 + 1, axis=axis), lambda x, axis: (x * 0 + 1).prod(axis)),
    (lambda x, axis: mx.max(x, axis=axis), lambda x, axis: x.max(axis)),
    (lambda x, axis: mx.argmin(x, axis=axis), lambda x, axis: x.argmin(axis)),  # they have an order
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_folds(shape, dtype, axis):
    (x, g, r), (a, b, c) = operands(shape, dtype)
    for ours, numpys in FOLDS if dtype != "complex64" else FOLDS[:2]:
        eager = np.asarray(ours(a * b - c, axis))
        assert np.array_equal(eager, numpys(x * g - r, axis))
        compiled = mx.compile(lambda x, ours=ours: ours(x, axis))
        assert np.array_equal(np.asarray(compiled(a * b - c)), eager)
        assert np.array_equal(np.asarray(ours(a, axis)), numpys(x, axis))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_passes(shape, dtype, axis):
    (x, g, r), (a, b, c) = operands(shape, dtype)

    def both(m, x, g, r):
        z = (x - g) * m.exp(0.1 * r)
        return z, -0.5 * z * z - r

    def ours(a, b, c):
        z, total = both(mx, a, b, c)
        centred = z - z.mean(axis=axis, keepdims=True)
        scores = mx.logsumexp(total, axis=axis)
        return scores, mx.softmax(z, axis=axis), centred / 3, z.sum(axis), mx.exp(z * 0.01)

    z, total = both(np, *(v.astype(float) for v in (x, g, r)))
    e = np.exp(z - z.max(axis, keepdims=True))
    centred = z - z.mean(axis, keepdims=True)
    weights = e / e.sum(axis, keepdims=True)
    wanted = (logsumexp(total, axis), weights, centred / 3, z.sum(axis), np.exp(z * 0.01))
    most = np.abs(z).sum(axis).max()  # of what is added up
    atol = 4 * np.finfo(dtype).eps * most
    for f in (ours, mx.compile(ours)):
        for got, right in zip(f(a, b, c), wanted, strict=True):
            rtol = 1e-5 if dtype == "float32" else 1e-9
            np.testing.assert_allclose(np.asarray(got), right, rtol=rtol, atol=atol)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_other_layouts(shape):
    (x, g, r), (a, b, c) = operands(shape, "float32")
    turned = mx.array(np.ascontiguousarray(np.swapaxes(x, -1, -2))).swapaxes(-1, -2)
    apart = mx.array(np.repeat(x, 2, axis=-2))[..., ::2, :]
    backwards = mx.array(np.ascontiguousarray(x[::-1]))[::-1]
    for operand in (turned, apart, backwards):
        mx.eval(operand)
        for axis in (-1, -2):
            got = np.asarray(mx.sum(operand * b - c, axis=axis))
            assert np.array_equal(got, (x * g - r).sum(axis))
            index = np.asarray(mx.argmax(operand * b - c, axis=axis))
            assert np.array_equal(index, (x * g - r).argmax(axis))


def test_gradients_of_a_mixture():
    n, k, d = 300, 5, 3
    rng = np.random.default_rng(17)
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
            right = np.asarray(right)  # scores, of which exponentials are taken, reach 40
            atol = 40 * np.finfo("float32").eps * np.abs(right).max()
            np.testing.assert_allclose(np.asarray(got), right, rtol=1e-5, atol=atol)


def test_what_vectors_run_across():
    (_, _, _), (a, b, _) = operands((1000, 8, 4), "float32")
    (kernel,) = mx.explain(lambda: mx.sum(a - b, axis=-1)).kernels
    assert kernel.ir.count("most 48") == 2  # the few, and the elements
    (kernel,) = mx.explain(lambda: mx.max(a, axis=1)).kernels
    assert kernel.ir.count("most 48") == 1
    assert "last serial" in kernel.ir
