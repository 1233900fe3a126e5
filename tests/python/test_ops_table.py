# SPDX-License-Identifier: MIT
"""Every op of the table against NumPy (in double or extended precision) over its dtypes and over
nasty layouts; result dtypes against the MLX wheel. The table says what is accepted, where to
sample and how far a result may be off.
"""

import cermet.core as mx
import ml_dtypes
import mlx.core
import numpy as np
import pytest
import scipy.special as sp

TABLE = {row["name"]: row for row in mx._op_table()}
NAMES = {d: str(d).rpartition(".")[2] for row in TABLE.values() for d in row["accepts"]}
NUMPY = {
    name: ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name) for name in NAMES.values()
}
LONG = np.longdouble
PI = LONG("3.14159265358979323846264338327950288")


def family(name):
    return [row["name"] for row in TABLE.values() if row["family"] == name and row["public"]]


def real_only(f):
    return lambda x: f(x)


def cast_like(f):
    """The function in the precision of its argument."""
    return lambda *args: np.asarray(f(*args)).astype(args[0].dtype)


UNARY = {
    "abs": np.abs,
    "negative": np.negative,
    "sign": np.sign,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "erf": lambda x: sp.erf(x.astype(np.float64)),
    "erfinv": lambda x: sp.erfinv(x.astype(np.float64)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "degrees": lambda x: x * (180 / PI),
    "radians": lambda x: x * (PI / 180),
    "logical_not": np.logical_not,
    "bitwise_invert": np.invert,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "isposinf": lambda x: np.isinf(x) & (x.real > 0),
    "isneginf": lambda x: np.isinf(x) & (x.real < 0),
    "real": np.real,
    "imag": np.imag,
    "conjugate": np.conjugate,
    "stop_gradient": lambda x: x,
}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "logaddexp": lambda x, y: logaddexp(x, y),
    "arctan2": np.arctan2,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}


def logaddexp(x, y):
    return np.log(np.exp(x) + np.exp(y)) if x.dtype.kind == "c" else np.logaddexp(x, y)


def same_turn(want, out):
    """`want` with its imaginary part in the turn of `out`: the wheel's do not wrap it."""
    turns = np.round((out.imag.astype(LONG) - want.imag) / (2 * PI))
    return want + 1j * (2 * PI * np.where(np.isfinite(turns), turns, 0))


REDUCE = {
    "sum": np.sum,
    "prod": np.prod,
    "min": np.min,
    "max": np.max,
    "any": np.any,
    "all": np.all,
    "logsumexp": lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims)),
}


def kind(dtype):
    return np.dtype(NUMPY[dtype]).kind if dtype != "bfloat16" else "f"


def kind_of(x):
    return "f" if x.dtype == ml_dtypes.bfloat16 else x.dtype.kind


def wide(x):
    """The same values in a precision beyond the result's."""
    if x.dtype == ml_dtypes.bfloat16 or x.dtype in (np.float16, np.float32):
        return x.astype(np.float64)
    if x.dtype == np.float64:
        return x.astype(LONG)
    return x.astype(np.clongdouble) if x.dtype.kind == "c" else x


def sample(rng, shape, dtype, domain, whole=False):
    low, high = domain
    k = kind(dtype)
    if k == "b":
        return rng.integers(2, size=shape).astype(bool)
    if k in "iu":
        low = max(low, 0) if k == "u" else low
        return rng.integers(
            int(np.ceil(low)), max(int(high), int(np.ceil(low)) + 1), size=shape
        ).astype(dtype)
    x = rng.uniform(low, high, size=shape)
    if k == "c":
        x = x + 1j * rng.uniform(low, high, size=shape)
    return x.astype(NUMPY[dtype])


