# SPDX-License-Identifier: MIT
"""How matrix products of random shapes fare with the scheme that is chosen, beside the others.

    python bench/gemm_tune.py [--shapes 200] [--dtype float32] [--seed 1] [--most 8192]
                              [--against fma,amx_panel]

M, N and K are drawn from 1 to --most, evenly in their logarithms, and either operand may be a
transposed view. Processes of one library take turns at each shape: one chooses freely, each other
one takes one scheme (CERMET_MATMUL_SCHEME) wherever that can make the product. A shape where the
choice is below 0.9 times the best of them is listed and makes the exit 1: the table of
src/schedule/product_scheme.cpp and the blocks of src/kernel/tile_gemm.cpp want another look
there. Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time

from tqdm import tqdm

MOST_WORK = 2e10  # operations of a product
MOST_ELEMENTS = 1 << 26
WORST = 0.9
AGAINST = {
    "float32": ["fma", "fma_local", "panel", "amx_split", "amx_split_local", "amx_split_k"],
    "float16": ["fma", "fma_local", "panel", "amx_split", "amx_split_local", "amx_split_k"],
    "bfloat16": ["fma", "fma_local", "fma_wide", "panel", "amx_panel"],
}


def worker(dtype):
    """Answers a line of JSON [m, n, k, a', b'] with the least seconds of a call and the scheme."""
    import cermet.core as mx

    for line in sys.stdin:
        m, n, k, transpose_a, transpose_b = json.loads(line)
        a = mx.random.normal((k, m) if transpose_a else (m, k)).astype(getattr(mx, dtype))
        b = mx.random.normal((n, k) if transpose_b else (k, n)).astype(getattr(mx, dtype))
        mx.eval(a, b)

        def product(a, b, at=transpose_a, bt=transpose_b):
            return (a.T if at else a) @ (b.T if bt else b)

        mx.eval(product(a, b))
        best, begin, calls = float("inf"), time.perf_counter(), 0
        while calls < 3 or (time.perf_counter() - begin < 0.05 and calls < 1000):
            start = time.perf_counter()
            mx.eval(product(a, b))
            best, calls = min(best, time.perf_counter() - start), calls + 1
        kernels = mx.explain(product, a, b).kernels
        print(json.dumps([best, kernels[-1].scheme]), flush=True)


def draw_shapes(count, seed, most):
    rng, shapes = random.Random(seed), []
    while len(shapes) < count:
        m, n, k = (round(2 ** rng.uniform(0, math.log2(most))) for _ in range(3))
        if 2 * m * n * k <= MOST_WORK and max(m * k, k * n, m * n) <= MOST_ELEMENTS:
            shapes.append((m, n, k, rng.random() < 0.25, rng.random() < 0.5))
    return shapes


def start(dtype, scheme):
    command = [sys.executable, __file__, "--worker", "--dtype", dtype]
    env = {**os.environ, "CERMET_MATMUL_SCHEME": scheme}
    return subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process, shape):
    process.stdin.write(json.dumps(shape) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare(processes, shape, rounds=3):
    """Least seconds of each, in turns, and the scheme of the first."""
    answers = [[ask(p, shape) for p in processes] for _ in range(rounds)]
    return [min(a[i][0] for a in answers) for i in range(len(processes))], answers[0][0][1]


def report(rows):
    """rows: (ratio, best scheme, GFLOP/s, scheme, shape); prints the worst and a line for each."""
    by_scheme = {}
    for row in rows:
        by_scheme.setdefault(row[3], []).append(row)
    print(f"{'scheme':16} {'shapes':>6} {'least':>6} {'median':>6}   of the best one's rate")
    for scheme, group in sorted(by_scheme.items()):
        ratios = sorted(r[0] for r in group)
        print(f"{scheme:16} {len(group):6} {ratios[0]:6.2f} {ratios[len(ratios) // 2]:6.2f}")
    slow = sorted(r for r in rows if r[0] < WORST)
    for ratio, best, rate, scheme, (m, n, k, at, bt) in slow:
        layout = f"{m}×{k}{' a.T' if at else ''} @ {k}×{n}{' b.T' if bt else ''}"
        print(f"{scheme}: {ratio:.2f} of {best}, {rate:.0f} GFLOP/s, {layout}")
    return len(slow)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--dtype", default="float32", choices=list(AGAINST))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=8192)
    parser.add_argument("--against", help="schemes, with commas between")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.dtype)
    given = arguments.against
    others = given.split(",") if given else AGAINST[arguments.dtype]
    processes = [start(arguments.dtype, scheme) for scheme in ["auto", *others]]
    rows = []
    shapes = draw_shapes(arguments.shapes, arguments.seed, arguments.most)
    for shape in tqdm(shapes, unit="shape"):
        (chosen, *rest), scheme = compare(processes, shape)
        seconds, best = min(zip(rest, others, strict=True))
        m, n, k = shape[:3]
        rate = 2 * m * n * k / chosen * 1e-9
        rows.append((min(1, seconds / chosen), best, rate, scheme, shape))
    for process in processes:
        process.stdin.close()
    return 1 if report(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
