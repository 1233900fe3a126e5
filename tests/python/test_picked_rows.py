# SPDX-License-Identifier: MIT
"""Short rows that indices tell: taken, used with what is one for a row, and updated."""

import cermet.core as mx
import numpy as np
import own_process
import pytest

DTYPES = ["float32", "bfloat16", "float64", "int8", "int64", "bool_", "complex64"]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 32, 33]  # of rows: about the vectors' sizes
POINTS = [(5, 7), (700, 90), (5000, 400)]  # and rows


def exact(random, shape, dtype):
    """Integers that every dtype holds, and sums of which it holds."""
    return mx.array(random.integers(0, 2 if dtype == "bool_" else 4, shape)).astype(
        getattr(mx, dtype)
    )


def numbers(a):
    return np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a)


def check(dtype):
    random = np.random.default_rng(7)
    for length in LENGTHS:
        for points, rows in POINTS:
            table, other = (
                exact(random, (rows, length), dtype),
                exact(random, (points, length), dtype),
            )
            weight = exact(random, (points,), dtype)
            places = random.integers(-rows, rows, points)
            index = mx.array(places.astype(np.int32))
            t, o, w = numbers(table), numbers(other), numbers(weight)
            case = dtype, length, points
            assert np.array_equal(numbers(table[index]), t[places]), case
            used = mx.where(other == 0, table[index], weight[:, None])
            assert np.array_equal(numbers(used), np.where(o == 0, t[places], w[:, None])), case
            if dtype in ("bool_", "int8"):
                continue
            used = table[index] * weight[:, None] + other
            assert np.array_equal(numbers(used), t[places] * w[:, None] + o), case
            if dtype == "bfloat16":
                continue
            want = t.copy()
            np.add.at(want, places, o * w[:, None])
            got = table.at[index].add(other * weight[:, None])
            assert np.array_equal(numbers(got), want), case


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype):
    check(dtype)


def test_interpolation_and_its_gradient():
    """Four neighbours of each point, of three channels, as of images and grids."""
    random = np.random.default_rng(1)
    image = random.standard_normal((40, 30, 3))
    y, x = random.random(900) * 38.9, random.random(900) * 28.9

    def sample(xp, image, y, x, whole):
        y0, x0 = whole(y), whole(x)
        fy, fx = (y - y0)[:, None], (x - x0)[:, None]
        above = image[y0, x0] * (1 - fx) + image[y0, x0 + 1] * fx
        below = image[y0 + 1, x0] * (1 - fx) + image[y0 + 1, x0 + 1] * fx
        return above * (1 - fy) + below * fy

    def ours(image):
        return sample(mx, image, mx.array(y), mx.array(x), lambda a: mx.floor(a).astype(mx.int32))

    weights = random.standard_normal((900, 3))
    got, gradient = mx.value_and_grad(lambda i: (ours(i) * mx.array(weights)).sum())(
        mx.array(image)
    )
    want = sample(np, image, y, x, lambda a: np.floor(a).astype(np.int64))
    assert np.allclose(np.array(ours(mx.array(image))), want, atol=1e-5)
    assert np.allclose(float(got), (want * weights).sum(), rtol=1e-5)
    for place in ((0, 0, 0), (17, 4, 1), (38, 28, 2), (39, 29, 0)):
        step = np.zeros_like(image)
        step[place] = 1  # the samples are linear in the image
        change = sample(np, step, y, x, lambda a: np.floor(a).astype(np.int64))
        assert np.allclose(np.array(gradient)[place], (change * weights).sum(), atol=1e-4)


SCRIPT = """
import sys

sys.path.insert(0, "tests/python")
import test_picked_rows

for dtype in ("float32", "bfloat16", "complex64"):
    test_picked_rows.check(dtype)
print("same")
"""


@pytest.mark.parametrize("level", ["avx2", "generic"])
@pytest.mark.parametrize("guard", ["caching", "guard", "guard_front"])
def test_on_lesser_processors(level, guard):
    """Beside the operands, nothing is read or written."""
    printed = own_process.run(SCRIPT, CERMET_CPU_FEATURES=level, CERMET_ALLOCATOR=guard)
    assert printed.strip() == "same"
