# SPDX-License-Identifier: MIT
"""Attention against its formula in float64: every mask, shared keys, sinks, and its gradients."""

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
