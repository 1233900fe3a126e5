# SPDX-License-Identifier: MIT
"""Products with chosen matrices, of segments and of masked blocks, against NumPy in double and the
MLX wheel: values, what they cost in memory, and by each way that products are made in.
"""

import cermet.core as mx
import ml_dtypes  # noqa: F401  bfloat16 for NumPy
import mlx.core
import numpy as np
import own_process
import pytest

LIMITS = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-13}
LIMITS |= {"complex64": 4e-6, "complex128": 1e-13}


def sample(rng, shape, dtype):
    """Values as the dtype holds them, in double, and the array."""
    x = rng.uniform(-1, 1, shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.uniform(-1, 1, shape)
    elif "int" in dtype:
        x = np.floor(x * 9) if dtype[0] == "i" else np.floor(np.abs(x) * 9)
    a = mx.array(x, dtype=getattr(mx, dtype))
    wide = mx.complex128 if np.iscomplexobj(x) else mx.float64
    return np.array(a.astype(wide)), a


def check(got, want, dtype, size=1.0, what=""):
    assert got.shape == want.shape, what
    wide = np.array(got.astype(mx.complex128 if np.iscomplexobj(want) else mx.float64))
    limit = LIMITS.get(dtype, 0)
    np.testing.assert_allclose(wide, want, rtol=limit, atol=limit * size, err_msg=what)


# --- gather_mm ---

# shapes of a and b, then of lhs_indices and rhs_indices (None: not given)
CALLS = {
    "rows": ((4, 1, 8), (3, 8, 5), None, (4,)),
    "rows of top-2": ((6, 1, 1, 8), (3, 8, 5), None, (6, 2)),
    "many rows": ((40, 1, 24), (3, 24, 70), None, (40,)),
    "many rows of top-2": ((40, 1, 1, 24), (5, 24, 70), None, (40, 2)),
    "few rows each": ((30, 3, 24), (4, 24, 70), None, (30,)),
    "matrices": ((5, 40, 24), (4, 24, 33), None, (5,)),
    "both": ((5, 2, 9), (4, 9, 7), (3, 1), (6,)),
    "left alone": ((5, 2, 9), (4, 9, 7), (3, 4), None),
    "neither": ((3, 4, 2, 9), (4, 9, 7), None, None),
    "batches of both": ((2, 3, 4, 8), (5, 2, 8, 6), (7,), (7,)),
    "one matrix": ((2, 8), (8, 5), None, (3,)),
    "vector, matrices": ((8,), (4, 8, 5), None, (3,)),
    "matrices, vector": ((4, 2, 8), (8,), (3,), None),
    "scalar index": ((4, 1, 8), (3, 8, 5), None, ()),
    "no indices": ((4, 1, 8), (3, 8, 5), (0,), (0,)),
    "empty sum": ((40, 1, 0), (3, 0, 5), None, (40,)),
    "empty rows": ((0, 1, 8), (3, 8, 5), None, (0,)),
}


def batch_count(shape):
    return int(np.prod(shape[:-2], dtype=int))


def indices_of(rng, name):
    of_a, of_b, left, right = CALLS[name]
    return [
        None if shape is None else rng.integers(0, batch_count(of), shape)
        for of, shape in ((of_a, left), (of_b, right))
    ]


def gathered(x, y, left, right):
    """By NumPy: what `take` and `matmul` give."""
    if left is not None:
        x = x.reshape(batch_count(x.shape), *x.shape[-2:])[left]
    if right is not None:
        y = y.reshape(batch_count(y.shape), *y.shape[-2:])[right]
    return np.matmul(x, y)


@pytest.mark.parametrize("name", CALLS)
def test_gather_mm(rng, name):
    of_a, of_b, *_ = CALLS[name]
    for dtype in (*LIMITS, "int8", "uint16", "int64"):
        x, a = sample(rng, of_a, dtype)
        y, b = sample(rng, of_b, dtype)
        left, right = indices_of(rng, name)
        given = [None if i is None else mx.array(i.astype(np.int32)) for i in (left, right)]
        want = gathered(x, y, left, right)
        for in_order in (False, True):  # a hint that is wrong costs time alone
            got = mx.gather_mm(a, b, *given, sorted_indices=in_order)
            check(got, want, dtype, np.sqrt(of_a[-1] + 1), f"{name}({dtype}, {in_order})")
        assert got.dtype == (a @ mx.swapaxes(a, -1, -2) if a.ndim > 1 else a @ a).dtype


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("no indices", "empty rows")])
def test_gather_mm_as_the_wheel(rng, name):
    of_a, of_b, *_ = CALLS[name]
    x, y = (rng.uniform(-1, 1, s).astype(np.float32) for s in (of_a, of_b))
    left, right = indices_of(rng, name)
    with mlx.core.stream(mlx.core.cpu):
        theirs = mlx.core.gather_mm(
            *(mlx.core.array(v) for v in (x, y)),
            *(None if i is None else mlx.core.array(i.astype(np.int32)) for i in (left, right)),
        )
        theirs = np.array(theirs)
    ours = mx.gather_mm(
        mx.array(x), mx.array(y), *(None if i is None else mx.array(i) for i in (left, right))
    )
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.array(ours), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_gather_mm_indices(rng, dtype):
    """Of any integer dtype; negative ones count from the end."""
    x, a = sample(rng, (40, 1, 8), "float32")
    y, b = sample(rng, (3, 8, 5), "float32")
    indices = rng.integers(-3 if dtype[0] == "i" else 0, 3, 40).astype(dtype)
    for in_order in (False, True):
        got = mx.gather_mm(a, b, rhs_indices=mx.array(indices), sorted_indices=in_order)
        check(got, np.matmul(x, y[indices]), "float32", 3)


