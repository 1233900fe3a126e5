# SPDX-License-Identifier: MIT
"""Attention against its formula in float64: every mask, shared keys, sinks, and its gradients."""

import itertools

import cermet.core as mx
import numpy as np
import pytest
from test_ops_table import check_close, sample, to_numpy, to_ours, wide


def attention_reference(q, k, v, g, scores, sinks=None):
    """In float64: the result of softmax(scores) v, and for its cotangent g those of q / scale,
    k, v, the scores and the sinks; scores are -inf where nothing is seen."""
    largest = scores.max(-1, keepdims=True)
    if sinks is not None:
        largest = np.maximum(largest, sinks[:, None, None])
    largest = np.where(np.isinf(largest), 0, largest)
    e = np.exp(scores - largest)
    total = e.sum(-1, keepdims=True)
    sink = 0 if sinks is None else np.exp(sinks[:, None, None] - largest)
    total = np.where(total + sink == 0, 1, total + sink)
    p = e / total
    dp = g @ np.swapaxes(v, -1, -2)
    mean = np.sum(p * dp, -1, keepdims=True)
    ds = p * (dp - mean)
    dsinks = -np.sum(sink / total * mean, (0, 2, 3)) if sinks is not None else None
    return p @ v, ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ g, ds, dsinks


# Batch, heads, heads of the keys, queries, keys, features of keys and of values: one query and
# several, lengths around the blocks of 48 queries and 384 keys, features around the panels of 64.
ATTENTION_SIZES = [
    (2, 4, 2, 9, 11, 16, 16),
    (2, 2, 2, 1, 70, 8, 8),
    (1, 4, 1, 5, 33, 5, 70),
    (2, 2, 1, 48, 96, 64, 64),
    (1, 3, 3, 97, 47, 65, 3),
    (1, 2, 2, 50, 500, 16, 40),
    (1, 1, 1, 1600, 20, 2, 2),
]


