# SPDX-License-Identifier: MIT
"""Schemes of matmul, in processes that emulate tile instructions: which one the table chooses, and
that each makes every product it is wanted for. All values are small integers: sums are exact."""

import textwrap

import cermet.core as mx
import pytest
from own_process import run

HEAD = """
import re

import numpy as np
import textwrap

import cermet.core as mx

rng = np.random.default_rng(0)

def operand(rows, columns, turned, dtype):
    values = rng.integers(-4, 5, (columns, rows) if turned else (rows, columns))
    given = mx.array(values.astype(np.float32)).astype(dtype)
    mx.eval(given)
    return given, (values.T if turned else values)

def product_of(a_turned, b_turned):
    return lambda a, b: (a.T if a_turned else a) @ (b.T if b_turned else b)

def scheme_of(m, n, k, a_turned, b_turned, dtype=mx.bfloat16):
    a, x = operand(m, k, a_turned, dtype)
    b, y = operand(k, n, b_turned, dtype)
    product = product_of(a_turned, b_turned)
    got = np.array(product(a, b).astype(mx.float32))
    assert np.array_equal(got, (x @ y).astype(np.float32)), (m, n, k, a_turned, b_turned)
    return mx.explain(product, a, b).kernels[-1].scheme

# As the table names it, not by its instruction.
def named_in_ir(m, n, k, a_turned, b_turned, dtype):
    (a, _), (b, _) = operand(m, k, a_turned, dtype), operand(k, n, b_turned, dtype)
    kernel = mx.explain(product_of(a_turned, b_turned), a, b).kernels[-1]
    return re.search("scheme ([a-z_]+)", kernel.ir)[1]
"""


@pytest.mark.parametrize(
    "wanted",
    [
        "auto",
        "fma",
        "fma_local",
        "fma_tall",
        "fma_wide",
        "panel",
        "panel_long",
        "panel_four",
        "panel_four_long",
        "panel_packed",
        "panel_four_packed",
        "amx_panel",
        "amx_split",
        "amx_split_k",
    ],
)
def test_every_scheme_gives_the_product(wanted):
    run(
        HEAD
        + """
for m, n, k in [(2, 40, 130), (17, 131, 160), (33, 300, 193), (130, 9, 77), (1, 70, 20), (5, 3, 4)]:
    for turned in range(4):
        for dtype in (mx.bfloat16, mx.float32):
            scheme_of(m, n, k, turned % 2 == 1, turned > 1, dtype)
""",
        CERMET_CPU_FEATURES="amx_emulated",
        CERMET_MATMUL_SCHEME=wanted,
    )


@pytest.mark.parametrize("wanted", ["fma", "fma_local", "fma_tall"])
def test_items_go_through_all_columns_before_other_rows(wanted):
    """In short sums whose rows are no whole tiles; several blocks of both."""
    run(
        HEAD
        + """
for m, n, k in [(1100, 301, 9), (530, 1031, 40), (40, 900, 384), (1100, 320, 9), (530, 901, 385)]:
    for turned in range(4):
        for dtype in (mx.float16, mx.float32):
            scheme_of(m, n, k, turned % 2 == 1, turned > 1, dtype)
""",
        CERMET_MATMUL_SCHEME=wanted,
    )


HOST_BYTES, IS_FULL = mx._vector_width()
TILES = {"vector_bytes": 64, "full_width": True, "dots": False, "tiles": True}
HALVES = {"vector_bytes": 64, "full_width": False, "dots": False, "tiles": False}


def schemes_of(cases, dtype, features, name="scheme_of"):
    """{(m, n, k, A turned, B turned): the scheme that is chosen}"""
    code = f"for case in {list(cases)}: print({name}(*case, mx.{dtype}))"
    printed = run(HEAD + code, CERMET_CPU_FEATURES=features)
    return dict(zip(cases, printed.split(), strict=True))


