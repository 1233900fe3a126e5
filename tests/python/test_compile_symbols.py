# SPDX-License-Identifier: MIT
"""compile leaves sizes and numbers open: one trace and one set of kernels for all of them, and a
new trace where Python code looked at a value that is another now. Results are compared with the
plain function, and the counters say how often it was traced.
"""

import itertools
import math
import threading

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import pytest

SIZES = [(3, 4), (5, 4), (5, 7), (9, 2)]


def normal(*shape):
    return mx.random.normal(shape, key=mx.random.key(sum(shape)))


def arrays_of(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def traces_of(f, calls):
    """How often f is traced over the calls, each of which must give what f gives."""
    compiled = mx.compile(f)
    before = mx.counters()["traces"]
    for args in calls:
        for got, want in zip(arrays_of(compiled(*args)), arrays_of(f(*args)), strict=True):
            np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-5, atol=1e-6)
    return mx.counters()["traces"] - before


ONE_TRACE = {
    "chain": lambda x: mx.sin(x) * 2 + 1,
    "two": lambda x: x * mx.exp(x) + x.T.T,
    "reductions": lambda x: (x.sum(-1), x.mean(0), mx.var(x, axis=-1), mx.argmax(x, -1)),
    "softmax": lambda x: mx.softmax(x, axis=-1),
    "logsumexp": lambda x: mx.logsumexp(x, axis=-1),
    "gram": lambda x: x.T @ x,
    "batched matmul": lambda x: mx.stack([x, x], 0) @ mx.ones((2, x.shape[1], 3)),
    "reshape": lambda x: x.reshape(x.shape[0] * x.shape[1]) / x.shape[1],
    "inferred": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "sizes": lambda x: x / x.size + mx.zeros(x.shape) + mx.ones((x.shape[0], 1)),
    "arange": lambda x: x + mx.arange(x.shape[1]),
    "triangle": lambda x: mx.tril(x),
    "slices": lambda x: (x[:-1], x[1:], x[: x.shape[0] // 2 + 1], x[0], x[:, 1]),
    "concatenate": lambda x: mx.concatenate([x, x[:1], x], 0),
    "where": lambda x: mx.where(x > 0, x, 0.0),
    "pad": lambda x: mx.pad(x, 1),
    "gather": lambda x: mx.take(x, mx.array([0, 1, 0]), axis=0),
    "random": lambda x: x + mx.random.uniform(shape=x.shape, key=mx.random.key(0)),
    "gradient": mx.grad(lambda x: (mx.sin(x) * x).mean()),
    "bounds of random numbers": lambda x: mx.random.uniform(
        0, x.shape[0], (5,), key=mx.random.key(0)
    ),
    "probability": lambda x: mx.random.bernoulli(1 / x.shape[0], (5,), key=mx.random.key(0)),
    "array of a size": lambda x: mx.array(x.shape[0]) + mx.full((3,), x.shape[1]),
    "take by a size": lambda x: mx.take(x, x.shape[0] - 1, axis=0),
    "rotation from a size on": lambda x: mx.fast.rope(
        mx.ones((1, x.shape[1], 4)), 4, traditional=False, base=10.0, scale=1.0, offset=x.shape[0]
    ),
    "rotation scaled by a size": lambda x: mx.fast.rope(
        mx.ones((1, x.shape[1], 4)), 4, scale=x.shape[0] / 7, offset=mx.array([3])
    ),
    "rotation scaled by a size, of given frequencies": lambda x: mx.fast.rope(
        mx.ones((1, x.shape[1], 4)), 4, scale=x.shape[0], base=None, freqs=mx.array([1.0, 5.0])
    ),
    "norm": mx.grad(lambda x: mx.fast.rms_norm(x, mx.ones((x.shape[-1],))).sum()),
    "attention": lambda x: mx.fast.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], scale=0.3
    ),
    "attention scaled by a size": lambda x: mx.fast.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], scale=x.shape[-1] ** -0.5
    ),
    "gradient of attention scaled by a size": mx.grad(
        lambda x: mx.fast.scaled_dot_product_attention(
            x[None, None], x[None, None] * 2, x[None, None], scale=1 / x.shape[0], mask="causal"
        ).sum()
    ),
    "scaled rotation in a batch": lambda x: mx.vmap(
        lambda row: mx.fast.rope(mx.ones((1, 3, 4)) * row[0], 4, scale=x.shape[0])
    )(x),
    "rounded sizes": lambda x: (
        mx.zeros((math.floor(x.shape[0] / 2) + 1,)),
        mx.full((math.ceil(x.shape[0] / 2),), math.trunc(x.shape[1] / 3 + 1)),
        x[: round(x.shape[0] * 0.6)],
    ),
}


