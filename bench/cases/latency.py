# SPDX-License-Identifier: MIT
"""What a call costs when there is next to nothing to compute."""

from case import ARRAY_PEERS, Case, add
from gates import TimeAtMost

US = 1e-6
BUILT_OPS = 100


def sum_item(lib):
    a, b = lib.normal(16, seed=1), lib.normal(16, seed=2)
    return lambda: lib.item((a + b).sum())


def scalar_item(lib):
    a, b = lib.normal(seed=1), lib.normal(seed=2)
    return lambda: lib.item(a + b)


def graph_building(lib):
    """A chain of ops that is never evaluated."""
    a, b = lib.normal(16, seed=1), lib.normal(16, seed=2)

    def build():
        x = a
        for _ in range(BUILT_OPS):
            x = x + b

    return build


def building_with_numbers(lib):
    a = lib.normal(16, seed=1)

    def build():
        x = a
        for _ in range(BUILT_OPS // 2):
            x = x * 2.0 + 1

    return build


def compiled_call(lib):
    a, b = lib.normal(16, seed=1), lib.normal(16, seed=2)

    def f(a, b):
        x = a
        for _ in range(10):
            x = x * b + a
        return x

    f = lib.compile(f)
    return lambda: f(a, b)


def add_call(name, shape, build, microseconds, peers, **rest):
    add(Case(name, shape, build, TimeAtMost(microseconds * US), peers=peers, **rest))


add_call("(a+b).sum().item()", (16,), sum_item, 5, ARRAY_PEERS, waits=False)
add_call("(a+b).item()", (), scalar_item, 4, ARRAY_PEERS, waits=False)
add_call(
    "graph building, per op", (16,), graph_building, 0.5, ("mlx",), calls=BUILT_OPS, waits=False
)
add_call(
    "graph building with a number, per op",
    (16,),
    building_with_numbers,
    0.5,
    ("mlx",),
    calls=BUILT_OPS,
    waits=False,
)
add_call("compiled function of 20 ops", (16,), compiled_call, 5, ("mlx", "torch", "jax"))
