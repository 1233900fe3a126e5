# SPDX-License-Identifier: MIT
"""compile: same results as the plain function, traced only when it must be, and state kept true.

What is captured (closures, modules, random state, containers), what changes (shapes, constants,
structure), what is refused, and that an exception in a trace leaves everything as it was.
"""

import gc
import inspect
import math
import threading
import types
import weakref
from collections import namedtuple
from fractions import Fraction
from functools import partial

import cermet.core as mx
import cermet.nn as nn
import cermet.optimizers as optim
import ml_dtypes
import numpy as np
import pytest
from cermet.utils import tree_flatten


class Traced:
    """A function that counts how often its Python code runs."""

    def __init__(self, f):
        self.f, self.runs, self.__name__ = f, 0, "traced"

    def __call__(self, *args, **kwargs):
        self.runs += 1
        return self.f(*args, **kwargs)


def vector(*values):
    return mx.array(values, dtype=mx.float32)


# --- what a compiled function is ---


def test_decorator():
    @mx.compile
    def twice(x):
        """Doubles."""
        return x * 2

    assert twice(vector(1, 2)).tolist() == [2, 4]
    assert twice.__name__ == "twice" and twice.__doc__ == "Doubles."
    assert list(inspect.signature(twice).parameters) == ["x"]


def test_partial_with_state():
    state = {"count": mx.array(0), "sum": vector(0, 0)}

    @partial(mx.compile, inputs=state, outputs=state)
    def add(x):
        state["count"] = state["count"] + 1
        state["sum"] = state["sum"] + x
        return state["sum"] * 2

    for k in range(1, 5):
        assert add(vector(1, 2)).tolist() == [2 * k, 4 * k]
        assert state["count"].item() == k and state["sum"].tolist() == [k, 2 * k]


def test_method():
    class Scaler:
        def __init__(self):
            self.factor = mx.array(3.0)

        @mx.compile
        def scale(self, x):
            return x * self.factor

    scaler = Scaler()
    assert scaler.scale(vector(1, 2)).tolist() == [3, 6]
    scaler.factor = mx.array(5.0)
    assert scaler.scale(vector(1, 2)).tolist() == [5, 10]


def test_not_callable():
    with pytest.raises(TypeError, match="callable"):
        mx.compile(3)


# --- tracing ---


def test_one_trace_for_equal_structure():
    f = Traced(lambda x, y: mx.sin(x) * y + 1)
    compiled = mx.compile(f)
    for k in range(6):
        x, y = vector(k, 1), vector(2, k)
        np.testing.assert_array_equal(np.array(compiled(x, y)), np.array(f.f(x, y)))
    assert f.runs == 1


def test_traces_are_counted():
    compiled = mx.compile(lambda x: x * 3)
    before = mx.counters()["traces"]
    for _ in range(3):
        mx.eval(compiled(vector(1)))
    assert mx.counters()["traces"] == before + 1


def test_changed_shapes_and_dtypes():
    f = Traced(lambda x: (x * 2).sum(axis=-1))
    compiled = mx.compile(f)
    for shape in ((3,), (2, 3), (5, 3), (3,), (2, 3), (0, 3), (1, 1)):
        x = mx.ones(shape)
        assert np.array_equal(np.array(compiled(x)), np.full(shape[:-1], 2.0 * shape[-1]))
    assert compiled(mx.ones((3,), dtype=mx.int32)).dtype == mx.int32
    assert compiled(mx.ones((3,), dtype=mx.float16)).dtype == mx.float16


def test_shape_is_used_in_python():
    compiled = mx.compile(lambda x: x.reshape(x.shape[0] * x.shape[1]) / x.shape[1])
    for shape in ((2, 3), (4, 5), (2, 3)):
        assert compiled(mx.ones(shape)).shape == (shape[0] * shape[1],)
        assert compiled(mx.ones(shape))[0].item() == pytest.approx(1 / shape[1])