@pytest.mark.parametrize("name", ONE_TRACE)
def test_one_trace_for_all_sizes(name):
    assert traces_of(ONE_TRACE[name], [(normal(*s),) for s in SIZES]) == 1


def test_no_kernel_is_compiled_for_a_size():
    compiled = mx.compile(lambda x, w: mx.tanh(x @ w).sum(-1) * 2)
    for rows in (40, 41):  # both kinds of alignment of the rows
        mx.eval(compiled(normal(rows, 24), normal(24, 40)))
    before = mx.counters()
    for rows in (48, 56, 61):
        mx.eval(compiled(normal(rows, 24), normal(24, 40)))
    after = mx.counters()
    assert after["kernels_compiled"] == before["kernels_compiled"]
    assert after["traces"] == before["traces"]


def test_known_sizes_are_not_planned_again():
    compiled = mx.compile(lambda x: mx.sin(x) + 1)
    for n in (3, 5):
        mx.eval(compiled(mx.ones((n,))))
    before = mx.counters()["programs_built"]
    for n in (5, 3, 5, 3):
        mx.eval(compiled(mx.ones((n,))))
    assert mx.counters()["programs_built"] == before


def test_of_many_sizes_those_used_last_are_kept():
    most = 256
    compiled = mx.compile(lambda x: mx.sin(x) + 1)
    inputs = [mx.ones((n,)) for n in range(most + 3)]
    mx.eval(inputs)

    def built_at(*sizes):
        before = mx.counters()["programs_built"]
        for n in sizes:
            np.testing.assert_allclose(np.array(compiled(inputs[n])), np.sin(1) + 1, rtol=1e-6)
        return mx.counters()["programs_built"] - before

    first, *others = range(2, most + 2)
    assert built_at(first, *others) == most
    assert built_at(first) == 0  # now the second is the oldest
    assert built_at(most + 2) == 1
    assert built_at(first, *others[1:]) == 0
    assert built_at(others[0]) == 1


def test_sizes_of_one_are_another_trace():
    assert traces_of(lambda x, y: x * y, [(normal(3), normal(3)), (normal(3), normal(1))]) == 2


def test_sizes_that_agreed_by_chance():
    calls = [(normal(4), normal(4)), (normal(6), normal(6)), (normal(4, 4), normal(4))]
    assert traces_of(lambda x, y: x + y, calls) == 2  # the last has other ranks
    compiled = mx.compile(lambda x, y: x + y)
    compiled(normal(4), normal(4))
    with pytest.raises(ValueError, match="broadcast"):
        compiled(normal(4), normal(5))


@pytest.mark.parametrize(
    "use, traces",
    [
        (lambda x: x * 2 if x.shape[0] > 4 else x * 3, 2),
        (lambda x: x * math.sqrt(x.shape[0]), 3),
        (lambda x: sum(x[i] for i in range(x.shape[0])), 3),
        (lambda x: x * len(x), 3),
        (lambda x: x * {3: 1.0, 5: 2.0, 9: 4.0}[x.shape[0]], 3),
        (lambda x: x * int(f"{x.shape[0]}"), 3),
        (lambda x: x if x.shape[0] in (3, 5) else -x, 3),
        (lambda x: x * max(x.shape[0], 4), 2),
        (lambda x: x * (x.shape[0] % 2 + 1) if x.shape[0] else x, 1),
    ],
    ids=["branch", "sqrt", "range", "len", "hash", "format", "in", "max", "bool"],
)
def test_a_size_used_as_a_number(use, traces):
    assert traces_of(use, [(normal(*s),) for s in SIZES]) == traces


