# SPDX-License-Identifier: MIT
"""Random programs that write into arrays, give them other names, look at parts of them and forget
them, against NumPy's values. Each array holds what it should, whoever else was given its memory;
what NumPy sees of one stays. Numbers are multiples of small powers of two, so sums are exact.
"""

import random

import cermet.core as mx
import numpy as np
import pytest

PROGRAMS = 400
SHAPES = [(4, 6), (8, 3), (24,), (2, 3, 4)]


class Named:
    """An array object and what it must hold; several names may have one object."""

    def __init__(self, array, value):
        self.array, self.value = array, np.array(value)


class Program:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.named, self.seen, self.steps = [], [], []
        self.rows = 40 if seed % 3 == 0 else 1  # the larger ones are for several threads
        for _ in range(3):
            self.add(*self.numbers())
        for _ in range(self.random.randrange(5, 30)):
            step = self.random.choice(STEPS)
            a = self.random.choice(self.named)
            b = self.random.choice([n for n in self.named if n.value.shape == a.value.shape])
            self.steps.append(f"{step.__name__} {self.named.index(a)} {self.named.index(b)}")
            step(self, a, b)
            self.named = self.named[-12:]

    def numbers(self):
        rows, *rest = self.random.choice(SHAPES)
        shape = (rows * self.rows, *rest)
        draws = [self.random.randrange(-64, 64) / 16 for _ in range(int(np.prod(shape)))]
        value = np.array(draws, np.float32).reshape(shape)
        return mx.array(value), value

    def add(self, array, value):
        self.named.append(Named(array, value))

    def place(self, shape):
        """Slices of an array of that shape, some without elements."""
        at = []
        for n in shape:
            low, high = sorted((self.random.randrange(n + 1), self.random.randrange(n + 1)))
            every = slice(self.random.randrange(n), None, 2)
            at.append(self.random.choice([slice(None), slice(low, high), every, np.s_[::-1]]))
        return tuple(at)

    def check(self):
        named = list(dict.fromkeys(self.named))
        named = self.random.sample(named, self.random.randrange(1, len(named) + 1))
        self.named = []  # the others are forgotten before they are asked for
        if self.random.random() < 0.5:
            mx.eval([n.array for n in named])
        pairs = [(np.array(n.array), n.value) for n in named] + self.seen
        for got, want in pairs:
            np.testing.assert_array_equal(got, want, "\n".join(self.steps))


def add(p, a, b):
    p.add(a.array + b.array, a.value + b.value)


def halve(p, a, b):
    p.add(mx.minimum(a.array * 0.5, 8), np.minimum(a.value * 0.5, 8))


def copy(p, a, b):
    p.add(mx.array(a.array), a.value)


def alias(p, a, b):
    p.named.append(a)


def add_in_place(p, a, b):
    a.array += b.array
    a.value = a.value + b.value


def write(p, a, b):
    at = p.place(a.value.shape)
    value = a.value.copy()
    value[at] = b.value[at]
    a.array[at] = b.array[at]
    a.value = value


def write_elsewhere(p, a, b):
    """Rows of one array into other rows of another."""
    rows = len(a.value)
    count = p.random.randrange(1, rows + 1)
    to, source = (p.random.randrange(rows - count + 1) for _ in range(2))
    value = a.value.copy()
    value[to : to + count] = b.value[source : source + count]
    a.array[to : to + count] = b.array[source : source + count]
    a.value = value


def fill(p, a, b):
    """Zeros that are written over by shifted rows of one array, then by rows of another."""
    k = p.random.randrange(1, len(a.value) + 1)
    array, value = mx.zeros(a.value.shape), np.zeros(a.value.shape, np.float32)
    for x, u, v in ((array, a.array, b.array), (value, a.value, b.value)):
        x[k:] = u[: len(u) - k]
        x[:k] = v[:k]
    p.add(array, value)


def write_number(p, a, b):
    at = p.place(a.value.shape)
    a.value = a.value.copy()
    a.value[at] = 1.5
    a.array[at] = 1.5


def add_at(p, a, b):
    at = p.place(a.value.shape)
    value = a.value.copy()
    value[at] += b.value[at]
    p.add(a.array.at[at].add(b.array[at]), value)


def look_at_part(p, a, b):
    at = p.place(a.value.shape)
    if a.value[at].size:
        p.add(a.array[at], a.value[at])


def transpose(p, a, b):
    p.add(a.array.T, a.value.T)


def flatten(p, a, b):
    p.add(a.array.reshape(-1), a.value.reshape(-1))


def concatenate(p, a, b):
    p.add(mx.concatenate([a.array, b.array]), np.concatenate([a.value, b.value]))


def call_compiled(p, a, b):
    both = mx.compile(lambda x, y: (x * 0.25 + y, x - y))(a.array, b.array)
    p.add(both[0], a.value * 0.25 + b.value)
    p.add(both[1], a.value - b.value)


def evaluate(p, a, b):
    mx.eval(a.array)


def queue(p, a, b):
    mx.async_eval(a.array, b.array)


def look_from_numpy(p, a, b):
    p.seen.append((np.asarray(a.array), a.value))


def forget(p, a, b):
    if len(p.named) > 4:
        p.named.remove(a)


STEPS = [
    *(write_elsewhere, write_elsewhere, fill),
    *(add, halve, copy, alias, add_in_place, write, write, write_number, add_at, look_at_part),
    *(transpose, flatten, concatenate, call_compiled, evaluate, queue, look_from_numpy, forget),
]


@pytest.mark.parametrize("batch", range(5))
def test_arrays_hold_what_they_should(seed, batch):
    for n in range(PROGRAMS):
        Program(seed + batch * PROGRAMS + n).check()
