# SPDX-License-Identifier: MIT
"""Initializers: each function here returns one that takes an array and gives a new array of its
shape. Of a weight with more than two axes, the middle ones count as the kernel's window.
"""

import math

import cermet.core as mx
from cermet.arguments import require_arrays


def _shape(op, a):
    require_arrays(f"init.{op}", a=a)
    return a.shape


def constant(value, dtype=mx.float32):
    """All values equal to `value`."""
    return lambda a: mx.full(_shape("constant", a), value, dtype=dtype)


def normal(mean=0.0, std=1.0, dtype=mx.float32):
    """Normal with the given mean and standard deviation."""
    return lambda a: mx.random.normal(_shape("normal", a), dtype=dtype, loc=mean, scale=std)


def uniform(low=0.0, high=1.0, dtype=mx.float32):
    """Uniform in [low, high)."""
    return lambda a: mx.random.uniform(low, high, _shape("uniform", a), dtype=dtype)


def identity(dtype=mx.float32):
    """The identity matrix; the array must be square."""

    def initializer(a):
        shape = _shape("identity", a)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"[init.identity] the shape is {shape}; it must be a square matrix")
        return mx.eye(a.shape[0], dtype=dtype)

    return initializer


def _fans(op, a):
    """(fan_in, fan_out) of a weight (outputs, window..., inputs)."""
    shape = _shape(op, a)
    if len(shape) < 2:
        raise ValueError(f"[init.{op}] the array has {len(shape)} axes; it must have at least 2")
    window = math.prod(shape[1:-1])
    # At least 1: of an empty array nothing is drawn.
    return max(shape[-1] * window, 1), max(shape[0] * window, 1)


def glorot_normal(dtype=mx.float32):
    """Normal with standard deviation gain·√(2/(fan_in + fan_out)) (Glorot and Bengio 2010)."""

    def initializer(a, gain=1.0):
        std = gain * math.sqrt(2.0 / sum(_fans("glorot_normal", a)))
        return mx.random.normal(a.shape, dtype=dtype, scale=std)

    return initializer


def glorot_uniform(dtype=mx.float32):
    """Uniform in ±gain·√(6/(fan_in + fan_out)) (Glorot and Bengio 2010)."""

    def initializer(a, gain=1.0):
        bound = gain * math.sqrt(6.0 / sum(_fans("glorot_uniform", a)))
        return mx.random.uniform(-bound, bound, a.shape, dtype=dtype)

    return initializer


def _he_fan(op, a, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"[init.{op}] mode is {mode!r}; it must be 'fan_in' or 'fan_out'")
    fan_in, fan_out = _fans(op, a)
    return fan_in if mode == "fan_in" else fan_out


def he_normal(dtype=mx.float32):
    """Normal with standard deviation gain/√fan (He et al. 2015)."""

    def initializer(a, mode="fan_in", gain=1.0):
        std = gain / math.sqrt(_he_fan("he_normal", a, mode))
        return mx.random.normal(a.shape, dtype=dtype, scale=std)

    return initializer


def he_uniform(dtype=mx.float32):
    """Uniform in ±gain·√(3/fan) (He et al. 2015)."""

    def initializer(a, mode="fan_in", gain=1.0):
        bound = gain * math.sqrt(3.0 / _he_fan("he_uniform", a, mode))
        return mx.random.uniform(-bound, bound, a.shape, dtype=dtype)

    return initializer
