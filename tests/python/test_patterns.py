# SPDX-License-Identifier: MIT
"""Attention written with plain ops runs as the row's kernels, in whatever spelling: eager,
compiled, under vmap and with its gradient; values and gradients are those of the formula in
float64. What only looks like it stays as it is.
"""

import math

import cermet.core as mx
import numpy as np
import pytest
from attention_spellings import (
    BIAS,
    CAUSAL,
    LOW,
    SCALE,
    SEEN,
    SPELLINGS,
    B,
    Change,
    D,
    H,
    S,
    T,
    capped,
    capped_and_causal,
    causal_arange,
    causal_large,
    dropped,
    einsum_late,
    expected,
    hidden,
    kept,
    keys_first_and_masked,
    keys_first_of_temperatures,
    late_in_halves,
    masked_by_product,
    normal,
    padding,
    plain,
    rng,
    same,
    scale_is_array,
    scale_is_made_of_array,
    shared_batch_last,
    shared_queries_before_groups,
    shared_queries_first,
    swap,
    without_largest,
)
from test_ops_fused import attention_reference

IDS = [f"{f.__name__}-{dtype}" for f, _, _, dtype in SPELLINGS]
# Of values and of gradients, which are sums of so many terms; halves are rounded once, inputs and
# cotangents as well.
TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}


def inputs_of(heads, dtype, batch=()):
    shapes = ((B, H, T, D), (B, heads, S, D), (B, heads, S, D), (B, H, T, D))
    return [mx.array(normal(*batch, *shape)).astype(getattr(mx, dtype)) for shape in shapes]


def wide(a):
    return np.array(a.astype(mx.float64))


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


# Besides attention: the root of a scalar; a cast of the result; results that lie otherwise.
MAPS = {scale_is_array: 1, late_in_halves: 1, shared_queries_first: 1}
MAPS |= {shared_queries_before_groups: 1, shared_batch_last: 1}
# Besides attention and its gradient: copies, scales of queries, small arrays for masks.
OTHER_KERNELS = {scale_is_array: 3, padding: 1, capped: 2, masked_by_product: 1}
OTHER_KERNELS |= {
    scale_is_made_of_array: 3,
    keys_first_and_masked: 1,
    keys_first_of_temperatures: 3,
}


@pytest.mark.parametrize(("f", "change", "heads", "dtype"), SPELLINGS, ids=IDS)
def test_spelling(f, change, heads, dtype):
    """One kernel, eager at first sight and later, and compiled."""
    q, k, v, g = inputs_of(heads, dtype)
    maps = MAPS.get(f, 0)
    assert sorted(forms(f, q, k, v)) == ["attention"] + ["map"] * maps
    want = expected(change, *map(wide, (q, k, v, g)))[0]
    compiled = mx.compile(f)
    mx.eval(compiled(q, k, v))
    for run in (f, f, compiled):
        count, got = launches(run, q, k, v)
        assert count == 1 + maps
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
    others = OTHER_KERNELS.get(f, 2 * MAPS.get(f, 0))
    others += "dropped" in f.__name__  # a small mask is kept
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


def other_total(q, k, v):
    e = mx.exp(q @ swap(k) * SCALE)
    return (e / mx.sum(mx.abs(e), axis=-1, keepdims=True)) @ v


def few_queries(q, k, v):
    return plain(q[:, :, :4], k, v)