LAYOUTS = {
    "contiguous": ((6, 5, 70), lambda x: x),
    "transposed": ((70, 5, 6), lambda x: x.T),
    "reversed": ((6, 5, 70), lambda x: x[::-1, :, ::-1]),
    "strided": ((12, 6, 75), lambda x: x[::2, 1:, 3:73]),
    "stride 2": ((3, 4, 141), lambda x: x[:, :, 1::2]),
    "broadcast": ((6, 1, 70), None),
    "column": ((6, 5, 1), lambda x: x),
    "0-d": ((), lambda x: x),
    "empty": ((3, 0, 2), lambda x: x),
    "size-1": ((1, 1, 1), lambda x: x),
}


def laid_out(x, layout):
    change = LAYOUTS[layout][1]
    if change is None:
        wide_shape = (x.shape[0], 5, x.shape[2])
        return np.broadcast_to(x, wide_shape), mx.broadcast_to(to_ours(x), wide_shape)
    return change(x), change(to_ours(x))


def to_ours(x):
    return mx.array(x, dtype=getattr(mx, "bool_" if x.dtype == bool else x.dtype.name))


def to_numpy(a):
    return np.array(a)


def wheel_dtype(call, *dtypes):
    """The result's dtype on the wheel, "refused", or None where it has no such dtype."""
    if any(d == "complex128" for d in dtypes):
        return None
    try:
        args = [
            mlx.core.ones((2,)).astype(getattr(mlx.core, "bool_" if d == "bool" else d))
            for d in dtypes
        ]
        return str(call(mlx.core, *args).dtype).rpartition(".")[2]
    except (ValueError, TypeError, RuntimeError):
        return "refused"


def our_dtype(call, *dtypes):
    try:
        return NAMES[call(*(mx.ones((2,), d) for d in dtypes)).dtype]
    except (ValueError, TypeError):
        return "refused"


def ulp_error(got, want, dtype, beside=0):
    """Errors in units in the last place of the result's dtype, or of `beside` where that is larger;
    NaN and infinities must agree.
    """
    got, want = np.asarray(got), np.asarray(want)
    rounded = want.astype(dtype)
    with np.errstate(all="ignore"):
        same = (got == rounded) | (
            np.isnan(got.astype(np.float64)) & np.isnan(rounded.astype(np.float64))
        )
        info = ml_dtypes.finfo(dtype) if dtype == ml_dtypes.bfloat16 else np.finfo(dtype)
        magnitude = np.maximum(np.abs(want.astype(LONG)), beside)
        magnitude = np.maximum(magnitude, LONG(info.smallest_normal))
        spacing = LONG(2) ** (np.floor(np.log2(magnitude)) - info.nmant)
        error = np.abs(got.astype(LONG) - want.astype(LONG)) / spacing
    error = np.where(same, 0, error)
    return float(np.max(np.where(np.isnan(error), np.inf, error), initial=0))


def allowed_ulp(row, dtype, of_complex):
    bound = max(row["max_ulp"], 3 if of_complex else 0)  # abs: a quotient, a square, a sum, a root
    if dtype in ("float16", "bfloat16"):
        return 1 if bound > 0 else 0.5  # computed in float32, rounded once more
    if dtype == "float64":
        return max(bound, 4) if bound > 0.5 else 0.5
    return max(bound, 0.5)


def check(row, got, want, dtype, what, beside=0):
    """got: ours; want: the reference in a wider precision; dtype: of the operands; beside: numbers
    whose rounding the result cannot escape.
    """
    out = to_numpy(got)
    assert out.shape == want.shape, f"{what}: shape {out.shape}, not {want.shape}"
    if out.dtype.kind in "biu" and out.dtype != ml_dtypes.bfloat16:
        np.testing.assert_array_equal(out, want.astype(out.dtype), err_msg=what)
    elif out.dtype.kind == "c":
        tolerance = 1e-5 if out.dtype == np.complex64 else 1e-13
        want = same_turn(want, out) if row["name"] == "logaddexp" else want
        np.testing.assert_allclose(
            out, want.astype(np.complex128), rtol=tolerance, atol=tolerance, err_msg=what
        )
    else:
        name = "bfloat16" if out.dtype == ml_dtypes.bfloat16 else out.dtype.name
        error = ulp_error(out, want, out.dtype, beside)
        assert error <= allowed_ulp(row, name, kind(dtype) == "c"), f"{what}: {error} ulp"


