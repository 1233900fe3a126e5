# SPDX-License-Identifier: MIT
"""Dropout of single values (Srivastava et al. 2014) and of whole channels."""

import cermet.core as mx
from cermet.arguments import names_errors, require
from cermet.nn.layers.base import Module


def _keep_probability(op, p):
    require(op, "in [0, 1)", lambda p: 0 <= p < 1, p=p)
    return 1 - p


class _Dropout(Module):
    """What the layers share: zero with probability p, scale what stays by 1/(1 - p)."""

    def __init__(self, p=0.5):
        super().__init__()
        self._p_1 = _keep_probability(type(self).__name__, p)

    def _extra_repr(self):
        return f"p={1 - self._p_1}"

    def _drop(self, x, mask_shape):
        if self._p_1 == 1 or not self.training:
            return x
        mask = mx.random.bernoulli(self._p_1, mask_shape)
        return mask * x * (1 / self._p_1)

    def _drop_channels(self, x, ndims):
        """One draw per batch entry (when there is a batch axis) and channel (the last axis)."""
        if x.ndim not in ndims:
            raise ValueError(
                f"[{type(self).__name__}] the input has {x.ndim} axes; "
                f"it must have {ndims[0]}, or {ndims[1]} with a batch axis"
            )
        batch = x.shape[0] if x.ndim == ndims[1] else 1
        return self._drop(x, (batch,) + (1,) * (x.ndim - 2) + (x.shape[-1],))


class Dropout(_Dropout):
    """In training, zeroes each value with probability `p` and scales the others by 1/(1 - p)."""

    def __init__(self, p=0.5):
        super().__init__(p)

    @names_errors
    def __call__(self, x):
        return self._drop(x, x.shape)


class Dropout2d(_Dropout):
    """In training, zeroes whole channels of (N, H, W, C) or (H, W, C) with probability `p` and
    scales the others by 1/(1 - p).
    """

    def __init__(self, p=0.5):
        super().__init__(p)

    @names_errors
    def __call__(self, x):
        return self._drop_channels(x, (3, 4))


class Dropout3d(_Dropout):
    """In training, zeroes whole channels of (N, D, H, W, C) or (D, H, W, C) with probability `p`
    and scales the others by 1/(1 - p).
    """

    def __init__(self, p=0.5):
        super().__init__(p)

    @names_errors
    def __call__(self, x):
        return self._drop_channels(x, (4, 5))
