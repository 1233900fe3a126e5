# SPDX-License-Identifier: MIT
"""Indexing against NumPy 2: generated expressions for reading, assignment and .at; errors."""

import os
import subprocess
import sys

import cermet.core as mx
import numpy as np
import pytest

CASES = 400


def filled(shape):
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


def random_shape(rng):
    return tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 5)))


def random_slice(rng, size):
    bounds = [None, *range(-size - 2, size + 3)]
    steps = [None, 1, 2, 3, -1, -2]
    pick = [bounds[rng.integers(len(bounds))] for _ in range(2)]
    return slice(*pick, steps[rng.integers(len(steps))])


def random_indices(rng, size, shape):
    return rng.integers(-size, size, size=shape).astype(rng.choice(["int32", "int64"]))


def random_index(rng, shape, masks=True):
    """An expression for an array of the shape: items for some axes, None and ... among them."""
    index_shape = tuple(int(n) for n in rng.integers(1, 4, size=rng.integers(0, 3)))
    items, axis, ellipsis = [], 0, False
    named = int(rng.integers(0, len(shape) + 1))
    while axis < named:
        size, kind = shape[axis], rng.integers(9)
        if kind < 3:
            items.append(random_slice(rng, size))
        elif kind < 5:
            items.append(int(rng.integers(-size, size)))
        elif kind < 7:
            items.append(random_indices(rng, size, index_shape))
        elif kind == 7 and masks and not index_shape[1:]:
            count = index_shape[0] if index_shape else 1
            mask = np.zeros(size, bool)
            mask[rng.permutation(size)[: min(count, size)]] = True
            if mask.sum() not in (1, count):
                mask[:] = False
                mask[rng.integers(size)] = True
            items.append(mask)
        else:
            items.append(slice(None))
        axis += 1
    for _ in range(rng.integers(0, 2)):
        items.insert(rng.integers(0, len(items) + 1), None)
    if rng.integers(3) == 0 and not ellipsis:
        # The axes after an ellipsis are the last ones, so it only fits at the end here.
        items.append(Ellipsis)
    return items[0] if len(items) == 1 and rng.integers(2) else tuple(items)


def ours(index):
    """The expression with NumPy arrays replaced by Cermet's or by lists."""
    if isinstance(index, tuple):
        return tuple(ours(i) for i in index)
    if isinstance(index, np.ndarray):
        return mx.array(index)
    return index


def check_equal(got, want, what):
    got = np.array(got)
    assert got.shape == want.shape and got.dtype == want.dtype, what
    np.testing.assert_array_equal(got, want, err_msg=what)


def test_reading_random_expressions(rng):
    for _ in range(CASES):
        shape = random_shape(rng)
        index = random_index(rng, shape)
        x = filled(shape)
        check_equal(mx.array(x)[ours(index)], np.array(x[index]), f"{shape} [{index!r}]")


def distinct(x, index):
    return np.unique(filled(x.shape)[index]).size == np.array(filled(x.shape)[index]).size


def test_assigning_random_expressions(rng):
    for _ in range(CASES):
        shape = random_shape(rng)
        index = random_index(rng, shape)
        x = filled(shape)
        if not distinct(x, index):  # which of several values stays is open
            continue
        target = np.array(x[index])
        value = rng.integers(100, 200, size=target.shape).astype(np.int32)
        for axis in range(value.ndim):
            if rng.integers(3) == 0 and value.shape[axis] > 0:
                value = value[(slice(None),) * axis + (slice(0, 1),)]
        want = x.copy()
        want[index] = value
        got = mx.array(x)
        identity = id(got)
        got[ours(index)] = mx.array(value)
        assert id(got) == identity
        check_equal(got, want, f"{shape} [{index!r}] = {value!r}")


UPDATES = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "divide": np.divide,
}


