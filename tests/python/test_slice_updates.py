# SPDX-License-Identifier: MIT
"""Arrays that are made slice by slice: what is wholly written over is not made; where an element
stays, or a step is looked at, it holds what it held."""

import cermet.core as mx
import numpy as np
import pytest

RANDOM = np.random.default_rng(7)
BASE = RANDOM.standard_normal((12, 10)).astype(np.float32)
PARTS = [RANDOM.standard_normal((12, 10)).astype(np.float32) for _ in range(6)]

# name: (kernels, with that of the product written into if it is made; slices written in turn)
WRITES = {
    "rows": (3, [np.s_[0:5], np.s_[5:6], np.s_[6:12]]),
    "rows in no order": (3, [np.s_[6:12], np.s_[0:5], np.s_[5:6]]),
    "columns": (2, [np.s_[:, 4:], np.s_[:, :4]]),
    "rows one over the other": (3, [np.s_[0:8], np.s_[3:12], np.s_[2:4]]),
    "rows but one": (4, [np.s_[0:5], np.s_[6:12], np.s_[7:9]]),
    "rows but the last": (3, [np.s_[0:5], np.s_[5:11]]),
    "rows and columns": (4, [np.s_[0:6], np.s_[6:12, :5], np.s_[6:12, 5:]]),
    "every other row": (3, [np.s_[::2], np.s_[1::2]]),
    "backwards": (3, [np.s_[5::-1], np.s_[6:]]),
}


def written(lib, x, parts, slices, values=None):
    """x with the slices replaced by those of the parts, in turn; keeps each step in `values`."""
    for part, at in zip(parts, slices, strict=False):
        if values is not None:
            x = lib.array(x)
            values.append(x)
        x[at] = part[at]
    return x


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("compiled", [False, True])
def test_arrays_made_of_slices(name, compiled):
    kernels, slices = WRITES[name]
    parts = [mx.array(p) for p in PARTS]
    mx.eval(parts)

    def f(base, *parts):
        return written(mx, base * 2, parts, slices)

    want = written(np, BASE * 2, PARTS, slices)
    run, base = mx.compile(f) if compiled else f, mx.array(BASE)
    mx.eval(base, run(base, *parts))
    before = mx.counters()["kernels_launched"]
    got = run(base, *parts)
    mx.eval(got)
    assert mx.counters()["kernels_launched"] - before == kernels
    np.testing.assert_array_equal(np.array(got), want)
    np.testing.assert_array_equal(np.array(base), BASE)


@pytest.mark.parametrize("name", WRITES)
def test_each_step_can_be_looked_at(name):
    slices = WRITES[name][1]
    ours, theirs = [], []
    ours.append(written(mx, mx.array(BASE) * 2, [mx.array(p) for p in PARTS], slices, ours))
    theirs.append(written(np, BASE * 2, PARTS, slices, theirs))
    mx.eval(ours)
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.array(got), want)


@pytest.mark.parametrize("to, rest", [(np.s_[1:], np.s_[:1]), (np.s_[:, 2:], np.s_[:, :2])])
@pytest.mark.parametrize("made", [False, True])
def test_slices_come_from_other_places_of_an_array_of_that_size(to, rest, made):
    """Which nobody asks for afterwards, so that its memory is there for the taking."""

    def f(lib, x, part):
        y = lib.zeros((12, 10))
        x = lib.cumsum(x, 1) if made else x
        y[to] = x[:-1] if to == np.s_[1:] else x[:, :-2]
        y[rest] = part[rest]
        return y

    base = np.round(BASE * 8)
    want = f(np, base, PARTS[0])
    np.testing.assert_array_equal(np.array(f(mx, mx.array(base), mx.array(PARTS[0]))), want)


def test_what_adds_to_an_element_sees_it():
    x = mx.zeros((12, 10)).at[0:6].add(mx.array(BASE[:6])).at[6:].add(mx.array(BASE[6:]))
    np.testing.assert_array_equal(np.array(x), BASE)
    y = (mx.array(BASE) * 2).at[0:6].add(1.0)
    y[6:] = 0
    np.testing.assert_array_equal(np.array(y), np.vstack([BASE[:6] * 2 + 1, BASE[6:] * 0]))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("join", ["concatenate", "stack"])
