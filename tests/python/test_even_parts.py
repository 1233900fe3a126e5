# SPDX-License-Identifier: MIT
"""Parts of one size that are joined along an axis, and what is made at a few places of one array:
one kernel makes all of them from what they share, with the bits that they have by themselves.
"""

import cermet.core as mx
import numpy as np
import pytest


def drawn(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return mx.array(values.astype(np.float32)).astype(getattr(mx, dtype))


def numbers(a):
    mx.eval(a)  # rounded to its dtype
    return np.array(a.astype(mx.float32) if a.dtype in (mx.bfloat16, mx.float16) else a)


def halves(x, d):
    return x[..., :d], x[..., d : 2 * d]


def rotated(x, c, s):
    d = c.shape[-1]
    a, b = halves(x, d)
    return mx.concatenate([a * c - b * s, a * s + b * c, x[..., 2 * d :]], axis=-1)


def rotated_reference(x, c, s):
    d = c.shape[-1]
    a, b = x[..., :d], x[..., d : 2 * d]
    return np.concatenate([a * c - b * s, a * s + b * c, x[..., 2 * d :]], axis=-1)


def kernels_of(f, *args):
    return [k.ops for k in mx.explain(f, *args).kernels]


# Features and how many of them turn: halves, and what stays in parts of as many or of other sizes.
WIDTHS = [
    (32, 32),
    (64, 64),
    (128, 128),
    (200, 200),
    (64, 32),
    (128, 32),
    (80, 32),
    (64, 62),
    (8, 8),
]


@pytest.mark.parametrize(("width", "turned"), WIDTHS)
@pytest.mark.parametrize("rows", [(3, 5), (2, 3, 700)])
def test_rotation(width, turned, rows):
    x, angle = drawn((*rows, width)), drawn((rows[-1], turned // 2), seed=1)
    c, s = mx.cos(angle), mx.sin(angle)
    mx.eval(c, s)
    got = rotated(x, c, s)
    want = rotated_reference(*(np.array(a, dtype=np.float64) for a in (x, c, s)))
    np.testing.assert_allclose(np.array(got), want, rtol=1e-5, atol=1e-6)
    compiled = mx.compile(rotated)(x, c, s)
    assert np.array_equal(np.array(compiled), np.array(got))
    assert len(kernels_of(rotated, x, c, s)) == 1
    # By the rows alone, and by parts that are made by themselves.
    a, b = (mx.contiguous(part) for part in halves(x, turned // 2))
    parts = [a * c - b * s, a * s + b * c, x[..., turned:] + 0]
    for part in parts:
        mx.eval(part)
    assert np.array_equal(np.concatenate([np.array(p) for p in parts], -1), np.array(got))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("dims", [64, 32])
def test_rope_and_its_gradient(dtype, dims):
    x, g = drawn((2, 3, 33, 64), dtype), drawn((2, 3, 33, 64), dtype, 1)

    def rope(x):
        return mx.fast.rope(x, dims, traditional=False, base=1e4, scale=1.0, offset=3)

    place = np.arange(33)[:, None] + 3
    angle = place * 1e4 ** (-np.arange(dims // 2) / (dims // 2))
    c, s = np.cos(angle), np.sin(angle)
    exact = np.array(x.astype(mx.float64)), np.array(g.astype(mx.float64))
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    tolerances = {"rtol": tolerance, "atol": tolerance}
    got, gradient = rope(x), mx.vjp(rope, [x], [g])[1][0]
    np.testing.assert_allclose(
        np.array(got.astype(mx.float64)), rotated_reference(exact[0], c, s), **tolerances
    )
    # Turned back.
    np.testing.assert_allclose(
        np.array(gradient.astype(mx.float64)), rotated_reference(exact[1], c, -s), **tolerances
    )
    for f, args in ((rope, (x,)), (lambda x, g: mx.vjp(rope, [x], [g])[1][0], (x, g))):
        assert np.array_equal(numbers(mx.compile(f)(*args)), numbers(f(*args)))


def test_large_rotations_are_one_kernel():
    """Whatever the dtype, forward and backward; the table of angles opens it."""
    for dtype in ("float32", "bfloat16"):
        x, g = drawn((2, 8, 512, 64), dtype), drawn((2, 8, 512, 64), dtype, 1)

        def rope(x):
            return mx.fast.rope(x, 64, traditional=False, base=1e4, scale=1.0, offset=0)

        assert len(kernels_of(rope, x)) == 1
        assert len(kernels_of(lambda x, g: mx.vjp(rope, [x], [g])[1][0], x, g)) == 1


@pytest.mark.parametrize("shape", [(64, 96), (700, 3072)])
def test_gradients_of_gates(shape):
    """Parts of one projection, whose gradients are put side by side."""
    a = drawn(shape)

    def gate(a):
        u, v = mx.split(a, 2, axis=-1)
        return (u * mx.sigmoid(u) * v).sum()

    def three(a):
        q, k, v = mx.split(a, 3, axis=-1)
        return (q * k + mx.exp(v)).sum()

    x = np.array(a, dtype=np.float64)
    u, v = np.split(x, 2, -1)
    sigmoid = 1 / (1 + np.exp(-u))
    want = np.concatenate([v * sigmoid * (1 + u * (1 - sigmoid)), u * sigmoid], -1)
    np.testing.assert_allclose(np.array(mx.grad(gate)(a)), want, rtol=1e-5, atol=1e-6)
    q, k, v = np.split(x, 3, -1)
    want = np.concatenate([k, q, np.exp(v)], -1)
    np.testing.assert_allclose(np.array(mx.grad(three)(a)), want, rtol=1e-5, atol=1e-6)
    for f in (gate, three):
        gradient = mx.grad(f)
        assert len(kernels_of(gradient, a)) == 1
        assert np.array_equal(np.array(mx.compile(gradient)(a)), np.array(gradient(a)))


@pytest.mark.parametrize("size", [30, 5000, 300_000])
def test_neighbours(size):
    """What is made again for each of a few places, but for what is dear, or wanted elsewhere."""
    x = drawn((size,))
    values = np.array(x, dtype=np.float64)

    def differences(x):
        y = mx.exp(x)
        return y[1:] - y[:-1]

    def curvature(x):
        y = x * 2 + 1
        return y[2:] - 2 * y[1:-1] + y[:-2]

    def many(x):
        y = mx.exp(mx.tanh(mx.sin(x)))
        return y[4:] + y[3:-1] + y[2:-2] + y[1:-3] + y[:-4]

    def kept(x):
        y = mx.exp(x)
        return y[1:] - y[:-1], y

    def strided(x):
        y = mx.abs(x)
        return y[::2] * y[1::2]

    y = np.exp(values)
    z = np.exp(np.tanh(np.sin(values)))
    wanted = {
        differences: [y[1:] - y[:-1]],
        curvature: [2 * (values[2:] - 2 * values[1:-1] + values[:-2])],
        many: [z[4:] + z[3:-1] + z[2:-2] + z[1:-3] + z[:-4]],
        kept: [y[1:] - y[:-1], y],
        strided: [np.abs(values)[::2] * np.abs(values)[1::2]],
    }
    for f, want in wanted.items():
        got, compiled = (r if isinstance(r, tuple) else [r] for r in (f(x), mx.compile(f)(x)))
        for a, b, expected in zip(got, compiled, want, strict=True):
            np.testing.assert_allclose(np.array(a), expected, rtol=1e-5, atol=1e-5)
            assert np.array_equal(np.array(a), np.array(b))
    assert len(kernels_of(differences, x)) == 1
    assert len(kernels_of(curvature, x)) == 1
    assert len(kernels_of(many, x)) == 2


@pytest.mark.parametrize("n", [64, 1000, 1 << 17])
def test_parts_of_one_draw(n):
    """Each word is drawn once for the parts that are made of it."""
    key = mx.random.key(3)

    def both(key):
        words = mx.random.bits((n,), key=key)
        return mx.concatenate([words & 0xFFFF, words >> 16])

    words = np.array(mx.random.bits((n,), key=key))
    got = np.array(both(key))
    assert np.array_equal(got, np.concatenate([words & 0xFFFF, words >> 16]))
    assert np.array_equal(np.array(mx.compile(both)(key)), got)


def test_lengths_of_one_trace():
    """A compiled function, called with sizes that are even and that are not."""
    f = mx.compile(lambda x: mx.concatenate([x[:, :32] * 2, x[:, :32] + x[:, 32:]], axis=-1))
    for rows in (4, 5, 900):
        x = drawn((rows, 64))
        v = np.array(x)
        want = np.concatenate([v[:, :32] * 2, v[:, :32] + v[:, 32:]], -1)
        assert np.array_equal(np.array(f(x)), want)
    for width in (40, 64, 90):
        x, y = drawn((300, width)), drawn((300, 45), seed=1)
        shared = x[:, :1]
        joined = mx.concatenate([x * shared, y * shared], axis=-1)
        want = np.concatenate([np.array(x) * np.array(shared), np.array(y) * np.array(shared)], -1)
        assert np.array_equal(np.array(joined), want)


def test_parts_of_what_is_reshaped():
    """A reshape cuts the axis of a part, but not the axis of what the parts are joined to."""
    x = drawn((20, 16, 6))
    flat = np.array(x).transpose(0, 2, 1).reshape(-1)
    y = mx.transpose(x, (0, 2, 1)).reshape(-1)
    assert np.array_equal(np.array(mx.concatenate([y, y])), np.concatenate([flat, flat]))
    rows, v = mx.broadcast_to(y[None], (7, y.size)), flat[None].repeat(7, 0)
    joined = mx.concatenate([rows * 2, rows + 1], axis=-1)
    assert np.array_equal(np.array(joined), np.concatenate([v * 2, v + 1], -1))
