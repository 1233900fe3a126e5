# SPDX-License-Identifier: MIT
"""Short innermost axes: kernels walk them together with the axes around them, or write them out,
for every dtype and layout, and long ones alone.
"""

import os
import re
import subprocess
import sys

import cermet.core as mx
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

DTYPES = [
    mx.float32,
    mx.float16,
    mx.bfloat16,
    mx.float64,
    mx.int8,
    mx.uint16,
    mx.int32,
    mx.int64,
    mx.bool_,
    mx.complex64,
]
POINTS = 16411  # rows: enough to be worth it, no multiple of a vector


def make_array(seed, shape, dtype):
    """Small integers, exact in every dtype; evaluated."""
    numbers = np.random.default_rng(seed).integers(0, 100, shape).astype(np.float32)
    a = mx.array(numbers).astype(dtype)
    mx.eval(a)
    return a


def to_numpy(a):
    return np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a)


# Functions of a matrix of short rows, one row, and a column: ours, and NumPy's.
CASES = [
    ("repeat", lambda x, w, v: mx.repeat(v, w.size), lambda x, w, v: np.repeat(v, w.size)),
    (
        "stack",
        lambda x, w, v: mx.stack([v, x[:, 0], v[::-1]], axis=-1),
        lambda x, w, v: np.stack([v, x[:, 0], v[::-1]], axis=-1),
    ),
    (
        "windows",
        lambda x, w, v: mx.contiguous(mx.as_strided(v, (v.size - w.size + 1, w.size), (1, 1))),
        lambda x, w, v: sliding_window_view(v, w.size),
    ),
    ("inner", lambda x, w, v: mx.where(x == w, x, w), lambda x, w, v: np.where(x == w, x, w)),
    (
        "outer",
        lambda x, w, v: mx.where(x == v[:, None], x, v[:, None]),
        lambda x, w, v: np.where(x == v[:, None], x, v[:, None]),
    ),
    ("flipped", lambda x, w, v: mx.contiguous(x[:, ::-1]), lambda x, w, v: x[:, ::-1]),
    ("backwards", lambda x, w, v: mx.contiguous(x[::-1]), lambda x, w, v: x[::-1]),
    (
        "some columns",
        lambda x, w, v: mx.contiguous(mx.concatenate([x, x, x], 1)[:, 1::3]),
        lambda x, w, v: np.concatenate([x, x, x], 1)[:, 1::3],
    ),
    (
        "padded",
        lambda x, w, v: mx.pad(x, [(2, 1), (1, 3)]),
        lambda x, w, v: np.pad(x, [(2, 1), (1, 3)]),
    ),
    (
        "joined",
        lambda x, w, v: mx.concatenate([x, v[:, None], x[:, ::-1]], axis=1),
        lambda x, w, v: np.concatenate([x, v[:, None], x[:, ::-1]], axis=1),
    ),
    (
        "columns made",
        lambda x, w, v: mx.stack([mx.where(x[:, i] == v, w[i], v) for i in range(w.size)], axis=-1),
        lambda x, w, v: np.stack([np.where(x[:, i] == v, w[i], v) for i in range(w.size)], -1),
    ),
    (
        "columns joined, then moved",
        lambda x, w, v: (
            mx.stack([x[:, -1], v, x[:, 0], v[::-1]], axis=-1).reshape(-1, 2, 2) == v[0]
        ),
        lambda x, w, v: np.stack([x[:, -1], v, x[:, 0], v[::-1]], -1).reshape(-1, 2, 2) == v[0],
    ),
    (
        "nine columns",
        lambda x, w, v: mx.stack([v, x[:, 0], v] * 3, axis=-1).reshape(-1, 3, 3),
        lambda x, w, v: np.stack([v, x[:, 0], v] * 3, -1).reshape(-1, 3, 3),
    ),
    (
        "nine columns, used",
        lambda x, w, v: mx.stack([v, x[:, 0], w[0] == v] * 3, -1).reshape(-1, 3, 3) == v[1],
        lambda x, w, v: np.stack([v, x[:, 0], w[0] == v] * 3, -1).reshape(-1, 3, 3) == v[1],
    ),
    (
        "twenty columns",
        lambda x, w, v: mx.stack([v, x[:, 0], v[::-1], x[:, -1]] * 5, axis=-1),
        lambda x, w, v: np.stack([v, x[:, 0], v[::-1], x[:, -1]] * 5, -1),
    ),
    (
        "to columns",
        lambda x, w, v: mx.where(x.T == v, x.T, w[:, None]),
        lambda x, w, v: np.where(x.T == v, x.T, w[:, None]),
    ),
    (
        "columns apart",
        lambda x, w, v: mx.where(mx.contiguous(x.T)[::-1].T == x, x, v[:, None]),
        lambda x, w, v: np.where(x[:, ::-1] == x, x, v[:, None]),
    ),
    (
        "padded columns, turned",
        lambda x, w, v: mx.contiguous(mx.pad(x, [(0, 0), (1, 2)]).T),
        lambda x, w, v: np.pad(x, [(0, 0), (1, 2)]).T,
    ),
    (
        "from columns",
        lambda x, w, v: mx.contiguous(mx.contiguous(x.T).T),
        lambda x, w, v: x,
    ),
    (
        "rows taken",
        lambda x, w, v: x[mx.arange(0, 2 * v.size, 2) % v.size] == w,
        lambda x, w, v: x[np.arange(0, 2 * v.size, 2) % v.size] == w,
    ),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_values(case, dtype):
    _, ours, expected = case
    for n in (1, 2, 3, 4, 7, 8, 13):
        inputs = [
            make_array(i, shape, dtype) for i, shape in enumerate([(POINTS, n), (n,), (POINTS,)])
        ]
        for f in (ours, mx.compile(ours)):
            got = to_numpy(f(*inputs))
            assert np.array_equal(got, expected(*(to_numpy(a) for a in inputs))), n


@pytest.mark.parametrize("shape", [(2000, 3, 3), (300, 2, 5, 7), (40, 2, 2, 2, 2, 40)])
def test_several_short_axes(shape):
    x = make_array(0, shape, mx.float32)
    w = make_array(1, shape[-1:], mx.float32)
    v = make_array(2, (shape[-2], 1), mx.float32)
    numbers = np.array(x)
    turned = mx.swapaxes(x, -1, -2) if shape[-1] == shape[-2] else x
    with_turned = numbers.swapaxes(-1, -2) if shape[-1] == shape[-2] else numbers
    assert np.array_equal(np.array(x * w + v), numbers * np.array(w) + np.array(v))
    assert np.array_equal(np.array(turned + v), with_turned + np.array(v))
    assert np.array_equal(np.array(x[..., ::-1] * w), numbers[..., ::-1] * np.array(w))


@pytest.mark.parametrize(
    ("shape", "divides"),
    [((POINTS, 3), True), ((POINTS, 15), True), ((POINTS, 16), False), ((100, 3), False)],
)
def test_which_axes_are_short(shape, divides):
    """By the innermost size, where there are many points."""
    x, w = make_array(0, shape, mx.float32), make_array(1, shape[1:], mx.float32)
    ir = mx.explain(lambda x, w: x * w, x, w).kernels[0].ir
    assert ("rem(" in ir) == divides


def test_sizes_share_a_kernel():
    """Divisors are numbers that a kernel is given: other short sizes compile nothing."""

    def scaled(n, rows=POINTS):
        x, w = make_array(0, (rows, n), mx.float32), make_array(1, (n,), mx.float32)
        y = x * w * x - w
        mx.eval(y)
        return np.array_equal(np.array(y), np.array(x) * np.array(w) * np.array(x) - np.array(w))

    assert all(scaled(3) for _ in range(4))  # by then as one kernel
    before = mx.counters()["kernels_compiled"]
    assert all(scaled(n, rows) for n, rows in [(5, POINTS), (2, 40_000), (15, 2_000), (8, 8_192)])
    assert mx.counters()["kernels_compiled"] == before


def test_the_innermost_axis_is_walked_in_parts():
    """Where one access splits the short axis, so that it consists of two."""
    index, flags = np.array([[3, 1, 4, 1], [5, 2, 2, 0]], np.int32), np.ones((65, 33, 2, 1), bool)
    flags[::3] = False
    x, i = mx.array(flags), mx.array(index)
    taken = mx.take(x, mx.remainder(i.reshape(-1), 1), -1)
    result = (
        mx.array(np.full((65, 33, 2, 8), 77, np.int8)) + taken.astype(mx.int8) + (i + 1).reshape(8)
    )
    expected = 77 + np.take(flags, index.reshape(-1) % 1, -1) + (index + 1).reshape(8)
    assert np.array_equal(np.array(result), expected)
    assert np.array_equal(np.array(taken.astype(mx.float32) <= x), np.ones((65, 33, 2, 8), bool))


def rotated(m, x, c, s):
    a, b = x[..., ::2], x[..., 1::2]
    return m.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def rotations(m, q):
    w, x, y, z = (q[:, i] for i in range(4))
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z)]
    rows += [1 - 2 * (x * x + z * z), 2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x)]
    return m.stack([*rows, 1 - 2 * (x * x + y * y)], 1).reshape(-1, 3, 3)