@pytest.mark.parametrize("rows, index", [(2, 3), (40, 3), (40, -4)])
def test_gather_mm_out_of_range(rows, index):
    indices = np.zeros(rows, np.int32)
    indices[-1] = index
    for in_order in (False, True):
        got = mx.gather_mm(
            mx.ones((rows, 1, 8)),
            mx.ones((3, 8, 5)),
            rhs_indices=mx.array(indices),
            sorted_indices=in_order,
        )
        with pytest.raises(IndexError, match=rf"{index}\b.*axis 0.*3"):
            mx.eval(got)


def test_few_rows_are_one_kernel():
    """The matrices are read where they lie."""
    a, b = mx.zeros((4, 1, 64)), mx.zeros((8, 64, 96))
    indices = mx.array([0, 5, 2, 0])
    f = lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i)  # noqa: E731
    assert len(mx.explain(f, a, b, indices).kernels) == 1
    assert len(mx.explain(f, mx.zeros((4, 40, 64)), b, indices).kernels) == 1


def test_rows_in_order_are_one_kernel():
    f = lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i, sorted_indices=True)  # noqa: E731
    plan = mx.explain(f, mx.zeros((64, 1, 64)), mx.zeros((8, 64, 96)), mx.zeros((64,), mx.int32))
    assert [kernel.scheme[-3:] for kernel in plan.kernels] != ["old"]  # "fold": a row at a time
    assert len(plan.kernels) == 1


def peak_of(f, *args):
    mx.eval(*args)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(f(*args))
    return mx.get_peak_memory() - before


