# SPDX-License-Identifier: MIT
"""Graphs that differ in sizes alone are planned once: here each such plan is compared with one of
its own (CERMET_SIZE_CLASSES=checked), and the results with those of a process without classes."""

import json

import pytest
from own_process import run, run_logged

# Of (mx, n): arrays that depend on the size.
FUNCTIONS = {
    "chain": "mx.sum(f(n, 8) * 2 + f(n, 1), axis=1)",
    "softmax": "mx.softmax(f(3, n), axis=-1)",
    "softmax of columns": "mx.softmax(f(n, 40), axis=0)",
    "layer norm": "mx.fast.layer_norm(f(n, 64), f(64), f(64), 1e-5)",
    "norm of many rows": "mx.fast.rms_norm(f(n * 50, 8), f(8), 1e-5)",
    "variance": "mx.var(f(n, n + 1), axis=(0, 1))",
    "matmul": "f(n, 64) @ f(64, n + 3)",
    "batched matmul": "f(4, n, 33) @ f(4, 33, 17)",
    "long sum": "f(3, n * 100) @ f(n * 100, 5)",
    "bfloat16 matmul": "f(n, 64, dtype=mx.bfloat16) @ f(64, 70, dtype=mx.bfloat16)",
    "attention of one query": "mx.fast.scaled_dot_product_attention("
    "f(1, 4, 1, 16), f(1, 4, n, 16), f(1, 4, n, 16), scale=0.3)",
    "causal attention": "mx.fast.scaled_dot_product_attention("
    "f(1, 4, n, 16), f(1, 2, n, 16), f(1, 2, n, 16), scale=0.3, mask='causal')",
    "attention in plain ops": "mx.softmax(f(2, n, 16) @ f(2, 16, n) * 0.2, axis=-1) @ f(2, n, 16)",
    "rope": "mx.fast.rope(f(1, 2, n, 16), 16, traditional=False, base=1e4, scale=1.0, offset=n)",
    "grown cache": "mx.concatenate([f(1, 2, n, 8), f(1, 2, 1, 8)], axis=2)",
    "joined": "mx.concatenate([f(n, 3), f(n + 1, 3), f(2, 3)], axis=0)",
    "padded": "mx.pad(f(n, 4), ((1, n), (0, 2)))",
    "heads": "f(2, n, 24).reshape(2, n, 3, 8).transpose(0, 2, 1, 3).reshape(6, n, 8)",
    "flat": "(f(n, 6) + 1).reshape(-1) * 2",
    "slices": "f(n + 4, 6)[2 : n + 1, ::2] + f(n + 4, 6)[3 : n + 2, 1::2]",
    "steps": "f(n + 4, 6)[::-2]",
    "updated": "update(f(n + 4, 6), f(n, 6), n)",
    "picked": "mx.take(f(n, 8), mx.arange(2 * n) % n, axis=0)",
    "picked along": "mx.take_along_axis(f(n, 8), rows(n, 8), axis=0)",
    "added up": "mx.zeros((n, 4)).at[mx.arange(3 * n) % n].add(f(3 * n, 4))",
    "running sums": "mx.cumsum(f(n, 5), axis=0)",
    "running sum of all": "mx.cumsum(f(n * 7))",
    "largest": "mx.argmax(f(n, 9), axis=1)",
    "numbers": "mx.arange(n) * 3 + mx.arange(n, 2 * n)",
    "triangle": "mx.tril(f(n, n), k=-1)",
    "diagonal": "mx.diagonal(f(n, n + 2), offset=1)",
    "mask": "mx.where(mx.arange(n)[:, None] >= mx.arange(n)[None], f(n, n), -mx.inf)",
    "broadcast": "mx.broadcast_to(f(1, n), (5, n)) * f(5, 1)",
    "repeated": "mx.repeat(f(n, 2), 3, axis=0)",
    "strided": "mx.as_strided(f(n * 4), (n, 2), (4, 1), 1)",
    "outer product": "mx.outer(f(n), f(n + 1))",
    "einsum": "mx.einsum('bij,bjk->ik', f(3, n, 4), f(3, 4, n))",
    "random": "mx.random.uniform(shape=(n, 3), key=mx.random.key(n))",
    "gradient": "mx.grad(lambda x: mx.sum(mx.tanh(x @ x.T)))(f(n, 4))",
    "vmap": "mx.vmap(lambda x: mx.softmax(x) @ x)(f(n, 12))",
    "complex": "f(n, 4).astype(mx.complex64) * 1j @ f(4, n).astype(mx.complex64)",
    "two sizes": "f(n, 3 * n) @ f(3 * n, 2)",
}
SIZES = (5, 6, 7, 8, 15, 16, 17, 30, 63, 64, 65, 130, 257, 1000)

