# SPDX-License-Identifier: MIT
"""Attention written with plain ops runs as the row's kernels, in whatever spelling: eager,
compiled, under vmap and with its gradient; values and gradients are those of the formula in
float64. What only looks like it stays as it is.

A spelling takes q, k, v of (batch, heads, length, features), keys with fewer heads where it shares
them.
"""

import math

import cermet.core as mx
import numpy as np
import pytest
from test_ops_fused import attention_reference

B, H, S, D = 2, 4, 24, 16
T = 20
SCALE = 0.25
LOW = -1e9
NAN = float("nan")
rng = np.random.default_rng(5)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


BIAS = normal(1, H, T, S)
SEEN = rng.random((B, 1, T, S)) < 0.7
PADDED = np.arange(S) < np.array([[S], [S - 7]])  # (batch, keys)
CAUSAL = np.tril(np.ones((T, S), bool), S - T)
WINDOW = CAUSAL & ~np.tril(np.ones((T, S), bool), S - T - 5)
SLOPES = 2.0 ** -np.arange(1, H + 1).astype(np.float32)
DISTANCE = (np.arange(S) - np.arange(T)[:, None]).astype(np.float32)


def swap(a):
    return mx.swapaxes(a, -1, -2)


def plain(q, k, v):
    return mx.softmax(q @ k.swapaxes(-1, -2) * SCALE, axis=-1) @ v


def scale_before(q, k, v):
    return mx.softmax((q * SCALE) @ k.transpose(0, 1, 3, 2), axis=-1) @ v


def scale_divides(q, k, v):
    return mx.softmax(mx.matmul(q, swap(k)) / math.sqrt(D), axis=-1) @ v


def scale_is_array(q, k, v):
    return mx.softmax((q @ swap(k)) * mx.rsqrt(mx.array(float(D))), axis=-1) @ v


def spelled_softmax(q, k, v):
    scores = q @ swap(k) * SCALE
    e = mx.exp(scores - mx.max(scores, axis=-1, keepdims=True))
    return (e / mx.sum(e, axis=-1, keepdims=True)) @ v


def spelled_softmax_without_keepdims(q, k, v):
    scores = SCALE * (q @ swap(k))
    e = mx.exp(scores - mx.stop_gradient(mx.max(scores, axis=-1))[..., None])
    return (e * mx.reciprocal(e.sum(axis=-1))[..., None]) @ v