@pytest.mark.parametrize("name", UPDATES)
def test_at_random_expressions(rng, name):
    """Repeated indices all count, as in NumPy's ufunc.at; powers of two keep division exact."""
    for _ in range(CASES // 4):
        shape = random_shape(rng)
        index = random_index(rng, shape)
        x = filled(shape).astype(np.float32)
        target = np.array(x[index])
        value = (2.0 ** rng.integers(-2, 3, size=target.shape)).astype(np.float32)
        want = x.copy()
        UPDATES[name].at(want, index, value)
        got = getattr(mx.array(x).at[ours(index)], name)(mx.array(value))
        check_equal(got, want, f"{shape}.at[{index!r}].{name}({value!r})")


X = filled((4, 3, 5))
FORMS = [
    "x[0]",
    "x[-1]",
    "x[1, 2]",
    "x[1, 2, 3]",
    "x[:]",
    "x[...]",
    "x[()]",
    "x[None]",
    "x[:, None]",
    "x[..., None]",
    "x[None, ..., None]",
    "x[1:3]",
    "x[::-1]",
    "x[:, ::-2]",
    "x[3:0:-1]",
    "x[5:9]",
    "x[2:2]",
    "x[..., 0]",
    "x[0, ..., 0]",
    "x[[0, 2]]",
    "x[[0, 2], 1]",
    "x[[0, 2], [1, 0]]",
    "x[:, [0, 2]]",
    "x[[0, 2], :, [1, 3]]",
    "x[0, :, [1, 3]]",
    "x[:, [0, 2], [1, 3]]",
    "x[[[0, 1], [2, 3]]]",
    "x[[[0], [1]], [0, 2]]",
    "x[[0, 1], None, [1, 2]]",
    "x[None, [0, 1]]",
    "x[[]]",
    "x[:, []]",
    "x[[True, False, True, False]]",
    "x[:, [True, False, True]]",
    "x[True]",
    "x[False]",
    "x[..., [4, -5]]",
    "x[np.int64(2)]",
    "x[np.array(2)]",
    "x[np.array([1, 1])]",
    "x[np.array([1], 'uint8')]",
    "x[x > 30]",
    "x[x[:, :, 0] % 2 == 0]",
    "x[x[0, 0] % 2 == 0] if False else x[..., x[0, 0] % 2 == 0]",
    "x[0][1][2]",
    "x[1:, [0, 1], 2:4]",
    "x[::2, 1, [0, 4]]",
    "x[[1], 0:2, 2]",
    "x[range(0, 4, 2)]",
    "x[memoryview(np.array([2, 0]))]",
    "x[np.True_]",
    "x[0, True]",
    "x[True, [0, 1], :, [1, 2]]",
    "x[[0, 1], ..., [0, 1], [2, 2]]",
    "x[:, [0, 1], ..., [2, 2]]",
    "x[[(0, 1), (1, 2)]]",
]


@pytest.mark.parametrize("form", FORMS)
def test_reading_forms(form):
    want = eval(form, {"x": X, "np": np})
    check_equal(eval(form, {"x": mx.array(X), "np": np}), np.array(want), form)


@pytest.mark.parametrize("form", [f for f in FORMS if " if " not in f and "][1]" not in f])
def test_assigning_forms(form):
    want, got = X.copy(), mx.array(X)
    statement = form + " = 7"
    exec(statement, {"x": want, "np": np})
    exec(statement, {"x": got, "np": np})
    check_equal(got, want, statement)


ERRORS = [
    ("x[4]", IndexError, "index 4 is out of range for axis 0 of size 4"),
    ("x[0, -4]", IndexError, "index -4 is out of range for axis 1 of size 3"),
    ("x[2**32]", IndexError, "4294967296"),
    ("x[2**70]", IndexError, "out of range"),
    ("x[:2**32]", IndexError, "must fit 32 bits"),
    ("x[0, 0, 0, 0]", IndexError, "4 indices for an array of 3 axes"),
    ("x[..., ...]", IndexError, "2 ellipses"),
    ("x['a':]", TypeError, "a str was given for axis 0; it must be an int, or None"),
    ("x[1.0]", IndexError, "a float is no index"),
    ("x['a']", IndexError, "a str is no index"),
    ("x[mx.array([1.0])]", IndexError, "float32"),
    ("x[::0]", ValueError, "zero"),
    ("x[mx.array([True, False])]", IndexError, r"mask of shape \(2,\)"),
    ("x[[0, 1], [0, 1, 2]]", ValueError, "broadcast"),
    ("mx.array(3)[0]", IndexError, "1 indices for an array of 0 axes"),
    ("mx.eval(x[mx.array([9])])", IndexError, "9"),
    ("mx.eval(x[mx.array([0, -5])])", IndexError, "-5"),
    ("x.at.add(1)", ValueError, "no index was given"),
    ("x.__setitem__(0, mx.zeros((2,)))", ValueError, "broadcast"),
    ("x.__setitem__(0, None)", TypeError, "None"),
    ("x.__setitem__(0, 2**40)", OverflowError, "1099511627776"),
    ("x.__setitem__(9, 1)", IndexError, "index 9 is out of range"),
    ("x[-2**63]", IndexError, "index -9223372036854775808 is out of range for axis 0 of size 4"),
    ("x[:, {1}]", IndexError, "a set is no index"),
    ("x.__setitem__(0, mx.zeros((2, 5)))", ValueError, r"\[index\] .*\(2, 5\).*\(3, 5\)"),
    ("mx.zeros((0, 2))[mx.array([0])]", IndexError, "axis 0 of size 0"),
    ("mx.take(mx.zeros((0,)), 0)", IndexError, "axis 0 of size 0"),
    ("mx.eval(mx.take(x, mx.array([3]), 1))", IndexError, "index 3 .* axis 1 of size 3"),
    ("mx.eval(mx.put_along_axis(x, mx.array([[[5]]]), mx.array(1), 2))", IndexError, "index 5 .*"),
    ("mx.eval(mx.slice(x, mx.array([4]), (2,), (4, 3, 2)))", IndexError, "index 4 .* 0 to 3"),
    ("mx.slice(x, mx.array([0]), (2,), (4, 3, 6))", ValueError, "size 6 along axis 2"),
    ("mx.slice(x, mx.array([0]), (1, 2), (4, 3, 1))", ValueError, "1 elements for 2 axes"),
    ("mx.slice(x, mx.array([0, 0]), (1, -2), (4, 1, 1))", ValueError, "axis"),
    ("mx.slice_update(x, mx.zeros((6,)), mx.array([0]), (2,))", ValueError, r"\(6,\)"),
    ("mx.slice_update(x, mx.zeros((1, 1, 1, 1)), mx.array([0]), (2,))", ValueError, "more axes"),
]


@pytest.mark.parametrize("code, error, text", ERRORS)
def test_errors(code, error, text):
    with pytest.raises(error, match=text):
        eval(code, {"x": mx.array(X), "mx": mx})


def test_indices_past_int64_are_shown_as_they_are():
    for index in (2**63, 2**64 - 1):
        at = mx.array([0, index], dtype=mx.uint64)
        for f in (mx.take, lambda x, at: x.at[at].add(1)):
            with pytest.raises(IndexError, match=f"index {index} is out of range for axis 0"):
                mx.eval(f(mx.zeros((3,)), at))


def test_ops_that_gather_inside_are_named():
    """With the line of the user, of whatever ops they are made."""

    def line_of(f, name):
        y = f()
        with pytest.raises(IndexError, match=rf"\[{name}\].*test_index.py:") as caught:
            mx.eval(y)
        return int(str(caught.value).rpartition("test_index.py:")[2].split(")")[0].split(",")[0])

    here = line_of.__code__.co_firstlineno
    a = mx.ones((2, 3, 4))
    loss = line_of(
        lambda: mx.fast.cross_entropy(mx.ones((2, 3)), mx.array([1, 5])), "cross_entropy"
    )
    product = line_of(
        lambda: mx.gather_mm(a, mx.ones((2, 4, 5)), None, mx.array([0, 7])), "gather_mm"
    )
    assert here < loss < product


def test_masked_assignment_of_rows():
    x = mx.array(X)
    mask = mx.array([True, False, False, True])
    rows = mx.array(filled((2, 3, 5)) + 100)
    x[mask] = rows
    want = X.copy()
    want[[True, False, False, True]] = filled((2, 3, 5)) + 100
    check_equal(x, want, "rows")
    # As in MLX, the rows that the mask does not reach are ignored.
    y = mx.array(X)
    y[mask] = mx.array(filled((4, 3, 5)) + 100)
    check_equal(y, want, "first rows")


def assign(x, mask, value):
    x = x[...]
    x[mask] = value
    return x


def assigned(x, mask, value):
    """By NumPy, of the first rows of the value."""
    x, rows = x.copy(), value.reshape(value.shape[value.ndim - (x.ndim - mask.ndim) - 1 :])
    x[mask] = rows if len(rows) == 1 else rows[: np.count_nonzero(mask)]
    return x


MASKS = {  # shapes of the array, the mask and the value
    "all axes": ((4, 3, 5), (4, 3, 5), (60,)),
    "leading axes": ((4, 3, 5), (4, 3), (12, 5)),
    "rows": ((4, 3), (4,), (4, 3)),
    "rows of one number": ((4, 3), (4,), (4, 1)),
    "one row": ((4, 3), (4,), (1, 3)),
    "axes of size 1 in front": ((6,), (6,), (1, 6)),
    "nothing": ((0, 3), (0,), (4, 3)),
}


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
@pytest.mark.parametrize("case", MASKS)
def test_masked_assignment_in_a_trace(rng, case, dtype):
    """The k-th place that the mask chooses takes the k-th row."""
    shape, mask_shape, value_shape = MASKS[case]
    for share in (0, 0.4, 1):
        x, value = ((rng.standard_normal((2, *s)) * 9).astype(dtype) for s in (shape, value_shape))
        mask = rng.random((2, *mask_shape)) < share
        want = np.stack([assigned(x[i], mask[i], value[i]) for i in range(2)])
        a, m, v = mx.array(x), mx.array(mask), mx.array(value)
        compiled = mx.compile(assign)
        for i in range(2):
            check_equal(compiled(a[i], m[i], v[i]), want[i], "compiled")
            inside = mx.compile(lambda a, v, m=m[i]: assign(a, m, v))
            check_equal(inside(a[i], v[i]), want[i], "of a mask from outside")
        check_equal(mx.vmap(assign)(a, m, v), want, "vmap")
        check_equal(mx.compile(mx.vmap(assign))(a, m, v), want, "compiled vmap")
        ours = mx.vmap(assign, in_axes=(None, 0, None))(a[0], m, v[0])
        want = np.stack([assigned(x[0], mask[i], value[0]) for i in range(2)])
        check_equal(ours, want, "vmap of the mask alone")


def test_masked_assignment_in_a_trace_of_computed_masks():
    def f(x, v):
        x = x * 1
        x[x > 0] = v
        return x

    x, v = mx.array([1.0, -2.0, 3.0, -4.0]), mx.array([7.0, 8.0, 9.0, 10.0])
    assert mx.compile(f)(x, v).tolist() == [7, -2, 8, -4]
    gradient = mx.grad(lambda x, v: (f(x, v) * mx.arange(1, 5)).sum(), argnums=(0, 1))
    for g in (gradient, mx.compile(gradient)):
        assert [r.tolist() for r in g(x, v)] == [[0, 2, 0, 4], [1, 3, 0, 0]]
    m = mx.array([True, False, True, True])
    add = mx.compile(lambda x, m, v: x.at[m].add(v))
    assert add(x, m, v).tolist() == x.at[m].add(v[:3]).tolist() == [8, -2, 11, 5]


def test_masks_in_a_trace_that_need_values():
    x, m = mx.ones((4,)), mx.array([True, False, True, True])
    few = mx.compile(assign)(x, m, mx.array([7.0, 8.0]))
    with pytest.raises(IndexError, match="index 2 is out of range for axis 0 of size 2"):
        few.tolist()
    none = mx.compile(assign)(x, m, mx.zeros((0,)))
    with pytest.raises(IndexError, match="out of range for axis 0"):
        none.tolist()
    assert mx.compile(assign)(x, m & False, mx.zeros((0,))).tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match=r"\(2, 2\) for the places that a mask of shape \(4,\)"):
        mx.compile(assign)(x, m, mx.ones((2, 2)))


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
@pytest.mark.parametrize("shape", [(1,), (4095,), (4096,), (70_001,), (130, 257), (9, 40, 41)])
def test_masks_larger_than_a_block(rng, shape, share):
    """What a mask chooses is counted and numbered block by block."""
    x, mask = rng.standard_normal(shape).astype(np.float32), rng.random(shape) < share
    a, m = mx.array(x), mx.array(mask)
    check_equal(a[m], x[mask], "all axes")
    if len(shape) > 1:
        first = (slice(None), *[0] * (len(shape) - 1))
        check_equal(a[m[first]], x[mask[first]], "leading axis")
        check_equal(a[:, m[0]], x[:, mask[0]], "behind a slice")
        check_equal(a.T[m.T], x.T[mask.T], "transposed")
    values = np.arange(np.count_nonzero(mask), dtype=np.float32)
    a[m], x[mask] = mx.array(values), values
    check_equal(a, x, "assignment")


