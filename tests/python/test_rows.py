# SPDX-License-Identifier: MIT
"""What kernels do beside plain loops, against NumPy, bit for bit: division of rows by one number
without the instruction, and results so large that they are stored past the cache."""

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