@pytest.mark.parametrize("shape", [(2, 5), (7, 1), (0, 4)])
def test_shapeless(shape):
    compiled = mx.compile(lambda x: mx.softmax(x * 2, axis=-1), shapeless=True)
    compiled(mx.ones((3, 3)))
    x = mx.random.normal(shape)
    np.testing.assert_allclose(
        np.array(compiled(x)), np.array(mx.softmax(x * 2, axis=-1)), rtol=1e-6
    )


def test_constants_are_part_of_the_key():
    """Names and flags are; numbers are left open, so that 2 and 3 are one trace."""
    f = Traced(lambda x, power, name: x**power if name == "power" else x)
    compiled = mx.compile(f)
    x = vector(2, 3)
    assert compiled(x, 2, "power").tolist() == [4, 9]
    assert compiled(x, 3, "power").tolist() == [8, 27]
    assert compiled(x, 2, "other").tolist() == [2, 3]
    assert compiled(x, 2, "power").tolist() == [4, 9]
    assert f.runs == 2
    assert compiled(x, 2.0, "power").tolist() == [4, 9]
    assert compiled(x, True, "power").tolist() == [2, 3]


def test_none_and_keyword_arguments():
    def f(x, *, bias=None, scale=1):
        return x * scale if bias is None else x * scale + bias

    compiled, x = mx.compile(f), vector(1, 2)
    assert compiled(x).tolist() == [1, 2]
    assert compiled(x, bias=vector(10, 10)).tolist() == [11, 12]
    assert compiled(x, scale=2, bias=vector(10, 10)).tolist() == [12, 14]
    assert compiled(x, bias=None, scale=3).tolist() == [3, 6]


def test_unhashable_argument_is_refused():
    with pytest.raises(ValueError, match="argument"):
        mx.compile(lambda x, a: x)(vector(1), bytearray(b"abc"))


def test_same_array_twice():
    compiled, x = mx.compile(lambda a, b: a * 2 + b), vector(1, 2)
    assert compiled(x, x).tolist() == [3, 6]
    assert compiled(x, vector(10, 20)).tolist() == [12, 24]


# --- results ---


Pair = namedtuple("Pair", "first second")


def test_structures_come_back():
    def f(x):
        return {"list": [x + 1, (x, None)], "pair": Pair(x * 2, "name"), "number": 3}

    compiled = mx.compile(f)
    for _ in range(3):
        result = compiled(vector(1, 2))
        assert result["list"][0].tolist() == [2, 3] and result["list"][1][1] is None
        assert isinstance(result["pair"], Pair) and result["pair"].second == "name"
        assert result["pair"].first.tolist() == [2, 4] and result["number"] == 3


def test_argument_as_result():
    compiled, x = mx.compile(lambda x, y: (x, y, x)), vector(1, 2)
    for _ in range(3):
        a, b, c = compiled(x, x * 2)
        assert a.tolist() == c.tolist() == [1, 2] and b.tolist() == [2, 4]


def test_constant_result():
    constant = vector(5, 6)
    compiled = mx.compile(lambda x: (constant, mx.zeros(3), x.shape[0]))
    for _ in range(3):
        kept, zeros, size = compiled(vector(1))
        assert kept.tolist() == [5, 6] and zeros.tolist() == [0, 0, 0] and size == 1


def test_views_as_results():
    compiled = mx.compile(lambda x: (x.T, (x * 2)[1:], x.reshape(-1)))
    for k in range(3):
        x = mx.array(np.arange(6.0).reshape(2, 3) + k)
        turned, rest, flat = compiled(x)
        np.testing.assert_array_equal(np.array(turned), np.array(x).T)
        np.testing.assert_array_equal(np.array(rest), np.array(x)[1:] * 2)
        np.testing.assert_array_equal(np.array(flat), np.array(x).reshape(-1))


