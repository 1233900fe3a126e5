# SPDX-License-Identifier: MIT
"""What `explain` tells: as many kernels as run, and for each of them why it ends where it does."""

import cermet.core as mx
import pytest


def arrays(*shapes):
    made = [mx.random.normal(shape, key=mx.random.key(i)) for i, shape in enumerate(shapes)]
    mx.eval(made)
    return made


def chain(x, ops, numbers):
    for i in range(ops):
        number = 1 + (i % numbers) * 2.0**-10
        x = x * number if i % 2 else x + number
    return x


def sum_of(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


SQUARE = (64, 64)
MANY = [SQUARE] * 130
LARGE = (2048, 2048)
# name, borders in the order of the kernels, function, shapes
CASES = [
    ("chain", ["output"], lambda x: mx.exp(x) * 2, [SQUARE]),
    ("asked for twice", ["output"], lambda x: (mx.exp(x), mx.exp(x).sum(-1)), [SQUARE]),
    ("two products", ["opaque_op", "output"], lambda a, b: (a @ b) @ b, [SQUARE, SQUARE]),
    ("scan of a product", ["opaque_op", "output"], lambda a, b: mx.cumsum(a @ b, 1), [SQUARE] * 2),
    ("sum of a product", ["opaque_op", "output"], lambda a, b: (a @ b).sum(-1), [SQUARE, SQUARE]),
    ("columns, then rows", ["layout", "output"], lambda x: mx.exp(x - x.mean(0)), [SQUARE]),
    (
        "a scatter read",
        ["layout", "layout", "output"],
        lambda x, u: mx.exp((-x).at[3].add(u)),
        [SQUARE, (64,)],
    ),
    ("a gather", ["layout", "output"], lambda x: mx.cumsum(x)[mx.array([1, 5])] * 2, [(64,)]),
    ("rows, then whole", ["output"], lambda x: mx.softmax(x).sum(), [SQUARE]),
    ("a packing", ["recompute_cost", "output"], lambda x: mx.exp(x) @ x, [SQUARE]),
    ("two orders", ["layout", "output"], lambda x: mx.exp(x @ x) + mx.exp(x @ x).T, [SQUARE]),
    ("other sizes", ["size_class", "output"], lambda x: mx.logsumexp(x.max(-1), 0), [(8, 64, 64)]),
    ("many ops", ["op_limit", "output"], lambda x: chain(x, 300, 7), [SQUARE]),
    ("many arrays", ["argument_limit", "output"], lambda *a: sum_of(a), MANY),
    (
        "a barrier",
        ["barrier", "output"],
        lambda x: mx.depends(mx.sin(x), [mx.exp(x)]) * 2,
        [SQUARE],
    ),
]


@pytest.mark.parametrize("name, borders, f, shapes", CASES, ids=[c[0] for c in CASES])
def test_borders(name, borders, f, shapes):
    inputs = arrays(*shapes)
    report = mx.explain(f, *inputs)
    assert [kernel.border for kernel in report.kernels] == borders
    for run in (f, mx.compile(f)):
        for _ in range(3):  # single ops run as one kernel from the third time on
            mx.eval(run(*inputs))
        before = mx.counters()["kernels_launched"]
        mx.eval(run(*inputs))
        assert mx.counters()["kernels_launched"] - before == len(borders)


@pytest.mark.parametrize("numbers", [1, 9, 250])
@pytest.mark.parametrize("ops", [50, 100, 250])
def test_numbers_are_no_arrays(ops, numbers):
    (x,) = arrays((100,))
    assert len(mx.explain(lambda x: chain(x, ops, numbers), x).kernels) == 1
    for _ in range(3):
        mx.eval(chain(x, ops, numbers))
    before = mx.counters()["kernels_launched"]
    mx.eval(chain(x, ops, numbers))
    assert mx.counters()["kernels_launched"] - before == 1
