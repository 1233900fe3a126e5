# SPDX-License-Identifier: MIT
"""custom_function, checkpoint and depends: against derivatives written by hand, finite differences,
the same function without them, and loops; alone, nested, under one another and compiled.
"""

import gc
import threading
import weakref

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import pytest
from cermet.nn.utils import checkpoint
from cermet.utils import tree_flatten

STEP = 1e-5


def f64(*values):
    return mx.array(np.array(values, np.float64), mx.float64)


def close(got, want, rtol=1e-9):
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=rtol, atol=1e-11)


def numeric(f, x):
    """Central differences of a scalar function of one array."""
    x, out = np.array(x), np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        at = np.zeros(x.shape)
        at[i] = STEP
        ends = [f(mx.array(x + s * at, mx.float64)).item() for s in (1, -1)]
        out[i] = (ends[0] - ends[1]) / (2 * STEP)
    return out


def sine_times(marks=None):
    """sin(x) y, with rules that scale what they give, so that it is seen which were used."""
    vjp, jvp, vmap = marks or (1, 1, 1)

    @mx.custom_function
    def f(x, y):
        return mx.sin(x) * y

    @f.vjp
    def f_vjp(primals, cotangent, output):
        x, y = primals
        return vjp * cotangent * mx.cos(x) * y, vjp * cotangent * mx.sin(x)

    @f.jvp
    def f_jvp(primals, tangents):
        x, y = primals
        dx, dy = (
            mx.zeros_like(p) if t is None else t for p, t in zip(*(primals, tangents), strict=True)
        )
        return jvp * (dx * mx.cos(x) * y + dy * mx.sin(x))

    @f.vmap
    def f_vmap(inputs, axes):
        (x, y), (ax, ay) = inputs, axes
        x = x if ax is None else mx.moveaxis(x, ax, 0)
        y = y if ay is None else mx.moveaxis(y, ay, 0)
        return vmap * mx.sin(x) * y, 0

    assert f_vjp is f and f_jvp is f and f_vmap is f
    return f


X, Y = f64(0.5, -1.2, 2.0), f64(1.5, 0.3, -0.7)


def test_rules_are_used():
    f = sine_times((2, 3, 5))
    close(f(X, Y), np.sin(X) * np.array(Y))
    of_x, of_y = mx.grad(lambda a, b: f(a, b).sum(), (0, 1))(X, Y)
    close(of_x, 2 * np.cos(X) * np.array(Y))
    close(of_y, 2 * np.sin(X))
    tangent = mx.jvp(f, [X, Y], [Y, X])[1][0]
    close(tangent, 3 * (np.cos(X) * np.array(Y) ** 2 + np.sin(X) * np.array(X)))
    only_x = mx.jvp(lambda a: f(a, Y), [X], [Y])[1][0]
    close(only_x, 3 * np.cos(X) * np.array(Y) ** 2)
    close(mx.vmap(f)(X, Y), 5 * np.sin(X) * np.array(Y))
    close(mx.vmap(f, in_axes=(None, 0))(X[0], Y), 5 * np.sin(X[0]) * np.array(Y))


def test_rules_that_are_derivatives_agree_with_differences():
    f = sine_times()
    close(mx.grad(lambda a: f(a, Y).sum())(X), numeric(lambda a: f(a, Y).sum(), X), 1e-7)
    second = mx.grad(lambda a: (mx.grad(lambda b: f(b, Y).sum())(a) * X).sum())
    close(second(X), -np.sin(X) * np.array(Y) * np.array(X))
    forward = mx.jvp(mx.grad(lambda a: f(a, Y).sum()), [X], [X])[1][0]
    close(forward, -np.sin(X) * np.array(Y) * np.array(X))
    back = mx.grad(lambda a: (mx.jvp(lambda b: f(b, Y), [a], [X])[1][0]).sum())
    close(back(X), -np.sin(X) * np.array(Y) * np.array(X))