SCRIPT = """
import json, sys
import cermet.core as mx

def f(*shape, dtype=mx.float32):
    size = 1
    for n in shape:
        size *= n
    return ((mx.arange(size) * 7 % 23 - 11) / 8).reshape(shape).astype(dtype)

def update(a, b, n):
    a[2 : n + 2] = b
    return a

def rows(n, m):
    return mx.arange(n * m).reshape(n, m) * 5 % n

texts, sizes = json.loads({texts!r}), json.loads({sizes!r})
of = {{name: eval("lambda n: " + text) for name, text in texts.items()}}
for name, function in of.items():
    for n in sizes:
        made = function(n)
        mx.eval(made)
        made = made.astype(mx.complex64) if made.dtype == mx.complex64 else made.astype(mx.float64)
        print(json.dumps([name, n, list(made.shape), str(mx.sum(mx.abs(made)).item())]))
"""


def script(texts, sizes=SIZES):
    return SCRIPT.format(texts=json.dumps(texts), sizes=json.dumps(sizes))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_class_gives_the_plans_of_its_graphs(name):
    texts = {name: FUNCTIONS[name]}
    checked = run(script(texts), CERMET_SIZE_CLASSES="checked")
    assert checked == run(script(texts), CERMET_SIZE_CLASSES="off")
    assert len(checked.splitlines()) == len(SIZES)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_classes_serve_all_sizes(name):
    """Sizes decide, here and there; what is planned anew for each is a class of single sizes."""
    sizes = list(range(70, 100))
    _, log = run_logged(script({name: FUNCTIONS[name]}, sizes), CERMET_LOG="plan")
    made = [line for line in log.splitlines() if "size class:" in line]
    assert 1 <= len(made) <= 10, "\n".join(made)
    assert all(" 0 fixed" in line for line in made), "\n".join(made)


GROWING = """
import cermet.core as mx

def step(cache, x):
    cache = mx.concatenate([cache, mx.fast.rope(
        x, 16, traditional=False, base=1e4, scale=1.0, offset=cache.shape[2])], axis=2)
    return cache, mx.fast.scaled_dot_product_attention(x, cache, cache, scale=0.25)

step = {wrap}(step)
mx.random.seed(3)
x = mx.random.normal((1, 4, 1, 16))
cache = mx.random.normal((1, 4, 20, 16))
for _ in range(100):
    cache, y = step(cache, x)
    mx.eval(cache, y)
    x = x * 0.5 + y
    print(y.flatten().tolist()[:4])
"""


@pytest.mark.parametrize("wrap", ["", "mx.compile"])
def test_a_loop_whose_arrays_grow_is_planned_a_few_times(wrap):
    source = GROWING.format(wrap=wrap)
    checked = run(source, CERMET_SIZE_CLASSES="checked")
    printed, log = run_logged(source, CERMET_LOG="plan")
    assert printed == checked == run(source, CERMET_SIZE_CLASSES="off")
    assert 1 <= log.count("size class:") <= 6, log


def test_sizes_that_come_and_go():
    """Of two numbers that change apart, at last each is open; a graph that is found again is."""
    source = """
    import cermet.core as mx
    sizes = [(5, 9), (6, 10), (7, 12), (9, 9), (12, 7), (100, 3), (3, 100), (5, 9), (1, 8), (8, 1)]
    for m, n in sizes:
        x = mx.arange(m * n).reshape(m, n) % 7
        print(((x + 1) @ x.T.astype(mx.float32)).sum().item())
    """
    assert run(source, CERMET_SIZE_CLASSES="checked") == run(source, CERMET_SIZE_CLASSES="off")


def test_what_was_made_in_a_trace_keeps_its_sizes():
    source = """
    import cermet.core as mx

    @mx.compile
    def f(x, y):
        c = mx.arange(x.shape[0]) * 2
        mx.eval(c)
        return (y[:, None] + c[None]) * y.shape[0], mx.concatenate([c, y])

    x = mx.ones((4,))
    for n in (5, 6, 7, 8, 9, 4, 20):
        first, second = f(x, mx.arange(n))
        print(first.shape, second.shape, first.sum().item(), second.tolist())
    """
    expected = "".join(
        f"({n}, 4) ({n + 4},) {n * sum(i + 2 * j for i in range(n) for j in range(4))} "
        f"{[0, 2, 4, 6, *range(n)]}\n"
        for n in (5, 6, 7, 8, 9, 4, 20)
    )
    assert run(source, CERMET_SIZE_CLASSES="checked") == run(source) == expected


def test_data_of_a_trace_goes_with_its_function():
    source = """
    import gc
    import cermet.core as mx
    import numpy as np

    def use(values):
        @mx.compile
        def f(x):
            table = mx.array(np.array(values, np.float32))
            return (x * 2).sum() + (table * 3).sum()
        return [f(mx.ones((n,))).item() for n in (5, 6, 7, 8)]

    for k in (1, 2, 3):
        print(use([k] * 1_000_000))
    gc.collect()
    print(mx.get_active_memory() < 1_000_000)
    """
    expected = "".join(f"{[2.0 * n + 3e6 * k for n in (5, 6, 7, 8)]}\n" for k in (1, 2, 3))
    assert run(source, CERMET_SIZE_CLASSES="checked") == run(source) == expected + "True\n"
