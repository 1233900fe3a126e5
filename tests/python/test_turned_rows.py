# SPDX-License-Identifier: MIT
"""Folds and scans of arrays whose memory goes in another order than their rows: the kernel goes
along memory where it stores nothing in the order of the rows, else a copy in order is made first.
Values beside NumPy in float64, kernel counts, and the same bits eager, compiled and op by op."""

import hashlib
import os
import subprocess
import sys
import warnings

import cermet.core as mx
import numpy as np
import pytest

SHAPES = [(96, 130), (2000, 33), (21, 3001), (40, 16), (5, 7), (1, 3000), (0, 4)]


def softmax(x, axis, xp):
    exponentials = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=axis, keepdims=True)


def normalised(x, xp):
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def logsumexp(x, axis, xp):
    most = xp.max(x, axis=axis, keepdims=True)
    return most + xp.log(xp.sum(xp.exp(x - most), axis=axis, keepdims=True))


# Of x, whose memory is transposed, and y, whose is not; kernels where both are large.
CASES = {
    "max": (lambda x, y, xp: xp.max(x, axis=1), 1),
    "sum": (lambda x, y, xp: xp.sum(x * 2 + 1, axis=1), 1),
    "var": (lambda x, y, xp: xp.var(x, axis=1), 1),
    "logsumexp": (lambda x, y, xp: logsumexp(x, 1, xp), 1),
    "argmax": (lambda x, y, xp: xp.argmax(x, axis=1), 1),
    "first axis": (lambda x, y, xp: xp.sum(x, axis=0), 1),
    "all": (lambda x, y, xp: xp.sum(x * x), 1),
    "softmax": (lambda x, y, xp: softmax(x, 1, xp), 2),
    "softmax of the first axis": (lambda x, y, xp: softmax(x, 0, xp), 3),
    "norm": (lambda x, y, xp: normalised(x, xp), 2),
    "norm of two": (lambda x, y, xp: normalised(x + y, xp), 2),
    "cumsum": (lambda x, y, xp: xp.cumsum(x, axis=1), 2),
    "product": (lambda x, y, xp: xp.sum(x * y, axis=1), 2),
    "product of a function": (lambda x, y, xp: xp.sum(y * xp.tanh(x), axis=1), 2),
    "product over all": (lambda x, y, xp: xp.sum(y * x), 2),
    "rows, then all": (lambda x, y, xp: xp.mean(xp.max(x, axis=1)), 2),
    "sum and product": (lambda x, y, xp: (xp.sum(x, axis=1), xp.sum(x * y, axis=1)), 3),
}


def of(f):
    return lambda x, y: f(x.T, y, mx)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_of_a_transposed_array(name, shape):
    f, kernels = CASES[name]
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=shape).astype(np.float32),
        rng.normal(size=shape[::-1]).astype(np.float32),
    )
    arrays = [mx.array(x), mx.array(y)]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing
            expected = f(x.T.astype(np.float64), y.astype(np.float64), np)
    except ValueError:  # a maximum of nothing
        for g in (of(f), mx.compile(of(f))):
            with pytest.raises(ValueError, match="no elements"):
                mx.eval(g(*arrays))
        return
    expected = expected if isinstance(expected, tuple) else (expected,)
    turned = arrays[0].T
    mx.eval(turned)
    for g in (of(f), mx.compile(of(f)), lambda x, y: f(turned, y, mx)):
        got = g(*arrays)
        for a, b in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            tolerance = 1e-5 * max(1.0, np.abs(b).max(initial=0) if np.isfinite(b).all() else 1)
            np.testing.assert_allclose(np.array(a), b, rtol=1e-4, atol=tolerance)
    if shape == (96, 130):
        mx.counters(reset=True)
        mx.eval(mx.compile(of(f))(*arrays))
        assert mx.counters()["kernels_launched"] == kernels


