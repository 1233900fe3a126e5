# SPDX-License-Identifier: MIT
"""What NumPy knows of an array: a reference and, for each element, how far ours may be off.

Exact values (integers, and floats that only saw correctly rounded operations) are computed in their
own dtype and must agree bit for bit. Others are computed in extended precision; each operation adds
its own rounding to what its operands' errors become. A bound of infinity says that nothing is known
of an element: its operands are too near a step of the function, or the operation is not defined.
"""

import cermet.core as mx
import ml_dtypes
import numpy as np
import scipy.special as sp

LONG = np.longdouble
NUMPY = {
    name: ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    for name in (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64"
    ).split()
}
HALVES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # unit roundoff
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
MAX_ULP = {row["name"]: row["max_ulp"] for row in mx._op_table()}
SLACK = 1.01  # products of roundings, which the first-order bounds leave out


def ours(name):
    """Our dtype of that name."""
    return getattr(mx, "bool_" if name == "bool" else name)


def name_of(dtype):
    return str(dtype).rpartition(".")[2]


def is_float(dtype):
    return dtype in HALVES or dtype in UNIT


def unit(dtype):
    """Of the arithmetic: half types are computed in float32."""
    return LONG(UNIT["float64" if dtype == "float64" else "float32"])


def limits(dtype):
    info = ml_dtypes.finfo(NUMPY[dtype]) if dtype == "bfloat16" else np.finfo(NUMPY[dtype])
    return LONG(info.max), LONG(info.smallest_subnormal)


class Bounded:
    """`ref` in the array's dtype if `exact`, else in extended precision; |ours - ref| <= err."""

    def __init__(self, ref, dtype, err=None):
        self.ref, self.dtype = np.asarray(ref), dtype
        err = np.zeros(self.ref.shape, LONG) if err is None else np.asarray(err, LONG)
        self.err = np.where(np.isnan(err), np.inf, err)
        assert self.err.shape == self.ref.shape

    @property
    def exact(self):
        return self.ref.dtype != LONG

    @property
    def shape(self):
        return self.ref.shape

    @property
    def wide(self):
        return (
            self.ref
            if not self.exact
            else self.ref.astype(np.float64).astype(LONG)
            if (self.dtype == "bfloat16")
            else self.ref.astype(LONG)
        )

    def moved(self, f):
        """f only moves elements."""
        return Bounded(f(self.ref), self.dtype, f(self.err))

    def fault(self, got):
        """None, or (index, got, reference, bound) of the element that is off by most."""
        assert got.shape == self.shape, f"shape {got.shape}, not {self.shape}"
        with np.errstate(all="ignore"):
            if got.dtype == ml_dtypes.bfloat16:
                got = got.astype(np.float64)
            off = np.abs(got.astype(LONG) - self.wide)
            same = (got == self.ref) | ((got != got) & (self.ref != self.ref))
            # The difference of 64-bit integers is exact in extended precision.
            wrong = ~same & (self.err != np.inf) & ~(off <= self.err * SLACK)
        if not wrong.any():
            return None
        at = np.unravel_index(
            np.argmax(np.where(wrong, np.nan_to_num(off, nan=np.inf), -1)), wrong.shape
        )
        return tuple(int(i) for i in at), got[at], self.ref[at], self.err[at]


def rounded(ref, err, dtype, ulps=0.0):
    """A float result that the operation gets within `ulps`, or correctly rounded if 0."""
    u = unit(dtype)
    if ulps and dtype == "float64":
        ulps = max(ulps, 4)
    relative = (2 * ulps * u if ulps else u) + LONG(HALVES.get(dtype, 0))
    largest, smallest = limits(dtype)
    with np.errstate(all="ignore"):
        err = err + relative * (np.abs(ref) + err) + (ulps + 1) * smallest
        err = np.where(np.abs(ref) + err < largest, err, np.inf)
    return Bounded(ref, dtype, err)


