# SPDX-License-Identifier: MIT
"""Runs one piece of code on Cermet and on the MLX wheel, and compares what comes out."""

from types import SimpleNamespace

import cermet.core
import cermet.nn
import cermet.optimizers
import cermet.utils
import mlx.core
import mlx.nn
import mlx.optimizers
import mlx.utils
import numpy as np

CERMET = SimpleNamespace(mx=cermet.core, nn=cermet.nn, optim=cermet.optimizers, utils=cermet.utils)
MLX = SimpleNamespace(mx=mlx.core, nn=mlx.nn, optim=mlx.optimizers, utils=mlx.utils)


def outcome(code, lib):
    """What `code(lib)` returns, arrays as (dtype, NumPy array); or the type of its error."""
    try:
        return plain(code(lib), lib)
    except Exception as error:  # any error is a result to compare
        return type(error)


def plain(value, lib):
    """`value` with the library's arrays, dtypes and modules replaced by comparable values."""
    mx = lib.mx
    if isinstance(value, mx.array):
        mx.eval(value)  # alone, so that it is rounded to its dtype before it is widened
        wide = value.astype(mx.float32) if value.dtype == mx.bfloat16 else value
        return dtype_name(value.dtype), np.array(wide)
    if isinstance(value, mx.Dtype):
        return dtype_name(value)
    if isinstance(value, dict):
        return {k: plain(v, lib) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, lib) for v in value]
    return value


def dtype_name(dtype):
    return str(dtype).rpartition(".")[2]


def same(code, rtol=1e-5, atol=1e-6):
    """Assert that `code(lib)` gives the same tree, dtypes, shapes and values on both libraries,
    or the same type of error; returns Cermet's outcome.
    """
    ours, theirs = outcome(code, CERMET), outcome(code, MLX)
    assert_close(ours, theirs, rtol, atol, "result")
    return ours


def same_values(code, rtol=1e-5, atol=1e-6):
    """`same`, and an error on both sides is a failure of the test itself."""
    ours = same(code, rtol, atol)
    assert not isinstance(ours, type), f"both raised {ours.__name__}"
    return ours


def assert_close(ours, theirs, rtol, atol, path):
    if isinstance(theirs, np.ndarray):
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=path)
    elif isinstance(theirs, dict):
        assert isinstance(ours, dict) and sorted(ours) == sorted(theirs), path
        for key in theirs:
            assert_close(ours[key], theirs[key], rtol, atol, f"{path}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, type(theirs)) and len(ours) == len(theirs), path
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_close(*pair, rtol, atol, f"{path}.{i}")
    elif isinstance(theirs, float):
        assert np.isclose(ours, theirs, rtol, atol), f"{path}: {ours} != {theirs}"
    else:
        assert ours == theirs, f"{path}: {ours!r} != {theirs!r}"


def values(shape, seed=0, scale=1.0):
    """Normal float32 values that depend on the shape and the seed alone."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


def fill(lib, model, seed=0):
    """Set all parameters of a model to values that depend on their shapes and order alone."""
    flat = lib.utils.tree_flatten(model.parameters())
    new = [(k, lib.mx.array(values(v.shape, seed + i, 0.3))) for i, (k, v) in enumerate(flat)]
    model.update(lib.utils.tree_unflatten(new))
    return model
