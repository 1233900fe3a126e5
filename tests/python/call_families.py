# SPDX-License-Identifier: MIT
"""Lines of Python that call what Cermet and MLX both have, with arguments that fit or nearly: all
dtypes, shapes with 0-d and empty ones, axes in each form, weak scalars on either side. For
test_mlx_calls.py; nothing here reads memory that is not its own or ends the wheel's process.
"""

import itertools
import math
import operator

import ml_dtypes
import numpy as np

DTYPES = (
    "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "complex64"
).split()
FLOATS = [0.5, -1.25, 2, 0, 3.75, -0.125, 1, 7.5, -4, 0.875, -2.5, 1.5]
INTEGERS = [1, -2, 0, 3, -5, 7, -100, 4, -6, 9, 2, -1]
NUMBERS = ["3", "-2", "0", "True", "False", "0.5", "-1.5", "1j", "7", "math.inf", "mx.array(2)"]
SHAPES = ["()", "(0,)", "(3,)", "(2, 3)", "(2, 3, 4)", "(1, 3, 1)", "(6,)"]
AXES = [
    "",
    "None",
    "0",
    "-1",
    "1",
    "(0,)",
    "(0, 1)",
    "(1, 0)",
    "[0]",
    "(-1, -2)",
    "-3",
    "5",
    "(0, 0)",
]

UNARY = """
abs negative sign square sqrt rsqrt reciprocal floor ceil trunc exp expm1 log log2 log10 log1p sin
cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh erfinv sigmoid degrees radians
logical_not bitwise_invert isnan isinf isfinite real imag conjugate stop_gradient round nan_to_num
zeros_like ones_like
""".split()
BINARY = """
add subtract multiply divide floor_divide remainder power maximum minimum logaddexp arctan2 equal
not_equal less less_equal greater greater_equal logical_and logical_or bitwise_and bitwise_or
bitwise_xor left_shift right_shift array_equal
""".split()
REDUCE = "sum prod min max any all logsumexp mean var std count_nonzero".split()
SCAN = "cumsum cumprod cummax cummin logcumsumexp".split()
INDICES = [
    "0", "-1", "None", "...", "slice(1, None)", "slice(None, None, -1)", "slice(5, 10)",
    "slice(-10, 2)", "(0, slice(None))", "(..., 0)", "(None, 0)", "(slice(None), None)",
    "(slice(None, None, -2), slice(None, None, 2))", "mx.array(0)", "mx.array([0, -1])",
    "(mx.array([0, 1]), mx.array([0, 1]))", "(mx.array([0]), ..., mx.array([0]))", "[0, 0]",
    "(0, mx.array([0, 1]))", "(mx.array([[0], [0]]), mx.array([0, 1]))", "(0, 0, 0, 0)",
]  # fmt: skip
ACTIVATIONS = """
celu elu gelu gelu_approx hard_shrink hard_tanh hardswish leaky_relu log_sigmoid log_softmax mish
relu relu6 selu sigmoid silu softmax softplus softshrink softsign step tanh
""".split()
LOSSES = "l1_loss mse_loss huber_loss smooth_l1_loss log_cosh_loss hinge_loss kl_div_loss".split()


def unary():
    for f, d, s in itertools.product(UNARY, DTYPES, ["()", "(0,)", "(12,)"]):
        for kind in ["", "unit", "pos"] if s == "(12,)" else [""]:
            yield f"mx.{f}(A('{d}', {s}, '{kind}'))"


def binary():
    for f, a, b in itertools.product(BINARY, DTYPES, DTYPES):
        yield f"mx.{f}(A('{a}', (12,)), A('{b}', (12,), 'other'))"
    for f, d, n in itertools.product(BINARY, DTYPES, NUMBERS):
        yield f"mx.{f}(A('{d}', (3,)), {n})"
        yield f"mx.{f}({n}, A('{d}', (3,)))"
    for f, a, b in itertools.product(BINARY, SHAPES, SHAPES):
        yield f"mx.{f}(A('float32', {a}), A('float32', {b}, 'other'))"
    for f, g, d in itertools.product("+-*/", ["mx.array(2)", "3", "0.5"], DTYPES):
        yield f"A('{d}', (2, 3)) {f} {g}"
        yield f"{g} {f} A('{d}', (2, 3), 'pos')"