def dtypes_of(row):
    return [NAMES[d] for d in row["accepts"]]


@pytest.mark.parametrize("name", family("unary"))
def test_unary(rng, name):
    row, f = TABLE[name], UNARY[name]
    for dtype in dtypes_of(row):
        for layout, (shape, _) in LAYOUTS.items():
            x, a = laid_out(sample(rng, shape, dtype, row["domain"]), layout)
            got = getattr(mx, name)(a)
            with np.errstate(all="ignore"):
                check(row, got, reference(f, x), dtype, f"{name}({dtype}, {layout})")
        theirs = wheel_dtype(lambda m, x: getattr(m, name)(x), dtype)
        ours_alone = name in COMPLEX_HERE and kind(dtype) == "c"
        assert theirs in (None, "refused" if ours_alone else NAMES[got.dtype]), f"{name}({dtype})"


# Where functions are 0, 1 or turn.
POINTS = [0, 1, -1, 1j, -1j, 2, -2, 0.6 + 0.8j, -0.5 + 0.866j, PI / 2, PI, 1j * PI / 2, 1j * PI]


@pytest.mark.parametrize("name", family("unary"))
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_unary_near_points(rng, name, dtype):
    """The error is small beside the result, however small that is."""
    steps = 10.0 ** -rng.uniform(0, 7 if dtype == "complex64" else 14, (len(POINTS), 500))
    turns = np.exp(1j * rng.uniform(0, 2 * np.pi, steps.shape))
    z = (np.array(POINTS, np.complex128)[:, None] + steps * turns).astype(dtype)
    row = TABLE[name]
    if dtype not in dtypes_of(row) or row["max_ulp"] == 0:
        return  # refused, or exact
    f = complex_log1p if name == "log1p" else UNARY[name]
    with np.errstate(all="ignore"):
        want = f(z.astype(np.clongdouble))
        error = np.abs(to_numpy(getattr(mx, name)(mx.asarray(z))) - want) / np.abs(want)
    assert np.max(error[np.isfinite(want)]) <= 8 * np.finfo(dtype).eps


@pytest.mark.parametrize("name", ["exp", "expm1", "sinh", "cosh", "sin", "cos"])
@pytest.mark.parametrize("dtype, limit", [("complex64", 88), ("complex128", 709)])
def test_a_part_is_finite_beside_one_that_overflows(rng, name, dtype, limit):
    signs = rng.choice([-1, 1], (2, 500)) if name[:3] != "exp" else np.ones((2, 500))
    sizes = signs[0] * (limit + rng.uniform(-2, 8, 500))
    turns = signs[1] * (rng.choice([0, PI / 2, PI], 500) + 10.0 ** -rng.uniform(0, 4, 500))
    z = (turns + 1j * sizes if name in ("sin", "cos") else sizes + 1j * turns).astype(dtype)
    got, want = to_numpy(getattr(mx, name)(mx.asarray(z))), UNARY[name](z.astype(np.clongdouble))
    largest = LONG(np.finfo(dtype).max)
    for part, right in ((got.real, want.real), (got.imag, want.imag)):
        fits = np.abs(right) < largest
        assert 100 < fits.sum() < 500
        np.testing.assert_allclose(part[fits], right[fits], rtol=16 * np.finfo(dtype).eps)
        assert np.isinf(part[np.abs(right) > 1.001 * largest]).all()


def complex_log1p(z):
    """NumPy's is log(1 + z), which loses the digits of a small z."""
    size = np.log1p(z.real * (2 + z.real) + z.imag**2) / 2
    size = np.where(np.abs(1 + z) < 0.5, np.log(np.abs(1 + z)), size)
    return size + 1j * np.arctan2(z.imag, 1 + z.real)


COMPLEX_HERE = {"expm1"}  # the wheel refuses complex arguments, NumPy takes them