@pytest.mark.parametrize("in_order", [False, True])
def test_no_matrix_for_each_row(rng, in_order):
    """Neither the product nor its derivatives take memory for rows x matrix."""
    rows, experts, inner, outer = 256, 4, 128, 160
    indices = np.sort(rng.integers(0, experts, rows)).astype(np.int32)
    a, b = mx.ones((rows, 1, inner)), mx.ones((experts, inner, outer))
    i = mx.array(indices)

    def f(a, b):
        return mx.gather_mm(a, b, rhs_indices=i, sorted_indices=in_order)

    whole = rows * inner * outer * 4
    assert peak_of(f, a, b) < whole / 10
    assert peak_of(mx.grad(lambda a, b: mx.sum(f(a, b) ** 2), argnums=(0, 1)), a, b) < whole / 10


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "float64"])
@pytest.mark.parametrize("rows", [1, 3])
def test_gather_mm_gradients(rng, dtype, in_order, rows):
    count, experts = 60, 5
    x, a = sample(rng, (count, rows, 24), dtype)
    y, b = sample(rng, (experts, 24, 70), dtype)
    g, cotangent = sample(rng, (count, rows, 70), dtype)
    indices = rng.integers(0, experts - 1, count)  # one matrix has no rows
    indices = np.sort(indices) if in_order else indices
    i = mx.array(indices)

    def f(a, b):
        return mx.gather_mm(a, b, rhs_indices=i, sorted_indices=in_order)

    _, (of_a, of_b) = mx.vjp(f, [a, b], [cotangent])
    adjoint = lambda v: np.conj(np.swapaxes(v, -1, -2))  # noqa: E731
    check(of_a, np.matmul(g, adjoint(y[indices])), dtype, 9)
    want = np.zeros_like(y)
    np.add.at(want, indices, np.matmul(adjoint(x), g))
    check(of_b, want, dtype, 9)


@pytest.mark.parametrize(
    "variables",
    [{"CERMET_CPU_FEATURES": level} for level in ("generic", "avx2", "amx_emulated")]
    + [
        {"CERMET_CPU_FEATURES": "amx_emulated", "CERMET_MATMUL_F32": "fma"},
        {"CERMET_ALLOCATOR": "guard"},
    ],
    ids=lambda v: "-".join(v.values()),
)
def test_groups_on_other_processors(variables):
    """Runs of rows and segments of sums, across the blocks that products are made of; small
    integers, so that all sums are exact, and infinity and NaN, which must stay in their groups."""
    script = """
    import numpy as np
    import cermet.core as mx
    rng = np.random.default_rng(0)
    for rows, inner, outer, experts in ((300, 131, 270, 3), (150, 40, 33, 70), (37, 300, 17, 2)):
        x = rng.integers(-4, 5, (rows, 1, inner))
        y = rng.integers(-4, 5, (experts, inner, outer))
        g = rng.integers(-4, 5, (rows, 1, outer))
        i = np.sort(rng.integers(0, experts, rows))
        for dtype in (mx.float32, mx.bfloat16, mx.int32):
            for turned in (False, True):
                a, c = (mx.array(v).astype(dtype) for v in (x, g))
                b = mx.array(np.swapaxes(y, 1, 2) if turned else y).astype(dtype)
                def product(a, b):
                    b = mx.swapaxes(b, 1, 2) if turned else b
                    return mx.gather_mm(a, b, rhs_indices=mx.array(i), sorted_indices=True)
                made = product(a, b)
                mx.eval(made)  # rounded to its dtype
                got = np.array(made.astype(mx.float32))
                want = np.matmul(x, y[i])
                if dtype == mx.bfloat16:
                    want = np.array(mx.array(want).astype(dtype).astype(mx.float32))
                assert np.array_equal(got, want), (rows, inner, outer, experts, dtype, turned)
                if dtype == mx.int32:
                    continue
                of_b = mx.vjp(lambda b: product(a, b), [b], [c])[1][0]
                mx.eval(of_b)
                want = np.zeros(y.shape)
                np.add.at(want, i, np.matmul(np.swapaxes(x, 1, 2), g))
                want = np.array(mx.array(want).astype(dtype).astype(mx.float32))
                want = np.swapaxes(want, 1, 2) if turned else want
                got = np.array(of_b.astype(mx.float32))
                assert np.array_equal(got, want), (rows, inner, outer, experts, dtype, turned)
    x[5] = np.int64(1)
    for value in (np.inf, np.nan):
        a = np.ones((130, 1, 131), np.float32)
        b = np.ones((3, 131, 129), np.float32)
        i = np.sort(rng.integers(0, 3, 130))
        b[1, 3, 5] = value
        got = np.array(mx.gather_mm(mx.array(a), mx.array(b), rhs_indices=mx.array(i),
                                    sorted_indices=True))
        assert np.array_equal(np.isfinite(got[:, 0, 5]), i != 1)
        assert np.isfinite(got[:, 0, :5]).all()
        s = np.array([[0, 40], [40, 90], [90, 131]])
        left, right = np.ones((70, 131), np.float32), np.ones((131, 129), np.float32)
        right[50, 7] = left[3, 100] = value
        got = np.array(mx.segmented_mm(mx.array(left), mx.array(right), mx.array(s)))
        bad = ~np.isfinite(got)
        assert bad[1, :, 7].all() and bad[2, 3].all() and bad.sum() == 70 + 129
    """
    own_process.run(script, **variables)


