# SPDX-License-Identifier: MIT
"""docs/ops.md, generated from the table of ops in the extension.

    python tools/ops_page.py [--output FILE]

Run it after a change of a row; a test compares.
"""

import argparse
import pathlib

import cermet.core as mx

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/ops.md"
HEAD = """# Ops

Made by `tools/ops_page.py` from the table of ops, which the tests hold to what it says. An op
is a row: what it accepts, how it is differentiated and batched, how it becomes part of a
kernel, how exact it is. Functions that are not here (`mean`, `where`, `clip`, `split`,
`einsum`, …) are made of these ops and cost nothing of their own.

- **dtypes**: `b` bool, `u` `i` integers of 8 to 64 bits without and with sign, `f` float16,
  bfloat16, float32, float64, `c` complex64, complex128. A function of floats that is given
  integers computes in float32.
- **derivative**: *elementwise* (a partial derivative for each argument, in both modes),
  *linear* and *bilinear* (the op itself forward, its transpose backward), *own* (both modes by
  rules of its own), *derived* (through the graph it stands for), *that of its argument*, or
  none. All go to any order.
- **vmap**: how a batch axis goes through: *broadcast*, *axes shift*, *batch axes* of its own,
  *derived*, *rule*.
- **max ULP**: of the result in float32; `0` is exact or correctly rounded, half types are
  rounded once more.
- **fuses as**: *map* is computed where it is read, in any kernel; *view* is a way to index, and
  moves nothing unless it must; *fold* and *scan* take what comes before into their loop and
  what follows into the same kernel; *product* takes a chain before it into its packing and a
  chain after it into its store; *update* writes in place when nobody else holds the target;
  *kernel* is one kernel of its own form, with its neighbours; *graph* is planned as the ops it
  stands for.

"""
FUSES = {
    "map": "map",
    "move": "view",
    "fold": "fold",
    "scan": "scan",
    "contract": "product",
    "composite": "graph",
    "update": "update",
    "kernel": "kernel",
}
DERIVATIVES = {"opaque": "own", "zero": "none", "first": "that of its argument"}
VMAPS = {"axis shift": "axes shift", "axis map": "rule", "custom": "rule"}
KINDS = {
    "b": ["bool"],
    "u": [f"uint{n}" for n in (8, 16, 32, 64)],
    "i": [f"int{n}" for n in (8, 16, 32, 64)],
    "f": ["float16", "bfloat16", "float32", "float64"],
    "c": ["complex64", "complex128"],
}
INTERNAL = {"custom_call"}  # how transforms see a function with rules of its own


def dtypes(accepts):
    names = {str(d).rpartition(".")[2] for d in accepts}
    parts = []
    for letter, members in KINDS.items():
        have = [m for m in members if m in names]
        if have == members:
            parts.append(letter)
        else:
            parts += have
    return " ".join(parts)


def function_of(name):
    """How Python calls it: `mx.exp`; the bare name of what other functions are made of."""
    for module, prefix in ((mx, "mx."), (mx.fast, "mx.fast."), (mx.random, "mx.random.")):
        if hasattr(module, name):
            return f"`{prefix}{name}`"
    return name


def page():
    lines = [
        "| op | dtypes | derivative | vmap | max ULP | fuses as | what |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in mx._op_table():
        if row["name"] in INTERNAL:
            continue
        cells = [
            function_of(row["name"]),
            dtypes(row["accepts"]),
            DERIVATIVES.get(row["derivative"], row["derivative"]),
            VMAPS.get(row["vmap"], row["vmap"]),
            f"{row['max_ulp']:g}",
            FUSES[row["lowering"]],
            row["doc"].replace("|", "\\|"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=PAGE)
    parser.parse_args().output.write_text(page())


if __name__ == "__main__":
    main()
