# SPDX-License-Identifier: MIT
"""Every op of the table at 16M elements, in float32 and its other main dtypes, against the
libraries that have such a thing.

The table is read from the extension: this file says only what the table does not, which calls show
an op of several arguments or a view at work, and in which other dtypes it is used.
"""

import functools

from case import ARRAY_PEERS, Case, add
from gates import NotSlower
from peers import DTYPES

SIDE = 4096
SHAPE = SIDE, SIDE
LIMIT = 1.10

# These compute nothing, are no calls of a user, or have rows of their own in another file.
ELSEWHERE = {
    *("stop_gradient", "depends", "custom_call", "linear_scan", "attention_gradient"),
    *("exp_nonpositive", "exp_nonpositive_bfloat16", "exp_below", "max_number"),
    *("matmul", "random_bits", "layer_norm", "rms_norm", "rope", "scaled_dot_product_attention"),
    *("cross_entropy", "gather_mm", "scatter_mm", "segments"),
}
# Floats have float32 and bfloat16; which ops are used with other dtypes:
INTEGER = {
    *("abs", "negative", "sign", "square"),
    *("add", "subtract", "multiply", "floor_divide", "remainder", "power", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("sum", "prod", "min", "max", "argmin", "argmax", "cumsum", "cumprod", "cummax", "cummin"),
    *("bitwise_invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    *("select", "cast", "gather", "take_along_axis"),
}
BOOLEAN = {"logical_not", "logical_and", "logical_or", "logical_xor", "any", "all"}
DECIDED = {"any": 0, "all": 1}  # so that nobody can stop before the end
COMPLEX = {"real", "imag", "conjugate", "view_as_real"}


@functools.cache
def table():
    import cermet.core as mx

    return {row["name"]: row for row in mx._op_table()}


def main_dtypes(row):
    name, accepted = row["name"], {str(d).rpartition(".")[2] for d in row["accepts"]}
    if name in BOOLEAN:
        return ["bool"]
    if name in COMPLEX:
        return ["c64"]
    wanted = ["f32", "bf16"] + ["i32"] * (name in INTEGER)
    return [d for d in wanted if DTYPES[d] in accepted]


@functools.lru_cache(maxsize=3)
def operand(lib, shape, low, high, seed, dtype):
    """The same array for many cases; cases change no operand."""
    return lib.uniform(*shape, low=low, high=high, seed=seed, dtype=dtype)


# --- steps: (lib, row, dtype) → (function, its arrays) ---


def arrays(lib, row, dtype, count=1, shape=SHAPE):
    low, high = row["domain"]
    if row["name"] in ("floor_divide", "remainder", "left_shift", "right_shift"):
        low = 1  # also of whole numbers
    if row["name"] in DECIDED:
        low = high = DECIDED[row["name"]]
    return [operand(lib, shape, low, high, seed, dtype) for seed in range(count)]


def unary(lib, row, dtype):
    f = lib.function(row["name"])
    if row["name"] in COMPLEX:  # views in some libraries
        return lambda x: lib.contiguous(f(x)), arrays(lib, row, dtype)
    return f, arrays(lib, row, dtype)


def binary(lib, row, dtype):
    return lib.function(row["name"]), arrays(lib, row, dtype, 2)


def along(axis):
    """A reduction or scan: of rows, or of everything."""

    def step(lib, row, dtype):
        f = lib.function(row["name"])
        if axis is None:
            return f, arrays(lib, row, dtype)
        return lambda x: f(x, axis), arrays(lib, row, dtype)

    return step


def moved(change):
    """A view, made contiguous."""

    def step(lib, row, dtype):
        return lambda x: lib.contiguous(change(lib, x)), arrays(lib, row, dtype)

    return step


def of_one(change, count=1, shape=SHAPE):
    def step(lib, row, dtype):
        return functools.partial(change, lib), arrays(lib, row, dtype, count, shape)

    return step


def with_indices(change, *shape, high=SIDE):
    def step(lib, row, dtype):
        return functools.partial(change, lib), [
            *arrays(lib, row, dtype),
            lib.integers(*shape, high=high),
        ]

    return step


def select(lib, row, dtype):
    mask = operand(lib, SHAPE, 0, 1, 0, "bool")
    return lib.xp.where, [mask, *arrays(lib, row, dtype, 2)]


def cast(lib, row, dtype):
    to = "bf16" if dtype == "f32" else "f32"
    lib.dtype(to)
    return lambda x: lib.cast(x, to), arrays(lib, row, dtype)


def exp2(lib, row, dtype):
    """Cermet and MLX have no name for it."""
    f = getattr(lib.xp, "exp2", None) or (lambda x: lib.xp.power(2, x))
    return f, arrays(lib, row, dtype)


def along_axis(lib, x, indices):
    """Rows' elements at computed places."""
    if lib.name.startswith("torch"):
        return lib.xp.gather(x, 1, indices.long())
    return lib.xp.take_along_axis(x, indices, 1)


def put_along_axis(lib, x, indices):
    if lib.name.startswith("torch"):
        return x.scatter(1, indices.long(), x)
    if lib.name == "jax":
        return lib.xp.put_along_axis(x, indices, x, 1, inplace=False)
    if lib.name == "numpy":
        x = x.copy()
        lib.xp.put_along_axis(x, indices, x, 1)
        return x
    return lib.xp.put_along_axis(x, indices, x, 1)


def scatter(lib, x, rows):
    return lib.add_rows(copy_of(lib, x), rows, x)


def copy_of(lib, x):
    """Where an update would write into the argument itself."""
    if lib.name == "numpy":
        return x.copy()
    return x.clone() if lib.name.startswith("torch") else x


def slice_update(lib, x, y):
    """Half of the columns."""
    if lib.name == "jax":
        return x.at[:, ::2].set(y)
    x = lib.xp.array(x) if lib.name in ("cermet", "mlx") else copy_of(lib, x)
    x[:, ::2] = y
    return x


def slice_update_step(lib, row, dtype):
    low, high = row["domain"]
    half = operand(lib, (SIDE, SIDE // 2), low, high, 1, dtype)
    return functools.partial(slice_update, lib), [*arrays(lib, row, dtype), half]


def pad(lib, x):
    if lib.name.startswith("torch"):
        return lib.functional.pad(x, (1, 1, 1, 1))
    return lib.xp.pad(x, 1)


def flip(lib, x):
    return lib.xp.flip(x, (1,))


def as_strided(lib, x):
    """Windows of 2 in each row."""
    shape, strides = (SIDE, SIDE - 1, 2), (SIDE, 1, 1)
    if lib.name == "numpy":
        strides = [s * x.itemsize for s in strides]
        return lib.xp.lib.stride_tricks.as_strided(x, shape, strides)
    return lib.function("as_strided")(x, shape, strides)


def bits(lib, x):
    """Their words, changed: a view by itself moves nothing."""
    whole = {"f32": "int32", "bf16": "int16", "i32": "int32"}[dtype_name(x)]
    return x.view(getattr(lib.xp, whole)) ^ 1


def halves(lib, x):
    return x.view(getattr(lib.xp, {"f32": "int16", "bf16": "int8"}[dtype_name(x)])) ^ 1


def real_pairs(lib, x):
    parts = lib.xp.view_as_real(x) if lib.name.startswith("torch") else x.view(lib.xp.float32)
    return parts + 1


def complex_pairs(lib, x):
    if lib.name.startswith("torch"):
        return lib.xp.view_as_complex(x.reshape(SIDE, SIDE // 2, 2)) + 1
    return x.view(lib.xp.complex64) + 1


def dtype_name(x):
    name = str(x.dtype).rpartition(".")[2]
    return next(short for short, long in DTYPES.items() if long == name)


def complex_of(lib, x, y):
    if lib.name.startswith("torch"):
        return lib.xp.complex(x, y)
    return lib.jax.lax.complex(x, y) if lib.name == "jax" else x + 1j * y


def diagonal(lib, x):
    return lib.xp.diagonal(x)


def creation(make):
    def step(lib, row, dtype):
        lib.dtype(dtype)
        return functools.partial(make, lib, dtype), []

    return step


STEPS = {
    "exp2": exp2,
    "select": select,
    "cast": cast,
    "complex_of": of_one(complex_of, 2),
    "reshape": moved(lambda lib, x: x.T.reshape(-1)),
    "transpose": moved(lambda lib, x: x.T),
    "broadcast_to": moved(lambda lib, x: lib.xp.broadcast_to(x[:1], SHAPE)),
    "slice": moved(lambda lib, x: x[:, 1::2]),
    "slice_update": slice_update_step,
    "pad": of_one(pad),
    "concatenate": {
        "": of_one(lambda lib, x, y: lib.xp.concatenate([x, y], 1), 2, (SIDE, SIDE // 2)),
        " of many": of_one(
            lambda lib, *parts: lib.xp.concatenate(parts, 0), 16, (SIDE // 16, SIDE)
        ),
    },
    "flip": moved(flip),
    "contiguous": moved(lambda lib, x: x[:, :-1]),
    "diagonal": moved(diagonal),
    "diagonal_matrix": of_one(lambda lib, x: lib.xp.diag(x), 1, (SIDE,)),
    "as_strided": moved(as_strided),
    "bitcast": of_one(bits),
    "view_bytes": of_one(halves),
    "view_as_real": of_one(real_pairs),
    "view_as_complex": of_one(complex_pairs),
    "gather": with_indices(lambda lib, x, i: x[i], SIDE),
    "take_along_axis": with_indices(along_axis, *SHAPE),
    "scatter": with_indices(scatter, SIDE),
    "scatter_along_axis": with_indices(put_along_axis, *SHAPE),
    "full": creation(lambda lib, dtype: lib.xp.full(SHAPE, 3, dtype=lib.dtype(dtype))),
    "arange": creation(lambda lib, dtype: lib.xp.arange(SIDE * SIDE, dtype=lib.dtype(dtype))),
}
FAMILIES = {"unary": {"": unary}, "binary": {"": binary}}
FOLDS = {" of all": along(None), " of rows": along(1)}
SCANS = {" of rows": along(1)}


def steps_of(row):
    """{what the case's name says beside the op's: step}"""
    if row["name"] in STEPS:
        steps = STEPS[row["name"]]
        return steps if isinstance(steps, dict) else {"": steps}
    if row["lowering"] == "scan":
        return SCANS
    if row["lowering"] == "fold":
        return FOLDS
    if row["name"] == "logsumexp":  # torch wants the axes
        return FOLDS | {" of all": along((0, 1))}
    if row["name"] == "softmax":
        return SCANS
    return FAMILIES[row["family"]]


def timed(step, name, dtype):
    def build(lib):
        f, inputs = step(lib, table()[name], dtype)
        f = lib.call(f)
        return lambda: f(*inputs)

    return build


for name, row in table().items():
    for what, step in steps_of(row).items() if name not in ELSEWHERE else ():
        for dtype in main_dtypes(row):
            add(
                Case(
                    f"op {name}{what}",
                    SHAPE,
                    timed(step, name, dtype),
                    NotSlower(LIMIT),
                    dtype=dtype,
                    peers=ARRAY_PEERS,
                    pairs=3,
                    brief=True,
                )
            )
