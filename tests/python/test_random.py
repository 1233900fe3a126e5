# SPDX-License-Identifier: MIT
"""random against the MLX wheel: the same keys and draws for the same seeds; statistics where the
wheel has no such function.
"""

import threading

import cermet.core as mx
import mlx.core
import numpy as np
import pytest
from mlx_oracle import CERMET, MLX, same, same_values

SHAPES = [(), (1,), (7,), (2, 3), (0,), (5, 1, 4), (1001,), (3, 8193)]


def draw(lib, code, seed=7):
    lib.mx.random.seed(seed)
    return eval(code, {"mx": lib.mx, "random": lib.mx.random})


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, (5 << 32) | 9, 2**64 - 1])
def test_keys(seed):
    same_values(lambda lib: lib.mx.random.key(seed))
    same_values(lambda lib: lib.mx.random.split(lib.mx.random.key(seed)))
    same_values(lambda lib: lib.mx.random.split(lib.mx.random.key(seed), 5))
    mx.random.seed(seed)
    assert mx.random.state[0].tolist() == [seed >> 32, seed & 0xFFFFFFFF]


def test_threefry_vectors():
    """Known answers of Threefry-2x32 with 20 rounds (Random123): counters and keys to outputs."""
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    assert threefry(*vectors[0][:2]) == vectors[0][2]
    for counter, key, want in vectors:
        assert threefry(counter, key) == want
    # bits of n words: counters 0 .. n-1, the first half paired with the second
    key = (0, 42)
    got = mx.random.bits((6,), key=mx.array(key, mx.uint32)).tolist()
    pairs = [threefry((i, i + 3), key) for i in range(3)]
    assert got == [p[0] for p in pairs] + [p[1] for p in pairs]


def threefry(counter, key):
    mask = 0xFFFFFFFF
    keys = [key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1]]
    x, y = (counter[0] + keys[0]) & mask, (counter[1] + keys[1]) & mask
    rotations = [[13, 15, 26, 6], [17, 29, 16, 24]]
    for block in range(5):
        for r in rotations[block % 2]:
            x = (x + y) & mask
            y = ((y << r) | (y >> (32 - r))) & mask
            y ^= x
        x = (x + keys[(block + 1) % 3]) & mask
        y = (y + keys[(block + 2) % 3] + block + 1) & mask
    return x, y


