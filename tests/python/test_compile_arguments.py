# SPDX-License-Identifier: MIT
"""Dicts and lists that a compiled function is given are its own: the caller's stay as they are, on
the first call, on later ones, and where the function is called as it is. The `mlx` wheel says what
is right.
"""

import collections
from types import SimpleNamespace

import cermet.core as mx
import cermet.nn as nn
import pytest
from mlx_oracle import same_values

CHANGES = {}


def change(*given):
    """f(mx, tree) changes the tree, which is `given` with `a` called for each array."""
    return lambda f: CHANGES.setdefault(f.__name__, (f, *given))


@change(lambda a: {"x": a(1)})
def entry(mx, d):
    d["x"] = d["x"] + 1
    return d["x"]


@change(lambda a: {"x": a(1)})
def new_entry(mx, d):
    d["y"] = d["x"] + 1
    return d


@change(lambda a: {"x": a(1), "y": a(2)})
def removed_entry(mx, d):
    return d.pop("y") + d["x"]


@change(lambda a: {"x": a(1), "y": a(2)})
def swapped_entries(mx, d):
    d["x"], d["y"] = d["y"], d["x"]
    return d["x"] - d["y"]


@change(lambda a: {"x": a(1)})
def array_in_place(mx, d):
    d["x"] += 1
    d["x"][0] = 5
    return d["x"]


@change(lambda a: [a(1)])
def item(mx, items):
    items[0] = items[0] + 1
    return items[0]


@change(lambda a: [a(1)])
def longer_list(mx, items):
    items.append(items[0] * 2)
    return items


@change(lambda a: [a(1), a(2)])
def shorter_list(mx, items):
    return items.pop() - items[0]


@change(lambda a: {"x": a(1), "n": 3, "rate": 0.5, "name": "old"})
def constants(mx, d):
    d["n"], d["rate"], d["name"] = d["n"] + 1, d["rate"] * 2, "new"
    return d


@change(lambda a: {"a": {"x": a(1)}, "l": [a(2), (a(3), [a(4)])]})
def nested(mx, d):
    d["a"]["x"] = d["a"]["x"] * 2
    d["l"][1][1][0] = d["l"][0] + d["a"]["x"]
    d["l"][0] = d["l"][1][0]
    return d


@change(lambda a: ({"x": a(1)}, [a(2)]))
def in_a_tuple(mx, pair):
    pair[0]["x"] = pair[1][0] = pair[0]["x"] - pair[1][0]
    return pair


@change(lambda a: {"x": a(1)})
def new_container(mx, d):
    d["inner"] = {"x": d["x"]}
    d["inner"]["x"] = d["inner"]["x"] + 1
    return d["inner"]["x"]


@change(lambda a: {1: a(1), "1": a(2), (1, "a"): a(3), None: a(4)})
def keys_of_all_kinds(mx, d):
    d[1], d[None] = d["1"] * 2, d[1, "a"]
    return [d[1], d[None], len(d)]


@change(lambda a: collections.OrderedDict(b=a(1), a=a(2)))
def ordered(mx, d):
    d["b"] = d["a"] - d["b"]
    return list(d.values())


@change(lambda a: collections.defaultdict(list, b=a(1)))
def with_default(mx, d):
    d["b"] = d["b"] + 1
    return dict(d)


CALLS = {
    "compiled": lambda mx, f: mx.compile(f),
    "twice compiled": lambda mx, f: mx.compile(mx.compile(f)),
    "in another": lambda mx, f: in_another(mx, mx.compile(f)),
    "without a trace": lambda mx, f: disabled(mx, mx.compile(f)),
    "checkpointed": lambda mx, f: mx.checkpoint(f),
}


def leaves(tree):
    """With the keys, which may not have an order."""
    if isinstance(tree, dict):
        return [[str(key), leaves(value)] for key, value in tree.items()]
    return [leaves(item) for item in tree] if isinstance(tree, (list, tuple)) else tree


def in_another(mx, f):
    return mx.compile(lambda d: [f(d), leaves(d)])


def disabled(mx, f):
    def call(d):
        mx.disable_compile()
        try:
            return f(d)
        finally:
            mx.enable_compile()

    return call


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", CHANGES)
def test_the_callers_stays_as_it_is(name, call):
    f, make = CHANGES[name]

    def code(lib):
        traced = CALLS[call](lib.mx, lambda d: f(lib.mx, d))
        given = make(lambda n: lib.mx.array([n, n + 1.0]))
        return [[traced(given), leaves(given)] for _ in range(3)]

    same_values(code)


def test_by_name():
    def code(lib):
        @lib.mx.compile
        def f(x, state=None):
            state["x"] = state["x"] + x
            return state["x"]

        state = {"x": lib.mx.array([1.0, 2.0])}
        return [[f(lib.mx.array(3.0), state=state), state] for _ in range(3)]

    same_values(code)


def test_one_dict_given_twice_is_two():
    def code(lib):
        @lib.mx.compile
        def f(a, b):
            a["x"] = a["x"] + 1
            return b["x"]

        d = {"x": lib.mx.array(1.0)}
        return [f(d, d), f(d, d), d]

    same_values(code)


