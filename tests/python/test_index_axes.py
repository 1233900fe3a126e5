# SPDX-License-Identifier: MIT
"""Indices and the axes they stand for: those that count along one, and the one errors name."""

import cermet.core as mx
import numpy as np
import pytest


def of(*shape):
    """Numbers of -2 to 1, for axes of at least 2 elements."""
    return np.random.default_rng(8).integers(-2, 2, shape).astype(np.int32)


# An index that counts along an axis of the indices is the axis itself. Shape, a function of arange,
# x and the other index, that index, and the op by which it is done.
COUNTED = {
    "rows": ((5, 7), lambda n, x, t: x[n(5), t], of(5), "take_along_axis"),
    "columns": ((5, 7), lambda n, x, t: x[t, n(7)], of(7), "take_along_axis"),
    "several of a row": ((5, 7), lambda n, x, t: x[n(5)[:, None], t], of(5, 3), "take_along_axis"),
    "sets of rows": ((5, 7), lambda n, x, t: x[n(5), t], of(3, 5), "take_along_axis"),
    "around": ((5, 7), lambda n, x, t: x[n(5)[:, None], t], of(3, 5, 2), "take_along_axis"),
    "two counted": (
        (4, 5, 7),
        lambda n, x, t: x[n(4)[None], n(5)[:, None], t],
        of(5, 4),
        "take_along_axis",
    ),
    "slices": ((4, 5, 7), lambda n, x, t: x[n(4), t], of(4), "take_along_axis"),
    "apart": ((4, 5, 7), lambda n, x, t: x[n(4), :, t], of(4), "take_along_axis"),
    "in the middle": (
        (4, 5, 7),
        lambda n, x, t: x[n(4)[:, None], t, n(7)],
        of(4, 7),
        "take_along_axis",
    ),
    "diagonal": ((5, 7), lambda n, x, t: x[n(5), n(5) + t], of(1) % 2, "take_along_axis"),
    "several slices": ((4, 5, 7), lambda n, x, t: x[n(4)[:, None], t], of(4, 2), "gather"),
    "part of the rows": ((5, 7), lambda n, x, t: x[n(3), t], of(3), "gather"),
    "from one": ((5, 7), lambda n, x, t: x[n(1, 5), t], of(4), "gather"),
    "by twos": ((5, 7), lambda n, x, t: x[n(0, 10, 2) % 5, t], of(5), "gather"),
    "one row": ((1, 7), lambda n, x, t: x[n(1), t], of(5), "gather"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counted_indices(name):
    """Eager, compiled, batched and with their gradient, as NumPy has them."""
    shape, of_arange, t, op = COUNTED[name]
    rng = np.random.default_rng(9)
    x = rng.standard_normal(shape).astype(np.float32)
    want = of_arange(np.arange, x, t)

    def f(x, t):
        return of_arange(mx.arange, x, t)

    given = mx.array(x), mx.array(t)
    for run in (f, mx.compile(f)):
        np.testing.assert_array_equal(np.array(run(*given)), want)
    (kernel,) = mx.explain(lambda x, t: f(x, t) * 2, *given).kernels
    names = {name for name, *_ in mx.explain(f, *given).kernels[0].ops}
    assert kernel.form in ("gather", "map") and (op == "gather") == ("gather" in names)

    cotangent = rng.standard_normal(want.shape).astype(np.float32)
    (gradient,) = mx.vjp(lambda x: f(x, given[1]), [given[0]], [mx.array(cotangent)])[1]
    places, sums = of_arange(np.arange, np.arange(x.size).reshape(shape), t), np.zeros(x.size)
    np.add.at(sums, places.ravel(), cotangent.ravel())
    np.testing.assert_allclose(np.array(gradient), sums.reshape(shape), rtol=1e-5, atol=1e-6)

    batches = np.stack([x, 2 * x]), np.stack([t, t[::-1]])
    got = np.array(mx.vmap(f)(*map(mx.array, batches)))
    np.testing.assert_array_equal(
        got, [of_arange(np.arange, *one) for one in zip(*batches, strict=True)]
    )


def test_an_index_beside_a_counted_one_is_told_of_by_its_axis():
    x = mx.zeros((7, 5))
    with pytest.raises(IndexError, match=r"index 9 is out of range for axis 0 of size 7"):
        mx.eval(x[mx.array([0, 1, 2, 3, 9]), mx.arange(5)])


def put_into_columns(x, t):
    y = x + 0
    y[:, t] = 1
    return y


# Reads and writes along axis 1 of (3, 5), at a place out of it.
OUT_OF_RANGE = {
    "take": lambda x, t: mx.take(x, t, axis=1),
    "x[:, t]": lambda x, t: x[:, t],
    "x[i, t]": lambda x, t: x[mx.array([0, 2]), t],
    "x[arange, t]": lambda x, t: x[mx.arange(3)[:, None], t],
    "take_along_axis": lambda x, t: mx.take_along_axis(x, t[None], axis=1),
    "take_along_axis, one": lambda x, t: mx.take_along_axis(x, t[None, :1], axis=1),
    "put_along_axis": lambda x, t: mx.put_along_axis(x, t[None], mx.array(1.0), axis=1),
    "x[:, t] = 1": put_into_columns,
    "x.at": lambda x, t: x.at[:, t].add(1),
    "cross_entropy": lambda x, t: mx.fast.cross_entropy(x, mx.broadcast_to(t[0], (3,))),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_axis_in_a_batch_is_told_of_as_without(name):
    """Of the value and the gradient, of one batch and of a batch of batches."""
    f = OUT_OF_RANGE[name]
    x, t = mx.zeros((3, 5)), mx.array([9, 1])
    message = "index 9 is out of range for axis 1 of size 5"
    gradient = mx.grad(lambda x, t: mx.sum(f(x, t) * mx.sin(f(x, t))))
    for g in (f, gradient):
        for depth in range(3):
            given = [mx.broadcast_to(a, (2,) * depth + a.shape) for a in (x, t)]
            batched = g
            for _ in range(depth):
                batched = mx.vmap(batched)
            with pytest.raises(IndexError, match=message):
                mx.eval(batched(*given))


@pytest.mark.parametrize("name", [n for n in OUT_OF_RANGE if "=" not in n and n != "x.at"])
def test_a_gradient_alone_looks_at_indices(name):
    """The value is not needed for it."""
    f = OUT_OF_RANGE[name]
    gradient = mx.grad(lambda x: mx.sum(f(x, mx.array([9, 1]))))
    with pytest.raises(IndexError, match="index 9 is out of range for axis 1 of size 5"):
        mx.eval(gradient(mx.zeros((3, 5))))


def told(f, *arguments):
    """What the error says, but for the line."""
    with pytest.raises(IndexError) as error:
        mx.eval(f(*arguments))
    return str(error.value).partition(" (/")[0]


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_derivative_is_told_of_as_the_call(name):
    """Whatever ops it is made of."""
    x, t = mx.zeros((3, 5)), mx.array([9, 1])

    def f(x):
        return OUT_OF_RANGE[name](x, t)

    def loss(x):
        return mx.sum(mx.sin(f(x)) * f(x))

    want = told(f, x)
    for derivative in (
        mx.grad(loss),
        mx.value_and_grad(loss),
        mx.grad(mx.checkpoint(loss)),
        mx.grad(lambda x: mx.sum(mx.grad(loss)(x) ** 2)),
        lambda x: mx.jvp(loss, [x], [x])[1],
        lambda x: mx.vmap(f)(x[None]),
        lambda x: mx.vmap(mx.grad(loss))(x[None]),
    ):
        assert told(derivative, x) == want
        assert told(mx.compile(derivative), x) == want


@pytest.mark.parametrize(
    "write",
    [
        lambda v, t: mx.put_along_axis(mx.zeros((3, 5)), t[None], v, axis=1),
        lambda v, t: mx.zeros((3, 5)).at[:, t].add(v),
        lambda v, t: mx.zeros((3, 5)).at[mx.array([[0]]), t].multiply(v[:1]),
    ],
)
def test_a_derivative_by_what_is_written_is_told_of_as_the_call(write):
    t, v = mx.array([9, 1]), mx.ones((3, 2))
    want = told(write, v, t)
    assert told(mx.grad(lambda v: mx.sum(write(v, t))), v) == want
    assert told(mx.grad(lambda v: mx.sum(mx.exp(write(v, t)))), v) == want


def test_a_derivative_is_told_of_at_the_line_of_the_call():
    def loss(x):
        return mx.sum(mx.fast.cross_entropy(x, mx.array([1, 7, 0, 0, 2, 2, 1])))

    line = loss.__code__.co_firstlineno + 1
    for gradient in (mx.grad(loss), mx.compile(mx.grad(loss))):
        with pytest.raises(IndexError, match=rf"^\[cross_entropy\] index 7 .*:{line}\)$"):
            mx.eval(gradient(mx.zeros((7, 6))))