@pytest.mark.parametrize("width", [100, 128, 129, 1000])
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_wide_rows_at_repeated_indices(rng, rows, width):
    """Sums round as if the updates came one after the other, whoever makes them."""
    x = rng.standard_normal((rows, width)).astype(np.float32)
    at = rng.integers(-rows, rows, size=500).astype(np.int32)
    updates = rng.standard_normal((500, width)).astype(np.float32)
    want = x.copy()
    np.add.at(want, at, updates)
    check_equal(mx.array(x).at[mx.array(at)].add(mx.array(updates)), want, "rows")
    cubes, want = x.reshape(rows, 1, width).repeat(3, 1), x.reshape(rows, 1, width).repeat(3, 1)
    inner = rng.integers(0, 3, size=500).astype(np.int32)
    np.add.at(want, (at, inner), updates)
    got = mx.array(cubes).at[mx.array(at), mx.array(inner)].add(mx.array(updates))
    check_equal(got, want, "two index arrays")


@pytest.mark.parametrize(
    "shape", [(90000, 1), (3000, 28), (700, 100), (300, 255), (2, 257), (60, 3, 400), (50, 300, 5)]
)
def test_repeated_indices_over_several_axes(rng, shape):
    """As a histogram for each column of a table: an axis of any length is innermost."""
    at = rng.integers(0, 5000, size=shape).astype(np.int32)
    updates = rng.standard_normal((*shape[:-1], 1)).astype(np.float32)
    x = rng.standard_normal(5000 + shape[-1]).astype(np.float32)
    apart = np.arange(shape[-1], dtype=np.int32)
    got = mx.array(x).at[mx.array(at) + mx.array(apart)].add(mx.array(updates))
    multiplied = mx.array(x).at[mx.array(at) + mx.array(apart)].multiply(mx.array(updates))
    want, product = x.copy(), x.copy()
    np.add.at(want, at + apart, updates)
    np.multiply.at(product, at + apart, updates)
    check_equal(got, want, "sums")
    check_equal(multiplied, product, "products")


