# SPDX-License-Identifier: MIT
"""Scans, and functions that are made of other ops, against NumPy over all dtypes and nasty layouts;
einsum's plans against the MLX wheel's.
"""

import cermet.core as mx
import ml_dtypes
import mlx.core
import numpy as np
import own_process
import pytest
from test_ops_table import (
    LAYOUTS,
    NAMES,
    NUMPY,
    TABLE,
    dtypes_of,
    kind,
    kind_of,
    laid_out,
    same_turn,
    sample,
    to_numpy,
    to_ours,
    wheel_dtype,
    wide,
)

# --- scans: (NumPy's, where to sample, the dtype of the result or None for the operand's) ---

SCANS = {
    "cumsum": (np.add.accumulate, (-4, 4)),
    "cumprod": (np.multiply.accumulate, (0.98, 1.02)),
    "cummax": (np.maximum.accumulate, (-4, 4)),
    "cummin": (np.minimum.accumulate, (-4, 4)),
    "logcumsumexp": (lambda x, axis: log_sums(x, axis), (-4, 4)),
}


def log_sums(x, axis):
    return np.log(np.add.accumulate(np.exp(x), axis=axis))


def scan_of(name, x, axis, reverse, inclusive):
    """By NumPy, in a wide dtype; of integers in their own."""
    f = SCANS[name][0]
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    x = np.flip(x, axis) if reverse else x
    if x.size:
        with np.errstate(all="ignore"):
            x = f(x, axis=axis)
    if not inclusive:
        first = identity(name, x.dtype)
        size, axis = x.shape[axis], axis % x.ndim
        width = [(int(i == axis), 0) for i in range(x.ndim)]
        x = np.take(np.pad(x, width, constant_values=first), np.arange(size), axis)
    return np.flip(x, axis) if reverse else x


def identity(name, dtype):
    if name in ("cumsum", "cumprod"):
        return int(name == "cumprod")
    if name == "logcumsumexp" or dtype.kind in "fc":
        return np.inf if name == "cummin" else -np.inf
    if dtype.kind == "b":
        return name == "cummin"
    return np.iinfo(dtype).max if name == "cummin" else np.iinfo(dtype).min


def scan_operand(rng, name, shape, dtype):
    low, high = SCANS[name][1]
    return sample(
        rng, shape, dtype, (0.693, 0.721) if kind(dtype) == "c" and high < 2 else (low, high)
    )


@pytest.mark.parametrize("name", SCANS)
def test_scan(rng, name):
    for dtype in ["bool", *dtypes_of(TABLE[name])]:
        if kind(dtype) == "c" and name in ("cummax", "cummin"):
            continue  # NumPy orders complex numbers, but has no such ufunc
        for layout, (shape, _) in LAYOUTS.items():
            x, a = laid_out(scan_operand(rng, name, shape, dtype), layout)
            for axis in [None, 0, 1, -1] if x.ndim == 3 else [None]:
                for reverse, inclusive in (
                    (False, True),
                    (True, True),
                    (False, False),
                    (True, False),
                ):
                    got = getattr(mx, name)(a, axis, reverse=reverse, inclusive=inclusive)
                    what = f"{name}({dtype}, {layout}, {axis}, {reverse}, {inclusive})"
                    check_scan(name, got, x, (axis, reverse, inclusive), what)
        theirs = wheel_dtype(lambda m, x: getattr(m, name)(x), dtype)
        assert theirs in (None, NAMES[got.dtype]), f"{name}({dtype})"


def check_scan(name, got, x, how, what):
    out = to_numpy(got)
    source = wide(x)
    if source.dtype.kind in "biu" and out.dtype != source.dtype:
        source = source.astype(np.float64 if out.dtype.kind == "f" else out.dtype)
    want = scan_of(name, source, *how)
    assert out.shape == want.shape, what
    if out.dtype.kind in "biu" or name in ("cummax", "cummin"):
        np.testing.assert_array_equal(out, want.astype(out.dtype), err_msg=what)
        return
    # Sums of both signs cancel: their rounding is that of the sum of magnitudes.
    size = np.max(scan_of(name, np.abs(source), *how), initial=1) if name == "cumsum" else 1
    epsilon = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "complex64": 4e-6}
    limit = epsilon.get(out.dtype.name, 1e-13) * (4 if name == "cumprod" else 1)
    wide_out = out.astype(np.complex128 if out.dtype.kind == "c" else np.float64)
    want = want.astype(wide_out.dtype)
    if out.dtype.kind == "c" and name == "logcumsumexp":
        want = np.where(np.isfinite(want), same_turn(want, wide_out), want)
        limit *= 20  # complex terms cancel in the sum
        finite = np.isfinite(want)
        want, wide_out = want[finite], wide_out[finite]
    np.testing.assert_allclose(
        wide_out, want, rtol=limit, atol=limit * float(np.abs(size)), err_msg=what
    )


