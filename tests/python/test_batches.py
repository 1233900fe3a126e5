# SPDX-License-Identifier: MIT
"""Equal kernels over different arrays run as one launch: optimizer steps and whatever is equal."""

import os
import subprocess
import sys

import cermet.core as mx
import cermet.optimizers as optim
import numpy as np
import pytest
from cermet.utils import tree_flatten
from test_memory import peak_of_making

SHAPES = [(64, 128), (128, 64), (128,), (64,), (4, 8, 16)]
LAYERS = 12  # 60 parameters of 5 shapes
STEPS = 3
MIB = 1 << 20


def launches():
    return mx.counters()["kernels_launched"]


def launched(*outputs):
    """How many kernels it takes to evaluate them."""
    before = launches()
    mx.eval(*outputs)
    return launches() - before


def arrays_of(shapes, seed=0):
    random = np.random.default_rng(seed)
    arrays = [mx.array(random.standard_normal(shape).astype(np.float32)) for shape in shapes]
    mx.eval(arrays)
    return arrays


def model(seed):
    """A tree like a model's parameters or gradients."""
    arrays = iter(arrays_of(SHAPES * LAYERS, seed))
    return {f"layer{i}": {f"w{j}": next(arrays) for j in range(len(SHAPES))} for i in range(LAYERS)}


# --- optimizers, each beside its formula in double precision ---


def sgd(t, p, g, state, lr, momentum=0.0, decay=0.0, nesterov=False):
    g = g + decay * p
    if momentum == 0:
        return p - lr * g
    v = state["v"] = momentum * state.get("v", 0) + g
    return p - lr * (g + momentum * v if nesterov else v)


def adam(t, p, g, state, lr, decay=0.0, corrected=False):
    m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    if corrected:
        lr, v = lr / (1 - 0.9**t), v / (1 - 0.999**t)
        return p * (1 - lr * (1 - 0.9**t) * decay) - lr * m / (np.sqrt(v) + 1e-8)
    return p * (1 - lr * decay) - lr * m / (np.sqrt(v) + 1e-8)


def lion(t, p, g, state, lr, decay=0.0):
    m = state.get("m", 0)
    state["m"] = 0.99 * m + 0.01 * g
    return p * (1 - lr * decay) - lr * np.sign(0.9 * m + 0.1 * g)


def decayed(step):
    """optim.cosine_decay(0.1, 10) at step 0, 1, .."""
    return 0.05 * (1 + np.cos(np.pi * step / 10))


# name: (kernels eager, compiled; optimizer; formula; its settings). Clipping adds two.
OPTIMIZERS = {
    "SGD": (2, 2, lambda: optim.SGD(0.1), sgd, {}),
    "SGD, momentum and decay": (
        2,
        2,
        lambda: optim.SGD(0.1, momentum=0.9, weight_decay=0.1),
        sgd,
        {"momentum": 0.9, "decay": 0.1},
    ),
    "SGD, nesterov": (
        2,
        2,
        lambda: optim.SGD(0.1, momentum=0.9, nesterov=True),
        sgd,
        {"momentum": 0.9, "nesterov": True},
    ),
    "SGD, scheduled": (3, 3, lambda: optim.SGD(optim.cosine_decay(0.1, 10)), sgd, {"lr": decayed}),
    "Adam": (2, 2, lambda: optim.Adam(0.1), adam, {}),
    "Adam, corrected": (
        2,
        2,
        lambda: optim.Adam(0.1, bias_correction=True),
        adam,
        {"corrected": True},
    ),
    "AdamW": (2, 3, lambda: optim.AdamW(0.1), adam, {"decay": 0.01}),
    "AdamW, corrected, scheduled": (
        3,
        2,
        lambda: optim.AdamW(optim.cosine_decay(0.1, 10), weight_decay=0.1, bias_correction=True),
        adam,
        {"corrected": True, "decay": 0.1, "lr": decayed},
    ),
    "Lion": (2, 3, lambda: optim.Lion(0.1, weight_decay=0.1), lion, {"decay": 0.1}),
    "Lion, scheduled": (
        3,
        3,
        lambda: optim.Lion(optim.cosine_decay(0.1, 10)),
        lion,
        {"lr": decayed},
    ),
}


def clip(gradients):
    """In double precision, as optim.clip_grad_norm(gradients, 1.0)."""
    norm = np.sqrt(sum((g**2).sum() for g in gradients))
    return [g * min(1 / (norm + 1e-6), 1) for g in gradients]


