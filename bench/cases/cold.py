# SPDX-License-Identifier: MIT
"""What the first call costs: importing, compiling kernels, long graphs. Each value is measured by a
fresh process, with an empty kernel cache on disk unless another process has filled it."""

import operator
import os
import random
import re
import time

from case import Probe, add
from gates import ValueAtMost

PLAIN_MAPS = ("abs", "square", "sqrt", "floor", "ceil", "negative")  # one IR op each
MAPS = ("exp", "sin", "cos", "tanh", "sigmoid", "abs", "square", "erf", "floor", "negative")
BINARIES = ("add", "multiply", "subtract", "maximum", "minimum")
ROW_ENDS = ("softmax", "normalised", "logsumexp", "layer norm")
KERNELS = 20
FINITE = 1e-3  # factors this close to 1 keep long products finite


def memory_kb(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


# --- import ---


def import_milliseconds():
    begin = time.perf_counter()
    import cermet.core  # noqa: F401

    return (time.perf_counter() - begin) * 1e3


def import_megabytes():
    import cermet.core  # noqa: F401

    return memory_kb("VmRSS") / 1024


# --- kernels ---


def values(mx, *shape):
    """An array that no kernel has made."""
    import array

    count = 1
    for n in shape:
        count *= n
    flat = array.array("f", [0.5 + 0.001 * (i % 997) for i in range(count)])
    return mx.array(memoryview(flat)).reshape(shape)


def random_chain(mx, seed, ops, maps=MAPS):
    """A function of two arrays with that many element-wise ops; another for each seed."""
    choose = random.Random(seed)
    names = [choose.choice(maps + BINARIES) for _ in range(ops)]

    def chain(x, y):
        for name in names:
            x = getattr(mx, name)(x, y) if name in BINARIES else getattr(mx, name)(x)
        return x

    return chain


def row_function(mx, seed):
    """A short chain and something per row."""
    chain, end = random_chain(mx, seed, 3), ROW_ENDS[seed % len(ROW_ENDS)]

    def run(x, y):
        z = chain(x, y)
        if end == "softmax":
            return mx.softmax(z, axis=-1)
        if end == "normalised":
            return z * mx.rsqrt(mx.sum(z * z, axis=-1, keepdims=True) + 1e-5)
        if end == "logsumexp":
            return mx.logsumexp(z, axis=-1)
        centred = z - mx.mean(z, axis=-1, keepdims=True)
        return centred * mx.rsqrt(mx.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    return run


def fusing_core():
    """The core, each function one kernel at first sight, though its single ops have kernels."""
    os.environ["CERMET_TIER"] = "fused"
    import cermet.core as mx

    return mx


def timed(mx, f, *inputs):
    """(milliseconds of the first evaluation, what the counters saw)."""
    mx.counters(reset=True)
    begin = time.perf_counter()
    mx.eval(f(*inputs))
    return (time.perf_counter() - begin) * 1e3, mx.counters()


def compiled_times(functions, shape, warm=True):
    """Milliseconds of each function's first evaluation; each must have compiled something."""
    mx = fusing_core()
    x, y = values(mx, *shape), values(mx, *shape)
    mx.eval(x, y)
    if warm:
        mx.eval(mx.tanh(x * y + 1) / 3)
    times = []
    for f in functions(mx):
        took, counters = timed(mx, f, x, y)
        if not counters["kernels_compiled"]:
            raise RuntimeError("nothing was compiled: the case does not measure what it says")
        times.append(took)
    return times


def first_kernel():
    return compiled_times(lambda mx: [random_chain(mx, 0, 10)], (64, 64), warm=False)[0]


def plain_functions(mx):
    """Chains of kernels of 6 to 18 IR ops, none of which is expanded."""
    return [random_chain(mx, 300 + seed, 6 + seed % 13, PLAIN_MAPS) for seed in range(KERNELS)]


def map_functions(mx):
    """Chains of 6 to 20 ops, half of them math functions: hundreds of IR ops after expansion."""
    return [random_chain(mx, 100 + seed, 6 + seed % 15) for seed in range(KERNELS)]


def row_functions(mx):
    return [row_function(mx, 200 + seed) for seed in range(KERNELS)]


def plain_kernels():
    times = compiled_times(plain_functions, (64, 64))
    mx = fusing_core()
    x, y = values(mx, 64, 64), values(mx, 64, 64)
    for f in plain_functions(mx):
        body = mx.explain(f, x, y).kernels[0].ir.partition("stage")[2]
        if len(re.findall(r"(?!load\b|float32\b)\b[a-z]\w*\(", body)) > 20:
            raise RuntimeError(f"more than 20 IR ops: {body}")
    return times


def later_kernels():
    return compiled_times(map_functions, (64, 64))


def row_kernels():
    return compiled_times(row_functions, (64, 64))


def kernels_from_disk():
    mx = fusing_core()
    x, y = values(mx, 64, 64), values(mx, 64, 64)
    mx.eval(mx.tanh(x * y + 1) / 3)
    times = []
    for f in map_functions(mx):
        took, counters = timed(mx, f, x, y)
        if counters["kernels_compiled"] or not counters["kernel_hits"]["disk"]:
            raise RuntimeError(f"the kernel did not come from disk: {counters}")
        times.append(took)
    return times


UNARY = """abs negative sign square sqrt rsqrt reciprocal floor ceil exp expm1 log log2 log10 log1p
    sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arctanh erf erfinv sigmoid degrees
    radians isnan isinf isfinite logical_not isposinf isneginf round stop_gradient""".split()
BINARY = """add subtract multiply divide floor_divide remainder power maximum minimum logaddexp
    arctan2 equal not_equal less less_equal greater greater_equal logical_and logical_or""".split()
WITH_SCALAR = "add subtract multiply divide power maximum minimum equal less greater".split()
REDUCE = "sum prod min max any all logsumexp mean var argmin argmax".split()


def hundred_ops(mx, x, y, rows):
    """A hundred different ops on small float32 arrays, each to be evaluated alone."""
    calls = [(name, (x,), {}) for name in UNARY]
    calls += [(name, (x, y), {}) for name in BINARY]
    calls += [(name, (x, 0.5), {}) for name in WITH_SCALAR]
    calls += [(name, (rows,), {}) for name in REDUCE]
    calls += [(name, (rows,), {"axis": -1}) for name in REDUCE]
    calls += [("softmax", (rows,), {"axis": -1}), ("where", (x, x, y), {})]
    calls += [("concatenate", ([x, y],), {}), ("matmul", (rows, rows), {})]
    calls += [("transpose", (rows,), {}), ("flip", (x,), {}), ("cumsum", (x,), {})]
    calls += [("take", (x, mx.array([1, 5, 2])), {}), ("pad", (x, 1), {})]
    return [
        (getattr(mx, name), args, options) for name, args, options in calls if hasattr(mx, name)
    ]


def hundred_ops_milliseconds():
    import cermet.core as mx

    x, y, rows = values(mx, 16), values(mx, 16), values(mx, 8, 8)
    mx.eval(x, y, rows)
    ops = hundred_ops(mx, x, y, rows)
    begin = time.perf_counter()
    for f, args, options in ops:
        mx.eval(f(*args, **options))
    return (time.perf_counter() - begin) * 1e3


# --- long graphs ---


def alternating(count):
    """x·c+d·… with another constant each time."""

    def f(x):
        for i in range(count // 2):
            x = x * (1 + FINITE * (i % 7 - 3)) + FINITE * i
        return x

    return f


def random_long(count):
    operators = (operator.add, operator.sub, operator.mul)

    def f(x):
        choose, y = random.Random(1), x
        for i in range(count):
            kind = choose.randrange(5)
            if kind < 3:
                constant = 1 + FINITE * (i % 5) if kind == 2 else FINITE * i
                x = operators[kind](x, constant)
            else:
                x, y = (x + y, x) if kind == 3 else (x * 0.5, y)
        return x

    return f


def compiled_seconds(f):
    import cermet.core as mx

    x = values(mx, 1024)
    mx.eval(x)
    begin = time.perf_counter()
    mx.eval(mx.compile(f)(x))
    return time.perf_counter() - begin


def alternating_seconds():
    return compiled_seconds(alternating(40_000))


def random_seconds():
    return compiled_seconds(random_long(40_000))


def doubling(make):
    """Each length in a child of its own: after the other one's, memory would be there already."""
    import cermet.core as mx

    mx.eval(mx.compile(make(100))(values(mx, 1024)))
    return in_child(lambda: compiled_seconds(make(40_000))) / in_child(
        lambda: compiled_seconds(make(20_000))
    )


def in_child(f):
    """The number that f() gives in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(f()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        number = float(answer.read())
    os.waitpid(child, 0)
    return number


def alternating_doubling():
    return doubling(alternating)


def random_doubling():
    return doubling(random_long)


for name, measure, limit, unit, runs in (
    ("import", import_milliseconds, 100, "ms", 20),
    ("import, resident", import_megabytes, 80, "MB", 3),
    ("first kernel of a process", first_kernel, 10, "ms", 20),
    ("later kernels of up to 20 IR ops", plain_kernels, 5, "ms", 1),
    ("later kernels of up to 20 ops, with math", later_kernels, 10, "ms", 1),
    ("later row kernels", row_kernels, 7, "ms", 1),
    ("100 ops at first sight", hundred_ops_milliseconds, 50, "ms", 5),
    ("40 000 alternating × and +, compiled", alternating_seconds, 1, "s", 3),
    ("random chain of 40 000 ops, compiled", random_seconds, 4, "s", 3),
    ("doubling 20 000 alternating ops", alternating_doubling, 2.3, "×", 3),
    ("doubling 20 000 random ops", random_doubling, 2.3, "×", 3),
):
    add(Probe(name, measure, ValueAtMost(limit), unit, runs=runs))
add(
    Probe(
        "kernels from the disk cache",
        kernels_from_disk,
        ValueAtMost(0.3),
        "ms",
        runs=1,
        prepare=later_kernels,
    )
)