def test_results_held_keep_their_bits():
    """Memory of the program's arena and of inputs given away must not be that of a held result."""
    x = mx.random.normal((64, 64), key=mx.random.key(1))
    state = [mx.zeros((64, 64))]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(x):
        state[0] = state[0] * 0.5 + x
        y = mx.softmax(state[0] @ x, axis=-1)
        return y, y.T, state[0] + 1

    held, expected, former = [], [], np.zeros((64, 64), np.float32)
    for k in range(5):
        input_k = x + k
        held.append([*step(input_k), state[0]])
        mx.eval(held[-1])
        expected.append([np.array(a) for a in held[-1]])
        former = former * np.float32(0.5) + np.array(input_k)
        np.testing.assert_array_equal(expected[-1][3], former)
    for arrays, values in zip(held, expected, strict=True):
        for a, v in zip(arrays, values, strict=True):
            assert np.array_equal(np.array(a), v)


def test_lazy_inputs():
    compiled = mx.compile(lambda x: x + 1)
    for k in range(3):
        assert compiled(vector(1, 2) * k).tolist() == [k + 1, 2 * k + 1]


def test_hundreds_of_inputs_and_outputs():
    compiled = mx.compile(lambda xs: [x * 2 + i for i, x in enumerate(xs)])
    for k in range(3):
        results = compiled([mx.full((4,), float(i + k)) for i in range(300)])
        assert [r[0].item() for r in results] == [2 * (i + k) + i for i in range(300)]


# --- captured state ---


def test_closure_follows_its_array():
    scale = vector(2, 2)
    f = Traced(lambda x: x * scale)
    compiled = mx.compile(f)
    assert compiled(vector(1, 2)).tolist() == [2, 4]
    scale[0] = 10
    assert compiled(vector(1, 2)).tolist() == [10, 4]
    assert f.runs == 1


def test_closure_rebound():
    scale = mx.array(2.0)

    def f(x):
        return x * scale

    compiled = mx.compile(f)
    assert compiled(vector(1)).item() == 2
    scale = mx.array(7.0)
    assert compiled(vector(1)).item() == 7


GLOBAL = {"scale": mx.array(2.0), "deep": [{"shift": mx.array(1.0)}]}


def test_global_container():
    compiled = mx.compile(lambda x: x * GLOBAL["scale"] + GLOBAL["deep"][0]["shift"])
    assert compiled(vector(1)).item() == 3
    GLOBAL["deep"][0]["shift"] = mx.array(5.0)
    assert compiled(vector(1)).item() == 7
    GLOBAL["deep"][0]["shift"] = mx.array(1.0)


def test_python_numbers_in_closures():
    settings = {"factor": 2}

    def f(x):
        return x * settings["factor"]

    compiled = mx.compile(f)
    assert compiled(vector(1)).item() == 2
    settings["factor"] = 3
    assert compiled(vector(1)).item() == 3


def test_module_without_inputs():
    """A module in reach of the function needs no inputs=: new weights are seen."""
    model = nn.Linear(4, 2)
    compiled = mx.compile(lambda x: model(x))
    x = mx.ones((1, 4))
    for _ in range(2):
        np.testing.assert_allclose(np.array(compiled(x)), np.array(model(x)), rtol=1e-6)
        model.weight = model.weight * 2 + 1


def test_changed_list_in_place():
    log = [mx.array(0.0), mx.array(0.0)]

    @mx.compile
    def step(x):
        log[0], log[1] = log[1], log[1] + x
        return log[0]

    seen = [step(mx.array(1.0)).item() for _ in range(4)]
    assert seen == [0, 1, 2, 3]
    assert [a.item() for a in log] == [3, 4]


def test_array_changed_in_place():
    cache = mx.zeros((4,))

    @mx.compile
    def write(x, place):
        cache[place] = x
        return cache.sum()

    for k in range(4):
        write(mx.array(float(k + 1)), mx.array(k))
    assert cache.tolist() == [1, 2, 3, 4]


def test_growing_structure():
    history = []

    @mx.compile
    def step(x):
        history.append(x * 2)
        return x + len(history)

    assert [step(mx.array(1.0)).item() for _ in range(4)] == [2, 3, 4, 5]
    assert [h.item() for h in history] == [2, 2, 2, 2]


