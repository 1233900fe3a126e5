# SPDX-License-Identifier: MIT
"""Index expressions of every form that Python and NumPy know, generated: what to do (read, assign,
update), on which array, at which index, with which value. Few shapes: few kernels.
"""

from dataclasses import dataclass

import numpy as np

SHAPES = [(), (0,), (5,), (4, 3), (3, 0, 2), (2, 3, 4), (3, 1, 2, 4)]
WEIGHTS = np.array([1, 1, 4, 6, 1, 6, 4]) / 23
DTYPES = ["int32", "float32", "complex64"]
UPDATES = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]


@dataclass
class Case:
    action: str  # get, set or one of UPDATES
    shape: tuple
    dtype: str
    index: object  # of Python and NumPy objects
    value: object = None  # set and updates: a number or a NumPy array
    has_mask: bool = False
    is_mixed: bool = False  # index arrays or masks beside other forms
    is_wrong: bool = False  # out of range, too many, or of shapes that do not fit

    def text(self):
        what = "get" if self.action == "get" else f"{self.action} {self.value!r}"
        return f"{self.dtype}{self.shape} [{self.index!r}] {what}"


def filled(shape, dtype):
    x = np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(dtype)
    return x + 1j * x[..., ::-1] if dtype == "complex64" and shape else x


def pick(rng, options):
    return options[rng.integers(len(options))]


def some_slice(rng, size):
    bounds = [None, *range(-size - 2, size + 3)]
    return slice(pick(rng, bounds), pick(rng, bounds), pick(rng, [None, 1, 2, 3, -1, -2, -3]))


def some_integer(rng, size):
    kind = pick(rng, [int, int, np.int64, np.array, np.uint8])
    return kind(rng.integers(0 if kind is np.uint8 else -size, size))


def some_indices(rng, size, shape):
    """Integers of the shape as an array of one of several dtypes or as nested lists."""
    low = 0 if size == 0 else -size
    values = rng.integers(low, size, size=shape) if size else np.zeros((*shape[:-1], 0), int)
    kind = pick(rng, ["int32", "int64", "int8", "uint16", "list", "list"])
    if kind == "list":
        return values.tolist()
    return (values % max(size, 1) if kind == "uint16" else values).astype(kind)


def some_mask(rng, shape, chosen):
    """A mask with this many elements, where it has as many; else with one."""
    size = int(np.prod(shape))
    mask = np.zeros(size, bool)
    mask[rng.permutation(size)[: chosen if chosen <= size else 1]] = True
    mask = mask.reshape(shape)
    return mask.tolist() if size and rng.integers(3) == 0 else mask


class Expression:
    """One item for each of the leading or trailing axes, None and ... among them."""

    def __init__(self, rng, shape):
        self.rng, self.shape, self.items = rng, shape, []
        self.has_mask = self.has_arrays = False
        # Index arrays of one expression broadcast to this shape.
        self.index_shape = tuple(pick(rng, [(), (1,), (2,), (3,), (2, 2), (3, 1), (2, 1, 2), (0,)]))
        self.count = self.index_shape[-1] if self.index_shape else 1
        named = int(rng.integers(0, len(shape) + 1))
        split = int(rng.integers(0, named + 1)) if rng.integers(2) else named
        self.axes(0, split)
        if split < named or rng.integers(4) == 0:
            self.items.append(Ellipsis)
            self.axes(len(shape) - (named - split), len(shape))
        for _ in range(pick(rng, [0, 0, 0, 1, 2])):
            self.items.insert(rng.integers(0, len(self.items) + 1), None)
        if rng.integers(40) == 0:
            self.items.insert(0, bool(rng.integers(2)))
            self.has_mask = True

    def axes(self, axis, end):
        while axis < end:
            axis += self.axis(axis, end)

    def axis(self, axis, end):
        rng, size, kind = self.rng, self.shape[axis], self.rng.integers(12)
        if kind < 4:
            self.items.append(some_slice(rng, size))
        elif kind < 6 and size:
            self.items.append(some_integer(rng, size))
        elif kind < 9 and (size or self.count == 0):
            shape = pick(rng, [self.index_shape, self.index_shape[-1:], self.index_shape[-2:]])
            self.items.append(some_indices(rng, size, shape))
            self.has_arrays = True
        elif kind < 11:
            axes = int(rng.integers(1, min(end - axis, 2) + 1))
            self.items.append(some_mask(rng, self.shape[axis : axis + axes], self.count))
            self.has_mask = True
            return axes
        else:
            self.items.append(slice(None))
        return 1

    def index(self):
        if len(self.items) == 1 and self.rng.integers(4):
            return self.items[0]
        return tuple(self.items)

    def is_mixed(self):
        return (self.has_arrays or self.has_mask) and len(self.items) > 1


