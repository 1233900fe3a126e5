# SPDX-License-Identifier: MIT
"""Long graphs: planning is near-linear, few kernels are compiled, memory stays flat without eval,
and calls of small compiled functions cost no more than the plain ones. Counters where they can
tell; the times are many times what is measured, and stand in tests of their own (`timing`).
"""

import random
import statistics
import subprocess
import sys
import time
import timeit

import cermet.core as mx
import numpy as np
import pytest


def alternating(x, n):
    for i in range(n // 2):
        x = x * (1 + 1e-6 * i) + 1e-3 * i
    return x


def mixed(x, n, lib=mx):
    """A chain of ops without structure."""
    draw, first = random.Random(1), x
    for i in range(n):
        op = draw.randrange(7)
        if op == 0:
            x = x * (1 + 1e-6 * i)
        elif op == 1:
            x = x + 1e-3 * i
        elif op == 2:
            x = lib.tanh(x)
        elif op == 3:
            x = lib.sin(x)
        elif op == 4:
            x = x - first
        elif op == 5:
            x = lib.maximum(x, 0.5)
        else:
            x = -x
    return x


def first_run(f, n):
    """Seconds of a trace, its plan and one run, and the kernels compiled in it."""
    compiled, x = mx.compile(lambda x: f(x, n)), mx.array(np.linspace(-1, 1, 16, dtype=np.float32))
    before, start = mx.counters()["kernels_compiled"], time.perf_counter()
    y = compiled(x)
    mx.eval(y)
    return time.perf_counter() - start, mx.counters()["kernels_compiled"] - before, compiled, x, y


@pytest.fixture(scope="module")
def alternating_run():
    first_run(alternating, 2_000)
    return first_run(alternating, 40_000)


@pytest.fixture(scope="module")
def mixed_run():
    return first_run(mixed, 40_000)


def test_alternating_ops_share_their_kernels(alternating_run):
    _, kernels, _, x, y = alternating_run
    assert kernels <= 8
    expected = x
    for i in range(20_000):
        expected = expected * (1 + 1e-6 * i) + 1e-3 * i
    np.testing.assert_array_equal(np.array(y), np.array(expected))


def test_mixed_ops_run_one_by_one_at_first(mixed_run):
    """Compiling hundreds of kernels for one run of a small array would take half a minute."""
    _, kernels, compiled, x, y = mixed_run
    assert kernels <= 16
    held = [compiled(x) for _ in range(5)]
    values = [np.array(h) for h in held]
    mx.eval([compiled(x + k) for k in range(3)])
    for h, v in zip(held, values, strict=True):
        assert np.array_equal(np.array(h), v) and np.array_equal(v, np.array(y))


@pytest.mark.timing
def test_first_runs_are_soon_done(alternating_run, mixed_run):
    assert alternating_run[0] < 5 and mixed_run[0] < 12


def test_one_by_one_gives_the_bits_of_one_kernel():
    whole = mx.compile(lambda x: mixed(x, 200))
    x = mx.array(np.linspace(-1, 1, 16, dtype=np.float32))
    parts = x
    for start in range(200):
        parts = mixed_step(parts, x, start)
        mx.eval(parts)
    assert np.array_equal(np.array(whole(x)), np.array(parts))


DRAW = random.Random(1)
DRAWS = [DRAW.randrange(7) for _ in range(200)]  # those of `mixed`


def mixed_step(x, first, i):
    steps = (
        lambda: x * (1 + 1e-6 * i),
        lambda: x + 1e-3 * i,
        lambda: mx.tanh(x),
        lambda: mx.sin(x),
        lambda: x - first,
        lambda: mx.maximum(x, 0.5),
        lambda: -x,
    )
    return steps[DRAWS[i]]()


def recurrent(x, n):
    """The gradient of a chain of products that share a matrix."""

    def last(x):
        w, y = mx.outer(x, x), x
        for _ in range(n):
            y = mx.tanh(y @ w)
        return y.sum()

    return mx.grad(last)(x)


@pytest.mark.timing
@pytest.mark.parametrize("f, n", [(alternating, 20_000), (recurrent, 2_000)])
def test_planning_is_near_linear(f, n):
    def best(n):
        return min(first_run(f, n)[0] for _ in range(3))

    best(n // 20)
    # Twice the bound: other processes share the machine.
    assert best(2 * n) < 2 * 2.3 * best(n)


MILLION = """
import cermet.core as mx
def rss():
    return int(open('/proc/self/statm').read().split()[1]) * 4096 >> 20
a = mx.zeros((16,))
mx.eval(a + 1)
for i in range(1_000_001):
    a += 1
    if i == 20_000:
        before = rss()
print(rss() - before, a[0].item())
"""


def test_a_million_updates_without_eval():
    run = subprocess.run(
        [sys.executable, "-c", MILLION], capture_output=True, text=True, check=True
    )
    grown, value = run.stdout.split()
    assert int(grown) < 50 and float(value) == 1_000_001


def small_functions():
    unary = [mx.sin, mx.exp, mx.abs, mx.tanh, mx.square, mx.sigmoid]
    for u in unary:
        yield lambda x, y, u=u: u(x)
        yield lambda x, y, u=u: u(x) + y
        yield lambda x, y, u=u: (u(x) * y).sum()
        yield lambda x, y, u=u: mx.softmax(u(x) - y, axis=-1)
        yield lambda x, y, u=u: mx.maximum(u(x), y) * 2 + 1
        yield lambda x, y, u=u: (u(x), x - y)
        yield lambda x, y, u=u: (u(x) - x.mean()) * y
        yield lambda x, y, u=u: u(x.reshape(4, 4)).T @ y.reshape(4, 4)
    yield lambda x, y: x[1:] + y[:-1]
    yield lambda x, y: mx.concatenate([x, y])


@pytest.mark.timing
def test_compiled_is_not_slower():
    x, y = (
        mx.random.normal((16,), key=mx.random.key(1)),
        mx.random.normal((16,), key=mx.random.key(2)),
    )
    mx.eval(x, y)
    functions = list(small_functions())
    assert len(functions) == 50

    calls, rounds = 100, 9

    def excess(f):
        """Seconds that a compiled call takes beyond 1.05 times the plain one: the median."""
        compiled = mx.compile(f)
        plain, fast = (lambda: mx.eval(f(x, y))), (lambda: mx.eval(compiled(x, y)))
        for _ in range(3):
            plain(), fast()
        return statistics.median(
            (timeit.timeit(fast, number=calls) - 1.05 * timeit.timeit(plain, number=calls)) / calls
            for _ in range(rounds)
        )

    noise = 2e-7  # of these medians, where other processes share the machine
    slow = [i for i, f in enumerate(functions) if all(excess(f) > noise for _ in range(3))]
    assert not slow


@pytest.mark.timing
@pytest.mark.parametrize(
    "limit, build",
    [
        (5, lambda a, b, s, t: lambda: (a + b).sum().item()),
        (4, lambda a, b, s, t: lambda: (s + t).item()),
    ],
    ids=["sum", "scalar"],
)
def test_latency(limit, build):
    a, b = mx.array(np.ones(16, np.float32)), mx.array(np.ones(16, np.float32))
    s, t = mx.array(1.0), mx.array(2.0)
    mx.eval(a, b, s, t)
    f = build(a, b, s, t)
    f()
    us = min(timeit.repeat(f, number=2000, repeat=7)) / 2000 * 1e6
    assert us < 4 * limit  # the bound holds on a machine of its own: see bench/


def test_a_long_step_of_training_without_compile():
    """What evaluations on the way have made is kept for the gradients: results of 2.5 GiB pass the
    bound on pending results a few times, and nothing is computed twice for it.
    """
    layers, rows, size = 48, 1 << 16, 16
    keys = mx.random.split(mx.random.key(0), layers)
    ws = [mx.random.normal((size, size), scale=0.3, key=k) for k in keys]
    x = mx.random.normal((rows, size), key=mx.random.key(1))
    mx.eval(x, ws)

    def loss(ws):
        y = x
        for w in ws:
            y = y + mx.tanh(mx.sin(y) @ w)
        return (y * y).mean()

    def step(ws):
        gradients = mx.grad(loss)(ws)
        norm = mx.sqrt(sum((g * g).sum() for g in gradients))
        return [w - 0.1 / norm * g for w, g in zip(ws, gradients, strict=True)]

    def made_by(f):
        mx.eval(f(ws))
        mx.reset_peak_memory()
        mx.counters(reset=True)
        made = f(ws)
        mx.eval(made)
        return made, mx.counters()["kernels_launched"], mx.get_peak_memory()

    plain, launches, peak = made_by(step)
    compiled, fewest, least = made_by(mx.compile(step))
    assert launches <= 1.1 * fewest and peak <= 1.25 * least
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-4, atol=1e-6)


WAYS = {
    "cumsum": lambda xp, f, x: xp.cumsum(f(x), axis=1),
    "cumsum_down": lambda xp, f, x: f(xp.cumsum(f(x), axis=0) / 40),
    "sum": lambda xp, f, x: f(f(x).sum(axis=0, keepdims=True) / 40) + f(x),
    "max": lambda xp, f, x: f(f(x).max(axis=1, keepdims=True)) + x,
    "take": lambda xp, f, x: f(xp.take_along_axis(f(x), (x > 0).astype(xp.int32), axis=1)),
    "slice": lambda xp, f, x: f(f(x)[1:-1, ::2] + x[1:-1, ::2]),
    "concatenate": lambda xp, f, x: f(xp.concatenate([f(x), x], axis=0)),
    "transpose": lambda xp, f, x: f(f(x).T) + f(x.T),
    "reshape": lambda xp, f, x: f(f(x).reshape(20, 2, 3, 8).transpose(3, 0, 2, 1)).sum(axis=-1),
    "matmul": lambda xp, f, x: f(f(x) @ f(x).T / 40),
}


@pytest.mark.parametrize("name", WAYS)
def test_values_that_millions_of_ways_lead_to(name):
    """Each level is used twice by the next: no part may go every way from the end to the start."""

    def deep(xp):
        def f(b):
            for _ in range(20):
                b = xp.sin(b) * b + xp.tanh(b)
            return b

        return f

    x = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32) / 2
    wanted = WAYS[name](np, deep(np), x.astype(np.float64))

    def g(a):
        return WAYS[name](mx, deep(mx), a)

    a, begin = mx.array(x), time.perf_counter()
    for got in (*(g(a) for _ in range(3)), mx.compile(g)(a)):
        assert np.allclose(np.array(got), wanted, rtol=1e-3, atol=1e-3)
    assert time.perf_counter() - begin < 30