def test_gather_mm_compiled_for_any_size(rng):
    f = mx.compile(lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i), shapeless=True)
    for rows in (1, 7, 40, 300):
        x, a = sample(rng, (rows, 1, 24), "float32")
        y, b = sample(rng, (4, 24, 33), "float32")
        i = rng.integers(0, 4, rows)
        check(f(a, b, mx.array(i)), np.matmul(x, y[i]), "float32", 5)


# --- segmented_mm ---

SEGMENTS = [
    [[0, 3], [3, 10], [5, 5]],
    [[2, 9], [0, 10], [4, 1]],
    [[[0, 300], [300, 310]], [[10, 600], [599, 600]]],
    [1, 4],
    [[-5, 4], [590, 1000]],
]


def segmented(x, y, bounds):
    out = np.zeros((*bounds.shape[:-1], x.shape[0], y.shape[1]), np.result_type(x, y))
    for place in np.ndindex(bounds.shape[:-1]):
        first, past = np.clip(bounds[place], 0, x.shape[1])
        out[place] = x[:, first:past] @ y[first:past]
    return out


@pytest.mark.parametrize("bounds", SEGMENTS, ids=str)
@pytest.mark.parametrize("sizes", [(4, 5), (70, 130), (1, 70), (70, 1), (1, 1)], ids=str)
def test_segmented_mm(rng, sizes, bounds):
    bounds = np.array(bounds)
    for dtype in (*LIMITS, "int16"):
        x, a = sample(rng, (sizes[0], 600), dtype)
        y, b = sample(rng, (600, sizes[1]), dtype)
        want = segmented(x, y, bounds)
        for turned in (False, True):
            if turned:
                a, b = (mx.contiguous(v.T).T for v in (a, b))
            got = mx.segmented_mm(a, b, mx.array(bounds))
            check(got, want, dtype, 25, f"{dtype}, {turned}")


@pytest.mark.parametrize("dtype", ["uint32", "int32", "int64", "uint8"])
def test_segmented_mm_as_the_wheel(rng, dtype):
    x, y = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((4, 10), (10, 5)))
    bounds = np.array([[0, 3], [3, 10], [5, 5], [9, 2]]).astype(dtype)
    with mlx.core.stream(mlx.core.cpu):
        theirs = np.array(mlx.core.segmented_mm(*(mlx.core.array(v) for v in (x, y, bounds))))
    ours = mx.segmented_mm(*(mx.array(v) for v in (x, y, bounds)))
    np.testing.assert_allclose(np.array(ours), theirs, rtol=1e-5, atol=1e-6)


def test_segmented_mm_of_nothing():
    a, b = mx.ones((4, 10)), mx.ones((10, 5))
    assert mx.segmented_mm(a, b, mx.zeros((0, 2), mx.int32)).shape == (0, 4, 5)
    got = mx.segmented_mm(mx.ones((4, 0)), mx.ones((0, 5)), mx.zeros((3, 2), mx.int32))
    np.testing.assert_array_equal(np.array(got), np.zeros((3, 4, 5)))


# --- block_masked_mm ---


