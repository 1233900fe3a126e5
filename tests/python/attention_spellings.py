# SPDX-License-Identifier: MIT
"""Attention as it is written with plain ops, for test_patterns.py, and its values and gradients in
float64.

A spelling takes q, k, v of (batch, heads, length, features), keys with fewer heads where it shares
them.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import cermet.core as mx
import numpy as np

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
SEEN_BY_SOME = SEEN & (np.arange(T) != 3)[:, None]  # a query sees nothing
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


def scale_is_made_of_array(q, k, v):
    return mx.softmax((q @ swap(k)) / mx.sqrt(mx.array(float(D))), axis=-1) @ v


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


def spelled_log_softmax(q, k, v):
    scores = q @ swap(k) * SCALE
    scores = scores - scores.max(-1, keepdims=True)
    return mx.exp(scores - mx.log(mx.exp(scores).sum(-1, keepdims=True))) @ v


def spelled_log_softmax_without_largest(q, k, v):
    scores = mx.where(mx.array(CAUSAL), q @ swap(k) * SCALE, -mx.inf)
    return mx.exp(scores - mx.log(mx.exp(scores).sum(-1))[..., None]) @ v


def shifted_twice(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.softmax(scores - mx.max(scores, axis=-1, keepdims=True), axis=-1) @ v


def einsum(q, k, v):
    weights = mx.softmax(mx.einsum("bhqd,bhkd->bhqk", q, k) * SCALE, axis=-1)
    return mx.einsum("bhqk,bhkd->bhqd", weights, v)


def split_heads(q, k, v):
    """From (batch, length, heads · features), as a layer has them."""
    flat = [mx.moveaxis(a, 1, 2).reshape(B, a.shape[2], H * D) for a in (q, k, v)]
    q, k, v = (a.reshape(B, -1, H, D).transpose(0, 2, 1, 3) for a in flat)
    return mx.softmax(q @ k.transpose(0, 1, 3, 2) * SCALE, axis=-1) @ v


def joined_heads(q, k, v):
    """Into (batch, length, heads · features), as a layer goes on; undone for the comparison."""
    k, v = (mx.repeat(a, H // a.shape[1], axis=1) for a in (k, v))
    joined = plain(q, k, v).transpose(0, 2, 1, 3).reshape(B, -1, H * D)
    return joined.reshape(B, -1, H, D).transpose(0, 2, 1, 3)


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


# --- heads that share keys, by einsum; from (batch, length, heads, features), too


def shared_einsum(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    scores = mx.einsum("bhgqd,bhkd->bhgqk", q, k) * SCALE
    weights = mx.softmax(scores, axis=-1)
    return mx.einsum("bhgqk,bhkd->bhgqd", weights, v).reshape(B, H, T, D)


def shared_einsum_by_length(q, k, v):
    q, k, v = (mx.swapaxes(a, 1, 2) for a in (q, k, v))
    q = q.reshape(B, T, 2, H // 2, D)
    scores = mx.einsum("bqhgd,bkhd->bhgqk", q, k) * SCALE
    scores = mx.where(mx.array(CAUSAL), scores, -mx.inf)
    result = mx.einsum("bhgqk,bkhd->bqhgd", mx.softmax(scores, axis=-1), v)
    return mx.swapaxes(result.reshape(B, T, H, D), 1, 2)


def shared_einsum_groups_first(q, k, v):
    """Heads h, h + 2, ... share keys."""
    q = mx.swapaxes(q.reshape(B, 2, H // 2, T, D), 1, 2)
    scores = mx.einsum("bghqd,bhkd->bghqk", q, k) * SCALE
    result = mx.einsum("bghqk,bhkd->bghqd", mx.softmax(scores, axis=-1), v)
    return mx.swapaxes(result, 1, 2).reshape(B, H, T, D)


def einsum_by_length(q, k, v):
    q, k, v = (mx.swapaxes(a, 1, 2) for a in (q, k, v))
    scores = mx.einsum("bthd,bshd->bhts", q * SCALE, k)
    scores = mx.where(mx.array(SEEN), scores, -mx.inf)
    return mx.einsum("bhts,bshd->bhtd", mx.softmax(scores, axis=-1), v)


def einsum_late(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    e = mx.exp(mx.einsum("bhgqd,bhkd->bhgqk", q, k) * SCALE)
    sums = mx.einsum("bhgqk,bhkd->bhgqd", e, v)
    return (sums / mx.sum(e, axis=-1, keepdims=True)).reshape(B, H, T, D)


def heads_apart(q, k, v):
    """Products of three axes, the softmax of four."""
    q, k, v = (a.reshape(B * H, -1, D) for a in (q, k, v))
    scores = (q @ swap(k)).reshape(B, H, T, S) * SCALE + mx.array(BIAS)
    return (mx.softmax(scores, axis=-1).reshape(B * H, T, S) @ v).reshape(B, H, T, D)


# --- ops behind the softmax, and other ops before it ---


def kept(shape=(B, H, T, S)):
    return mx.random.bernoulli(0.8, shape, key=mx.random.key(3))


def dropped(q, k, v):
    return (mx.softmax(q @ swap(k) * SCALE, axis=-1) * kept() / 0.8) @ v


def dropped_by_layer(q, k, v):
    """As nn.Dropout does it."""
    return (kept() * mx.softmax(q @ swap(k) * SCALE, axis=-1) * (1 / 0.8)) @ v


def dropped_by_where(q, k, v):
    scores = mx.where(mx.array(SEEN), q @ swap(k) * SCALE, -mx.inf)
    weights = mx.softmax(scores, axis=-1)
    return mx.where(kept(), weights / 0.8, 0.0) @ v


def dropped_einsum(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    weights = mx.softmax(mx.einsum("bhgqd,bhkd->bhgqk", q, k) * SCALE, axis=-1)
    weights = weights * kept().reshape(weights.shape) / 0.8
    return mx.einsum("bhgqk,bhkd->bhgqd", weights, v).reshape(B, H, T, D)


def dropped_late(q, k, v):
    e = mx.exp(q @ swap(k) * SCALE)
    return ((e * kept() / 0.8) @ v) * mx.reciprocal(mx.sum(e, axis=-1, keepdims=True))


def weights_without_nan(q, k, v):
    scores = mx.where(mx.array(SEEN_BY_SOME), q @ swap(k) * SCALE, -mx.inf)
    weights = mx.softmax(scores, axis=-1)
    return mx.where(mx.isnan(weights), 0.0, weights) @ v


def masked_by_product(q, k, v):
    seen = mx.array(CAUSAL.astype(np.float32))
    scores = q @ swap(k) * SCALE * seen - 1e10 * (1 - seen)
    return mx.softmax(scores, axis=-1) @ v


def squared_weights(q, k, v):
    return mx.square(mx.softmax(q @ swap(k) * SCALE, axis=-1)) @ v


def capped(q, k, v):
    scores = q @ swap(k) * SCALE
    return mx.softmax(2.0 * mx.tanh(scores / 2.0), axis=-1) @ v


def capped_and_causal(q, k, v):
    scores = mx.tanh(q @ swap(k) * (SCALE / 2.0)) * 2.0
    return mx.softmax(mx.where(mx.array(CAUSAL), scores, -mx.inf), axis=-1) @ v


def clipped(q, k, v):
    return mx.softmax(mx.clip(q @ swap(k) * SCALE, -1, 1), axis=-1) @ v


def scale_of_keys(q, k, v):
    return mx.softmax(q @ swap(k) * SCALE * (mx.arange(S) / S), axis=-1) @ v


def scale_behind_bias(q, k, v):
    return mx.softmax((q @ swap(k) + mx.array(BIAS)) * SCALE, axis=-1) @ v


def scale_behind_mask(q, k, v):
    scores = mx.where(mx.array(CAUSAL), mx.matmul(q, swap(k)), -mx.inf)
    return mx.softmax(scores / 4.0, axis=-1) @ v


def alibi_of_distance(q, k, v):
    slopes = mx.power(2.0, -mx.arange(1, H + 1))
    distance = mx.abs(mx.arange(T)[:, None] - mx.arange(S))
    return mx.softmax(q @ swap(k) * SCALE - slopes[:, None, None] * distance, axis=-1) @ v


# --- softmax spelled in other ways ---


def without_largest(q, k, v):
    e = mx.exp(q @ swap(k) * SCALE)
    return (e / e.sum(-1, keepdims=True)) @ v


def without_largest_and_causal(q, k, v):
    e = mx.exp(mx.where(mx.array(CAUSAL), q @ swap(k) * SCALE, -mx.inf))
    return (e * mx.reciprocal(e.sum(-1))[..., None]) @ v


def late(q, k, v):
    scores = q @ swap(k) * SCALE
    e = mx.exp(scores - scores.max(-1, keepdims=True))
    return (e @ v) / e.sum(-1, keepdims=True)


def late_in_halves(q, k, v):
    scores = (q @ swap(k)).astype(mx.float32) * SCALE
    e = mx.exp(scores - mx.stop_gradient(scores.max(-1, keepdims=True)))
    sums = (e.astype(q.dtype) @ v).astype(mx.float32)
    return (sums / e.sum(-1, keepdims=True)).astype(q.dtype)


def other_largest(q, k, v):
    scores = q @ swap(k) * SCALE
    e = mx.exp(scores - mx.max(q @ swap(k) * 0.5, axis=-1, keepdims=True))
    return (e / mx.sum(e, axis=-1, keepdims=True)) @ v


SINKS = normal(H)


def sink_last(q, k, v):
    column = mx.broadcast_to(mx.array(SINKS)[:, None, None], (B, H, T, 1))
    scores = mx.concatenate([q @ swap(k) * SCALE, column], axis=-1)
    return mx.softmax(scores, axis=-1)[..., :-1] @ v


def sink_first(q, k, v):
    scores = mx.concatenate([mx.zeros((B, H, T, 1)), q @ swap(k) * SCALE], axis=-1)
    return mx.softmax(scores, axis=-1)[..., 1:] @ v


# --- keys before queries, and what is behind it ---


def keys_first(q, k, v):
    return mx.softmax(swap(k @ swap(q)) * SCALE, axis=-1) @ v


def keys_first_over_columns(q, k, v):
    return swap(mx.softmax(k @ swap(q * SCALE), axis=-2)) @ v


def keys_first_and_masked(q, k, v):
    """Steps before and behind the swap, with arrays of keys, of queries and of both."""
    by_key, by_query = mx.array(BIAS[0, 0, 0]), mx.array(BIAS[0, 0, :, 0])
    scores = (k @ swap(q)) * SCALE + by_key[:, None] + by_query
    scores = mx.where(mx.array(np.swapaxes(CAUSAL, 0, 1)), scores, -mx.inf)
    return swap(mx.softmax(scores, axis=-2) * swap(kept())) / 0.8 @ v


def keys_first_of_temperatures(q, k, v):
    """One number for each query."""
    scale = SCALE * (1 + mx.arange(T) / T)
    return swap(mx.softmax((k @ swap(q)) * scale, axis=-2)) @ v


def values_first(q, k, v):
    """As a convolutional block has it: (batch, features, positions)."""
    return swap(swap(v) @ mx.softmax(k @ swap(q) * SCALE, axis=-2))


def values_first_of_rows(q, k, v):
    k, v = (mx.repeat(a, H // a.shape[1], axis=1) for a in (k, v))
    return swap(swap(v) @ swap(mx.softmax(q @ swap(k) * SCALE, axis=-1)))


def spelled_over_columns(q, k, v):
    scores = k @ swap(q) * SCALE
    e = mx.exp(scores - mx.max(scores, axis=-2, keepdims=True))
    return swap(e / mx.sum(e, axis=-2, keepdims=True)) @ v


def late_over_columns(q, k, v):
    e = mx.exp(k @ swap(q) * SCALE)
    return (swap(e) @ v) / swap(e.sum(-2, keepdims=True))


def late_values_first(q, k, v):
    e = mx.exp(k @ swap(q) * SCALE)
    return swap((swap(v) @ e) / e.sum(-2)[..., None, :])


def einsum_keys_first(q, k, v):
    q, k, v = (mx.swapaxes(a, 1, 2) for a in (q, k, v))
    weights = mx.softmax(mx.einsum("bkhd,bqhd->bhkq", k, q) * SCALE, axis=2)
    return mx.einsum("bkhd,bhkq->bhqd", v, weights)


# --- heads that share keys, by einsum, with axes in other orders ---


def by_letters(first, last, order, mask=None):
    """Attention by two einsums of q (b h g q d), k and v (b h k d), in the layouts that they say;
    `order`: of the scores. The mask takes scores and a function that brings an array of scores
    (b h g q k) into their order."""

    def arranged(a, axes, to):
        return a.transpose([axes.index(c) for c in to])

    def f(q, k, v):
        q = q.reshape(B, k.shape[1], H // k.shape[1], T, D)
        of = {"q": (q, "bhgqd"), "k": (k, "bhkd"), "v": (v, "bhkd")}
        (x, x_letters), (y, y_letters) = (part.split(":") for part in first.split(","))
        left, right = (arranged(*of[a], to) for a, to in ((x, x_letters), (y, y_letters)))
        scores = mx.einsum(f"{x_letters},{y_letters}->{order}", left, right) * SCALE
        if mask is not None:
            scores = mask(scores, lambda a: arranged(mx.array(a), "bhgqk", order))
        weights = mx.softmax(scores, axis=order.index("k"))
        operands, result = last.split("->")
        values = operands.replace("p", order)
        given = [
            weights if part == "p" else arranged(v, "bhkd", part) for part in operands.split(",")
        ]
        return arranged(mx.einsum(f"{values}->{result}", *given), result, "bhgqd").reshape(
            B, H, T, D
        )

    f.__name__ = f"{first}->{order},{last}"
    return f


def causal_in(scores, arranged):
    return mx.where(arranged(CAUSAL[None, None, None]), scores, -mx.inf)


def biased_in(scores, arranged):
    return scores + arranged(BIAS.reshape(1, 2, H // 2, T, S))


def padded_in(scores, arranged):
    return mx.where(arranged(PADDED[:, None, None, None]), scores, -mx.inf)


shared_keys_first = by_letters("k:bhkd,q:bhgqd", "bhkd,p->bhgqd", "bhgqk")
shared_keys_first_and_causal = by_letters("k:bhkd,q:bhgqd", "p,bhkd->bhgqd", "bhgqk", causal_in)
shared_columns = by_letters("k:bhkd,q:bhgqd", "bhkd,p->bhgqd", "bhkgq", biased_in)
shared_columns_first = by_letters("q:bqhgd,k:bkhd", "p,bkhd->bqhgd", "bkhgq", causal_in)
shared_features_first = by_letters("k:bhdk,q:bhgdq", "bhdk,p->bhgdq", "bhgkq", padded_in)
shared_groups_and_length = by_letters("q:bqghd,k:bkhd", "p,bkhd->bqghd", "bghqk", biased_in)
shared_queries_first = by_letters("q:bqhgd,k:bkhd", "p,bkhd->bqhgd", "bqhgk", biased_in)
shared_queries_before_groups = by_letters("q:bhgqd,k:bhkd", "p,bhkd->bhgqd", "bhqgk", causal_in)
shared_batch_last = by_letters("q:qhgdb,k:khdb", "p,khdb->qhgdb", "hgqkb", padded_in)


def shared_by_all_einsum(q, k, v):
    scores = mx.einsum("bqhd,bkd->bqhk", mx.swapaxes(q, 1, 2) * SCALE, k[:, 0])
    scores = mx.where(mx.array(CAUSAL)[:, None], scores, -mx.inf)
    return mx.swapaxes(mx.einsum("bqhk,bkd->bqhd", mx.softmax(scores, axis=-1), v[:, 0]), 1, 2)


def shared_keys_first_late(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    e = mx.exp(mx.einsum("bhkd,bhgqd->bhkgq", k, q) * SCALE)
    sums = mx.einsum("bhkgq,bhkd->bhgqd", e, v)
    return (sums / e.sum(2)[..., None]).reshape(B, H, T, D)


def shared_keys_first_dropped(q, k, v):
    q = q.reshape(B, 2, H // 2, T, D)
    weights = mx.softmax(mx.einsum("bhkd,bhgqd->bhkgq", k, q) * SCALE, axis=2)
    weights *= kept().reshape(B, 2, H // 2, T, S).transpose(0, 1, 4, 2, 3) / 0.8
    return mx.einsum("bhkd,bhkgq->bhgqd", v, weights).reshape(B, H, T, D)


def sink_over_columns(q, k, v):
    column = mx.broadcast_to(mx.array(SINKS)[:, None, None], (B, H, 1, T))
    scores = mx.concatenate([k @ swap(q) * SCALE, column], axis=-2)
    return swap(mx.softmax(scores, axis=-2)[..., :-1, :]) @ v


def hidden(seen):
    return lambda scores: np.where(seen, scores, -np.inf)


class Change(NamedTuple):
    """What a spelling does to scaled scores, its slope there, what it does to weights, with the
    slope, and the sinks of its heads."""

    scores: Callable = lambda scores: scores
    slope: Callable = lambda scores: 1.0
    weights: Callable = lambda p: p
    weights_slope: Callable = lambda p: 1.0
    sinks: Any = -np.inf


def drops(seen=True):
    share = np.array(kept()) / 0.8
    return Change(hidden(seen), weights=lambda p: p * share, weights_slope=lambda p: share)


def cap(seen=True):
    return Change(
        lambda scores: np.where(seen, 2 * np.tanh(scores / 2), -np.inf),
        lambda scores: 1 - np.tanh(scores / 2) ** 2,
    )


def scaled_by(c, bias=0.0):
    return Change(lambda scores: scores * c + bias, lambda scores: c)


MASKED_COLUMNS = drops()._replace(
    scores=lambda scores: np.where(
        CAUSAL, scores + BIAS[0, 0, 0] + BIAS[0, 0, :, 0][:, None], -np.inf
    )
)
SQUARED = Change(weights=np.square, weights_slope=lambda p: 2 * p)
NO_NAN = Change(hidden(SEEN_BY_SOME), weights=np.nan_to_num)
CLIPPED = Change(lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) < 1).astype(float))
ALIBI = -np.abs(DISTANCE) * 2.0 ** -np.arange(1, H + 1)[:, None, None]


def same(scores):
    return scores


# Spelling, what it does to the scaled scores, heads of the keys, dtype.
SPELLINGS = [
    (plain, same, H, "float32"),
    (scale_before, same, H, "float32"),
    (scale_divides, same, H, "float32"),
    (scale_is_array, same, H, "float32"),
    (scale_is_made_of_array, same, H, "float32"),
    (spelled_softmax, same, H, "float32"),
    (spelled_softmax_without_keepdims, same, H, "float32"),
    (spelled_logsumexp, same, H, "float32"),
    (spelled_log_softmax, same, H, "float32"),
    (spelled_log_softmax_without_largest, hidden(CAUSAL), H, "float32"),
    (shifted_twice, same, H, "float32"),
    (einsum, same, H, "float32"),
    (split_heads, same, H, "float32"),
    (joined_heads, same, H, "float32"),
    (joined_heads, same, 2, "bfloat16"),
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
    (shared_einsum, same, 2, "float32"),
    (shared_einsum, same, 2, "bfloat16"),
    (shared_einsum_by_length, hidden(CAUSAL), 2, "float32"),
    (shared_einsum_groups_first, same, 2, "float32"),
    (einsum_by_length, hidden(SEEN), H, "float32"),
    (einsum_late, same, 2, "float32"),
    (heads_apart, lambda scores: scores + BIAS, H, "float32"),
    (dropped, drops(), H, "float32"),
    (dropped, drops(), H, "float64"),
    (dropped, drops(), H, "bfloat16"),
    (dropped_by_layer, drops(), H, "float32"),
    (dropped_by_where, drops(SEEN), H, "float32"),
    (dropped_einsum, drops(), 2, "float32"),
    (dropped_late, drops(), H, "float32"),
    (squared_weights, SQUARED, H, "float32"),
    (weights_without_nan, NO_NAN, H, "float32"),
    (masked_by_product, hidden(CAUSAL), H, "float32"),
    (capped, cap(), H, "float32"),
    (capped, cap(), H, "float64"),
    (capped_and_causal, cap(CAUSAL), H, "float32"),
    (clipped, CLIPPED, H, "float64"),
    (scale_of_keys, scaled_by(np.arange(S) / S), H, "float32"),
    (scale_behind_bias, lambda scores: scores + BIAS * SCALE, H, "float32"),
    (scale_behind_mask, hidden(CAUSAL), H, "float32"),
    (alibi_of_distance, lambda scores: scores + ALIBI, H, "float32"),
    (without_largest, same, H, "float32"),
    (without_largest_and_causal, hidden(CAUSAL), H, "float32"),
    (late, same, H, "float32"),
    (late_in_halves, same, H, "bfloat16"),
    (sink_last, Change(sinks=SINKS[:, None, None]), H, "float32"),
    (sink_first, Change(sinks=0.0), H, "float32"),
    (keys_first, same, H, "float32"),
    (keys_first, same, H, "bfloat16"),
    (keys_first_over_columns, same, H, "float32"),
    (keys_first_and_masked, MASKED_COLUMNS, H, "float32"),
    (keys_first_of_temperatures, scaled_by(1 + np.arange(T)[:, None] / T), H, "float32"),
    (values_first, same, H, "float32"),
    (values_first, same, 1, "float64"),
    (values_first_of_rows, same, 2, "float32"),
    (spelled_over_columns, same, H, "float32"),
    (late_over_columns, same, H, "float32"),
    (late_values_first, same, H, "float32"),
    (einsum_keys_first, same, H, "float32"),
    (sink_over_columns, Change(sinks=SINKS[:, None, None]), H, "float32"),
    (shared_keys_first, same, 2, "float32"),
    (shared_keys_first, same, 2, "bfloat16"),
    (shared_keys_first_and_causal, hidden(CAUSAL), 2, "float32"),
    (shared_columns, lambda scores: scores + BIAS, 2, "float32"),
    (shared_columns_first, hidden(CAUSAL), 2, "float64"),
    (shared_features_first, hidden(PADDED[:, None, None]), 2, "float32"),
    (shared_groups_and_length, lambda scores: scores + BIAS, 2, "float32"),
    (shared_queries_first, lambda scores: scores + BIAS, 2, "float32"),
    (shared_queries_before_groups, hidden(CAUSAL), 2, "float32"),
    (shared_batch_last, hidden(PADDED[:, None, None]), 2, "float32"),
    (shared_by_all_einsum, hidden(CAUSAL), 1, "float32"),
    (shared_keys_first_late, same, 2, "float32"),
    (shared_keys_first_dropped, drops(), 2, "float32"),
]


def expected(change, q, k, v, g):
    """The value and the cotangents of q, k, v."""
    change = change if isinstance(change, Change) else Change(change)
    heads = k.shape[1]
    k, v = (np.repeat(a, H // heads, axis=1) for a in (k, v))
    raw = q @ np.swapaxes(k, -1, -2) * SCALE
    scores = change.scores(raw)
    largest = np.maximum(scores.max(-1, keepdims=True), change.sinks)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - largest)
        p = e / (e.sum(-1, keepdims=True) + np.exp(change.sinks - largest))
    weights = change.weights(p)
    dp = g @ np.swapaxes(v, -1, -2) * change.weights_slope(p)
    ds = p * (dp - np.sum(p * dp, -1, keepdims=True)) * change.slope(raw) * SCALE
    ds = np.where(np.isneginf(scores), 0, ds)  # also where all is hidden
    dk, dv = np.swapaxes(ds, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ g
    return weights @ v, ds @ k, *(a.reshape(B, heads, -1, *a.shape[2:]).sum(2) for a in (dk, dv))