def test_assignment_moves_the_object_only():
    a = mx.zeros((3,))
    same, result = a, a * 1
    a[0] = 1
    a += 1
    assert same.tolist() == [2, 1, 1] and same is a
    assert result.tolist() == [0, 0, 0]


def test_assignment_casts_to_the_array():
    a = mx.array([1, 2, 3])
    a[0] = 1.7
    a[1:] = mx.array([5.5, 6.5])
    assert a.tolist() == [1, 5, 6] and a.dtype == mx.int32


def test_integer_division_at_repeated_indices():
    a = mx.array([40, 41, 42])
    assert a.at[mx.array([0, 0, 2])].divide(2).tolist() == [10, 41, 21]


def test_gradient_through_indexing():
    def loss(x):
        picked = x[1:, [0, 0, 2]]
        return (picked * picked).sum() + x.at[0, 0].add(x[2, 1])[0, 0]

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    want = np.zeros_like(x)
    for i in range(1, 3):
        for j in (0, 0, 2):
            want[i, j] += 2 * x[i, j]
    want[0, 0] += 1
    want[2, 1] += 1
    np.testing.assert_array_equal(np.array(mx.grad(loss)(mx.array(x))), want)


@pytest.mark.parametrize("name, sign", [("maximum", 1.0), ("minimum", -1.0)])
@pytest.mark.parametrize(
    "places", [mx.array([0, 0, 1, 3]), np.s_[:4], (mx.array([1, 1, 0, 1]),), mx.array([2, 2, 2, 2])]
)
def test_ties_of_extremes_share_the_derivative(name, sign, places):
    """Where all that is equal moves alike, the extremum moves as much."""
    x = sign * mx.array([3.0, 1.0, 3.0, 5.0, 3.0])
    u = sign * mx.array([3.0, 3.0, 3.0, 3.0])

    def f(x, u):
        return getattr(x.at[places], name)(u)

    ones = [mx.ones_like(x), mx.ones_like(u)]
    assert mx.jvp(f, [x, u], ones)[1][0].tolist() == [1.0] * 5
    of_x, of_u = mx.grad(lambda x, u: f(x, u).sum(), argnums=(0, 1))(x, u)
    assert of_x.sum().item() + of_u.sum().item() == pytest.approx(5.0)
    assert mx.jvp(f, [x, u], [ones[0], 0 * u])[1][0].tolist() == of_x.tolist()
    assert set(of_x.tolist()) == {0.0, 1.0}  # an update goes before what was there


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("shape", [(9,), (5, 300), (7, 3, 40)])
def test_complex_numbers_at_repeated_indices(rng, name, shape):
    """Gaussian integers and powers of i, so that no order of the operations rounds."""
    at = rng.integers(-shape[0], shape[0], size=30)
    parts = rng.integers(-4, 5, size=(2, *shape))
    x = (parts[0] + 1j * parts[1]).astype(np.complex64)
    powers = rng.integers(0, 4, size=(30, *shape[1:]))
    value = ((1j**powers) * 2.0 ** rng.integers(-1, 2, size=powers.shape)).astype(np.complex64)
    want = x.copy()
    UPDATES[name].at(want, at, value)
    got = getattr(mx.array(x).at[mx.array(at)], name)(mx.array(value))
    check_equal(got, want, f"{shape} {name}")
    if len(shape) > 1:
        slices = (slice(1, None, 2), slice(None, None, -1))
        want = x.copy()
        UPDATES[name].at(want, slices, value[0, :1])
        check_equal(getattr(mx.array(x).at[slices], name)(mx.array(value[0, :1])), want, "slice")