@pytest.mark.parametrize("rules", [("vjp",), ("jvp",), ("vjp", "jvp"), ("vjp", "vmap")])
def test_batching_keeps_the_rules(rules):
    """grad of vmap and vmap of grad equal the loop, whichever rules there are; twice, too."""
    f = mx.custom_function(lambda x, y: (mx.sin(x) * y).sum())
    if "vjp" in rules:
        f.vjp(lambda p, g, _: (7 * g * mx.cos(p[0]) * p[1], 7 * g * mx.sin(p[0])))
    if "jvp" in rules:
        f.jvp(lambda p, t: sum(mx.sum(3 * d) for d in t if d is not None))
    if "vmap" in rules:
        f.vmap(lambda p, axes: (mx.sum(mx.sin(p[0]) * p[1], -1), 0))
    x = mx.array(np.linspace(-1, 2, 24).reshape(2, 4, 3), mx.float64)
    rows = x.reshape(8, 3)
    gradient = mx.grad(f, (0, 1))
    want = [gradient(row, Y) for row in rows]
    of_x = np.stack([w[0] for w in want])
    of_y = np.stack([w[1] for w in want])
    got = mx.vmap(gradient, in_axes=(0, None))(rows, Y)
    close(got[0], of_x)
    close(got[1], of_y)
    got = mx.grad(lambda a, b: mx.vmap(f, in_axes=(0, None))(a, b).sum(), (0, 1))(rows, Y)
    close(got[0], of_x)
    close(got[1], of_y.sum(0))
    twice = mx.vmap(mx.vmap(f, in_axes=(1, None), out_axes=0), in_axes=(2, None), out_axes=0)
    turned = mx.transpose(x, (2, 1, 0))  # batch axes 1 and 2
    close(twice(turned, Y), np.array(mx.vmap(lambda r: f(r, Y))(rows)).reshape(2, 4))
    got = mx.grad(lambda a: twice(a, Y).sum())(turned)
    close(got, of_x.reshape(2, 4, 3).transpose(2, 1, 0))
    tangents = mx.jvp(lambda a: mx.vmap(f, in_axes=(0, None))(a, Y), [rows], [rows])[1][0]
    loop = [mx.jvp(lambda a: f(a, Y), [row], [row])[1][0] for row in rows]
    close(tangents, np.stack(loop))


def test_trees_keywords_and_numbers():
    seen = []

    @mx.custom_function
    def f(tree, n, *, scale=1.0, shift=None):
        return {"a": tree["u"] ** n * scale, "b": [tree["v"] * 2, tree["k"]]}

    @f.vjp
    def rule(primals, cotangents, outputs, **kwargs):
        seen.append((primals[1], sorted(kwargs), primals[0]["k"].dtype))
        np.testing.assert_array_equal(np.array(outputs["b"][0]), 2 * np.array(primals[0]["v"]))
        return {"u": cotangents["a"] * 5 * kwargs["scale"], "v": cotangents["b"][0] * 9}, None

    def loss(u, v):
        tree = {"u": u, "v": v, "k": mx.array([1, 2])}
        out = f(tree, 3, scale=mx.array(2.0, mx.float64))
        return out["a"].sum() + (out["b"][0] * Y).sum()

    of_u, of_v = mx.grad(loss, (0, 1))(X, Y)
    close(of_u, [10, 10, 10])
    close(of_v, 9 * np.array(Y))
    assert seen == [(3, ["scale"], mx.int32)]


