# SPDX-License-Identifier: MIT
"""The choice among the schemes of a product by their costs (src/schedule/product_costs.cpp), for
processors that are given."""

import math
import pathlib
import random
import sys

import numpy as np
import pytest
from own_process import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import cermet.core as mx  # noqa: E402
import gemm_costs  # noqa: E402

TABLE = gemm_costs.read_table()
PROCESSORS = gemm_costs.PROCESSORS


def chosen(case, dtype, processor="half", tiles=False, **other):
    m, n, k, a_turned, b_turned = case
    sizes = (m, n, k, not a_turned, b_turned)
    dots = not tiles and processor in ("half", "full")
    facts = {**gemm_costs.facts_of(processor), "dots": dots, "tiles": tiles, **other}
    return mx._product_scheme(getattr(mx, dtype), *sizes, **facts)


def columns_are_lanes(case, dtype, processor):
    """As panels for memory make them, along k where 64 bytes run whole: rows decide on these."""
    m, n, _, a_turned, b_turned = case
    along_k = b_turned if m < n else not a_turned
    return along_k and processor == "full" and chosen(case, dtype, processor).endswith("_long")


def is_by_cost(case):
    return math.prod(case[:3]) >= 1 << 15


def drawn(count, wanted=is_by_cost, most=11, seed=5):
    rng, cases = random.Random(seed), []
    while len(cases) < count:
        m, n, k = (round(2 ** rng.uniform(1, most)) for _ in range(3))
        case = (m, n, k, rng.random() < 0.5, rng.random() < 0.5)
        if wanted(case):
            cases.append(case)
    return cases


def test_all_processors_have_costs_of_the_same_dtypes():
    dtypes = ["bfloat16", "float16", "float32"]
    assert sorted(TABLE) == sorted(
        (dtype, processor) for dtype in dtypes for processor in PROCESSORS
    )


@pytest.mark.parametrize(("dtype", "processor"), TABLE)
def test_the_table_is_that_of_the_figures(dtype, processor):
    figures = gemm_costs.figures_of(dtype, processor)
    fitted = gemm_costs.fit(dtype, processor, figures)
    for case in list(figures)[::7]:
        costs = gemm_costs.costs_of(TABLE[dtype, processor], dtype, processor, case)
        assert gemm_costs.costs_of(fitted, dtype, processor, case) == pytest.approx(
            costs, rel=0.01
        ), case


@pytest.mark.parametrize(("dtype", "processor"), TABLE)
def test_nothing_large_costs_much_more_than_the_least(dtype, processor):
    by_cost = {case: chosen(case, dtype, processor) for case in drawn(200)}
    assert len(set(by_cost.values())) >= 4
    for case, scheme in by_cost.items():
        is_large = scheme == "fma_tall" and min(case[:2]) >= 256
        if columns_are_lanes(case, dtype, processor) or is_large:  # by rows
            continue
        costs = gemm_costs.costs_of(TABLE[dtype, processor], dtype, processor, case)
        assert 0.949 * costs[scheme] <= min(costs.values()), case


@pytest.mark.parametrize(("dtype", "processor"), TABLE)
def test_the_figures_bear_the_choice_out(dtype, processor):
    """By measured times: what is chosen is mostly the fastest, or near it."""
    figures = gemm_costs.figures_of(dtype, processor)
    slower = []
    for case, us in figures.items():
        if is_by_cost(case) and math.prod(case[:3]) < 1 << 25:
            slower.append(us[chosen(case, dtype, processor)] / min(us.values()))
    assert len(slower) > 60
    assert sum(map(math.log, slower)) < math.log(1.06) * len(slower)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_processor_matters_where_costs_decide_alone(dtype):
    def differ(cases, pair=("half", "full"), **facts):
        return [c for c in cases if len({chosen(c, dtype, p, **facts) for p in pair}) > 1]

    large = drawn(200)
    assert len(differ(large)) > 10
    assert len(differ(large, ("narrow", "half"))) > 10
    assert differ(large, vector_bytes=16) == []
    if dtype == "bfloat16":
        assert differ(large, tiles=True) == []
    small = drawn(200, lambda case: not is_by_cost(case))
    assert all(columns_are_lanes(case, dtype, "full") for case in differ(small))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("processor", ["half", "full"])
def test_tiles_matter_where_they_multiply_alone(dtype, processor):
    large = drawn(300, most=12)
    with_tiles = {case: chosen(case, dtype, processor, tiles=True) for case in large}
    others = [case for case, scheme in with_tiles.items() if not scheme.startswith("amx_")]
    assert 10 < len(others) < 290
    assert [case for case in others if with_tiles[case] != chosen(case, dtype, processor)] == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_what_is_chosen_can_make_the_product(dtype, processor):
    """Whatever its size. Beside a B that lies along k, panels for memory have no costs."""
    for case in drawn(300, lambda case: True, 13):
        work = gemm_costs.work_of(dtype, processor, case)
        assert chosen(case, dtype, processor).replace("_long", "") in work, case


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_the_host_chooses_gives_the_product(dtype):
    """Of small integers, whose sums are exact."""
    rng = np.random.default_rng(0)
    cases = drawn(30, lambda case: 1 << 17 <= math.prod(case[:3]) < 1 << 22)
    for m, n, k, a_turned, b_turned in cases:
        x, y = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
        a, b = (
            mx.array((v.T if turned else v).astype(np.float32)).astype(getattr(mx, dtype))
            for v, turned in ((x, a_turned), (y, b_turned))
        )
        got = (a.T if a_turned else a) @ (b.T if b_turned else b)
        expected = mx.array((x @ y).astype(np.float32)).astype(got.dtype)
        assert mx.array_equal(got, expected), (m, n, k, a_turned, b_turned)