def folds():
    for f, s, a, keep in itertools.product(REDUCE, SHAPES, AXES, ["", ", keepdims=True"]):
        if "(0" not in s or a in ("", "None", "0", "-1"):
            yield f"mx.{f}(A('float32', {s}){f', axis={a}' * bool(a)}{keep})"
    for f, d, a in itertools.product([*REDUCE, *SCAN, "softmax"], DTYPES, ["", "0", "-1"]):
        yield f"mx.{f}(A('{d}', (3, 4)){f', axis={a}' * bool(a)})"
    for f, d, r, i in itertools.product(SCAN, DTYPES, ["True", "False"], ["True", "False"]):
        yield f"mx.{f}(A('{d}', (3, 4)), axis=0, reverse={r}, inclusive={i})"
    for f, s, a in itertools.product(["argmin", "argmax", *SCAN], SHAPES[2:], AXES):
        yield f"mx.{f}(A('float32', {s}){f', axis={a}' * bool(a)})"


def movement():
    forms = [
        "mx.reshape({}, {})",
        "mx.broadcast_to({}, {})",
        "mx.unflatten({}, -1, {})",
        "mx.tile({}, {})",
    ]
    sizes = [
        "()",
        "(6,)",
        "(-1,)",
        "(3, 2)",
        "(2, -1)",
        "(-1, -1)",
        "(4, 2)",
        "[3, 2]",
        "(2, 2, 3)",
    ]
    for form, a, s in itertools.product(forms, SHAPES, sizes):
        yield form.format(f"A('float32', {a})", s)
    for f, a, axes in itertools.product(
        ["transpose", "squeeze", "expand_dims"],
        SHAPES,
        ["None", "(0,)", "(1, 0)", "(0, 2, 1)", "(0, -1)", "[1, 0]"],
    ):
        yield f"mx.{f}(A('int16', {a}), {axes})"
    for f, a, i, j in itertools.product(
        ["swapaxes", "moveaxis", "flatten", "diagonal", "trace"], SHAPES, range(-3, 3), range(-3, 3)
    ):
        k = "0, " if f in ("diagonal", "trace") else ""
        yield f"mx.{f}(A('float32', {a}), {k}{i}, {j})"
    for f, a, i in itertools.product(
        ["diff", "tril", "triu", "roll", "repeat", "tile", "pad", "diag"], SHAPES, range(-2, 4)
    ):
        yield f"mx.{f}(A('float32', {a}), {i})"
    for f, a, b in itertools.product(
        ["matmul", "inner", "outer", "kron", "tensordot", "broadcast_arrays", "meshgrid"],
        SHAPES[2:],
        SHAPES[2:],
    ):
        end = "[0]" if f in ("broadcast_arrays", "meshgrid") else ""
        yield f"mx.{f}(A('float32', {a}), A('float32', {b}, 'other')){end}"
    for a, b, axis in itertools.product(SHAPES[1:], SHAPES, ["0", "1", "-1", "None"]):
        yield f"mx.concatenate([A('float32', {a}), A('float32', {b})], {axis})"
        yield f"mx.stack([A('float32', {a}), A('float32', {b})], {axis})"
        yield f"mx.concatenate(A('float32', {a}), {axis})"
        yield f"mx.stack(A('float32', {a}), {axis})"


def indexing():
    for s, i, d in itertools.product(
        SHAPES[2:], INDICES, ["float32", "int8", "complex64", "bool_"]
    ):
        x = f"A('{d}', {s})"
        if fits(s, i):
            yield f"{x}[{i}]"
            yield f"set_item({x}, {i}, 3)"
            yield f"{x}.at[{i}].add(2)"
            yield f"{x}.at[{i}].maximum(1)"


def fits(shape, index):
    """Whether NumPy takes the index: the wheel reads what it should not, otherwise."""
    names = {"mx": np}
    try:
        np.zeros(eval(shape))[eval(index, names)]
    except IndexError:
        return False
    return True


