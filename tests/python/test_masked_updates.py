# SPDX-License-Identifier: MIT
"""What a boolean mask chooses in a trace (compile, vmap): computed with element by element and
written back, it has the bits of the same update outside of one; what needs the number of elements
is refused."""

import cermet.core as mx
import numpy as np
import pytest


def check_equal(got, want, what):
    np.testing.assert_array_equal(np.array(got), want, err_msg=what)


def assign(x, mask, value):
    x = x[...]
    x[mask] = value
    return x


# Of what a mask chooses in a trace, that which its size decides.
NEED_VALUES = [
    lambda x, m: x[m],
    lambda x, m: [{"a": x[m]}],
    lambda x, m: assign(x, (m, None), mx.ones((3, 1))),
    lambda x, m: x[m].sum(),
    lambda x, m: mx.sum(x[m]),
    lambda x, m: x[m].shape[0],
    lambda x, m: len(x[m]),
    lambda x, m: list(x[m]),
    lambda x, m: x[m][0],
    lambda x, m: x if x[m] else -x,
    lambda x, m: mx.eval(x[m]),
    lambda x, m: x[m] @ x,
    lambda x, m: x[m] + x,
    lambda x, m: mx.concatenate([x, x[m]]),
    lambda x, m: x[m] + mx.ones((4, 2))[m],
]


def test_what_needs_values_is_refused():
    x, m = mx.ones((4,)), mx.array([True, False, True, True])
    for f in NEED_VALUES:
        with pytest.raises(ValueError, match="where.*assign through the mask alone"):
            mx.compile(f)(x, m)
        with pytest.raises(ValueError, match="where.*assign through the mask alone"):
            mx.vmap(f, in_axes=(None, 0))(x, mx.stack([m, m]))
    for f in (lambda x, m: assign(x, m, x[~m]), lambda x, m: x[m] + x[x > 2]):
        with pytest.raises(ValueError, match=r"beside those of another.*use one mask"):
            mx.compile(f)(x, m)
    with pytest.raises(ValueError, match="1 axes behind the mask's.*has 0; they must be as many"):
        mx.compile(lambda x, m: assign(x, m, mx.ones((4, 2))[m]))(x, m)


def updated(change):
    """The change as a function of the array, the mask, another array and one of its rows."""

    def f(x, m, z, row):
        x = x[...]
        result = change(x, m, z, row)
        return x if result is None else result

    return f


SELECTIONS = [
    "x[m] += 2",
    "x[m] -= row",
    "x[m] *= z[m]",
    "x[m] /= 3",
    "x[m] //= row",
    "x[m] %= 3",
    "x[m] **= 2",
    "x[m] = -x[m]",
    "x[m] = 1 - x[m] * row[None]",
    "x[m] = z[m]",
    "x[m, :] = mx.where(x[m] > z[m], x[m], row)",
    "x[m] = mx.clip(x[m], -1, row)",
    "x[m] = mx.maximum(abs(z[m]), 0.5).astype(mx.int32) + row * x[m]",
    "x[m] = mx.exp(-x[m].square()).sqrt() / (1 + mx.logaddexp(x[m], z[m]))",
    "x[m] *= (x[m] > 0) & ~(z[m] > 0)",
    "x[x > 0] *= 2; x[x < 0] = x[x < 0] + 1",
    "t = x[m]; t += 1; x[m] = t * t",
    "return x.at[m].add(z[m] * row)",
    "return x.at[m].subtract(z[m] * row)",
    "return x.at[m].divide(1 + z[m] ** 2)",
]


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("change", SELECTIONS)
def test_masked_updates_in_a_trace(rng, change, rank):
    """The bits of the same update outside of one, where the mask is evaluated, in one kernel."""
    body = "\n    ".join(part.strip() for part in change.split(";"))
    scope = {"mx": mx}
    exec(f"def change(x, m, z, row):\n    {body}", scope)
    f = updated(scope["change"])
    x, z = (mx.array(rng.normal(size=(3, 6, 5, 4)).astype(np.float32)) for _ in "xz")
    m = mx.array(rng.random((3, 6, 5)[: rank + 1]) < 0.5)
    row = mx.array(rng.uniform(0.5, 2, size=(3, 4)).astype(np.float32))
    want = np.stack([np.array(f(x[i], m[i], z[i], row[i])) for i in range(3)])
    compiled = mx.compile(f)
    for i in range(3):
        check_equal(compiled(x[i], m[i], z[i], row[i]), want[i], "compiled")
    check_equal(mx.vmap(f)(x, m, z, row), want, "vmap")
    check_equal(mx.compile(mx.vmap(f))(x, m, z, row), want, "compiled vmap")
    assert len(mx.explain(compiled, x[0], m[0], z[0], row[0]).kernels) == 1


def test_gradients_of_masked_updates_in_a_trace():
    """Places that are not chosen take no part: what is infinite there does no harm."""

    def loss(x, w, weights):
        x, m = x[...], x > 0
        x[m] = mx.log(x[m]) * w + w / x[m]
        return (x * weights).sum()

    x, w = mx.array([0.0, 2.0, -3.0, 0.5]), mx.array(1.5)
    weights = mx.array([1.0, 2.0, 3.0, 4.0])
    want_x = [1, 2 * (1.5 / 2 - 1.5 / 4), 3, 4 * (1.5 / 0.5 - 1.5 / 0.25)]
    want_w = 2 * (np.log(2) + 1 / 2) + 4 * (np.log(0.5) + 2)
    gradient = mx.grad(loss, argnums=(0, 1))
    for g in (gradient, mx.compile(gradient)):
        got_x, got_w = g(x, w, weights)
        np.testing.assert_allclose(np.array(got_x), want_x, rtol=1e-6)
        np.testing.assert_allclose(got_w.item(), want_w, rtol=1e-6)
