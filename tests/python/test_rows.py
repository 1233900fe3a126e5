# SPDX-License-Identifier: MIT
"""What kernels do beside plain loops, against NumPy, bit for bit: division of rows by one number
without the instruction, results so large that whole lines are stored past the cache, wherever in a
line rows and results begin, transposes by tiles, and sums of columns that are wide. And, by the
clock, that sums of long terms see what they need coming."""

import os
import subprocess
import sys
import time

import cermet.core as mx
import numpy as np
import pytest

ROWS, COLUMNS = 200, 411
FORMATS = {"float32": (23, np.uint32), "float64": (52, np.uint64)}


def spread_numbers(rng, shape, exponents, dtype):
    digits = FORMATS[dtype][0]
    fraction = 1 + rng.integers(0, 2**digits, shape) / 2.0**digits
    return (fraction * 2.0 ** rng.integers(*exponents, shape)).astype(dtype)


def same_bits(a, b, dtype):
    unsigned = FORMATS[dtype][1]
    return (a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))


def quotients(a, d, dtype):
    kind = getattr(mx, dtype)
    with np.errstate(all="ignore"):
        return np.array(mx.array(a, dtype=kind) / mx.array(d, dtype=kind)), a / d


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("exponents", [(-3, 3), (-60, 60), (-140, 127)])
def test_division_by_one_number(dtype, exponents):
    rng = np.random.default_rng(3)
    a = spread_numbers(rng, (ROWS, COLUMNS), exponents, dtype)
    a *= rng.choice([-1, 1], a.shape).astype(dtype)
    a[rng.random(a.shape) < 0.01] *= 0
    d = spread_numbers(rng, (ROWS, 1), (max(exponents[0], -40), min(exponents[1], 40)), dtype)
    # Divisors right below 2 and above 1, where the inverse is the least accurate; some negative.
    unit = 2.0 ** -FORMATS[dtype][0]
    d[:50, 0] = 2 - unit * rng.integers(1, 1000, 50)
    d[50:100, 0] = 1 + unit * rng.integers(1, 1000, 50)
    d[100:110] *= -1
    ours, expected = quotients(a, d, dtype)
    assert same_bits(ours, expected, dtype).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_division_of_special_values(dtype):
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    values = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, tiny, -tiny, huge, -huge], dtype)
    ours, expected = quotients(np.tile(values, (len(values), 7)), values[:, None], dtype)
    assert same_bits(ours, expected, dtype).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_division_of_flags_by_one_number(dtype):
    rng = np.random.default_rng(4)
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    special = np.array([0, -0.0, 1, 3, -7, np.inf, -np.inf, np.nan, tiny, huge], dtype)
    a = rng.standard_normal((len(special), COLUMNS)).astype(dtype)
    kind = getattr(mx, dtype)
    x, d = mx.array(a, dtype=kind), mx.array(special[:, None], dtype=kind)
    ours = np.array(mx.compile(lambda x, d: (x > 0).astype(kind) / d)(x, d))
    with np.errstate(all="ignore"):
        expected = (a > 0).astype(dtype) / special[:, None]
    assert same_bits(ours, expected, dtype).all()


@pytest.mark.parametrize("shape", [(9_000_001,), (2100, 4099), (3, 3_000_001)])
def test_large_results(shape):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, dtype="float32") for _ in range(2))
    x, y = mx.array(a), mx.array(b)
    total, product = mx.compile(lambda x, y: (x + y, x * y))(x, y)
    assert np.array_equal(np.array(total), a + b)
    assert np.array_equal(np.array(product), a * b)


def test_large_rows():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((2100, 4099), dtype="float32")
    x = mx.array(a)
    largest = np.array(x - mx.max(x, axis=-1, keepdims=True))
    assert np.array_equal(largest, a - a.max(-1, keepdims=True))
    few = mx.softmax(x[:8], axis=-1)
    assert np.array_equal(np.array(mx.softmax(x, axis=-1)[:8]), np.array(few))


@pytest.mark.parametrize("shape", [(40, 600, 70), (600, 7, 70), (4, 5, 0)])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_sums_of_columns_stored_transposed(shape, dtype):
    a = np.random.default_rng(3).integers(0, 9, shape).astype(dtype)
    for axis in (0, 1):
        ours = mx.contiguous(mx.sum(mx.array(a, dtype=getattr(mx, dtype)), axis=axis).T + 1)
        assert np.array_equal(np.array(ours), np.sum(a, axis=axis).T + 1)


LARGE = 34 << 20  # bytes; results of more than 32 MiB go past the cache


def whole_numbers(dtype, columns):
    """Small ones, so that sums and products are exact in every dtype."""
    rows = LARGE // np.dtype(dtype).itemsize // columns + 1
    return np.random.default_rng(0).integers(-20, 20, (rows, columns)).astype(dtype)


def same(got, want):
    assert np.array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [7, 64, 1000, 4097])
def test_large_results_of_rows(dtype, columns):
    x = whole_numbers(dtype, columns)
    a, w = mx.array(x), mx.array(x[0])
    same(a + w, x + x[0])
    # What begins inside a line: in the source, in the destination, in both.
    same(a[1:, 3:] + w[3:], x[1:, 3:] + x[0, 3:])
    joined = mx.concatenate([w[None, :5], a.reshape(1, -1), w[None]], 1)
    same(joined[0, 3:-3], np.concatenate([x[0, :5], x.ravel(), x[0]])[3:-3])
    same(mx.pad(a, ((1, 2), (3, 1))), np.pad(x, ((1, 2), (3, 1))))


def test_large_results_of_two_widths():
    """One kernel: not both begin with a line at the same element."""
    x = whole_numbers("float32", 1001)
    a = mx.array(x)
    doubled, tripled = a * 2, (a * 3).astype(mx.float16)
    mx.eval(doubled, tripled)
    same(doubled, x * 2)
    same(tripled, (x * 3).astype(np.float16))