def unknown(*values):
    """Infinite where an operand is not known exactly."""
    err = LONG(0)
    for v in values:
        err = err + v.err
    return np.where(err > 0, LONG(np.inf), LONG(0))


# --- casts ---


def cast(x, dtype):
    if dtype == x.dtype:
        return x
    with np.errstate(all="ignore"):
        if is_float(dtype):
            return cast_to_float(x, dtype)
        if dtype == "bool":
            if x.exact:
                return Bounded(x.ref != 0, dtype, x.err)
            return Bounded(x.ref != 0, dtype, np.where(np.abs(x.ref) > x.err, 0, unknown(x)))
        if not is_float(x.dtype):
            return Bounded(x.ref.astype(NUMPY[dtype]), dtype, x.err)
        info = np.iinfo(NUMPY[dtype])
        low, high = np.trunc(x.wide - x.err), np.trunc(x.wide + x.err)
        known = (low == high) & (low >= info.min) & (low <= info.max)
        ref = np.where(known, np.nan_to_num(low), 0).astype(NUMPY[dtype])
        return Bounded(ref, dtype, np.where(known, 0, np.inf))


def cast_to_float(x, dtype):
    if dtype in UNIT and x.exact and x.dtype != "bfloat16":
        return Bounded(x.ref.astype(NUMPY[dtype]), dtype, x.err)
    widens = (x.dtype in HALVES and dtype in UNIT) or (x.dtype, dtype) == ("float32", "float64")
    if widens:
        ref = x.wide.astype(NUMPY[dtype]) if x.exact else x.ref
        return Bounded(ref, dtype, x.err)
    if dtype in HALVES and not is_float(x.dtype):
        x = cast_to_float(x, "float32")  # integers reach half types through float32
    # A value that is to be rounded may also stay as it is within a region.
    return rounded(x.wide, x.err + unit(dtype) * np.abs(x.wide) * (dtype in HALVES), dtype)


# --- element-wise operations: of operands that were cast to the operation's dtype ---


def all_native(*values):
    """Whether NumPy's own operation in the dtype gives our bits."""
    return all(v.exact for v in values) and values[0].dtype not in HALVES


def native(f, *values, dtype=None):
    with np.errstate(all="ignore"):
        ref = f(*(v.ref for v in values))
    dtype = dtype or values[0].dtype
    err = np.broadcast_to(unknown(*values), ref.shape)
    return Bounded(ref.astype(NUMPY[dtype]), dtype, err)


def add(x, y, f=np.add):
    if all_native(x, y):
        return native(f, x, y)
    with np.errstate(all="ignore"):
        return rounded(f(x.wide, y.wide), x.err + y.err, x.dtype)


def subtract(x, y):
    return add(x, y, np.subtract)


def multiply(x, y):
    if all_native(x, y):
        return native(np.multiply, x, y)
    with np.errstate(all="ignore"):
        a, b = x.wide, y.wide
        return rounded(a * b, np.abs(a) * y.err + np.abs(b) * x.err + x.err * y.err, x.dtype)


def divide(x, y):
    if all_native(x, y):
        return native(np.divide, x, y)
    with np.errstate(all="ignore"):
        quotient = x.wide / y.wide
        room = np.abs(y.wide) - y.err
        err = np.where(room > 0, (x.err + np.abs(quotient) * y.err) / room, np.inf)
        return rounded(quotient, err, x.dtype)


def extreme(f):
    def apply(x, y):
        if all_native(x, y):
            return native(f, x, y)
        with np.errstate(all="ignore"):
            return Bounded(f(x.wide, y.wide), x.dtype, np.maximum(x.err, y.err))

    return apply


def compare(f):
    def apply(x, y):
        if all_native(x, y):
            return native(f, x, y, dtype="bool")
        with np.errstate(all="ignore"):
            apart = np.abs(x.wide - y.wide) > x.err + y.err
            known = apart | (x.err + y.err == 0)
            return Bounded(f(x.wide, y.wide), "bool", np.where(known, 0, np.inf))

    return apply