def test_the_table_chooses_by_dtype_sizes_and_layout():
    cases = {
        (16, 300, 256, False, True): "amx_panel",  # a layer's weight, read in place
        (300, 16, 4096, False, False): "amx_bf16",
        (16, 300, 256, False, False): "amx_bf16",
        (16, 300, 256, True, True): "amx_panel",  # B alone has to lie along k
        (64, 64, 64, False, True): "amx_bf16",
        (4, 2000, 1100, False, False): "amx_bf16",  # packed once, where B serves again
        (2000, 4, 1100, True, False): "panel_four",
        (4, 300, 300, False, False): "amx_bf16",
        (40, 300, 5, False, False): "fma",
        (40, 300, 7, False, False): "amx_bf16",
        (1, 300, 64, False, True): "panel",
    }
    assert schemes_of(cases, "bfloat16", "amx_emulated") == cases
    singles = {  # of float64, which has no costs
        (1, 300, 64, False, False): "panel",
        (1, 300, 30, False, False): "fold",
        (1, 300, 64, False, True): "fold",
        (1, 30, 64, False, True): "fold",
        (1, 3000, 640, False, True): "fold",  # long streams
        (3, 300, 463, False, False): "panel_four",
        (3, 300, 463, True, False): "panel_four",
        (3, 300, 20, False, True): "fma_local",
        (6, 300, 463, False, False): "panel",
        (6, 300, 40, False, True): "fma_local",
        (6, 200, 900, False, True): "panel_four",  # two items, not one
        (10, 300, 90, False, True): "fma",
        (10, 300, 140, False, True): "panel_four",
        (300, 16, 90, False, False): "panel",
        (16, 300, 90, False, False): "panel",
        (16, 300, 60, False, False): "fma",
        (60, 80, 1320, False, True): "panel",
        (60, 300, 1320, False, True): "fma",
        (120, 389, 493, False, False): "fma_local",  # 8 items, not 3 and a bit
        (120, 389, 493, True, False): "fma",
        (80, 60, 1320, False, True): "fma_local",
        (58, 37, 700, False, False): "panel_four",
        (718, 6, 322, True, True): "panel_four",
        (500, 67, 300, False, False): "panel_four",
        (300, 90, 300, False, False): "fma",
        (300, 90, 300, True, False): "panel_four",
        (500, 97, 300, False, True): "panel_four",
        (1100, 97, 300, False, True): "fma",
        (250, 72, 1100, True, False): "panel_long",
        (400, 120, 1100, True, False): "fma",
    }
    for (m, n, k, a, b), scheme in singles.items():
        chosen = mx._product_scheme(mx.float64, m, n, k, not a, b, **HALVES)
        # A single row without panels is a fold.
        assert ("fold" if (m, chosen) == (1, "fma") else chosen) == scheme, (m, n, k, a, b)
    assert mx._product_scheme(mx.float32, 133, 389, 493, True, False, **TILES) == "amx_split_local"
    large = {
        (512, 512, 512, False, False): True,
        (256, 3000, 400, False, True): True,
        (255, 3000, 400, False, True): False,  # few rows
        (512, 512, 399, False, False): False,  # a short sum
        (999, 999, 640, True, False): False,  # A is packed
        (1000, 1000, 640, True, False): True,
        (256, 1000, 640, True, True): True,
        (1000, 999, 640, True, True): False,
    }
    whole = {**HALVES, "full_width": True}
    for (m, n, k, a, b), is_tall in large.items():
        for dtype in (mx.float32, mx.float64):
            by_l2 = {
                mib: mx._product_scheme(dtype, m, n, k, not a, b, **whole, l2_bytes=mib << 20)
                for mib in (1, 2)
            }
            # Of other sizes costs decide, of float32.
            if is_tall or dtype == mx.float64:
                assert (by_l2[2] == "fma_tall") == is_tall, (m, n, k, a, b)
            assert by_l2[1] != "fma_tall"
    for dtype in (mx.float16, mx.bfloat16):
        for m, n in ((1500, 1500), (600, 2000)):
            chosen = mx._product_scheme(dtype, m, n, 1000, True, False, **whole, l2_bytes=2 << 20)
            assert chosen == "fma_tall"
    by_dots = {**whole, "dots": True, "l2_bytes": 2 << 20}
    chosen = mx._product_scheme(mx.bfloat16, 1500, 1500, 1000, True, False, **by_dots)
    assert chosen != "fma_tall"
    found = schemes_of(cases, "bfloat16", "avx2")
    plain = {"fma", "fma_local", "fma_split_k", "panel", "panel_four", "panel_long", "fold"}
    assert set(found.values()) <= plain and len(set(found.values())) > 3


WIDE = {"vector_bytes": 64, "full_width": IS_FULL, "dots": False, "tiles": False}
WIDE["l2_bytes"] = (2 if mx._processor() == "large_l2" else 1) << 20


@pytest.mark.parametrize(
    ("features", "facts"),
    [
        ("generic", {**WIDE, "vector_bytes": 16, "full_width": False}),
        ("avx2", {**WIDE, "vector_bytes": 32, "full_width": False}),
        *([("avx512", WIDE)] if HOST_BYTES == 64 else []),
    ],
)
def test_a_plan_takes_the_scheme_that_is_chosen(features, facts):
    sizes = [(3, 300, 463), (6, 300, 600), (40, 300, 150), (300, 16, 2000), (1, 300, 64)]
    cases = [(*size, a, b) for size in sizes for a in (False, True) for b in (False, True)]
    for name in ("float32", "float16"):
        dtype = getattr(mx, name)
        planned = schemes_of(cases, name, features, "named_in_ir")
        for (m, n, k, a, b), scheme in planned.items():
            assert scheme == mx._product_scheme(dtype, m, n, k, not a, b, **facts)