def test_large_results_in_place():
    x = whole_numbers("float32", 1001)
    a = mx.array(x)
    for _ in range(3):
        a = a + 1
        mx.eval(a)
    same(a, x + 3)


@pytest.mark.parametrize("columns", [1000, 4097])
def test_large_scans(columns):
    x = whole_numbers("float32", columns) % 2
    a = mx.array(x)
    for axis in (0, 1):
        same(mx.cumsum(a, axis), np.cumsum(x, axis))
        same(mx.cummax(a, axis), np.maximum.accumulate(x, axis))


SHAPES = [(64, 128), (65, 127), (3, 200), (1, 70), (129, 1), (300, 77)]


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex64", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposes(dtype, shape):
    """Tiles of 64 x 64, whole and cut off, alone and in a chain; elements of all widths."""
    x = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 50, shape).astype(dtype)
    a = mx.array(x)
    same(mx.contiguous(a.T), np.ascontiguousarray(x.T))
    same(mx.contiguous(mx.stack([a, a]).transpose(0, 2, 1)), np.stack([x, x]).transpose(0, 2, 1))
    if dtype != "bool":
        b = mx.array(np.ascontiguousarray(x.T))
        same(a.T + b, x.T + x.T)
        same(a[:, ::-1].T + b[::-1], x[:, ::-1].T + x.T[::-1])


# Rows of the result are whole lines, or not; the operand's lie in one set of the cache, or not.
@pytest.mark.parametrize(
    "dtype, shape",
    [
        ("float32", (2064, 4100)),
        ("float32", (2049, 4096)),
        ("float64", (1032, 4099)),
        ("float16", (4096, 4096)),
        ("float16", (70, 2048)),
        ("int8", (8192, 4096)),
        ("int8", (130, 4096)),
    ],
)
def test_large_transposes(dtype, shape):
    x = np.random.default_rng(2).integers(-99, 99, shape, dtype=np.int8).astype(dtype)
    a = mx.array(x)
    same(mx.contiguous(a.T), np.ascontiguousarray(x.T))
    same(mx.contiguous(a[1:, 3:].T), np.ascontiguousarray(x[1:, 3:].T))
    same(mx.contiguous(a[::-1].T), np.ascontiguousarray(x[::-1].T))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_large_results_of_pairs(dtype):
    """Two results by turns, from a line's begin on or not, in long rows and in short ones."""
    rng = np.random.default_rng(3)
    for shape in [(2**25 // np.dtype(dtype).itemsize // 2 + 5,), (33, 2**18 + 1), (2**18 + 3, 33)]:
        x, y = (rng.integers(-99, 99, shape, dtype=np.int8).astype(dtype) for _ in range(2))
        a, b = mx.array(x), mx.array(y)
        same(mx.stack([a, b * 2], -1), np.stack([x, y * 2], -1))
    if dtype != "float16":
        z = x + 1j * y
        c = mx.array(z)
        same(c * (2 - 1j), z * (2 - 1j))
        same(mx.concatenate([c[:3], c + c]), np.concatenate([z[:3], z + z]))


@pytest.mark.parametrize("features", ["generic", "avx2"])
def test_on_lesser_processors(features):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_rows as t
t.test_large_results_of_rows("float16", 1000)
t.test_large_results_of_rows("float32", 4097)
t.test_large_results_of_two_widths()
for dtype in ("int8", "float16", "float32", "float64"):
    for shape in t.SHAPES:
        t.test_transposes(dtype, shape)
t.test_large_transposes("float32", (2064, 4100))
t.test_large_transposes("float16", (4096, 4096))
t.test_large_results_of_pairs("float32")
"""
    values = {**os.environ, "CERMET_CPU_FEATURES": features}
    subprocess.run([sys.executable, "-c", code], env=values, check=True)


@pytest.mark.parametrize("rows", [3, 257])
@pytest.mark.parametrize("columns", [262143, 262144, 300001])
def test_sums_of_many_columns(rows, columns):
    """Items take several tiles of columns each; the last ones are not whole."""
    x = np.random.default_rng(0).integers(-100, 100, (rows, columns)).astype(np.float32)
    a = mx.array(x)
    assert (np.array(mx.sum(a, 0)) == x.sum(0)).all()
    assert (np.array(mx.max(a * 2, 0)) == (x * 2).max(0)).all()


@pytest.mark.timing
def test_a_sum_of_everything_takes_as_long_as_its_rows():
    """Some processors fetch nothing ahead of masked loads, which made it three times as long."""
    x = mx.full((8192, 4096), 1.5) + mx.arange(4096)
    mx.eval(x)

    assert ratio_of_times(lambda: mx.log(x).sum(), lambda: mx.log(x).sum(-1)) < 1.8


@pytest.mark.timing
def test_rows_picked_anywhere_are_fetched_ahead():
    """Beside neighbours, which the processor sees coming: without, it is 9 times as long."""
    table = mx.full((1 << 21, 16), 1.5) + mx.arange(16)
    near = mx.arange(1 << 19)
    far = mx.array(np.random.default_rng(0).permutation(1 << 21)[: 1 << 19])
    mx.eval(table, near, far)
    assert ratio_of_times(lambda: table[far], lambda: table[near]) < 4


def ratio_of_times(first, second):
    """The least time of the one over that of the other, in turns."""

    def seconds(f):
        start = time.perf_counter()
        mx.eval(f())
        return time.perf_counter() - start

    seconds(first), seconds(second)
    times = [(seconds(first), seconds(second)) for _ in range(9)]
    return min(a for a, _ in times) / min(b for _, b in times)