@pytest.mark.parametrize(
    "shape, axis", [((3, 5000), 1), ((5000, 7), 0), ((70001,), 0), ((2, 300, 5), 1)]
)
@pytest.mark.parametrize("name", SCANS)
def test_long_scans(rng, name, shape, axis):
    """Over many blocks, fused with what is before and after, and the same bits alone."""
    for dtype in ("float32", "float64", "int32"):
        x = scan_operand(rng, name, shape, dtype)
        a = to_ours(x)
        for reverse in (False, True):
            alone = getattr(mx, name)(a, axis, reverse=reverse)
            check_scan(name, alone, x, (axis, reverse, True), f"{name}({dtype}, {shape})")
            fused = mx.negative(
                getattr(mx, name)(mx.negative(mx.negative(a)), axis, reverse=reverse)
            )
            np.testing.assert_array_equal(to_numpy(-fused), to_numpy(alone))


@pytest.mark.parametrize("axes", [(1, 0), (0, 1), (2, 0), (0, 2)])
def test_scans_along_an_axis_of_one_element(rng, axes):
    """They change nothing, and nothing of the scans beside them."""
    x = rng.integers(-9, 9, (1, 5, 64)).astype(np.int32)
    want = np.cumsum(x, axis=max(axes))
    got = mx.cumsum(mx.cumsum(mx.array(x), axis=axes[0]), axis=axes[1])
    np.testing.assert_array_equal(to_numpy(got), want)
    first = mx.cumsum(mx.array(x), axis=max(axes))
    results = first + 1, mx.cummin(first, axis=0, reverse=True)
    mx.eval(results)
    np.testing.assert_array_equal(to_numpy(results[0]), want + 1)
    np.testing.assert_array_equal(to_numpy(results[1]), want)


def test_scans_of_several_axes_as_one_beside_their_transpose(rng):
    """The order of the scan is its own, whatever else the kernel makes of the elements."""
    x = rng.integers(-9, 9, (33, 8)).astype(np.int32)
    a = mx.array(x) * 3
    results = mx.cumsum(a.flatten()), mx.contiguous(a.T), mx.concatenate([a.flatten(), a.flatten()])
    mx.eval(results)
    np.testing.assert_array_equal(to_numpy(results[0]), np.cumsum(x * 3))
    np.testing.assert_array_equal(to_numpy(results[1]), x.T * 3)


def test_scans_of_special_values():
    nan, inf = np.nan, np.inf
    x = np.array([-inf, -inf, 1, inf, inf, 2, nan, 3], np.float32)
    with np.errstate(all="ignore"):
        want = np.logaddexp.accumulate(x)
    np.testing.assert_allclose(to_numpy(mx.logcumsumexp(mx.array(x))), want, rtol=1e-6)
    for name in ("cummax", "cummin", "cumsum", "cumprod"):
        with np.errstate(all="ignore"):
            want = SCANS[name][0](x)
        np.testing.assert_array_equal(to_numpy(getattr(mx, name)(mx.array(x))), want)


# --- functions that are made of others: (ours, NumPy's) on one operand of shape (6, 5, 70) ---