def spoil(rng, shape, index):
    """The same with one mistake that NumPy refuses, too."""
    items = list(index) if isinstance(index, tuple) else [index]
    kind = rng.integers(5)
    at = rng.integers(0, len(items) + 1)
    if kind == 0 or not shape:
        items[at:at] = [0] * (len(shape) + 1)
    elif kind == 1:
        items = [slice(None)] * int(rng.integers(0, len(shape)))
        size = shape[len(items)]
        items.append(int(pick(rng, [size, size + 7, -size - 1, 2**31, -(2**40)])))
    elif kind == 2:
        items = [slice(None)] * int(rng.integers(0, len(shape)))
        size = shape[len(items)]
        items.append(np.array([0] * (size > 0) + [pick(rng, [size, -size - 1])]))
    elif kind == 3:
        items = [np.ones((shape[0] + 1, *shape[1:2]), bool)]
    else:
        items = [pick(rng, [1.5, "a", np.array([0.5])]), *items[1:]]
    return tuple(items)


def some_value(rng, case, target):
    """A number, or an array that broadcasts to the target's shape."""
    if case.action in UPDATES:  # powers of two keep quotients exact
        values = 2.0 ** rng.integers(-2 * (case.dtype != "int32"), 3, size=target.shape)
    else:
        values = rng.integers(100, 200, size=target.shape)
    if case.dtype == "complex64" and case.action != "divide":
        values = values * pick(rng, [1, 1j, -1j, 1 + 1j])
    values = values.astype(case.dtype)
    if rng.integers(4) == 0:
        return values.ravel()[0].item() if values.size else 7
    for axis in range(values.ndim):
        if rng.integers(4) == 0 and values.shape[axis]:
            values = values[(slice(None),) * axis + (slice(0, 1),)]
    while rng.integers(4) == 0 and values.ndim and values.shape[0] == 1:
        values = values[0]
    return values


def is_single_valued(case):
    if case.is_wrong:
        return True
    places = np.arange(int(np.prod(case.shape))).reshape(case.shape)[case.index]
    return np.unique(places).size == np.size(places)


def table(rng, count):
    cases, seen = [], set()
    while len(cases) < count:
        shape = SHAPES[rng.choice(len(SHAPES), p=WEIGHTS)]
        made = Expression(rng, shape)
        action = pick(rng, ["get"] * 9 + ["set"] * 8 + UPDATES)
        dtype = pick(rng, DTYPES[:1] * 4 + DTYPES[1:2] * 2 + DTYPES[2:])
        if dtype == "int32" and action == "divide":
            dtype = "float32"
        case = Case(action, shape, dtype, made.index(), None, made.has_mask, made.is_mixed())
        if rng.integers(25) == 0:
            case.index, case.is_wrong = spoil(rng, shape, case.index), True
        x = filled(shape, dtype)
        try:
            target = x[case.index]
        except (IndexError, ValueError):
            case.is_wrong = True
            target = x
        if action != "get":
            case.value = some_value(rng, case, target)
        if action == "set" and not is_single_valued(case):
            case.value = 7  # which of several values stays is open
        if case.text() not in seen:
            seen.add(case.text())
            cases.append(case)
    return cases
