# SPDX-License-Identifier: MIT
"""async_eval queues and returns at once; Ctrl-C ends what the main thread waits for, soon; the
child of a fork computes, whatever other threads were at."""

import itertools
import math
import os
import signal
import threading
import time
import traceback

import cermet.core as mx
import numpy as np
import pytest


@pytest.fixture(scope="module")
def matrix():
    m = mx.random.normal((1500, 1500), key=mx.random.key(1)) / math.sqrt(1500)
    mx.eval(m, m @ m)
    return m


def products(m, seconds):
    """A sum over products that takes at least about this long; pending, it holds few bytes."""

    def term(k):
        return mx.sum(m @ (m + k))

    def once():
        start = time.perf_counter()
        mx.eval(term(1))
        return time.perf_counter() - start

    each = min(once() for _ in range(5))  # a machine that stalls would make the sum too short
    total = mx.zeros(())
    for k in range(int(seconds / each) + 2):
        total = total + term(k)
    return total


def test_returns_its_argument_without_waiting(matrix):
    y = products(matrix, 0.5)
    start = time.perf_counter()
    assert mx.async_eval(y) is y
    queued = time.perf_counter() - start
    start = time.perf_counter()
    mx.eval(y)
    assert queued < 0.1 < time.perf_counter() - start
    a, b = matrix + 1, [matrix + 2]
    result = mx.async_eval(a, b)
    assert result[0] is a and result[1] is b


def test_compiled_call_does_not_wait(matrix):
    compiled = mx.compile(lambda x: x @ x @ x + 1)
    mx.eval(compiled(matrix))
    before = mx.counters()["kernels_launched"]
    y = compiled(matrix)
    assert mx.counters()["kernels_launched"] == before
    mx.async_eval(y)
    mx.synchronize()
    assert mx.counters()["kernels_launched"] > before
    np.testing.assert_array_equal(np.array(y), np.array(compiled(matrix)))


def test_error_is_raised_when_asked_for():
    bad = mx.take(mx.array([1.0, 2.0]), mx.array([7]))
    mx.async_eval(bad)
    mx.synchronize()
    with pytest.raises(IndexError):
        mx.eval(bad)


@pytest.mark.timing
@pytest.mark.parametrize("queued", [True, False], ids=["async", "eval"])
def test_interrupt(matrix, queued):
    def seconds_until_raised():
        y = products(matrix, 3.0)
        if queued:
            mx.async_eval(y)
        sent = []

        def interrupt():
            time.sleep(0.2)
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        ended = False
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            mx.eval(y)
            ended = True
            thread.join()  # a signal that comes after the end is this test's, not the next one's
        waited = time.perf_counter() - sent[0]
        thread.join()
        mx.synchronize()
        return math.inf if ended else waited

    # A machine that other processes share may stall once.
    assert any(seconds_until_raised() < 0.2 for _ in range(3))
    assert (mx.ones((3,)) + 1).tolist() == [2, 2, 2]


def in_child(body, seconds=20):
    """What the child of a fork returns (0 for None), or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        code = 1
        try:
            code = body() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Repeated:
    """A thread that calls a function until the block ends."""

    def __init__(self, function):
        self.stop = False
        self.started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(function,))

    def run(self, function):
        while not self.stop:
            function()
            self.started.set()

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(60)

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()


def evaluate(m):
    mx.eval(m @ m + 1)


def evaluate_queued(m):
    mx.async_eval(m @ m + 1)
    mx.synchronize()


def compile_anew(m):
    scale = time.perf_counter()  # a constant that no kernel has met
    mx.eval(mx.compile(lambda x: x * x + scale)(m))


def computes():
    x = mx.arange(1000)
    mx.eval(x)
    assert mx.sum(x * 2).item() == 999000
    assert mx.compile(lambda x: mx.sum(x + 1))(x).item() == 500500
    y = mx.sum(x)
    mx.async_eval(y)
    mx.synchronize()
    assert y.item() == 499500


@pytest.mark.parametrize(
    "work", [evaluate, evaluate_queued, compile_anew], ids=lambda f: f.__name__
)
def test_fork_while_another_thread_works(work):
    computes()
    m = mx.ones((300, 300))
    mx.eval(m)
    with Repeated(lambda: work(m)):
        for _ in range(30):
            assert in_child(computes) == 0


def test_fork_while_the_same_compiled_function_is_made(matrix):
    compiled = mx.compile(lambda x: mx.sum(x * 2 + 1))
    sizes = itertools.count(10)
    with Repeated(lambda: mx.eval(compiled(mx.ones((next(sizes), 2))))):
        for n in range(30):
            assert in_child(lambda n=n: compiled(mx.ones((5, n))).item() != 15 * n) == 0


def test_fork_cuts_a_long_evaluation_short(matrix):
    """The child comes soon; what was being evaluated is computed anew there, or says why not."""
    expected = np.array(matrix) * 2
    y = products(matrix, 4)
    given = mx.array(np.ones((1500, 1500), np.float32)) + 1
    mx.eval(given)
    z = products(given / 3000, 4)
    del given
    for pending in (y, z):
        thread = threading.Thread(target=mx.eval, args=(pending,))
        thread.start()
        time.sleep(0.2)

        def look(pending=pending):
            computes()
            np.testing.assert_array_equal(np.array(matrix * 2), expected)
            try:
                mx.eval(pending)
            except RuntimeError as error:
                assert "fork" in str(error)

        start = time.perf_counter()
        assert in_child(look, 60) == 0
        assert thread.is_alive() or time.perf_counter() - start > 2
        thread.join()
        mx.eval(pending)


def test_fork_from_another_thread_than_the_evaluating_main(matrix):
    """The main thread looks for Ctrl-C, which needs the GIL that the forking thread has."""
    codes = []

    def fork():
        for _ in range(5):
            codes.append(in_child(computes))

    y = products(matrix, 2.0)
    thread = threading.Thread(target=fork)
    thread.start()
    mx.eval(y)
    thread.join()
    assert codes == [0] * 5