def test_nan_of_complex_numbers_at_repeated_indices():
    nan = complex(np.nan, 1)
    for name in ("maximum", "minimum"):
        x, value = np.array([1 + 2j, nan, 3]), np.array([5, 7, nan, 2j])
        want = x.copy()
        UPDATES[name].at(want, [0, 1, 2, 0], value)
        at = mx.array(x, mx.complex64).at[mx.array([0, 1, 2, 0])]
        got = np.array(getattr(at, name)(mx.array(value, mx.complex64)))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        assert got[0] == want[0]


def test_put_along_axis(rng):
    for _ in range(60):
        shape = random_shape(rng)
        axis = int(rng.integers(-len(shape), len(shape)))
        taken = list(shape)
        taken[axis] = int(rng.integers(1, shape[axis] + 1))
        # Each index once along the axis: which of several values stays is open.
        order = np.argsort(rng.random(shape), axis=axis)
        index = np.take(order, range(taken[axis]), axis=axis)
        index = np.where(rng.random(taken) < 0.5, index, index - shape[axis])
        x, value = filled(shape), rng.integers(100, 200, size=taken).astype(np.int32)
        want = x.copy()
        np.put_along_axis(want, index, value, axis)
        got = mx.put_along_axis(mx.array(x), mx.array(index), mx.array(value), axis)
        check_equal(got, want, f"{shape} {index} {axis}")
        flat = np.unique(rng.integers(0, x.size, size=3))
        want = x.copy()
        np.put_along_axis(want, flat, np.int32(5), None)
        check_equal(mx.put_along_axis(mx.array(x), mx.array(flat), mx.array(5)), want, "flat")