@pytest.mark.parametrize("sizes", ATTENTION_SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_attention(rng, dtype, sizes):
    """Against the formula in float64, forward and backward, with every mask."""
    batch, heads, key_heads, queries, keys, features, outputs = sizes
    scale = 0.3
    q, g = (sample(rng, (batch, heads, queries, n), dtype, (-1, 1)) for n in (features, outputs))
    k, v = (sample(rng, (batch, key_heads, keys, n), dtype, (-1, 1)) for n in (features, outputs))
    bias = sample(rng, (1, heads, queries, keys), dtype, (-1, 1))
    sinks = sample(rng, (heads,), dtype, (-1, 1))
    causal = np.tril(np.ones((queries, keys), bool), keys - queries)
    mask = rng.random((batch, 1, queries, keys)) < 0.6
    mask[:, :, 0] = False  # a row that sees nothing
    wk, wv = (np.repeat(wide(t), heads // key_heads, axis=1) for t in (k, v))
    scores = wide(q) @ np.swapaxes(wk, -1, -2) * scale
    arguments = [to_ours(t) for t in (q, k, v)]
    per_key = (batch, key_heads, heads // key_heads, keys, -1)
    for what, given, masked in (
        ("plain", {}, scores),
        ("causal", {"mask": "causal"}, np.where(causal, scores, -np.inf)),
        ("bool", {"mask": to_ours(mask)}, np.where(mask, scores, -np.inf)),
        ("bias", {"mask": to_ours(bias)}, scores + wide(bias)),
        ("sinks", {"mask": "causal", "sinks": to_ours(sinks)}, np.where(causal, scores, -np.inf)),
    ):
        want = attention_reference(
            wide(q) * scale, wk, wv, wide(g), masked, wide(sinks) if what == "sinks" else None
        )

        def f(q, k, v, given=given):
            return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, **given)

        # Sums of so many terms of size 1, rounded once.
        (got,), cotangents = mx.vjp(f, arguments, [to_ours(g)])
        check_close(got, want[0], dtype, what, factor=4)
        dk, dv = (t.reshape(per_key).sum(2) for t in want[2:4])
        terms = max(1, (queries * heads // key_heads) ** 0.5)
        check_close(cotangents[0], want[1] * scale, dtype, f"{what}, queries", factor=8)
        check_close(cotangents[1], dk, dtype, f"{what}, keys", factor=8 * terms)
        check_close(cotangents[2], dv, dtype, f"{what}, values", factor=8 * terms)


def test_attention_of_masks_and_sinks(rng):
    """The gradients of an additive mask and of sinks."""
    q, k, v, g = (sample(rng, (2, 2, 20, 8), "float64", (-1, 1)) for _ in range(4))
    bias, sinks = (
        sample(rng, (1, 2, 20, 20), "float64", (-1, 1)),
        sample(rng, (2,), "float64", (-1, 1)),
    )
    scores = q @ np.swapaxes(k, -1, -2) * 0.3 + bias
    want = attention_reference(q * 0.3, k, v, g, scores, sinks)

    def f(bias, sinks):
        return mx.fast.scaled_dot_product_attention(
            *map(to_ours, (q, k, v)), scale=0.3, mask=bias, sinks=sinks
        )

    _, (dbias, dsinks) = mx.vjp(f, [to_ours(bias), to_ours(sinks)], [to_ours(g)])
    check_close(dbias, want[4].sum(0, keepdims=True), "float64", "bias", factor=8)
    check_close(dsinks, want[5], "float64", "sinks", factor=40)


def test_attention_defaults(rng):
    arguments = [to_ours(sample(rng, (1, 2, 9, 16), "float32", (-1, 1))) for _ in range(3)]
    default = mx.fast.scaled_dot_product_attention(*arguments)
    scaled = mx.fast.scaled_dot_product_attention(*arguments, scale=0.25)
    np.testing.assert_array_equal(to_numpy(default), to_numpy(scaled))


def forms(f, *arguments):
    return [kernel.form for kernel in mx.explain(f, *arguments).kernels]


def test_attention_of_broadcasts(rng):
    """Constants, broadcasts and one array in several places: the same kernel, the same values."""
    shape = (1, 2, 20, 8)
    x = sample(rng, shape, "float32", (-1, 1))
    row, column = x[:, :, :1], x[..., :1]
    spread = {
        "array": lambda a: (a, x),
        "keys": lambda a: (mx.broadcast_to(a[:, :, :1], shape), np.broadcast_to(row, shape)),
        "features": lambda a: (mx.broadcast_to(a[..., :1], shape), np.broadcast_to(column, shape)),
        "ones": lambda a: (mx.ones(shape), np.ones(shape)),
    }
    for names in itertools.product(spread, repeat=3):
        wide_x = [wide(spread[name](None if name == "array" else mx.array(x))[1]) for name in names]

        def f(a, names=names):
            made = (spread[name](a)[0] for name in names)
            return mx.fast.scaled_dot_product_attention(*made, scale=0.3)

        scores = wide_x[0] * 0.3 @ np.swapaxes(wide_x[1], -1, -2)
        want = attention_reference(wide_x[0] * 0.3, *wide_x[1:], np.ones(shape), scores)
        check_close(f(mx.array(x)), want[0], "float32", names, factor=4)
        assert "attention" in forms(f, mx.array(x)), names


def test_attention_gradient_of_a_sum(rng):
    """The cotangent is a constant; the values are one row."""
    q, k, v = (sample(rng, (1, 2, n, 8), "float32", (-1, 1)) for n in (20, 30, 1))
    v = np.broadcast_to(v, k.shape)

    def loss(q, k, v):
        v = mx.broadcast_to(v[:, :, :1], k.shape)
        return mx.sum(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3))

    gradient = mx.grad(loss, argnums=(0, 1))
    scores = wide(q) * 0.3 @ np.swapaxes(wide(k), -1, -2)
    want = attention_reference(wide(q) * 0.3, wide(k), wide(v), np.ones(q.shape), scores)
    dq, dk = gradient(*map(to_ours, (q, k, v)))
    check_close(dq, want[1] * 0.3, "float32", "queries", factor=8)
    check_close(dk, want[2], "float32", "keys", factor=8)
    assert "attention" in forms(gradient, *map(to_ours, (q, k, v)))


def test_attentions_on_the_same_arrays(rng):
    """Each scale and mask is an attention of its own; those of two scales share a launch."""
    q, k, v = (sample(rng, (1, 2, 20, 8), "float32", (-1, 1)) for _ in range(3))
    seen = np.tril(np.ones((20, 20), bool))

    def f(q, k, v):
        return (
            mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3),
            mx.fast.scaled_dot_product_attention(q, k, v, scale=0.6),
            mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask="causal"),
        )

    ours = [to_ours(a) for a in (q, k, v)]
    assert forms(f, *ours) == ["attention"] * 2
    results, gradients = mx.vjp(f, ours, [mx.array(q)] * 3)
    sums = [0, 0, 0]
    for result, scale, mask in zip(results, (0.3, 0.6, 0.3), (None, None, seen), strict=True):
        scores = wide(q) * scale @ np.swapaxes(wide(k), -1, -2)
        scores = scores if mask is None else np.where(mask, scores, -np.inf)
        want = attention_reference(wide(q) * scale, wide(k), wide(v), wide(q), scores)
        check_close(result, want[0], "float32", scale, factor=4)
        sums = [s + w for s, w in zip(sums, (want[1] * scale, *want[2:4]), strict=True)]
    for got, want in zip(gradients, sums, strict=True):
        check_close(got, want, "float32", "gradients", factor=8)
