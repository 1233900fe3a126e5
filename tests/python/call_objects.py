# SPDX-License-Identifier: MIT
"""What random_call.py's calls are given: arrays whose bytes are remembered, and objects whose
special methods say nonsense, raise, or change the container that is being read.
"""

import array
import ctypes
import decimal
import fractions
import functools
import io
import math
import operator
import pathlib
import random
import zipfile

import cermet.core as mx
import cermet.nn as nn
import cermet.optimizers as optim
import cermet.utils as utils
import ml_dtypes
import numpy as np

MEMORY = 1 << 28
LARGEST = 1 << 20  # elements of results that are evaluated; or so many that there is no room
VALUES = [0, 1, 2, -1, 3, 0.5, -2.5, 100, 7, 1e-3, -0.0, 4, 5, 6, 1e6, -9]


def do(what):
    """What a nonsense method answers: `what`, or it raises it."""
    if isinstance(what, type) and issubclass(what, Exception):
        raise what("by the object")
    return what


def answering(name, *methods, base=object):
    """A class whose instances answer all the methods by what they are made of."""
    body = {m: (lambda self, *_, **__: do(self.what)) for m in methods}
    body["__init__"] = lambda self, what: setattr(self, "what", what)
    return type(name, (base,), body)


class Sequence:
    """Says that it is as long as it is told, and ends at 3."""

    def __init__(self, what):
        self.what = what

    def __len__(self):
        return do(self.what)

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return i


class Iter:
    def __init__(self, what):
        self.what = what

    def __iter__(self):
        yield 1
        yield do(self.what)


class Equal:
    def __init__(self, what):
        self.what = what

    def __eq__(self, _):
        return do(self.what)

    def __hash__(self):
        return do(self.what)


class Interface:
    """A description of memory that is not there."""

    def __init__(self, what):
        self.__array_interface__ = {
            "shape": what,
            "typestr": "<f4",
            "data": (0, False),
            "version": 3,
        }


class Shape:
    """Looks like an array, by its attributes."""

    def __init__(self, what):
        self.shape = self.dtype = self.ndim = self.size = self.what = what

    def item(self):
        return do(self.what)


class BadFile:
    def __init__(self):
        self.left = 3

    def read(self, *_):
        self.left -= 1
        return do([ZeroDivisionError, "text", b""][self.left % 3])

    def write(self, _):
        raise ZeroDivisionError("by the object")

    seek = tell = write


class Shrinks:
    """An element that empties its list when it is asked for its value."""

    def __init__(self, owner):
        self.owner = owner

    def empty(self, value):
        self.owner.clear()
        return value


SHRINKING = {
    "index": ("__index__", 1), "float": ("__float__", 1.0), "len": ("__len__", 1),
    "iter": ("__iter__", iter(())), "bool": ("__bool__", True), "hash": ("__hash__", 1),
    "array": ("__array__", np.zeros(2)), "mlx": ("__mlx_array__", mx.zeros((2,))),
}  # fmt: skip


def shrinking(count, how):
    name, value = SHRINKING[how]
    kind = type("Shrinking", (Shrinks,), {name: lambda self, *_, **__: self.empty(value)})
    items = []
    items.extend(kind(items) for _ in range(count))
    return items


def nested(depth):
    x = 1
    for _ in range(depth):
        x = [x]
    return x


def cyclic(x, depth=1):
    if isinstance(x, dict):
        x["a"] = x
    elif isinstance(x, list):
        x.append(x)
    else:
        inner = []
        x = (inner,) * depth
        inner.append(x)
    return x


def read_only(x):
    x.flags.writeable = False
    return x


def released(data):
    view = memoryview(data)
    view.release()
    return view


def uninitialised(kind):
    return kind.__new__(kind)