def doubles(tree):
    return [np.array(leaf).astype(np.float64) for _, leaf in tree_flatten(tree)]


def reference(formula, settings, clipped):
    settings = {"lr": lambda step: 0.1} | settings
    parameters, states = doubles(model(0)), [{} for _ in range(len(SHAPES) * LAYERS)]
    for t in range(1, STEPS + 1):
        now = settings | {"lr": settings["lr"](t - 1)}
        gradients = doubles(model(t))
        if clipped:
            gradients = clip(gradients)
        parameters = [
            formula(t, p, g, state, **now)
            for p, g, state in zip(parameters, gradients, states, strict=True)
        ]
    return parameters


def train(make, clipped, compiled):
    """(launches of each step, the parameters after the last)."""
    optimizer, parameters = make(), model(0)
    optimizer.init(parameters)
    mx.eval(optimizer.state)

    def step(parameters, gradients):
        if clipped:
            gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        return optimizer.apply_gradients(gradients, parameters)

    if compiled:
        step = mx.compile(step, inputs=optimizer.state, outputs=optimizer.state)
    counts = []
    for t in range(1, STEPS + 1):
        parameters = step(parameters, model(t))
        counts.append(launched(parameters, optimizer.state))
    return counts, [np.array(leaf) for _, leaf in tree_flatten(parameters)]


@pytest.mark.parametrize("clipped", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps(name, clipped):
    eager, compiled, make, formula, settings = OPTIMIZERS[name]
    more = 2 if clipped else 0
    # 1 - 0.999^t keeps but fourteen bits in float32; its root divides steps of 0.1.
    atol = 5e-6 if "corrected" in settings else 1e-6
    expected = reference(formula, settings, clipped)
    counts, plain = train(make, clipped, False)
    assert set(counts) == {eager + more}
    counts, replayed = train(make, clipped, True)
    assert set(counts) == {compiled + more}
    for a, b, c in zip(plain, replayed, expected, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-5, atol=atol)
        np.testing.assert_array_equal(a, b)


def test_a_step_as_people_write_it():
    """The clipped gradients have a name: they are results as well. Nothing is evaluated before."""
    optimizer, parameters = optim.AdamW(0.1), model(0)
    counts = []
    for t in range(1, STEPS + 1):
        gradients = model(t)
        gradients, norm = optim.clip_grad_norm(gradients, 1.0)
        parameters = optimizer.apply_gradients(gradients, parameters)
        counts.append(launched(parameters, optimizer.state))
        clipped = clip(doubles(model(t)))
        for g, c in zip(doubles(gradients), clipped, strict=True):
            np.testing.assert_allclose(g, c, rtol=1e-5, atol=1e-9)
        total = np.sqrt(sum((g**2).sum() for g in doubles(model(t))))
        np.testing.assert_allclose(norm, total, rtol=1e-6)
    assert max(counts[1:]) <= 4
    expected = reference(adam, {"decay": 0.01}, True)
    for p, e in zip(doubles(parameters), expected, strict=True):
        np.testing.assert_allclose(p, e, rtol=1e-5, atol=1e-6)


# --- what is one launch, and what is not ---


def test_different_sizes():
    sizes = [int(n) for n in np.random.default_rng(1).integers(1, 20_000, 100)]
    a, b, c = (arrays_of([(n,) for n in sizes], seed) for seed in range(3))

    def f(a, b, c):
        return [x * y + z for x, y, z in zip(a, b, c, strict=True)]

    plain, replayed = f(a, b, c), mx.compile(f)(a, b, c)
    assert (launched(plain), launched(replayed)) == (1, 1)
    for x, y, z, p, r in zip(a, b, c, plain, replayed, strict=True):
        np.testing.assert_array_equal(p, np.array(x) * np.array(y) + np.array(z))
        np.testing.assert_array_equal(p, r)


def test_empty_arrays_among_others():
    xs = arrays_of([(0,), (5,), (3, 0), (7, 2), (0,)])
    ys = [mx.exp(x) for x in xs]
    mx.eval(ys)
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_allclose(y, np.exp(np.array(x)), rtol=1e-6)


def test_strided_arrays():
    """Rows and columns of different lengths, from the front and the back: a kernel for each way."""
    xs = arrays_of([(20 + i, 30 - i) for i in range(10)])
    ys = [2 * x.T[::-1] + 1 for x in xs] + [2 * x[:, ::2] + 1 for x in xs]
    assert launched(ys) <= 2
    for x, y, z in zip(xs, ys[:10], ys[10:], strict=True):
        np.testing.assert_array_equal(y, 2 * np.array(x).T[::-1] + 1)
        np.testing.assert_array_equal(z, 2 * np.array(x)[:, ::2] + 1)


def test_full_folds():
    xs = arrays_of([(5000 * i + 3,) for i in range(30)])
    sums = [mx.sum(x * x) for x in xs]
    assert launched(sums) == 1
    for x, s in zip(xs, sums, strict=True):
        np.testing.assert_allclose(s, (np.array(x).astype(np.float64) ** 2).sum(), rtol=1e-6)
        np.testing.assert_array_equal(s, np.array(mx.sum(x * x)))  # alone


def test_chains_advance_together():
    """No kernel runs with one that it needs: eight chains of three products are three launches."""
    w = arrays_of([(32, 32)])[0] / 6
    xs = arrays_of([(20 + i, 32) for i in range(8)])
    ys = [x @ w @ w @ w for x in xs]
    mx.eval(w)
    assert launched(ys) == 3
    for x, y in zip(xs, ys, strict=True):
        weight = np.array(w).astype(np.float64)
        np.testing.assert_allclose(y, np.array(x) @ weight @ weight @ weight, rtol=1e-4, atol=1e-5)


def test_a_chain_is_no_batch():
    x, w = arrays_of([(16, 16), (16, 16)])
    y, expected = x, np.array(x).astype(np.float64)
    for _ in range(6):
        y, expected = y @ w, expected @ np.array(w)
    assert launched(y) == 6
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-2)


