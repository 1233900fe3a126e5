# SPDX-License-Identifier: MIT
"""Padded, joined and stacked rows, written as one in parts, against NumPy."""

import pathlib
import re

import cermet.core as mx
import numpy as np
import own_process
import pytest

# Beside the axis: of whole vectors, a part of one besides, more than an item takes.
CHANNELS = (16, 21, 64, 65, 1000, 5000)
DTYPES = (np.float32, np.float64, np.int8, np.float16, np.complex64)
SPATIAL = [(0, 0), (1, 2), (3, 0), (0, 0)]


def padded(mode_values):
    return (
        lambda x, y, v: mx.pad(x, SPATIAL, constant_values=mode_values),
        lambda x, y, v: np.pad(x, SPATIAL, constant_values=mode_values),
    )


CASES = {
    "zeros": padded(0),
    "ones": padded(1),
    "one axis": (
        lambda x, y, v: mx.pad(x, [(0, 0), (0, 0), (0, 4), (0, 0)]),
        lambda x, y, v: np.pad(x, [(0, 0), (0, 0), (0, 4), (0, 0)]),
    ),
    "channels, too": (lambda x, y, v: mx.pad(x, 2), lambda x, y, v: np.pad(x, 2)),
    "joined": (
        lambda x, y, v: mx.concatenate([x, y, x[:, :, 1:]], axis=2),
        lambda x, y, v: np.concatenate([x, y, x[:, :, 1:]], axis=2),
    ),
    "many": (
        lambda x, y, v: mx.concatenate([x, y] * 4, axis=2),
        lambda x, y, v: np.concatenate([x, y] * 4, axis=2),
    ),
    "stacked": (
        lambda x, y, v: mx.stack([x, y, x[:, ::-1], y], axis=3),
        lambda x, y, v: np.stack([x, y, x[:, ::-1], y], axis=3),
    ),
    "stacked, then joined": (
        lambda x, y, v: mx.concatenate([mx.stack([x, y], 3), mx.stack([y, x, y], 3)], 3),
        lambda x, y, v: np.concatenate([np.stack([x, y], 3), np.stack([y, x, y], 3)], 3),
    ),
    "stacked twice": (
        lambda x, y, v: mx.stack([mx.stack([x, y], 2), mx.stack([y, x], 2)], 2) == v,
        lambda x, y, v: np.stack([np.stack([x, y], 2), np.stack([y, x], 2)], 2) == v,
    ),
    "joined and padded": (
        lambda x, y, v: mx.pad(mx.concatenate([x, y], axis=2), SPATIAL),
        lambda x, y, v: np.pad(np.concatenate([x, y], axis=2), SPATIAL),
    ),
    "every other": (
        lambda x, y, v: mx.pad(x[:, :, ::2], SPATIAL),
        lambda x, y, v: np.pad(x[:, :, ::2], SPATIAL),
    ),
    "some channels": (
        lambda x, y, v: mx.pad(x[..., 3:], SPATIAL),
        lambda x, y, v: np.pad(x[..., 3:], SPATIAL),
    ),
    "used": (
        lambda x, y, v: mx.pad(x, SPATIAL) == mx.pad(y, SPATIAL),
        lambda x, y, v: np.pad(x, SPATIAL) == np.pad(y, SPATIAL),
    ),
    "beside channels": (
        lambda x, y, v: mx.where(mx.pad(x, SPATIAL) == v, v, 1),
        lambda x, y, v: np.where(np.pad(x, SPATIAL) == v, v, np.array(1, v.dtype)),
    ),
    "places": (
        lambda x, y, v: mx.pad(x, SPATIAL) == mx.arange(11)[:, None].astype(x.dtype),
        lambda x, y, v: np.pad(x, SPATIAL) == np.arange(11)[:, None].astype(x.dtype),
    ),
    "moved": (
        lambda x, y, v: mx.roll(x, 3, axis=2),
        lambda x, y, v: np.roll(x, 3, axis=2),
    ),
}