def reference(f, *args):
    """Integers stay in their dtype where NumPy's function does, else the widest float."""
    args = [wide(x) for x in args]
    if f in (np.square, np.abs, np.negative, np.sign, np.floor, np.ceil, np.trunc):
        return (
            np.asarray(f(*args))
            if args[0].dtype.kind != "b"
            else np.asarray(f(args[0].astype(np.uint8)))
        )
    if args[0].dtype.kind in "biu" and f in FLOATING:
        args = [x.astype(np.float64) for x in args]
    return np.asarray(f(*args))


FLOATING = {
    UNARY[n]
    for n in (
        "sqrt rsqrt reciprocal exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan "
        "sinh cosh "
        "tanh arcsinh arccosh arctanh sigmoid degrees radians erf erfinv"
    ).split()
} | {np.true_divide, BINARY["logaddexp"], np.arctan2}


def binary_operands(rng, name, shape, dtype, domain):
    x, y = (sample(rng, shape, dtype, domain) for _ in range(2))
    if kind(dtype) in "iu":
        bits = 8 * np.dtype(dtype).itemsize
        if name in ("floor_divide", "remainder"):
            y = np.where(y == 0, 1, y).astype(dtype)
        elif name == "power":
            y = np.abs(y.astype(np.int64)).astype(dtype) % 4
        elif name.endswith("shift"):
            x, y = np.abs(x), (np.abs(y.astype(np.int64)) % bits).astype(dtype)
    if name == "divide" and kind(dtype) in "iub":
        y = np.where(y == 0, 1, y).astype(y.dtype)
    return x, y


def beside(name, x, y):
    """logaddexp adds the larger operand last: where that cancels, its rounding stays."""
    return (
        np.maximum(np.abs(x), np.abs(y)).astype(LONG)
        if name == "logaddexp" and kind_of(x) == "f"
        else 0
    )


@pytest.mark.parametrize("name", family("binary"))
def test_binary(rng, name):
    row, f = TABLE[name], BINARY[name]
    for dtype in dtypes_of(row):
        if dtype == "bool" and name in ("subtract", "floor_divide", "remainder", "power"):
            continue  # NumPy has no such function of booleans
        for layout, (shape, _) in LAYOUTS.items():
            x, y = binary_operands(rng, name, shape, dtype, row["domain"])
            (x, a), (y, b) = laid_out(x, layout), laid_out(y, layout)
            what = f"{name}({dtype}, {layout})"
            with np.errstate(all="ignore"):
                got = getattr(mx, name)(a, b)
                check(row, got, reference(f, x, y), dtype, what, beside(name, x, y))
                if x.ndim == 3 and x.size:
                    b, y = b[:1, :, :1], y[:1, :, :1]
                    check(
                        row,
                        getattr(mx, name)(a, b),
                        reference(f, x, y),
                        dtype,
                        what,
                        beside(name, x, y),
                    )
        theirs = wheel_dtype(lambda m, x, y: getattr(m, name)(x, y), dtype, dtype)
        assert theirs in (None, NAMES[got.dtype]), f"{name}({dtype})"


@pytest.mark.parametrize("name", family("binary"))
def test_binary_promotion(name):
    """Every pair of dtypes gives the wheel's dtype, or is refused by both. The wheel has no
    complex128, which float64 needs beside complex64."""
    for d in TABLE[name]["accepts"]:
        for e in TABLE[name]["accepts"]:
            theirs = wheel_dtype(lambda m, x, y: getattr(m, name)(x, y), NAMES[d], NAMES[e])
            if theirs == "complex64" and "float64" in (NAMES[d], NAMES[e]):
                theirs = "complex128"
            if theirs is not None:
                assert our_dtype(getattr(mx, name), d, e) == theirs, f"{name}({d}, {e})"


def near_one(dtype):
    """Numbers of magnitude 0.98 to 1.02: the product of 2100 is a normal number also in float16."""
    return (0.693, 0.721) if kind(dtype) == "c" else (0.98, 1.02)