REAL = "biuf"
COMPOSED = {
    "roll": (lambda x: mx.roll(x, (2, -71), (0, 2)), lambda x: np.roll(x, (2, -71), (0, 2))),
    "roll of all": (lambda x: mx.roll(x, 7), lambda x: np.roll(x, 7)),
    "meshgrid": (
        lambda x: mx.stack(mx.meshgrid(x[:, 0, 0], x[0, :, 1], x[0, 0, :3])),
        lambda x: np.stack(np.meshgrid(x[:, 0, 0], x[0, :, 1], x[0, 0, :3])),
    ),
    "meshgrid ij": (
        lambda x: mx.stack(mx.meshgrid(x[:, 0, 0], x[0, :, 1], indexing="ij")),
        lambda x: np.stack(np.meshgrid(x[:, 0, 0], x[0, :, 1], indexing="ij")),
    ),
    "unstack": (lambda x: mx.unstack(x, axis=1)[3], lambda x: np.moveaxis(x, 1, 0)[3]),
    "atleast_2d": (lambda x: mx.atleast_2d(x[0, 0]), lambda x: np.atleast_2d(x[0, 0])),
    "atleast_3d": (lambda x: mx.atleast_3d(x[0]), lambda x: np.atleast_3d(x[0])),
    "diff": (lambda x: mx.diff(x, 2, 1), lambda x: np.diff(x, 2, 1)),
    "trace": (
        lambda x: mx.trace(x, 1, 0, 1),
        lambda x: np.trace(wide(x), 1, 0, 1, None if kind_of(x) in "fc" else np.int64),
    ),
    "moveaxis": (lambda x: mx.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "unflatten": (lambda x: mx.unflatten(x, -1, (7, -1)), lambda x: x.reshape(6, 5, 7, 10)),
    "count_nonzero": (
        lambda x: mx.count_nonzero(x, axis=(0, 2)),
        lambda x: np.count_nonzero(x, axis=(0, 2)),
    ),
    "minmax": (
        lambda x: mx.stack(mx.minmax(x, 1)),
        lambda x: np.stack([np.min(x, 1), np.max(x, 1)]),
    ),
    "nan_to_num": (lambda x: mx.nan_to_num(x), lambda x: x),
    "outer": (lambda x: mx.outer(x[0], x[1]), lambda x: np.outer(wide(x[0]), wide(x[1]))),
    "inner": (lambda x: mx.inner(x[0], x[1, :2]), lambda x: np.inner(long(x[0]), long(x[1, :2]))),
    "kron": (lambda x: mx.kron(x[0, 0], x[1]), lambda x: np.kron(wide(x[0, 0]), wide(x[1]))),
    "vecdot": (
        lambda x: mx.vecdot(x, x[::-1]),
        lambda x: np.sum(np.conj(long(x)) * long(x[::-1]), -1),
    ),
    "tensordot": (
        lambda x: mx.tensordot(x, x[:, :4], [[0, 2], [0, 2]]),
        lambda x: np.tensordot(long(x), long(x[:, :4]), [[0, 2], [0, 2]]),
    ),
    "matmul": (
        lambda x: x @ mx.swapaxes(x, 1, 2),
        lambda x: np.matmul(long(x), np.swapaxes(long(x), 1, 2)),
    ),
    "matmul, vectors": (lambda x: x @ x[0, 0], lambda x: np.matmul(long(x), long(x[0, 0]))),
    "vector, matmul": (
        lambda x: x[0, :, 0] @ x,
        lambda x: np.matmul(long(x[0, :, 0]), long(x)),
    ),
    "einsum, product": (
        lambda x: mx.einsum("aij,ajk->ik", x, mx.swapaxes(x, 1, 2)),
        lambda x: np.einsum("aij,ajk->ik", long(x), np.swapaxes(long(x), 1, 2)),
    ),
    "einsum, diagonal": (
        lambda x: mx.einsum("iij->ij", x[:5]),
        lambda x: np.einsum("iij->ij", x[:5]),
    ),
    "einsum, ellipsis": (
        lambda x: mx.einsum("...j,j...->...", x, mx.moveaxis(x, 2, 0)),
        lambda x: np.einsum("...j,j...->...", long(x), np.moveaxis(long(x), 2, 0)),
    ),
    "einsum, three": (
        lambda x: mx.einsum("aij,aj,i", x, x[:, 0], x[0, :, 0]),
        lambda x: np.einsum("aij,aj,i", long(x), long(x[:, 0]), long(x[0, :, 0])),
    ),
}


def long(x):
    """The same values in a dtype whose sums do not overflow."""
    return wide(x) if kind_of(x) in "fc" else x.astype(np.int64)


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(rng, name):
    ours, theirs = COMPOSED[name]
    for dtype in NAMES.values():
        for layout in ("contiguous", "transposed", "reversed", "strided", "broadcast"):
            x, a = laid_out(sample(rng, LAYOUTS[layout][0], dtype, (0, 4)), layout)
            got, want = to_numpy(ours(a)), theirs(x)
            what = f"{name}({dtype}, {layout})"
            assert got.shape == want.shape, what
            if kind_of(got) in "biu":
                np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=what)
                continue
            wide_dtype = np.complex128 if got.dtype.kind == "c" else np.float64
            limit = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-13, "complex128": 1e-13}
            limit = limit.get(got.dtype.name, 4e-6)
            np.testing.assert_allclose(
                got.astype(wide_dtype),
                want.astype(wide_dtype),
                rtol=limit,
                atol=limit * float(np.max(np.abs(want.astype(wide_dtype)), initial=1)),
                err_msg=what,
            )


