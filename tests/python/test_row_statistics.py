# SPDX-License-Identifier: MIT
"""What rows are reduced to (norms, maxima, statistics) is stored by the kernel that goes over the
rows: kernel counts, eager and compiled, and values beside NumPy in float64."""

import cermet.core as mx
import numpy as np
import pytest

SHAPES = [(384, 64), (1000, 1000), (4, 70000), (300, 5), (7, 1), (0, 3)]


def with_maximum(x, xp):
    most = xp.max(x, axis=1)
    return most, x - most[:, None]


def with_norm(x, xp):
    norm = xp.sqrt(xp.sum(x * x, axis=1) + 1)
    return norm, x / norm[:, None]


def with_statistics(x, xp):
    mean, variance = xp.mean(x, axis=1, keepdims=True), xp.var(x, axis=1, keepdims=True)
    return mean, variance, xp.sqrt(variance), (x - mean) / xp.sqrt(variance + 1e-2)


def with_logarithm(x, xp):
    most = xp.max(x, axis=1, keepdims=True)
    exponentials = xp.exp(x - most)
    total = xp.sum(exponentials, axis=1, keepdims=True)
    return most + xp.log(total), exponentials / total


def kernels_of(f, *arguments):
    for _ in range(3):
        mx.eval(f(*arguments))
    mx.counters(reset=True)
    mx.eval(f(*arguments))
    return mx.counters()["kernels_launched"]


def check(ours, expected):
    for a, b in zip(ours, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(np.array(a), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", [with_maximum, with_norm, with_statistics, with_logarithm])
def test_kept_beside_rows(f, shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    a = mx.array(x)
    for g in (lambda a: f(a, mx), mx.compile(lambda a: f(a, mx))):
        check(g(a), f(x.astype(np.float64), np))
        if shape[0] > 0:
            assert kernels_of(g, a) == 1


@pytest.mark.parametrize("axes", [(2,), (1, 2), (0, 1, 2)])
def test_kept_beside_a_batch(axes):
    x = np.random.default_rng(1).normal(size=(8, 30, 40)).astype(np.float32)

    def f(x, xp):
        norm = xp.sqrt(xp.sum(x * x, axis=axes, keepdims=True))
        return norm, x / norm

    check(f(mx.array(x), mx), f(x.astype(np.float64), np))
    assert kernels_of(lambda a: f(a, mx), mx.array(x)) == 1


def test_kept_though_the_fold_is_made_elsewhere():
    """The rows wait for what all of them are reduced to: the fold of each cannot be theirs."""
    x = np.random.default_rng(2).normal(size=(300, 50)).astype(np.float32)

    def f(x, xp):
        squares = xp.sum(x * x, axis=1)
        norm = xp.sqrt(squares)
        return norm, (x + xp.max(xp.cumsum(squares))) / norm[:, None], squares

    check(f(mx.array(x), mx), f(x.astype(np.float64), np))
    assert kernels_of(lambda a: f(a, mx), mx.array(x)) <= 4


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_gradients_take_as_many_kernels_compiled(norm):
    """Forward and backward of a branch: normalised rows, what they were reduced to, the product."""
    rng = np.random.default_rng(3)
    x, v, w = (
        mx.array(rng.normal(size=s).astype(np.float32)) for s in [(384, 64), (64, 64), (64,)]
    )

    def loss(x, w, v):
        y = (
            mx.fast.rms_norm(x, w, 1e-5)
            if norm == "rms_norm"
            else mx.fast.layer_norm(x, w, w, 1e-5)
        )
        return mx.mean((x + y @ v) ** 2)

    def formula(x, w, v):
        x, w, v = (np.array(a, np.float64) for a in (x, w, v))
        centred = x - x.mean(1, keepdims=True) * (norm == "layer_norm")
        y = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w
        return np.mean((x + (y + w * (norm == "layer_norm")) @ v) ** 2)

    f = mx.value_and_grad(loss, argnums=(0, 1, 2))
    eager, compiled = f(x, w, v), mx.compile(f)(x, w, v)
    np.testing.assert_allclose(eager[0].item(), formula(x, w, v), rtol=1e-5)
    for a, b in zip(eager[1], compiled[1], strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    direction = rng.normal(size=384 * 64).reshape(384, 64)
    step = 1e-5 * direction
    base = np.array(x, np.float64)
    slope = (formula(base + step, w, v) - formula(base - step, w, v)) / 2e-5
    assert np.sum(np.array(eager[1][0], np.float64) * direction) == pytest.approx(slope, rel=1e-4)
    assert kernels_of(f, x, w, v) == kernels_of(mx.compile(f), x, w, v) == 6


def test_small_values_are_made_where_they_are_wanted():
    """A few ops on a few elements take no kernel of their own beside the two that want them."""
    rng = np.random.default_rng(4)
    x, y, w = (rng.normal(size=s).astype(np.float32) for s in [(384, 64), (100, 64), (64,)])

    def f(x, y, w, xp):
        scale = w * w + 1
        return xp.sum(x * scale, axis=1), xp.max(y - scale, axis=0)

    arrays = [mx.array(a) for a in (x, y, w)]
    for g in (lambda *a: f(*a, mx), mx.compile(lambda *a: f(*a, mx))):
        check(g(*arrays), f(*(a.astype(np.float64) for a in (x, y, w)), np))
        assert kernels_of(g, *arrays) == 2