AXES = [None, 0, 1, -1, (0, 1), (0, 2), (1, 2), (2, 0, 1), ()]


@pytest.mark.parametrize("name", family("reduce"))
def test_reduce(rng, name):
    row, f = TABLE[name], REDUCE[name]
    for dtype in dtypes_of(row):
        for layout, (shape, _) in LAYOUTS.items():
            x, a = laid_out(
                sample(rng, shape, dtype, near_one(dtype) if name == "prod" else row["domain"]),
                layout,
            )
            for axis in AXES if x.ndim == 3 else [None]:
                if (
                    name in ("min", "max", "logsumexp")
                    and x.size == 0
                    and axis not in (0, -1, (0, 2), (2, 0), ())
                ):
                    with pytest.raises(ValueError, match="no elements"):  # as the wheel
                        getattr(mx, name)(a, axis=axis)
                    continue
                for keepdims in (False, True):
                    got = getattr(mx, name)(a, axis=axis, keepdims=keepdims)
                    check_fold(
                        name, got, x, f, axis, keepdims, f"{name}({dtype}, {layout}, {axis})"
                    )
        theirs = wheel_dtype(lambda m, x: getattr(m, name)(x), dtype)
        assert theirs in (None, NAMES[got.dtype]), f"{name}({dtype})"


def check_fold(name, got, x, f, axis, keepdims, what):
    """Integers and choices exactly; sums to the rounding of the result and of the terms."""
    out = to_numpy(got)
    with np.errstate(all="ignore"):
        source = wide(x)
        if source.dtype.kind in "biu" and name in ("sum", "prod"):
            source = source.astype(np.uint64 if source.dtype.kind == "u" else np.int64)
        if source.dtype.kind in "biu" and name == "logsumexp":
            source = source.astype(np.float64)
        want = np.asarray(f(source, axis=axis, keepdims=keepdims))
        assert out.shape == want.shape, f"{what}: shape {out.shape}, not {want.shape}"
        if out.dtype.kind in "biu" or name in ("min", "max"):
            np.testing.assert_array_equal(out, want.astype(out.dtype), err_msg=what)
            return
        terms = np.asarray(np.sum(np.abs(source), axis=axis, keepdims=keepdims)).astype(np.float64)
        if name == "logsumexp" and out.dtype.kind == "c":
            want = same_turn(want, out)
        if name == "logsumexp" and x.size:
            # The largest is added last: where that cancels, its rounding stays. Complex terms
            # cancel in the sum, whose logarithm has the condition number sum |e^x| / |sum e^x|.
            terms = np.max(np.abs(source), axis=axis, keepdims=keepdims)
            if out.dtype.kind == "c":
                powers = np.exp(source)
                terms = terms * np.sum(np.abs(powers), axis=axis, keepdims=keepdims)
                terms = terms / np.abs(np.sum(powers, axis=axis, keepdims=keepdims))
            terms = np.asarray(terms).astype(np.float64)
    epsilon = {2: 1e-3 if out.dtype == np.float16 else 8e-3, 4: 1e-6, 8: 1e-14, 16: 1e-14}
    epsilon = 1e-6 if out.dtype == np.complex64 else epsilon[out.dtype.itemsize]
    if (
        name == "prod" and out.dtype.itemsize > 2
    ):  # each factor rounds by 2^-24, a 64th of the limit
        epsilon *= max(x.size / max(out.size, 1) / 64, 1)
    wide_out = out.astype(np.complex128 if out.dtype.kind == "c" else np.float64)
    error = np.abs(wide_out - want.astype(wide_out.dtype))
    scale = (
        np.maximum(np.abs(want).astype(np.float64), terms if name in ("sum", "logsumexp") else 0)
        + 1e-30
    )
    assert np.all((error <= 4 * epsilon * scale) | (wide_out == want.astype(wide_out.dtype))), what


# --- ops with functions of their own: (ours, NumPy's) on one operand of shape (6, 5, 70) ---