def damaged(kind, seed):
    """A file with some bytes changed, cut off, or with a header that promises too much."""
    rng, file = random.Random(seed), io.BytesIO()
    x = np.arange(6, dtype=rng.choice(["f4", "i8", "c16", "?", ">f4"])).reshape(2, 3)
    if kind == "npz":
        np.savez(file, x, b=x)
        if rng.randrange(2):
            with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as z:
                z.writestr("c.npy", b"\x93NUMPY" + bytes(rng.randrange(40)))
    else:
        np.save(file, x)
    data = bytearray(file.getvalue())
    if kind == "huge":
        sizes = rng.choice(
            [b"(2**40,)", b"(99999999999999,)", b"(-1, 3)", b"(4,4,4,4,4,4)", b"(1e3,)"]
        )
        data = data.replace(b"(2, 3), }", sizes.ljust(9))
    for _ in range(rng.randrange(4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.randrange(2):
        del data[rng.randrange(len(data)) :]
    return io.BytesIO(bytes(data))


class Space:
    """The names that a call's text is read with; `made`: its arrays and what they must stay."""

    def __init__(self):
        self.made, self.escapees = [], []
        own = {
            "A": self.array, "C": self.changed_array, "escape": self.escape,
            "escaped": self.escaped,
            "then": self.then, "Len": answering("Len", "__len__"), "Sequence": Sequence,
            "Iter": Iter,
            "Index": answering("Index", "__index__", "__int__"), "Equal": Equal,
            "Float": answering("Float", "__float__"), "Bool": answering("Bool", "__bool__"),
            "ArrayOf": answering("ArrayOf", "__array__"), "Interface": Interface,
            "MlxArray": answering("MlxArray", "__mlx_array__"), "Shape": Shape,
            "DLPack": answering("DLPack", "__dlpack__", "__dlpack_device__"), "BadFile": BadFile,
            "IntSub": type("IntSub", (int,), {}), "FloatSub": type("FloatSub", (float,), {}),
            "ListSub": type("ListSub", (list,), {}), "StrSub": type("StrSub", (str,), {}),
            "TupleSub": type("TupleSub", (tuple,), {}), "DictSub": type("DictSub", (dict,), {}),
            "shrinking": shrinking, "nested": nested, "cyclic": cyclic, "read_only": read_only,
            "released": released, "uninitialised": uninitialised, "damaged": damaged,
        }  # fmt: skip
        modules = (
            array, ctypes, decimal, fractions, functools, io, math, operator, pathlib, mx, nn,
            optim,
            utils, ml_dtypes, np,
        )  # fmt: skip
        short = {mx: "mx", nn: "nn", optim: "optim", utils: "utils", np: "np"}
        self.names = {**own, **{short.get(m, m.__name__): m for m in modules}}
        self.probe = mx.array([1.0, 2.0, 3.0])
        mx.eval(self.probe)
        pathlib.Path("damaged.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': nonsense")

    # --- arrays ---

    def fresh(self, dtype, shape, layout):
        of_bool = dtype.replace("bool_", "bool")
        kind = np.dtype(getattr(ml_dtypes, dtype, None) or of_bool)
        wide = shape
        if layout == "T":
            wide = shape[::-1]
        elif layout == "strided" and shape:
            wide = (*shape[:-1], 2 * shape[-1] + 1)
        elif layout == "row" and shape:
            wide = (shape[0] + 2, *shape[1:])
        elif layout == "broadcast" and shape:
            wide = (1, *shape[1:])
        values = np.resize(VALUES, wide)
        with np.errstate(all="ignore"):
            x = values.astype(np.int64 if kind.kind in "iu" else np.float64).astype(kind)
        a = mx.array(x, dtype=getattr(mx, "bool_" if of_bool == "bool" else dtype))
        if layout == "T":
            return a.T, x.T
        if layout == "reversed" and shape:
            return a[::-1], x[::-1]
        if layout == "strided" and shape:
            return a[..., 1::2], x[..., 1::2]
        if layout == "row" and shape:
            return a[1:-1], x[1:-1]
        if layout == "broadcast" and shape:
            return mx.broadcast_to(a, shape), np.broadcast_to(x, shape)
        if layout == "lazy" and of_bool != "bool":
            return a + mx.zeros((1,), a.dtype) if shape else a * 1, x
        return a, x

    def array(self, dtype="float32", shape=(2, 3), layout=""):
        a, x = self.fresh(dtype, tuple(shape), layout)
        self.made.append((a, x))
        return a

    def changed_array(self, dtype="float32", shape=(2, 3), layout=""):
        """One that the call may change."""
        return self.fresh(dtype, tuple(shape), layout)[0]

    def escape(self, x):
        """x, kept beyond the transform that gave it."""
        self.escapees = [x]
        return x

    def escaped(self):
        return self.escapees[0] if self.escapees else mx.zeros((2, 3))

    def changed(self):
        """Which of the call's arrays is not what it was; None: all are."""
        for a, x in self.made:
            got = np.array(a)
            if got.shape != x.shape or got.dtype != x.dtype or got.tobytes() != x.tobytes():
                if not np.array_equal(got, x, equal_nan=got.dtype.kind in "fc"):
                    return f"an argument has become {got.dtype} {got.tolist()}"[:500]
        return None

    # --- results ---

    @staticmethod
    def then(f, *args):
        if isinstance(f, optim.Optimizer) and type(f) is not optim.Optimizer:
            return f.apply_gradients({"w": args[-1]}, {"w": args[0]})
        return f(*args) if callable(f) else f

    def use(self, value, depth=0):
        """Looks at a result in full."""
        if isinstance(value, mx.array):
            size = math.prod(value.shape)
            if size <= LARGEST or size * value.dtype.size > 4 * MEMORY:
                mx.eval(value)
            if size <= 100:
                np.array(value), repr(value)
            if math.prod(max(n, 1) for n in value.shape) <= 100:  # lists, which may be empty
                value.tolist()
        elif isinstance(value, (list, tuple, dict)) and depth < 4:
            items = list(value.values() if isinstance(value, dict) else value)
            for item in items[:20]:
                self.use(item, depth + 1)
        elif isinstance(value, type(iter(self.probe))):
            for item in value:
                self.use(item, depth + 1)
        elif type(value).__module__.startswith("cermet"):
            repr(value)

    def reset(self):
        """The settings that a call may have changed."""
        mx.set_memory_limit(MEMORY)
        mx.set_cache_limit(MEMORY)
        mx.enable_compile()
        mx.set_default_device(mx.cpu)
        mx.set_printoptions()

    def next_fault(self):
        if (self.probe + 1).tolist() != [2, 3, 4]:
            return "the next operation gives a wrong answer"
        if mx.compile(lambda x: x * 2)(self.probe).tolist() != [2, 4, 6]:
            return "the next compiled function gives a wrong answer"
        return None