def where(c, x, y):
    if x.exact and y.exact:
        ref, dtype = np.where(c.ref, x.ref, y.ref), x.dtype
    else:
        ref, dtype = np.where(c.ref, x.wide, y.wide), x.dtype
    return Bounded(ref, dtype, np.where(c.err > 0, np.inf, np.where(c.ref, x.err, y.err)))


def exact_unary(f, slope=1):
    """Correctly rounded; `slope` bounds the derivative."""

    def apply(x):
        if all_native(x):
            return native(f, x)
        with np.errstate(all="ignore"):
            return rounded(f(x.wide), slope * x.err, x.dtype)

    return apply


def step_unary(f):
    """Constant but for jumps."""

    def apply(x):
        if all_native(x):
            return native(f, x)
        with np.errstate(all="ignore"):
            low, high = f(x.wide - x.err), f(x.wide + x.err)
            return Bounded(f(x.wide), x.dtype, np.where(low == high, 0, np.inf))

    return apply


def monotone(name, f, ulps=None):
    """Within the row's ULP, of a function that is monotone, or even and monotone on each side."""

    def apply(x):
        with np.errstate(all="ignore"):
            a = x.wide
            here = f(a)
            err = np.maximum(np.abs(f(a + x.err) - here), np.abs(f(a - x.err) - here))
            err = np.where(x.err == 0, 0, err)
            return rounded(here, err, x.dtype, MAX_ULP[name] if ulps is None else ulps)

    return apply


def lipschitz(name, f):
    """Within the row's ULP, of a function whose derivative is at most 1."""

    def apply(x):
        with np.errstate(all="ignore"):
            return rounded(f(x.wide), x.err, x.dtype, MAX_ULP[name])

    return apply


def square(x):
    return multiply(x, x)