@pytest.mark.parametrize("out", [0, 1])
@pytest.mark.parametrize("of_y", [0, 1, -1, None])
@pytest.mark.parametrize("of_x", [0, 1, -1, None])
def test_axes_of_a_vmap_rule(of_x, of_y, out):
    """Whatever the axes, alone and in another vmap, against the loop."""
    if of_x is None and of_y is None:
        return
    x, y = (mx.array(np.random.default_rng(s).standard_normal((2, 3)), mx.float64) for s in (0, 1))
    f = sine_times((1, 1, 5))
    f.vmap(lambda inputs, axes: turned(inputs, axes, out))

    def turned(inputs, axes, out):
        x, y = (a if i is None else mx.moveaxis(a, i, 0) for a, i in zip(inputs, axes, strict=True))
        return mx.moveaxis(5 * mx.sin(x) * y, 0, out), out

    def laid(a, axis):
        return a[0] if axis is None else mx.moveaxis(a, 0, axis)

    a, b = laid(x, of_x), laid(y, of_y)
    want = 5 * np.sin(x[:1] if of_x is None else x) * np.array(y[:1] if of_y is None else y)
    for out_axis in (0, 1):
        got = mx.vmap(f, in_axes=(of_x, of_y), out_axes=out_axis)(a, b)
        close(got, np.moveaxis(want, 0, out_axis))
    twice = mx.vmap(mx.vmap(f, in_axes=(of_x, of_y)), in_axes=(-1, None))
    close(twice(mx.stack([a, 2 * a], -1), b)[0], want)


def test_numbers_have_no_axis_and_no_tangent():
    seen = []

    @mx.custom_function
    def f(x, n):
        return x["a"] * n + x["k"]

    @f.vmap
    def along(inputs, axes):
        seen.append(axes)
        return inputs[0]["a"] * inputs[1] + 7, 0

    @f.jvp
    def forward(primals, tangents):
        seen.append((tangents[0]["k"], tangents[1]))
        return tangents[0]["a"] * 5

    close(mx.vmap(lambda a: f({"a": a, "k": 2}, 3.0))(X), 3 * np.array(X) + 7)
    close(mx.jvp(lambda a: f({"a": a, "k": 2}, 3.0), [X], [Y])[1][0], 5 * np.array(Y))
    assert seen == [({"a": 0, "k": None}, None), (None, None)]


def test_one_call_for_all_results():
    calls = []

    @mx.custom_function
    def f(x):
        return mx.sin(x), mx.cos(x), x * 3

    @f.vjp
    def rule(x, cotangents, outputs):
        calls.append(len(cotangents))
        return sum(c * w for c, w in zip(cotangents, (2, 3, 5), strict=True))

    def loss(x):
        a, b, _ = f(x)
        return (a * X).sum() + (mx.exp(b) * a).sum()

    a, b = np.sin(Y), np.cos(Y)
    close(mx.grad(loss)(Y), 2 * (np.array(X) + np.exp(b)) + 3 * np.exp(b) * a)
    assert calls == [3]


def test_what_is_not_an_argument():
    """As in MLX: the rule gives cotangents to arguments alone; without rules all are reached."""
    w, x = f64(2.0), X

    def loss(with_rule):
        def run(w):
            f = mx.custom_function(lambda v: v * w)
            if with_rule:
                f.vjp(lambda v, g, _: g)
            return f(x).sum()

        return mx.grad(run)(w)

    close(loss(False), [X.sum().item()])
    close(loss(True), [0])


def test_a_cotangent_that_the_function_does_not_have():
    """A rule may give one where the function's own graph has none (straight-through estimators)."""
    rounded = mx.custom_function(lambda x, y: mx.round(mx.stop_gradient(x)))
    rounded.vjp(lambda p, g, _: (g, g * 4))
    of_x, of_y = mx.grad(lambda a, b: (rounded(a, b) * X).sum(), (0, 1))(X, Y)
    close(of_x, X)
    close(of_y, 4 * np.array(X))


def test_custom_functions_compile():
    f = sine_times((2, 3, 1))
    gradient = mx.compile(mx.grad(lambda a, b: f(a, b).sum(), (0, 1)))
    for x in (X, Y):
        of_x, of_y = gradient(x, Y)
        close(of_x, 2 * np.cos(x) * np.array(Y))
        close(of_y, 2 * np.sin(x))
    compiled = mx.compile(lambda a: f(a, Y).sum())
    close(mx.grad(compiled)(X), 2 * np.cos(X) * np.array(Y))
    close(mx.compile(mx.vmap(lambda a, b: f(a, b)))(X, Y), np.sin(X) * np.array(Y))