def integers(rng, shape, dtype):
    """Of all values, the least and the largest ones more often."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    ends = rng.choice(np.array([info.min, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.25, ends, values)


def exact_product(x, y, dtype):
    """Modulo 2 to the width."""
    x, y = (a.astype(np.int64).astype(np.uint64) for a in (x, y))
    return np.matmul(x, y).astype(dtype)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool"]
# a few of each kind of blocks: single tiles, rows and columns past them, long sums, batches
INTEGER_SHAPES = [
    ((3, 5), (5, 4)),
    ((20, 300), (300, 30)),
    ((2, 3000), (3000, 3)),
    ((70, 16384), (16384, 17)),
    ((300, 1030), (1030, 70)),
    ((3, 0), (0, 4)),
    ((3, 33, 65), (3, 65, 18)),
    ((2, 1, 5, 7), (3, 7, 6)),
    ((40, 9), (9,)),
    ((9,), (9, 40)),
]


@pytest.mark.parametrize("shapes", INTEGER_SHAPES, ids=str)
@pytest.mark.parametrize(
    "dtypes",
    [(d, d) for d in INTEGERS] + [("int8", "uint8"), ("uint8", "int8"), ("bool", "int8")],
    ids="-".join,
)
def test_integer_matmul_is_exact(rng, dtypes, shapes):
    x, y = (integers(rng, s, d) for s, d in zip(shapes, dtypes, strict=True))
    got = to_numpy(to_ours(x) @ to_ours(y))
    assert got.dtype.itemsize >= 4
    want = exact_product(x, y, got.dtype)
    np.testing.assert_array_equal(got, want)
    if y.ndim > 1:
        turned = mx.swapaxes(mx.contiguous(mx.swapaxes(to_ours(y), -1, -2)), -1, -2)
        np.testing.assert_array_equal(to_numpy(to_ours(x) @ turned), want)
    if x.ndim > 1:
        turned = mx.swapaxes(mx.contiguous(mx.swapaxes(to_ours(x), -1, -2)), -1, -2)
        np.testing.assert_array_equal(to_numpy(turned @ to_ours(y)), want)


def test_matmul_of_quantised_values(rng):
    """What quantises and what scales is in the product's own kernel."""
    x = rng.uniform(-4, 4, (64, 96)).astype(np.float32)
    w = integers(rng, (96, 80), "int8")
    scale = rng.uniform(0.5, 1, 80).astype(np.float32)

    def product(x, w, scale):
        return (mx.round(x * 31).astype(mx.int8) @ w).astype(mx.float32) * scale

    assert len(mx.explain(product, to_ours(x), to_ours(w), to_ours(scale)).kernels) == 1
    narrow = np.round(x * np.float32(31)).astype(np.int8)
    want = exact_product(narrow, w, np.int32).astype(np.float32) * scale
    np.testing.assert_array_equal(to_numpy(product(to_ours(x), to_ours(w), to_ours(scale))), want)


@pytest.mark.parametrize(
    "level, schemes",
    [
        ("generic", ["dot_int16", "dot_int16", "dot_int16", "fma"]),
        ("amx_emulated", ["amx_int8", "amx_int8", "dot_int16", "fma"]),
    ],
)
def test_integer_matmul_on_other_processors(level, schemes):
    """With memory that ends where the operands end, and an operand of two products."""
    script = """
    import numpy as np
    import cermet.core as mx
    rng = np.random.default_rng(0)
    for dtype in ("int8", "uint8", "int16", "uint16"):
        info = np.iinfo(dtype)
        x, y = (rng.integers(info.min, info.max, s, dtype=dtype, endpoint=True)
                for s in ((37, 301), (301, 53)))
        a, b = mx.array(x), mx.array(y)
        first, second = a @ b, a @ (b + 1)
        mx.eval(first, second)
        for got, y in ((first, y), (second, y + np.array(1, dtype))):
            want = x.astype(np.int64).astype(np.uint64) @ y.astype(np.int64).astype(np.uint64)
            assert np.array_equal(np.array(got), want.astype(np.array(got).dtype)), dtype
        print(mx.explain(lambda a, b: a @ b, a, b).kernels[0].scheme)
    """
    printed = own_process.run(script, CERMET_CPU_FEATURES=level, CERMET_ALLOCATOR="guard")
    assert printed.split() == schemes


EQUATIONS = [
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,kl,lm", (2, 30), (30, 4), (4, 50), (50, 3)),
    ("ea,fb,abcd,gc,hd->efgh", (3, 4), (2, 3), (4, 3, 2, 5), (2, 2), (3, 5)),
    ("ab,bc,cd,de,ef,fg->ag", (2, 3), (3, 4), (4, 2), (2, 5), (5, 3), (3, 2)),
    ("...ij,...jk->...ik", (3, 1, 2, 3), (4, 3, 2)),
    ("i...,i...->...", (3, 4, 5), (3, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("aab,bc->ac", (2, 2, 3), (3, 4)),
    ("ijk->kj", (2, 3, 4)),
    ("ii", (4, 4)),
    (",ij", (), (2, 3)),
    ("ij,kl->", (2, 3), (4, 5)),
    ("i,i,i->i", (4,), (4,), (4,)),
]


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS])
def test_einsum(rng, equation, shapes):
    xs = [rng.uniform(-1, 1, s) for s in shapes]
    got = mx.einsum(equation, *(mx.array(x, mx.float64) for x in xs))
    np.testing.assert_allclose(to_numpy(got), np.einsum(equation, *xs), rtol=1e-12, atol=1e-13)
    path, text = mx.einsum_path(equation, *(mx.ones(s) for s in shapes))
    assert f"Complete contraction:  {equation}" in text
    assert len(path) == max(len(shapes) - 1, 1)
    if len(shapes) < 4:
        _, theirs = mlx.core.einsum_path(equation, *(mlx.core.ones(s) for s in shapes))
        *said, count = text.rsplit(maxsplit=1)
        *they_said, their_count = theirs.rsplit(maxsplit=1)
        assert said == they_said and int(count) <= int(their_count)


@pytest.mark.parametrize("shift", [2**63 - 1, -(2**63), (2**62, 2**62), (-(2**63), 3)])
def test_roll_far(shift):
    total = sum(shift) if isinstance(shift, tuple) else shift
    np.testing.assert_array_equal(
        to_numpy(mx.roll(mx.arange(5), shift)), np.roll(range(5), total % 5)
    )


