# SPDX-License-Identifier: MIT
"""Many arrays joined along an axis: any number of any widths, used and taken apart again."""

import functools

import cermet.core as mx
import numpy as np
import own_process
import pytest

DTYPES = ["float32", "bfloat16", "float64", "int8", "int64", "bool_", "complex64"]


def exact(random, shape, dtype):
    """Integers that every dtype holds, and sums of which it holds."""
    return mx.array(random.integers(0, 2 if dtype == "bool_" else 9, shape)).astype(
        getattr(mx, dtype)
    )


def numbers(a):
    return np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a)


def parts_of(random, dtype):
    """Parts and their axis: narrow and wide, of few and many rows, and views of other arrays."""
    rows = int(random.choice([0, 1, 7, 300, 2048, 5000]))
    axis = int(random.integers(0, 2)) if rows < 300 else 1
    parts = []
    for width in random.integers(0, 1 + int(random.choice([1, 3, 9, 20])), random.integers(2, 50)):
        shape = [rows, int(width)]
        whole = exact(random, (rows, int(width) + 2), dtype)
        part = [
            lambda w=whole: w[:, 1:-1],
            lambda w=whole: w[:, 1:-1] + w[:, 2:],
            lambda w=whole: mx.contiguous(w[:, 1:-1].T)[:, ::-1].T,
            lambda w=whole, s=shape: mx.broadcast_to(w[:, :1], s),
        ][random.integers(0, 4)]()
        parts.append(part if axis == 1 else part.T)
    return parts, axis


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype):
    random = np.random.default_rng(3)
    for case in range(12):
        parts, axis = parts_of(random, dtype)
        join = functools.partial(mx.concatenate, axis=axis)
        want = np.concatenate([numbers(p) for p in parts], axis)
        for run in (join, mx.compile(join)):
            assert np.array_equal(numbers(run(parts)), want), (case, run)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_used_and_taken_apart(dtype):
    """By element-wise ops, folds, products, movement; whole and in slices across parts."""
    random = np.random.default_rng(5)
    for case in range(8):
        rows = int(random.choice([40, 3000]))
        widths = [int(w) for w in random.integers(1, 6, random.integers(9, 30))]
        parts = [exact(random, (rows, w), dtype) for w in widths]
        left = exact(random, (3, rows), dtype)
        ends = np.cumsum([0, *widths]).tolist()

        def uses(m, a, left, ends=ends):
            all_of = m.concatenate(a, -1)
            twice = all_of + all_of
            yield twice * all_of[:, :1]
            yield twice.sum(-1) + 1
            yield m.transpose(twice)[::2] + 1
            yield left @ all_of
            yield (twice + twice.sum(-1, keepdims=True)).sum(0)
            yield m.stack([twice[:, -1], twice[:, 0]], -1)
            for k in range(0, len(a), 3):
                yield twice[:, ends[k] : ends[k + 1]] * 3
                yield twice[::-1, ends[k] : ends[k + 1] + 1] + 2

        got = list(uses(mx, parts, left))
        want = list(uses(np, [numbers(p) for p in parts], numbers(left)))
        compiled = mx.compile(lambda a, left: list(uses(mx, a, left)))(parts, left)
        for k, expected in enumerate(want):
            assert np.array_equal(numbers(got[k]), expected), (case, k)
            assert np.array_equal(numbers(compiled[k]), expected), (case, k)


@pytest.mark.parametrize("rows", [30, 3000])
def test_gradients(rows):
    """Each part's is its slice of the cotangent, times its own slope."""
    random = np.random.default_rng(7)
    widths = [3] * 9 + [1] * 4 + [12, 2]
    x = mx.array(random.normal(size=(rows, 12)).astype(np.float32))
    weight = random.normal(size=(rows, sum(widths))).astype(np.float32)

    def loss(m, x, weight):
        y = m.concatenate([m.sin((k + 1) * x[:, :w]) for k, w in enumerate(widths)], -1)
        return (weight * y * y).sum()

    want = np.zeros((rows, 12))
    start = 0
    for k, w in enumerate(widths):
        turned = (k + 1) * np.array(x[:, :w], np.float64)
        slope = 2 * np.sin(turned) * np.cos(turned) * (k + 1)
        want[:, :w] += weight[:, start : start + w] * slope
        start += w
    gradient = mx.grad(functools.partial(loss, mx))
    for run in (gradient, mx.compile(gradient)):
        got = np.array(run(x, mx.array(weight)))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def harmonics(m, x):
    """The real spherical harmonics of degrees 0 to 3, but for their factors."""
    a, b, c = x[:, 0], x[:, 1], x[:, 2]
    square = 4 * c * c - a * a - b * b
    parts = [a * 0 + 1, b, c, a, a * b, b * c, 3 * c * c - 1, a * c, a * a - b * b]
    parts += [b * (3 * a * a - b * b), a * b * c, b * square, c * (square - 2 * c * c), a * square]
    return m.stack([*parts, c * (a * a - b * b), a * (a * a - 3 * b * b)], -1)


def positions(m, x):
    """Positional encoding of points (Mildenhall et al. 2020, eq. 4)."""
    return m.concatenate([x, *(f(2.0**i * x) for i in range(10) for f in (m.sin, m.cos))], -1)