def colours(m, x):
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return m.stack([y, 0.492 * (b - y), 0.877 * (r - y)], -1)


COLUMNS = {
    "rotated": (rotated, [(3, 120, 64), (120, 32), (120, 32)]),
    "rotations": (rotations, [(5_001, 4)]),
    "colours": (colours, [(90, 67, 3)]),
    "channels first": (lambda m, x: m.transpose(x, (2, 0, 1)) * 2 - 1, [(90, 67, 3)]),
    "channels last": (lambda m, x: m.transpose(x, (1, 2, 0)) * 2 - 1, [(3, 90, 67)]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_made_in_one_pass(name):
    """By one kernel that reads each operand once; the gradient's against finite differences."""
    f, shapes = COLUMNS[name]
    random = np.random.default_rng(4)
    exact = [random.normal(size=shape) for shape in shapes]
    inputs = [mx.array(a.astype(np.float32)) for a in exact]
    mx.eval(inputs)
    kernels = mx.explain(lambda *a: f(mx, *a), *inputs).kernels
    assert len(kernels) == 1
    assert "mask" not in kernels[0].ir and "select" not in kernels[0].ir
    loads = re.findall(r"load\((p[0-9]+\[.*?\])", kernels[0].ir)
    assert len(loads) == len(set(loads))
    for run in (f, mx.compile(lambda m, *a: f(mx, *a))):
        np.testing.assert_allclose(np.array(run(mx, *inputs)), f(np, *exact), rtol=1e-5, atol=1e-5)

    def loss(m, *a):
        return (f(m, *a) ** 2).sum()

    slopes = [mx.grad(lambda *a: loss(mx, *a), i)(*inputs) for i in range(len(inputs))]
    h, steps = 1e-6, [random.normal(size=shape) for shape in shapes]
    above, below = (
        loss(np, *(a + sign * h * d for a, d in zip(exact, steps, strict=True))) for sign in (1, -1)
    )
    slope = sum((np.array(g, np.float64) * d).sum() for g, d in zip(slopes, steps, strict=True))
    scale = sum(np.abs(np.array(g) * d).sum() for g, d in zip(slopes, steps, strict=True))
    assert abs(slope - (above - below) / (2 * h)) <= 1e-5 * scale


def test_long_columns_are_made_by_loops_for_each():
    """What would be written out for too many places is chosen for each of them, as for few rows."""

    def columns(x):
        y = mx.stack([mx.sin(x * float(i)) + float(i) for i in range(8)], -1)
        for i in range(12):
            y = y * (1 + 1 / (i + 2)) + mx.abs(y)
        return y

    x = make_array(0, (POINTS,), mx.float32)
    many, few = columns(x), mx.concatenate([columns(x[i : i + 500]) for i in range(0, POINTS, 500)])
    assert np.array_equal(np.array(many), np.array(few))


@pytest.mark.parametrize("places", [2, 3, 7])
def test_columns_of_many_choices_are_all_made(places):
    """More columns than an axis without choices may have, by loops: each is made."""

    def columns(xs):
        shape = xs[0].size, places
        parts = [mx.broadcast_to(x[:, None] * (i + 1.0), shape) for i, x in enumerate(xs)]
        y, shift = mx.concatenate(parts, -1), mx.arange(8 * places) * 0.01
        for i in range(14):
            y = y * (1 + 1 / (i + 2)) + mx.sin(y + shift)
        return y

    xs = [make_array(seed, (POINTS,), mx.float32) for seed in range(8)]
    blocks = [columns([x[i : i + 500] for x in xs]) for i in range(0, POINTS, 500)]
    assert np.array_equal(np.array(columns(xs)), np.array(mx.concatenate(blocks)))


@pytest.mark.parametrize("features", ["generic", "avx2"])
def test_on_lesser_processors(features):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_short_axes as t
for case in t.CASES:
    for dtype in (t.mx.float32, t.mx.int8, t.mx.bfloat16, t.mx.int64):
        t.test_values(case, dtype)
for name in t.COLUMNS:
    t.test_columns_are_made_in_one_pass(name)
"""
    # Plans for any sizes are compared with those for these alone, too.
    values = {**os.environ, "CERMET_CPU_FEATURES": features, "CERMET_SIZE_CLASSES": "checked"}
    subprocess.run([sys.executable, "-c", code], env=values, check=True)


# Of rows: what is folded along them, and what is made of each.
ROW_CASES = {
    "sum": (lambda x: mx.sum(x, -1), lambda x: x.sum(-1)),
    "max": (lambda x: mx.max(x, -1), lambda x: x.max(-1)),
    "argmax": (lambda x: mx.argmax(x, -1), lambda x: x.argmax(-1)),
    "argmin": (lambda x: mx.argmin(x, -1), lambda x: x.argmin(-1)),
    "var": (lambda x: mx.var(x, -1), lambda x: x.var(-1)),
    "softmax": (
        lambda x: mx.softmax(x, -1),
        lambda x: (e := np.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
    ),
    "logsumexp": (lambda x: mx.logsumexp(x, -1), lambda x: np.log(np.exp(x).sum(-1))),
    "rms_norm": (
        lambda x: mx.fast.rms_norm(x, None, 1e-5),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    ),
    "cumsum": (lambda x: mx.cumsum(x, -1), lambda x: x.cumsum(-1)),
    "elements": (
        lambda x: mx.tanh(x * x[..., :1]) + mx.arange(x.shape[-1]),
        lambda x: np.tanh(x * x[..., :1]) + np.arange(x.shape[-1]),
    ),
    "shifted": (
        lambda x: mx.sqrt(mx.sum(mx.square(x - mx.mean(x, -1, keepdims=True)), -1)),
        lambda x: np.sqrt(np.square(x - x.mean(-1, keepdims=True)).sum(-1)),
    ),
}
ROW_LAYOUTS = {
    "rows": lambda a: mx.array(a),
    "columns": lambda a: mx.array(np.pad(a, ((0, 0), (1, 2))))[:, 1:-2],
    "flipped": lambda a: mx.array(a[:, ::-1])[:, ::-1],
    "transposed": lambda a: mx.array(a.T.copy()).T,
    "heads": lambda a: mx.transpose(mx.array(a.reshape(-1, 3, a.shape[1])), (1, 0, 2)),
}


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float64], ids=str)
@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@pytest.mark.parametrize("name", ROW_CASES)
def test_many_short_rows(name, layout, dtype):
    """NumPy's values, and bit for bit those of fewer rows, which other kernels make (but of a
    transposed array, whose folds go in the order of its memory)."""
    ours, numpys = ROW_CASES[name]
    tolerance = 2e-2 if dtype == mx.bfloat16 else 3e-5
    for n in (2, 3, 5, 8, 16, 33, 48, 64):
        rows = 3 * ((1 << 14) // n // 3 + 65)
        values = np.random.default_rng(n).standard_normal((rows, n))
        x = ROW_LAYOUTS[layout](values).astype(dtype)
        few = mx.contiguous(x.reshape(-1, n)[: rows // 3])
        mx.eval(x, few)
        got, few = to_numpy(ours(x)), to_numpy(ours(few))
        if layout != "transposed":
            np.testing.assert_array_equal(got.reshape(-1, *few.shape[1:])[: rows // 3], few)
        exact = to_numpy(x).astype(np.float64)
        np.testing.assert_allclose(got, numpys(exact), rtol=tolerance, atol=4 * tolerance)


# --- a short last axis and others that lie apart from it ---

GROUPS = [  # shape, reduced axes
    ((3, 40, 8, 4), (1, 3)),
    ((40, 6, 3), (0, 2)),
    ((2, 9, 5, 2, 3), (1, 3, 4)),
    ((8, 2, 33, 1, 4), (0, 1, 4)),
    ((5, 300, 16, 16), (1, -1)),
    ((2, 8, 4, 4, 1), (1, 3)),
]
FOLDS = ["sum", "mean", "max", "min", "prod", "any", "all", "var"]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "bool"])
def test_short_rows_of_groups(dtype, fold, keepdims):
    """First along the axes apart, where vectors are longer than the short one, then along that."""
    for shape, axes in GROUPS:
        plain = np.random.default_rng(3).normal(size=shape)
        if dtype == "int8" or dtype == "bool":
            plain = (plain > 1).astype(dtype)
        elif fold == "prod":
            plain = 1 + plain / 16  # of up to 4800 factors
        x = mx.array(plain).astype(getattr(mx, dtype))
        wide = np.array(x.astype(mx.float64))
        exact = getattr(np, fold)(wide, axis=axes, keepdims=keepdims)
        got = getattr(mx, fold)(x, axis=axes, keepdims=keepdims)
        compiled = mx.compile(lambda x, a=axes: getattr(mx, fold)(x, axis=a, keepdims=keepdims))(x)
        assert got.shape == exact.shape
        assert got.dtype == getattr(mx, fold)(x).dtype
        # results are rounded to the dtype; sums of up to 4800 terms before, in float32
        bound = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 1e-12}.get(dtype, 1e-4)
        limit = np.finfo(np.float16).max if dtype == "float16" else np.inf
        clipped = np.where(np.abs(exact.astype(float)) > limit, np.inf, exact.astype(float))
        if dtype in ("int8", "bool") and fold == "prod":
            assert np.array_equal(np.array(got), exact)
        else:
            scale = (
                1
                + np.abs(clipped)
                + (np.abs(wide).sum(axis=axes, keepdims=keepdims) if fold == "sum" else 0)
            )
            assert np.all(
                (np.abs(np.array(got.astype(mx.float64)) - clipped) <= bound * scale)
                | (np.array(got.astype(mx.float64)) == clipped)
            )
        assert np.array_equal(
            np.array(got.astype(mx.float64)), np.array(compiled.astype(mx.float64))
        )


def test_a_group_is_normalised_by_vectors_over_its_short_axis():
    """Sums go down the places, then along the channels; means lie as wide as the channels are."""

    def normalised(m, x):
        mean = m.mean(x, axis=(1, 3), keepdims=True)
        return (x - mean) / m.sqrt(m.var(x, axis=(1, 3), keepdims=True) + 1e-5)

    x = mx.random.normal((4, 300, 8, 4), key=mx.random.key(5))
    exact = normalised(np, np.array(x).astype(np.float64))
    assert np.allclose(np.array(normalised(mx, x)), exact, rtol=1e-5, atol=1e-5)
    forms = [k.form for k in mx.explain(lambda x: normalised(mx, x), x).kernels]
    assert "row" not in forms and forms.count("column") == 2
    gradient = mx.grad(lambda x: (normalised(mx, x) ** 3).sum())(x)
    h = 1e-6
    step = np.random.default_rng(1).normal(size=x.shape)
    wide = np.array(x).astype(np.float64)
    difference = (
        (normalised(np, wide + h * step) ** 3).sum() - (normalised(np, wide - h * step) ** 3).sum()
    ) / (2 * h)
    slope = (np.array(gradient).astype(np.float64) * step).sum()
    assert abs(slope - difference) <= 1e-4 * np.abs(np.array(gradient) * step).sum()


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float64, mx.int8], ids=str)
def test_rows_of_large_arrays(dtype):
    """Rows that end inside vectors and cache lines, of arrays that no cache holds: cut, joined."""
    bytes_each = 40 << 20
    for width in (5, 17, 30, 33, 62, 100, 600):
        rows = bytes_each // (width * dtype.size)
        x = make_array(0, (rows, width + 3), dtype)
        numbers = to_numpy(x)[:, 1 : 1 + width]
        cut = x[:, 1 : 1 + width]
        assert np.array_equal(to_numpy(mx.abs(cut)), numbers), width
        half = width // 2
        joined = mx.concatenate([cut[:, half:], mx.abs(cut[:, :half])], -1)
        want = np.concatenate([numbers[:, half:], numbers[:, :half]], -1)
        assert np.array_equal(to_numpy(joined), want), width
        if dtype in (mx.float32, mx.bfloat16):  # several vectors at once
            whole = to_numpy(mx.exp(-mx.contiguous(cut)))
            assert np.array_equal(to_numpy(mx.exp(-cut)), whole), width


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
@pytest.mark.parametrize("rows", [1, 37, 5000])
def test_few_elements_beside_all_rows(rows, dtype):
    """1 to 70, contiguous, strided, reversed, of an axis that others follow; several at once."""
    random = np.random.default_rng(rows)

    def drawn(shape):
        values = random.integers(-9, 9, shape).astype(dtype)
        return values, mx.array(values, dtype=getattr(mx, dtype))

    for n in (1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 31, 33, 63, 64, 65, 70):
        (x, a), (w, b), (v, c) = drawn((rows, n)), drawn((n,)), drawn((2 * n,))
        for f in (
            lambda x, w, v: x * w,
            lambda x, w, v, n=n: (x - w) * v[:n] + w,
            lambda x, w, v: x + v[::2] - w[::-1],
        ):
            assert np.array_equal(np.array(f(a, b, c)), f(x, w, v)), n
    for p, q in ((3, 7), (2, 31), (5, 16), (7, 11), (3, 3)):
        (x, a), (w, b), (v, c) = drawn((rows, p, q)), drawn((p, 1)), drawn((q,))
        assert np.array_equal(np.array(a * b + c), x * w + v), (p, q)
        assert np.array_equal(np.array(a * b[0] - c), x * w[0] - v), (p, q)


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128"])
def test_short_rows_of_wide_elements(dtype):
    """Up to 32 elements of 8 bytes: vectors of rows, as of twice as many of 4."""
    random = np.random.default_rng(4)
    for n in (2, 3, 8, 16, 31, 32, 33, 40):
        values = random.integers(-9, 9, (3000, n)).astype(dtype)
        a = mx.array(values, dtype=getattr(mx, dtype))
        assert np.array_equal(np.array(a.sum(-1)), values.sum(-1)), n
        assert np.array_equal(
            np.array((a * a).sum(-1) - a[:, 0]), (values**2).sum(-1) - values[:, 0]
        )
        if dtype == "float64":
            e = np.exp(values - values.max(-1, keepdims=True))
            want = e / e.sum(-1, keepdims=True)
            np.testing.assert_allclose(np.array(mx.softmax(a, axis=-1)), want, rtol=1e-14)
            assert np.array_equal(np.array(mx.argmax(a, axis=-1)), values.argmax(-1))
    if dtype == "float64":
        kernel = mx.explain(lambda a: a.sum(-1), mx.ones((3000, 8), dtype=mx.float64)).kernels[0]
        assert " most 32" in kernel.ir


# --- windows, which have elements in common ---

WINDOWS = {  # shape of the view, its strides in elements, reduced axes; of 8 x 24 x 40 x 4 elements
    "squares": ((24, 30, 36, 3, 5), (1280, 40, 1, 40, 1), (3, 4)),
    "squares first": ((24, 3, 3, 30, 36), (1280, 40, 1, 40, 1), (1, 2)),
    "pools": ((24, 16, 20, 2, 2), (1280, 80, 2, 40, 1), (3, 4)),
    "channels": ((8, 22, 38, 3, 3, 4), (3840, 160, 4, 160, 4, 1), (3, 4)),
    "channels apart": ((8, 11, 19, 2, 2, 4), (3840, 320, 8, 160, 4, 1), (3, 4)),
    "runs": ((96, 313, 7), (320, 1, 1), (2,)),
    "long runs": ((96, 221, 99), (320, 1, 1), (2,)),
    "large squares": ((24, 24, 31, 9, 10), (1280, 40, 1, 40, 1), (3, 4)),
    "of two": ((3840, 2, 6), (8, 2, 1), (1, 2)),
}


@pytest.mark.parametrize("fold", ["sum", "max", "mean", "prod", "any"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, dtype, fold):
    shape, strides, axes = WINDOWS[name]
    plain = np.random.default_rng(5).normal(size=8 * 24 * 40 * 4)
    plain = 1 + plain / 64 if fold == "prod" else plain * 3
    a = mx.array(plain).astype(getattr(mx, dtype))
    values = to_numpy(a).astype(np.float64)
    view = np.lib.stride_tricks.as_strided(values, shape, [8 * s for s in strides])
    got = getattr(mx, fold)(mx.as_strided(a, shape, strides), axes)
    expected = getattr(np, fold)(view, axis=axes)
    if dtype == "int8" and fold == "prod":
        expected = np.prod(view.astype(np.int32), axis=axes)
    tolerance = 1e-2 if dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(to_numpy(got), expected, rtol=tolerance, atol=10 * tolerance)
    report = mx.explain(lambda a: getattr(mx, fold)(mx.as_strided(a, shape, strides), axes), a)
    assert len(report.kernels) == 1


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 12, 16])
def test_padded_beside_short_axes(channels, dtype):
    """Edges of images with channels last, none, wider than the image, and of something computed."""
    x = np.random.default_rng(channels).integers(1, 99, (3, 57, 61, channels)).astype(dtype)
    a = mx.array(x)
    for rows, columns in (
        ((1, 1), (1, 1)),
        ((0, 2), (3, 0)),
        ((2, 2), (0, 0)),
        ((9, 70), (200, 1)),
    ):
        width = ((0, 0), rows, columns, (0, 0))
        want = np.pad(x, width, constant_values=7)
        assert np.array_equal(np.array(mx.pad(a, width, constant_values=7)), want), width
        doubled = mx.pad(a + a, width)[:, :, ::-1] * a[0, 0, 0]
        assert np.array_equal(np.array(doubled), np.pad(x + x, width)[:, :, ::-1] * x[0, 0, 0]), (
            width
        )
    places = np.arange(61)[:, None]
    for low, high in ((0, 61), (5, 5), (60, 70), (-3, 2)):
        inside = (places >= low) & (places < high)
        where = mx.where(mx.array(inside), a, mx.array(0, dtype=a.dtype))
        assert np.array_equal(np.array(where), np.where(inside, x, 0).astype(dtype)), (low, high)
