# SPDX-License-Identifier: MIT
"""Results larger than the caches, which are stored past them in whole lines: rows and results that
begin anywhere in a line, for each width of elements and each width of vectors."""

import os
import subprocess
import sys

import cermet.core as mx
import numpy as np
import pytest

LARGE = 34 << 20  # bytes; results of more than 32 MiB go past the cache


def draw(dtype, columns, seed=0):
    """Small whole numbers, so that sums and products are exact in every dtype."""
    rows = LARGE // np.dtype(dtype).itemsize // columns + 1
    values = np.random.default_rng(seed).integers(-20, 20, (rows, columns))
    return values.astype(dtype)


def same(got, want):
    assert np.array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [7, 64, 1000, 4097])
def test_rows(dtype, columns):
    x = draw(dtype, columns)
    a, w = mx.array(x), mx.array(x[0])
    same(a + w, x + x[0])
    # What begins inside a line: in the source, in the destination, in both.
    same(a[1:, 3:] + w[3:], x[1:, 3:] + x[0, 3:])
    same(mx.concatenate([w[None, :5], a.reshape(1, -1), w[None]], 1)[0, 3:-3],
         np.concatenate([x[0, :5], x.ravel(), x[0]])[3:-3])  # fmt: skip
    same(mx.pad(a, ((1, 2), (3, 1))), np.pad(x, ((1, 2), (3, 1))))


def test_several_results():
    """One kernel, results of two widths: not all begin with a line at the same element."""
    x = draw("float32", 1001)
    a = mx.array(x)
    doubled, halved = a * 2, (a * 3).astype(mx.float16)
    mx.eval(doubled, halved)
    same(doubled, x * 2)
    same(halved, (x * 3).astype(np.float16))


def test_rows_that_are_read_again():
    x = draw("float32", 1001)
    same(mx.array(x) - mx.max(mx.array(x), 1, keepdims=True), x - x.max(1, keepdims=True))


def test_in_place():
    x = draw("float32", 1001)
    a = mx.array(x)
    for _ in range(3):
        a = a + 1
        mx.eval(a)
    same(a, x + 3)


@pytest.mark.parametrize("features", ["generic", "avx2"])
def test_on_lesser_processors(features):
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_large as t\n"
    )
    code += "t.test_rows('float16', 1000); t.test_rows('float32', 4097); t.test_several_results()"
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CERMET_CPU_FEATURES": features},
        check=True,
    )