ANY = {
    "select": (
        lambda x: mx.where(x != x[:1], x, mx.array(1, x.dtype)),
        lambda x: np.where(x != x[:1], x, np.array(1, x.dtype)),
    ),
    "cast": (lambda x: x.astype(mx.float32), lambda x: x.astype(np.float32)),
    "reshape": (lambda x: x.reshape(5, -1, 2), lambda x: x.reshape(5, -1, 2)),
    "transpose": (lambda x: mx.transpose(x, (2, 0, 1)), lambda x: np.transpose(x, (2, 0, 1))),
    "broadcast_to": (
        lambda x: mx.broadcast_to(x[:, :1], (2, 6, 4, 70)),
        lambda x: np.broadcast_to(x[:, :1], (2, 6, 4, 70)),
    ),
    "slice": (lambda x: x[1:5:2, ::-1, 3:] if x.ndim == 3 else x, lambda x: x[1:5:2, ::-1, 3:]),
    "slice_update": (lambda x: assigned(x, x[:2]), lambda x: assigned(x, x[:2])),
    "pad": (
        lambda x: mx.pad(x, [(1, 0), (0, 2), (3, 1)], constant_values=1),
        lambda x: np.pad(x, [(1, 0), (0, 2), (3, 1)], constant_values=1),
    ),
    "concatenate": (
        lambda x: mx.concatenate([x, x[:, ::-1], x[:, :1]], axis=1),
        lambda x: np.concatenate([x, x[:, ::-1], x[:, :1]], axis=1),
    ),
    "flip": (lambda x: mx.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2))),
    "contiguous": (mx.contiguous, lambda x: x),
    "depends": (lambda x: mx.depends(x, [x[:1] != x[1:2], x.sum()]), lambda x: x),
    "gather": (lambda x: x[[0, 3, 3], :, [1, 2, -1]], lambda x: x[[0, 3, 3], :, [1, 2, -1]]),
    "take_along_axis": (
        lambda x: mx.take_along_axis(x, mx.array([[[3], [0]]]), 1),
        lambda x: np.take_along_axis(x, np.array([[[3], [0]]]), 1),
    ),
    "scatter": (lambda x: x.at[mx.array([1, 1, 4])].add(x[:3]), lambda x: scattered(x)),
    "scatter_along_axis": (
        lambda x: mx.put_along_axis(x, mx.array([[[2]]]), x[:, :1], 1),
        lambda x: put(x),
    ),
    "diagonal": (lambda x: mx.diagonal(x, 1, 2, 0), lambda x: np.diagonal(x, 1, 2, 0)),
    "diagonal_matrix": (lambda x: mx.diag(x[0, 1], -2), lambda x: np.diag(x[0, 1], -2)),
    "as_strided": (
        lambda x: mx.as_strided(x, (4, 2, 3), (7, -1, 70), 5),
        lambda x: strided(x, (4, 2, 3), (7, -1, 70), 5),
    ),
    "bitcast": (
        lambda x: x.view(OF_SIZE[x.itemsize]),
        lambda x: np.ascontiguousarray(x).view(f"u{x.itemsize}"),
    ),
    "view_bytes": (
        lambda x: x[..., :70].view(OF_SIZE[1 if x.itemsize > 1 else 2]),
        lambda x: np.ascontiguousarray(x[..., :70]).view(f"u{1 if x.itemsize > 1 else 2}"),
    ),
    "view_as_real": (
        lambda x: x.view(mx.float32 if x.dtype == mx.complex64 else mx.float64),
        lambda x: np.ascontiguousarray(x).view(x.real.dtype),
    ),
    "view_as_complex": (
        lambda x: pairs(x[..., :70]),
        lambda x: x[..., :70:2] + 1j * x[..., 1:70:2],
    ),
    "complex_of": (
        lambda x: mx.nan_to_num(pairs(mx.stack([x, x[::-1]], -1))[..., 0]),
        lambda x: x + 1j * x[::-1],
    ),
}
SPECIAL = {
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "logcumsumexp",
    "linear_scan",
    "argmin",
    "argmax",
    "softmax",
    "matmul",
    "gather_mm",
    "scatter_mm",
    "segments",
    "full",
    "arange",
    "random_bits",
    "layer_norm",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "attention_gradient",
    "cross_entropy",
}