def test_a_size_passes_for_an_int():
    seen = []

    @mx.compile
    def f(x):
        n = x.shape[0]
        seen.append(
            (isinstance(n, int), n == 3, n + 1 > n, n // 2, divmod(n, 2), n**2, -n, abs(-n))
        )
        assert [0] * n == [0, 0, 0] and list(range(n)) == [0, 1, 2] and f"{n:03d}" == "003"
        assert np.zeros((n, 2)).shape == (3, 2) and round(n / 2, 1) == 1.5 and n.bit_length() == 2
        return x

    f(normal(3))
    assert seen == [(True, True, True, 1, (1, 1), 9, -3, 3)]


NUMBERS = [0.5, 1.5, 3.5, 4.5]


def test_one_trace_for_all_numbers():
    x = normal(5)
    assert traces_of(lambda x, a, b: x * a + b, [(x, a, a + 1) for a in NUMBERS]) == 1
    assert traces_of(lambda x, a: x * (a * 2 + 1) / (a + 3), [(x, a) for a in NUMBERS]) == 1
    assert traces_of(lambda x, k: mx.abs(x) ** k, [(x, k) for k in range(5)]) == 1
    assert traces_of(lambda x, n: mx.zeros((n,)) + x.sum(), [(x, n) for n in range(2, 6)]) == 1
    assert traces_of(lambda x, a: x * 2 if a > 2 else x * 3, [(x, a) for a in NUMBERS]) == 2


def test_powers_of_numbers():
    x = normal(5)
    steps = [(x, t) for t in range(1, 40)]
    assert traces_of(lambda x, t: x / (1 - 0.9**t), steps) == 1
    assert traces_of(lambda x, t: x * (t + 1) ** -0.5 * t**2, steps) == 1
    assert traces_of(lambda x, a: x * a**3 + a**-2 + 2.0**a, [(x, a) for a in NUMBERS]) == 1
    assert traces_of(lambda x, n: mx.zeros((2**n,)) + x.sum(), [(x, n) for n in range(1, 6)]) == 1
    # Below zero, an exponent of an int gives a float.
    assert traces_of(lambda x, n: x * 2**n, [(x, n) for n in range(-3, 4)]) == 2
    # A float's power of a whole number has the same sign as Python's.
    assert traces_of(lambda x, n: x * (-1.5) ** n, [(x, n) for n in range(-3, 4)]) == 1


@pytest.mark.parametrize("rounds", [math.floor, math.ceil, math.trunc, round])
def test_roundings_are_those_of_python(rounds):
    numbers = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.2, -3.7, 1e15 + 0.5, 2.0**62, 1e300]
    seen = []
    compiled = mx.compile(lambda x, a: (x, rounds(a)))
    for a in [*numbers, -1e300, math.inf, -math.inf, math.nan, 3, -4, True]:
        try:
            want = rounds(a)
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                compiled(mx.zeros((1,)), a)
            continue
        got = compiled(mx.zeros((1,)), a)[1]
        assert type(got) is type(want) and got == want, f"of {a}"
        seen.append(want)
    assert len(seen) >= 17 and max(seen) > 2**64


def test_sizes_made_of_floats():
    calls = [(normal(5), a) for a in (2.5, 3.25, 3.5, 7.0, 2.5)]
    assert traces_of(lambda x, a: mx.zeros((math.floor(a),)) + x.sum() * a, calls) == 1


def test_powers_are_those_of_python():
    """Each way of computing them, at numbers where errors and other types begin."""
    numbers = [0, 1, 2, 3, 7, 63, 64, -1, -2, -3, 0.0, -0.0, 0.5, -0.5, 1e300, -1e300, 1e-300, 1.5]
    seen = []
    compiled = mx.compile(lambda x, a, b: (x, a**b))
    for a, b in itertools.product(numbers, numbers):
        try:
            want = a**b
        except (ZeroDivisionError, OverflowError) as error:
            with pytest.raises(type(error)):
                compiled(mx.zeros((1,)), a, b)
            continue
        got = compiled(mx.zeros((1,)), a, b)[1]
        assert type(got) is type(want) and repr(got) == repr(want), f"{a} ** {b}"
        seen.append(want)
    assert any(isinstance(v, complex) for v in seen) and any(abs(v) > 2**64 for v in seen)