def test_what_is_state_stays_state():
    """A dict that is both: the one given is the function's own, the one in reach is changed."""

    def code(lib):
        state = {"x": lib.mx.array(1.0)}

        def f(given):
            state["x"] = state["x"] + 1
            given["x"] = given["x"] * 10
            return given["x"]

        compiled = lib.mx.compile(f, inputs=state, outputs=state)
        return [[compiled(state), dict(state)] for _ in range(3)]

    same_values(code)


def test_in_a_gradient():
    def code(lib):
        @lib.mx.compile
        def f(d):
            d["x"] = d["x"] * d["x"]
            return d["x"].sum()

        d = {"x": lib.mx.array([1.0, 2.0])}
        gradient = lib.mx.grad(f)
        return [[gradient(d), d] for _ in range(2)] + [lib.mx.compile(lib.mx.grad(f))(d), d]

    same_values(code)


def test_an_exception_leaves_it():
    @mx.compile
    def f(d):
        d["x"] = d["x"] + 1
        raise KeyError("inner")

    d = {"x": mx.array(1.0)}
    for _ in range(2):
        with pytest.raises(KeyError, match="inner"):
            f(d)
    assert d["x"].item() == 1


def test_arrays_given_are_the_functions_own():
    def f(x):
        x += 1
        x[0] = 7
        return x

    for call in CALLS.values():
        compiled, x = call(mx, f), mx.array([1.0, 2.0])
        for _ in range(2):
            result = compiled(x)
            assert (result[0] if isinstance(result, list) else result).tolist() == [7, 3]
            assert x.tolist() == [1, 2]


def test_sets_are_its_own():
    @mx.compile
    def f(x, names):
        names.add("c")
        return x * len(names)

    names = {"a"}
    assert [f(mx.array(2), names).item() for _ in range(3)] == [4, 4, 4] and names == {"a"}


def test_kinds_of_containers_stay():
    Pair = collections.namedtuple("Pair", ["a", "b"])
    f = mx.compile(lambda tree: (tree[0]["x"], str([type(part).__name__ for part in tree])))
    x, with_default = mx.array(1), collections.defaultdict(list)
    for first in (collections.OrderedDict(x=x), {"x": x}, collections.defaultdict(list, x=x)):
        parts = [first, with_default, {}, [], Pair([], {})]
        for _ in range(2):
            assert f(parts)[1] == str([type(part).__name__ for part in parts])


def test_one_trace_for_each_structure():
    runs = []

    @mx.compile
    def f(d, scale):
        runs.append(None)
        return sum(d["x"]) * scale["by"]

    for n in (2, 2, 3):
        x = [mx.array([1.0, 2.0])] * n
        assert f({"x": x}, {"by": 2}).tolist() == [2 * n, 4 * n]
    assert len(runs) == 2
    assert f({"x": x}, {"by": 5}).tolist() == [15, 30] and len(runs) == 2  # numbers are open
    f({"x": x, "unused": None}, {"by": 2})
    f({"x": x, "unused": "b"}, {"by": 2})
    assert len(runs) == 4


def test_keys_are_told_apart():
    """-1 and -2 have one hash, as 1 and True are equal; objects count by what they hold."""

    class Key:
        def __init__(self, name):
            self.name = name

        def __hash__(self):
            return 7

        def __eq__(self, other):
            return self.name == other.name

    f = mx.compile(lambda d: [(str(getattr(k, "name", k)), v + 1) for k, v in d.items()])
    for key in (-1, -2, 1, True, 1.0, "1", Key("a"), Key("b")):
        for _ in range(2):
            [(name, value)] = f({key: mx.array(1)})
            assert name == str(getattr(key, "name", key)) and value.item() == 2


def test_a_key_whose_hash_changes_the_dict():
    d = {}

    class Clears(str):
        active = False

        def __hash__(self):
            if Clears.active:
                d.clear()
            return str.__hash__(self)

    d.update({"x": mx.array(1.0), Clears("y"): mx.array(2.0), "z": mx.array(3.0)})
    f = mx.compile(lambda d: sum(d.values(), mx.array(0.0)))
    Clears.active = True
    assert f(d).item() in (0, 6)
    Clears.active = False
    assert d == {}


def test_objects_are_handed_on():
    """Modules and objects are not copied: what the function changes in them is changed."""

    class Own(dict):
        pass

    def step(holder, x):
        holder.count = holder.count + x
        return holder.count

    for make in (SimpleNamespace, nn.Module, Own):
        holder = make()
        holder.count = mx.array(0)
        compiled = mx.compile(step)
        for n in range(1, 4):
            assert compiled(holder, mx.array(2)).item() == 2 * n == holder.count.item()
        within = {"holder": holder}
        inner = mx.compile(lambda d, x: step(d["holder"], x))
        for n in range(4, 7):
            assert inner(within, mx.array(2)).item() == 2 * n == holder.count.item()


def test_a_list_in_itself():
    items = [mx.array(1)]
    items.append(items)
    with pytest.raises(ValueError, match="compile.* one holds itself"):
        mx.compile(lambda items: items[0])(items)


def test_explain_leaves_it():
    d = {"x": mx.array([1.0, 2.0])}
    mx.explain(lambda d: CHANGES["entry"][0](mx, d), d)
    assert d["x"].tolist() == [1, 2]
