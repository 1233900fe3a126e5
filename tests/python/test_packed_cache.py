# SPDX-License-Identifier: MIT
"""Packed operands of products that are kept: the same bits, right after every change."""

import gc

import cermet.core as mx
import numpy as np
import own_process
import pytest

M, N, K = 160, 192, 256
USES = 3  # until a packing is kept


def hits():
    return mx.counters()["packed_hits"]


@pytest.fixture
def operands():
    """a.T @ w packs w whole, on every processor."""
    rng = np.random.default_rng(7)
    mx.clear_cache()
    return [mx.array(rng.standard_normal(s).astype(np.float32)) for s in ((K, M), (K, N))]


def product(a, w):
    y = a.T @ w
    mx.eval(y)
    return np.array(y)


def used(a, w, times=USES):
    for _ in range(times):
        y = product(a, w)
    return y


def reference(a, w):
    return np.array(a, np.float64).T @ np.array(w, np.float64)


def test_the_bits_stay(operands):
    a, w = operands
    first = product(a, w)
    before = hits()
    for _ in range(5):
        np.testing.assert_array_equal(product(a, w), first)
    assert hits() - before == 5 - (USES - 1)
    np.testing.assert_allclose(first, reference(a, w), atol=1e-4)


def test_another_left_operand_uses_it(operands):
    a, w = operands
    used(a, w)
    before = hits()
    for rows in (M, 64, 200):  # the packing does not depend on them
        b = mx.random.normal((K, rows))
        np.testing.assert_allclose(product(b, w), reference(b, w), atol=1e-4)
    assert hits() > before


def test_compiled_and_with_an_epilogue(operands):
    a, w = operands
    f = mx.compile(lambda a, w: mx.maximum(a.T @ w, 0) + 1)
    first = np.array(f(a, w))
    before = hits()
    for _ in range(4):
        np.testing.assert_array_equal(np.array(f(a, w)), first)
    assert hits() - before == 2


def test_kernels_that_pack_alike_share_what_is_packed(operands):
    a, w = operands
    f = mx.compile(lambda a, w: mx.maximum(a.T @ w, 0) + 1)
    want = np.maximum(product(a, mx.array(w)), 0) + 1
    mx.clear_cache()
    used(a, w)
    before = hits()
    np.testing.assert_array_equal(np.array(f(a, w)), want)
    assert hits() == before + 1


def test_layouts_apart_are_packed_apart():
    rng = np.random.default_rng(5)
    a = mx.array(rng.standard_normal((192, 160)).astype(np.float32))
    whole = mx.array(rng.standard_normal((400, 400)).astype(np.float32))
    square = whole[::2, ::2][:192, :192]
    for w in (whole[:192, :192], whole[:192, :192].T, square, square.T, whole[1:193, 3:195]):
        np.testing.assert_allclose(used(a, w, 5), reference(a, w), atol=1e-4)


@pytest.mark.parametrize("layers", [2, 3])
def test_batches_of_equal_products(operands, layers):
    a, w = operands
    weights = [w + i for i in range(layers)]
    mx.eval(weights)
    for _ in range(5):
        results = [a.T @ v for v in weights]
        mx.eval(results)
        for y, v in zip(results, weights, strict=True):
            np.testing.assert_allclose(np.array(y), reference(a, v), atol=2e-3)


def test_what_is_written_is_packed_anew(operands):
    a, w = operands
    used(a, w)
    w[0] = 5
    np.testing.assert_allclose(product(a, w), reference(a, w), atol=1e-3)
    used(a, w)
    w += 1
    np.testing.assert_allclose(product(a, w), reference(a, w), atol=1e-3)


def test_in_place_by_a_compiled_step(operands):
    a, w = operands
    state = [w]

    @mx.compile
    def step(a):
        state[0] = state[0] * 0.5 + 1
        return a.T @ state[0]

    want = np.array(w, np.float64)
    del w, operands[:]
    for _ in range(6):
        got = np.array(step(a))
        want = want * 0.5 + 1
        np.testing.assert_allclose(got, np.array(a, np.float64).T @ want, atol=2e-3)
        used(a, state[0], 4)