WRONG = {
    "1 values|one where 2": lambda p, g, o: g,
    "3 values where 2": lambda p, g, o: (g, g, g),
    r"cotangent 1 of shape \(2,\) for an argument of shape \(3,\)": lambda p, g, o: (g, g[:2]),
    "a str where an array": lambda p, g, o: (g, "g"),
}


@pytest.mark.parametrize("text", WRONG)
def test_rules_that_do_not_fit(text):
    f = mx.custom_function(lambda x, y: x * y)
    f.vjp(WRONG[text])
    with pytest.raises((ValueError, TypeError), match=rf"\[custom_function\] the vjp.*({text})"):
        mx.grad(lambda a, b: f(a, b).sum(), (0, 1))(X, Y)
    with pytest.raises(TypeError, match="must be callable"):
        f.vjp(3)
    with pytest.raises(TypeError, match="must be callable"):
        mx.custom_function(3)
    f.vmap(lambda p, axes: p[0])
    with pytest.raises(TypeError, match=r"must give \(outputs, axes\)"):
        mx.vmap(f)(X, Y)


@pytest.mark.parametrize("tangent", [mx.zeros((2,)), mx.zeros(()), mx.zeros((1, 3))])
def test_tangents_have_the_shapes_of_outputs(tangent):
    f = mx.custom_function(lambda x: x * 2)
    f.jvp(lambda x, t: tangent)
    with pytest.raises(
        ValueError, match=r"the jvp gives tangent 0 .* for an output of shape \(3,\)"
    ):
        mx.jvp(f, [X], [X])
    rows = mx.stack([X, Y])
    with pytest.raises(
        ValueError, match=r"the jvp gives tangent 0 .* for an output of shape \(3,\)"
    ):
        mx.jvp(mx.vmap(f), [rows], [rows])


@pytest.mark.parametrize("batched", [False, True])
def test_tangents_have_the_dtypes_of_outputs(batched):
    """As cotangents have those of arguments."""
    f = mx.custom_function(lambda x: x * 2)
    f.jvp(lambda x, t: 3 * t.astype(mx.int32))
    of, x = (mx.vmap(f), mx.stack([X, Y])) if batched else (f, X)
    tangent = mx.jvp(of, [x], [mx.ones_like(x)])[1][0]
    assert tangent.dtype == mx.float64
    close(tangent, np.full(x.shape, 3.0))


def test_an_error_in_a_rule_is_raised_as_it_is():
    f = mx.custom_function(lambda x: x * 2)

    @f.vjp
    def rule(x, g, o):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mx.grad(lambda a: f(a).sum())(X)
    close(mx.grad(lambda a: (a * 3).sum())(X), [3, 3, 3])


# --- checkpoint ---


def block(x, w, v):
    h = mx.tanh(x @ w)
    return x + mx.softmax(h @ v, axis=-1) * mx.exp(-h * h)


def weights(seed, n=4):
    rng = np.random.default_rng(seed)
    return [mx.array(rng.normal(size=(n, n)) / 2, mx.float64) for _ in range(3)]


