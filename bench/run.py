# SPDX-License-Identifier: MIT
"""Ours, each peer and the machine's ceilings in one table; exits 1 if a gate is missed.

    python bench/run.py --ceiling build/bench_ceiling [--only PATTERN]

`make bench` builds, installs the peers and calls this. The numbers also go into
bench/results/<cpu>.json; a run with --only replaces the rows that it measured. Nothing else should
run on the machine meanwhile. cases/ says what is measured, harness.py how.
"""

import argparse
import json
import pathlib
import platform
import re
import sys
import time
from dataclasses import replace

from case import THREADS, all_cases, median, shape_text
from harness import STEADY, Bench
from peers import NAMES
from tqdm import tqdm
from worst import worst

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ceiling", type=pathlib.Path, required=True, help="program bench_ceiling")
    parser.add_argument("--only", default="", help="cases whose name matches this pattern")
    parser.add_argument("--peers", default=",".join(NAMES), help="those to run, by commas")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    return parser.parse_args()


def cpu_name():
    fields = {}
    with open("/proc/cpuinfo") as info:
        for line in info:
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    words = [fields.get(k) for k in ("model name", "cpu family", "model", "CPU part")]
    return " ".join(w for w in words if w) or platform.machine()


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# --- rows ---


def row_of(case, result):
    """One line of the table, as JSON-able data."""
    row = {
        "case": case.name,
        "shape": shape_text(case.shape),
        "dtype": case.dtype,
        "gate": case.gate.text(case),
        "key": case.key,
        "brief": getattr(case, "brief", False),
    }
    if result.error:
        return {**row, "verdict": "MISS", "error": result.error}
    row["verdict"] = "PASS" if case.gate.passed(case, result) else "MISS"
    row["share"] = case.gate.share(case, result)
    row["ceiling"] = case.gate.ceiling
    row["ceiling_rate"] = result.ceiling
    row["ceiling_moved"] = result.moved
    row["value"], row["relative"] = result.value, result.relative
    row["unit"] = getattr(case, "unit", None)
    row["peak_mb"], row["kernels"] = result.peak_mb, result.kernels
    row["moved_mb"], row["least_mb"] = result.moved_mb, getattr(case, "bytes", 0) * 1e-6
    if result.times:
        row["min_ms"], row["median_ms"] = result.best * 1e3, median(result.times) * 1e3
    row["peers"] = {name: vars(peer) for name, peer in result.peers.items()}
    failures = [f"{name} {peer.absent}" for name, peer in result.peers.items() if peer.failed]
    if failures:
        return {**row, "verdict": "MISS", "error": "; ".join(failures)}
    return row


COLUMNS = ["case", "shape", "dtype", "min ms", "median ms", "share", "gate", "", "peak MB"] + list(
    NAMES
)


def milliseconds(value):
    return "" if value is None else f"{value:.4g}"


def share_text(row):
    if row.get("error"):
        return ""
    if row["value"] is not None:
        return f"{row['value']:.3g} {row['unit']}"
    if row["relative"] is not None and row["share"] is None:
        return f"{row['relative']:.3f}×"
    if row["share"] is None:
        return ""
    moved = " ~" if row["ceiling_moved"] > STEADY else ""
    return f"{row['share']:.0%}{moved}"


def peer_text(peer):
    if peer is None:
        return ""
    if peer["absent"]:
        return peer["absent"].split(":")[0]
    few = f" ({peer['pairs']})" if peer["pairs"] < 9 else ""
    return f"{milliseconds(peer['milliseconds'])} {1 / peer['ratio']:.2f}×{few}"


def cells(row):
    peers_of = row.get("peers", {})
    return [
        row["case"],
        row["shape"],
        row["dtype"],
        milliseconds(row.get("min_ms")),
        milliseconds(row.get("median_ms")),
        share_text(row),
        row["gate"],
        row["verdict"],
        "" if row.get("peak_mb") is None else f"{row['peak_mb']:.0f}",
        *[peer_text(peers_of.get(name)) for name in NAMES],
    ]


def print_table(rows):
    table = [COLUMNS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    for line in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    for row in rows:
        if row.get("error"):
            print(f"{row['key']}: {row['error']}")


def print_worst(rows):
    lines = worst([row for row in rows if row["brief"] and not row.get("error")])
    if lines:
        print("\nThe slowest ops beside a peer's:", *lines, sep="\n  ")


def print_time(rows, seconds, took):
    """Where the run's time went: by library, and the cases that took longest."""
    share = sorted(seconds.items(), key=lambda item: -item[1])
    print("Time: " + ", ".join(f"{name} {spent / took:.0%}" for name, spent in share))
    longest = sorted(rows, key=lambda row: -row["seconds"])[:5]
    print("Longest: " + ", ".join(f"{row['key']} {row['seconds']:.0f} s" for row in longest))


LEGEND = """
A peer's cell: its ms, and its time over ours (above 1: ours is faster), median of interleaved
pairs; (n): so few pairs because one call is long. ~: the ceiling never stood still within 10 %."""


def write_results(path, cpu, rows, versions):
    """Rows measured before and not now stay."""
    old = json.loads(path.read_text()) if path.exists() else {"rows": [], "versions": {}}
    merged = {row["key"]: row for row in old["rows"]} | {row["key"]: row for row in rows}
    order = {key: i for i, key in enumerate(all_cases())}
    kept = sorted((r for r in merged.values() if r["key"] in order), key=lambda r: order[r["key"]])
    document = {
        "cpu": cpu,
        "threads": THREADS,
        "versions": old["versions"] | versions,
        "rows": kept,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def measure_all(chosen, ceiling, peers):
    """Ends at Ctrl-C with the rows that are there."""
    bench, rows, family = Bench(ceiling), [], None
    try:
        with tqdm(chosen, unit="case", bar_format="{l_bar}{bar:20}{r_bar}") as bar:
            for case in bar:
                bar.set_postfix_str(case.key)
                if case.family != family:
                    # No family inherits what another has left in the process. Peers stay: they
                    # take up to ten seconds to start.
                    bench.end_workers(("cermet",))
                    family = case.family
                if hasattr(case, "peers"):
                    case = replace(case, peers=tuple(n for n in case.peers if n in peers))
                begin = time.perf_counter()
                row = row_of(case, bench.measure(case))
                rows.append(row | {"seconds": time.perf_counter() - begin})
    except KeyboardInterrupt:
        print(f"\ninterrupted: {len(rows)} of {len(chosen)} cases were measured")
    finally:
        bench.close()
    return rows, bench.versions, bench.seconds


def main():
    arguments = parse_arguments()
    pattern = re.compile(arguments.only, re.IGNORECASE)
    chosen = [c for key, c in all_cases().items() if pattern.search(key)]
    if arguments.list:
        print("\n".join(c.key for c in chosen))
        return 0
    if not chosen:
        print(f"no case matches {arguments.only!r}")
        return 2
    begin = time.perf_counter()
    rows, versions, seconds = measure_all(chosen, arguments.ceiling, arguments.peers.split(","))
    if not rows:
        return 2
    cpu = cpu_name()
    print_table(rows)
    print(LEGEND)
    print_worst(rows)
    print(" · ".join(f"{name} {version}" for name, version in versions.items()))
    write_results(arguments.results / f"{slug(cpu)}.json", cpu, rows, versions)
    missed = sum(row["verdict"] == "MISS" for row in rows)
    took = time.perf_counter() - begin
    print_time(rows, seconds, took)
    print(f"{cpu}: {len(rows) - missed} passed, {missed} missed, {took / 60:.1f} min")
    return 1 if missed or len(rows) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
