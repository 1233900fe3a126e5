# SPDX-License-Identifier: MIT
"""Makes the seed cache of kernels: `seed.py FILE LLVM` runs single ops of the library on small
arrays and has it write the kernels that they took, for every level of processor. The ops come from
the op table; what is listed here are calls that need other arguments. Kernels of an earlier file
are compiled anew only if something that makes code has changed: sources, LLVM's version.

A kernel is made for a structure (dtypes, strides, ranks after collapsing), not for sizes, so a
handful of layouts serves most first uses.
"""

import hashlib
import itertools
import pathlib
import sys

import cermet.core as mx

FLOATS = [mx.float32, mx.float16, mx.bfloat16]
COMMON = [*FLOATS, mx.int32, mx.bool_]
SINGLE = [mx.float32, mx.int32]  # of which there are single numbers, too
WIDE = [*COMMON, mx.int64, mx.uint32, mx.uint8, mx.float64]


def generator(llvm):
    """What the code of a kernel follows from, beside the kernel: no folder right of codegen."""
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    files = [f for folder in ("base", "kernel", "codegen") for f in (source / folder).rglob("*.*")]
    files += (source / "runtime").glob("kernel_[ds]*")  # the file's format
    digest = hashlib.sha256(llvm.encode())
    for file in sorted(files):
        digest.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def numbers(shape, dtype):
    """An array that no kernel has made a view of."""
    count = 1
    for n in shape:
        count *= n
    return (mx.arange(count) % 3 + 1).astype(dtype).reshape(shape)


def sources(dtype):
    return {
        "v": numbers((64,), dtype),
        "u": numbers((64,), dtype),
        "s": numbers((), dtype),
        "m": numbers((8, 16), dtype),
        "row": numbers((16,), dtype),
        "column": numbers((8, 1), dtype),
        "t": numbers((4, 8, 16), dtype),
    }


def table_calls():
    for row in mx._op_table():
        if not row["public"] or not hasattr(mx, row["name"]):
            continue
        f, family = getattr(mx, row["name"]), row["family"]
        promotes = mx.float32 in row["accepts"]  # integers as well, then
        for dtype in WIDE:
            if dtype not in row["accepts"] and not (promotes and dtype in COMMON):
                continue
            if family == "unary":
                yield f, ["v"], dtype, {}
                if dtype in SINGLE:
                    yield f, ["s"], dtype, {}
            elif family == "binary":
                number = True if dtype == mx.bool_ else 2
                yield f, ["v", "u"], dtype, {}
                yield f, ["v", number], dtype, {}
                if dtype in COMMON:
                    yield f, ["v", "v"], dtype, {}
                    yield f, [number, "v"], dtype, {}
                    yield f, ["m", "row"], dtype, {}
                    yield f, ["m", "column"], dtype, {}
                if dtype in SINGLE:
                    yield f, ["s", "s"], dtype, {}
                    yield f, ["s", number], dtype, {}
            elif family == "reduce" and dtype in COMMON:
                yield f, ["v"], dtype, {}
                for axis in (0, 1):
                    yield f, ["m"], dtype, {"axis": axis}
                yield f, ["t"], dtype, {"axis": 1}


def casts(dtype):
    for other in WIDE:
        for source in ("v", "s", "m"):
            yield lambda x, other=other: x.astype(other), [source], {}


def folds(dtype):
    names = ["argmin", "argmax"]
    if dtype in FLOATS:
        names += ["mean", "var", "std", "softmax"]
    for name in names:
        yield getattr(mx, name), ["v"], {}
        for axis in (0, 1):
            yield getattr(mx, name), ["m"], {"axis": axis}


def scans(dtype):
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        yield getattr(mx, name), ["v"], {}
        for axis in (0, 1):
            yield getattr(mx, name), ["m"], {"axis": axis}


