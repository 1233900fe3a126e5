# SPDX-License-Identifier: MIT
"""async_eval queues and returns at once; Ctrl-C ends what the main thread waits for, soon."""

import os
import signal
import threading
import time

import cermet.core as mx
import numpy as np
import pytest


@pytest.fixture(scope="module")
def matrix():
    m = mx.random.normal((1500, 1500), key=mx.random.key(1)) * 0.02
    mx.eval(m, m @ m)
    return m


def product(m, seconds):
    """A chain of products that takes about this long."""
    start = time.perf_counter()
    mx.eval(m @ m + 1)
    each = time.perf_counter() - start
    x = m
    for _ in range(int(seconds / each) + 2):
        x = x @ m
    return x


def test_returns_its_argument_without_waiting(matrix):
    y = product(matrix, 0.5)
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


@pytest.mark.parametrize("queued", [True, False], ids=["async", "eval"])
def test_interrupt(matrix, queued):
    y = product(matrix, 3.0)
    if queued:
        mx.async_eval(y)
    sent = []

    def interrupt():
        time.sleep(0.2)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        mx.eval(y)
    assert time.perf_counter() - sent[0] < 0.2
    thread.join()
    mx.synchronize()
    assert (mx.ones((3,)) + 1).tolist() == [2, 2, 2]