def casts():
    for d, e in itertools.product(DTYPES, DTYPES):
        yield f"A('{d}', (12,), 'pos').astype(mx.{e})"
        yield f"A('{d}', (12,)).astype(mx.{e})"
        yield f"A('{d}', (2, 8)).view(mx.{e})"
        yield f"mx.concatenate([A('{d}', (3,)), A('{e}', (2,))])"
        yield f"mx.where(A('bool_', (3,)), A('{d}', (3,)), A('{e}', (3,), 'other'))"
        yield f"str(mx.result_type(A('{d}', ()), mx.{e})).split('.')[-1]"
        yield f"[mx.can_cast(mx.{d}, mx.{e}), mx.issubdtype(mx.{d}, mx.{e})]"
    for d, n in itertools.product(DTYPES, [*NUMBERS, "2**40", "[1, 2.5]", "[True, 2]"]):
        yield f"mx.where(A('bool_', (3,)), A('{d}', (3,)), {n})"


def random_numbers():
    for s, d in itertools.product(
        ["()", "(3,)", "(2, 3)", "(0,)"], ["float32", "float16", "bfloat16"]
    ):
        for f in [
            f"uniform(shape={s}",
            f"normal({s}",
            f"gumbel({s}",
            f"truncated_normal(-1, 1, {s}",
        ]:
            yield f"mx.random.{f}, dtype=mx.{d}, key=mx.random.key(3))"
    for shape, axis, n in itertools.product(
        ["(3,)", "(2, 3)", "(2, 3, 4)", "(1, 9)"], [0, -1], range(1, 6)
    ):
        logits = f"A('float32', {shape})"
        yield f"mx.random.categorical({logits}, {axis}, num_samples={n}, key=mx.random.key({n}))"
        yield f"mx.random.categorical({logits}, {axis}, key=mx.random.key({n}))"


def layers():
    for f, d, s in itertools.product(
        ACTIVATIONS, ["float32", "bfloat16", "int32"], ["(4,)", "(2, 6)"]
    ):
        yield f"nn.{f}(A('{d}', {s}, 'other'))"
        yield f"gradient(nn.{f}, A('float32', {s}, 'pos'))"
    for f, r in itertools.product(LOSSES, ["none", "mean", "sum"]):
        loss = f"nn.losses.{f}(A('float32', (2, 3), 'pos'), A('float32', (2, 3)), reduction='{r}')"
        yield loss
        over = loss.replace("A('float32', (2, 3), 'pos')", "x")
        yield f"gradient(lambda x: {over}, A('float32', (2, 3), 'pos'))"


def all_calls():
    families = (
        unary, binary, folds, movement, indexing, casts, random_numbers, layers,
    )  # fmt: skip
    return list(dict.fromkeys(itertools.chain.from_iterable(f() for f in families)))


# --- what the lines name ---


def values(dtype, shape, kind):
    count = math.prod(shape)
    if dtype == "bool_":
        return np.resize([True, False, True, True, False], shape)
    inexact = "int" not in dtype
    base = FLOATS if inexact else INTEGERS
    if kind == "pos":
        base = [abs(v) + (0.25 if inexact else 1) for v in base]
    elif kind == "unit" and inexact:
        base = [v / 8 for v in base]
    elif kind == "other":
        base = base[5:] + base[:5]
    if dtype.startswith("uint"):
        base = [abs(v) for v in base]
    x = np.resize(base, count)
    if dtype == "complex64":
        x = x + 1j * np.roll(x, 5)
    return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(shape)


def names(lib):
    mx = lib.mx

    def array(dtype, shape, kind=""):
        return mx.array(values(dtype, shape, kind), dtype=getattr(mx, dtype))

    def set_item(a, index, value):
        a[index] = value
        return a

    def gradient(f, x):
        return mx.grad(lambda x: mx.sum(f(x)))(x)

    return {
        "mx": mx, "nn": lib.nn, "optim": lib.optim, "np": np, "math": math, "operator": operator,
        "A": array, "set_item": set_item, "gradient": gradient,
    }  # fmt: skip
