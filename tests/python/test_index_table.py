# SPDX-License-Identifier: MIT
"""A generated table of index expressions against NumPy: reading, assignment, .at; what is wrong
raises in both.
"""

import warnings

import cermet.core as mx
import index_table
import numpy as np
import pytest

COUNT = 5000
UFUNCS = {name: getattr(np, name) for name in index_table.UPDATES}


@pytest.fixture
def cases(seed):
    print(f"TEST_SEED={seed}")
    return index_table.table(np.random.default_rng([seed, COUNT]), COUNT)


def ours(index, mix):
    """The expression with two of three NumPy arrays replaced by Cermet's."""
    if isinstance(index, tuple):
        return tuple(ours(item, mix + i) for i, item in enumerate(index))
    return mx.array(index) if isinstance(index, np.ndarray) and mix % 3 else index


def answer(case, number):
    x, index = mx.array(index_table.filled(case.shape, case.dtype)), ours(case.index, number)
    value = mx.array(case.value) if isinstance(case.value, np.ndarray) else case.value
    if case.action == "get":
        return np.array(x[index])
    if case.action == "set":
        x[index] = value
        return np.array(x)
    return np.array(getattr(x.at[index], case.action)(value))


def reference(case):
    x = index_table.filled(case.shape, case.dtype)
    if case.action == "get":
        return np.array(x[case.index])
    if case.action == "set":
        x[case.index] = case.value
    else:
        UFUNCS[case.action].at(x, case.index, case.value)
    return x


def outcome(f, *args):
    try:
        return f(*args)
    except (IndexError, ValueError) as error:
        return error


def difference(case, number):
    want, got = outcome(reference, case), outcome(answer, case, number)
    if isinstance(want, Exception):
        # As in MLX, shapes that do not fit are a ValueError, whichever they are of. Nothing is
        # looked up for a result without elements, so no index of it can be out of range.
        return None if isinstance(got, Exception) or 0 in case.shape else repr(got)
    if isinstance(got, Exception):
        return repr(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.shape} {got.dtype}, not {want.shape} {want.dtype}"
    return None if np.array_equal(got, want) else f"{got!r}, not {want!r}"


def test_generated_expressions(cases):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [(case, difference(case, i)) for i, case in enumerate(cases)]
    wrong = [f"{case.text()}: {found}" for case, found in wrong if found]
    assert not wrong, "\n".join([f"{len(wrong)} differ", *wrong[:20]])


def test_the_table_has_all_forms(cases):
    """Shares that the table promises, so that a change of the generator does not empty it."""

    def share(holds):
        return sum(map(holds, cases)) / len(cases)

    assert share(lambda c: c.action == "set") >= 0.3
    assert share(lambda c: c.action in UFUNCS) >= 0.2
    assert share(lambda c: c.has_mask) >= 0.15
    assert share(lambda c: c.has_mask or c.is_mixed) >= 0.2
    assert share(lambda c: c.shape == ()) >= 0.02
    assert share(lambda c: 0 in c.shape) >= 0.05
    assert 0.02 <= share(lambda c: c.is_wrong) <= 0.1

    def has_negative_step(case):
        items = case.index if isinstance(case.index, tuple) else (case.index,)
        return any(isinstance(i, slice) and (i.step or 1) < 0 for i in items)

    assert share(has_negative_step) >= 0.1


def test_gradients_of_generated_expressions(cases):
    """Reading and writing are linear: their adjoints, written with NumPy."""
    chosen = [c for c in cases if c.dtype == "float32" and not c.is_wrong]
    for number, case in enumerate(chosen[:400]):
        x, index = index_table.filled(case.shape, "float32"), ours(case.index, number)
        taken = np.array(x[case.index])
        weight = np.arange(1, taken.size + 1, dtype=np.float32).reshape(taken.shape)
        want = np.zeros_like(x)
        np.add.at(want, case.index, weight)
        got = mx.grad(lambda a, i=index, w=weight: (a[i] * mx.array(w)).sum())(mx.array(x))
        np.testing.assert_array_equal(np.array(got), want, err_msg=case.text())

        def written(a, v, i=index):
            a = a * 1
            a[i] = v
            return a

        out = np.arange(1, x.size + 1, dtype=np.float32).reshape(x.shape)
        if np.unique(np.arange(x.size).reshape(x.shape)[case.index]).size != taken.size:
            continue
        a, v = mx.array(x), mx.array(taken)
        _, (of_a, of_v) = mx.vjp(written, [a, v], [mx.array(out)])
        want_a = out.copy()
        want_a[case.index] = 0
        np.testing.assert_array_equal(np.array(of_a), want_a, err_msg=case.text())
        np.testing.assert_array_equal(np.array(of_v), out[case.index], err_msg=case.text())
