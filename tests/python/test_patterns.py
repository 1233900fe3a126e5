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


def two_axes(q, k, v):
    return mx.vmap(mx.vmap(lambda q, k, v: mx.softmax(q @ k.T * SCALE, axis=-1) @ v))(q, k, v)


def added_product(q, k, v):
    shape = (B * H, -1, D)
    q, k, v = (a.reshape(shape) for a in (q, k, v))
    bias = mx.broadcast_to(mx.array(BIAS), (B, H, T, S)).reshape(B * H, T, S)
    scores = mx.addmm(bias, q, swap(k), alpha=SCALE)
    return (mx.softmax(scores, axis=2) @ v).reshape(B, H, T, D)


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


def shared_and_padded(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    scores = q @ swap(k[:, :, None]) / math.sqrt(D)
    scores = mx.where(mx.array(PADDED)[:, None, None, None], scores, mx.finfo(mx.float32).min)
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
    (two_axes, same, H, "float32"),
    (added_product, lambda scores: scores + BIAS, H, "float32"),
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
    (shared_and_padded, hidden(PADDED[:, None, None]), 2, "float32"),
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


# --- what is not the same function, or of which more is wanted ---


def weights_too(q, k, v):
    weights = mx.softmax(q @ swap(k) * SCALE, axis=-1)
    return weights @ v, weights


def scores_too(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.softmax(scores, axis=-1) @ v, mx.sum(scores, axis=-1)


def over_queries(q, k, v):
    return mx.softmax(q @ swap(k) * SCALE, axis=-2) @ v


def dropped(q, k, v):
    keep = mx.random.bernoulli(0.9, (B, H, T, S), key=mx.random.key(3))
    return (mx.softmax(q @ swap(k) * SCALE, axis=-1) * keep / 0.9) @ v


def other_largest(q, k, v):
    scores = q @ swap(k) * SCALE
    e = mx.exp(scores - mx.max(q @ swap(k), axis=-1, keepdims=True))
    return (e / mx.sum(e, axis=-1, keepdims=True)) @ v


def other_total(q, k, v):
    e = mx.exp(q @ swap(k) * SCALE)
    return (e / mx.sum(mx.abs(e), axis=-1, keepdims=True)) @ v


def scale_of_keys(q, k, v):
    return mx.softmax(q @ swap(k) * (mx.arange(S) / S), axis=-1) @ v


def scale_behind_mask(q, k, v):
    return mx.softmax((q @ swap(k) + mx.array(BIAS)) * SCALE, axis=-1) @ v


def few_queries(q, k, v):
    return plain(q[:, :, :4], k, v)


def clipped(q, k, v):
    return mx.softmax(mx.clip(q @ swap(k) * SCALE, -1, 1), axis=-1) @ v


OTHERS = [weights_too, scores_too, over_queries, dropped, other_largest, other_total]
OTHERS += [scale_of_keys, scale_behind_mask, few_queries, clipped]


@pytest.mark.parametrize("f", OTHERS, ids=lambda f: f.__name__)
def test_others_stay(f):
    """No kernel of attention; values and gradients are those in float64, which is not replaced
    here by anything else either."""
    q, k, v, _ = inputs_of(H, "float32")
    first = lambda *a: r[0] if isinstance(r := f(*a), tuple) else r  # noqa: E731
    assert "attention" not in forms(f, q, k, v)

    def loss(q, k, v):
        return mx.sum(mx.square(first(q, k, v)))

    gradient = mx.grad(loss, argnums=(0, 1, 2))
    for run in (first, mx.compile(first)):
        got = [run(q, k, v), *gradient(q, k, v)]
        assert all(np.isfinite(np.array(a)).all() for a in got)
    step = 1e-3
    for i, a in enumerate((q, k, v)):
        direction = mx.array(normal(*a.shape))
        moved = [[*(q, k, v)[:i], a + s * direction, *(q, k, v)[i + 1 :]] for s in (step, -step)]
        slope = (loss(*moved[0]).item() - loss(*moved[1]).item()) / (2 * step)
        along = mx.sum(gradient(q, k, v)[i] * direction).item()
        # A difference of float32 losses: their rounding over the step.
        assert abs(slope - along) < 0.02 * abs(along) + 0.5


def test_total_without_a_gradient():
    """The value is attention's, the gradient is not."""
    q, k, v, g = inputs_of(H, "float32")

    def f(q, k, v):
        scores = q @ swap(k) * SCALE
        e = mx.exp(scores - mx.stop_gradient(mx.max(scores, axis=-1, keepdims=True)))
        return (e / mx.stop_gradient(mx.sum(e, axis=-1, keepdims=True))) @ v

    (value,), gradients = mx.vjp(f, [q, k, v], [g])
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    e = np.exp(wq @ np.swapaxes(wk, -1, -2) * SCALE)
    p = e / e.sum(-1, keepdims=True)
    ds = p * (wg @ np.swapaxes(wv, -1, -2)) * SCALE
    want = p @ wv, ds @ wk, np.swapaxes(ds, -1, -2) @ wq, np.swapaxes(p, -1, -2) @ wg
    for got, one in zip((value, *gradients), want, strict=True):
        check(got, one, "float32")


def test_keys_of_one_batch():
    """Keys and values that all of a batch share are broadcast; a view of them serves."""
    q, k, v, g = inputs_of(H, "float32")
    assert forms(plain, q, k[:1], v[:1]) == ["attention"]
    one = [np.repeat(wide(a[:1]), B, axis=0) for a in (k, v)]
    want = expected(same, wide(q), *one, wide(g))
    (value,), gradients = mx.vjp(plain, [q, k[:1], v[:1]], [g])
    check(value, want[0], "float32")
    check(gradients[0], want[1], "float32")
    for got, each in zip(gradients[1:], want[2:], strict=True):
        check(got, each.sum(0, keepdims=True), "float32")


def test_held_weights_stay():
    q, k, v, g = inputs_of(H, "float32")
    weights = mx.softmax(q @ swap(k) * SCALE, axis=-1)
    count, result = launches(lambda: weights @ v)
    assert count == 3
    check(result, expected(same, *map(wide, (q, k, v, g)))[0], "float32")
    np.testing.assert_allclose(np.array(mx.sum(weights, axis=-1)), 1, rtol=1e-5)


def test_weights_kept_from_a_gradient():
    """They are held when the function is differentiated: it stays as it is."""
    q, k, v, g = inputs_of(H, "float32")
    kept = []

    def f(q, k, v):
        kept.append(mx.softmax(q @ swap(k) * SCALE, axis=-1))
        return kept[-1] @ v

    gradients = mx.vjp(f, [q, k, v], [g])[1]
    for got, want in zip(gradients, expected(same, *map(wide, (q, k, v, g)))[1:], strict=True):
        check(got, want, "float32")
    np.testing.assert_allclose(np.array(mx.sum(kept[0], axis=-1)), 1, rtol=1e-5)


# --- values that a plan must not remember ---


def test_numbers_are_given_at_each_run():
    """One plan serves each scale and each number in place of a score."""
    q, k, v, g = inputs_of(H, "float32")
    seen = mx.array(SEEN)
    mx.eval(mx.softmax(mx.where(seen, q @ swap(k) * 0.125, -7.0), axis=-1) @ v)
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    results = []
    before = mx.counters()["programs_built"]
    for scale, low in ((0.5, -3.0), (0.25, -1e9), (2.0, 0.0)):
        got = mx.softmax(mx.where(seen, q @ swap(k) * scale, low), axis=-1) @ v
        mx.eval(got)
        results.append((got, scale, low))
    assert mx.counters()["programs_built"] == before
    for got, scale, low in results:
        scores = np.where(SEEN, wq @ np.swapaxes(wk, -1, -2) * scale, low)
        check(got, attention_reference(wq, wk, wv, wg, scores)[0], "float32")


def test_one_trace_for_all_sizes_and_scales():
    """Compiled once; the scale is an argument, the length another each time, also one so short that
    the plain graph stays."""

    def f(q, k, v, g, scale):
        seen = mx.arange(q.shape[2])[:, None] >= mx.arange(k.shape[2])

        def attention(q, k, v):
            return mx.softmax(mx.where(seen, q @ swap(k) * scale, -mx.inf), axis=-1) @ v

        (value,), gradients = mx.vjp(attention, [q, k, v], [g])
        return value, *gradients

    compiled = mx.compile(f)
    for length, scale in ((20, 0.25), (31, 0.5), (5, 0.3), (64, 0.125), (1, 1.0), (33, 0.25)):
        given = [mx.array(normal(B, H, length, D)) for _ in range(4)]
        wq, wk, wv, wg = map(wide, given)
        scores = wq @ np.swapaxes(wk, -1, -2) * scale
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        value, dq, dk, dv, *_ = attention_reference(wq * scale, wk, wv, wg, scores)
        for got, want in zip(compiled(*given, scale), (value, dq * scale, dk, dv), strict=True):
            check(got, want, "float32")


def test_gradient_of_values_alone():
    """Queries and keys are no part of the trace."""
    q, k, v, g = inputs_of(H, "float32")
    f = lambda v: mx.vjp(lambda v: causal_arange(q, k, v), [v], [g])[1][0]  # noqa: E731
    assert forms(f, v) == ["attention"]
    check(f(v), expected(hidden(CAUSAL), *map(wide, (q, k, v, g)))[3], "float32")


@pytest.mark.parametrize("low", [-math.inf, LOW, -3.0])
def test_rows_that_see_nothing(low):
    """As softmax does: NaN where all is -inf, the mean of the values where all is one number. No
    gradient comes to scores that were replaced."""
    q, k, v, g = inputs_of(H, "float32")
    seen = SEEN.copy()
    seen[:, :, 3] = False

    def f(q, k, v):
        return mx.softmax(mx.where(mx.array(seen), q @ swap(k) * SCALE, low), axis=-1) @ v

    assert forms(f, q, k, v) == ["attention"]
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    scores = np.where(seen, wq @ np.swapaxes(wk, -1, -2) * SCALE, low)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        dp = wg @ np.swapaxes(wv, -1, -2)
        ds = np.where(seen, p * (dp - np.sum(p * dp, -1, keepdims=True)), 0) * SCALE
    want = p @ wv, ds @ wk, np.swapaxes(ds, -1, -2) @ wq, np.swapaxes(p, -1, -2) @ wg
    (value,), gradients = mx.vjp(f, [q, k, v], [g])
    for got, one in zip((f(q, k, v), value, *gradients), (want[0], *want), strict=True):
        check(got, one, "float32")


def test_gradients_of_scales_and_masks():
    """A learned temperature (one, and for each head), a bias, and a number in place of scores."""
    q, k, v, g = inputs_of(H, "float64")
    temperature = mx.array(0.3, mx.float64)
    per_head = mx.linspace(0.5, 1.5, H, dtype=mx.float64)[:, None, None]
    bias = mx.array(BIAS).astype(mx.float64)
    low = mx.array(-1.5, mx.float64)

    def f(temperature, per_head, bias, low):
        scores = q @ swap(k) * temperature / per_head + bias
        return mx.softmax(mx.where(mx.array(SEEN), scores, low), axis=-1) @ v

    given = [temperature, per_head, bias, low]
    assert forms(f, *given)[-1] == "attention"
    gradients = mx.vjp(f, given, [g])[1]
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    raw = wq @ np.swapaxes(wk, -1, -2)
    scores = np.where(SEEN, raw * 0.3 / wide(per_head) + BIAS, -1.5)
    ds = attention_reference(wq, wk, wv, wg, scores)[4]
    inner = np.where(SEEN, ds, 0)
    want = [
        np.sum(inner * raw / wide(per_head)),
        -np.sum(inner * raw * 0.3, axis=(0, 2, 3))[:, None, None] / wide(per_head) ** 2,
        np.sum(inner, axis=0, keepdims=True),
        np.sum(np.where(SEEN, 0, ds)),
    ]
    for got, one in zip(gradients, want, strict=True):
        check(got, one, "float64")


def test_second_derivative():
    """The derivative of a gradient along a direction, against differences in float64."""
    q, k, v, g = inputs_of(H, "float64")
    direction = mx.array(normal(*q.shape)).astype(mx.float64)

    def gradient(q):
        return mx.vjp(lambda q: causal_large(q, k, v), [q], [g])[1][0]

    _, (along,) = mx.jvp(gradient, [q], [direction])
    step = 1e-5
    slope = (gradient(q + step * direction) - gradient(q - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.array(along), np.array(slope), atol=1e-7)
    (product,) = mx.vjp(gradient, [q], [direction])[1]  # symmetric
    np.testing.assert_allclose(np.array(product), np.array(along), atol=1e-10)


def test_batched_mask_and_number():
    """vmap over a mask, over the number beside it, and over the scale."""
    q, k, v, g = inputs_of(H, "float32")
    seen = mx.array(rng.random((3, T, S)) < 0.8)
    low, scale = mx.array([-2.0, -1e9, 0.0]), mx.array([0.1, 0.2, 0.3])

    def f(seen, low, scale):
        return mx.softmax(mx.where(seen, q @ swap(k) * scale, low), axis=-1) @ v

    got = mx.vmap(f)(seen, low, scale)
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    for i in range(3):
        scores = wq @ np.swapaxes(wk, -1, -2) * scale[i].item()
        scores = np.where(np.array(seen[i]), scores, low[i].item())
        check(got[i], attention_reference(wq, wk, wv, wg, scores)[0], "float32")


# --- memory ---


@pytest.mark.parametrize("masked", [False, True])
def test_memory_is_linear_in_the_length(masked):
    """4096 positions: scores would take 256 MiB for each op on them. At first sight, too: the
    functions are new, and nothing is evaluated on the way."""
    length, heads, width = 4096, 4, 64 + 8 * masked
    mx.random.seed(1)
    q, k, v, g = (mx.random.normal((1, heads, length, width)) for _ in range(4))
    mx.eval(q, k, v, g)

    def f(q, k, v):
        scores = q @ swap(k) / math.sqrt(width)
        if masked:
            scores = scores + mx.triu(mx.full((length, length), -mx.inf), k=1)
        return mx.softmax(scores, axis=-1) @ v

    # The results, once; what the kernels of two threads keep of their own; as much again to spare.
    for run, results in ((f, 1), (lambda q, k, v: mx.vjp(f, [q, k, v], [g]), 4)):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(run(q, k, v))
        assert mx.get_peak_memory() - before < results * q.nbytes + 32 * 2**20


def lazy_mask(n):
    """A lazy additive mask that hides more keys with each n, and its values; nobody holds what it
    is made from."""
    seen = np.arange(S) < S - n % (S - 1)
    mask = (mx.array(seen.astype(np.float32)) - 1.0) * 3e4
    return mask + mx.zeros((T, 1)), (seen - 1.0) * 3e4


def of_gradient(f, q, k, v):
    return mx.value_and_grad(lambda q: f(q, k, v).sum())(q)


def of_batch(f, q, k, v):
    return (mx.vmap(lambda q: f(q, k, v))(q[None]),)


def of_compiled(f, q, k, v):
    return (mx.compile(lambda q: f(q, k, v))(q),)


def of_checkpoint(f, q, k, v):
    return mx.value_and_grad(lambda q: mx.checkpoint(lambda q: f(q, k, v))(q).sum())(q)


@pytest.mark.parametrize("transform", [of_gradient, of_batch, of_compiled, of_checkpoint])
def test_mask_that_another_thread_evaluates(transform):
    """A transform looks into a lazy mask while the stream's thread evaluates it, and then gives up
    what it was made from."""
    q, k, v = (normal(1, 2, n, D) for n in (T, S, S))
    keys, values = mx.array(k), mx.array(v)
    for n in range(60):
        mask, numbers = lazy_mask(n)

        def f(q, k, v, mask=mask):
            return mx.softmax(q @ swap(k) * SCALE + mask, axis=-1) @ v

        queries = mx.array(q)
        mx.async_eval(mask)
        got = transform(f, queries, keys, values)
        scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) * SCALE + numbers
        ones = np.ones((1, 2, T, D))
        value, dq, *_ = attention_reference(q * SCALE, k, v, ones, scores)
        wants = [value.sum(), dq * SCALE] if len(got) == 2 else [value]
        for part, want in zip(got, wants, strict=True):
            want = want.reshape(part.shape)
            np.testing.assert_allclose(np.array(part), want, rtol=1e-4, atol=1e-4)
        mx.eval(got)
        assert np.array_equal(np.array(mask), np.broadcast_to(numbers.astype(np.float32), (T, S)))
