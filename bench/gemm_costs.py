# SPDX-License-Identifier: MIT
"""What matrix products take by each scheme: counts of what the scheme does, which are those of
src/schedule/product_costs.cpp, times microseconds of each, fitted to figures of gemm_tune.py
--survey: those of processors that run vectors of 32 bytes alone ("narrow"), of 64 half by half
("half"), whole ("full"), and whole beside an L2 of 2 MiB ("large_l2")."""

import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "bench/figures"
PROCESSORS = ("narrow", "half", "full", "large_l2")
TABLE = ROOT / "src/schedule/product_costs.inc"
# Of figures, relative: what is slower than the others by more is taken for a disturbance.
NOISE = {"narrow": 0.3, "half": 0.1, "full": 0.1, "large_l2": 0.1}
# Of what is chosen by costs, relative: those so far apart are told apart; a loss of so much time
# does not count; an error from which on it counts by its size.
APART, NO_LOSS, LARGE = 0.08, 0.03, 0.1
# What counts how much: a shape's loss, a cost's error, a change of a microsecond's logarithm.
LOSS, ERROR, CHANGE = 10, 0.03, 1
LEAST_WORK = 1 << 15  # of a product that is chosen by costs


def facts_of(processor):
    """What mx._product_scheme asks of it."""
    return {
        "vector_bytes": 32 if processor == "narrow" else 64,
        "full_width": processor in ("full", "large_l2"),
        "l2_bytes": 2 << 20 if processor == "large_l2" else 1 << 20,
    }


def work_of(dtype, processor, shape):
    """{scheme: (column of the table, {what: how often})} of [m, n, k, A turned, B turned]."""
    import cermet.core as mx

    m, n, k, a_turned, b_turned = shape
    sizes = (m, n, k, not a_turned, b_turned)
    work = mx._product_work(getattr(mx, dtype), *sizes, processor)
    return {scheme: (family, counts) for scheme, family, counts in work}


def costs_of(columns, dtype, processor, shape):
    """{scheme: microseconds}; columns: {column: {what: µs}}"""
    return {
        scheme: sum(columns[family].get(what, 0) * count for what, count in counts.items())
        for scheme, (family, counts) in work_of(dtype, processor, shape).items()
    }


def fit_family(rows, noise):
    """[(counts, time, the best scheme's time)] to microseconds of each: least squares of relative
    errors, none below 0."""
    import numpy as np
    from scipy.optimize import nnls

    names = list(rows[0][0])
    counts = np.array([[of[name] for name in names] for of, _, _ in rows], float)
    time, best = np.array([r[1] for r in rows]), np.array([r[2] for r in rows])
    plain = np.minimum(1, 1.5 * best / time) / time
    scale = np.maximum((counts * plain[:, None]).max(0), 1e-30)
    weight = plain
    for _ in range(8):
        found, _ = nnls(counts * weight[:, None] / scale, time * weight, maxiter=20000)
        off = np.log(time / np.maximum(counts / scale @ found, 1e-9)) / noise
        above, below = np.maximum(off, 0), np.maximum(-off, 0) / 1.5
        weight = plain / np.sqrt(1 + above**2 + below**2) / (1 + above**2) ** 0.25
    fitted = zip(names, (found / scale).tolist(), strict=True)
    return {name: float(f"{us:.4g}") for name, us in fitted if us > 0}