@pytest.mark.parametrize("offset", [2**63 - 1, -(2**63), 5, -3])
def test_diagonal_past_the_corners(offset):
    assert mx.diagonal(mx.ones((3, 4)), offset).shape == (0,)


@pytest.mark.parametrize("name", ["bartlett", "hanning", "hamming", "blackman"])
def test_windows(name):
    for size in (-1, 0, 1, 2, 5, 8, 1001):
        got = getattr(mx, name)(size)
        assert got.dtype == mx.float32
        np.testing.assert_allclose(to_numpy(got), getattr(np, name)(size), rtol=0, atol=6e-8)


def test_views_of_other_dtypes(rng):
    """Bits between every two dtypes, as NumPy views them."""
    bits = rng.integers(0, 256, (3, 64), dtype=np.uint8)
    for source in NAMES.values():
        for target in NAMES.values():
            if "bool" in (source, target):
                continue
            x = bits.view(NUMPY[source])
            x = np.where(x == x, x, np.zeros(1, x.dtype))  # no NaN: which one is left open
            got = to_ours(x).view(getattr(mx, target))
            want = np.ascontiguousarray(x).view(NUMPY[target])
            got, want = wide(to_numpy(got)), wide(want)
            np.testing.assert_array_equal(got, want, f"{source} as {target}")


def test_sums_of_views_of_bits(rng):
    """Of a few numbers each, and of many: the numbers are those of the bits."""
    x = rng.standard_normal((8192, 2)).astype(np.float32)
    for bits in (x, x.reshape(2, -1)):
        got = mx.sum(mx.array(bits.view(np.int32)).view(mx.float32), axis=-1)
        np.testing.assert_allclose(np.array(got), bits.sum(-1), rtol=1e-5, atol=1e-5)


LAID_OUT = (
    lambda x: x,
    lambda x: x[1:, 3:],
    lambda x: x[:, ::2],
    lambda x: x[::-1, ::-1],
    lambda x: x[::2].T,
    lambda x: x[2:3],
)


@pytest.mark.parametrize("laid_out", LAID_OUT)
@pytest.mark.parametrize("source, target", [("float32", "int16"), ("int64", "uint8")])
def test_views_of_parts_read_in_place(rng, laid_out, source, target):
    """Elements' parts, in kernels that read them where they lie; then from an odd part on."""
    x = (1000 * rng.standard_normal((6, 40))).astype(source)
    want = np.ascontiguousarray(laid_out(x)).view(target)
    got = laid_out(mx.array(x)).view(getattr(mx, target))
    np.testing.assert_array_equal(to_numpy(got ^ 1), want ^ 1)
    np.testing.assert_array_equal(to_numpy(got[..., 3:] ^ 1), want[..., 3:] ^ 1)
    np.testing.assert_array_equal(to_numpy(got[..., ::-1] ^ 1), want[..., ::-1] ^ 1)


def test_view_of_parts_takes_no_memory_over(rng):
    """A result of the same size is written elsewhere: its places are not those that are read."""
    for n in (64, 100_000):
        x = rng.standard_normal(n).astype(np.float32)
        ours = mx.array(x) + 0
        mx.eval(ours)
        got = ours.view(mx.int16)[:n].astype(mx.float32)
        del ours
        np.testing.assert_array_equal(to_numpy(got), x.view(np.int16)[:n].astype(np.float32))


def test_nan_to_num_replaces():
    nan, inf = np.nan, np.inf
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        x = np.array([nan, inf, -inf, 1.5, -0.0], NUMPY[dtype])
        if kind(dtype) == "c":
            x = x + 1j * np.roll(x.real, 1)
        given = dict(nan=2.0, posinf=3.0, neginf=-4.0)
        for options in ({}, given):
            if dtype == "bfloat16" and not options:
                continue
            got = to_numpy(mx.nan_to_num(to_ours(x), **options))
            want = np.nan_to_num(wide(x) if dtype == "bfloat16" else x, **options)
            np.testing.assert_array_equal(got.astype(want.dtype), want, dtype)
    most = float(mx.nan_to_num(mx.array([inf], dtype=mx.bfloat16)).item())
    assert most == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_parts_of_floats(dtype):
    edges = [0.0, 1, 1e-45, 6e-8, 1e-38, 2.5, 65504, 3.38e38, np.inf, np.nan]
    with np.errstate(over="ignore"):
        x, y = np.meshgrid(*[np.array([*edges, *np.negative(edges)], NUMPY[dtype])] * 2)
    a, b = to_ours(x), to_ours(y)
    np.testing.assert_array_equal(to_numpy(mx.signbit(a)), np.signbit(x))
    compare_with_signs(mx.copysign(a, b), np.copysign(x, y))
    compare_with_signs(mx.nextafter(a, b), np.where(x == y, y, np.nextafter(x, y)))
    want = np.hypot(wide(x), wide(y))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            wide(to_numpy(mx.hypot(a, b))),
            want.astype(x.dtype).astype(want.dtype),
            rtol=4 * float(ml_dtypes.finfo(x.dtype).eps),
            atol=float(ml_dtypes.finfo(x.dtype).smallest_subnormal),
        )
    assert mx.hypot(3, 4).item() == 5 and mx.copysign(2, -0.0).item() == -2