OF_SIZE = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


def pairs(x):
    return x.view(mx.complex64 if x.dtype == mx.float32 else mx.complex128)


def strided(x, shape, strides, offset):
    flat = np.ascontiguousarray(x).ravel()
    strides = [s * flat.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, strides)


def assigned(x, part):
    x = mx.array(x) if isinstance(x, mx.array) else x.copy()
    x[3:5] = part
    return x


def scattered(x):
    x = x.copy()
    np.add.at(x, [1, 1, 4], x[:3].copy())
    return x


def put(x):
    x = x.copy()
    np.put_along_axis(x, np.array([[[2]]]), x[:, :1].copy(), 1)
    return x


def test_every_op_is_tested():
    public = {row["name"] for row in TABLE.values() if row["public"]}
    assert public == {*UNARY, *BINARY, *REDUCE, *ANY, *SPECIAL}


@pytest.mark.parametrize("name", ANY)
def test_movement_and_indexing(rng, name):
    ours, theirs = ANY[name]
    for dtype in dtypes_of(TABLE[name]):
        if name == "scatter" and dtype == "bool":
            continue
        if name == "cast" and kind(dtype) == "c":
            continue
        for layout in ("contiguous", "transposed", "reversed", "strided", "stride 2", "broadcast"):
            shape = LAYOUTS[layout][0] if layout != "stride 2" else (6, 5, 141)
            x, a = laid_out(sample(rng, shape, dtype, (0, 4)), layout)
            got = to_numpy(ours(a))
            want = theirs(x)
            if x.dtype == ml_dtypes.bfloat16 or x.dtype == np.float16:
                want = want.astype(got.dtype)
            tolerance = (
                {"float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype, 1e-6) if name == "scatter" else 0
            )
            assert got.dtype == want.dtype and got.shape == want.shape, f"{name}({dtype}, {layout})"
            np.testing.assert_allclose(
                got.astype(np.complex128),
                want.astype(np.complex128),
                rtol=tolerance,
                err_msg=f"{name}({dtype}, {layout})",
            )


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_arg_reductions(rng, name):
    for dtype in dtypes_of(TABLE[name]):
        if kind(dtype) == "c":
            continue
        for layout in LAYOUTS:
            x, a = laid_out(sample(rng, LAYOUTS[layout][0], dtype, (-3, 3)), layout)
            if x.size == 0:
                continue
            for axis in [None, 0, 1, 2] if x.ndim == 3 else [None]:
                for keepdims in (False, True):
                    got = getattr(mx, name)(a, axis, keepdims=keepdims)
                    want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                    assert got.dtype == mx.uint32
                    np.testing.assert_array_equal(
                        to_numpy(got), want, f"{name}({dtype}, {layout}, {axis})"
                    )


FLOATS = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}


def check_close(got, want, dtype, what, factor=1):
    assert NAMES[got.dtype] == dtype, what
    got = to_numpy(got).astype(np.float64)
    assert got.shape == want.shape, what
    limit = factor * FLOATS[dtype]
    np.testing.assert_allclose(got, want.astype(np.float64), rtol=limit, atol=limit, err_msg=what)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.complex64, mx.int32])