def spelled_logsumexp(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.exp(scores - mx.logsumexp(scores, axis=-1, keepdims=True)) @ v


def einsum(q, k, v):
    weights = mx.softmax(mx.einsum("bhqd,bhkd->bhqk", q, k) * SCALE, axis=-1)
    return mx.einsum("bhqk,bhkd->bhqd", weights, v)


def split_heads(q, k, v):
    """From (batch, length, heads · features), as a layer has them."""
    flat = [mx.moveaxis(a, 1, 2).reshape(B, a.shape[2], H * D) for a in (q, k, v)]
    q, k, v = (a.reshape(B, -1, H, D).transpose(0, 2, 1, 3) for a in flat)
    return mx.softmax(q @ k.transpose(0, 1, 3, 2) * SCALE, axis=-1) @ v


def three_axes(q, k, v):
    q, k, v = (a.reshape(B * H, -1, D) for a in (q, k, v))
    return plain(q, k, v).reshape(B, H, T, D)


def causal_triu(q, k, v):
    mask = mx.triu(mx.full((T, S), float("-inf")), k=S - T + 1)
    return mx.softmax(q @ swap(k) * SCALE + mask, axis=-1) @ v


def causal_tril(q, k, v):
    seen = mx.tril(mx.ones((T, S), dtype=mx.bool_), k=S - T)
    return mx.softmax(mx.where(seen, q @ swap(k) * SCALE, float("-inf")), axis=-1) @ v


def causal_tri(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.softmax(mx.where(mx.tri(T, S, k=S - T) == 0, -mx.inf, scores), axis=-1) @ v


def causal_arange(q, k, v):
    queries, keys = mx.arange(S - T, S)[:, None], mx.arange(S)
    scores = mx.where(queries < keys, -mx.inf, q @ swap(k) * SCALE)
    return mx.softmax(scores, axis=-1) @ v


def causal_additive(q, k, v):
    """As nn.MultiHeadAttention.create_additive_causal_mask makes it, with a large number."""
    mask = (mx.arange(S - T, S)[:, None] < mx.arange(S)[None]).astype(mx.float32) * LOW
    return mx.softmax((q * SCALE) @ swap(k) + mask, axis=-1) @ v


def causal_large(q, k, v):
    seen = mx.arange(S - T, S)[:, None] >= mx.arange(S)
    return mx.softmax(mx.where(seen, q @ swap(k) * SCALE, LOW), axis=-1) @ v


def windowed(q, k, v):
    queries, keys = mx.arange(S - T, S)[:, None], mx.arange(S)
    seen = (keys <= queries) & (keys > queries - 5)
    return mx.softmax(mx.where(seen, q @ swap(k) * SCALE, -mx.inf), axis=-1) @ v


def bool_mask(q, k, v, seen=SEEN):
    return mx.softmax(mx.where(mx.array(seen), q @ swap(k) * SCALE, -mx.inf), axis=-1) @ v


def padding(q, k, v):
    """1 for a key, 0 for padding; taken off times a large number."""
    mask = mx.array(PADDED.astype(np.float32))[:, None, None]
    return mx.softmax(q @ swap(k) * SCALE - (1 - mask) * 1e9, axis=-1) @ v


def additive(q, k, v):
    return mx.softmax(mx.array(BIAS) + q @ swap(k) * SCALE, axis=-1) @ v


def bias_and_causal(q, k, v):
    scores = q @ swap(k) * SCALE + mx.array(BIAS[0])
    seen = mx.arange(S - T, S)[:, None] >= mx.arange(S)
    return mx.softmax(mx.where(seen, scores, -mx.inf), axis=-1) @ v


def alibi(q, k, v):
    bias = mx.array(SLOPES)[:, None, None] * (mx.arange(S) - mx.arange(T)[:, None])
    return mx.softmax(q @ swap(k) * SCALE + bias, axis=-1) @ v


def shared_by_repeat(q, k, v):
    k, v = (mx.repeat(a, H // a.shape[1], axis=1) for a in (k, v))
    return plain(q, k, v)


def shared_by_broadcast(q, k, v):
    shape = (B, 2, H // 2, S, D)
    k, v = (mx.broadcast_to(a[:, :, None], shape).reshape(B, H, S, D) for a in (k, v))
    return mx.softmax(q @ k.swapaxes(2, 3) * SCALE, axis=-1) @ v


def shared_by_groups(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    return plain(q, k[:, :, None], v[:, :, None]).reshape(B, H, T, D)


def shared_by_all(q, k, v):
    return plain(q, k, v)


def shared_and_causal(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    seen = mx.arange(S - T, S)[:, None] >= mx.arange(S)
    scores = mx.where(seen, (q * SCALE) @ swap(k[:, :, None]), -mx.inf)
    return (mx.softmax(scores, axis=-1) @ v[:, :, None]).reshape(B, H, T, D)


def upcast(q, k, v):
    weights = mx.softmax((q @ swap(k)).astype(mx.float32) * SCALE, axis=-1)
    return weights.astype(q.dtype) @ v


def precise(q, k, v):
    return mx.softmax(q @ swap(k) * SCALE, axis=-1, precise=True) @ v


def hidden(seen):
    return lambda scores: np.where(seen, scores, -np.inf)


def same(scores):
    return scores


# Spelling, what it does to the scaled scores, heads of the keys, dtype.
SPELLINGS = [
    (plain, same, H, "float32"),
    (scale_before, same, H, "float32"),
    (scale_divides, same, H, "float32"),
    (scale_is_array, same, H, "float32"),
    (spelled_softmax, same, H, "float32"),
    (spelled_softmax_without_keepdims, same, H, "float32"),
    (spelled_logsumexp, same, H, "float32"),
    (einsum, same, H, "float32"),
    (split_heads, same, H, "float32"),
    (three_axes, same, H, "float32"),
    (causal_triu, hidden(CAUSAL), H, "float32"),
    (causal_tril, hidden(CAUSAL), H, "float32"),
    (causal_tri, hidden(CAUSAL), H, "float32"),
    (causal_arange, hidden(CAUSAL), H, "float32"),
    (causal_additive, hidden(CAUSAL), H, "float32"),
    (causal_large, hidden(CAUSAL), H, "float32"),
    (windowed, hidden(WINDOW), H, "float32"),
    (bool_mask, hidden(SEEN), H, "float32"),
    (padding, hidden(PADDED[:, None, None]), H, "float32"),
    (additive, lambda scores: scores + BIAS, H, "float32"),
    (bias_and_causal, lambda scores: np.where(CAUSAL, scores + BIAS, -np.inf), H, "float32"),
    (alibi, lambda scores: scores + SLOPES[:, None, None] * DISTANCE, H, "float32"),
    (shared_by_repeat, same, 2, "float32"),
    (shared_by_broadcast, same, 2, "float32"),
    (shared_by_groups, same, 2, "float32"),
    (shared_by_all, same, 1, "float32"),
    (shared_and_causal, hidden(CAUSAL), 2, "float32"),
    (plain, same, H, "float64"),
    (plain, same, H, "bfloat16"),
    (upcast, same, H, "bfloat16"),
    (precise, same, H, "float16"),
]
IDS = [f"{f.__name__}-{dtype}" for f, _, _, dtype in SPELLINGS]
# Of values and of gradients, which are sums of so many terms; halves are rounded once, inputs and
# cotangents as well.
TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}


def inputs_of(heads, dtype, batch=()):
    shapes = ((B, H, T, D), (B, heads, S, D), (B, heads, S, D), (B, H, T, D))
    return [mx.array(normal(*batch, *shape)).astype(getattr(mx, dtype)) for shape in shapes]


def wide(a):
    return np.array(a.astype(mx.float64))


def expected(change, q, k, v, g):
    """The value and the cotangents of q, k, v."""
    heads = k.shape[1]
    k, v = (np.repeat(a, H // heads, axis=1) for a in (k, v))
    scores = change(q @ np.swapaxes(k, -1, -2) * SCALE)
    value, dq, dk, dv, *_ = attention_reference(q * SCALE, k, v, g, scores)
    return value, dq * SCALE, *(a.reshape(B, heads, -1, S, D).sum(2) for a in (dk, dv))


def check(got, want, dtype):
    assert got.dtype == getattr(mx, dtype)
    np.testing.assert_allclose(wide(got), want, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def forms(f, *inputs):
    return [kernel.form for kernel in mx.explain(f, *inputs).kernels]


def launches(f, *inputs):
    before = mx.counters()["kernels_launched"]
    result = f(*inputs)
    mx.eval(result)
    return mx.counters()["kernels_launched"] - before, result


@pytest.mark.parametrize(("f", "change", "heads", "dtype"), SPELLINGS, ids=IDS)
def test_spelling(f, change, heads, dtype):
    """One kernel, eager at first sight and later, and compiled."""
    q, k, v, g = inputs_of(heads, dtype)
    made = [] if f is not scale_is_array else ["map"]  # a root of a scalar
    assert forms(f, q, k, v) == [*made, "attention"]
    want = expected(change, *map(wide, (q, k, v, g)))[0]
    compiled = mx.compile(f)
    mx.eval(compiled(q, k, v))
    for run in (f, f, compiled):
        count, got = launches(run, q, k, v)
        assert count == 1 + len(made)
        check(got, want, dtype)


@pytest.mark.parametrize(("f", "change", "heads", "dtype"), SPELLINGS, ids=IDS)
def test_gradient(f, change, heads, dtype):
    """One kernel forward and one backward; besides them, sums over heads that share keys, copies
    into another layout, and small arrays that masks are made of. None makes scores or weights."""
    q, k, v, g = inputs_of(heads, dtype)
    want = expected(change, *map(wide, (q, k, v, g)))

    def gradients(q, k, v, g):
        (value,), cotangents = mx.vjp(f, [q, k, v], [g])
        return value, *cotangents

    report = mx.explain(gradients, q, k, v, g)
    kernels = [kernel.form for kernel in report.kernels]
    others = {split_heads: 3, scale_is_array: 3, padding: 1, alibi: 1}.get(f, 0)
    others += 2 if heads < H else 0
    assert kernels.count("attention") == 2 and len(kernels) <= 2 + others, kernels
    for run in (gradients, mx.compile(gradients)):
        for got, one in zip(run(q, k, v, g), want, strict=True):
            check(got, one, dtype)


@pytest.mark.parametrize(("f", "change", "heads", "dtype"), SPELLINGS, ids=IDS)
def test_vmap(f, change, heads, dtype):
    """A batch of batches; and its gradient."""
    batched = inputs_of(heads, dtype, batch=(3,))
    values = mx.vmap(f)
    assert "gemm" not in forms(values, *batched[:3])
    assert "attention" in forms(values, *batched[:3])

    def gradients(q, k, v, g):
        return mx.vjp(f, [q, k, v], [g])[1]

    of_each = mx.vmap(gradients)
    assert "gemm" not in forms(of_each, *batched)
    got = [values(*batched[:3]), *of_each(*batched)]
    for i in range(3):
        for one, want in zip(got, expected(change, *(wide(a[i]) for a in batched)), strict=True):
            check(one[i], want, dtype)


def gradient_of_batches(q, k, v, g):
    def loss(q, k, v):
        return mx.sum(mx.vmap(causal_arange)(q, k, v) * g)

    return mx.grad(loss, argnums=(0, 1, 2))(q, k, v)


def test_gradient_of_vmap():
    batched = inputs_of(H, "float32", batch=(3,))
    assert "gemm" not in forms(gradient_of_batches, *batched)
    got = gradient_of_batches(*batched)
    for i in range(3):
        want = expected(hidden(CAUSAL), *(wide(a[i]) for a in batched))[1:]
        for one, each in zip(got, want, strict=True):
            check(one[i], each, "float32")
