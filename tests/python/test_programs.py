# SPDX-License-Identifier: MIT
"""Short programs as users write them, on Cermet and on the `mlx` wheel: the same results."""

import numpy as np
import pytest
from mlx_oracle import fill, same_values, values

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f


@program
def k_means(lib):
    mx = lib.mx
    x, centres = mx.array(values((40, 3))), mx.array(values((4, 3), 1))
    for _ in range(5):
        distances = mx.square(x[:, None] - centres[None]).sum(-1)
        nearest = mx.argmin(distances, axis=1)
        member = (nearest[:, None] == mx.arange(4)).astype(mx.float32)
        centres = (member.T @ x) / mx.maximum(member.sum(0), 1)[:, None]
    return centres, nearest


@program
def logistic_regression(lib):
    mx = lib.mx
    x, w = mx.array(values((30, 5))), mx.zeros((5,))
    y = (x @ mx.array(values((5,), 1)) > 0).astype(mx.float32)
    step = mx.grad(lambda w: (mx.logaddexp(0.0, x @ w) - y * (x @ w)).mean())
    for _ in range(20):
        w = w - 0.5 * step(w)
        mx.eval(w)
    return w, f"{((x @ w > 0) == y).astype(mx.float32).mean().item():.3f}"


@program
def conjugate_gradient(lib):
    mx = lib.mx
    m = mx.array(values((6, 6)))
    a, b = m @ m.T + 6 * mx.eye(6), mx.array(values((6,), 1))
    x, r = mx.zeros((6,)), b
    p, rr = r, (r * r).sum()
    for _ in range(12):
        if rr.item() < 1e-12:
            break
        alpha = rr / (p @ (a @ p))
        x, r = x + alpha * p, r - alpha * (a @ p)
        p, rr = r + (r * r).sum() / rr * p, (r * r).sum()
    return x


@program
def gradient_check(lib):
    mx = lib.mx

    def f(x):
        return (mx.sin(x) * mx.exp(-x * x)).sum()

    x, slopes = mx.array(values((4,))), []
    for i in range(4):
        bump = 1e-2 * (mx.arange(4) == i)
        slopes.append((f(x + bump) - f(x - bump)) / 2e-2)
    return mx.allclose(mx.stack(slopes), mx.grad(f)(x), atol=1e-3).item(), mx.grad(f)(x)


@program
def frozen_layers(lib):
    nn, mx = lib.nn, lib.mx
    model = fill(lib, nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    model.freeze()
    model.layers[2].unfreeze(keys="bias")
    names = [name for name, _ in lib.utils.tree_flatten(model.trainable_parameters())]
    x, optimizer = mx.array(values((5, 4))), lib.optim.Adam(0.1)
    for _ in range(3):
        loss, gradients = nn.value_and_grad(model, lambda x: mx.square(model(x)).mean())(x)
        optimizer.update(model, gradients)
    model.unfreeze()
    return names, loss, model.parameters()


@program
def accumulated_gradients(lib):
    nn, mx, tree_map = lib.nn, lib.mx, lib.utils.tree_map
    model, optimizer = fill(lib, nn.Linear(4, 2)), lib.optim.SGD(0.1, momentum=0.9)
    average = tree_map(lambda p: p, model.parameters())
    step = nn.value_and_grad(model, lambda x: mx.square(model(x)).mean())
    for i in range(3):
        total = tree_map(mx.zeros_like, model.parameters())
        for k in range(2):
            total = tree_map(mx.add, total, step(mx.array(values((3, 4), 2 * i + k)))[1])
        optimizer.update(model, tree_map(lambda g: g / 2, total))
        average = tree_map(lambda a, p: 0.9 * a + 0.1 * p, average, model.parameters())
    return average, model.parameters()


@program
def schedules(lib):
    optim = lib.optim
    warm = optim.linear_schedule(0.0, 0.1, 3)
    rate = optim.join_schedules([warm, optim.cosine_decay(0.1, 5)], [3])
    optimizer, p = optim.SGD(rate), {"w": lib.mx.ones((2,))}
    rates = []
    for _ in range(6):
        p = optimizer.apply_gradients({"w": p["w"]}, p)
        rates.append(optimizer.learning_rate)
    return rates, p


@program
def rules_of_ones_own(lib):
    mx = lib.mx

    @mx.custom_function
    def clipped(x):
        return mx.clip(x, -1, 1)

    @clipped.vjp
    def straight_through(primals, cotangents, outputs):
        return cotangents

    @mx.custom_function
    def scaled(x, y):
        return x * y

    @scaled.jvp
    def doubled(primals, tangents):
        return 2 * tangents[0] * primals[1]

    x = mx.array([-2.0, 0.5, 3.0])
    gradient = mx.grad(lambda x: (clipped(x) * x).sum())(x)
    tangent = mx.jvp(lambda x: scaled(x, x * 0 + 3), [x], [mx.ones_like(x)])[1]
    return gradient, tangent, mx.vmap(clipped)(x)


@program
def numpy_there_and_back(lib):
    mx = lib.mx
    a = mx.array(np.arange(6, dtype=np.int16).reshape(2, 3))
    b = np.array(a * 2)
    b[0] += 1
    back = mx.array(np.from_dlpack(a + 1)) + mx.array(b.T.copy()).T
    return back, b.dtype.name, np.asarray(a.astype(mx.float32)).tolist(), memoryview(a).shape


@program
def shapeless(lib):
    mx = lib.mx
    f = mx.compile(lambda x: mx.softmax(mx.abs(x) * 2, axis=-1).sum(axis=0), shapeless=True)
    return [f(mx.array(values((n, n + 1)))) for n in (2, 3, 5)]


@program
def printed(lib):
    mx = lib.mx
    x = mx.array([[1.5, -2.0], [0.25, 1e6]])
    rows = [f"{i}: {row} {row.sum().item():.2f}" for i, row in enumerate(x)]
    return [repr(x), str(x[0]), f"{x[0, 0]}", f"{mx.array(3)} of {x.shape}", *rows]


@program
def streams(lib):
    mx = lib.mx
    other = mx.new_stream(mx.cpu)
    with mx.stream(other):
        a = mx.ones((3, 3)) * 2
    b = mx.matmul(a, a, stream=mx.cpu)
    mx.async_eval(b)
    mx.synchronize(other)
    mx.synchronize()
    return a, b, mx.default_stream(mx.cpu) == other


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    same_values(PROGRAMS[name], rtol=1e-4, atol=1e-5)
