# SPDX-License-Identifier: MIT
"""`fast.cross_entropy` against its formula in float64: values, derivatives of each kind, kernels
and memory."""

import cermet.core as mx
import cermet.nn as nn
import mlx.core
import numpy as np
import pytest
from test_ops_table import check_close, sample, to_numpy, to_ours, wide

SHAPES = [(5,), (3, 7), (2, 3, 33), (4, 1), (2, 32000), (0, 5)]
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def formula(logits, targets):
    """The losses and the softmax less 1 at the target, which is the gradient of their sum."""
    classes = logits.shape[-1]
    largest = logits.max(-1, keepdims=True)
    e = np.exp(logits - largest)
    total = e.sum(-1, keepdims=True)
    one = np.arange(classes) == (targets % classes)[..., None]
    chosen = np.sum(np.where(one, logits, 0), -1)
    return np.log(total[..., 0]) + largest[..., 0] - chosen, e / total - one


def logits_and_targets(rng, shape, dtype, kind=np.int32, span=(-8, 8)):
    targets = rng.integers(0, min(shape[-1], 100), shape[:-1]).astype(kind)
    return sample(rng, shape, dtype, span), targets


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients(rng, dtype, shape):
    logits, targets = logits_and_targets(rng, shape, dtype)
    x, t = to_ours(logits), mx.array(targets)
    losses, slopes = formula(wide(logits), targets)
    result = "float64" if dtype == "float64" else "float32"
    weights = sample(rng, shape[:-1], result, (-1, 1))

    got = mx.fast.cross_entropy(x, t)
    assert got.dtype == getattr(mx, result)
    assert got.shape == shape[:-1]
    check_close(got, losses, result, "loss", factor=8)
    (value,), (gradient,) = mx.vjp(lambda x: mx.fast.cross_entropy(x, t), [x], [to_ours(weights)])
    check_close(value, losses, result, "loss beside its gradient", factor=8)
    assert gradient.dtype == x.dtype
    check_close(gradient, slopes * wide(weights)[..., None], dtype, "gradient", factor=8)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint32, np.int64])
def test_targets_of_every_kind(rng, kind):
    logits, targets = logits_and_targets(rng, (6, 11), "float32", kind)
    losses, slopes = formula(wide(logits), targets.astype(np.int64))
    f = lambda x: mx.sum(mx.fast.cross_entropy(x, mx.array(targets)))  # noqa: E731
    check_close(mx.fast.cross_entropy(to_ours(logits), mx.array(targets)), losses, "float32", kind)
    check_close(mx.grad(f)(to_ours(logits)), slopes, "float32", kind, factor=8)


def test_negative_targets_count_from_the_last_class(rng):
    logits, targets = logits_and_targets(rng, (6, 11), "float32")
    t = mx.array(targets)
    same = mx.fast.cross_entropy(to_ours(logits), t - 11)
    np.testing.assert_array_equal(
        to_numpy(same), to_numpy(mx.fast.cross_entropy(to_ours(logits), t))
    )
    f = lambda x: mx.sum(mx.fast.cross_entropy(x, t - 11))  # noqa: E731
    slopes = formula(wide(logits), targets)[1]
    check_close(mx.grad(f)(to_ours(logits)), slopes, "float32", "gradient", factor=8)


def test_large_logits_do_not_overflow():
    """Also in halves, whose exponentials would; a class that cannot be has no weight."""
    rows = np.array([[6e4, 0, -6e4], [-6e4, -6e4, -6e4], [-np.inf, 0, 1]])
    targets = np.array([1, 2, 2])
    want, slopes = formula(rows, targets)
    for dtype in (mx.float32, mx.float16):
        x = mx.array(rows).astype(dtype)
        exact = formula(np.array(x.astype(mx.float64)), targets)
        got = mx.fast.cross_entropy(x, mx.array(targets))
        np.testing.assert_allclose(np.array(got), exact[0], rtol=1e-6)
        f = lambda x: mx.sum(mx.fast.cross_entropy(x, mx.array(targets)))  # noqa: E731
        np.testing.assert_allclose(np.array(mx.grad(f)(x)), slopes, atol=1e-3)
    np.testing.assert_allclose(want[1], np.log(3))