BATCHES = {
    "mean": (lambda x, xp: xp.mean(x, axis=-1), 1),
    "std": (lambda x, xp: xp.std(x, axis=-1), 1),
    "two axes": (lambda x, xp: xp.max(x, axis=(0, 2)), 2),  # one after the other
    "softmax": (lambda x, xp: softmax(x, -1, xp), 2),
    "norm": (lambda x, xp: normalised(x, xp), 2),
}


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("name", BATCHES)
def test_of_a_batch(name, order):
    f, kernels = BATCHES[name]
    x = np.random.default_rng(1).normal(size=(6, 35, 48)).astype(np.float32)
    a = mx.array(x)
    expected = f(x.transpose(order).astype(np.float64), np)
    mx.eval(f(a.transpose(order), mx))
    mx.counters(reset=True)
    got = f(a.transpose(order), mx)
    mx.eval(got)
    assert mx.counters()["kernels_launched"] <= kernels
    np.testing.assert_allclose(np.array(got), expected, rtol=1e-4, atol=1e-5)
    view = mx.contiguous(a.transpose(order))
    np.testing.assert_allclose(np.array(f(view, mx)), expected, rtol=1e-4, atol=1e-5)


REARRANGED = {  # and kernels that it takes at most, with a copy in order
    "joined axes": (lambda x, xp: x.reshape(8, 32, 40).transpose(0, 2, 1).reshape(-1, 128), 1),
    "repeated": (lambda x, xp: xp.repeat(x, 4, axis=1), 1),
    "tiled": (lambda x, xp: xp.tile(x, (1, 3)), 1),
    "stacked": (lambda x, xp: xp.stack([x, x * 2], axis=-1).reshape(x.shape[0], -1), 2),
    "every second": (lambda x, xp: x[:, ::2], 1),
    "backwards": (lambda x, xp: x[:, ::-1], 1),
}
READERS = {
    "sum": (lambda x, xp: x.sum(1), 1),
    "argmax": (lambda x, xp: xp.argmax(x, axis=1), 1),
    "norm": (lambda x, xp: normalised(x, xp), 1),
    "differences": (lambda x, xp: x[:, 1:] - x[:, :-1], 1),
    "transposed": (lambda x, xp: x.T + 1, 1),
    "product with a vector": (lambda x, xp: x @ x[0], 1),
    "picked": (lambda x, xp: x[xp.array([3, 1, 2, 0, 1] * 16)], 1),
    "picked of the transposed": (lambda x, xp: x.T[xp.array([3, 1, 2, 0, 1] * 16)], 2),
    "rows and columns": (lambda x, xp: x.T.sum(1)[:, None] + x.T.sum(0)[None], 3),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", REARRANGED)
def test_of_what_is_rearranged(name, reader):
    """At most one copy in order is made, which the others read."""
    rearranged, before = REARRANGED[name]
    read, more = READERS[reader]
    x = np.random.default_rng(3).normal(size=(80, 128)).astype(np.float32)
    a = mx.array(x)
    report = mx.explain(lambda a: read(rearranged(a, mx), mx), a).kernels
    assert len(report) <= before + more
    expected = read(rearranged(x.astype(np.float64), np), np)
    for f in (
        lambda a: read(rearranged(a, mx), mx),
        lambda a: read(mx.contiguous(rearranged(a, mx)), mx),
    ):
        np.testing.assert_allclose(np.array(f(a)), expected, rtol=1e-4, atol=2e-4)
        np.testing.assert_allclose(np.array(mx.compile(f)(a)), expected, rtol=1e-4, atol=2e-4)


def test_bits_do_not_depend_on_how_it_is_run():
    """Of all cases: eager and compiled, and in a process with one thread that runs op by op."""
    environment = {**os.environ, "CERMET_NUM_THREADS": "1", "CERMET_TIER": "single"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == digests(mx.compile) == digests(lambda f: f)


def digests(how):
    rng = np.random.default_rng(2)
    arrays = [mx.array(rng.normal(size=s).astype(np.float32)) for s in [(96, 130), (130, 96)]]
    results = [how(of(f))(*arrays) for f, _ in CASES.values()]
    whole = [
        b"".join(np.array(a).tobytes() for a in (r if isinstance(r, tuple) else (r,)))
        for r in results
    ]
    return [hashlib.sha256(each).hexdigest() for each in whole]


if __name__ == "__main__":
    print(*digests(lambda f: f))
