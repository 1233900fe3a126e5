# SPDX-License-Identifier: MIT
"""Peak memory of evaluations, beside what the best order by hand would need, counted in values."""

from types import SimpleNamespace

import cermet.core as mx
import numpy as np
import own_process
import pytest
import scipy.special

ROWS, SIZE = 2048, 256
VALUE = 4 * ROWS * SIZE  # bytes; a weight is an eighth of it
MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    mx.synchronize()
    mx.clear_cache()


def normal(*shape):
    return mx.random.normal(shape, key=mx.random.key(sum(shape))) / shape[-1] ** 0.5


def peak_of(*outputs):
    """Bytes beyond those of the inputs while `outputs` are evaluated, and bytes written."""
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.counters(reset=True)
    mx.eval(*outputs)
    return mx.get_peak_memory() - before, mx.counters()["bytes_written"]


def peak_of_making(f):
    """Bytes beyond what was alive before, while what f() gives is made and evaluated."""
    mx.synchronize()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(f())
    return mx.get_peak_memory() - before


def tree_sum(values):
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


LEAVES = {
    "uniform": lambda w, x, i: mx.random.uniform(shape=x.shape, key=mx.random.key(i)),
    "matmul": lambda w, x, i: (x * (i + 1)) @ w,
    "cumsum": lambda w, x, i: mx.cumsum(x * (i + 1)),
    "logcumsumexp": lambda w, x, i: mx.logcumsumexp(x * (i + 1)),
    "sum of planes": lambda w, x, i: mx.sum(x.reshape(4, -1, SIZE) * (i + 1), axis=0),
    "sum of a broadcast": lambda w, x, i: mx.sum(mx.broadcast_to(x * i, (4, *x.shape)), axis=0),
}


@pytest.mark.parametrize("made", LEAVES)
def test_a_sum_as_a_tree(made):
    """Depth first, a tree of 64 leaves needs one value for each of its 6 levels, and two more."""
    w = normal(SIZE, SIZE)
    x = normal(4 * ROWS if made == "sum of planes" else ROWS, SIZE)
    mx.eval(w, x)
    total = tree_sum([LEAVES[made](w, x, i) for i in range(64)])
    peak, _ = peak_of(total)
    assert peak <= 9 * VALUE + MIB, f"{peak / VALUE:.1f} values"


NUMPY = SimpleNamespace(erf=scipy.special.erf, tanh=np.tanh, exp=np.exp)


def gelu(x, lib=mx):
    return 0.5 * x * (1 + lib.erf(x / 2**0.5))