@pytest.mark.parametrize("features", ["generic", "avx2"])
def test_shorter_vectors_have_no_full_width(features):
    script = "import cermet.core as mx; print(mx._vector_width()[1])"
    assert run(script, CERMET_CPU_FEATURES=features).strip() == "False"


def test_few_rows_beside_a_matrix_beyond_the_caches():
    """With 64 bytes run whole: rows of the table decide, not costs."""
    along, across = (4096, 4096, False, True), (4096, 4096, False, False)
    by_dtype = {
        "float32": ["panel_four_long", "panel_long", "panel_long", "panel_long"],
        "bfloat16": ["panel_four_long", "panel_long", "panel"],
    }
    for dtype, schemes in by_dtype.items():
        cases = [(4, *along), (8, *along), (4, *across), (8, *across)]
        for case, scheme in zip(cases, schemes, strict=False):
            assert chosen(case, dtype, "full") == scheme, case
    for processor in ("half", "narrow"):
        assert "long" not in chosen((4, *along), "float32", processor)
    # In a cache others are faster.
    assert "long" not in chosen((4, 1024, 1024, False, True), "float32", "full")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_columns_are_lanes_in_short_sums_of_few_rows(dtype):
    cases = ((3, 500, 60), (7, 100, 60), (300, 6, 20), (1000, 15, 50))
    for m, n, k in cases:
        case = (m, n, k, False, m < n)
        assert columns_are_lanes(case, dtype, "full"), case
        assert "long" not in chosen(case, dtype, "half")
    for case in ((3, 500, 200, False, True), (3, 500, 60, False, False), (9, 500, 60, False, True)):
        assert not columns_are_lanes(case, dtype, "full"), case


def test_small_products_do_not_pack_whole():
    cases = {
        ("float16", 25, 40, 25, False, True): "fma_local",
        ("float16", 5, 200, 27, False, True): "fma_local",
        ("float16", 300, 25, 4, False, True): "fma",
        ("float16", 9, 20, 160, True, True): "panel_four",
        ("bfloat16", 34, 33, 27, True, True): "fma_local",
        ("bfloat16", 34, 33, 27, False, True): "fma",  # A is read in place
        ("float32", 34, 33, 27, False, True): "fma",
        ("float32", 15, 14, 303, False, True): "panel",
        ("float16", 15, 14, 303, False, True): "panel",
        ("bfloat16", 15, 14, 303, False, True): "panel",
    }
    assert {case: chosen(case[1:], case[0]) for case in cases} == cases
    # In shorter vectors all do.
    for dtype in ("float32", "float16", "bfloat16"):
        assert chosen((25, 40, 25, False, True), dtype, "narrow") == "fma_local"


def test_few_rows_beside_a_large_matrix_do_not_pack_it():
    """With narrow vectors, where the matrix lies across and the sum is long."""
    for dtype in ("float32", "bfloat16", "float16"):
        for rows in (2, 8, 16):
            assert chosen((rows, 4096, 4096, False, False), dtype, "narrow").startswith("panel")
            assert chosen((4096, rows, 4096, True, False), dtype, "narrow").startswith("panel")
    assert not chosen((64, 4096, 4096, False, False), "float32", "narrow").startswith("panel")


def test_work_is_counted():
    """Of 12 x 32 times 32 x 130 in float32, by hand: two tiles of 6 rows by three of 64 columns;
    three panels of 4 rows or two of 8, that take B by 64 or 32 columns."""
    case = (12, 130, 32, False, False)
    work = gemm_costs.work_of("float32", "half", case)
    assert list(work) == ["fma", "fma_local", "panel", "panel_long", "panel_four"]  # k is short
    tiles, counts = work["fma"]
    assert tiles == "tiles_in_place"
    assert counts["tile"] == 6 and counts["tile_k"] == 6 * 32 and counts["pack_across"] == 130 * 32
    panels, counts = work["panel"]
    assert panels == "panels_across"
    assert counts["tile_k_8"] == 2 * 4 * 32 and counts["rest_8"] == 2 * 1 * 2
    counts = work["panel_four"][1]
    assert counts["tile_k_4"] == 3 * 2 * 32 and counts["rest_4"] == 3 * 1 * 2
    assert counts.get("whole", 0) == 0  # B is packed by the items, as A is read in place
    packed = gemm_costs.work_of("float16", "half", case)
    assert packed["fma"][1]["whole"] == 1 and packed["fma_local"][1]["whole"] == 0
    work = gemm_costs.work_of("float32", "half", (12, 130, 1025, False, False))
    assert work["fma_split_k"][1]["add"] == 3 * 12 * 130


def test_a_sum_of_pieces_has_the_same_bits_on_any_number_of_threads():
    """One block of results: its pieces are shared out."""
    script = """
import cermet.core as mx

for m, n, k in [(32, 32, 8192), (6, 60, 5000), (48, 48, 1025), (200, 100, 3000)]:
    for turned in (False, True):
        for dtype in (mx.float32, mx.bfloat16, mx.float16):
            a = mx.random.normal((k, m) if turned else (m, k), key=mx.random.key(1)).astype(dtype)
            b = mx.random.normal((k, n), key=mx.random.key(2)).astype(dtype)
            for _ in range(4):
                c = (a.T if turned else a) @ b
                mx.eval(c)
            print(c.astype(mx.float32).view(mx.int32).sum().item())
"""
    printed = {run(script, CERMET_MATMUL_SCHEME="fma_split_k", CERMET_NUM_THREADS=n) for n in "123"}
    assert len(printed) == 1
