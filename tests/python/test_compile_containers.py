# SPDX-License-Identifier: MIT
"""A compiled function may put a new dict, list or tuple where another lay: each call puts its own
there, from one trace. The plain function says what the state is after each call, and which
containers are the same object.
"""

import collections
import os
import time
from types import SimpleNamespace

import cermet.core as mx
import numpy as np
import pytest
from cermet.utils import tree_flatten, tree_map

Pair = collections.namedtuple("Pair", ["keys", "values"])
state_of_module = None
CASES = {}


def case(make):
    """make() gives a function of an array and a function that gives the state."""
    CASES[make.__name__] = make


def zeros():
    return mx.zeros((2, 3))


@case
def tuple_in_dict():
    state = {"hidden": (zeros(), zeros())}

    def f(x):
        h, c = state["hidden"]
        state["hidden"] = (h + x, c * 2 + h)
        return h

    return f, lambda: state


@case
def named_tuple():
    state = {"cache": Pair(zeros(), zeros())}

    def f(x):
        cache = state["cache"]
        state["cache"] = Pair(cache.keys + x, cache.values - x)
        return cache.values

    return f, lambda: state


@case
def tree_of_parameters():
    state = {"weights": {"a": zeros(), "b": [zeros(), {"c": zeros()}], "name": "linear"}}

    def f(x):
        state["weights"] = tree_map(
            lambda w: w + x if isinstance(w, mx.array) else w, state["weights"]
        )
        return state["weights"]["a"]

    return f, lambda: state


@case
def nonlocal_variable():
    state = ({"a": zeros()}, zeros())

    def f(x):
        nonlocal state
        state = ({"a": state[0]["a"] + x}, state[1] - x)
        return state[1]

    return f, lambda: state


@case
def global_variable():
    globals()["state_of_module"] = [zeros(), [zeros()]]

    def f(x):
        global state_of_module
        state_of_module = [state_of_module[0] + x, [state_of_module[1][0] * 2 + x]]
        return state_of_module[0]

    return f, lambda: state_of_module


@case
def attribute():
    class Layers:
        def __init__(self):
            self.caches = [(zeros(), zeros()), None, (zeros(), zeros())]

        def __call__(self, x):
            self.caches = [c and (c[0] + x, c[1] * x + 1) for c in self.caches]
            return self.caches[0][1]

    layers = Layers()
    return layers.__call__, lambda: layers.caches


@case
def window():
    state = {"last": [zeros(), zeros(), zeros()]}

    def f(x):
        state["last"] = [*state["last"][1:], state["last"][-1] + x]
        return state["last"][0]

    return f, lambda: state


@case
def growing_cache():
    state = {"cache": [(mx.zeros((2, 1, 3)), mx.ones((2, 1, 3)))]}

    def f(x):
        k, v = state["cache"][0]
        state["cache"][0] = tuple(mx.concatenate([a, x[:, None]], 1) for a in (k, v))
        return (k * v).sum()

    return f, lambda: state


@case
def one_container_at_two_places():
    shared = [zeros()]
    state = {"a": {"s": shared}, "b": (shared, zeros())}

    def f(x):
        new = [state["a"]["s"][0] + x]
        state["a"], state["b"] = {"s": new}, (new, state["b"][1] + new[0])
        return new[0]

    return f, lambda: state


@case
def only_the_inner_one():
    state = {"outer": {"inner": {"w": zeros()}, "w": zeros()}}

    def f(x):
        state["outer"]["inner"] = {"w": state["outer"]["inner"]["w"] + x}
        state["outer"]["w"] = state["outer"]["w"] - x
        return x

    return f, lambda: state


@case
def only_the_outer_one():
    state = {"outer": {"inner": {"w": zeros()}, "w": zeros()}}

    def f(x):
        inner = state["outer"]["inner"]
        inner["w"] = inner["w"] + x
        state["outer"] = {"inner": inner, "w": state["outer"]["w"] - x}
        return x

    return f, lambda: state


@case
def arrays_change_places():
    state = {"pair": (zeros(), zeros() + 1)}

    def f(x):
        a, b = state["pair"]
        state["pair"] = (b, a)
        return a + x

    return f, lambda: state


def snapshot(tree):
    """What the state is: values, kinds of containers, and which of its parts are one object."""
    seen = {}

    def look(part):
        if isinstance(part, (mx.array, dict, list, tuple)) and id(part) in seen:
            return ("seen", seen[id(part)])
        seen[id(part)] = len(seen)
        if isinstance(part, mx.array):
            return part.tolist()
        if isinstance(part, dict):
            return {k: look(v) for k, v in part.items()}
        if isinstance(part, (list, tuple)):
            return (type(part), [look(v) for v in part])
        return part

    return look(tree)


def containers(tree):
    inner = tree.values() if isinstance(tree, dict) else tree
    return [tree] + [c for t in inner if isinstance(t, (dict, list, tuple)) for c in containers(t)]


