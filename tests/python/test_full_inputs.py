# SPDX-License-Identifier: MIT
"""Plans serve graphs whose numbers differ: what a plan was made for, be it one number everywhere
(mx.full) or data, must not be in it. References in float64."""

import cermet.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 6))
MANY = RNG.standard_normal((5000, 3))
HEADS = [RNG.standard_normal((2, 9, 16)) for _ in range(3)]


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def ours(a):
    return mx.array(np.asarray(a, np.float32))


def scaled_attention(scale):
    q, k, v = map(ours, HEADS)
    return mx.softmax((q @ k.swapaxes(-1, -2)) * scale, axis=-1) @ v


def scaled_attention_reference(scale):
    q, k, v = HEADS
    return softmax((q @ k.swapaxes(-1, -2)) * scale) @ v


# name: shape of the operand, the function, its reference
CASES = {
    "weight of a layer norm": (
        (6,),
        lambda w: mx.fast.layer_norm(ours(X), w, None, 1e-5),
        lambda w: normed(X) * w,
    ),
    "bias of a layer norm": (
        (6,),
        lambda b: mx.fast.layer_norm(ours(X), None, b, 1e-5),
        lambda b: normed(X) + b,
    ),
    "weight of an RMS norm": (
        (6,),
        lambda w: mx.fast.rms_norm(ours(X), w, 1e-5),
        lambda w: X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5) * w,
    ),
    "layer norm": (
        (6, 6),
        lambda x: mx.fast.layer_norm(x + ours(X), None, None, 1e-5),
        lambda x: normed(x + X),
    ),
    "few terms": ((3, 4), lambda w: ours(MANY) @ w, lambda w: MANY @ w),
    "few elements": (
        (1500, 3),
        lambda a: mx.sum(a, axis=1) + ours(MANY[:1500, 0]),
        lambda a: a.sum(1) + MANY[:1500, 0],
    ),
    "scale of scores": ((), scaled_attention, scaled_attention_reference),
    "scales of scores": ((2, 9, 9), scaled_attention, scaled_attention_reference),
    "additive mask": (
        (2, 1, 9, 9),
        lambda m: mx.fast.scaled_dot_product_attention(
            *(ours(a)[:, None] for a in HEADS), scale=0.3, mask=m
        )[:, 0],
        lambda m: softmax(HEADS[0] @ HEADS[1].swapaxes(-1, -2) * 0.3 + m[:, 0]) @ HEADS[2],
    ),
    "frequencies of rope": (
        (8,),
        lambda f: mx.fast.rope(
            ours(HEADS[0])[:, None], 16, traditional=True, base=None, scale=1.0, offset=3, freqs=f
        )[:, 0],
        lambda f: turned(HEADS[0], np.arange(3, 12)[:, None] / f),
    ),
    "logits": (
        (6, 6),
        lambda x: mx.fast.cross_entropy(x * ours(X), mx.arange(6)),
        lambda x: np.log(np.exp(x * X).sum(-1)) - np.diag(x * X),
    ),
    "exponent": ((6, 6), lambda e: mx.power(ours(abs(X)), e), lambda e: abs(X) ** e),
    "added matrix": ((6, 6), lambda c: mx.addmm(c, ours(X), ours(X)), lambda c: c + X @ X),
}


def turned(x, angle):
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([first * c - second * s, first * s + second * c], -1).reshape(x.shape)


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_one_call_are_not_those_of_the_next(name, evaluated):
    shape, function, reference = CASES[name]

    def check(operand, values):
        if evaluated:
            mx.eval(operand)
        np.testing.assert_allclose(np.array(function(operand)), reference(values), 2e-4, 2e-5)

    for value in (1.0, 3.0, 0.5, 2.0):
        check(mx.full(shape, value), np.full(shape, value))
        check(mx.full(shape, value, mx.float32) * 1, np.full(shape, value))
    data = RNG.uniform(0.5, 2, shape)
    check(ours(data), data)
    check(mx.full(shape, 4.0), np.full(shape, 4.0))