def test_random_state():
    def noise():
        return mx.random.uniform(shape=(3,)), mx.random.normal((2,))

    mx.random.seed(3)
    plain = [[a.tolist() for a in noise()] for _ in range(3)]
    compiled = mx.compile(noise)
    mx.random.seed(3)
    assert [[a.tolist() for a in compiled()] for _ in range(3)] == plain
    with_state = mx.compile(noise, inputs=mx.random.state, outputs=mx.random.state)
    mx.random.seed(3)
    assert [[a.tolist() for a in with_state()] for _ in range(3)] == plain


def test_random_key_as_argument():
    compiled = mx.compile(lambda key: mx.random.uniform(shape=(4,), key=key))
    for seed in (1, 2, 1):
        key = mx.random.key(seed)
        assert compiled(key).tolist() == mx.random.uniform(shape=(4,), key=key).tolist()


def test_dropout_differs_in_each_call():
    layer = nn.Dropout(0.5)
    compiled = mx.compile(lambda x: layer(x))
    x = mx.ones((256,))
    assert compiled(x).tolist() != compiled(x).tolist()


@pytest.mark.parametrize("given", [True, False], ids=["inputs=", "captured"])
def test_training_step(given):
    def train(compiled):
        mx.random.seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = optim.AdamW(1e-2)
        optimizer.init(model.trainable_parameters())
        mx.eval(model.state, optimizer.state)
        gradients_of = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))

        def step(x, y):
            loss, gradients = gradients_of(x, y)
            optimizer.update(model, gradients)
            return loss

        if compiled:
            state = [model.state, optimizer.state] if given else None
            step = mx.compile(step, inputs=state, outputs=state)
        losses = []
        for k in range(6):
            x = mx.random.normal((32, 8), key=mx.random.key(k))
            losses.append(step(x, x.sum(axis=-1, keepdims=True)).item())
        return losses, tree_flatten(model.parameters())

    (plain, weights), (losses, trained) = train(False), train(True)
    np.testing.assert_allclose(losses, plain, rtol=1e-5)
    assert plain[-1] < plain[0]
    for (name, a), (_, b) in zip(weights, trained, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_copies_of_state():
    """The memory of a value that somebody else holds is not given away."""
    state = {"x": mx.ones((1000,))}

    @partial(mx.compile, inputs=state, outputs=state)
    def step():
        state["x"] = state["x"] + 1

    held = state["x"]
    step()
    again = state["x"]
    step()
    assert held.tolist() == [1] * 1000 and again.tolist() == [2] * 1000
    assert state["x"].tolist() == [3] * 1000


def test_numpy_view_of_state_keeps_its_values():
    state = [mx.ones((1000,))]

    @partial(mx.compile, inputs=state, outputs=state)
    def step():
        state[0] = state[0] + 1

    step()
    view = np.array(state[0], copy=False)
    step()
    assert (view == 2).all() and state[0].tolist() == [3] * 1000


# --- nesting ---


def test_nested_functions():
    inner = mx.compile(lambda x: mx.exp(x) * 2)
    outer = mx.compile(lambda x: inner(x) + inner(x + 1))
    for k in range(3):
        x = vector(k, 1)
        np.testing.assert_allclose(
            np.array(outer(x)), 2 * np.exp(np.array(x)) + 2 * np.exp(np.array(x) + 1), rtol=1e-6
        )


def test_compiled_twice():
    compiled = mx.compile(mx.compile(lambda x: x * 3))
    assert [compiled(vector(k)).item() for k in range(3)] == [0, 3, 6]


def test_transforms_inside_and_outside():
    def f(x):
        return (mx.sin(x) * x).sum()

    x = vector(0.5, 1.5)
    expected = np.cos(np.array(x)) * np.array(x) + np.sin(np.array(x))
    for g in (mx.compile(mx.grad(f)), mx.grad(mx.compile(f)), mx.compile(mx.grad(mx.compile(f)))):
        for _ in range(2):
            np.testing.assert_allclose(np.array(g(x)), expected, rtol=1e-5)


def test_vmap_of_compiled():
    compiled = mx.compile(lambda x, y: (x * y).sum())
    a, b = mx.array(np.arange(6.0).reshape(2, 3)), mx.array(np.arange(6.0).reshape(2, 3) + 1)
    np.testing.assert_allclose(
        np.array(mx.vmap(compiled)(a, b)), (np.array(a) * np.array(b)).sum(-1)
    )


def test_trace_calls_another_with_state():
    counter = [mx.array(0)]

    @mx.compile
    def count():
        counter[0] = counter[0] + 1
        return counter[0] * 10

    outer = mx.compile(lambda: count() + count())
    assert [outer().item() for _ in range(3)] == [30, 70, 110]
    assert counter[0].item() == 6


# --- switching off, errors, life time ---


def test_disable_compile():
    f = Traced(lambda x: x * 2)
    compiled = mx.compile(f)
    mx.disable_compile()
    try:
        for _ in range(3):
            assert compiled(vector(1)).item() == 2
        assert f.runs == 3
    finally:
        mx.enable_compile()
    for _ in range(3):
        assert compiled(vector(1)).item() == 2
    assert f.runs == 4


def test_exception_in_a_trace_leaves_state():
    state, model = {"x": vector(1, 2)}, nn.Linear(2, 2)
    weight = np.array(model.weight)
    fail = [True]

    @partial(mx.compile, inputs=[state, model.state], outputs=[state, model.state])
    def step(x):
        model.weight = model.weight + 1
        state["x"] = state["x"] + x
        if fail:
            raise KeyError("on purpose")
        return state["x"]

    with pytest.raises(KeyError, match="on purpose"):
        step(vector(1, 1))
    assert state["x"].tolist() == [1, 2]
    np.testing.assert_array_equal(np.array(model.weight), weight)
    mx.eval(state, model.parameters())
    fail.clear()
    assert step(vector(1, 1)).tolist() == [2, 3]
    assert state["x"].tolist() == [2, 3]
    np.testing.assert_array_equal(np.array(model.weight), weight + 1)


def test_exception_in_a_trace_leaves_random_state():
    @mx.compile
    def f(x):
        mx.random.uniform(shape=(2,))
        return x.reshape(7)

    mx.random.seed(1)
    expected = mx.random.uniform(shape=(2,)).tolist()
    mx.random.seed(1)
    with pytest.raises(ValueError):
        f(vector(1, 2))
    assert mx.random.uniform(shape=(2,)).tolist() == expected


def test_value_needed_in_a_trace():
    """The value of a traced array does not exist yet: an error, not a wrong number."""
    with pytest.raises((ValueError, RuntimeError), match="(?i)trac|compile"):
        mx.compile(lambda x: x * x.item())(mx.array(2.0))


def test_leaked_tracer():
    leaked = []

    @mx.compile
    def f(x):
        leaked.append(x * 2)
        return x

    f(mx.array(1.0))
    del f
    try:
        assert leaked[0].item() == 2
    except (ValueError, RuntimeError) as error:
        assert "[" in str(error)


def test_compiled_is_collected():
    class Owner:
        pass

    owner = Owner()
    owner.weight = mx.ones((4,))
    owner.step = mx.compile(lambda x, owner=owner: x * owner.weight)
    owner.step(mx.ones((4,)))
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_memory_does_not_grow():
    compiled = mx.compile(lambda x: mx.exp(x) + 1)
    x = mx.ones((1 << 16,))
    mx.eval(compiled(x))
    gc.collect()
    before = mx.get_active_memory()
    for _ in range(50):
        mx.eval(compiled(x))
    assert mx.get_active_memory() <= before + (1 << 16) * 4


def test_threads_share_a_compiled_function():
    compiled = mx.compile(lambda x, y: mx.tanh(x) * y)
    errors = []

    def work(seed):
        x = mx.random.normal((128,), key=mx.random.key(seed))
        for k in range(20):
            got = np.array(compiled(x, x + k))
            if not np.allclose(got, np.tanh(np.array(x)) * (np.array(x) + k), rtol=1e-4, atol=1e-5):
                errors.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_dropped_on_another_thread():
    holder = [mx.compile(lambda x: x + 1)]
    assert holder[0](vector(1)).item() == 2
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert not holder


def test_error_in_a_replay_is_reported():
    compiled = mx.compile(lambda x, i: mx.take(x, i) * 2)
    x = vector(1, 2, 3)
    assert compiled(x, mx.array([2])).tolist() == [6]
    with pytest.raises(IndexError):
        mx.eval(compiled(x, mx.array([5])))
    assert compiled(x, mx.array([0])).tolist() == [2]


def test_globals_without_a_module():
    """A function made by exec in a bare dict has no module; its globals are state all the same."""
    names = {"mx": mx, "state": {"count": mx.array(0)}}
    code = """
def count():
    state["count"] = state["count"] + 1
    return state["count"]
"""
    exec(code, names)
    count = mx.compile(names["count"])
    assert [count().item() for _ in range(3)] == [1, 2, 3]


def test_numbers_alone_among_the_arguments():
    """They are arguments, too, where no array is."""
    w = mx.ones((2,))
    size, scale = mx.compile(lambda n: mx.zeros((n,))), mx.compile(lambda n: w * n)
    assert [size(n).shape for n in (3, 4, 5, 3)] == [(3,), (4,), (5,), (3,)]
    assert [scale(n).tolist() for n in (3, 4, 2.5, -1)] == [[n, n] for n in (3, 4, 2.5, -1)]
    both = mx.compile(lambda n, k: mx.full((n,), k))
    assert [both(n, k).tolist() for n, k in ((2, 7), (3, 7), (2, 8))] == [[7, 7], [7] * 3, [8, 8]]


class Settings:
    scale, kept = 2.0, [2.0]


class Scaled(nn.Module):
    scale = 2.0

    def __init__(self, act):
        super().__init__()
        self.act = act

    def __call__(self, x):
        return self.act(x) * self.scale


REBOUND = {
    "np.float32": (lambda x, v: x * float(v), np.float32(2), np.float32(5)),
    "np.bool_": (lambda x, v: x if v else -x, np.bool_(True), np.bool_(False)),
    "NumPy array": (lambda x, v: x * mx.array(v), np.array([2.0]), np.array([5.0])),
    "range": (lambda x, v: x * len(v), range(2), range(5)),
    "slice": (lambda x, v: mx.arange(6)[v].sum() * x, slice(0, 2), slice(0, 5)),
    "Fraction": (lambda x, v: x * float(v), Fraction(2), Fraction(5)),
    "op": (lambda x, v: v(x * 2), mx.square, mx.negative),
    "built-in function": (lambda x, v: x * v(2.5), math.floor, math.ceil),
    "class": (lambda x, v: x * v.k, type("A", (), {"k": 2}), type("B", (), {"k": 5})),
    "partial": (lambda x, v: v(x), partial(mx.multiply, 2), partial(mx.add, 2)),
    "dtype": (lambda x, v: x.astype(v), mx.float32, mx.float16),
}


@pytest.mark.parametrize("name", REBOUND)
def test_variables_of_any_kind_may_be_rebound(name):
    use, value, other = REBOUND[name]

    @mx.compile
    def f(x):
        return use(x, value)

    x = mx.array([3.0])
    for now in (value, other, value):
        value = now
        for _ in range(2):
            result, expected = f(x), use(x, now)
            assert result.dtype == expected.dtype and result.tolist() == expected.tolist()


def test_attributes_of_classes_and_modules_may_change(monkeypatch):
    model = Scaled(mx.square)
    f = mx.compile(lambda x: model(x) + Settings.scale + sum(Settings.kept))
    x = mx.array(3.0)

    def expect(value):
        assert f(x).item() == f(x).item() == value

    expect(9 * 2 + 4)
    model.act = mx.negative
    expect(-3 * 2 + 4)
    monkeypatch.setattr(Scaled, "scale", 5.0)
    expect(-3 * 5 + 4)
    monkeypatch.setattr(Settings, "scale", 7.0)
    expect(-3 * 5 + 9)
    monkeypatch.setattr(Settings, "kept", [1.0, 1.0])
    expect(-3 * 5 + 9)
    Settings.kept.append(1.0)
    expect(-3 * 5 + 10)


def test_names_of_another_module_may_be_rebound(monkeypatch):
    module = types.ModuleType("settings_of_the_test")
    module.k, module.w = 2.0, mx.array(1.0)
    monkeypatch.setitem(globals(), "settings_of_the_test", module)
    f = mx.compile(lambda x: x * settings_of_the_test.k + settings_of_the_test.w)  # noqa: F821
    assert [f(mx.array(1.0)).item() for _ in range(2)] == [3, 3]
    module.k, module.w = 5.0, mx.array(3.0)
    assert [f(mx.array(1.0)).item() for _ in range(2)] == [8, 8]


def test_results_that_are_arguments_run_nothing():
    """The arguments' values in any layout; what becomes of one is not the other's."""
    held = mx.ones((2,))
    f = mx.compile(lambda x, y: (y, [x, held], x))
    x, y = mx.arange(6).reshape(2, 3).T, mx.array([1.5, 2.5])
    mx.eval(x, y, f(x, y))
    start = mx.counters()["kernels_launched"]
    a, (b, c), d = f(x, y)
    mx.eval(a, b, c, d)
    assert mx.counters()["kernels_launched"] == start
    assert a.tolist() == [1.5, 2.5] and b.tolist() == d.tolist() == x.tolist()
    a[0] = 7.0
    c += 1
    assert a.tolist() == [7.0, 2.5] and y.tolist() == [1.5, 2.5] and held.tolist() == [1, 1]
    later = mx.compile(lambda x: x)(y * 2)  # of what is not made yet
    assert later.tolist() == [3, 5]
    gradient = mx.grad(lambda y: (mx.compile(lambda y: y)(y) * y).sum())(y)
    assert gradient.tolist() == [3, 5]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 2.5, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
def test_a_power_has_the_same_bits_however_its_exponent_is_given(dtype, n):
    """A number, a number or an array that a compiled function is given, an array."""
    x = mx.linspace(0.1, 3, 500).astype(getattr(mx, dtype))
    if dtype == "complex64":
        x = x + 1j * x[::-1]
    elif n != -0.5:
        x = mx.concatenate([x, mx.array([0.0, -0.0, mx.inf, -mx.inf, mx.nan], dtype=x.dtype)])
    power = mx.compile(lambda x, n: x**n)
    exponent = mx.array(n).astype(x.dtype)
    each = mx.array([n] * x.size).astype(x.dtype)
    want = np.array(x**n)
    for got in (power(x, n), power(x, exponent), x**each, power(x, each)):
        np.testing.assert_array_equal(np.array(got), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_power_of_two_has_the_same_bits_however_the_two_is_given(dtype):
    """A number, an argument of a compiled function, an array."""
    dtype = getattr(mx, dtype)
    if dtype.size == 2:
        x = mx.arange(65536).astype(mx.uint16).view(dtype)
    else:
        special = [0.5, -0.5, 1, -1, 2, -2, 3, 4, 0, -0.0, mx.inf, -mx.inf, mx.nan]
        lowest, highest = (-160, 140) if dtype == mx.float32 else (-1100, 1050)
        x = mx.concatenate([mx.linspace(lowest, highest, 100_001), mx.array(special)]).astype(dtype)
    twos = mx.array([2.0, 1.0]).astype(dtype)[:1]
    powers = [2**x, mx.compile(lambda n, x: n**x)(2, x), twos**x]
    mx.eval(powers)  # each rounded to its dtype
    got, *others = (np.array(power.astype(mx.float64)) for power in powers)
    for other in others:
        np.testing.assert_array_equal(other, got)
    info = ml_dtypes.finfo(str(dtype).rpartition(".")[2])
    with np.errstate(over="ignore"):
        exact = np.exp2(np.array(x.astype(mx.float64)))
    exact = np.where(exact > float(info.max), np.where(got < np.inf, got, np.inf), exact)
    np.testing.assert_allclose(got, exact, rtol=info.eps, atol=float(info.smallest_subnormal))