def blocks(size, block):
    return -(-size // block)


def spread(mask, block, shape):
    mask = np.repeat(np.repeat(mask, block, -2), block, -1)
    return mask[..., : shape[-2], : shape[-1]]


def masked_call(rng, sizes, block, kind, which, batch=(), mask_batch=()):
    """Operands and masks as NumPy arrays."""
    m, k, n = sizes
    x, y = rng.uniform(-1, 1, (*batch, m, k)), rng.uniform(-1, 1, (*batch, k, n))
    masks = {}
    for name, rows, columns in (("out", m, n), ("lhs", m, k), ("rhs", k, n)):
        if name[0] not in which:
            continue
        mask = rng.random((*mask_batch, blocks(rows, block), blocks(columns, block)))
        masks[f"mask_{name}"] = mask > 0.5 if kind == "bool" else mask.astype(kind)
    return x.astype(np.float32), y.astype(np.float32), masks


def block_masked(x, y, block, masks):
    def apply(v, name):
        mask = masks.get(f"mask_{name}")
        return v if mask is None else v * spread(mask, block, v.shape)

    return apply(apply(x, "lhs") @ apply(y, "rhs"), "out")


@pytest.mark.parametrize("which", ["", "o", "l", "r", "lr", "olr"])
@pytest.mark.parametrize("kind", ["bool", "float32"])
@pytest.mark.parametrize(
    "sizes, block, batch, mask_batch",
    [
        ((70, 65, 33), 32, (), ()),
        ((130, 200, 64), 64, (), ()),
        ((7, 5, 3), 2, (2, 3), (2, 3)),
        ((40, 70, 36), 32, (2, 3), (3,)),
        ((40, 70, 36), 32, (2, 3), (2, 1)),
    ],
    ids=str,
)
def test_block_masked_mm(rng, sizes, block, batch, mask_batch, kind, which):
    x, y, masks = masked_call(rng, sizes, block, kind, which, batch, mask_batch)
    given = {name: mx.array(mask) for name, mask in masks.items()}
    want = block_masked(x.astype(np.float64), y.astype(np.float64), block, masks)
    got = mx.block_masked_mm(mx.array(x), mx.array(y), block, **given)
    check(got, want, "float32", 8)
    turned = [mx.swapaxes(mx.contiguous(mx.swapaxes(mx.array(v), -1, -2)), -1, -2) for v in (x, y)]
    check(mx.block_masked_mm(*turned, block, **given), want, "float32", 8)
    if block not in (32, 64):
        return
    with mlx.core.stream(mlx.core.cpu):
        theirs = mlx.core.block_masked_mm(
            mlx.core.array(x),
            mlx.core.array(y),
            block,
            **{name: mlx.core.array(mask) for name, mask in masks.items()},
        )
        theirs = np.array(theirs)
    np.testing.assert_allclose(np.array(got), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "int8"])
def test_block_masked_mm_dtypes(rng, dtype):
    x, a = sample(rng, (70, 65), dtype)
    y, b = sample(rng, (65, 33), dtype)
    masks = {"mask_out": rng.random((3, 2)) > 0.5, "mask_lhs": rng.random((3, 3)) > 0.5}
    got = mx.block_masked_mm(a, b, 32, **{name: mx.array(m) for name, m in masks.items()})
    check(got, block_masked(x, y, 32, masks), dtype, 8)
    assert got.dtype == (a @ b).dtype


def test_bool_masks_clear_what_is_not_finite():
    a, b = mx.full((32, 32), float("nan")), mx.ones((32, 32))
    clear = mx.zeros((1, 1), mx.bool_)
    for name in ("mask_out", "mask_lhs"):
        got = mx.block_masked_mm(a, b, 32, **{name: clear})
        np.testing.assert_array_equal(np.array(got), np.zeros((32, 32)))
        got = mx.block_masked_mm(a, b, 32, **{name: clear.astype(mx.float32)})
        assert np.isnan(np.array(got)).all()
