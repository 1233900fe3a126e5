# SPDX-License-Identifier: MIT
"""The ops that are slowest beside their peers, each with what its time is made of."""

from case import THREADS

COUNT = 10
AT_CEILING = 0.75  # a share of copy that leaves little to win


def beside_fastest(row):
    """(ours over the fastest peer's time, its name)"""
    ratios = [(p["ratio"], n) for n, p in row.get("peers", {}).items() if p["ratio"] is not None]
    return max(ratios, default=(0.0, ""))


def reason(row):
    elements = 1
    for n in row["shape"].split("×"):
        elements *= int(n)
    parts = []
    if row["kernels"] != 1:
        parts.append(f"{row['kernels']} kernels")
    parts.append(f"moves {row['moved_mb']:.0f} MB")
    if row["share"] >= AT_CEILING:
        parts.append(f"at {row['share']:.0%} of copy: the memory decides")
    else:
        ns = row["min_ms"] * 1e6 * THREADS / elements
        parts.append(f"{row['share']:.0%} of copy, {ns:.2f} ns/element/thread: not the memory")
    return ", ".join(parts)


def worst(rows):
    """A line for each of the slowest."""
    lines = []
    for row in sorted(rows, key=lambda row: -beside_fastest(row)[0])[:COUNT]:
        ratio, peer = beside_fastest(row)
        lines.append(
            f"{row['case']} {row['dtype']}: {ratio:.2f}× of {peer}, {row['min_ms']:.3g} ms; "
            f"{reason(row)}"
        )
    return lines
