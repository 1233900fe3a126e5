# SPDX-License-Identifier: MIT
"""Values of arrays from outside that a compiled function looks at: the answer is that of the value
at each call, and only another value is traced again.
"""

import cermet.core as mx
import numpy as np
import pytest
from cermet.utils import tree_flatten

bound = mx.array(2.0)


def traces_of(f, *args):
    before = mx.counters()["traces"]
    f(*args)
    return mx.counters()["traces"] - before


LOOKS = {
    "item": lambda x: x * bound.item(),
    "if": lambda x: x + 1 if bound > 2 else x - 1,
    "tolist": lambda x: x * bound.tolist(),
    "numpy": lambda x: x * mx.array(np.array(bound)),
    "float": lambda x: x * float(bound),
    "made of it": lambda x: x * (bound * 2 + 1).item(),
    "and used": lambda x: x * bound + bound.item() * x,
    "in a gradient": lambda x: mx.grad(lambda x: (x * x * bound * bound.item()).sum())(x),
    "in a gradient by it": lambda x: mx.grad(lambda b: (x * b * b.item()).sum())(bound) + x,
    "in vmap": lambda x: mx.vmap(lambda v: v * bound.item() + bound)(x),
}


@pytest.mark.parametrize("name", LOOKS)
def test_values_from_outside_may_be_looked_at(name):
    global bound
    f, x = LOOKS[name], mx.array([1.0, -2.0])
    bound = mx.array(2.0)
    compiled = mx.compile(f)

    def check(traces):
        want = f(x).tolist()
        assert traces_of(lambda: np.testing.assert_allclose(compiled(x).tolist(), want)) <= traces
        for _ in range(3):
            assert traces_of(lambda: np.testing.assert_allclose(compiled(x).tolist(), want)) == 0

    check(1)
    bound = mx.array(2.0)  # the same value in another array
    check(0)
    bound = mx.array(3.0)
    check(1)
    bound += 1
    check(1)
    bound[...] = 5
    check(1)
    bound = mx.array(3.0) + 0
    check(0)
    bound = mx.array(float("nan")) if name != "if" else mx.array(0.0)
    check(1)


def test_many_values_looked_at():
    global bound
    compiled = mx.compile(LOOKS["item"])
    for _ in range(2):
        for i in range(300):
            bound = mx.array(float(i))
            assert compiled(mx.array(2.0)).item() == 2 * i


def test_larger_values_looked_at():
    weights = mx.arange(6).reshape(2, 3)

    def f(x):
        return x[sum(weights[1].tolist())] + weights[weights > 1].size

    compiled = mx.compile(f)
    x = mx.arange(100)
    for _ in range(3):
        assert compiled(x).item() == 12 + 4
    weights[1, 0] = 0
    for _ in range(3):
        assert compiled(x).item() == 9 + 3
    weights = weights.T[::-1].T
    assert compiled(x).item() == f(x).item()
    weights = mx.zeros((4, 5), mx.int32)
    assert compiled(x).item() == 0


def test_what_the_function_changes_may_be_looked_at():
    total = mx.array(0.0)

    def f(x):
        nonlocal total
        total = total + x.shape[0]
        total += 1
        return x * total.item()

    compiled = mx.compile(f)
    assert [compiled(mx.ones((2,))).tolist()[0] for _ in range(4)] == [3, 6, 9, 12]
    assert total.item() == 12


def test_a_value_decides_whether_state_changes():
    changes, total = mx.array(0), [mx.array(0)]

    @mx.compile
    def f(x):
        if changes.item() > 0:
            total[0] = total[0] + 1
        return x + 1

    for n, value in enumerate([0, 0, 0, 1, 1, 0, 1, 1]):
        changes[...] = value
        assert f(mx.array(n)).item() == n + 1
    assert total[0].item() == 4


def test_arguments_may_not_be_looked_at():
    for f in (lambda x: x * x.item(), lambda x: x * (x + bound).item()):
        with pytest.raises(ValueError, match="stands for an argument in a trace"):
            mx.compile(f)(mx.array(2.0))


CONTAINERS = {
    "list": lambda x, n: [x, n],
    "dict": lambda x, n: {"x": x, "n": n},
    "of lists": lambda x, n: ([x], {"n": (n,)}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_arrays_in_arguments_may_be_looked_at(name):
    """In lists and dicts: one trace for each value."""

    def f(tree):
        (_, x), (_, n) = tree_flatten(tree)
        return x * n.item() + n if n > 1 else x - n

    compiled = mx.compile(f)
    x = mx.array([1.0, -2.0])
    for n, traces in ((3, 1), (1, 1), (3, 0), (1, 0), (4, 1)):
        given = CONTAINERS[name](x, mx.array(n))
        want = f(given).tolist()
        got = []
        assert traces_of(lambda tree, got=got: got.extend(compiled(tree).tolist()), given) == traces
        assert got == want
    other = CONTAINERS[name](x * 3, mx.array(4))
    assert traces_of(compiled, other) == 0 and compiled(other).tolist() == f(other).tolist()