def compare_with_signs(got, want):
    got = to_numpy(got)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(wide(got), wide(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_parts_of_other_numbers():
    whole = mx.array([-2, 0, 3])
    np.testing.assert_array_equal(to_numpy(mx.signbit(whole)), [True, False, False])
    np.testing.assert_array_equal(to_numpy(mx.copysign(whole, -1)), np.float32([-2, -0.0, -3]))
    slope = mx.grad(lambda a: mx.copysign(a, -1.0).sum() + mx.hypot(a, 4.0).sum())
    np.testing.assert_allclose(to_numpy(slope(mx.array([3.0, -3.0]))), [0.6 - 1, -0.6 + 1], 1e-6)
    for f in (mx.copysign, mx.nextafter, mx.hypot):
        with pytest.raises(ValueError, match="takes real numbers"):
            f(mx.array([1j]), 1)


def test_absolute_values_of_complex_specials():
    parts = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 3, -4, 3e38, 1e-40])
    z = np.empty((len(parts), len(parts)), np.complex64)
    z.real, z.imag = parts[:, None], parts
    np.testing.assert_allclose(to_numpy(mx.abs(mx.array(z))), np.abs(z), 3e-7)


def test_none_where_an_argument_may_be_left_out():
    a, b = np.arange(6).reshape(2, 3), np.arange(3)
    x, y = to_ours(a), to_ours(b)
    for got, want in [
        (mx.clip(x, None, 2), np.clip(a, None, 2)),
        (mx.clip(x, 2, None), np.clip(a, 2, None)),
        (mx.concatenate([x, y], axis=None), np.concatenate([a, b], axis=None)),
        (mx.stack([x, x], axis=None), np.stack([a, a])),
        (mx.take_along_axis(x, to_ours(b), axis=None), np.take_along_axis(a, b, axis=None)),
    ]:
        np.testing.assert_array_equal(to_numpy(got), want)
    with pytest.raises(ValueError, match=r"\[clip\] neither bound is given; give at least one"):
        mx.clip(x, None, None)


def test_isin_and_nonzero(rng):
    x, among = rng.integers(-5, 5, (7, 30)), rng.integers(-5, 5, (2, 2))
    for values in (among, among[:0], [3], 2):
        got = mx.isin(to_ours(x), to_ours(values) if isinstance(values, np.ndarray) else values)
        np.testing.assert_array_equal(to_numpy(got), np.isin(x, values))
    got = mx.isin(to_ours(x), to_ours(among), invert=True)
    np.testing.assert_array_equal(to_numpy(got), np.isin(x, among, invert=True))
    for a in (x, x[0], x[:0], x > 2, x.astype(np.float32), x * 1j):
        for ours, theirs in zip(mx.nonzero(to_ours(a)), np.nonzero(a), strict=True):
            np.testing.assert_array_equal(to_numpy(ours), theirs)
    with pytest.raises(ValueError, match=r"\[nonzero\] the array has no axes"):
        mx.nonzero(mx.array(1))


@pytest.mark.parametrize("size", [1, 3, 40, 130])
@pytest.mark.parametrize("kinds", [("c8", "f4"), ("f4", "c8"), ("c16", "f8"), ("f8", "c16")])
def test_matmul_of_complex_and_real(rng, kinds, size):
    dtypes = {"f4": mx.float32, "c8": mx.complex64, "f8": mx.float64, "c16": mx.complex128}
    given = []
    for name in kinds:
        x = rng.standard_normal((2, size, size))
        given.append((x + 1j * x[::-1]).astype(name) if name[0] == "c" else x.astype(name))
    a, b = given
    x, y = (mx.array(g, dtypes[k]) for g, k in zip(given, kinds, strict=True))
    limit = 1e-4 if "c8" in kinds else 1e-11
    np.testing.assert_allclose(np.array(x @ y), a @ b, limit, limit)
    np.testing.assert_allclose(np.array(x[0] @ y[0, 0]), a[0] @ b[0, 0], limit, limit)