def test_as_mlx(rng):
    logits, targets = logits_and_targets(rng, (5, 9), "float32")
    theirs = mlx.core.fast.cross_entropy(mlx.core.array(logits), mlx.core.array(targets))
    ours = mx.fast.cross_entropy(mx.array(logits), mx.array(targets))
    check_close(ours, np.array(theirs), "float32", "mlx", factor=8)


def test_transforms(rng):
    """vmap is the loop, also over one of the arguments; a tangent is the gradient's product with
    the direction.
    """
    logits, targets = logits_and_targets(rng, (3, 4, 9), "float64")
    x, t = to_ours(logits), mx.array(targets)
    losses, slopes = formula(logits, targets)
    check_close(mx.vmap(mx.fast.cross_entropy)(x, t), losses, "float64", "vmap", factor=8)
    moved = mx.vmap(mx.fast.cross_entropy, in_axes=(1, None))(mx.moveaxis(x, 0, 1), t[0])
    each = np.stack([formula(logits[i], targets[0])[0] for i in range(3)])
    check_close(moved, each, "float64", "vmap of logits", factor=8)

    direction = sample(rng, x.shape, "float64", (-1, 1))
    along = lambda x: mx.fast.cross_entropy(x, t)  # noqa: E731
    _, (tangent,) = mx.jvp(along, [x], [to_ours(direction)])
    check_close(tangent, np.sum(slopes * direction, -1), "float64", "jvp", factor=64)

    # The second derivative: diag(p) - p pᵀ, the target's 1 gone.
    gradient = mx.grad(lambda x: mx.sum(mx.fast.cross_entropy(x, t)))
    (product,) = mx.vjp(gradient, [x], [to_ours(direction)])[1]
    p = slopes + (np.arange(9) == targets[..., None])
    want = p * direction - p * np.sum(p * direction, -1, keepdims=True)
    check_close(product, want, "float64", "second", factor=64)
    compiled = mx.compile(gradient)(x)
    check_close(compiled, slopes, "float64", "compiled", factor=8)


def test_kernels_and_memory(rng):
    """One kernel each; over 32 000 classes nothing is written but the losses and the gradient."""
    x = mx.random.normal((256, 32000))
    t = mx.random.randint(0, 32000, (256,))
    mx.eval(x, t)
    loss = lambda x: mx.mean(mx.fast.cross_entropy(x, t))  # noqa: E731
    assert len(mx.explain(lambda x: mx.fast.cross_entropy(x, t), x).kernels) == 1
    assert len(mx.explain(loss, x).kernels) == 1
    assert len(mx.explain(mx.grad(loss), x).kernels) == 1
    assert len(mx.explain(mx.value_and_grad(loss), x).kernels) <= 2
    for f, results in ((loss, 0), (mx.grad(loss), x.nbytes), (mx.value_and_grad(loss), x.nbytes)):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(f(x))
        assert mx.get_peak_memory() - before <= results + 2**20


@pytest.mark.parametrize(
    ("logits", "targets", "kind"),
    [
        (mx.zeros((3, 5)), mx.array([0, 5, 1]), IndexError),
        (mx.zeros((3, 5)), mx.array([0, -6, 1]), IndexError),
        (mx.zeros((3, 5)), mx.array([0, 1]), ValueError),
        (mx.zeros((3, 5)), mx.zeros((3, 1), mx.int32), ValueError),
        (mx.zeros((3, 0)), mx.zeros((3,), mx.int32), ValueError),
        (mx.zeros(()), mx.array(0), ValueError),
        (mx.zeros((3, 5), mx.int32), mx.array([0, 1, 2]), TypeError),
        (mx.zeros((3, 5)), mx.array([0.0, 1.0, 2.0]), TypeError),
        (mx.zeros((3, 5)), mx.array([True, False, True]), TypeError),
    ],
)
def test_errors(logits, targets, kind):
    with pytest.raises(kind, match=r"cross_entropy|take_along_axis"):
        mx.eval(mx.fast.cross_entropy(logits, targets))


@pytest.mark.parametrize("dtype", DTYPES)
def test_loss_of_nn(rng, dtype):
    """It keeps the logits' dtype, rounded once."""
    logits, targets = logits_and_targets(rng, (6, 50), dtype)
    got = nn.losses.cross_entropy(to_ours(logits), mx.array(targets))
    assert got.dtype == getattr(mx, dtype)
    check_close(got, formula(wide(logits), targets)[0], dtype, "nn", factor=4)