def gelu_tanh(x, lib=mx):
    return 0.5 * x * (1 + lib.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def silu(x, lib=mx):
    return x / (1 + lib.exp(-x))


def blocks(x, weights, activation):
    for first, second in weights:
        x = x + activation(x @ first) @ second
    return x


@pytest.mark.parametrize("activation", [gelu, gelu_tanh, silu], ids=lambda f: f.__name__)
def test_forward_and_backward_of_blocks(activation):
    """Of each block the backward needs its input and the activation's argument and result; at its
    beginning there are besides the gradients of a block's output, of the result and of the
    argument. The rest is made again from these."""
    count = 12
    weights = [[normal(SIZE, SIZE), normal(SIZE, SIZE)] for _ in range(count)]
    x = normal(ROWS, SIZE)
    mx.eval(weights, x)
    loss = lambda weights: mx.mean(blocks(x, weights, activation))  # noqa: E731
    gradients = mx.grad(loss)(weights)
    peak, _ = peak_of(gradients)
    by_hand = (3 * count - 1 + 3) * VALUE + 2 * count * SIZE * SIZE * 4
    assert peak <= 1.15 * by_hand, f"{peak / by_hand:.3f} of {by_hand / MIB:.1f} MiB"


def test_gradients_that_are_dropped_cost_nothing():
    weights = [[normal(SIZE, SIZE), normal(SIZE, SIZE)] for _ in range(4)]
    x = normal(ROWS, SIZE)
    mx.eval(weights, x)
    loss, gradients = mx.value_and_grad(lambda w: mx.mean(blocks(x, w, gelu)))(weights)
    del gradients
    peak, _ = peak_of(loss)
    assert peak <= 3 * VALUE + MIB, f"{peak / VALUE:.1f} values"


def value_and_gradient(f, w):
    return mx.value_and_grad(f)(w)


def transposed(f, w):
    (loss,), (gradient,) = mx.vjp(f, [w], [mx.array(1.0)])
    return loss, gradient


def of_second_order(f, w):
    def squares(w):
        return mx.sum(mx.square(mx.grad(f)(w)))

    return f(w), mx.grad(squares)(w)


def of_checkpointed(f, w):
    return mx.value_and_grad(mx.checkpoint(f))(w)


def evaluated_inside(f, w):
    def looked_at(w):
        loss = f(w)
        mx.eval(loss)
        return loss

    return mx.value_and_grad(looked_at)(w)


@pytest.mark.parametrize(
    "gradient",
    [value_and_gradient, transposed, of_second_order, of_checkpointed, evaluated_inside],
    ids=lambda f: f.__name__,
)
def test_steps_leave_nothing_behind(gradient):
    """Weights made from gradients of the weights before: these are no longer needed."""
    w, x = normal(SIZE, SIZE), normal(4, SIZE)
    mx.eval(w, x)
    sizes = []
    for _ in range(12):
        loss, d = gradient(lambda w: mx.sum(mx.square(mx.tanh(x @ w))), w)
        w = w - 0.01 * d
        mx.eval(loss, w)
        del d
        sizes.append(mx.get_active_memory())
    assert sizes[-1] <= sizes[2], f"{(sizes[-1] - sizes[2]) / 4 / SIZE / SIZE:.1f} weights more"


@pytest.mark.parametrize("activation", [gelu, gelu_tanh, silu], ids=lambda f: f.__name__)
def test_what_is_cheap_is_made_again(activation):
    """A layer before and a layer after: the argument z and the result h of the activation, the
    output y, and the gradients of y, z and both weights are all that is written."""
    x, first, second = normal(ROWS, SIZE), normal(SIZE, SIZE), normal(SIZE, SIZE)
    mx.eval(x, first, second)
    loss = lambda a, b: mx.sum(mx.square(activation(x @ a) @ b))  # noqa: E731
    gradients = mx.grad(loss, argnums=(0, 1))(first, second)
    _, written = peak_of(gradients)
    assert written <= 5 * VALUE + 2 * SIZE * SIZE * 4, f"{written / VALUE:.2f} values"
    x, first, second = (np.asarray(v, dtype=np.float64) for v in (x, first, second))
    z, h = x @ first, 1e-5
    slope = (activation(z + h, NUMPY) - activation(z - h, NUMPY)) / (2 * h)
    result = activation(z, NUMPY)
    back = 2 * (result @ second)
    wanted = [x.T @ ((back @ second.T) * slope), result.T @ back]
    for got, want in zip(gradients, wanted, strict=True):
        scale = np.max(np.abs(want))
        np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("rows, columns", [(4096, 512), (4096, 1024), (32768, 512), (100_000, 256)])
def test_products_of_long_sums(rows, columns):
    """Beside the result, what is packed or summed apart takes no more than the two operands, and a
    quarter on top for blocks that are not full."""
    x = normal(rows, columns)
    mx.eval(x)
    peak, _ = peak_of(x.T @ x)
    by_hand = 4 * (2 * rows * columns + columns * columns)
    assert peak <= 1.25 * by_hand + MIB, f"{peak / by_hand:.2f} of {by_hand / MIB:.1f} MiB"


@pytest.mark.parametrize("length", [512, 2048])
def test_attention_is_linear_in_the_length(length):
    """Scores of all heads would be 4 · 4 · length² bytes: 67 MB for 2048."""
    q, k, v, g = (normal(1, 4, length, 64 + i)[..., :64] for i in range(4))
    q, k, v, g = (mx.contiguous(x) for x in (q, k, v, g))
    mx.eval(q, k, v, g)

    def f(q, k, v):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.125, mask="causal")

    value = 4 * 4 * length * 64
    peak, _ = peak_of(f(q, k, v))
    # for each of two threads: keys, values and one block of 48 rows of scores, padded
    scratch = 2 * (2 * value // 4 + 4 * 48 * (length + 400) * 17 // 16)
    assert peak <= value + scratch + MIB, f"{peak / MIB:.1f} MiB"
    peak, _ = peak_of(*mx.vjp(f, [q, k, v], [g])[1])
    scratch = 2 * (4 * value // 4 + 2 * 4 * 48 * (length + 400) * 17 // 16)
    assert peak <= 3 * value + scratch + MIB, f"{peak / MIB:.1f} MiB"


@pytest.mark.parametrize("mask", ["1hts", "11ts", "b11s", "1h1s", "1ht1"])
@pytest.mark.parametrize("spelling", ["fast", "plain"])
def test_gradients_of_masks_and_sinks_are_as_large_as_these(spelling, mask):
    """Gradients of what is added to scores, of sinks and of a cap: beside them memory grows with
    the length. Scores of all heads and batches would be 4 · 2 · 4 · length² bytes: 134 MB."""
    length, sizes = 2048, {"b": 2, "h": 4, "t": 2048, "s": 2048, "1": 1}
    q, k, v, g = (mx.contiguous(normal(2, 4, length, 32 + i)[..., :32]) for i in range(4))
    bias, sinks = mx.zeros([sizes[letter] for letter in mask]), mx.zeros(4)
    mx.eval(q, k, v, g, bias, sinks)

    def fast(bias, sinks):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.2, mask=bias, sinks=sinks)

    def plain(bias, cap):
        scores = cap * mx.tanh(q @ k.swapaxes(-1, -2) * 0.2 / cap)
        return mx.softmax(scores + bias, axis=-1) @ v

    f, other = (fast, sinks) if spelling == "fast" else (plain, mx.array(2.0))
    peak, _ = peak_of(*mx.vjp(f, [bias, other], [g])[1])
    value = 4 * 2 * 4 * length * 32
    # for each of two threads: keys, values and two blocks of 48 rows of scores, padded
    scratch = 2 * (4 * value // 8 + 4 * 4 * 48 * (length + 400) * 17 // 16)
    assert peak <= bias.nbytes + 2 * value + scratch + MIB, f"{peak / MIB:.1f} MiB"


def layer(x, w1, w2):
    scale = mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    return x + mx.sigmoid(x * scale @ w1) * (x @ w1) @ w2


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_checkpointed_blocks(compiled):
    """All gradients at once need what the best order by hand needs: the inputs of the blocks, and
    one block at a time.
    """
    blocks, rows, size = 24, 512, 64
    wide = 8 * size
    x = normal(rows, size)
    ws = [(normal(size, wide), normal(wide, size)) for _ in range(blocks)]
    mx.eval(x, ws)

    backward = mx.compile(lambda x, w1, w2, g: mx.vjp(layer, [x, w1, w2], [g])[1])

    def by_hand():
        inputs = [x]
        for w in ws:
            inputs.append(layer(inputs[-1], *w))
            mx.eval(inputs)
        g = 2 * inputs.pop()
        mx.eval(g)
        gradients = []
        for w in reversed(ws):
            g, *of_w = backward(inputs.pop(), *w, g)
            mx.eval(g, of_w)
            gradients.append(of_w)
        return gradients[::-1]

    def at_once(save):
        def loss(ws):
            y = x
            for w in ws:
                y = save(layer)(y, *w)
            return (y * y).sum()

        return mx.compile(mx.grad(loss)) if compiled else mx.grad(loss)

    saved, kept = at_once(mx.checkpoint), at_once(lambda f: f)
    want, got = by_hand(), saved(ws)
    mx.eval(got)
    for a, b in zip(want, got, strict=True):
        for g, h in zip(a, b, strict=True):
            np.testing.assert_allclose(np.array(g), np.array(h), rtol=1e-3, atol=1e-4)
    del want, got, a, b, g, h
    best, ours, all_kept = (
        peak_of_making(by_hand),
        peak_of_making(lambda: saved(ws)),
        peak_of_making(lambda: kept(ws)),
    )
    print(f"by hand {best / MIB:.1f}, checkpointed {ours / MIB:.1f}, kept {all_kept / MIB:.1f} MiB")
    assert ours <= 1.15 * best < all_kept


def test_arrays_can_be_asked_for_after_memory_was_lacking():
    """Also what is made of temporaries, which would have given their memory away."""
    limit = mx.set_memory_limit(64 << 20)
    try:
        row = mx.array(np.arange(3))[1:-1]
        with pytest.raises(MemoryError):
            mx.eval(row >= mx.zeros((1 << 30,)))
        assert row.tolist() == [1]
    finally:
        mx.set_memory_limit(limit)


def test_updates_in_a_loop_keep_no_plans():
    """Each ten thousand of them are a plan of its own, since they write to other places."""
    own_process.run("""
        import cermet.core as mx

        def resident():  # MiB
            with open("/proc/self/status") as status:
                line = next(line for line in status if line.startswith("VmRSS"))
            return int(line.split()[1]) / 1024

        x = mx.zeros((1009,))
        grown = []
        for k in range(100_000):
            x[k % 1009] = float(k)
            if k % 10_000 == 9_999:
                mx.eval(x)
                grown.append(resident())
        assert max(grown[4:]) - max(grown[:4]) < 40, grown
        assert x[99_999 % 1009].item() == 99_999
    """)