@pytest.mark.parametrize("level", ["amx_emulated", ""])
def test_complex_matmul_is_as_exact_as_by_fma(level):
    """Products of bfloat16 parts beside fused multiply-adds: the error from complex128, infinities
    and NaNs. Runs of 384 products at most are summed: sqrt(384) roundings of half of 2^-24."""
    script = """
    import numpy as np
    import cermet.core as mx
    rng = np.random.default_rng(0)
    def values(*shape):
        x = rng.standard_normal((2, *shape)) * np.exp2(rng.integers(-20, 20, (2, *shape)))
        return (x[0] + 1j * x[1]).astype(np.complex64)
    cases = ((140, 300), (300, 264)), ((2, 130, 70), (2, 70, 131)), ((257, 129), (129, 150))
    for shapes in cases:
        x, y = (values(*s) for s in shapes)
        want = x.astype(np.complex128) @ y
        size = np.abs(x).astype(np.float64) @ np.abs(y)
        turned = mx.conj(mx.contiguous(mx.conj(mx.swapaxes(mx.array(y), -1, -2))))
        for b in (mx.array(y), mx.swapaxes(turned, -1, -2)):
            error = np.abs(np.array(mx.array(x) @ b) - want) / size
            print(np.sqrt(np.mean(error**2)), error.max())
    x[3, 5], x[200, 7], y[9, 140] = np.inf, complex(0, np.nan), 1e38 + 1e38j
    got = np.array(mx.array(x) @ mx.array(y))
    print(np.isnan(got).sum(), np.isinf(got).sum())
    print(mx.explain(lambda x, y: x @ y, mx.array(x), mx.array(y)).kernels[0].scheme)
    """
    (*by_fma, fma), (*in_parts, scheme) = (
        own_process.run(script, CERMET_CPU_FEATURES=level, CERMET_MATMUL_F32=f).split()
        for f in ("fma", "auto")
    )
    assert fma == "fma" and (scheme == "amx_split" or not level)
    by_fma, in_parts = np.array(by_fma, float), np.array(in_parts, float)
    assert (in_parts[:-2] <= 1.1 * by_fma[:-2]).all()
    assert in_parts[:-2].max() < 9.8 * 2.0**-24
    assert (in_parts[-2:] == by_fma[-2:]).all()


@pytest.mark.parametrize("kind", ["constant", "scaled rows", "place"])
def test_scans_of_made_elements(rng, kind):
    x = rng.standard_normal((3, 5000)).astype(np.float32)
    rows, place = x[:, :1].copy(), np.arange(5000, dtype=np.float32) * np.float32(1e-4)
    a = mx.array(x)
    given, wanted = {
        "constant": (lambda: mx.ones((3, 5000)), np.ones((3, 5000))),
        "scaled rows": (lambda: a * mx.array(rows), x * rows),
        "place": (lambda: a + mx.arange(5000) * 1e-4, x + place),
    }[kind]
    expected = np.cumsum(wanted.astype(np.float64), axis=1)
    got = np.array(mx.cumsum(given(), axis=1))
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_shifts_by_any_count(bits, sign):
    """Below the width, by it and past it, and negative."""
    dtype = np.dtype(f"{sign}int{bits}")
    limits = np.iinfo(dtype)
    x = np.array([1, 3, limits.max, limits.min, 100, 5 if sign else -5], dtype)
    counts = np.array([0, 1, bits - 1, bits, bits + 1, 2 * bits, 100, 127], dtype)
    if not sign:
        counts = np.concatenate([counts, np.array([-1, -bits, limits.min], dtype)])
    for name in ("left_shift", "right_shift"):
        got = getattr(mx, name)(mx.array(x)[:, None], mx.array(counts))
        want = getattr(np, name)(x[:, None], counts)
        np.testing.assert_array_equal(np.array(got), want, err_msg=name)
        for count in counts.tolist():
            got = getattr(mx, name)(mx.array(x), count)
            np.testing.assert_array_equal(np.array(got), getattr(np, name)(x, dtype.type(count)))


def test_division_by_a_complex_zero():
    x = np.array([0.5 + 7.5j, -1 - 2j, 3 - 4j, 0], np.complex64)
    with np.errstate(all="ignore"):
        want = x / np.complex64(0)
    np.testing.assert_array_equal(np.array(mx.array(x) / 0), want)
    np.testing.assert_array_equal(np.array(mx.array(x) / mx.zeros((4,), mx.complex64)), want)


def spaced(x, dtype):
    """Distances to the next numbers of the dtype."""
    return np.spacing(np.abs(x).astype(dtype)).astype(np.float64)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 2.5, -3, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "complex64"])
def test_power_of_a_number(rng, dtype, exponent):
    """As the general power, within its error, at special values, too."""
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-3, 6e4, 1e-7]
    if dtype in ("float32", "float64"):
        special += [1e19, 3e19, 1e-20, 1e-39, 1e38]
    if dtype in ("int32", "uint8", "complex64"):
        special = [0, 1, 2, 3, 100, 255]
    x = np.concatenate([rng.standard_normal(200) * 3, special])
    if dtype == "complex64":
        x = x + 1j * x[::-1]
    x = (np.abs(x) if dtype == "uint8" else x).astype(dtype)
    a = mx.array(x, dtype=getattr(mx, dtype))
    if dtype == "uint8" and exponent in (-1, -2, -3):
        with pytest.raises(OverflowError):
            a**exponent
        return
    got, general = np.array(a**exponent), np.array(mx.power(a, mx.array(exponent).astype(a.dtype)))
    if dtype in ("int32", "uint8") and exponent != int(exponent):
        general = np.array(mx.power(a.astype(mx.float32), mx.array(exponent)))
    assert got.dtype == general.dtype
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, general)
        return
    if dtype == "complex64":
        np.testing.assert_allclose(got, x.astype(np.complex128) ** exponent, rtol=2e-6, atol=1e-6)
        return
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), np.full(x.shape, exponent, np.longdouble))
        err = np.abs(got.astype(np.longdouble) - want)
        largest = np.finfo(got.dtype).max
        finite = np.abs(want) <= largest
        close = err <= 4 * spaced(np.where(finite, want, 0), got.dtype)
    same = np.isnan(got) & np.isnan(want) | (got == want.astype(got.dtype))
    assert np.all(same | (finite & close)), x[~(same | close)]
    zero = got == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want.astype(got.dtype)[zero]))


