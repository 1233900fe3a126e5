# SPDX-License-Identifier: MIT
"""Every op leaves sizes open: compiled once, a function serves four sizes of one size class with
the values of the plain function, and so do its gradient, its tangents and the function batched. A
row that needs more traces says why.
"""

import dataclasses
import functools
import typing

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import pytest

SIZES = ((5, 7), (9, 12), (11, 6), (13, 8))
LONG = ((9, 7), (12, 14), (11, 6), (13, 8))  # of more than 8 rows
EVEN = ((6, 8), (10, 12), (14, 4), (4, 10))
BATCHES = (3, 5, 6, 4)


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(sum(shape) + seed))


def arrays_of(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


@dataclasses.dataclass(frozen=True)
class Row:
    """An op on a matrix of (n, m) floats; grad: it has a derivative; batch: vmap takes it."""

    f: typing.Callable
    sizes: tuple = SIZES
    grad: bool = True
    batch: bool = True
    traces: int = 1
    why: str = ""  # ... more than one


def index(*numbers):
    return mx.array(numbers)


def updated(change):
    """The function that changes a copy."""

    def f(x):
        y = x * 1
        change(y)
        return y

    return f


def put(where, value):
    return updated(lambda y: y.__setitem__(where, value))


def square(x):
    """A square matrix of the array."""
    return x @ x.T


def heads(x):
    """(1, 2, n, 4)"""
    return mx.stack([x[:, :4], x[:, -4:]], 0)[None]


def attention(x, mask=None):
    q = heads(x)
    return mx.fast.scaled_dot_product_attention(q, q * 0.5, q + 1, scale=0.5, mask=mask)


def plain_attention(x):
    q = heads(x)
    n = x.shape[0]
    scores = (q * 0.5) @ mx.swapaxes(q, -1, -2)
    hidden = mx.arange(n)[:, None] < mx.arange(n)[None]
    return mx.softmax(mx.where(hidden, -mx.inf, scores), axis=-1) @ q


def classes(x):
    return mx.arange(x.shape[0]) % 4


CREATION = {
    "full": Row(
        lambda x: x + mx.zeros(x.shape) + mx.ones((x.shape[0], 1)) * mx.full(x.shape[1], 2)
    ),
    "eye": Row(lambda x: mx.eye(x.shape[0], x.shape[1], 1) + x),
    "identity": Row(lambda x: x @ mx.identity(x.shape[1])),
    "tri": Row(lambda x: mx.tri(x.shape[0], x.shape[1], 1) * x),
    "tri square": Row(lambda x: mx.tri(x.shape[0]) @ x),
    "tril": Row(lambda x: mx.tril(x, -1)),
    "triu": Row(lambda x: mx.triu(x, 2)),
    "triu at a size": Row(lambda x: mx.triu(x, x.shape[1] // 2)),
    "linspace": Row(lambda x: x * mx.linspace(0, 1, x.shape[1])),
    "linspace to a size": Row(lambda x: x * mx.linspace(1, x.shape[0], x.shape[1], endpoint=False)),
    "arange": Row(lambda x: x + mx.arange(x.shape[1])),
    "arange between": Row(lambda x: x + mx.arange(x.shape[0], x.shape[0] + x.shape[1])),
    "arange in steps": Row(lambda x: x + mx.arange(0, 2 * x.shape[1], 2)),
    "arange back": Row(lambda x: x + mx.arange(x.shape[1] - 1, -1, -1)),
    "arange back in steps": Row(lambda x: x[::3] * mx.arange(x.shape[0], 0, -3)[:, None]),
    "hanning": Row(lambda x: x * mx.hanning(x.shape[1])),
    "blackman": Row(lambda x: x * mx.blackman(x.shape[1])),
    "bartlett": Row(lambda x: x * mx.bartlett(x.shape[1])),
    "uniform": Row(lambda x: x + mx.random.uniform(shape=x.shape, key=mx.random.key(1))),
    "gaussian": Row(lambda x: x + mx.random.normal(x.shape, key=mx.random.key(1))),
    "randint": Row(lambda x: x + mx.random.randint(0, 9, (x.shape[1],), key=mx.random.key(1))),
    "bernoulli": Row(lambda x: x * mx.random.bernoulli(0.5, x.shape, key=mx.random.key(1))),
    "keys": Row(lambda x: x[:, 0] * mx.random.split(mx.random.key(3), x.shape[0])[:, 0] / 1e9),
    "categorical": Row(lambda x: mx.random.categorical(x, key=mx.random.key(2)), grad=False),
    "samples": Row(
        lambda x: mx.random.categorical(x, num_samples=x.shape[0], key=mx.random.key(2)),
        grad=False,
    ),
}

MOVEMENT = {
    "reshape": Row(lambda x: x.reshape(x.shape[0] * x.shape[1])),
    "reshape turned": Row(lambda x: x.reshape(x.shape[1], x.shape[0])),
    "reshape inferred": Row(lambda x: (x.reshape(-1), x.reshape(1, -1, x.shape[1]))),
    "reshape halves": Row(lambda x: x.reshape(x.shape[0], 2, -1), EVEN),
    "flatten": Row(lambda x: x.flatten()),
    "unflatten": Row(lambda x: mx.unflatten(x.flatten(), 0, x.shape)),
    "unflatten inferred": Row(lambda x: mx.unflatten(x, 1, (2, -1)), EVEN),
    "squeeze": Row(lambda x: (mx.squeeze(x[None]), mx.squeeze(x[:, None], 1))),
    "expand_dims": Row(lambda x: mx.expand_dims(x, (0, 2))),
    "transpose": Row(lambda x: (x.T, mx.transpose(x[None], (1, 0, 2)))),
    "moveaxis": Row(lambda x: mx.moveaxis(x[None], 0, -1)),
    "swapaxes": Row(lambda x: mx.swapaxes(x, 0, 1)),
    "broadcast_to": Row(lambda x: mx.broadcast_to(x[:, :1], (2, *x.shape))),
    "broadcast_arrays": Row(lambda x: mx.broadcast_arrays(x, x[:1], x[:, :1])),
    "concatenate": Row(lambda x: mx.concatenate([x, x[:1], x * 2], 0)),
    "concatenate many": Row(lambda x: mx.concatenate([x * k for k in range(10)], 1)),
    "concatenate flat": Row(lambda x: mx.concatenate([x, x[0]], None)),
    "stack": Row(lambda x: mx.stack([x, x * 2], 1)),
    "split": Row(lambda x: mx.split(x, 2, 1), EVEN),
    "split at": Row(lambda x: mx.split(x, [2, -2], 1)),
    "split at a size": Row(lambda x: mx.split(x, [x.shape[0] // 2], 0)),
    "pad": Row(lambda x: mx.pad(x, ((1, 2), (0, 3)), constant_values=0.5)),
    "pad to a size": Row(lambda x: mx.pad(x, ((0, x.shape[1]), (0, 0)))),
    "pad edge": Row(lambda x: mx.pad(x, ((2, 1), (30, 3)), mode="edge")),
    "pad reflect": Row(lambda x: mx.pad(x, ((2, 1), (0, 3)), mode="reflect")),
    "pad reflect far": Row(lambda x: mx.pad(x, ((30, 1), (0, 40)), mode="reflect")),
    "pad symmetric": Row(lambda x: mx.pad(x, ((2, 1), (0, 3)), mode="symmetric")),
    "pad symmetric far": Row(lambda x: mx.pad(x, ((30, 1), (0, 40)), mode="symmetric")),
    "flip": Row(lambda x: (mx.flip(x), mx.flip(x, 0), mx.flip(x, (-1,)))),
    "tile": Row(lambda x: (mx.tile(x, 2), mx.tile(x, (2, 1, 3)))),
    "tile by a size": Row(lambda x: mx.tile(x, (1, x.shape[0]))),
    "repeat": Row(lambda x: (mx.repeat(x, 2, 0), mx.repeat(x, 3, 1), mx.repeat(x, 2))),
    "repeat by a size": Row(lambda x: mx.repeat(x[:1], x.shape[0], 0) + x),
    "roll": Row(lambda x: (mx.roll(x, 2, 0), mx.roll(x, -1, 1), mx.roll(x, (1, 2), (0, 1)))),
    "roll flat": Row(lambda x: (mx.roll(x, 3), mx.roll(x, -3))),
    "roll far": Row(lambda x: mx.roll(x, 51, 0)),
    "roll by a size": Row(lambda x: mx.roll(x, x.shape[1] // 2, 1)),
    "meshgrid": Row(lambda x: mx.meshgrid(x[0], x[:, 0])),
    "meshgrid sparse": Row(lambda x: mx.meshgrid(x[0], x[:, 0], sparse=True, indexing="ij")),
    "diff": Row(lambda x: (mx.diff(x), mx.diff(x, n=2, axis=0))),
    "diagonal": Row(lambda x: (mx.diagonal(x), mx.diagonal(x, 1), mx.diagonal(x, -2))),
    "diagonal of many": Row(lambda x: mx.diagonal(mx.stack([x, x * 2], 1), 1, 0, 2)),
    "diag": Row(lambda x: (mx.diag(x[0]), mx.diag(x[0], 2), mx.diag(x[:, 0], -1))),
    "diag of a matrix": Row(lambda x: mx.diag(x, 1)),
    "trace": Row(lambda x: (mx.trace(x), mx.trace(x, 1), mx.trace(square(x)))),
    "as_strided": Row(lambda x: mx.as_strided(x, (x.shape[0] - 2, 3), (x.shape[1], 1), 1)),
    "as_strided whole": Row(lambda x: mx.as_strided(x)),
    "windows": Row(lambda x: mx.as_strided(x.flatten(), (x.size - 3, 4), (1, 1)).sum(-1)),
    "view": Row(lambda x: (x.view(mx.int32), x.view(mx.uint8)), grad=False),
    "view of larger": Row(lambda x: x.view(mx.uint64), EVEN, grad=False),
    "atleast": Row(lambda x: mx.atleast_3d(x)),
    "contiguous": Row(lambda x: mx.contiguous(x.T)),
    "unstack": Row(
        lambda x: mx.unstack(x), traces=4, why="as many results as there are rows", batch=False
    ),
}

INDEXING = {
    "row": Row(lambda x: (x[0], x[2], x[-1], x[-3])),
    "column": Row(lambda x: (x[:, 0], x[:, -1], x[..., -2], x[-1, -1])),
    "row at a size": Row(lambda x: x[x.shape[0] // 2]),
    "slice": Row(lambda x: (x[:-1], x[1:], x[1:-1], x[:3], x[-3:], x[:, 1:4])),
    "slice to a size": Row(lambda x: (x[: x.shape[0] // 2], x[x.shape[0] // 2 :])),
    "slice in steps": Row(lambda x: (x[::2], x[1::2], x[:, ::3], x[1:-1:2])),
    "slice back": Row(lambda x: (x[::-1], x[:, ::-1], x[::-1, ::-1])),
    "slice back in steps": Row(lambda x: (x[::-2], x[-2::-1], x[-1:1:-2], x[3::-1], x[:, 2:0:-1])),
    "empty slice": Row(lambda x: x[3:3].sum() + x),
    "slice past the end": Row(lambda x: (x[:100], x[-100:], x[100::-1])),
    "new axes": Row(lambda x: x[None, :, None, -1]),
    "indices": Row(lambda x: (x[index(0, 3)], x[:, index(1, -1)], x[index(0, 1), index(2, -2)])),
    "indices and slices": Row(
        lambda x: (x[1:, index(0, -1)], x[index(0, 2), ::2], x[-1, index(1)])
    ),
    "take": Row(lambda x: (mx.take(x, index(0, -1), axis=1), mx.take(x, index(0, 5)))),
    "take a row": Row(lambda x: mx.take(x, mx.argmax(x[:, 0]), axis=0)),
    "take_along_axis": Row(lambda x: mx.take_along_axis(x, mx.argmax(x, 1, keepdims=True), 1)),
    "take_along_axis many": Row(
        lambda x: mx.take_along_axis(x, mx.zeros((3, x.shape[1]), mx.int32), 0)
    ),
    "put_along_axis": Row(lambda x: mx.put_along_axis(x, mx.argmax(x, 1, keepdims=True), 0.0, 1)),
    "dynamic slice": Row(lambda x: mx.slice(x, index(1), (0,), (3, x.shape[1]))),
    "dynamic slice_update": Row(lambda x: mx.slice_update(x, x[:2] * 2, index(1), (0,))),
    "set row": Row(put(-1, 2.0)),
    "set slice": Row(put((slice(1, -1), slice(None, None, 2)), 2.0)),
    "set back": Row(updated(lambda y: y.__setitem__(slice(None, None, -1), y * 2))),
    "set indices": Row(put(mx.array([0, -1]), 3.0)),
    "set indices and slices": Row(put((mx.array([0, -1]), slice(1, -1)), 3.0)),
    "set where": Row(updated(lambda y: y.__setitem__(y > 0, 0.5))),
    "add at a row": Row(lambda x: x.at[-1].add(2.0)),
    "add at indices": Row(lambda x: x.at[index(0, 0, 1)].add(x[:3])),
    "multiply at": Row(lambda x: x.at[:, ::2].multiply(2.0)),
    "maximum at": Row(lambda x: x.at[1:3].maximum(0.1)),
    "where": Row(lambda x: mx.where(x > 0, x, x[:1])),
}

REDUCTIONS = {
    "sum": Row(lambda x: (x.sum(), x.sum(0), x.sum(1, keepdims=True))),
    "mean": Row(lambda x: (x.mean(), x.mean(0), x.mean((0, 1)))),
    "var": Row(lambda x: (mx.var(x), mx.var(x, 0, ddof=1), mx.std(x, 1))),
    "prod": Row(lambda x: mx.prod(x, 1)),
    "max": Row(lambda x: (x.max(), x.min(0), mx.minmax(x, 1)[1])),
    "arg": Row(
        lambda x: (mx.argmax(x), mx.argmin(x, 0), mx.argmax(x, 1, keepdims=True)), grad=False
    ),
    "any": Row(lambda x: (mx.any(x > 0, 0), mx.all(x > 0), mx.count_nonzero(x > 0)), grad=False),
    "logsumexp": Row(lambda x: (mx.logsumexp(x), mx.logsumexp(x, 0))),
    "softmax": Row(lambda x: (mx.softmax(x, -1), mx.softmax(x, 0), mx.softmax(x))),
    "log softmax": Row(lambda x: nn.log_softmax(x)),
    "array_equal": Row(lambda x: mx.array_equal(x, x * 1), grad=False),
}

SCANS = {
    "cumsum": Row(lambda x: (mx.cumsum(x, 0), mx.cumsum(x), mx.cumsum(x, 1, reverse=True))),
    "cumsum before": Row(lambda x: mx.cumsum(x, 1, inclusive=False)),
    "cumprod": Row(lambda x: (mx.cumprod(x, 1), mx.cumprod(x, 0, inclusive=False, reverse=True))),
    "cummax": Row(lambda x: (mx.cummax(x, 0), mx.cummin(x, 1, reverse=True))),
    "logcumsumexp": Row(lambda x: (mx.logcumsumexp(x, 0), mx.logcumsumexp(x))),
}

PRODUCTS = {
    "matmul": Row(lambda x: (x @ x.T, x.T @ x, x @ x[0], x[:, 0] @ x)),
    "matmul batch": Row(lambda x: mx.stack([x, x]) @ mx.stack([x.T, x.T])),
    "addmm": Row(lambda x: mx.addmm(x[0], square(x), x, 2.0, 0.5)),
    "inner": Row(lambda x: mx.inner(x, x)),
    "outer": Row(lambda x: mx.outer(x[0], x[:, 0])),
    "tensordot": Row(lambda x: (mx.tensordot(x, x, [[0], [0]]), mx.tensordot(x, x, 2))),
    "vecdot": Row(lambda x: mx.vecdot(x, x, axis=0)),
    "kron": Row(lambda x: mx.kron(x, x[:2])),
    "einsum product": Row(lambda x: mx.einsum("ij,kj->ik", x, x)),
    "einsum elements": Row(lambda x: mx.einsum("ij,ij->j", x, x)),
    "einsum transpose": Row(lambda x: (mx.einsum("ij->ji", x), mx.einsum("ij->", x))),
    "einsum diagonal": Row(lambda x: (mx.einsum("ii->i", square(x)), mx.einsum("ii", square(x)))),
    "einsum three": Row(lambda x: mx.einsum("ij,kj,kl->il", x, x / 9, x / 9)),
    "einsum outer": Row(lambda x: mx.einsum("i,j->ij", x[0], x[:, 0])),
    "einsum ellipsis": Row(lambda x: mx.einsum("...j,j->...", x, x[0])),
}

FUSED = {
    "rms_norm": Row(lambda x: mx.fast.rms_norm(x, x[0])),
    "layer_norm": Row(lambda x: mx.fast.layer_norm(x, x[0], x[1])),
    "rope": Row(
        lambda x: mx.fast.rope(x[None], 4, traditional=False, base=1e4, scale=1.0, offset=1)
    ),
    "rope traditional": Row(
        lambda x: mx.fast.rope(x[None], 4, traditional=True, base=1e4, scale=1.0, offset=0)
    ),
    "attention": Row(attention),
    "attention causal": Row(lambda x: attention(x, "causal")),
    "attention masked": Row(lambda x: attention(x, mx.tri(x.shape[0], dtype=mx.bool_))),
    "attention added": Row(lambda x: attention(x, mx.triu(square(x) * 0, 1) - 1)),
    "attention in plain ops": Row(plain_attention, LONG),
    "cross entropy": Row(lambda x: mx.fast.cross_entropy(x, classes(x))),
    "loss": Row(lambda x: nn.losses.cross_entropy(x, classes(x), reduction="mean")),
}

ROWS = CREATION | MOVEMENT | INDEXING | REDUCTIONS | SCANS | PRODUCTS | FUSED


def loss_of(f):
    def loss(x):
        parts = [y for y in arrays_of(f(x)) if mx.issubdtype(y.dtype, mx.inexact)]
        return sum((mx.sin(y) * 2).sum() for y in parts)

    return loss


def tangents(f):
    return lambda x, t: mx.jvp(f, [x], [t])[1]


# For each: what is compiled, and its arguments at a size.
VARIANTS = {
    "plain": (lambda f: f, lambda k, n, m: (normal(n, m),)),
    "grad": (lambda f: mx.grad(loss_of(f)), lambda k, n, m: (normal(n, m),)),
    "jvp": (tangents, lambda k, n, m: (normal(n, m), normal(n, m, seed=1))),
    "vmap": (mx.vmap, lambda k, n, m: (normal(BATCHES[k], n, m),)),
    "vmap of grad": (
        lambda f: mx.vmap(mx.grad(loss_of(f))),
        lambda k, n, m: (normal(BATCHES[k], n, m),),
    ),
}

CASES = [
    (name, variant)
    for name, row in ROWS.items()
    for variant in VARIANTS
    if (row.grad or variant in ("plain", "vmap")) and (row.batch or "vmap" not in variant)
]


@functools.cache
def arguments(variant, sizes):
    make = VARIANTS[variant][1]
    return [make(k, n, m) for k, (n, m) in enumerate(sizes)]


@pytest.mark.parametrize("name, variant", CASES, ids=lambda part: part.replace(" ", "-"))
def test_one_trace_serves_all_sizes(name, variant):
    row = ROWS[name]
    f = VARIANTS[variant][0](row.f)
    compiled = mx.compile(f)
    before = mx.counters()["traces"]
    for args in arguments(variant, row.sizes):
        results, expected = arrays_of(compiled(*args)), arrays_of(f(*args))
        for got, want in zip(results, expected, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(np.array(got), np.array(want), rtol=2e-5, atol=2e-5)
    assert mx.counters()["traces"] - before == row.traces