def test_softmax_of_nothing(dtype, axis):
    found = mx.softmax(mx.zeros((3, 0, 2), dtype), axis=axis)
    assert found.shape == (3, 0, 2) and np.array(found).size == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(rng, dtype, layout):
    x, a = laid_out(sample(rng, LAYOUTS[layout][0], dtype, (-4, 4)), layout)
    for axis in [None, 0, -1, (0, 1)] if x.ndim == 3 else [None]:
        e = np.exp(wide(x))
        if x.size:
            want = e / np.sum(e, axis=axis, keepdims=True)
            check_close(mx.softmax(a, axis), want, dtype, f"softmax({layout}, {axis})")


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5), (5, 6)),
        ((5,), (5,)),
        ((3, 5), (5,)),
        ((5,), (5, 2)),
        ((2, 3, 4, 5), (5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((70, 130), (130, 90)),
        ((1, 64), (64, 96)),
        ((16, 40, 70), (16, 70, 50)),
        ((9, 2100), (2100, 30)),
        ((270, 2100), (2100, 400)),
        ((0, 5), (5, 3)),
        ((4, 0), (0, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
def test_matmul(rng, dtype, shapes):
    x, y = (sample(rng, s, dtype, (-1, 1)) for s in shapes)
    want = np.matmul(wide(x), wide(y))
    if dtype == "complex64":
        np.testing.assert_allclose(
            to_numpy(mx.matmul(to_ours(x), to_ours(y))),
            want.astype(np.complex64),
            rtol=1e-4,
            atol=1e-4,
        )
        return
    factor = 8 * max(1, x.shape[-1] / 256)  # each term rounds
    check_close(mx.matmul(to_ours(x), to_ours(y)), want, dtype, "matmul", factor)
    if x.ndim >= 2 and y.ndim >= 2:
        transposed = mx.contiguous(mx.swapaxes(to_ours(y), -1, -2))
        check_close(to_ours(x) @ mx.swapaxes(transposed, -1, -2), want, dtype, "x @ y.T", factor)


def test_creation():
    for dtype in NAMES.values():
        d, n = getattr(mx, "bool_" if dtype == "bool" else dtype), NUMPY[dtype]
        for value in (0, 1, True):
            np.testing.assert_array_equal(
                to_numpy(mx.full((2, 3), value, d)), np.full((2, 3), value, n)
            )
        if dtype != "bool":
            np.testing.assert_array_equal(
                to_numpy(mx.arange(3, 11, 2, d)), np.arange(3, 11, 2).astype(n)
            )
    for arguments in ((5,), (2, 7), (7, 2, -1), (0, 1, 0.25), (0.5, 3.0), (3, 3)):
        np.testing.assert_allclose(
            to_numpy(mx.arange(*arguments)), np.arange(*arguments), rtol=1e-6
        )
    assert mx.arange(stop=3).tolist() == [0, 1, 2]
    assert mx.arange(stop=5, step=2).tolist() == [0, 2, 4]


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms(rng, dtype):
    x = sample(rng, (6, 5, 70), dtype, (-2, 2))
    w, b = (sample(rng, (70,), dtype, (-1, 1)) for _ in range(2))
    wx = wide(x)
    for weight, bias in ((w, b), (None, b), (w, None), (None, None)):
        scale = 1 if weight is None else wide(weight)
        shift = 0 if bias is None else wide(bias)
        ours = [None if v is None else to_ours(v) for v in (weight, bias)]
        centred = wx - wx.mean(-1, keepdims=True)
        want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
        check_close(
            mx.fast.layer_norm(to_ours(x), *ours, 1e-5), want, dtype, "layer_norm", factor=2
        )
        want = wx / np.sqrt((wx**2).mean(-1, keepdims=True) + 1e-5) * scale
        check_close(mx.fast.rms_norm(to_ours(x), ours[0], 1e-5), want, dtype, "rms_norm", factor=2)


@pytest.mark.parametrize("traditional", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_rope(rng, dtype, traditional):
    x = sample(rng, (2, 3, 7, 16), dtype, (-1, 1))
    for dims, offset, scale in ((16, 0, 1.0), (8, 5, 1.0), (16, 100, 0.5)):
        got = mx.fast.rope(
            to_ours(x), dims, traditional=traditional, base=10000.0, scale=scale, offset=offset
        )
        theirs = mlx.core.fast.rope(
            mlx.core.array(x.astype(np.float32)),
            dims,
            traditional=traditional,
            base=10000.0,
            scale=scale,
            offset=offset,
        )
        check_close(got, np.array(theirs), dtype, "rope", factor=10)