@pytest.mark.parametrize("name", CASES)
def test_new_containers(name):
    plain, plain_state = CASES[name]()
    expected, same = [], []
    for i in range(5):
        before = containers(plain_state())
        expected.append((plain(mx.full((2, 3), i + 1.0)).tolist(), snapshot(plain_state())))
        same.append([a is b for a, b in zip(before, containers(plain_state()), strict=True)])

    f, state = CASES[name]()
    compiled = mx.compile(f)
    traces = mx.counters()["traces"]
    for i in range(5):
        before = containers(state())
        got = compiled(mx.full((2, 3), i + 1.0)).tolist()
        assert (got, snapshot(state())) == expected[i], f"call {i}"
        assert [a is b for a, b in zip(before, containers(state()), strict=True)] == same[i]
    assert mx.counters()["traces"] - traces <= 2


def test_containers_held_outside_stay_as_they_are():
    state = {"w": {"a": zeros(), "b": (zeros(), 3)}}

    @mx.compile
    def f(x):
        a, (b, n) = state["w"].values()
        state["w"] = {"a": a + x, "b": (b + n * x, n)}

    held = []
    for _ in range(4):
        held.append(state["w"])
        f(mx.ones((2, 3)))
    for i, w in enumerate(held):
        assert w["a"].tolist() == [[float(i)] * 3] * 2
        assert w["b"][0].tolist() == [[3.0 * i] * 3] * 2
        assert w["b"][1] == 3


def test_containers_changed_from_outside_between_calls():
    state = {"w": [zeros(), (zeros(),)]}

    @mx.compile
    def f(x):
        state["w"] = [state["w"][0] + x, (state["w"][1][0] - x,)]
        return state["w"][0]

    one = mx.ones((2, 3))
    for _ in range(3):
        f(one)
    state["w"] = [one * 10, (one * 20,)]
    assert f(one).tolist() == [[11.0] * 3] * 2
    state["w"][0] = one * 5
    assert f(one).tolist() == [[6.0] * 3] * 2
    assert state["w"][1][0].tolist() == [[18.0] * 3] * 2
    state["w"] = [one, (one, one)]  # another structure
    assert f(one).tolist() == [[2.0] * 3] * 2


def test_a_container_moved_is_the_same_object():
    state = {"now": {"w": zeros()}, "best": {"w": zeros() + 1}}

    @mx.compile
    def f(x):
        state["now"], state["best"] = state["best"], state["now"]
        return state["now"]["w"] + x

    now, best = state["now"], state["best"]
    for i in range(4):
        assert f(zeros()).tolist() == [[float(i % 2 == 0)] * 3] * 2
        now, best = best, now
        assert state["now"] is now
        assert state["best"] is best


def test_gradient_step_of_a_tree():
    """Momentum by hand, as often written: trees bound anew in each step."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=(8, 2)).astype(np.float32)
    weights = {"w": mx.array(rng.normal(size=(4, 2)).astype(np.float32)), "b": mx.zeros((2,))}
    speed = tree_map(mx.zeros_like, weights)
    loss = mx.value_and_grad(lambda p, x, y: ((x @ p["w"] + p["b"] - y) ** 2).mean())

    @mx.compile
    def step(x, y, t):
        nonlocal weights, speed
        value, grads = loss(weights, x, y)
        rate = 0.1 * (1 - 0.9**t)
        speed = tree_map(lambda s, g: 0.9 * s + g, speed, grads)
        weights = tree_map(lambda w, s: w - rate * s, weights, speed)
        return value

    w, b = (np.array(weights[k], np.float64) for k in "wb")
    sw, sb = np.zeros_like(w), np.zeros_like(b)
    traces = mx.counters()["traces"]
    for t in range(1, 8):
        error = x @ w + b - y
        assert step(mx.array(x), mx.array(y), t).item() == pytest.approx(
            (error**2).mean(), rel=1e-5
        )
        sw, sb = 0.9 * sw + x.T @ error / 8, 0.9 * sb + error.sum(0) / 8
        w, b = w - 0.1 * (1 - 0.9**t) * sw, b - 0.1 * (1 - 0.9**t) * sb
    np.testing.assert_allclose(np.array(weights["w"]), w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.array(weights["b"]), b, rtol=1e-4, atol=1e-6)
    assert len(tree_flatten([weights, speed])) == 4
    assert mx.counters()["traces"] - traces <= 2


def test_tuples_that_hold_more_than_their_length():
    """struct_time, stat_result: they stay what the function made, to their last field."""
    state = SimpleNamespace(time=time.localtime(0), stat=os.stat("/"), total=mx.zeros((2,)))

    def f(a):
        state.time, state.stat = time.localtime(0), os.stat("/")
        state.total = state.total + a
        return a * 2

    g = mx.compile(f)
    for call in range(1, 200):
        assert g(mx.ones((2,))).tolist() == [2, 2]
        assert state.time.tm_zone == time.localtime(0).tm_zone and state.stat.st_blksize > 0
        assert state.total.tolist() == [call, call]
    state.time = state.stat = None