def test_slices_at_computed_starts(rng):
    for _ in range(60):
        shape = random_shape(rng)
        axes = [int(a) for a in rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)]]
        size = [int(rng.integers(1, n + 1)) for n in shape]
        start = [int(rng.integers(0, shape[a] - size[a] + 1)) for a in axes]
        place = [slice(0, n) for n in size]
        for a, s in zip(axes, start, strict=True):
            place[a] = slice(s, s + size[a])
        named = [a - len(shape) if rng.integers(2) else a for a in axes]
        x, at = filled(shape), mx.array(start, mx.int32)
        check_equal(mx.slice(mx.array(x), at, named, size), x[tuple(place)], f"{place}")
        update = rng.integers(100, 200, size=size[rng.integers(len(size)) :]).astype(np.int32)
        want = x.copy()
        covers = tuple(slice(p.start, p.start + n) for p, n in zip(place, size, strict=True))
        if update.ndim < len(shape):
            lead = len(shape) - update.ndim
            # Axes that the update lacks are filled, but for those where it is placed.
            filled_axes = (
                slice(p.start, p.start + 1) if i in axes else slice(None)
                for i, p in enumerate(place[:lead])
            )
            covers = tuple(filled_axes) + covers[lead:]
        want[covers] = update
        got = mx.slice_update(mx.array(x), mx.array(update), at, named)
        check_equal(got, want, f"{place} {update.shape}")


def test_computed_starts_are_compiled_once_and_batched():
    x = mx.array(X)
    f = mx.compile(lambda i: mx.slice(x, i, (0, 2), (2, 3, 2)))
    g = mx.compile(lambda i: mx.slice_update(x, mx.zeros((1, 3, 2), mx.int32), i, (0, 2)))
    for i in ([0, 3], [2, 0], [1, 1]):
        check_equal(f(mx.array(i)), X[i[0] : i[0] + 2, :, i[1] : i[1] + 2], f"{i}")
        want = X.copy()
        want[i[0] : i[0] + 1, :, i[1] : i[1] + 2] = 0
        check_equal(g(mx.array(i)), want, f"{i}")
    starts = np.array([[0, 3], [2, 0], [1, 1]])
    got = mx.vmap(f)(mx.array(starts))
    check_equal(got, np.stack([X[i : i + 2, :, j : j + 2] for i, j in starts]), "batched")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_reading_constants_at_computed_places(rows):
    """A constant lies nowhere in memory; what is gathered from it is made in its readers."""
    w, i = filled((rows, 8)).astype(np.float32), mx.array(3)
    x = mx.full((64, 8), 2.5)
    check_equal(mx.ones((rows, 8)) * x[i][None] * mx.array(w), 2.5 * w, "gather")
    got = mx.cos(x[i][None] * mx.array(w)) * mx.full((64, 8), 3.0)[i][None]
    np.testing.assert_allclose(np.array(got), 3 * np.cos(2.5 * w), rtol=1e-5)
    at = mx.array([[3] * 8] * rows, mx.int32).reshape(rows, 8)
    check_equal(mx.take_along_axis(x, at, 0) * mx.array(w), 2.5 * w, "along an axis")


