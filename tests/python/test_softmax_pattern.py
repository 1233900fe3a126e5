# SPDX-License-Identifier: MIT
"""A softmax written with plain ops has the gradient of the row of that name, which divides as it
does: bit for bit the same, without a gradient through the maximum, which is 0 but for rounding.
What only looks like it keeps its own.
"""

import cermet.core as mx
import numpy as np
import pytest

SHAPE = (6, 5, 48)
rng = np.random.default_rng(3)
X = rng.normal(size=SHAPE) * 3
X[0, 0, :7] = 9.0  # the largest, several times
G = rng.normal(size=SHAPE)


def kept(x, axis):
    e = mx.exp(x - mx.max(x, axis=axis, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True)


def expanded(x, axis):
    e = mx.exp(x - mx.expand_dims(mx.max(x, axis=axis), axis))
    return e / mx.expand_dims(mx.sum(e, axis=axis), axis)


def stopped(x, axis):
    e = mx.exp(x - mx.stop_gradient(mx.max(x, axis=axis, keepdims=True)))
    return e / mx.sum(e, axis=axis, keepdims=True)


def array_of(values, dtype="float32"):
    return mx.array(values.astype(dtype), dtype=getattr(mx, dtype))


def gradient(f, axis):
    return mx.grad(lambda x, g: (f(x, axis) * g).sum())


def made_by(f, axis, dtype="float32"):
    x, g = array_of(X, dtype), array_of(G, dtype)
    return [[op[0] for op in k.ops] for k in mx.explain(gradient(f, axis), x, g).kernels]


def wanted(x, g, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    y = e / e.sum(axis=axis, keepdims=True)
    return y * (g - (y * g).sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2)])
@pytest.mark.parametrize("f", [kept, expanded, stopped])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_is_that_of_the_row(f, axis, dtype):
    x, g = array_of(X, dtype), array_of(G, dtype)
    row = gradient(lambda x, axis: mx.softmax(x, axis=axis, precise=True), axis)(x, g)
    got = gradient(f, axis)(x, g)
    assert np.array_equal(np.asarray(got), np.asarray(row))
    compiled = mx.compile(gradient(f, axis))
    assert np.array_equal(np.asarray(compiled(x, g)), np.asarray(row))
    want = wanted(X.astype(dtype).astype(float), G.astype(dtype).astype(float), axis)
    # x - max(x), up to 20, is rounded, and its exponential is off by as much.
    atol = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.asarray(got), want, atol=atol)


def test_values_keep_their_bits():
    x, g = array_of(X), array_of(G)
    assert np.array_equal(np.asarray(mx.softmax(x, axis=-1, precise=True)), np.asarray(kept(x, -1)))
    value, _ = mx.value_and_grad(lambda x: (kept(x, -1) * g).sum())(x)
    assert value.item() == (kept(x, -1) * g).sum().item()


def test_second_derivative():
    x = array_of(X[0, 0], "float64")
    twice = mx.grad(lambda x: (mx.grad(lambda x: (kept(x, -1) ** 2).sum())(x) ** 2).sum())
    rows = mx.grad(
        lambda x: (
            mx.grad(lambda x: (mx.softmax(x, axis=-1, precise=True) ** 2).sum())(x) ** 2
        ).sum()
    )
    np.testing.assert_allclose(np.asarray(twice(x)), np.asarray(rows(x)), rtol=1e-12, atol=1e-15)


def test_batched():
    x, g = array_of(X), array_of(G)
    got = mx.vmap(gradient(kept, 0), in_axes=(1, 1), out_axes=1)(x, g)
    one = mx.stack([gradient(kept, 0)(x[:, i], g[:, i]) for i in range(SHAPE[1])], axis=1)
    np.testing.assert_allclose(np.asarray(got), np.asarray(one), atol=1e-6)


def test_no_gradient_of_the_maximum():
    assert made_by(kept, -1) == made_by(lambda x, axis: mx.softmax(x, axis=axis, precise=True), -1)


# The exponentials, their sum or the differences are wanted elsewhere; axes or operands are others.
def terms_too(x, axis):
    e = mx.exp(x - mx.max(x, axis=axis, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True) + e


def sum_too(x, axis):
    e = mx.exp(x - mx.max(x, axis=axis, keepdims=True))
    s = mx.sum(e, axis=axis, keepdims=True)
    return e / s + s


def differences_too(x, axis):
    d = x - mx.max(x, axis=axis, keepdims=True)
    e = mx.exp(d)
    return e / mx.sum(e, axis=axis, keepdims=True) * d


def largest_too(x, axis):
    m = mx.max(x, axis=axis, keepdims=True)
    e = mx.exp(x - m)
    return e / mx.sum(e, axis=axis, keepdims=True) * m


def largest_of_another_axis(x, axis):
    e = mx.exp(x - mx.max(x, axis=0, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True)


def largest_of_another_array(x, axis):
    e = mx.exp(x - mx.max(x * 2, axis=axis, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True)


def sum_of_another_array(x, axis):
    e = mx.exp(x - mx.max(x, axis=axis, keepdims=True))
    return e / mx.sum(e * e, axis=axis, keepdims=True)


def smallest(x, axis):
    e = mx.exp(x - mx.min(x, axis=axis, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True)


OTHERS = [
    terms_too,
    sum_too,
    differences_too,
    largest_too,
    largest_of_another_axis,
    largest_of_another_array,
    sum_of_another_array,
    smallest,
]


@pytest.mark.parametrize("f", OTHERS)
def test_others_keep_their_gradient(f):
    x = rng.normal(size=(3, 7))
    g = array_of(rng.normal(size=(3, 7)), "float64")

    def total(values):
        return (f(array_of(values, "float64"), -1) * g).sum().item()

    got = np.asarray(gradient(f, -1)(array_of(x, "float64"), g))
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-5
        slope = (total(x + step) - total(x - step)) / 2e-5
        assert got[place] == pytest.approx(slope, rel=1e-6, abs=1e-8)
    assert made_by(f, -1) != made_by(lambda x, axis: mx.softmax(x, axis=axis, precise=True), -1)


def test_halves_are_rounded_as_written():
    x, g = array_of(X).astype(mx.bfloat16), array_of(G).astype(mx.bfloat16)
    value, _ = mx.value_and_grad(lambda x: (kept(x, -1) * g).sum())(x)
    assert value.item() == (kept(x, -1) * g).sum().item()
