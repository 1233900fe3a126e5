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
    (2, 6, 2, 1, 70, 16, 8),
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


# Of an additive mask beside scores of (batch, heads, queries, keys): all, shared by batches, heads
# or both, one for each key (padding) or query, and one for all.
MASK_SHAPES = ["bhts", "1hts", "b1ts", "11ts", "ts", "b11s", "1h1s", "s", "bht1", "t1", "11"]


def shape_of(letters, sizes):
    return tuple(1 if letter == "1" else sizes[letter] for letter in letters)


def summed_to(a, shape):
    """Summed over what `shape` was broadcast along."""
    a = a.sum(tuple(range(a.ndim - len(shape))))
    return a.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@pytest.mark.parametrize("sizes", [*ATTENTION_SIZES, (2, 4, 2, 200, 70, 8, 8)], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_attention_gradients_of_masks_and_sinks(rng, dtype, sizes):
    """Of additive masks that batches, heads, queries or keys share, and of sinks; beside a query
    and a key that a mask hides altogether."""
    batch, heads, key_heads, queries, keys, features, outputs = sizes
    named = {"b": batch, "h": heads, "t": queries, "s": keys}
    q, g = (sample(rng, (batch, heads, queries, n), dtype, (-1, 1)) for n in (features, outputs))
    k, v = (sample(rng, (batch, key_heads, keys, n), dtype, (-1, 1)) for n in (features, outputs))
    wk, wv = (np.repeat(wide(t), heads // key_heads, axis=1) for t in (k, v))
    products = wide(q) @ np.swapaxes(wk, -1, -2) * 0.3
    sinks = sample(rng, (heads,), dtype, (-1, 1))
    for letters in MASK_SHAPES:
        mask = sample(rng, shape_of(letters, named), dtype, (-1, 1))
        if mask.shape[-1] > 1:
            mask[..., 1] = -np.inf
        if "ts" in letters:
            mask[..., 0, :] = -np.inf
        want = attention_reference(
            wide(q) * 0.3, wk, wv, wide(g), products + wide(mask), wide(sinks)
        )

        def f(mask, sinks):
            return mx.fast.scaled_dot_product_attention(
                *map(to_ours, (q, k, v)), scale=0.3, mask=mask, sinks=sinks
            )

        _, (dmask, dsinks) = mx.vjp(f, [to_ours(mask), to_ours(sinks)], [to_ours(g)])
        terms = (want[4].size / mask.size) ** 0.5
        check_close(dmask, summed_to(want[4], mask.shape), dtype, letters, factor=8 * terms)
        terms = (batch * queries) ** 0.5
        check_close(dsinks, want[5], dtype, f"{letters}, sinks", factor=8 * terms)


def test_attention_gradients_are_kernels_of_attention(rng):
    """Those of masks and sinks are made with those of queries, keys and values; that of a mask
    which batches or heads share by a kernel of its own."""
    shape = (2, 4, 30, 8)
    q, k, v = (mx.array(sample(rng, shape, "float32", (-1, 1))) for _ in range(3))
    sinks = mx.zeros(4)

    def gradients(mask):
        def loss(q, k, v, mask, sinks):
            y = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=mask, sinks=sinks)
            return mx.sum(y * y)

        found = forms(mx.grad(loss, argnums=list(range(5))), q, k, v, mask, sinks)
        assert "gemm" not in found, found
        return found.count("attention")

    sizes = {"b": 2, "h": 4, "t": 30, "s": 30}
    forward, joint, own = 1, 1, 1
    for letters in MASK_SHAPES:
        is_shared = letters in ("1hts", "b1ts", "11ts", "ts")
        kernels = forward + joint + (own if is_shared else 0)
        assert gradients(mx.zeros(shape_of(letters, sizes))) == kernels, letters


def test_attention_gradients_of_plain_masks(rng):
    """Causal, and what is added has a gradient, as has the scale: in plain ops, and batched."""
    q, g = (sample(rng, (2, 3, 70, 8), "float32", (-1, 1)) for _ in range(2))
    k, v = (sample(rng, (2, 3, 90, 8), "float32", (-1, 1)) for _ in range(2))
    bias, scale = sample(rng, (3, 70, 90), "float32", (-1, 1)), np.float32(0.3)
    seen = np.tril(np.ones((70, 90), bool), 20)

    def f(bias, scale, q, k, v):
        scores = mx.where(mx.array(seen), q @ k.swapaxes(-1, -2) * scale + bias, -mx.inf)
        return mx.softmax(scores, axis=-1) @ v

    products = wide(q) @ np.swapaxes(wide(k), -1, -2)
    scores = np.where(seen, products * 0.3 + wide(bias), -np.inf)
    want = attention_reference(wide(q) * 0.3, wide(k), wide(v), wide(g), scores)
    ours = [to_ours(t) for t in (bias, scale, q, k, v)]
    (got,), gradients = mx.vjp(f, ours, [to_ours(g)])
    check_close(got, want[0], "float32", "result", factor=4)
    check_close(gradients[0], want[4].sum(0), "float32", "bias", factor=16)
    check_close(gradients[1], np.sum(want[4] * products), "float32", "scale", factor=400)

    def of_bias(bias, q, k, v, g):
        return mx.vjp(lambda bias: f(bias, ours[1], q, k, v), [bias], [g])[1][0]

    def each(axes):
        return mx.vmap(of_bias, in_axes=axes)(ours[0], *ours[2:], to_ours(g))

    assert "attention" in forms(of_bias, ours[0], *ours[2:], to_ours(g))
    check_close(each((None, 0, 0, 0, 0)), want[4], "float32", "of each batch", factor=8)


def test_attention_gradient_of_a_cap(rng):
    """A number that caps scores, beside finite differences; in one kernel with queries."""
    q, k, v, g = (sample(rng, (2, 2, 40, 8), "float32", (-1, 1)) for _ in range(4))

    def f(cap, q):
        scores = cap * mx.tanh(q @ mx.array(k).swapaxes(-1, -2) / cap)
        return mx.softmax(scores, axis=-1) @ mx.array(v)

    def loss(cap):
        scores = cap * np.tanh(wide(q) @ np.swapaxes(wide(k), -1, -2) / cap)
        return np.sum(attention_reference(wide(q), wide(k), wide(v), wide(g), scores)[0] * g)

    def gradient(cap, q):
        return mx.vjp(f, [cap, q], [mx.array(g)])[1]

    want = (loss(1.5 + 1e-4) - loss(1.5 - 1e-4)) / 2e-4
    got = gradient(mx.array(1.5), mx.array(q))[0]
    np.testing.assert_allclose(got.item(), want, rtol=1e-4, atol=1e-4)
    assert forms(gradient, mx.array(1.5), mx.array(q)).count("attention") == 1


def test_attention_gradients_of_a_shared_mask_by_entry(rng):
    """Under vmap each entry has a gradient of its own, though the mask is one for all."""
    q, g = (sample(rng, (3, 2, 2, 20, 4), "float32", (-1, 1)) for _ in range(2))
    k, v = (sample(rng, (3, 2, 2, 30, 4), "float32", (-1, 1)) for _ in range(2))
    masks = {"1hts": (1, 2, 20, 30), "11ts": (20, 30), "b1ts": (2, 1, 20, 30), "s": (30,)}
    products = wide(q) * 0.3 @ np.swapaxes(wide(k), -1, -2)
    for letters, shape in masks.items():
        for shared in (True, False):
            mask = sample(rng, shape if shared else (3, *shape), "float32", (-1, 1))

            def of_mask(mask, q, k, v, g):
                def f(mask):
                    return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=mask)

                return mx.vjp(f, [mask], [g])[1][0]

            axes = (None if shared else 0, 0, 0, 0, 0)
            got = mx.vmap(of_mask, in_axes=axes)(*map(to_ours, (mask, q, k, v, g)))
            for entry in range(3):
                of_entry = wide(mask if shared else mask[entry])
                of = (wide(a[entry]) for a in (k, v, g))
                scores = products[entry] + of_entry
                want = attention_reference(wide(q[entry]) * 0.3, *of, scores)[4]
                check_close(got[entry], summed_to(want, shape), "float32", letters, factor=32)


EMPTY_SIZES = {
    "no keys": (2, 4, 2, 12, 0, 8, 6),
    "no keys, one query": (2, 4, 2, 1, 0, 8, 6),
    "no queries": (2, 4, 2, 0, 12, 8, 6),
    "neither": (2, 4, 2, 0, 0, 8, 6),
    "no batch": (0, 4, 2, 12, 12, 8, 6),
    "no heads": (2, 0, 2, 12, 12, 8, 6),
    "no features of values": (2, 4, 2, 12, 12, 8, 0),
}


@pytest.mark.parametrize("what", EMPTY_SIZES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("compiled", [False, True])
def test_attention_of_nothing(compiled, dtype, what):
    """A query without keys attends to nothing, as one whose keys are masked: gradients are 0."""
    batch, heads, key_heads, queries, keys, features, outputs = EMPTY_SIZES[what]
    dtype = getattr(mx, dtype)
    q, k, v = (
        mx.ones(shape, dtype)
        for shape in (
            (batch, heads, queries, features),
            (batch, key_heads, keys, features),
            (batch, key_heads, keys, outputs),
        )
    )
    bias, sinks = mx.ones((heads, queries, keys), dtype), mx.ones((heads,), dtype)
    seen = mx.ones((queries, keys), mx.bool_)

    def f(q, k, v, _bias, _sinks, **given):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, **given)

    cases = {
        "plain": f,
        "causal": lambda *a: f(*a, mask="causal"),
        "bool": lambda *a: f(*a, mask=seen),
        "bias": lambda *a: f(*a, mask=a[3]),
        "sinks": lambda *a: f(*a, sinks=a[4]),
        "all": lambda *a: f(*a, mask=a[3], sinks=a[4]),
    }
    inputs = [q, k, v, bias, sinks]
    g = mx.ones((batch, heads, queries, outputs), dtype)
    for name, case in cases.items():

        def run(*inputs, case=case):
            return mx.vjp(case, list(inputs[:-1]), [inputs[-1]])

        (got,), gradients = (mx.compile(run) if compiled else run)(*inputs, g)
        assert got.shape == g.shape and got.dtype == dtype, name
        assert not np.any(to_numpy(got)), name
        for x, dx in zip(inputs, gradients, strict=True):
            assert dx.shape == x.shape and dx.dtype == dtype, name
            assert not np.any(to_numpy(dx)), name


def test_attention_after_keys_come(rng):
    """One compiled function for an empty cache and a growing one."""
    f = mx.compile(lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3))
    for keys in (0, 20, 1, 0, 33):
        q, k, v = (sample(rng, (1, 2, n, 4), "float32", (-1, 1)) for n in (12, keys, keys))
        want = np.zeros(q.shape)
        if keys:
            scores = wide(q) * 0.3 @ np.swapaxes(wide(k), -1, -2)
            want = attention_reference(wide(q) * 0.3, wide(k), wide(v), wide(q), scores)[0]
        check_close(f(*map(to_ours, (q, k, v))), want, "float32", keys, factor=4)