def test_iteration():
    assert [row.tolist() for row in mx.array([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert list(mx.zeros((0, 2))) == []
    a, b = mx.array([5, 6])
    assert (a.item(), b.item()) == (5, 6)
    with pytest.raises(TypeError, match="0-d"):
        iter(mx.array(1))


def repeated(rng, dtype, points, places, rows):
    """Indices of both signs, values that no order of sums rounds, factors, and what they change."""
    indices = rng.integers(-places, places, size=points).astype(np.int32)
    values = rng.integers(0, 3, size=(points, *rows)).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.integers(0, 3, size=values.shape).astype(dtype)
    factors = np.where(rng.random(values.shape) < 0.5, 1, -1 if values.dtype.kind != "u" else 1)
    start = rng.integers(0, 3, size=(places, *rows)).astype(dtype)
    return indices, values.astype(dtype), factors.astype(dtype), start


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize(
    "places, rows", [(1, ()), (7, ()), (300, ()), (3000, ()), (5, (3,)), (700, (70,))]
)
def test_many_updates_of_few_places(dtype, places, rows):
    """On both sides of the size from which updates go in parts."""
    rng = np.random.default_rng(places)
    points = 70_000 // int(np.prod(rows, dtype=int))
    indices, values, factors, start = repeated(rng, np.dtype(dtype), points, places, rows)
    at = mx.array(start).at[mx.array(indices)]
    for name in ("add", "multiply", "maximum", "minimum"):
        update = factors if name == "multiply" else values
        expected = start.copy()
        if dtype == "float16":
            expected = expected.astype(np.float32)
        UPDATES[name].at(expected, indices, update)
        got = np.array(getattr(at, name)(mx.array(update)))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, expected.astype(dtype), err_msg=name)


def test_updates_in_order_give_the_bits_of_numpy():
    """Below that size, or with many places: any values, added up in their order."""
    rng = np.random.default_rng(3)
    for points, places in ((60_000, 5), (300_000, 40_000)):
        indices = rng.integers(0, places, size=points).astype(np.int32)
        values = (rng.standard_normal(points) * 10.0 ** rng.integers(-8, 8, points)).astype(
            np.float32
        )
        expected = np.zeros(places, np.float32)
        np.add.at(expected, indices, values)
        got = mx.zeros((places,)).at[mx.array(indices)].add(mx.array(values))
        np.testing.assert_array_equal(np.array(got), expected)


@pytest.mark.parametrize("points", [1, 255, 256, 257, 70_001])
def test_updates_with_computed_values_at_computed_places(points):
    """What a point takes is made for a block of points ahead of them."""
    rng = np.random.default_rng(points)
    x, y = rng.standard_normal((2, points)).astype(np.float32)
    table = rng.standard_normal(100).astype(np.float32)
    pick = rng.integers(-100, 100, points)
    row = np.clip((x + 4) * np.float32(12), 0, 95).astype(np.int32)
    column = np.clip((y + 4) * np.float32(12), 0, 95).astype(np.int32)
    mx_row, mx_column = mx.array(row), mx.array(column)
    for start in (np.zeros((96, 96), np.float32), np.zeros((96, 96), np.complex64)):
        values = (x * x + np.float32(1)) * table[pick]
        made = (mx.array(x) * mx.array(x) + 1) * mx.array(table)[mx.array(pick)]
        if start.dtype == np.complex64:
            values, made = values + 1j * y, made + 1j * mx.array(y)
        np.add.at(start, (row, column), values)
        zeros = mx.zeros((96, 96), getattr(mx, str(start.dtype)))
        np.testing.assert_array_equal(np.array(zeros.at[mx_row, mx_column].add(made)), start)
        flat = zeros.reshape(-1).at[mx_row * 96 + mx_column].add(made)
        np.testing.assert_array_equal(np.array(flat), start.reshape(-1))


def test_sums_of_many_equal_values_do_not_stall():
    """2²⁵ ones in float32, where a running sum ends at 2²⁴."""
    count = mx.zeros((2,)).at[mx.zeros((1 << 25,), mx.int32)].add(1.0)
    assert count.tolist() == [1 << 25, 0]


def test_the_last_of_repeated_assignments_holds():
    rng = np.random.default_rng(4)
    for places, rows in ((9, ()), (5000, ()), (100, (65,))):
        indices = rng.integers(0, places, size=200_000 // int(np.prod(rows, dtype=int)))
        values = rng.standard_normal((indices.size, *rows)).astype(np.float32)
        expected = np.zeros((places, *rows), np.float32)
        expected[indices] = values
        x = mx.zeros((places, *rows))
        x[mx.array(indices.astype(np.int32))] = mx.array(values)
        np.testing.assert_array_equal(np.array(x), expected)


BITS = """
import sys, zlib
import numpy as np, cermet.core as mx
rng = np.random.default_rng(5)
for points, places, rows in (
    (1 << 20, 200, ()), (1 << 20, 90_000, ()), (1 << 14, 50, (64,)), (1 << 14, 3000, (64,))
):
    indices = mx.array(np.minimum(rng.integers(0, places, points), rng.integers(0, places, points)))
    values = mx.array(rng.standard_normal((points, *rows)).astype(np.float32))
    x = mx.zeros((places, *rows))
    assigned = mx.zeros((places, *rows))
    assigned[indices] = values
    looked_up = x.at[indices].add(values * values - values[indices % points])
    for result in (x.at[indices].add(values), x.at[indices].minimum(values), assigned, looked_up):
        print(zlib.crc32(np.array(result).tobytes()))
    cube = mx.array(rng.standard_normal((6, 40, *rows)).astype(np.float32))
    pick = mx.array(rng.integers(0, 40, (6, points // 6)))
    loss = lambda c: (mx.vmap(lambda a, i: a[i])(c, pick) ** 3).sum()
    print(zlib.crc32(np.array(mx.grad(loss)(cube)).tobytes()))
"""


def test_threads_do_not_change_the_bits_of_updates():
    """Of sums, extremes, assignments and gradients; and a run is like another."""

    def bits(threads):
        environment = {**os.environ, "CERMET_NUM_THREADS": str(threads)}
        done = subprocess.run(
            [sys.executable, "-c", BITS], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = bits(1)
    assert [bits(threads) for threads in (2, 3, 2)] == [first] * 3


def test_compiled_updates_have_the_bits_of_eager_ones():
    """For sizes on both sides of the one from which updates go in parts."""
    rng = np.random.default_rng(6)

    def f(x, indices, values):
        return x.at[indices].add(values)

    compiled = mx.compile(f)
    for points in (1000, 100_000, 2000, 70_000, 65_535):
        indices = mx.array(rng.integers(0, 17, points).astype(np.int32))
        values = mx.array(rng.standard_normal(points).astype(np.float32))
        got = [np.array(g(mx.zeros((17,)), indices, values)) for g in (f, compiled)]
        np.testing.assert_array_equal(*got)


def test_an_index_that_many_steps_have_made():
    x = np.arange(7.0)
    index, expected = mx.arange(5, dtype=mx.int64), np.arange(5)
    for _ in range(48):  # as many users of each step as there are ways to it
        index, expected = index + index, expected + expected
    index, expected = index // 2**48 % 7, expected // 2**48 % 7
    np.testing.assert_array_equal(np.array(mx.array(x)[index]), x[expected])


@pytest.mark.parametrize("shape", [(6_000_000,), (2_000_000, 3), (150_000, 40)])
def test_updates_of_elements_beyond_the_caches(shape):
    """In the order of the indices, so with NumPy's bits; of a set the last holds."""
    rng = np.random.default_rng(11)
    many = 120_000 if len(shape) == 1 else 20_000
    to = rng.standard_normal(shape).astype(np.float32)
    at = rng.integers(-shape[0], shape[0], many).astype(np.int32)
    at[1::3] = at[::3][: len(at[1::3])]
    values = rng.standard_normal((many, *shape[1:])).astype(np.float32)
    x, i, v = mx.array(to), mx.array(at), mx.array(values)
    for name, ufunc in (("add", np.add), ("maximum", np.maximum), ("multiply", np.multiply)):
        want = to.copy()
        ufunc.at(want, at, values)
        np.testing.assert_array_equal(np.array(getattr(x.at[i], name)(v)), want, err_msg=name)
    want = to.copy()
    for k in range(many):
        want[at[k]] = values[k]
    x[i] = v
    np.testing.assert_array_equal(np.array(x), want)