def test_checkpoint_changes_no_derivative():
    x, w, v = weights(1)
    saved = mx.checkpoint(block)
    loss = lambda f: lambda *args: (f(*args) ** 2).sum()  # noqa: E731
    close(saved(x, w, v), block(x, w, v))
    for got, want in zip(
        *(mx.grad(loss(f), (0, 1, 2))(x, w, v) for f in (saved, block)), strict=True
    ):
        close(got, want)
    close(
        mx.grad(lambda a: loss(saved)(a, w, v))(x), numeric(lambda a: loss(block)(a, w, v), x), 1e-6
    )

    def second(f):
        return mx.grad(lambda a: (mx.grad(lambda b: loss(f)(b, w, v))(a) * v).sum())(x)

    close(second(saved), second(block))
    for transform in (
        lambda f: mx.jvp(lambda a: f(a, w, v), [x], [v])[1][0],
        lambda f: mx.jvp(mx.grad(lambda a: loss(f)(a, w, v)), [x], [v])[1][0],
        lambda f: mx.grad(lambda a: mx.jvp(lambda b: f(b, w, v), [a], [v])[1][0].sum())(x),
        lambda f: mx.compile(mx.grad(loss(f), 1))(x, w, v),
        lambda f: mx.grad(mx.compile(loss(f)), 2)(x, w, v),
        lambda f: mx.vmap(mx.grad(lambda a: loss(f)(a, w, v)))(mx.stack([x, v, w])),
        lambda f: mx.grad(
            lambda a: mx.vmap(lambda r, u: loss(f)(r, u, v), in_axes=(1, None))(a, w).sum()
        )(mx.stack([x, v, w], 1)),
    ):
        close(transform(saved), transform(block))


def test_checkpoint_nested_captured_and_with_several_results():
    x, w, v = weights(2)

    def loss(save, x_, w_, v_):
        inner = save(lambda a: (mx.tanh(a @ w_), a * 2))

        def outer(a):
            b, c = inner(a)
            scaled = b * v_
            return {"x": save(lambda t: mx.exp(t * scaled))(c), "n": mx.array(3)}

        return save(outer)(x_)["x"].sum()

    got = mx.grad(lambda *p: loss(mx.checkpoint, *p), (0, 1, 2))(x, w, v)
    want = mx.grad(lambda *p: loss(lambda f: f, *p), (0, 1, 2))(x, w, v)
    for g, t in zip(got, want, strict=True):
        close(g, t)
    second = lambda save: mx.grad(  # noqa: E731
        lambda a: (mx.grad(lambda b: loss(save, x, b, v))(a) * x).sum()
    )(w)
    close(second(mx.checkpoint), second(lambda f: f))


def test_checkpoint_repeats_its_random_numbers():
    mask = nn.Dropout(0.5)
    seen = []

    def drop(x):
        y = mask(x)
        seen.append(y)
        return y * y

    x = mx.ones((64,))
    mx.random.seed(3)
    gradient = mx.grad(lambda a: mx.checkpoint(drop)(a).sum())(x)
    # d(y²)/dx = 2 y · 2 where kept: 8, else 0; the same places as in the forward pass.
    np.testing.assert_array_equal(np.array(gradient), 2 * np.array(seen[0]) * np.array(seen[0]))
    assert set(np.unique(np.array(gradient))) == {0, 8}