def test_gradient_of_a_power_of_a_number():
    x = np.array([-2, -0.5, 0, 0.25, 3])
    for n in (0, 1, 2, 3, 4):
        g = mx.grad(lambda a, n=n: (a**n).sum())(mx.array(x, dtype=mx.float64))
        want = n * x ** max(n - 1, 0) if n else 0 * x
        np.testing.assert_allclose(np.array(g), want, rtol=1e-12)


def matrices(rng, shape, dtype, turned):
    """As NumPy knows them, and ours."""
    values = rng.standard_normal(shape) * 3
    if dtype == "complex64":
        values = values + 1j * rng.standard_normal(shape)
    np_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = values.astype(np_dtype)
    if not turned:
        return values, mx.array(values)
    return values, mx.array(np.ascontiguousarray(values.swapaxes(-1, -2))).swapaxes(-1, -2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32", "complex64"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 9])
def test_products_of_few_terms(rng, dtype, k):
    """Points times matrices, batches of small ones: no kernel of products is made for them."""
    shapes = [
        ((5000, k), (k, k)),
        ((7, k), (k, 600)),
        ((3, k), (k, 2)),
        ((500, 3, k), (500, k, 3)),
        ((20, 1, 5, k), (1, 10, k, 5)),
        ((5000, k, k), (5000, k, 1)),
        ((2000, 1, k), (k, 3)),
        ((9, k), (k,)),
    ]
    for a_shape, b_shape in shapes:
        for turned in ((False, False), (True, False), (False, True)):
            x, a = matrices(rng, a_shape, dtype, turned[0])
            y, b = matrices(rng, b_shape, dtype, turned[1] and len(b_shape) > 1)
            wide = {"int8": np.int64, "int32": np.int64, "complex64": np.complex128}
            of = wide.get(dtype, np.float64)
            want = x.astype(of) @ y.astype(of)
            scale = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
            got = np.array((a @ b).astype(mx.float32) if dtype == "bfloat16" else a @ b)
            unit = {"float16": 2**-11, "bfloat16": 2**-8, "int8": 0, "int32": 0}.get(dtype, 2**-22)
            assert got.shape == want.shape
            least = 2**-25 if dtype == "float16" else 0  # half of what subnormal halves lie apart
            bound = unit * np.abs(want) + 2**-22 * k * scale * (unit > 0) + least
            assert np.all(np.abs(got - want) <= bound)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
@pytest.mark.parametrize("name", "sum prod max min any all mean".split())
def test_folds_of_few_elements(rng, name, dtype):
    """Of an array in memory, and in the kernel that makes it: the same bits, and NumPy's values."""
    shapes = [
        ((5000, 2), -1),
        ((5000, 3), -1),
        ((9001, 2), -1),
        ((9001, 3), -1),
        ((70, 71, 4), -1),
        ((50, 3, 100), 1),
        ((3, 5000), 0),
        ((5000, 4, 1), 1),
        ((30, 5, 2, 32, 2), (2, 4)),
        ((30, 5, 3, 32, 3), (2, 4)),
        ((60, 2, 5, 4, 16), (1, 3)),
        ((4, 5000, 4), (0, 2)),
    ]
    for shape, axes in shapes:
        x = (rng.standard_normal(shape) * (1 if dtype == "float16" else 4)).astype(dtype)
        if dtype.startswith("float"):
            x.flat[7] = np.nan
        a, zero = mx.array(x), mx.zeros(shape)
        f = getattr(mx, name)
        stored = f(a, axis=axes)
        fused = mx.compile(lambda a, z, f=f, axes=axes: f(mx.where(z == 0, a, a * 0), axis=axes))
        np.testing.assert_array_equal(np.array(stored), np.array(fused(a, zero)))
        wide = {"sum": np.int64, "prod": np.int64, "mean": np.float64}.get(name, x.dtype)
        if dtype.startswith("float"):
            wide = np.float64
        want = getattr(np, name)(x.astype(wide), axis=axes)
        if name == "prod" and dtype == "int8":
            want = want.astype(np.int32)
        tolerance = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(np.array(stored), want, rtol=tolerance, atol=tolerance)
        form = "row" if axes == -1 and x.size >= 2**14 and shape[-1] > 1 else "map"
        assert mx.explain(lambda a, f=f, axes=axes: f(a, axis=axes), a).kernels[0].form == form