def test_memory_shared_with_numpy(operands):
    a, w = operands
    used(a, w, 4)
    view = np.asarray(w)
    view[1] = 3
    np.testing.assert_allclose(product(a, w), reference(a, w), atol=1e-3)
    view[2] = 4
    np.testing.assert_allclose(product(a, w), reference(a, w), atol=1e-3)
    before = hits()
    used(a, w, 4)
    assert hits() == before  # whoever has the view may write at any time
    view[3] = 5
    del view
    gc.collect()
    np.testing.assert_allclose(used(a, w, 5), reference(a, w), atol=1e-3)
    foreign = np.array(w)
    shared = mx.asarray(foreign, copy=False)
    for i in range(5):
        foreign[i] = i
        np.testing.assert_allclose(product(a, shared), foreign_reference(a, foreign), atol=1e-3)


def foreign_reference(a, values):
    return np.array(a, np.float64).T @ values.astype(np.float64)


def test_it_counts_as_cache_and_goes_with_the_operand(operands):
    a, w = operands
    product(a, w)
    mx.clear_cache()
    active, cache = mx.get_active_memory(), mx.get_cache_memory()
    used(a, w, 2)
    assert mx.get_active_memory() == active
    mx.clear_cache()
    assert mx.get_cache_memory() == cache  # given up
    used(a, w, 5)
    mx.set_cache_limit(mx.set_cache_limit(0))
    assert mx.get_cache_memory() == 0
    used(a, w, 5)
    kept = mx.get_cache_memory()
    assert kept >= w.nbytes
    before = hits()
    product(a, w)
    assert hits() == before + 1
    del w, operands[:]
    gc.collect()
    limit = mx.set_cache_limit(0)
    assert mx.get_cache_memory() == 0
    mx.set_cache_limit(limit)


