# SPDX-License-Identifier: MIT
"""Activation functions, and a layer for each.

All but `glu` keep the shape; all but `step` keep a floating dtype. They are written with plain
ops: the core fuses them with their neighbours.
"""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require, require_sizes
from cermet.nn.layers.base import Module


@names_errors
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return mx.sigmoid(x)


@names_errors
def relu(x):
    """max(x, 0)."""
    return mx.maximum(x, 0)


@names_errors
def relu2(x):
    """max(x, 0)²."""
    return mx.square(mx.maximum(x, 0))


@names_errors
def relu6(x):
    """min(max(x, 0), 6)."""
    return mx.minimum(mx.maximum(x, 0), 6.0)


@names_errors
def leaky_relu(x, negative_slope=0.01):
    """max(x, negative_slope·x)."""
    return mx.maximum(negative_slope * x, x)


@names_errors
def prelu(x, alpha):
    """max(x, 0) + alpha·min(x, 0), with `alpha` an array that broadcasts against `x`."""
    return mx.maximum(0, x) + alpha * mx.minimum(0, x)


@names_errors
def elu(x, alpha=1.0):
    """x where x > 0, else alpha·(exp(x) - 1)."""
    # exp sees no positive value, so its gradient stays finite where the other branch is taken.
    is_above = x > 0
    return mx.where(is_above, x, alpha * (mx.exp(mx.where(is_above, 0, x)) - 1))


@names_errors
def celu(x, alpha=1.0):
    """max(x, 0) + alpha·(exp(min(x, 0)/alpha) - 1)."""
    require("celu", "a number other than 0", lambda a: a != 0, alpha=alpha)
    return mx.maximum(x, 0.0) + alpha * (mx.exp(mx.minimum(x, 0.0) / alpha) - 1)


@names_errors
def selu(x):
    """1.0507·elu(x, 1.67326), self-normalising (Klambauer et al. 2017)."""
    return elu(x, 1.67326) * 1.0507


@names_errors
def silu(x):
    """x·sigmoid(x), also called swish."""
    return x * mx.sigmoid(x)


@names_errors
def gelu(x):
    """x·Φ(x) with the normal distribution's Φ (Hendrycks and Gimpel 2016)."""
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