@pytest.mark.parametrize("width", [1, 2, 4])
def test_bits(width):
    bits = mx.random.bits((1 << 12,), width=width, key=mx.random.key(3))
    assert bits.dtype == {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[width]
    ones = np.unpackbits(np.array(bits).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.02
    assert mx.random.bits(key=mx.random.key(3)).shape == ()
    with pytest.raises(ValueError):
        mx.random.bits((2,), width=3)


@pytest.mark.parametrize("count", [1, 2, 9, 8192, 8193, 40001])
def test_a_part_of_a_draw(count):
    """Words come in pairs, half a draw apart: any part of one, in a kernel of its own."""
    whole = np.array(mlx.core.random.uniform(shape=(count,), key=mlx.core.random.key(11)))
    for part in (slice(1), slice(count // 2), slice(count // 2, None), slice(1, -1), slice(0, 0)):
        drawn = mx.random.uniform(shape=(count,), key=mx.random.key(11))[part]
        np.testing.assert_array_equal(np.array(drawn), whole[part])


EXACT = [
    "random.uniform(shape={shape})",
    "random.uniform(-3, 4.5, {shape})",
    "random.uniform(shape={shape}, dtype=mx.float16)",
    "random.uniform(shape={shape}, dtype=mx.bfloat16)",
    "random.randint(0, 100, {shape})",
    "random.randint(-5, 5, {shape}, mx.int8)",
    "random.randint(0, 1000, {shape}, mx.uint16)",
    "random.bernoulli(shape={shape})",
    "random.bernoulli(0.2, {shape})",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("code", EXACT)
def test_draws_are_the_wheels(code, shape):
    ours, theirs = (draw(lib, code.format(shape=shape)) for lib in (CERMET, MLX))
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    mx.eval(ours)  # alone, so that it is rounded to its dtype before it is widened
    if ours.dtype in (mx.float16, mx.bfloat16):
        ours, theirs = ours.astype(mx.float32), theirs.astype(mlx.core.float32)
    np.testing.assert_array_equal(np.array(ours), np.array(theirs))


BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
PROBABILITIES = [0.0, -0.0, -1.0, 1e-45, 2.0**-32, 2.0**-24, 0.3, 0.5, BELOW_ONE, 1.0, 3e38]
PROBABILITIES += [float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bernoulli_is_below(dtype):
    """True where the uniform number of the same key is below p, for each p that there is."""
    key, shape = mx.random.key(5), (4096, len(PROBABILITIES))
    uniform = mx.random.uniform(shape=shape, key=key)
    drawn = np.array(uniform)[:, 6:8]
    exact = sorted({*map(float, drawn[:40].ravel()), *map(float, drawn[-40:].ravel())})
    with np.errstate(over="ignore"):
        for row in (PROBABILITIES, exact[: len(PROBABILITIES)]):
            p = mx.array(np.array(row, np.float64)).astype(getattr(mx, dtype))
            want = np.array(uniform) < np.array(p.astype(mx.float64))
            np.testing.assert_array_equal(np.array(mx.random.bernoulli(p, shape, key)), want)
            for i, one in enumerate(p):
                one_drawn = mx.random.bernoulli(one, shape, key)
                np.testing.assert_array_equal(np.array(one_drawn)[:, i], want[:, i])


def test_bernoulli_of_a_number_decides_at_each_word():
    """As a comparison of the rounded words with it: at the smallest words drawn, at words halfway
    between floats, and at others of every size; for what these round to, and its neighbours.
    """
    key, shape = mx.random.key(9), (1 << 20,)
    words = np.array(mx.random.bits(shape, key=key))
    rounded = words.astype(np.float32).astype(np.float64) * 2.0**-32
    sizes = np.frexp(words.astype(np.float64))[1]
    spacing = np.maximum(sizes - 24, 1)
    halfway = words & ((1 << spacing) - 1) == 1 << (spacing - 1)
    chosen = [np.sort(words)[:8], np.sort(words)[-8:]]
    for size in np.unique(sizes):
        for group in (words[sizes == size], words[(sizes == size) & halfway]):
            chosen.append(group[:4])
    for word in np.concatenate(chosen):
        p = np.float32(word) * np.float32(2.0**-32)
        for near in (np.nextafter(p, np.float32(0)), p, np.nextafter(p, np.float32(1))):
            got = np.array(mx.random.bernoulli(float(near), shape, key))
            np.testing.assert_array_equal(got, (rounded < near) | (near >= 1))
    for p in (0.1, 1 / 3, 0.9, 2.0**-24 + 2.0**-50):
        got = np.array(mx.random.bernoulli(mx.array(p, dtype=mx.float64), shape, key))
        np.testing.assert_array_equal(got, rounded < p)


CLOSE = [
    "random.normal({shape})",
    "random.normal({shape}, loc=2.0, scale=0.5)",
    "random.truncated_normal(-1, 2, {shape})",
    "random.gumbel({shape})",
    "random.laplace({shape}, loc=1.0, scale=3.0)",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("code", CLOSE)
def test_transformed_draws_are_close_to_the_wheels(code, shape):
    """Their bits are equal; logarithms and erfinv may differ in the last places."""
    ours, theirs = (np.array(draw(lib, code.format(shape=shape))) for lib in (CERMET, MLX))
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", ["()", "(3,)", "(1,)", "(2, 3)", "(4, 1, 1)"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_normal_draws_its_shape_and_broadcasts_it(shape, dtype):
    """As in MLX: loc and scale move and stretch what was drawn."""
    loc, scale = [[0.0, 10.0, 100.0]], [[1.0], [0.1]]
    for given in ("loc=loc", "scale=scale", "loc=loc, scale=scale", "loc=loc[0], scale=2.0"):
        code = f"random.normal({shape}, {given}, dtype={dtype})"
        drawn = []
        for lib in (CERMET, MLX):
            names = {
                "random": lib.mx.random,
                "loc": lib.mx.array(loc),
                "scale": lib.mx.array(scale),
            }
            names[dtype] = getattr(lib.mx, dtype)
            drawn.append(eval(code[:-1] + ", key=random.key(7))", names))
        ours, theirs = drawn
        assert str(ours.dtype).rpartition(".")[2] == dtype, code
        close = 2e-3 if dtype == "float16" else 2e-5
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=close, atol=close)
    mx.random.seed(3)
    by_shape = mx.random.normal(loc=mx.array([5.0, 7.0]))
    assert by_shape.shape == (2,) and abs((by_shape[1] - by_shape[0]).item() - 2) < 1e-5


def test_normal_is_within_four_ulp_of_its_definition():
    from scipy.special import erfinv

    key = mx.random.key(11)
    low = np.nextafter(np.float32(-1), np.float32(0))
    u = np.array(mx.random.uniform(mx.array(low), 1.0, (1 << 14,), key=key)).astype(np.float64)
    want = (np.sqrt(2) * erfinv(u)).astype(np.float32)
    got = np.array(mx.random.normal((1 << 14,), key=key))
    ulps = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want))
    assert ulps.max() <= 4


def test_categorical():
    logits = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
    for code in ("x", "x, 0", "x, num_samples=5", "x, shape=(3, 4)", "x, axis=1"):
        ours, theirs = (
            np.array(
                eval(f"f({code})", {"f": lib.mx.random.categorical, "x": lib.mx.array(logits)})
            )
            for lib in (CERMET, MLX)
            if lib.mx.random.seed(5) is None
        )
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert (ours == theirs).mean() > 0.95  # rounding ties
    same(lambda lib: lib.mx.random.categorical(lib.mx.zeros((3, 4)), shape=(2, 3), num_samples=2))
    counts = np.bincount(
        np.array(mx.random.categorical(mx.array([0.0, np.log(3.0)]), num_samples=8000))
    )
    assert abs(counts[1] / 8000 - 0.75) < 0.03


def test_the_default_key_advances_as_the_wheels():
    for lib in (CERMET, MLX):
        lib.mx.random.seed(7)
    for _ in range(3):
        assert mx.random.uniform().item() == mlx.core.random.uniform().item()
        assert mx.random.state[0].tolist() == mlx.core.random.state[0].tolist()


def test_state_can_be_kept_and_set_again():
    mx.random.seed(1)
    kept = mx.array(mx.random.state[0])
    first = mx.random.normal((3,)).tolist()
    mx.random.state[0] = kept
    assert mx.random.normal((3,)).tolist() == first
    assert len(mx.random.state) == 1
    mx.eval(mx.random.state)
    saved = list(mx.random.state)
    try:
        mx.random.state[0] = "no key"
        with pytest.raises(ValueError, match="random.state"):
            mx.random.uniform()
    finally:
        mx.random.state[:] = saved


def test_draws_of_threads_differ():
    """One state, advanced in one step by whoever draws."""
    mx.random.seed(3)
    keys = []

    def work():
        for _ in range(200):
            keys.append(tuple(mx.random.bits((2,)).tolist()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(keys)) == 800


REFUSED = [
    "random.uniform(shape=(2,), dtype=mx.int32)",
    "random.uniform(shape=(-1,))",
    "random.uniform(mx.zeros((2,)), 1, [3])",
    "random.randint(0, 10, (2,), mx.float32)",
    "random.bernoulli(2)",
    "random.normal(key=mx.array([1, 2]))",
    "random.normal(key=mx.zeros((3,), mx.uint32))",
]


@pytest.mark.parametrize("code", REFUSED)
def test_refusals(code):
    with pytest.raises((ValueError, TypeError)):
        draw(CERMET, code)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range(seed):
    for f in (mx.random.seed, mx.random.key):
        with pytest.raises(OverflowError, match="2\\*\\*64 - 1"):
            f(seed)
    with pytest.raises(TypeError):
        mx.random.seed(1.5)


def test_many_draws_at_once():
    """The keys of all draws are made in one evaluation, whose kernels stay within their bounds."""
    mx.random.seed(5)
    at_once = [mx.random.uniform(shape=(4, 2, 3)) for _ in range(200)]
    mx.eval(at_once[-1])
    mx.random.seed(5)
    for x in at_once:
        each = mx.random.uniform(shape=(4, 2, 3))
        mx.eval(each, mx.random.state)
        assert x.tolist() == each.tolist()
