# SPDX-License-Identifier: MIT
"""Divisions by a number, some of which are products, are rounded as NumPy rounds them."""

import cermet.core as mx
import ml_dtypes
import numpy as np
import pytest

# Powers of two, which are made by products where their inverse is a normal number, and others.
DIVISORS = [2.0, -2.0, 0.5, 1.0, -1.0, 1024.0, 2.0**-14, 2.0**14, 2.0**15, -(2.0**-20), 3.0, 0.1]


@pytest.mark.parametrize("by", DIVISORS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_division_by_a_number_is_rounded_correctly(dtype, by):
    """Of all halves, of a sample of the bits of others: infinities, NaN, subnormals too."""
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if numpy_type.itemsize == 2:
        x = np.arange(65536, dtype=np.uint16).view(numpy_type)
    else:
        bits = np.random.default_rng(7).integers(0, 256, (65536, numpy_type.itemsize), np.uint8)
        x = bits.view(numpy_type).ravel()
    with np.errstate(all="ignore"):
        want = x / numpy_type.type(by)
    a = mx.array(x, dtype=getattr(mx, dtype))
    each = mx.full(a.shape, by, dtype=a.dtype)
    for got in (a / by, a / each, mx.compile(lambda a, by: a / by)(a, by), mx.divide(a, by) + 0):
        assert got.dtype == a.dtype
        np.testing.assert_array_equal(np.asarray(got).astype(np.float64), want.astype(np.float64))
    zeros = np.asarray(a / by)[x == 0]
    np.testing.assert_array_equal(np.signbit(zeros), np.signbit(want[x == 0]))


def test_integers_and_complex_numbers_divided_by_a_power_of_two():
    n = np.array([-7, 0, 3, 2**24 + 1], np.int32)
    got = mx.array(n) / 2
    assert got.dtype == mx.float32
    np.testing.assert_array_equal(np.asarray(got), n.astype(np.float32) / 2)
    z = np.array([1 + 2j, -3j, np.inf, 0], np.complex64)
    np.testing.assert_array_equal(np.asarray(mx.array(z) / 2), z / 2)


def test_the_gradient_of_a_division_by_a_power_of_two():
    x = mx.array([1.0, -3.0])
    np.testing.assert_array_equal(np.asarray(mx.grad(lambda x: (x / 8).sum())(x)), [0.125, 0.125])
    by = mx.array(8.0)
    slope = mx.grad(lambda x, by: (x / by).sum(), argnums=1)(x, by)
    assert slope.item() == 2 / 64