UNARY = {
    "negative": exact_unary(np.negative),
    "abs": exact_unary(np.abs),
    "square": square,
    "sqrt": lambda x: native(np.sqrt, x) if all_native(x) else monotone("sqrt", np.sqrt)(x),
    "floor": step_unary(np.floor),
    "ceil": step_unary(np.ceil),
    "trunc": step_unary(np.trunc),
    "sign": step_unary(lambda x: np.where(x != x, np.zeros_like(x), np.sign(x))),
    "exp": monotone("exp", np.exp),
    "expm1": monotone("expm1", np.expm1),
    "log1p": monotone("log1p", np.log1p),
    "log": monotone("log", np.log),
    "rsqrt": monotone("rsqrt", lambda x: 1 / np.sqrt(x)),
    "tanh": lipschitz("tanh", np.tanh),
    "arctan": lipschitz("arctan", np.arctan),
    "arcsinh": lipschitz("arcsinh", np.arcsinh),
    "sin": lipschitz("sin", np.sin),
    "cos": lipschitz("cos", np.cos),
    "sinh": monotone("sinh", np.sinh),
    "sigmoid": lipschitz("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    # SciPy's own error is about that of a double.
    "erf": monotone("erf", lambda x: sp.erf(x.astype(np.float64)).astype(LONG), ulps=6),
}
# Computed in float32 where the operand is an integer.
FLOATING = set(
    "sqrt exp expm1 log1p log rsqrt tanh arctan arcsinh sin cos sinh sigmoid erf".split()
)


# --- folds: any order of the terms ---


def count_of(x, axis):
    axes = range(x.ref.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return int(np.prod([x.shape[a] for a in axes], dtype=np.int64))


def fold_native(f, x, axis, keepdims, dtype):
    with np.errstate(all="ignore"):
        ref = f(x.ref.astype(NUMPY[dtype]), axis=axis, keepdims=keepdims, dtype=NUMPY[dtype])
    return Bounded(ref, dtype, folded_error(x, axis, keepdims))


def folded_error(x, axis, keepdims):
    return np.max(x.err, axis=axis, keepdims=keepdims, initial=0)


def sum_of(x, axis, keepdims, dtype):
    if not is_float(dtype):
        return fold_native(np.sum, x, axis, keepdims, dtype)
    x = cast(x, dtype)
    how = {"axis": axis, "keepdims": keepdims}
    with np.errstate(all="ignore"):
        err = np.sum(x.err, **how)
        size = np.sum(np.abs(x.wide), **how) + err
        err = err + count_of(x, axis) * unit(dtype) * size
        return within_range(rounded(np.sum(x.wide, **how), err, dtype), size, dtype)


def within_range(value, size, dtype):
    """Nothing is known where terms of that size may overflow on the way."""
    return Bounded(value.ref, dtype, np.where(size < limits(dtype)[0] / 4, value.err, np.inf))


def prod_of(x, axis, keepdims, dtype):
    if not is_float(dtype):
        return fold_native(np.prod, x, axis, keepdims, dtype)
    x = cast(x, dtype)
    how = {"axis": axis, "keepdims": keepdims}
    with np.errstate(all="ignore"):
        outer = np.prod(np.abs(x.wide) + x.err, **how)
        # Partial products stay in range if all factors above 1, and all below 1, do together.
        largest, smallest = limits("float64" if dtype == "float64" else "float32")
        above = np.prod(np.maximum(np.abs(x.wide) + x.err, 1), **how)
        below = np.prod(np.minimum(np.where(x.ref == 0, 1, np.abs(x.wide)), 1), **how)
        err = outer - np.prod(np.abs(x.wide), **how) + count_of(x, axis) * unit(dtype) * outer
        err = np.where((above < largest) & (below > smallest * 2**30), err, np.inf)
        return rounded(np.prod(x.wide, **how), err, dtype)


def extreme_of(f):
    def apply(x, axis, keepdims, dtype):
        ref = f(x.ref, axis=axis, keepdims=keepdims)
        return Bounded(ref, dtype, folded_error(x, axis, keepdims))

    return apply


def truth_of(f):
    def apply(x, axis, keepdims, dtype):
        x = cast(x, "bool")
        ref = f(x.ref, axis=axis, keepdims=keepdims)
        return Bounded(ref, "bool", folded_error(x, axis, keepdims))

    return apply


def constant(v, dtype):
    return Bounded(np.asarray(v, NUMPY[dtype]), dtype)


def mean_of(x, axis, keepdims, dtype):
    total = sum_of(cast(x, dtype), axis, keepdims, dtype)
    count = Bounded(LONG(max(count_of(x, axis), 1)), dtype)
    return divide(total, count)


def var_of(x, axis, keepdims, dtype):
    x = cast(x, dtype)
    distance = subtract(x, mean_of(x, axis, True, dtype))
    return mean_of(square(distance), axis, keepdims, dtype)


def logsumexp_of(x, axis, keepdims, dtype):
    x = cast(x, dtype)
    top = extreme_of(np.max)(x, axis, True, dtype)
    total = sum_of(UNARY["exp"](subtract(x, top)), axis, True, dtype)
    result = add(UNARY["log"](total), top)
    return result if keepdims else result.moved(lambda v: v.squeeze(axis))


def softmax_of(x, axis):
    top = extreme_of(np.max)(x, axis, True, x.dtype)
    powers = UNARY["exp"](subtract(x, top))
    return divide(powers, sum_of(powers, axis, True, x.dtype))


def arg_of(f, sign):
    """The first of the extreme elements, where no other one may be it."""

    def apply(x, axis, keepdims, dtype):
        with np.errstate(all="ignore"):
            at = f(x.ref, axis=axis, keepdims=True)
            if x.dtype in UNIT or x.dtype in HALVES:
                size = sign * x.wide
                best = np.take_along_axis(size - x.err, at, axis)
                others = np.arange(x.shape[axis]).reshape(
                    [-1 if a == axis % x.ref.ndim else 1 for a in range(x.ref.ndim)]
                )
                near = (
                    ~(size + x.err < best)  # NaN: nothing is known
                    & (others != at)
                    & (x.err + np.take_along_axis(x.err, at, axis) > 0)
                )
                lost = (near | (x.ref != x.ref)).any(axis=axis, keepdims=True)
            else:
                lost = (x.err > 0).any(axis=axis, keepdims=True)
        result = Bounded(at.astype(np.uint32), "uint32", np.where(lost, np.inf, 0))
        return result if keepdims else result.moved(lambda v: v.squeeze(axis))

    return apply


REDUCE = {
    "sum": sum_of,
    "prod": prod_of,
    "min": extreme_of(np.min),
    "max": extreme_of(np.max),
    "any": truth_of(np.any),
    "all": truth_of(np.all),
    "mean": mean_of,
    "var": var_of,
    "logsumexp": logsumexp_of,
    "argmin": arg_of(np.argmin, -1),
    "argmax": arg_of(np.argmax, 1),
}


# --- scans ---


def scan(accumulate, x, axis, reverse, inclusive=True):
    """Exclusive: 0 first, then what lies before each place."""
    y = accumulate(np.flip(x, axis) if reverse else x, axis=axis)
    if not inclusive:
        y = np.roll(y, 1, axis)
        np.moveaxis(y, axis, 0)[:1] = 0
    return np.flip(y, axis) if reverse else y


def cumsum_of(x, axis, reverse, inclusive, dtype):
    x = cast(x, dtype)

    def total(v):
        return scan(np.cumsum, v, axis, reverse, inclusive).astype(v.dtype)

    with np.errstate(all="ignore"):
        err = total(x.err)
        if not is_float(dtype):
            return Bounded(total(x.ref), dtype, err)
        size = total(np.abs(x.wide)) + err
        err = err + x.shape[axis] * unit(dtype) * size
        return within_range(rounded(total(x.wide), err, dtype), size, dtype)


def extremes_of(f):
    def apply(x, axis, reverse):
        err = scan(np.maximum.accumulate, x.err, axis, reverse)
        return Bounded(scan(f.accumulate, x.ref, axis, reverse), x.dtype, err)

    return apply


EXTREMES = {"cummax": extremes_of(np.maximum), "cummin": extremes_of(np.minimum)}


def matmul(x, y, dtype):
    x, y = cast(x, dtype), cast(y, dtype)
    a, b = np.abs(x.wide), np.abs(y.wide)
    with np.errstate(all="ignore"):
        err = a @ y.err + x.err @ b + x.err @ y.err
        size = a @ b + err
        # Products made of bfloat16 parts leave out some of the size of a rounding.
        err = err + (x.shape[-1] + 6) * unit(dtype) * size
        if dtype == "bfloat16":  # the instructions take subnormal operands and sums as 0
            least = np.full_like(a, LONG(2) ** -126), np.full_like(b, LONG(2) ** -126)
            err = err + least[0] @ b + a @ least[1] + x.shape[-1] * LONG(2) ** -126
        return within_range(rounded(x.wide @ y.wide, err, dtype), size, dtype)


def scatter_add(x, at, values):
    """x.at[at].add(values), where `at` may name an element several times."""
    if all_native(x, values) and not is_float(x.dtype):
        ref, err = x.ref.copy(), x.err.copy()
        np.add.at(ref, at, values.ref)
        np.add.at(err, at, values.err)
        return Bounded(ref, x.dtype, err)
    ref, err, size, terms = x.wide.copy(), x.err.copy(), np.abs(x.wide), np.zeros(x.shape, LONG)
    with np.errstate(all="ignore"):
        np.add.at(ref, at, values.wide)
        np.add.at(err, at, values.err)
        np.add.at(size, at, np.abs(values.wide))
        np.add.at(terms, at, 1)
        # Half types are rounded at each addition.
        u = unit(x.dtype) + LONG(HALVES.get(x.dtype, 0))
        err = err + terms * u * (size + err)
        return within_range(rounded(ref, err, x.dtype), size, x.dtype)
