# SPDX-License-Identifier: MIT
"""How matrix products of random shapes fare with the scheme that is chosen, beside the others.

    python bench/gemm_tune.py [--shapes 200] [--dtype float32] [--seed 1] [--least 1]
                              [--most 8192] [--few 64] [--sum 32] [--batch 32] [--unit 256]
                              [--from 0] [--count 60]
                              [--use fresh|kept]
                              [--against fma,panel] [--once] [--save file]
                              [--survey [--again]] [--fit]

M, N and K are drawn from 1 to --most, evenly in their logarithms, and either operand may be a
transposed view; --least: the largest operand has so many elements squared; --few: the lesser of M
and N is that at most; --sum: K is; --batch: so many such products; --unit: what is larger is a
multiple of that. --from and --count take a part.
What is timed is a call and its evaluation, again and again with the same operands, so that they
lie in whatever cache holds both, and all threads awake: one that sleeps is woken for long work
alone.

Processes of one library take turns: one chooses freely, each other one takes one scheme
(CERMET_MATMUL_SCHEME) wherever that can make the product; those that come to the same kernel
count once. --use: with `fresh` nothing that is packed is kept between calls
(CERMET_PACKED_CACHE=off), for anybody; with `kept` what can be kept is, before
anybody is timed. --against torch: that library, on two threads, which must be in .venv-peers.

A shape that seems to be below 0.95 of the best is measured again: in each of some rounds both
sides get new operands (places in memory differ by as much as schemes do) and take turns in longer
slices; the ratio of a round is the median of its turns. It is listed, and makes the exit 1, if the
median of the rounds is below 0.9 and three quarters of the rounds are: the table of
src/schedule/product_table.cpp, the costs beside it and the blocks of src/kernel/tile_gemm.cpp
want another look there.
The noise floor is the same for the free choice beside the same scheme forced, in the first
measurement of all shapes and the second one of those that were measured again.

--survey measures for the costs (bench/gemm_costs.py): it adds the least times of each scheme to
bench/figures/gemm_DTYPE_PROCESSOR.jsonl, by the kind of this processor, with --again of the shapes
that are in any of a dtype and for --few; --fit makes the table of costs of all these files,
src/schedule/product_costs.inc:

    python bench/gemm_tune.py --survey --dtype float16 --shapes 320 --seed 7
    python bench/gemm_tune.py --survey --dtype float16 --again
    python bench/gemm_tune.py --fit

--ceiling names the ten shapes furthest from what the machine could do: the time to multiply, or
to read the operands from the cache that holds them, whichever is longer, and so much for a call.
Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import gemm_costs

MOST_WORK = 2e10  # operations of a product
MOST_ELEMENTS = 1 << 26
WORST, DOUBTFUL = 0.9, 0.95
TURNS, SLICE = 3, 0.008  # of the first measurement; seconds of a turn
PAUSE = 0.005  # before it: threads of the other process that spin go to sleep
SURVEY_ROUNDS = 3
ROUNDS, ROUND_TURNS, LONG_SLICE = 5, 3, 0.025  # of the second one
WARM_CALLS = 3  # after which what is packed is kept
PLAIN = ["fma", "fma_local", "fma_split_k", "fma_tall"]
PLAIN += ["panel", "panel_long", "panel_four", "panel_four_long"]
BLOCKED = ["dot_bf16", "amx_bf16"]  # instructions, for blocks of fma and its kin
SPLIT = ["amx_split", "amx_split_local", "amx_split_k"]
PEERS = pathlib.Path(__file__).resolve().parent.parent / ".venv-peers/bin/python"
AGAINST = {
    "float32": [*PLAIN, *SPLIT],
    "float16": [*PLAIN, *SPLIT],
    "bfloat16": [*PLAIN, "fma_wide", "amx_panel"],
}


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2


# --- A worker: a line of JSON in, one out.


def slice_of(call, seconds, of_parts=median):
    """Seconds of a call: the median (or another) of parts of the slice, after a quarter of it."""
    parts, begin, calls = [], time.perf_counter(), 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        end = time.perf_counter()
        spent = (end - start) / calls
        if end - begin >= seconds / 4:
            parts.append(spent)
        calls = max(1, round(min(seconds / 16, 5e-4) / spent))
        if end - begin >= seconds:
            return of_parts(parts)


def turned(x, is_turned):
    return x.swapaxes(-1, -2) if is_turned else x


def of_cermet(dtype):
    """Makes an operand; of two of them what multiplies them, and the scheme; wakes the threads."""
    import cermet.core as mx

    block = mx.ones((1 << 22,))
    mx.eval(block)

    def wake():
        mx.eval(block.sum())

    def operand(shape):
        made = mx.random.normal(shape).astype(getattr(mx, dtype))
        mx.eval(made)
        return made

    def product(a, b, turned_a, turned_b):
        return turned(a, turned_a) @ turned(b, turned_b)

    def prepare(*of):
        kernel = mx.explain(lambda a, b: product(a, b, *of[2:]), *of[:2]).kernels[-1]
        made = kernel.scheme or "none"
        if made in BLOCKED:
            made = re.search(r" scheme (\w+)", kernel.ir)[1]
        return lambda: mx.eval(product(*of)), made

    return operand, prepare, wake


def of_torch(dtype):
    import torch

    torch.set_num_threads(2)

    def operand(shape):
        return torch.randn(shape).to(getattr(torch, dtype))

    def prepare(a, b, turned_a, turned_b):
        return lambda: turned(a, turned_a) @ turned(b, turned_b), "torch"

    return operand, prepare, lambda: None


def worker(dtype, library):
    """`[m, n, k, a', b', batch]`: new operands, scheme. A number: so long, seconds of a call; below
    0 the least."""
    operand, prepare, wake = {"cermet": of_cermet, "torch": of_torch}[library](dtype)
    call = None
    for line in sys.stdin:
        wanted = json.loads(line)
        if isinstance(wanted, float):
            wake()
            answer = slice_of(call, abs(wanted), median if wanted > 0 else min)
        else:
            m, n, k, turned_a, turned_b, batch = wanted
            of_batch = () if batch == 1 else (batch,)
            a = operand((*of_batch, *((k, m) if turned_a else (m, k))))
            b = operand((*of_batch, *((n, k) if turned_b else (k, n))))
            call, answer = prepare(a, b, turned_a, turned_b)
            for _ in range(WARM_CALLS):
                call()
        print(json.dumps(answer), flush=True)


class Worker:
    def __init__(self, dtype, scheme, use):
        self.name = scheme
        library, python = ("torch", PEERS) if scheme == "torch" else ("cermet", sys.executable)
        command = [python, __file__, "--worker", library, "--dtype", dtype]
        scheme = "auto" if scheme == "torch" else scheme
        kept = "on" if use == "kept" else "off"
        env = {**os.environ, "CERMET_MATMUL_SCHEME": scheme, "CERMET_PACKED_CACHE": kept}
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, wanted):
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


# --- The measurement.


def draw_shapes(count, seed, least, most, few, longest, batch, unit):
    rng, shapes = random.Random(seed), []
    while len(shapes) < count:
        m, n, k = (round(2 ** rng.uniform(0, math.log2(most))) for _ in range(3))
        m, n, k = (round(size / unit) * unit if size >= unit else size for size in (m, n, k))
        elements = batch * max(m * k, k * n, m * n)
        if elements < least**2:
            continue
        if (
            min(m, n) <= few
            and k <= longest
            and 2 * batch * m * n * k <= MOST_WORK
            and elements <= MOST_ELEMENTS
        ):
            shapes.append((m, n, k, rng.random() < 0.25, rng.random() < 0.5, batch))
    return shapes


def in_turns(workers, turns, seconds=SLICE):
    """Seconds of a call, turn by turn: a list for each worker."""
    workers = list(workers)
    taken = [[] for _ in workers]
    for turn in range(turns):
        order = range(len(workers))
        for i in order if turn % 2 == 0 else reversed(order):
            time.sleep(PAUSE)
            taken[i].append(workers[i].ask(seconds))
    return taken


def ratio(of, to):
    """The rate of `of` by that of `to`, as a median over the turns."""
    return median(t / o for o, t in zip(of, to, strict=True))


def again(shape, free, other):
    """The ratios of rounds, each with new operands."""
    ratios = []
    for _ in range(ROUNDS):
        for process in (free, other):
            process.ask(shape)
        ratios.append(ratio(*in_turns([free, other], ROUND_TURNS, LONG_SLICE)))
    return ratios


def survey(workers, shape):
    """Microseconds by scheme: the least of rounds with new operands, as disturbances only add."""
    least = {}
    for _ in range(SURVEY_ROUNDS):
        by_scheme = {}
        for worker in workers:
            by_scheme.setdefault(worker.ask(shape), worker)
        if not set(by_scheme) <= set(PLAIN):
            return {}
        for scheme, taken in zip(by_scheme, in_turns(by_scheme.values(), 2, -SLICE), strict=True):
            least[scheme] = min(least.get(scheme, math.inf), *taken)
    return {scheme: float(f"{seconds * 1e6:.3g}") for scheme, seconds in least.items()}


def survey_into(workers, shapes, dtype):
    """Adds the figures of each shape that several schemes can make."""
    import cermet.core as mx

    path = gemm_costs.path_of(dtype, mx._processor())
    for shape in shapes:
        us = survey(workers, shape) if min(shape[:2]) > 1 else {}
        if len(us) > 1:
            gemm_costs.add_figures(path, shape[:5], us)
    for w in workers:
        w.process.stdin.close()
    return 0


class Row:
    """What was found for a shape."""

    def __init__(self, workers, shape, once):
        self.shape = shape
        by_scheme, self.twin, self.made = {}, None, {}
        free = workers[0]
        self.scheme = free.ask(shape)
        for other in workers[1:]:
            scheme = self.made[other.name] = other.ask(shape)
            if scheme == self.scheme:
                self.twin = self.twin or other
            else:
                by_scheme.setdefault(scheme, other)
        measured = [free, *([self.twin] if self.twin else []), *by_scheme.values()]
        taken = in_turns(measured, TURNS)
        self.seconds = min(taken[0])
        kernels = [self.scheme] * (len(measured) - len(by_scheme)) + list(by_scheme)
        self.all = {s: median(t) for s, t in zip(kernels, taken, strict=True)}
        self.floor = [ratio(taken[0], taken[1])] if self.twin else []
        rest = {w: ratio(taken[0], t) for w, t in zip(measured, taken, strict=True)}
        rivals = {scheme: rest[w] for scheme, w in by_scheme.items()}
        self.best = min(rivals, key=rivals.get, default=None)
        self.ratios = [rivals[self.best]] if self.best else [1.0]
        self.second_floor = []
        if self.ratios[0] < DOUBTFUL and not once:
            self.ratios = again(shape, free, by_scheme[self.best])
            if self.twin:
                self.second_floor = [median(again(shape, free, self.twin))]

    def add_to(self, path):
        figures = {"shape": self.shape, "chosen": self.scheme, "made": self.made}
        with open(path, "a") as file:
            file.write(json.dumps({**figures, "seconds": self.all}) + "\n")

    @property
    def ratio(self):
        return min(1.0, median(self.ratios))

    @property
    def is_listed(self):
        below = sum(r < WORST for r in self.ratios)
        return self.ratio < WORST and below >= 0.75 * len(self.ratios)

    @property
    def rate(self):
        m, n, k, *_, batch = self.shape
        return 2 * batch * m * n * k / self.seconds * 1e-9


def layout(shape):
    m, n, k, turned_a, turned_b, batch = shape
    return (
        "" if batch == 1 else f"{batch} of "
    ) + f"{m}×{k}{' a.T' if turned_a else ''} @ {k}×{n}{' b.T' if turned_b else ''}"


def spread(ratios):
    if not ratios:
        return "none"
    ordered = sorted(ratios)
    at = [ordered[round(q * (len(ordered) - 1))] for q in (0, 0.05, 0.5, 0.95, 1)]
    return " ".join(f"{r:.2f}" for r in at) + f" ({len(ordered)})"


def report(rows):
    """Prints a line for each scheme, the noise floor, and the shapes below the limit."""
    by_scheme = {}
    for row in rows:
        by_scheme.setdefault(row.scheme, []).append(row)
    print(f"{'scheme':16} {'shapes':>6} {'least':>6} {'median':>6}   of the best one's rate")
    for scheme, group in sorted(by_scheme.items()):
        ratios = [r.ratio for r in group]
        print(f"{scheme:16} {len(group):6} {min(ratios):6.2f} {median(ratios):6.2f}")
    print("the same scheme against itself: least, 5 %, median, 95 %, most (shapes)")
    print("  measured once ", spread([f for r in rows for f in r.floor]))
    print("  measured again", spread([f for r in rows for f in r.second_floor]))
    listed = sorted((r for r in rows if r.is_listed), key=lambda r: r.ratio)
    doubtful = sum(len(r.ratios) > 1 for r in rows)
    print(f"{len(listed)} of {len(rows)} below {WORST}; {doubtful} were measured again")
    for row in listed:
        rounds = " ".join(f"{r:.2f}" for r in sorted(row.ratios))
        print(
            f"  {row.ratio:.2f} {row.scheme} of {row.best}, {layout(row.shape)}: "
            f"{row.seconds * 1e6:.1f} µs, {row.rate:.0f} GFLOP/s; rounds {rounds}"
        )
    return len(listed)


# --- What the machine could do.


class Ceilings:
    """Rates that were measured here: of multiplying, from the best large product of the sweep's own
    dtype, and of reading, from sums of arrays that lie in the cache of that size or beyond."""

    SIZES = (1 << 19, 1 << 21, 1 << 24, 1 << 28)  # bytes: L2 of a core, of all, L3, memory
    CALL = 3e-6

    def __init__(self, dtype):
        import cermet.core as mx

        self.size = 4 if dtype == "float32" else 2
        x = mx.random.normal((2048, 2048)).astype(getattr(mx, dtype))
        self.flops = 2 * 2048**3 / self.least(lambda: mx.eval(x @ x))
        self.bytes = []
        for size in self.SIZES:
            block = mx.ones((size // 4,))
            mx.eval(block)
            self.bytes.append(size / (self.least(lambda b=block: mx.eval(b.max())) - 2e-6))

    @staticmethod
    def least(call):
        best, begin = math.inf, time.perf_counter()
        while time.perf_counter() - begin < 0.3:
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        return best

    def seconds(self, shape):
        m, n, k, *_, batch = shape
        moved = self.size * batch * (m * k + k * n + m * n)
        level = next((i for i, s in enumerate(self.SIZES) if moved <= 2 * s), -1)
        return self.CALL + max(2 * batch * m * n * k / self.flops, moved / self.bytes[level])

    def report(self, rows):
        read = ", ".join(f"{b * 1e-9:.0f}" for b in self.bytes)
        print(f"ceilings: {self.flops * 1e-9:.0f} GFLOP/s; GB/s read by level: {read}")
        far = sorted(rows, key=lambda r: self.seconds(r.shape) / r.seconds)
        for row in far[:10]:
            share = self.seconds(row.shape) / row.seconds
            print(f"  {share:.2f} of it, {row.scheme}, {layout(row.shape)}: {row.rate:.0f} GFLOP/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--dtype", default="float32", choices=list(AGAINST))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--most", type=int, default=8192)
    parser.add_argument("--few", type=int, default=MOST_ELEMENTS)
    parser.add_argument("--sum", type=int, default=MOST_ELEMENTS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--unit", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int)
    parser.add_argument("--use", default="fresh", choices=["fresh", "kept"])
    parser.add_argument("--against", help="schemes, with commas between")
    parser.add_argument("--once", action="store_true", help="measure nothing again")
    parser.add_argument("--save", help="file to which each shape's figures are added, as JSON")
    parser.add_argument("--survey", action="store_true", help="measure for the costs")
    parser.add_argument("--again", action="store_true", help="shapes of the last surveys")
    parser.add_argument("--fit", action="store_true", help="make the table of costs of the surveys")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.dtype, arguments.worker)
    if arguments.fit:
        gemm_costs.write_table(gemm_costs.fit_all())
        return 0
    given = arguments.against
    others = PLAIN if arguments.survey else given.split(",") if given else AGAINST[arguments.dtype]
    workers = [Worker(arguments.dtype, s, arguments.use) for s in ["auto", *others]]
    sizes = (arguments.least, arguments.most, arguments.few, arguments.sum)
    shapes = draw_shapes(arguments.shapes, arguments.seed, *sizes, arguments.batch, arguments.unit)
    if arguments.again:
        known = [gemm_costs.figures_of(arguments.dtype, of) for of in gemm_costs.PROCESSORS]
        all_known = dict.fromkeys(shape for of in known for shape in of)
        shapes = [(*shape, 1) for shape in all_known if min(shape[:2]) <= arguments.few]
    last = arguments.first + (arguments.count or len(shapes))
    from tqdm import tqdm

    part = tqdm(shapes[arguments.first : last], unit="shape", disable=None)
    if arguments.survey:
        return survey_into(workers[1:], part, arguments.dtype)
    rows = []
    for shape in part:
        rows.append(Row(workers, shape, arguments.once))
        if arguments.save:
            rows[-1].add_to(arguments.save)
    for w in workers:
        w.process.stdin.close()
    listed = report(rows)
    if arguments.ceiling:
        Ceilings(arguments.dtype).report(rows)
    return 1 if listed else 0


if __name__ == "__main__":
    sys.exit(main())
