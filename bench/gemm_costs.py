# SPDX-License-Identifier: MIT
"""What matrix products take by each scheme: counts of what the scheme does, those of
src/schedule/product_costs.cpp, times coefficients, fitted to figures of gemm_tune.py --survey."""

import json
import math

FAMILIES = {  # name in the table: family, whether A (the larger operand) lies along k
    "kTilesInPlace": ("tiles", True),
    "kTilesPacked": ("tiles", False),
    "kPanelsAlong": ("panels", True),
    "kPanelsAcross": ("panels", False),
}
SCHEMES = ["fma", "fma_local", "fma_split_k", "panel", "panel_long", "panel_four"]
THREADS, VECTOR_NS, LANES, PIECE = 2, 0.2, 16, 512
L2, L3 = 1 << 20, 28 << 20
NOISE = 0.1  # relative; what is slower than the others by more is taken for a disturbance


def up(x, by):
    return -(-x // by)


def even_blocks(total, most, unit):
    each = up(total, up(total, most))
    return up(total, min(up(each, unit) * unit, most))


def share_of(items, ns):
    """Of the work, what the busiest thread does."""
    if items < 2 or ns < 1000:
        return 1
    chunk = min(max(ns / (16 * THREADS), 1500), 5e4)
    grain = min(max(math.ceil(chunk * items / ns), 1), items)
    chunks = up(items, grain)
    if chunks < 2:
        return 1
    return min(1, max(up(chunks, THREADS) * grain / items, 1 / THREADS))


def counts_of_tiles(scheme, m, n, k, a_along, b_along):
    split, whole = scheme == "fma_split_k", scheme == "fma" and not a_along
    depth = 384 if a_along else 128
    most_columns = 128 if a_along else 256 if whole else 384
    most_rows = 66 if a_along and scheme == "fma_local" else 48 if whole else 258
    pieces = up(k, PIECE) if split else 1
    columns = up(n, most_columns) if split else even_blocks(n, most_columns, 64)
    rows = up(m, most_rows) if split else even_blocks(m, most_rows, 6)
    last = k - PIECE * (pieces - 1)
    visits = up(PIECE, depth) * (pieces - 1) + up(last, depth) if split else up(k, depth)
    share = share_of(columns * rows * pieces, m * n * k * VECTOR_NS / LANES)
    packing = share_of(up(n, 256) * up(k, 128), n * k * 0.1) if whole else share
    packs = packing * (1 if whole else rows)
    tiles, bytes_ = up(m, 6) * up(n, 64), 4 * (n * k + m * k + m * n)
    reads = (n * k * (1 if whole else rows) + m * k * columns) * share
    return {
        "add": m * n * pieces if split else 0,
        "call": 1,
        "out": m * n * share,
        "out_l2": m * n if bytes_ > L2 else 0,
        "out_l3": m * n if 4 * m * n > L3 / 2 else 0,
        "out_row": m * columns * share,
        "pack_a_row": 0 if a_along else columns * rows * k * share,
        "pack_across": 0 if b_along else packs * n * k,
        "pack_along": packs * n * k if b_along else 0,
        "pack_row": 0 if b_along else packs * columns * k,
        "read_l2": reads if bytes_ > L2 else 0,
        "read_l3": reads if bytes_ > L3 else 0,
        "split": 1 if split else 0,
        "split_k": tiles * k * share if split else 0,
        "strip": packs * up(n, 16) * visits if b_along else 0,
        "strip_k": packs * up(n, 16) * 16 * k if b_along else 0,
        "tile": tiles * visits * share,
        "tile_k": tiles * k * share,
    }


def counts_of_panels(scheme, m, n, k, a_along, b_along):
    turned, four = n < m, scheme == "panel_four"
    few, many = min(m, n), max(m, n)
    few_along, along = (b_along, a_along) if turned else (a_along, b_along)
    side = 4 if four else 8
    panels = up(few, side)
    rows, pieces = panels * side, up(k, 16384 if along else PIECE)
    packing = share_of(panels * up(k, 1024), rows * k * 0.1)
    width, tile = 4096 if scheme == "panel_long" else 256, 64 if four else 32
    ns = rows * many * k * VECTOR_NS / LANES
    share = share_of(up(many, 128 if along else width) * panels * pieces, ns)
    ending = share_of(up(many, 512) * panels, few * many * 0.3)
    bytes_ = 4 * (many * k + few * k + few * many)
    sums = rows * up(many, 64) * 64 * pieces
    counts = {
        "add": 0 if along else (pieces - 1) * few * many,
        "call": 1,
        "end": 0 if turned else few * many * ending,
        "end_row": few * up(many, 64) * ending,
        "end_turned": few * many * ending if turned else 0,
        "pack_across": 0 if few_along else rows * k * packing,
        "pack_along": rows * k * packing if few_along else 0,
        "pack_unit": rows * up(k, 16) * packing,
        "read_l2": many * k * share if bytes_ > L2 else 0,
        "read_l3": many * k * share if bytes_ > L3 else 0,
        "sums_l2": sums if 4 * sums > L2 else 0,
        "sums_l3": sums if 4 * sums > L3 / 2 else 0,
        "sweep": 0 if along else panels * up(k, 16) * up(many, width) * share,
    }
    groups = panels * up(many, 4 if four else 3) * share if along else 0
    tiles = 0 if along else panels * share
    for of in (4, 8):
        here = side == of
        counts[f"ends_{of}"] = groups * up(k, PIECE) if here else 0
        counts[f"groups_{of}"] = groups * up(k, 16) if here else 0
        counts[f"rest_{of}"] = tiles * up(many % tile, 16) * up(k, 16) if here else 0
        counts[f"tile_k_{of}"] = tiles * (many // tile) * k if here else 0
    return counts


def counts_of(scheme, shape):
    """The family's name in the table, and how much of everything the scheme does."""
    m, n, k, a_turned, b_turned = shape[:5]
    a_along, b_along = not a_turned, b_turned
    if scheme.startswith("panel"):
        family, along = "panels", a_along if n < m else b_along
        counts = counts_of_panels(scheme, m, n, k, a_along, b_along)
    else:
        family, along = "tiles", a_along
        counts = counts_of_tiles(scheme, m, n, k, a_along, b_along)
    name = next(name for name, of in FAMILIES.items() if of == (family, along))
    return name, counts


def is_apart(scheme, shape):
    m, n, k, a_turned, b_turned = shape[:5]
    if scheme == "fma_split_k":
        return k > PIECE and m * n <= PIECE * (m + n)
    return scheme != "panel_long" or not (not a_turned if n < m else b_turned)


def cost_of(table, scheme, shape):
    name, counts = counts_of(scheme, shape)
    return sum(table[name][c] * value for c, value in counts.items())


def costs_of(table, shape):
    return {s: cost_of(table, s, shape) for s in SCHEMES if is_apart(s, shape)}


def fit_family(rows):
    """[(counts, time, the best scheme's time)] to coefficients: least squares of relative errors,
    none below 0."""
    import numpy as np
    from scipy.optimize import nnls

    names = sorted(rows[0][0])
    counts = np.array([[of[name] for name in names] for of, _, _ in rows], float)
    time, best = np.array([r[1] for r in rows]), np.array([r[2] for r in rows])
    plain = np.minimum(1, 1.5 * best / time) / time
    scale = np.maximum((counts * plain[:, None]).max(0), 1e-30)
    weight = plain
    for _ in range(8):
        found, _ = nnls(counts * weight[:, None] / scale, time * weight, maxiter=20000)
        off = np.log(time / np.maximum(counts / scale @ found, 1e-9)) / NOISE
        above, below = np.maximum(off, 0), np.maximum(-off, 0) / 1.5
        weight = plain / np.sqrt(1 + above**2 + below**2) / (1 + above**2) ** 0.25
    return dict(zip(names, (found / scale).tolist(), strict=True))


def fit(figures):
    by_family = {name: [] for name in FAMILIES}
    for line in figures:
        best = min(line["us"].values())
        for scheme, us in line["us"].items():
            if is_apart(scheme, line["shape"]):
                name, counts = counts_of(scheme, line["shape"])
                by_family[name].append((counts, us, best))
    return {name: fit_family(rows) for name, rows in by_family.items()}


def read_figures(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def write_table(table, path):
    lines = ["// SPDX-License-Identifier: MIT", "// Written by bench/gemm_tune.py --fit."]
    for name, coefficients in table.items():
        kind = "TileCosts" if name.startswith("kTiles") else "PanelCosts"
        lines.append(f"constexpr {kind} {name} = {{")
        lines += [f"    .{of} = {value:.4g}," for of, value in sorted(coefficients.items())]
        lines.append("};")
    path.write_text("\n".join(lines) + "\n")


def read_table(path):
    table = {}
    for line in path.read_text().splitlines():
        if line.startswith("constexpr"):
            current = table.setdefault(line.split()[2], {})
        elif line.startswith("    ."):
            of, value = line.strip(" .,").split(" = ")
            current[of] = float(value)
    return table