def test_single_rows_beside_what_lies_along_k():
    """Without panels a single row is a fold of each row of the other operand."""
    wide = {**WIDE, "full_width": False, "dots": True}
    narrow = {**WIDE, "vector_bytes": 32, "full_width": False}
    cases = {
        ("float32", 300, 64): ("fold", "fold"),
        ("float32", 300, 16): ("fold", "panel"),
        ("float32", 2000, 3): ("fold", "panel"),
        ("float32", 2000, 128): ("fold", "panel"),
        ("float32", 5000, 1000): ("fold", "fold"),
        ("bfloat16", 8, 1000): ("fold", "fold"),
        ("bfloat16", 50, 64): ("fold", "fold"),
        ("bfloat16", 300, 512): ("panel", "fold"),
        ("bfloat16", 3000, 32): ("fold", "fold"),
        ("bfloat16", 300, 32): ("panel", "panel"),
        ("bfloat16", 4096, 4096): ("panel", "fold"),
        ("float16", 3000, 4): ("fold", "panel"),
        ("float16", 3000, 512): ("panel", "fold"),
    }
    for (dtype, n, k), schemes in cases.items():
        for m, columns in ((1, n), (n, 1)):
            chosen = [
                mx._product_scheme(getattr(mx, dtype), m, columns, k, True, True, **facts)
                for facts in (wide, narrow)
            ]
            made = tuple(c if c == "panel" else "fold" for c in chosen)
            assert made == schemes, (dtype, m, columns, k)


@pytest.mark.parametrize("features", ["generic", "avx2", "avx512", "amx_emulated"])
def test_many_small_products(features):
    """Narrow templates, panels and sums of few terms, of batches; values in both layouts, with what
    follows, and of operands that the batch shares."""
    script = """
    def check(got, right, *what):
        assert np.array_equal(np.array(got.astype(mx.float32)), right.astype(np.float32)), what

    sizes = (1, 3, 6, 8, 9, 12, 16, 17, 26, 31, 33, 49)
    for m in sizes:
        for n in sizes:
            for k in (1, 3, 8, 12, 24, 50):
                x = rng.integers(-4, 5, (18, m, k))
                y = rng.integers(-4, 5, (18, k, n))
                dtype = (mx.float32, mx.float32, mx.bfloat16, mx.float64)[(m + n + k) % 4]
                a = mx.array(x.astype(np.float32)).astype(dtype)
                b = mx.array(y.astype(np.float32)).astype(dtype)
                turned = mx.array(y.swapaxes(1, 2).astype(np.float32)).astype(dtype)
                mx.eval(a, b, turned)
                right = x @ y
                check(a @ b, right, m, n, k, dtype)
                check(a @ mx.swapaxes(turned, 1, 2), right, m, n, k, dtype)
                check(mx.maximum(a @ b + a[0, 0, 0], 0), np.maximum(right + x[0, 0, 0], 0), m, n, k)
                check(mx.swapaxes(a @ b, 1, 2) * 1, right.swapaxes(1, 2), m, n, k)
                check(a @ b[0], x @ y[0], m, n, k)
                check(a[0] @ b, x[0] @ y, m, n, k)
    """
    run(HEAD + textwrap.dedent(script), CERMET_CPU_FEATURES=features)


@pytest.mark.parametrize("guard", ["guard", "guard_front"])
@pytest.mark.parametrize("features", ["avx2", "avx512"])
def test_small_products_read_nothing_beside_their_operands(guard, features):
    """Also of parts of rows, whose ends and beginnings are not those of what is in memory."""
    script = """
    for m, k, n in ((6, 5, 7), (12, 9, 30), (20, 17, 20), (33, 3, 49), (64, 4, 64), (8, 1, 1)):
        x = rng.integers(-4, 5, (16, m, k)).astype(np.float32)
        y = rng.integers(-4, 5, (16, k, n)).astype(np.float32)
        a, b = mx.array(x), mx.array(y)
        assert np.array_equal(np.array(a @ b), x @ y), (m, k, n)
        cut = slice(1, None) if n > 1 else slice(None)
        assert np.array_equal(np.array(a @ b[..., cut]), x @ y[..., cut]), (m, k, n)
        assert np.array_equal(np.array(a @ b[..., : n // 2 + 1]), x @ y[..., : n // 2 + 1])
        half = (k + 1) // 2
        right = x[..., -half:] @ y[:, -half:]
        assert np.array_equal(np.array(a[..., -half:] @ b[:, -half:]), right), (m, k, n)
    """
    run(HEAD + textwrap.dedent(script), CERMET_CPU_FEATURES=features, CERMET_ALLOCATOR=guard)


def test_many_small_products_do_not_pack(tmp_path):
    """Where vectors have 64 bytes: few rows read B where it lies."""
    script = """
    a, b = mx.zeros((32, 12, 40)), mx.zeros((32, 40, 30))
    mx.eval(a @ b)
    print(mx._vector_width()[0])
    """
    dump = {"CERMET_DUMP": str(tmp_path), "CERMET_KERNEL_CACHE": "off"}
    width = run(HEAD + textwrap.dedent(script), CERMET_CPU_FEATURES="avx512", **dump)
    tiled = [path.read_text() for path in tmp_path.glob("*_simplify_tiled.ir")]
    if int(width) == 64:
        products = [text for text in tiled if "micro gemm" in text]
        assert len(products) == 1 and "micro pack" not in products[0]