@names_errors
def gelu_approx(x):
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), close to `gelu`."""
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@names_errors
def gelu_fast_approx(x):
    """x·sigmoid(1.702·x), roughly `gelu`."""
    return x * mx.sigmoid(1.702 * x)


@names_errors
def softplus(x):
    """log(1 + exp(x))."""
    return mx.logaddexp(x, 0)


@names_errors
def softsign(x):
    """x / (1 + |x|)."""
    return x / (1 + mx.abs(x))


@names_errors
def softshrink(x, lambd=0.5):
    """x moved towards zero by lambd, and 0 where |x| <= lambd."""
    return mx.where(mx.abs(x) > lambd, x - mx.sign(x) * lambd, 0)


@names_errors
def hard_shrink(x, lambd=0.5):
    """x where |x| > lambd, else 0."""
    return mx.where(mx.abs(x) > lambd, x, 0)


@names_errors
def hard_tanh(x, min_val=-1.0, max_val=1.0):
    """x limited to [min_val, max_val]."""
    return mx.minimum(mx.maximum(x, min_val), max_val)


@names_errors
def hardswish(x):
    """x·min(max(x + 3, 0), 6) / 6."""
    return x * mx.minimum(mx.maximum(x + 3, 0), 6) / 6


@names_errors
def log_sigmoid(x):
    """log(sigmoid(x))."""
    return -softplus(-x)


@names_errors
def mish(x):
    """x·tanh(softplus(x))."""
    return x * mx.tanh(softplus(x))


@names_errors
def tanh(x):
    """The hyperbolic tangent."""
    return mx.tanh(x)


@names_errors
def step(x, threshold=0.0):
    """1 where x >= threshold, else 0; int32."""
    return mx.where(x >= threshold, 1, 0)


@names_errors
def softmax(x, axis=-1):
    """exp(x) / sum of exp(x) along `axis`."""
    return mx.softmax(x, axis=axis)


@names_errors
def softmin(x, axis=-1):
    """softmax(-x) along `axis`."""
    return mx.softmax(-x, axis=axis)


@names_errors
def log_softmax(x, axis=-1):
    """log(softmax(x)) along `axis`."""
    return x - mx.logsumexp(x, axis=axis, keepdims=True)


@names_errors
def glu(x, axis=-1):
    """a·sigmoid(b) with a and b the halves of `x` along `axis`, which is halved."""
    if -x.ndim <= axis < x.ndim and x.shape[axis] % 2:
        raise ValueError(
            f"[glu] axis {axis} of shape {x.shape} has an odd size; it must have two halves"
        )
    a, b = mx.split(x, 2, axis=axis)
    return a * mx.sigmoid(b)


def _layer(function):
    """Fills in the `__call__` and docstring of a layer without parameters or settings."""

    def decorate(cls):
        def __call__(self, x):
            return function(x)

        __call__.__qualname__ = f"{cls.__name__}.__call__"
        cls.__call__ = names_errors(__call__)
        cls.__doc__ = f"`{function.__name__}` as a layer: {function.__doc__}"
        return cls

    return decorate


@_layer(sigmoid)
class Sigmoid(Module):
    pass


@_layer(relu)
class ReLU(Module):
    pass


@_layer(relu2)
class ReLU2(Module):
    pass


@_layer(relu6)
class ReLU6(Module):
    pass


@_layer(selu)
class SELU(Module):
    pass


@_layer(silu)
class SiLU(Module):
    pass


@_layer(softplus)
class Softplus(Module):
    pass


@_layer(softsign)
class Softsign(Module):
    pass


@_layer(hard_tanh)
class HardTanh(Module):
    pass


@_layer(hardswish)
class Hardswish(Module):
    pass


@_layer(log_sigmoid)
class LogSigmoid(Module):
    pass


@_layer(mish)
class Mish(Module):
    pass


@_layer(tanh)
class Tanh(Module):
    pass


@_layer(softmax)
class Softmax(Module):
    pass


@_layer(softmin)
class Softmin(Module):
    pass


@_layer(log_softmax)
class LogSoftmax(Module):
    pass


class LeakyReLU(Module):
    """`leaky_relu` as a layer."""

    def __init__(self, negative_slope=0.01):
        super().__init__()
        self._negative_slope = negative_slope

    @names_errors
    def __call__(self, x):
        return leaky_relu(x, self._negative_slope)


class PReLU(Module):
    """`prelu` as a layer, with `weight` (num_parameters,) as the learned alpha."""

    def __init__(self, num_parameters=1, init=0.25):
        super().__init__()
        require_sizes("PReLU", num_parameters=num_parameters)
        self.weight = mx.full([num_parameters], init)

    @names_errors
    def __call__(self, x):
        return prelu(x, self.weight)


class ELU(Module):
    """`elu` as a layer."""

    def __init__(self, alpha=1.0):
        super().__init__()
        self._alpha = alpha

    @names_errors
    def __call__(self, x):
        return elu(x, self._alpha)


class CELU(Module):
    """`celu` as a layer."""

    def __init__(self, alpha=1.0):
        super().__init__()
        require("CELU", "a number other than 0", lambda a: a != 0, alpha=alpha)
        self._alpha = alpha

    @names_errors
    def __call__(self, x):
        return celu(x, self._alpha)


class GELU(Module):
    """`gelu` as a layer; `approx`: "none" for the exact one, "precise" or "tanh" for
    `gelu_approx`, "fast" for `gelu_fast_approx`.
    """

    _functions = {
        "none": gelu,
        "precise": gelu_approx,
        "tanh": gelu_approx,
        "fast": gelu_fast_approx,
    }

    def __init__(self, approx="none"):
        super().__init__()
        if approx not in self._functions:
            raise ValueError(
                f"[GELU] approx is {approx!r}; it must be one of {', '.join(self._functions)}"
            )
        self._approx = approx

    @names_errors
    def __call__(self, x):
        return self._functions[self._approx](x)


class GLU(Module):
    """`glu` as a layer."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    @names_errors
    def __call__(self, x):
        return glu(x, self.axis)


class Softshrink(Module):
    """`softshrink` as a layer."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    @names_errors
    def __call__(self, x):
        return softshrink(x, self.lambd)


class HardShrink(Module):
    """`hard_shrink` as a layer."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    @names_errors
    def __call__(self, x):
        return hard_shrink(x, self.lambd)


class Step(Module):
    """`step` as a layer."""

    def __init__(self, threshold=0.0):
        super().__init__()
        self.threshold = threshold

    @names_errors
    def __call__(self, x):
        return step(x, self.threshold)