def fit_choice(columns, shapes):
    """The columns, changed such that less time is lost where the cheapest scheme is chosen while
    errors stay small. shapes: [[(family, counts, time) of each scheme]]"""
    import numpy as np
    from scipy.optimize import minimize

    rows = [(i, *of) for i, schemes in enumerate(shapes) for of in schemes]
    names = sorted({(family, what) for _, family, counts, _ in rows for what in counts})
    place = {name: at for at, name in enumerate(names)}
    counts = np.zeros((len(rows), len(names)))
    for row, (_, family, of, _) in zip(counts, rows, strict=True):
        for what, count in of.items():
            row[place[family, what]] = count
    shape, time = np.array([r[0] for r in rows]), np.array([r[3] for r in rows])
    best = np.full(len(shapes), np.inf)
    np.minimum.at(best, shape, time)
    loss = np.clip(np.log(time / best[shape]) - NO_LOSS, 0, 1)
    least = 1e-4 * np.median(time) / np.maximum(counts.max(0), 1e-30)
    given = np.array([columns[family].get(what, 0) for family, what in names])
    start = np.log(np.maximum(given, least))

    def objective(logs):
        each = np.exp(logs)
        cost = np.maximum(counts @ each, 1e-9)
        top = np.full(len(shapes), -np.inf)
        np.maximum.at(top, shape, -np.log(cost) / APART)
        share = np.exp(-np.log(cost) / APART - top[shape])
        share /= np.bincount(shape, share)[shape]
        lost = np.bincount(shape, share * loss)
        off = np.log(cost / time) / LARGE
        error = np.sqrt(1 + off**2)
        value = LOSS * lost.sum() + ERROR * (error - 1).sum() + CHANGE * ((logs - start) ** 2).sum()
        by_cost = -LOSS * share * (loss - lost[shape]) / APART + ERROR * off / error / LARGE
        return value, (by_cost / cost) @ counts * each + 2 * CHANGE * (logs - start)

    found = np.exp(minimize(objective, start, jac=True, method="L-BFGS-B").x)
    fitted = {family: {} for family in columns}
    for (family, what), us, known, used in zip(names, found, given, counts.max(0), strict=True):
        if used > 0 and (known > 0 or us * used > 1e-3):
            fitted[family][what] = float(f"{us:.4g}")
    return fitted


def fit(dtype, processor, figures):
    by_family, shapes = {}, []
    for shape, us in figures.items():
        best = min(us.values())
        of_shape = [
            (family, counts, us[scheme])
            for scheme, (family, counts) in work_of(dtype, processor, shape).items()
            if scheme in us
        ]
        for family, counts, taken in of_shape:
            by_family.setdefault(family, []).append((counts, taken, best))
        if len(of_shape) > 1 and math.prod(shape[:3]) >= LEAST_WORK:
            shapes.append(of_shape)
    columns = {
        family: fit_family(rows, NOISE[processor]) for family, rows in sorted(by_family.items())
    }
    return fit_choice(columns, shapes)


def read_figures(path):
    """{(m, n, k, A turned, B turned): {scheme: microseconds}}"""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {tuple(line["shape"]): line["us"] for line in lines}


def add_figures(path, shape, us):
    """To those of the file; of what it has already, the least is kept."""
    figures = read_figures(path)
    known = figures.setdefault(tuple(shape), {})
    known.update({scheme: min(taken, known.get(scheme, taken)) for scheme, taken in us.items()})
    lines = (json.dumps({"shape": shape, "us": us}) for shape, us in figures.items())
    path.write_text("".join(line + "\n" for line in lines))


def path_of(dtype, processor):
    return FIGURES / f"gemm_{dtype}_{processor}.jsonl"


def figures_of(dtype, processor):
    return read_figures(path_of(dtype, processor))


def fit_all():
    """The table of all that there are figures of: {(dtype, processor): {column: {what: µs}}}."""
    of_files = [
        tuple(path.stem.split("_", 2)[1:]) for path in sorted(FIGURES.glob("gemm_*_*.jsonl"))
    ]
    return {
        (dtype, processor): fit(dtype, processor, figures_of(dtype, processor))
        for dtype, processor in of_files
    }


def write_table(table):
    lines = ["// SPDX-License-Identifier: MIT", "// Written by bench/gemm_tune.py --fit."]
    lines.append("constexpr Costs kCosts[] = {")
    for (dtype, processor), columns in table.items():
        lines.append(f"    {{.dtype = Dtype::{dtype},")
        lines.append(f"     .processor = Processor::{processor},")
        for column, each in columns.items():
            terms = [f"         .{what} = {us:g}" for what, us in each.items()]
            lines += [f"     .{column} = {{", ",\n".join(terms) + "},"]
        lines[-1] = lines[-1][:-1] + "},"
    TABLE.write_text("\n".join([*lines, "};"]) + "\n")


def read_table():
    table, dtype, columns, each = {}, "", {}, {}
    for name, value in re.findall(r"\.(\w+) = ([^,}\s]+)", TABLE.read_text()):
        if name == "dtype":
            dtype = value.removeprefix("Dtype::")
        elif name == "processor":
            columns = table.setdefault((dtype, value.removeprefix("Processor::")), {})
        elif value == "{":
            each = columns.setdefault(name, {})
        else:
            each[name] = float(value)
    return table