def test_plain_softmax_over_no_keys():
    """In plain ops each op keeps its own answer: NumPy's largest of nothing is an error."""
    q, k = mx.ones((2, 2, 12, 4)), mx.ones((2, 2, 0, 4))
    scores = q @ k.swapaxes(-1, -2)
    np.testing.assert_array_equal(to_numpy(mx.softmax(scores, axis=-1) @ k), np.zeros(q.shape))
    with pytest.raises(ValueError, match="no elements"):
        mx.max(scores, axis=-1)


@pytest.mark.parametrize("features, outputs", [(1, 1), (1, 5), (5, 1), (511, 512)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_attention_of_any_width(rng, dtype, features, outputs):
    """One kernel forward and one backward from the narrowest heads on, in plain ops, too."""
    q, g = (sample(rng, (1, 2, 50, n), dtype, (-1, 1)) for n in (features, outputs))
    k, v = (sample(rng, (1, 2, 70, n), dtype, (-1, 1)) for n in (features, outputs))
    scores = wide(q) * 0.3 @ np.swapaxes(wide(k), -1, -2)
    want = attention_reference(wide(q) * 0.3, wide(k), wide(v), wide(g), scores)

    def fast(q, k, v):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3)

    def plain(q, k, v):
        return mx.softmax(q * 0.3 @ k.swapaxes(-1, -2), axis=-1) @ v

    ours = [to_ours(t) for t in (q, k, v)]
    for f in (fast, plain) if dtype == "float32" else (fast,):
        assert forms(f, *ours).count("attention") == 1

        def gradient(q, k, v, f=f):
            return mx.vjp(f, [q, k, v], [to_ours(g)])[1]

        assert forms(gradient, *ours).count("attention") == 1
        check_close(f(*ours), want[0], dtype, "result", factor=4)
        for got, of in zip(gradient(*ours), (want[1] * 0.3, *want[2:4]), strict=True):
            check_close(got, of, dtype, "gradient", factor=64)


def test_heads_of_one_query_are_the_rows_of_a_product(rng):
    """What they share, a cache of keys and values, is read once and where it lies."""
    q, k, v = (
        mx.array(sample(rng, (2, n, m, 16), "float32", (-1, 1)))
        for n, m in ((8, 1), (2, 70), (2, 70))
    )
    found = mx.explain(mx.fast.scaled_dot_product_attention, q, k, v).kernels
    schemes = [kernel.scheme for kernel in found if kernel.form == "gemm"]
    assert len(schemes) == 2
    assert all(scheme.startswith("panel_four") for scheme in schemes)


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