def arrays(channels, dtype):
    rng = np.random.default_rng(channels)
    shape = (max(2, 4096 // (80 * channels)), 10, 8, channels)
    draw = [rng.integers(-9, 10, s).astype(dtype) for s in (shape, shape, channels)]
    return draw


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype):
    ours, expected = CASES[case]
    for channels in CHANNELS:
        inputs = arrays(channels, dtype)
        made = np.asarray(ours(*(mx.array(x, getattr(mx, dtype.__name__)) for x in inputs)))
        want = expected(*inputs)
        assert made.dtype == want.dtype
        np.testing.assert_array_equal(made, want, err_msg=f"{channels} channels")


def test_gradients():
    x, y, _ = arrays(24, np.float32)

    def loss(x, y):
        rows = mx.concatenate([mx.pad(x, SPATIAL), mx.pad(y, SPATIAL)], axis=2)
        return (rows * mx.arange(rows.size).reshape(rows.shape)).sum()

    gradients = mx.grad(loss, argnums=(0, 1))(mx.array(x), mx.array(y))
    n, h, w, c = x.shape
    weights = np.arange(n * (h + 3) * 2 * (w + 3) * c, dtype=np.float32)
    weights = weights.reshape(n, h + 3, 2 * (w + 3), c)
    for gradient, first in zip(gradients, (3, 3 + w + 3), strict=True):
        want = weights[:, 1 : 1 + h, first : first + w]
        np.testing.assert_array_equal(np.asarray(gradient), want)


PARTS = {
    "padded": lambda x, y: (mx.pad(x, SPATIAL), mx.pad(y, SPATIAL)),
    "joined": lambda x, y: (mx.concatenate([x, y], 2), mx.concatenate([y, x], 2)),
}


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("channels", [3, 16, 37, 1000])
def test_loops_that_run_in_turns(parts, channels):
    def long(p, q):
        return mx.sin(p) ** mx.tanh(q) + mx.cos(p)

    x, y, _ = (mx.array(a) for a in arrays(channels, np.float32))
    of_memory = PARTS[parts](x, y)
    mx.eval(of_memory)
    fused = long(*PARTS[parts](x, y))
    np.testing.assert_array_equal(np.asarray(fused), np.asarray(long(*of_memory)))


@pytest.mark.parametrize("guard", ["guard", "guard_front"])
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_no_byte_beside_is_touched(guard, level):
    own_process.run(
        """
        import cermet.core as mx
        for channels in (16, 21, 500):
            x = mx.ones((5, 10, 8, channels))
            for width in (0, 1, 9):
                pad = mx.pad(x, [(0, 0), (width, 0), (0, width), (0, 0)])
                assert pad.sum().item() == x.size
            joined = mx.concatenate([x, x[:, :, 5:], x], axis=2)
            assert joined.sum().item() == joined.size
            stacked = mx.stack([x, x, x], axis=3)
            assert stacked.sum().item() == stacked.size
        """,
        CERMET_ALLOCATOR=guard,
        CERMET_CPU_FEATURES=level,
    )


def test_loops_have_no_masks(tmp_path):
    own_process.run(
        """
        import cermet.core as mx
        x = mx.array([1.0] * 4 * 16 * 16 * 32).reshape(4, 16, 16, 32)
        mx.eval(mx.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]))
        """,
        CERMET_DUMP=str(tmp_path),
        CERMET_KERNEL_CACHE="off",
    )
    texts = [path.read_text() for path in pathlib.Path(tmp_path).glob("*simplify_tiled.ir")]
    (pad,) = [text for text in texts if "pad" in text.splitlines()[0]]
    loops = re.findall(r"for lane.*?\n *}", pad, re.DOTALL)
    # Before, between and behind the edges, and rows of edges alone.
    assert len(loops) == 4
    assert not any("mask" in loop or "select" in loop or "div" in loop for loop in loops)