def test_numbers_of_another_type():
    x = mx.array([1, 2])
    compiled = mx.compile(lambda x, a: x * a)
    assert compiled(x, 2).dtype == mx.int32 and compiled(x, 2.5).dtype == mx.float32
    assert compiled(x, 3).tolist() == [3, 6] and compiled(x, 3.5).tolist() == [3.5, 7]
    assert compiled(x, True).tolist() == [1, 2] and compiled(x, -1).tolist() == [-1, -2]


def test_number_that_does_not_fit():
    compiled = mx.compile(lambda x, k: x + k)
    x = mx.array([1, 2], dtype=mx.uint8)
    assert compiled(x, 3).tolist() == [4, 5]
    for k in (-1, 300):
        with pytest.raises(OverflowError):
            compiled(x, k)
    assert compiled(x, 5).tolist() == [6, 7]


DATA_OF_NUMBERS = {
    "array": lambda x, k: mx.array(k),
    "uint8": lambda x, k: mx.array(k, dtype=mx.uint8),
    "float16": lambda x, k: mx.array(k, dtype=mx.float16),
    "bool": lambda x, k: mx.array(k, dtype=mx.bool_),
    "full": lambda x, k: mx.full((2,), k),
    "full_like": lambda x, k: mx.full_like(x, k),
    "take": lambda x, k: mx.take(x, k, axis=0),
    "bernoulli": lambda x, k: mx.random.bernoulli(k, (4,), key=mx.random.key(1)),
    "uniform": lambda x, k: mx.random.uniform(0, k, (4,), key=mx.random.key(1)),
    "rope": lambda x, k: mx.fast.rope(
        x[None, :, :2], 2, traditional=False, base=1e4, scale=1.0, offset=k
    ),
    "scale of rope": lambda x, k: mx.fast.rope(x[None, :, :2], 2, scale=k, offset=3),
    "scale of attention": lambda x, k: mx.fast.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], scale=k
    ),
    "mask": lambda x, k: mx.softmax(mx.where(x > 3, x, mx.array(k)), axis=-1),
}


@pytest.mark.parametrize("name", DATA_OF_NUMBERS)
def test_numbers_that_become_data(name):
    """Whatever numbers came before: the dtype, the values or the error of the plain function."""
    large = [2**31 - 1, 2**31, -(2**31) - 1, 2**62]
    special = [-0.0, 1e-45, 1e300, math.inf, -math.inf, math.nan, True, False, 3 + 2j]
    numbers = [5, 3, -2, 0, 300, 255, 2.5, *large, *special]
    x = mx.arange(12, dtype=mx.float32).reshape(4, 3)

    def outcome(f, k):
        try:
            made = f(x, k)
            return made.dtype, np.array(made)
        except Exception as error:
            return type(error), str(error)

    for order in (numbers, numbers[::-1]):
        compiled = mx.compile(DATA_OF_NUMBERS[name])
        for k in order:
            kind, want = outcome(DATA_OF_NUMBERS[name], k)
            got_kind, got = outcome(compiled, k)
            assert got_kind == kind, k
            np.testing.assert_array_equal(got, want, err_msg=str(k))


def test_division_by_a_number_that_becomes_zero():
    compiled = mx.compile(lambda x, a: x * (1 / a))
    assert compiled(mx.array([2.0]), 2).item() == 1
    with pytest.raises(ZeroDivisionError):
        compiled(mx.array([2.0]), 0)


def test_negative_numbers_are_told_apart():
    """hash(-1) == hash(-2) in CPython."""
    compiled = mx.compile(lambda x, axes: x.sum(axes))
    x = mx.ones((2, 3))
    assert compiled(x, -1).tolist() == [3, 3] and compiled(x, -2).tolist() == [2, 2, 2]
    assert compiled(x, (-1,)).tolist() == [3, 3] and compiled(x, (-2,)).tolist() == [2, 2, 2]