@pytest.mark.parametrize(("f", "kernels"), [(harmonics, 1), (positions, 4)])
def test_are_written_by_few_kernels(f, kernels):
    random = np.random.default_rng(9)
    points = random.normal(size=(3000, 3)).astype(np.float32)
    x = mx.array(points)
    mx.eval(x)
    report = mx.explain(functools.partial(f, mx), x)
    assert len(report.kernels) <= kernels
    np.testing.assert_allclose(np.array(f(mx, x)), f(np, points), rtol=1e-5, atol=1e-5)


def test_a_slice_makes_its_own_parts_alone():
    a, b = mx.ones((5000, 4)), mx.ones((5000, 60))
    mx.eval(a, b)

    def columns(a, b):
        return (mx.concatenate([a, b], 1) * 2)[:, :3] + 1

    kernels = mx.explain(columns, a, b).kernels
    assert len(kernels) == 1
    assert kernels[0].ir.count("load(") == 1
    mx.eval(columns(a, b))
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(columns(a, b))
    assert mx.get_peak_memory() - before < 2 * 5000 * 3 * 4


def test_one_trace_for_many_lengths():
    """A compiled join gives right values at each number of rows, few and many."""
    f = mx.compile(lambda x: mx.concatenate([x * k for k in range(12)], -1).sum(0))
    for rows in (1, 5, 400, 1500, 2000, 2048, 3000, 5000):
        x = np.arange(3 * rows, dtype=np.float64).reshape(rows, 3) % 7
        want = np.concatenate([x * k for k in range(12)], -1).sum(0)
        assert np.array_equal(np.array(f(mx.array(x.astype(np.float32)))), want)


@pytest.mark.parametrize("rows", [2, 20, 900])
def test_parts_that_lie_otherwise(rows):
    """Rows of two axes that lie in another order; a few rows of many; many of them updated."""
    random = np.random.default_rng(11)
    x = random.integers(0, 99, (rows, 4096, 20)).astype(np.float32)[: rows // 20 + 2]
    ours = mx.array(x)
    turned, order = np.swapaxes(x, 0, 1), random.permutation(20).tolist()

    def columns(m, a):
        return m.stack([a[..., k] for k in order], -1)

    got = mx.compile(functools.partial(columns, mx))(mx.swapaxes(ours, 0, 1))
    assert np.array_equal(np.array(got), columns(np, turned))
    few = columns(mx, ours[0])[5:9] + 1
    assert np.array_equal(np.array(few), columns(np, x[0])[5:9] + 1)
    for start, stop, source in ((1, 4, 0), (0, 3, 1), (2, 18, 1), (0, 16, 3)):
        ours, want = mx.array(x), x.copy()
        ours[:, :, start:stop] = ours[:, :, source : source + stop - start] * 2
        want[:, :, start:stop] = want[:, :, source : source + stop - start] * 2
        assert np.array_equal(np.array(ours), want), (start, stop, source)


def test_many_columns_are_added_at_places():
    """They are made before the update, which would choose among them for each element."""
    random = np.random.default_rng(13)
    columns = [random.integers(0, 9, 3000).astype(np.float32) for _ in range(16)]
    places = random.integers(0, 50, 3000)

    def added(columns, places):
        return mx.zeros((50, 16)).at[places].add(mx.stack(columns, -1))

    inputs = [mx.array(c) for c in columns], mx.array(places)
    want = np.zeros((50, 16), np.float32)
    np.add.at(want, places, np.stack(columns, -1))
    assert np.array_equal(np.array(added(*inputs)), want)
    assert all(k.ir.count("mask") <= 8 for k in mx.explain(added, *inputs).kernels)


FRAMED = """
import numpy as np
import cermet.core as mx

def framed(x, width, edge):
    for axis, (low, high) in enumerate(width):
        size, at = x.shape[axis], lambda s: (slice(None),) * axis + (s,)
        if edge:
            ends = x[at(slice(0, 1))], x[at(slice(size - 1, size))]
            parts = [mx.repeat(end, n, axis) for end, n in zip(ends, (low, high))]
        else:
            parts = x[at(slice(low, 0, -1))], x[at(slice(size - 2, size - 2 - high, -1))]
        x = mx.concatenate([parts[0], x, parts[1]], axis)
    return x

rng = np.random.default_rng(1)
for shape, width in (
    ((2, 64, 64), ((0, 0), (2, 2), (2, 2))),
    ((64, 70), ((3, 1), (3, 2))),
    ((8, 64, 70), ((2, 2), (2, 2), (2, 2))),
    ((5, 6, 7, 8), ((1, 1), (1, 1), (1, 1), (1, 1))),
    ((2, 128, 128, 8), ((0, 0), (2, 2), (2, 2), (0, 0))),
    ((2, 9, 300, 30), ((0, 0), (1, 2), (60, 50), (0, 0))),
    ((4, 100, 3), ((0, 0), (2, 2), (0, 0))),
    ((1000,), ((5, 5),)),
    ((40, 40, 40), ((1, 2), (0, 3), (2, 1))),
):
    for dtype in ("float32", "uint8", "float64"):
        a = rng.integers(0, 200, shape).astype(dtype)
        for mode in ("edge", "reflect"):
            got = framed(mx.array(a), width, mode == "edge")
            assert np.array_equal(np.array(got), np.pad(a, width, mode=mode)), (shape, dtype, mode)
print("same")
"""


@pytest.mark.parametrize("guard", ["guard", "guard_front"])
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_parts_that_a_row_does_not_have_are_not_read(guard, level):
    """Frames of arrays: before a part's loop that does not run for a row, nothing is loaded."""
    printed = own_process.run(FRAMED, CERMET_ALLOCATOR=guard, CERMET_CPU_FEATURES=level)
    assert printed.strip() == "same"