@pytest.mark.parametrize("n", [9, 40])
def test_joining_many_takes_a_kernel_each(join, axis, n):
    arrays = [RANDOM.standard_normal((3, 4)).astype(np.float32) for _ in range(n)]
    ours = [mx.array(a) for a in arrays]
    mx.eval(ours)
    before = mx.counters()["kernels_launched"]
    got = getattr(mx, join)(ours, axis)
    mx.eval(got)
    assert mx.counters()["kernels_launched"] - before == n
    np.testing.assert_array_equal(np.array(got), getattr(np, join)(arrays, axis))


def test_derivatives_and_batches_of_arrays_made_of_slices():
    def f(x):
        y = mx.zeros((12, 10))
        y[:5] = x[:5] * 2
        y[5:] = mx.sin(x[5:])
        return y

    x = mx.array(BASE)
    gradient = mx.grad(lambda x: (f(x) * x).sum())(x)
    want = np.vstack([4 * BASE[:5], np.sin(BASE[5:]) + BASE[5:] * np.cos(BASE[5:])])
    np.testing.assert_allclose(np.array(gradient), want, 1e-5, 1e-5)
    batch = mx.stack([x, x + 1])
    np.testing.assert_array_equal(np.array(mx.vmap(f)(batch)[1]), np.array(f(x + 1)))


def added_shifted(lib, x):
    if lib is mx:
        return x.at[1:].add(x[:-1])
    y = x.copy()
    y[1:] += x[:-1]
    return y


def set_twice(x):
    x[2:3] = 1
    return x


def written_at(x, at, value):
    x[at] = value
    return x


ROWS, COLUMNS = np.array([1, 1, 3, 1, 0]), np.array([[0, 0, 1, 5]] * 12)

# What is written comes from other elements of what is written over.
OVERLAPS = {
    "next row": lambda lib, x: written_at(x, np.s_[1:], x[:-1] + 0),
    "row before": lambda lib, x: written_at(x, np.s_[:-1], x[1:] * 1),
    "added": added_shifted,
    "after another write": lambda lib, x: added_shifted(lib, set_twice(x)),
    "backwards": lambda lib, x: written_at(x, np.s_[::-1], x * 1),
    "next column": lambda lib, x: written_at(x, np.s_[:, 2::2], x[:, 1:-1:2] * 2),
    "both sides": lambda lib, x: written_at(x, np.s_[1:-1], (x[:-2] + x[2:]) * 0.5),
    "transposed": lambda lib, x: written_at(x, np.s_[:10, :10], x[:10].T + x[:10]),
    "sums of all": lambda lib, x: written_at(x, np.s_[2], x.sum(0)),
    "itself": lambda lib, x: written_at(x, np.s_[1:3, ::2], x[1:3, ::2] * 2),
    "rows again and again": lambda lib, x: written_at(x, lib.array(ROWS), x[lib.array(ROWS)] * 2),
}


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("rows", [12, 20_000])
def test_what_is_written_over_is_read_first(name, rows):
    base = np.round(RANDOM.standard_normal((rows, 10)) * 64).astype(np.float32)
    want = OVERLAPS[name](np, base * 2)
    got = OVERLAPS[name](mx, mx.array(base) * 2)
    np.testing.assert_array_equal(np.array(got), want)
    compiled = mx.compile(lambda x: OVERLAPS[name](mx, x * 2))
    for _ in range(2):
        np.testing.assert_array_equal(np.array(compiled(mx.array(base))), want)


def test_elements_that_read_themselves_are_written_in_place():
    x = mx.zeros((1 << 20,))
    mx.eval(x)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    x[1000:-1000] = x[1000:-1000] * 2 + 1
    mx.eval(x)
    assert mx.get_peak_memory() - before < 1 << 20
    assert x[:1001].sum().item() == 1