def test_sizes_as_results():
    compiled = mx.compile(lambda x: (x.shape, {"n": x.shape[0] * 2}, x + 1))
    for n in (3, 5, 1):
        shape, more, y = compiled(mx.ones((n, 2)))
        assert shape == (n, 2) and type(shape[0]) is int and more == {"n": 2 * n}
        assert y.shape == (n, 2)


def test_kept_sizes_are_plain_numbers_afterwards():
    kept = {}

    @mx.compile
    def f(x):
        kept["n"] = x.shape[0]
        return x * kept["n"]

    for n in (3, 5, 3):
        assert f(mx.ones((n,))).tolist() == [n] * n
        assert kept["n"] == n and type(kept["n"]) is int


# --- numbers in captured state ---


def test_count_of_traces():
    runs = 0

    @mx.compile
    def f(x):
        nonlocal runs
        runs += 1
        return x * 2

    for n in (3, 4, 5):
        f(mx.ones((n,)))
    assert runs == 1


def test_list_that_is_only_appended_to():
    log = []

    @mx.compile
    def f(x):
        log.append(1)
        return x + 1

    for _ in range(3):
        f(mx.ones((3,)))
    assert log == [1]


def test_number_that_matters_is_state():
    class Position:
        offset = 0

        def __init__(self):
            self.offset = 0

    place = Position()

    @mx.compile
    def f(x):
        place.offset += x.shape[0]
        return x + place.offset

    before = mx.counters()["traces"]
    for n, offset in ((2, 2), (3, 5), (3, 8), (4, 12)):
        assert f(mx.zeros((n,))).tolist() == [offset] * n and place.offset == offset
    assert mx.counters()["traces"] == before + 1


def test_item_of_a_dict_counts_steps():
    state = {"step": 0, "rate": 0.5}

    @mx.compile
    def f(x):
        state["step"] += 1
        return x * state["rate"] / state["step"]

    assert [f(mx.array(1.0)).item() for _ in range(4)] == pytest.approx([0.5, 0.25, 0.5 / 3, 0.125])
    state["rate"] = 2.0
    assert f(mx.array(1.0)).item() == pytest.approx(0.4) and state["step"] == 5


def test_flag_that_the_call_sets():
    state = {"started": False}

    @mx.compile
    def f(x):
        if not state["started"]:
            state["started"] = True
            return x * 0
        return x

    assert [f(mx.array(2.0)).item() for _ in range(3)] == [0, 2, 2]


def test_growing_cache():
    """A cache that grows in each step: one trace once it holds more than one row."""

    class Cache:
        def __init__(self):
            self.keys, self.length = None, 0

        def add(self, rows):
            self.keys = rows if self.keys is None else mx.concatenate([self.keys, rows], axis=0)
            self.length += rows.shape[0]
            return self.keys

    def step(x):
        return mx.softmax(x @ cache.add(x).T, axis=-1).sum(0)

    cache = Cache()
    expected = [np.array(step(normal(2, 4) + k)) for k in range(8)]
    cache = Cache()
    compiled = mx.compile(step)
    before = mx.counters()["traces"]
    for k in range(8):
        np.testing.assert_allclose(np.array(compiled(normal(2, 4) + k)), expected[k], rtol=1e-5)
    assert cache.length == 16 and cache.keys.shape == (16, 4)
    assert mx.counters()["traces"] <= before + 2


def test_growing_cache_of_turned_keys():
    """A step of decoding: positions are turned from the length of the cache on."""
    rope = nn.RoPE(8)

    def step(q, keys, values):
        start = keys.shape[2]
        keys = mx.concatenate([keys, rope(q, offset=start)], axis=2)
        values = mx.concatenate([values, q], axis=2)
        return (
            mx.fast.scaled_dot_product_attention(rope(q, offset=start), keys, values, scale=0.3),
            keys,
            values,
        )

    lengths = range(3, 12)
    calls = [(normal(1, 2, 1, 8), normal(1, 2, n, 8), normal(1, 2, n, 8)) for n in lengths]
    assert traces_of(step, calls) == 1


# --- state that arguments bring ---