def test_checkpointed_modules():
    mx.random.seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)])
    x = mx.random.normal((5, 8))

    def loss(save):
        def run(x):
            for layer in model.layers:
                x = (checkpoint(layer) if save else layer)(x)
            return (x * x).sum()

        return nn.value_and_grad(model, run)(x)

    got, want = loss(True), loss(False)
    assert got[0].item() == want[0].item()
    flat = lambda g: [np.array(v) for _, v in tree_flatten(g)]  # noqa: E731
    for a, b in zip(flat(got[1]), flat(want[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert checkpoint(model, lambda x: x + 1)(mx.array(1)).item() == 2
    encoder = nn.TransformerEncoder(2, 8, 2, checkpoint=True)
    plain = nn.TransformerEncoder(2, 8, 2)
    plain.update(encoder.parameters())
    sequence = mx.random.normal((2, 3, 8))
    np.testing.assert_allclose(
        *(np.array(mx.grad(lambda s, e=e: e(s, None).sum())(sequence)) for e in (encoder, plain)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_many_and_nested_checkpoints():
    def chain(x):
        for _ in range(1500):
            x = mx.checkpoint(lambda a: mx.tanh(a) * 1.01)(x)
        return x.sum()

    def plain(x):
        for _ in range(1500):
            x = mx.tanh(x) * 1.01
        return x.sum()

    close(mx.grad(chain)(X), mx.grad(plain)(X))

    def nested(n):
        return mx.checkpoint(lambda a: nested(n - 1)(a) * 1.1) if n else mx.sin

    close(mx.grad(lambda a: nested(8)(a).sum())(X), np.cos(X) * 1.1**8)


def test_rules_do_not_outlive_their_use():
    class Token:
        pass

    def use():
        token = Token()
        f = mx.custom_function(lambda x: mx.sin(x) * (token is not None))
        f.vjp(lambda x, g, _: g * mx.cos(x) * (token is not None))
        loss = lambda a: mx.checkpoint(f)(a).sum()  # noqa: E731
        mx.eval(mx.grad(loss)(X), mx.vmap(mx.grad(loss))(mx.stack([X, Y])))
        return weakref.ref(token)

    tokens = [use() for _ in range(3)]
    gc.collect()
    assert not any(token() for token in tokens)


def test_on_several_threads():
    f = mx.custom_function(mx.sin)
    f.vjp(lambda x, g, _: g * mx.cos(x))
    wrong = []

    def work(number):
        for i in range(10):
            x = X * (number + i)
            got = mx.grad(lambda a: mx.checkpoint(lambda b: f(mx.exp(b * 0.1)))(a).sum())(x)
            mx.async_eval(got)
            inner = np.exp(0.1 * np.array(x))
            if not np.allclose(np.array(got), np.cos(inner) * inner * 0.1):
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- depends ---


def test_depends_gives_its_inputs():
    assert mx.depends(X, Y).tolist() == X.tolist()
    both = mx.depends((X, Y), [Y])
    assert isinstance(both, list) and [a.tolist() for a in both] == [X.tolist(), Y.tolist()]
    assert mx.depends([X], [])[0].tolist() == X.tolist()
    with pytest.raises(TypeError, match=r"\[depends\] an int"):
        mx.depends(1, X)
    with pytest.raises(TypeError, match=r"\[depends\] a sequence holds an int"):
        mx.depends([X], [1])


def test_depends_has_the_derivatives_of_its_inputs():
    f = lambda a, b: (mx.depends(mx.sin(a), mx.exp(b)) * b).sum()  # noqa: E731
    of_a, of_b = mx.grad(f, (0, 1))(X, Y)
    close(of_a, np.cos(X) * np.array(Y))
    close(of_b, np.sin(X))
    close(mx.jvp(f, [X, Y], [Y, X])[1][0], (np.cos(X) * np.array(Y) ** 2 + np.sin(X) * X).sum())
    close(mx.vmap(lambda a, b: mx.depends(a, b) * 2)(X, Y), 2 * np.array(X))
    batched = mx.vmap(lambda b: mx.depends(X, b), in_axes=0)(mx.stack([Y, Y]))
    close(batched, np.stack([X, X]))
    close(mx.compile(lambda a, b: mx.depends(a * 2, b + 1) + b)(X, Y), 2 * np.array(X) + Y)


def test_what_depends_is_computed_later_and_anew():
    """Nothing is shared across it: an expression on both sides runs twice, the second time last."""
    x = mx.random.normal((64, 64))
    mx.eval(x)

    def launches(f):
        mx.eval(f(x))
        mx.counters(reset=True)
        mx.eval(f(x))
        return mx.counters()["kernels_launched"]

    once = launches(lambda a: (mx.sum(mx.exp(a), 0) @ a, mx.sum(mx.exp(a), 0) @ a))
    again = launches(
        lambda a: (
            first := mx.sum(mx.exp(a), 0) @ a,
            mx.sum(mx.exp(mx.depends(a, first)), 0) @ a,
        )
    )
    assert once == 2 and again == 4
    out = [mx.sum(mx.exp(x), 0) @ x]
    out.append(mx.sum(mx.exp(mx.depends(x, out[0])), 0) @ x)
    mx.eval(out)
    np.testing.assert_array_equal(np.array(out[0]), np.array(out[1]))