def test_memory_that_is_asked_for_comes_first(operands):
    a, w = operands
    mx.clear_cache()
    used(a, w, 5)
    most = mx.get_active_memory() + (16 << 20)
    limit = mx.set_memory_limit(most)
    try:
        big = mx.zeros(((16 << 20) - (128 << 10)) // 4)
        mx.eval(big)  # fits where nothing else is kept
        del big
        np.testing.assert_allclose(product(a, w), reference(a, w), atol=1e-3)
    finally:
        mx.set_memory_limit(limit)


def test_it_can_be_switched_off():
    source = """
import cermet.core as mx
a, w = mx.ones((256, 160)), mx.ones((256, 192))
mx.eval(a, w)
for _ in range(6):
    mx.eval(a.T @ w)
print(mx.counters()["packed_hits"])
"""
    assert own_process.run(source, CERMET_PACKED_CACHE="off").split()[-1] == "0"
    assert own_process.run(source).split()[-1] == "3"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_on_tile_instructions(dtype):
    source = f"""
import cermet.core as mx
x, w = (mx.random.normal(s).astype(mx.{dtype}) for s in ((300, 512), (512, 530)))
mx.eval(x, w)
first = x @ w
mx.eval(first)
for _ in range(4):
    again = x @ w
    mx.eval(again)
    assert mx.array_equal(again, first)
print(mx.counters()["packed_hits"])
"""
    assert own_process.run(source, CERMET_CPU_FEATURES="amx_emulated").split()[-1] == "2"


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_few_rows_on_tile_instructions_take_a_packing_once_weights_serve_again(dtype):
    source = f"""
import cermet.core as mx
import numpy as np
dtype = mx.{dtype}
for rows, layers in ((2, 1), (16, 1), (64, 3)):
    x = (mx.random.normal((rows, 1000)) * 9).astype(dtype)
    weights = [(mx.random.normal((1000, 1536)) * 9).astype(dtype) for _ in range(layers)]
    mx.eval(x, weights)
    run = lambda: [mx.maximum(x @ w, 0) for w in weights]
    first = run()
    before = mx.counters()["packed_hits"]
    for _ in range(8):
        again = run()
        assert all(mx.array_equal(a, b) for a, b in zip(again, first))
    assert mx.counters()["packed_hits"] >= before + 3 * layers
    weights[0] += 1
    want = np.maximum(np.array(x.astype(mx.float32)) @ np.array(weights[0].astype(mx.float32)), 0)
    assert np.allclose(np.array(run()[0].astype(mx.float32)), want, atol=40, rtol=0.01)
"""
    own_process.run(source, CERMET_CPU_FEATURES="amx_emulated")


# W as it is in memory, and whether it is turned for x @ W: neither strips nor pieces are whole.
FEW = {
    "across": ((1100, 1030), False),
    "along": ((2059, 5200), True),
}


@pytest.mark.parametrize("lies", FEW)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_few_rows_take_a_packing_once_weights_serve_again(dtype, lies):
    """Rows that are others at each use, with the bits of weights that never serve again."""
    shape, turned = FEW[lies]
    rng = np.random.default_rng(3)
    width, full_width = mx._vector_width()
    kept = width == 64 and (full_width if turned else True)
    for rows in (1, 2, 5, 8):
        w = mx.array(rng.standard_normal(shape)).astype(getattr(mx, dtype))
        right = np.array(w.astype(mx.float64))
        right = right.T if turned else right
        xs = [mx.random.normal((rows, right.shape[0])).astype(w.dtype) for _ in range(7)]
        mx.eval(w, xs)

        def multiply(x, w):
            y = x @ (w.T if turned else w)
            mx.eval(y)
            return y

        before = hits()
        for x in xs:
            once = mx.array(w)
            mx.eval(once)
            got, want = multiply(x, w), multiply(x, once)
            assert mx.array_equal(got, want), (rows, shape)
            wide = np.array(x.astype(mx.float64)) @ right
            off = np.abs(np.array(got.astype(mx.float64)) - wide).max() / np.abs(wide).max()
            assert off < {"float32": 1e-5, "float64": 1e-13}.get(dtype, 1e-2)
        if kept and rows > 1 and dtype == "float32":
            assert hits() >= before + 3, (rows, shape)


@pytest.mark.parametrize("serve_again", [False, True])
def test_no_kernel_is_made_for_weights_that_change(serve_again):
    """Few rows beside weights that are others at each use compile nothing for a packing."""
    source = f"""
import cermet.core as mx
weights = [mx.random.normal((1100, 1030)) for _ in range({1 if serve_again else 6})]
x = mx.random.normal((8, 1100))
mx.eval(weights, x)
mx.eval(x @ weights[0])
before = mx.counters()["kernels_compiled"]
for i in range(6):
    mx.eval(x @ weights[i % len(weights)])
print(mx.counters()["kernels_compiled"] - before, mx._vector_width()[0] == 64)
"""
    made, wide = own_process.run(source, CERMET_KERNEL_CACHE="off").split()
    assert int(made) == (1 if serve_again and wide == "True" else 0)


def test_packings_that_do_not_fit_together_give_way():
    # Whole blocks, so that what is packed has the weight's own size. (In vectors of 16 bytes
    # packing is too little of the product to be worth keeping.)
    source = """
import cermet.core as mx
import numpy as np

def product(a, w):
    return np.array(a.T @ w)

a, w = (mx.random.normal((768, n), key=mx.random.key(n)) for n in (512, 768))
weights = [w, w + 1]
first = [product(a, v) for v in weights]
mx.clear_cache()
mx.set_cache_limit(w.nbytes * 3 // 2)
before = mx.counters()["packed_hits"]
for _ in range(40):
    for v, want in zip(weights, first, strict=True):
        np.testing.assert_array_equal(product(a, v), want)
print(mx.counters()["packed_hits"] - before)
"""
    found = own_process.run(source, CERMET_MATMUL_SCHEME="fma")
    assert int(found) >= 33  # one of them stays most of the time