def steps_twice(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.softmax(scores * mx.sigmoid(scores), axis=-1) @ v


def other_column(q, k, v):
    scores = mx.concatenate([q @ swap(k) * SCALE, mx.zeros((B, H, T, 1))], axis=-1)
    return mx.softmax(scores, axis=-1)[..., 1:] @ v


def filled_by_cast(q, k, v):
    weights = mx.softmax(q @ swap(k) * SCALE, axis=-1)
    return mx.where(weights.astype(mx.bool_), weights, 1.0) @ v


def late_total_of_dropped(q, k, v):
    e = mx.exp(q @ swap(k) * SCALE) * kept()
    return (e @ v) / mx.sum(e, axis=-1, keepdims=True)


OTHERS = [weights_too, scores_too, over_queries, other_total, few_queries, steps_twice]
OTHERS += [other_column, filled_by_cast, late_total_of_dropped]


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


def heads_in_batch(q, k, v):
    batch, heads, length, _ = q.shape
    a, b, c = (x.reshape(batch * heads, -1, D) for x in (q, k, v))
    scores = (a @ swap(b)).reshape(batch, heads, length, -1) * SCALE
    return (mx.softmax(scores, axis=-1).reshape(batch * heads, length, -1) @ c).reshape(q.shape)


def groups_of_heads(q, k, v):
    batch, heads, length, _ = q.shape
    groups = k.shape[1]
    q = q.reshape(batch, groups, heads // groups, length, D)
    e = mx.exp(mx.einsum("bhgqd,bhkd->bhgqk", q, k) * SCALE)
    sums = mx.einsum("bhgqk,bhkd->bhgqd", e, v)
    return (sums / mx.sum(e, axis=-1, keepdims=True)).reshape(batch, heads, length, D)


@pytest.mark.parametrize("f", [plain, heads_in_batch, groups_of_heads], ids=lambda f: f.__name__)
def test_one_trace_for_all_lengths(f):
    """Compiled with its gradient, whatever axes of symbolic sizes are split and joined."""
    heads = 2 if f is groups_of_heads else H

    def gradients(q, k, v, g):
        (value,), cotangents = mx.vjp(f, [q, k, v], [g])
        return value, *cotangents

    compiled = mx.compile(gradients)
    before = mx.counters()["traces"]
    for length in (20, 31, 64, 33):
        shapes = [(B, n, length, D) for n in (H, heads, heads, H)]
        given = [mx.array(normal(*shape)) for shape in shapes]
        wants = expected(same, *map(wide, given))
        for got, want in zip(compiled(*given), wants, strict=True):
            check(got, want, "float32")
    assert mx.counters()["traces"] == before + 1


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


def test_gradients_of_steps():
    """A learned cap, a scale of keys and a bias behind it, and what weights are multiplied with."""
    q, k, v, g = inputs_of(H, "float64")
    cap = mx.array(1.5, mx.float64)
    of_keys = mx.linspace(0.5, 1.5, S, dtype=mx.float64)
    bias = mx.array(BIAS).astype(mx.float64)
    of_heads = mx.linspace(0.5, 1.5, H, dtype=mx.float64)[:, None, None]

    def f(cap, of_keys, bias, of_heads):
        scores = mx.tanh(q @ swap(k) * SCALE / cap) * of_keys + bias
        return (mx.softmax(scores, axis=-1) * of_heads) @ v

    given = [cap, of_keys, bias, of_heads]
    assert "gemm" not in forms(f, *given)
    gradients = mx.vjp(f, given, [g])[1]
    wq, wk, wv, wg = map(wide, (q, k, v, g))
    raw = wq @ np.swapaxes(wk, -1, -2) * SCALE
    capped_scores = np.tanh(raw / 1.5)
    scores = capped_scores * wide(of_keys) + BIAS
    ds = attention_reference(wq, wk, wv, wg * wide(of_heads), scores)[4]
    value = attention_reference(wq, wk, wv, wg, scores)[0]
    inner = ds * wide(of_keys) * (1 - capped_scores**2)
    want = [
        np.sum(inner * -raw / 1.5**2),
        np.sum(ds * capped_scores, axis=(0, 1, 2)),
        np.sum(ds, axis=0, keepdims=True),
        np.sum(value * wg, axis=(0, 2, 3))[:, None, None],
    ]
    for got, one in zip(gradients, want, strict=True):
        check(got, one, "float64")


def test_bits_of_dropout_are_those_of_the_gradient():
    """Drawn from the global state, anew in each call, eager and compiled: what is linear in the
    values has the same sum with them as its transpose with the cotangent."""
    q, k, v, g = inputs_of(H, "float64")

    def f(v):
        weights = mx.softmax(q @ swap(k) * SCALE, axis=-1)
        return (mx.random.bernoulli(0.5, weights.shape) * weights * 2.0) @ v

    def both(v):
        (value,), (dv,) = mx.vjp(f, [v], [g])
        return value, dv

    mx.random.seed(7)
    values = []
    for run in (both, mx.compile(both, inputs=mx.random.state, outputs=mx.random.state)):
        assert forms(both, v).count("gemm") == 0
        for _ in range(2):
            value, dv = run(v)
            np.testing.assert_allclose(mx.sum(value * g).item(), mx.sum(v * dv).item(), rtol=1e-10)
            values.append(np.array(value))
    assert len({a.tobytes() for a in values}) == 4


def test_far_keys_count_for_nothing():
    """A weight below 2^-100 of the largest is 0: no subnormal number comes of it."""
    q, k, v, g = inputs_of(H, "float32")
    bias = mx.where(mx.arange(S) == mx.arange(T)[:, None], 0.0, -95.0)

    def f(v):
        return mx.softmax(q @ swap(k) * 0.0 + bias, axis=-1) @ v

    (value,), (dv,) = mx.vjp(f, [v], [g])
    assert np.array_equal(np.array(value), np.array(v[:, :, :T]))
    assert np.array_equal(np.array(dv), np.pad(np.array(g), ((0, 0), (0, 0), (0, S - T), (0, 0))))


def test_overflow_without_the_largest():
    """As the formula has it: NaN for a row with an infinite exponential, and for one of zeros."""
    q, k, v, _ = (np.array(a) for a in inputs_of(H, "float32"))
    scores = np.full((B, H, T, S), -1.0, np.float32)
    scores[:, :, 3, 5] = 100
    scores[:, :, 4] = -200

    def f(q, k, v):
        e = mx.exp(q @ swap(k) * 0.0 + mx.array(scores))
        return (e @ v) / mx.sum(e, axis=-1, keepdims=True)

    got = np.array(f(*map(mx.array, (q, k, v))))
    assert forms(f, *map(mx.array, (q, k, v))) == ["attention"]
    assert np.isnan(got[:, :, 3:5]).all() and np.isfinite(np.delete(got, (3, 4), 2)).all()


TWICE = [causal_large, capped_and_causal, dropped, without_largest, einsum_late]


@pytest.mark.parametrize("f", TWICE, ids=lambda f: f.__name__)
def test_second_derivative(f):
    """The derivative of a gradient along a direction, against differences in float64."""
    q, k, v, g = inputs_of(2 if f is einsum_late else H, "float64")
    direction = mx.array(normal(*q.shape)).astype(mx.float64)

    def gradient(q):
        return mx.vjp(lambda q: f(q, k, v), [q], [g])[1][0]

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


def test_batched_steps():
    """vmap over a cap, over a bias behind it, and over what weights are multiplied with."""
    q, k, v, g = inputs_of(H, "float32")
    caps = mx.array([0.5, 1.0, 2.0])
    biases, factors = (mx.array(normal(3, H, T, S)) for _ in range(2))

    def f(cap, bias, factor):
        scores = mx.tanh(q @ swap(k) * SCALE / cap) * cap + bias
        return (mx.softmax(scores, axis=-1) * factor) @ v

    got = mx.vmap(f)(caps, biases, factors)
    for i, cap in enumerate(caps.tolist()):
        scores = lambda x, i=i, cap=cap: np.tanh(x / cap) * cap + np.array(biases[i])  # noqa: E731
        change = Change(scores, weights=lambda p, i=i: p * np.array(factors[i]))
        check(got[i], expected(change, *map(wide, (q, k, v, g)))[0], "float32")


# --- memory ---


LONG = 4096


def long_plain(q, k, v):
    return mx.softmax(q @ swap(k) / 8, axis=-1) @ v


def long_masked(q, k, v):
    scores = q @ swap(k) / 8 + mx.triu(mx.full((LONG, LONG), -mx.inf), k=1)
    return mx.softmax(scores, axis=-1) @ v


def long_shared(q, k, v):
    """Two heads share keys."""
    k, v = k[:, ::2], v[:, ::2]
    scores = mx.einsum("bhgqd,bhkd->bhgqk", q.reshape(1, 2, 2, LONG, -1), k) / 8
    weights = mx.softmax(scores, axis=-1)
    return mx.einsum("bhgqk,bhkd->bhgqd", weights, v).reshape(q.shape)


def long_dropped(q, k, v):
    weights = mx.softmax(q @ swap(k) / 8, axis=-1)
    return (mx.random.bernoulli(0.9, weights.shape) * weights / 0.9) @ v


def long_capped(q, k, v):
    scores = 50 * mx.tanh(q @ swap(k) / 400)
    seen = mx.arange(LONG)[:, None] >= mx.arange(LONG)
    return mx.softmax(mx.where(seen, scores, -mx.inf), axis=-1) @ v


def long_alibi(q, k, v):
    distance = mx.abs(mx.arange(LONG)[:, None] - mx.arange(LONG))
    bias = distance * mx.power(2.0, -mx.arange(1, 5))[:, None, None]
    return mx.softmax(q @ swap(k) / 8 - bias, axis=-1) @ v


def long_late(q, k, v):
    e = mx.exp(q @ swap(k) / 8)
    return (e @ v) / mx.sum(e, axis=-1, keepdims=True)


def long_sink(q, k, v):
    scores = mx.concatenate([q @ swap(k) / 8, mx.zeros((1, 4, LONG, 1))], axis=-1)
    return mx.softmax(scores, axis=-1)[..., :-1] @ v


LONGS = [long_plain, long_masked, long_shared, long_dropped, long_capped, long_alibi, long_late]
LONGS += [long_sink]


@pytest.mark.parametrize("f", LONGS, ids=lambda f: f.__name__)
def test_memory_is_linear_in_the_length(f):
    """4096 positions: scores would take 256 MiB for each op on them. At first sight, too: the
    functions are new, and nothing is evaluated on the way."""
    width = 64 + 8 * LONGS.index(f)
    mx.random.seed(1)
    q, k, v, g = (mx.random.normal((1, 4, LONG, width)) for _ in range(4))
    mx.eval(q, k, v, g)

    def gradients(q, k, v):
        return mx.vjp(f, [q, k, v], [g])

    # The results, once; what the kernels of two threads keep of their own; as much again to spare.
    for run, results in ((f, 1), (gradients, 4), (mx.compile(f), 1), (mx.compile(gradients), 4)):
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