def movements(dtype):
    ids = numbers((5,), mx.int32)
    yield lambda x: mx.contiguous(x.T), ["m"], {}
    yield lambda x: mx.contiguous(mx.swapaxes(x, 0, 1)), ["t"], {}
    yield lambda x: mx.contiguous(mx.swapaxes(x, 1, 2)), ["t"], {}
    yield lambda x: mx.contiguous(mx.flip(x)), ["v"], {}
    yield lambda x: mx.contiguous(x[::2]), ["v"], {}
    yield lambda x: mx.contiguous(x[:, 2:5]), ["m"], {}
    yield lambda x: mx.contiguous(mx.broadcast_to(x, (8, 16))), ["row"], {}
    yield lambda x: mx.concatenate([x, x]), ["v"], {}
    yield lambda x, y: mx.concatenate([x, y]), ["v", "u"], {}
    yield lambda x: mx.concatenate([x, x], axis=1), ["m"], {}
    yield lambda x, y: mx.stack([x, y]), ["v", "u"], {}
    yield lambda x: mx.pad(x, 1), ["v"], {}
    yield lambda x: mx.pad(x, 1), ["m"], {}
    yield lambda x: mx.take(x, ids), ["v"], {}
    yield lambda x: mx.take(x, mx.array([1, 5, 2])), ["v"], {}
    yield lambda x: mx.take(x, ids, axis=0), ["m"], {}
    yield lambda x: mx.tile(x, 2), ["v"], {}
    yield lambda x: mx.repeat(x, 2), ["v"], {}
    yield lambda x, y: mx.where(x > 1, x, y), ["v", "u"], {}
    yield lambda x, y: mx.where(x, x, y), ["v", "u"], {}
    yield lambda x: mx.full((8, 16), 1, dtype=dtype) + x, ["m"], {}
    yield lambda x: mx.zeros_like(x), ["m"], {}
    yield lambda x: mx.ones((64,), dtype=x.dtype), ["v"], {}


def float_calls(dtype):
    yield mx.matmul, ["m", mx.swapaxes(numbers((8, 16), dtype), 0, 1)], {}
    yield mx.matmul, ["m", numbers((16, 8), dtype)], {}
    yield mx.matmul, ["m", "row"], {}
    for m, k, n in ((2, 16, 8), (2, 4, 8), (1, 16, 8)):  # of fewer rows, of short sums
        yield mx.matmul, [numbers((m, k), dtype), numbers((k, n), dtype)], {}
        yield mx.matmul, [numbers((m, k), dtype), mx.swapaxes(numbers((n, k), dtype), 0, 1)], {}
    yield mx.matmul, ["t", numbers((4, 16, 8), dtype)], {}
    yield mx.matmul, ["t", numbers((16, 8), dtype)], {}
    yield lambda x: x @ x, [numbers((8, 8), dtype)], {}
    yield mx.clip, ["v", 1, 2], {}
    yield mx.round, ["v"], {}
    for number in (0.5, -0.5, -1, 3, 4, 0.3):  # forms of their own, and the general one
        yield mx.power, ["v", number], {}
    yield mx.logcumsumexp, ["v"], {}
    yield mx.fast.layer_norm, ["m", "row", "row", 1e-5], {}
    yield mx.fast.rms_norm, ["m", "row", 1e-5], {}
    for name in ("logsumexp", "softmax"):
        yield getattr(mx, name), ["t"], {"axis": -1}


def made_calls():
    key = mx.random.key(3)
    for dtype in FLOATS:
        yield lambda dtype=dtype: mx.random.uniform(shape=(64,), dtype=dtype, key=key)
        yield lambda dtype=dtype: mx.random.normal((64,), dtype=dtype, key=key)
    yield lambda: mx.random.randint(0, 9, (64,), key=key)
    yield lambda: mx.random.bernoulli(0.5, (64,), key=key)
    for dtype in WIDE:
        if dtype != mx.bool_:
            yield lambda dtype=dtype: mx.arange(64, dtype=dtype)


def calls():
    """(function, arguments, options, dtype): texts name one of `sources`."""
    for f, arguments, dtype, options in table_calls():
        yield f, arguments, options, dtype
    for dtype in WIDE:
        for f, arguments, options in casts(dtype):
            yield f, arguments, options, dtype
    for dtype in COMMON:
        for part in (
            folds(dtype),
            scans(dtype),
            movements(dtype),
            float_calls(dtype) if dtype in FLOATS else (),
        ):
            for f, arguments, options in part:
                yield f, arguments, options, dtype


def main(path, llvm):
    mx._keep_kernels(path, generator(llvm))
    made = {dtype: sources(dtype) for dtype in WIDE}
    for source in itertools.chain.from_iterable(d.values() for d in made.values()):
        mx.eval(source)
    for f, arguments, options, dtype in calls():
        given = [made[dtype][a] if isinstance(a, str) else a for a in arguments]
        mx.eval([a for a in given if isinstance(a, mx.array)])
        try:
            mx.eval(f(*given, **options))
        except (TypeError, ValueError):  # an op that does not take the dtype
            continue
    for f in made_calls():
        mx.eval(f())
    mx._write_kept_kernels()


if __name__ == "__main__":
    main(*sys.argv[1:])