def test_module_argument_is_state():
    compiled = mx.compile(lambda model, x: model(x))
    x = normal(2, 4)
    for model in (nn.Linear(4, 3), nn.Linear(4, 3)):
        np.testing.assert_allclose(np.array(compiled(model, x)), np.array(model(x)), rtol=1e-6)


def test_slots_and_class_attributes():
    class Scaler:
        __slots__ = ("factor",)
        shift = mx.array(1.0)

        def __init__(self, factor):
            self.factor = mx.array(factor)

        def __call__(self, x):
            return x * self.factor + Scaler.shift

    scaler = Scaler(3.0)
    compiled = mx.compile(scaler)
    assert compiled(mx.array(2.0)).item() == 7
    scaler.factor, Scaler.shift = mx.array(5.0), mx.array(2.0)
    assert compiled(mx.array(2.0)).item() == 12


def test_exchange_of_two_values():
    pair = {"a": mx.array(1.0), "b": mx.array(2.0)}

    @mx.compile
    def f():
        pair["a"], pair["b"] = pair["b"], pair["a"]
        return pair["a"] * 10 + pair["b"]

    assert [f().item() for _ in range(4)] == [21, 12, 21, 12]


def test_failed_trace_restores_lists_and_numbers():
    state = {"list": [mx.array(1.0)], "count": 3}

    @mx.compile
    def f(x):
        state["list"].append(x)
        state["count"] += 1
        state["new"] = x
        raise KeyError("on purpose")

    with pytest.raises(KeyError):
        f(mx.array(2.0))
    assert state["count"] == 3 and list(state) == ["list", "count"] and len(state["list"]) == 1


# --- a call is one node ---


def test_a_call_is_lazy():
    compiled = mx.compile(lambda x: mx.exp(x) + 1)
    mx.eval(compiled(mx.ones((3,))))
    before = mx.counters()["kernels_launched"]
    y = mx.ones((3,))
    for _ in range(5):
        y = compiled(y)
    assert mx.counters()["kernels_launched"] == before
    mx.eval(y)
    assert mx.counters()["kernels_launched"] == before + 6


def test_one_output_makes_all():
    compiled = mx.compile(lambda x: (x.sum(), mx.exp(x)))
    a, b = compiled(mx.ones((3,)))
    mx.eval(a)
    before = mx.counters()["kernels_launched"]
    mx.eval(b)
    assert mx.counters()["kernels_launched"] == before


def test_chain_of_lazy_calls_is_released_flat():
    compiled = mx.compile(lambda x: x + 1)
    x = mx.zeros((2,))
    for _ in range(30_000):
        x = compiled(x)
    assert x.tolist() == [30_000] * 2
    for _ in range(9_000):
        x = compiled(x)
    del x


def test_state_is_updated_in_place():
    state = {"x": mx.zeros((1 << 16,))}

    @mx.compile
    def f():
        state["x"] = state["x"] + 1

    for _ in range(3):
        f()
        mx.eval(state)
    mx.reset_peak_memory()
    active = mx.get_active_memory()
    for _ in range(5):
        f()
        mx.eval(state)
    assert mx.get_peak_memory() <= active + (1 << 16)
    assert (np.array(state["x"]) == 8).all()


def test_many_threads_and_sizes():
    state = {"w": mx.array(3.0)}
    compiled = mx.compile(lambda x, a: mx.abs(x) * a * state["w"])
    errors = []

    def work(seed):
        for k in itertools.islice(itertools.cycle(range(2, 9)), 40):
            x = normal(k, seed + 2)
            if not np.allclose(np.array(compiled(x, k)), np.abs(np.array(x)) * k * 3, rtol=1e-5):
                errors.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_products_of_sizes_with_zero_are_not_open():
    """A reduction of nothing is decided by the size 0, also behind a reshape."""
    total = mx.compile(lambda x: mx.sum(mx.reshape(x, (-1,))))
    most = mx.compile(lambda x: mx.max(mx.reshape(x, (-1,))))
    for rows in (5, 0, 3, 0):
        x = mx.ones((rows, 2))
        assert str(total(x).item()) == str(2.0 * rows)  # 0.0, not -0.0
        if rows:
            assert most(x).item() == 1
        else:
            with pytest.raises(ValueError, match="no elements"):
                most(x)