def test_a_batch_after_what_its_last_member_needs():
    """Six of the products can be made at once, the seventh waits for a sum of the first."""
    w = arrays_of([(16, 16)])[0]
    xs = arrays_of([(4 + i, 16) for i in range(6)])
    ys = [x @ w for x in xs]
    last = (xs[0] * mx.sum(ys[0])) @ w
    mx.eval(*ys, last)
    weight = np.array(w).astype(np.float64)
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_allclose(y, np.array(x) @ weight, rtol=1e-4, atol=1e-5)
    first = np.array(xs[0]) @ weight
    np.testing.assert_allclose(last, first * first.sum(), rtol=1e-4, atol=1e-3)


def test_different_kernels_that_share_a_number_stay_one():
    s, a, b = arrays_of([(), (1000,), (1000,)])
    s = mx.exp(s) * 0 + 2  # a number that is computed
    ys = [a * s + 1, mx.sqrt(mx.abs(b * s))]
    assert launched(ys) <= 2  # the number's own, and one loop over both
    np.testing.assert_array_equal(ys[0], np.array(a) * 2 + 1)
    np.testing.assert_array_equal(ys[1], np.sqrt(np.abs(np.array(b) * 2)))


def test_equal_kernels_that_share_a_number():
    """Also where arrays of one size would be one loop without the others."""
    s, *xs = arrays_of([()] + [(1000,)] * 6 + [(2000 + i, 3) for i in range(6)])

    def f(s, *xs):
        s = mx.exp(s)
        return [x * s - 1 for x in xs]

    plain, replayed = f(s, *xs), mx.compile(f)(s, *xs)
    assert (launched(plain), launched(replayed)) == (2, 2)
    for x, p, r in zip(xs, plain, replayed, strict=True):
        np.testing.assert_allclose(p, np.array(x) * np.exp(np.array(s)) - 1, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(p, r)


# --- errors ---


@pytest.mark.parametrize("wrong", [0, 7, 19])
def test_an_error_names_its_own_member(wrong):
    xs = arrays_of([(100 + i, 3) for i in range(20)])
    rows = [mx.array([0, 5, 99]) for _ in xs]
    rows[wrong] = mx.array([1, 500 + wrong, 2])
    mx.eval(rows)
    ys = [mx.take(x, i, axis=0) for x, i in zip(xs, rows, strict=True)]
    with pytest.raises(IndexError, match=rf"{500 + wrong} .* axis 0 of size {100 + wrong}\b"):
        mx.eval(ys)


def test_the_first_of_several_errors():
    xs = arrays_of([(100 + i,) for i in range(20)])
    ys = [mx.take(x, mx.array([0, 300 + i if i > 4 else 1])) for i, x in enumerate(xs)]
    with pytest.raises(IndexError, match=r"305 .* size 105\b"):
        mx.eval(ys)


# --- memory ---


def test_updates_in_place():
    weights = arrays_of([(200_000 + 1000 * i,) for i in range(10)])
    steps = arrays_of([w.shape for w in weights], 1)
    expected = [
        np.array(w) - np.array(s) * np.float32(0.5) for w, s in zip(weights, steps, strict=True)
    ]

    def update():
        return [weights.pop(0) - s * 0.5 for s in steps]

    before = launches()
    results = []
    assert peak_of_making(lambda: results.extend(update()) or results) < MIB
    assert launches() - before == 1
    for r, e in zip(results, expected, strict=True):
        np.testing.assert_array_equal(r, e)


def test_slices_written_in_place():
    """The caches of a model's layers grow by one row each."""
    caches = arrays_of([(8, 256, 32)] * 6 + [(8, 128, 64)] * 6)
    rows = arrays_of([(8, 1, c.shape[-1]) for c in caches], 1)
    expected = [np.array(c) for c in caches]
    for e, row in zip(expected, rows, strict=True):
        e[:, 7:8] = np.array(row) * np.float32(2)

    def write():
        for cache, row in zip(caches, rows, strict=True):
            cache[:, 7:8] = row * 2
        return caches

    before = launches()
    assert peak_of_making(write) < MIB
    assert launches() - before == 1
    for cache, e in zip(caches, expected, strict=True):
        np.testing.assert_array_equal(cache, e)


def test_updates_that_may_take_the_place_of_some_inputs():
    """Weights and gradients are held, the momenta are not: three results, one array more each."""
    shapes = [(100_000 + 1000 * i,) for i in range(10)]
    p, g, m, v = (arrays_of(shapes, seed) for seed in range(4))

    def update():
        results = []
        for w, d in zip(p, g, strict=True):
            a, b = 0.9 * m.pop(0) + d, 0.99 * v.pop(0) + d * d
            results += [w - a / (mx.sqrt(mx.abs(b)) + 1), a, b]
        return results

    assert peak_of_making(update) < sum(w.nbytes for w in p) + MIB


def test_what_is_given_away_is_freed_on_the_way():
    """Thirty-two casts at once would hold all inputs and all results."""
    xs = arrays_of([(MIB // 4,)] * 32)
    assert peak_of_making(lambda: [xs.pop(0).astype(mx.float16) for _ in range(32)]) <= MIB


def test_large_values_do_not_wait_for_each_other():
    """Each is folded as soon as it is made."""
    keys = [mx.random.key(i) for i in range(24)]
    mx.eval(keys)

    def f():
        noise = [mx.random.uniform(shape=(MIB // 4,), key=key) for key in keys]
        return [mx.sum(mx.cumsum(x)) for x in noise]

    assert peak_of_making(f) <= 4 * MIB


# --- threads ---

SCRIPT = """
import sys; sys.path.insert(0, {folder!r})
import test_batches as t, zlib
crc = 0
for name in ("AdamW", "Lion, scheduled"):
    for part in t.train(t.OPTIMIZERS[name][2], True, True)[1]:
        crc = zlib.crc32(part.tobytes(), crc)
sums = [t.mx.sum(t.mx.exp(x), axis=0) for x in t.arrays_of([(300 + i, 40) for i in range(20)])]
t.mx.eval(sums)
for s in sums:
    crc = zlib.crc32(t.np.array(s).tobytes(), crc)
print(crc)
"""


def test_threads_do_not_change_bits():
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    found = set()
    for threads in "12":
        env = os.environ | {"CERMET_NUM_THREADS": threads}
        run = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
        )
        found.add(run.stdout)
    assert len(found) == 1


# --- explain ---


def test_explain():
    xs = arrays_of([(10 + i,) for i in range(7)])
    explanation = mx.explain(lambda *xs: [mx.sin(x) + 1 for x in xs], *xs)
    (kernel,) = explanation.kernels
    assert kernel.members == 7
    assert [shape for _, shape in kernel.outputs] == [x.shape for x in xs]
    assert [op[0] for op in kernel.ops].count("sin") == 7
    assert kernel.bytes_written == sum(x.nbytes for x in xs)
    assert explanation.to_dict()["kernels"][0]["members"] == 7
    assert "7 x" in str(explanation)
