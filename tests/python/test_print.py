# SPDX-License-Identifier: MIT
"""The text of arrays is that of the MLX wheel."""

import cermet.core as mx
import mlx.core
import numpy as np
import pytest

DTYPES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES += "float16 bfloat16 float32 float64 complex64".split()


def random_values(rng, shape, dtype):
    if dtype == "bool_":
        return rng.integers(2, size=shape).astype(bool)
    if "int" in dtype:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
        return np.where(rng.integers(2, size=shape) == 1, values, values % 10).astype(dtype)
    exponents = rng.integers(-6, 8, size=shape)
    values = rng.standard_normal(shape) * 10.0**exponents
    whole = rng.integers(-5, 6, size=shape)
    values = np.where(rng.integers(3, size=shape) == 0, whole, values)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, 1e-30])[rng.integers(6, size=shape)]
    values = np.where(rng.integers(8, size=shape) == 0, special, values)
    if dtype == "complex64":
        return (values + 1j * np.roll(values, 1) if values.size else values).astype(np.complex64)
    return values


def both(values, dtype):
    """The same array for both libraries."""
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return mx.array(values.astype(np.float32)).astype(mx.bfloat16), mlx.core.array(
                values.astype(np.float32)
            ).astype(mlx.core.bfloat16)
        plain = values.astype({"bool_": bool}.get(dtype, dtype))
    if dtype == "float64":  # the wheel narrows NumPy's float64, its own lists too
        plain = plain.astype(np.float32)
        return mx.array(plain).astype(mx.float64), mlx.core.array(plain).astype(mlx.core.float64)
    return mx.array(plain), mlx.core.array(plain)


def random_shape(rng):
    ndim = rng.integers(0, 4)
    sizes = [0, 1, 2, 3, 5, 6, 7, 8, 20]
    return tuple(int(rng.choice(sizes)) for _ in range(ndim))


def test_generated_arrays(rng):
    for i in range(500):
        dtype = DTYPES[i % len(DTYPES)]
        shape = random_shape(rng)
        ours, theirs = both(random_values(rng, shape, dtype), dtype)
        with mlx.core.stream(mlx.core.cpu):
            assert str(ours) == str(theirs)
        assert repr(ours) == str(ours)


@pytest.mark.parametrize("precision", [-3, -1, 0, 1, 3, 7, 12])
def test_precision(rng, precision):
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "int32"):
        ours, theirs = both(random_values(rng, (3, 9), dtype), dtype)
        with mx.printoptions(precision=precision), mlx.core.printoptions(precision=precision):
            assert str(ours) == str(theirs)


def test_options():
    assert mx.get_printoptions().precision == -1
    mx.set_printoptions(precision=2)
    try:
        assert mx.get_printoptions().precision == 2
        assert str(mx.array(1 / 3)) == "array(0.33, dtype=float32)"
        with mx.printoptions(precision=4):
            assert str(mx.array(1 / 3)) == "array(0.3333, dtype=float32)"
        assert str(mx.array(1 / 3)) == "array(0.33, dtype=float32)"
    finally:
        mx.set_printoptions()
    options = mx.PrintOptions(3)
    options.precision = 5
    assert options.precision == 5 and mx.PrintOptions().precision == -1
    with pytest.raises(ZeroDivisionError), mx.printoptions(precision=4):
        raise ZeroDivisionError
    assert mx.get_printoptions().precision == -1


def test_views_print_as_their_elements():
    x = mx.arange(24).reshape(2, 3, 4)
    for view in (x.T, x[:, ::-1], x[..., 1], mx.broadcast_to(mx.array([1, 2]), (3, 2))):
        assert str(view) == str(mx.array(np.array(view)))


def test_format():
    assert f"{mx.array(1.5):.3f}" == "1.500"
    assert [f"{mx.array(v)}" for v in (2.5, 3, True, 1 + 2j)] == ["2.5", "3", "True", "(1+2j)"]
    assert f"{mx.array(7):>4d}" == "   7"
    assert f"{mx.array([1.5])}" == "array([1.5], dtype=float32)"
    with pytest.raises(TypeError):
        f"{mx.array([1.5]):.3f}"
