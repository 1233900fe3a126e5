# SPDX-License-Identifier: MIT
"""Layer, RMS, group, instance and batch normalisation. Channels are the last axis."""

import cermet.core as mx
from cermet.arguments import names_errors, require, require_numbers, require_sizes
from cermet.nn.layers.base import Module


def _require_norm(op, dims, eps):
    require_sizes(op, 0, dims=dims)
    require_numbers(op, eps=eps)


class RMSNorm(Module):
    """x / √(mean(x²) + eps) · weight over the last axis (Zhang and Sennrich 2019).

    `weight` (dims,) begins at 1.
    """

    def __init__(self, dims, eps=1e-5):
        super().__init__()
        _require_norm("RMSNorm", dims, eps)
        self.weight = mx.ones((dims,))
        self.eps = eps

    def _extra_repr(self):
        return f"{self.weight.shape[0]}, eps={self.eps}"

    @names_errors
    def __call__(self, x):
        return mx.fast.rms_norm(x, self.weight, self.eps)


class LayerNorm(Module):
    """(x - mean) / √(var + eps) · weight + bias over the last axis (Ba et al. 2016).

    With `affine`, `weight` (dims,) begins at 1 and, with `bias`, `bias` (dims,) at 0.
    """

    def __init__(self, dims, eps=1e-5, affine=True, bias=True):
        super().__init__()
        _require_norm("LayerNorm", dims, eps)
        if affine:
            self.weight = mx.ones((dims,))
            if bias:
                self.bias = mx.zeros((dims,))
        self.eps = eps
        self.dims = dims

    def _extra_repr(self):
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    @names_errors
    def __call__(self, x):
        return mx.fast.layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class InstanceNorm(Module):
    """(x - mean) / √(var + eps) over all axes but the first (batch) and the last (channels).

    With `affine`, times `weight` (dims,), which begins at 1, plus `bias` (dims,), at 0.
    """

    def __init__(self, dims, eps=1e-5, affine=False):
        super().__init__()
        _require_norm("InstanceNorm", dims, eps)
        if affine:
            self.weight = mx.ones((dims,))
            self.bias = mx.zeros((dims,))
        self.dims = dims
        self.eps = eps

    def _extra_repr(self):
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    @names_errors
    def __call__(self, x):
        if x.ndim < 3:
            raise ValueError(
                f"[InstanceNorm] the input has {x.ndim} axes; it must have at least 3: "
                "the batch, what to normalise over, and the channels"
            )
        axes = tuple(range(1, x.ndim - 1))
        mean = mx.mean(x, axis=axes, keepdims=True)
        var = mx.var(x, axis=axes, keepdims=True)
        x = (x - mean) * mx.rsqrt(var + self.eps)
        return self.weight * x + self.bias if "weight" in self else x


class GroupNorm(Module):
    """(x - mean) / √(var + eps) over each group of channels and all axes but the first, the batch
    (Wu and He 2018); with `affine`, times `weight` (dims,) plus `bias` (dims,).

    Channel c is in group c mod num_groups; with `pytorch_compatible` a group is a run of
    dims/num_groups neighbouring channels.
    """

    def __init__(self, num_groups, dims, eps=1e-5, affine=True, pytorch_compatible=False):
        super().__init__()
        _require_norm("GroupNorm", dims, eps)
        require_sizes("GroupNorm", num_groups=num_groups)
        require(
            "GroupNorm",
            f"a divisor of dims, {dims}",
            lambda n: dims % n == 0,
            num_groups=num_groups,
        )
        if affine:
            self.bias = mx.zeros((dims,))
            self.weight = mx.ones((dims,))
        self.num_groups = num_groups
        self.dims = dims
        self.eps = eps
        self.pytorch_compatible = pytorch_compatible

    def _extra_repr(self):
        return (
            f"{self.num_groups}, {self.dims}, eps={self.eps}, affine={'weight' in self}, "
            f"pytorch_compatible={self.pytorch_compatible}"
        )

    def _strided(self, x, size):
        groups = x.reshape(x.shape[0], -1, size, self.num_groups).transpose(0, 3, 1, 2)
        rows = groups.reshape(x.shape[0], self.num_groups, -1)
        rows = mx.fast.layer_norm(rows, None, None, self.eps)
        return rows.reshape(groups.shape).transpose(0, 2, 3, 1)

    def _runs(self, x, size):
        groups = x.reshape(x.shape[0], -1, self.num_groups, size)
        wide = groups if x.dtype == mx.float64 else groups.astype(mx.float32)

        def average(a):  # over the places, all channels side by side, then over a group's channels
            return mx.mean(mx.mean(a, axis=1, keepdims=True), axis=3, keepdims=True)

        centred = wide - average(wide)
        scale = mx.rsqrt(average(centred * centred) + self.eps)
        return (centred * scale).astype(x.dtype)

    @names_errors
    def __call__(self, x):
        if x.ndim < 2:
            raise ValueError(
                f"[GroupNorm] the input has {x.ndim} axes; it must have at least 2: "
                "the batch and the channels"
            )
        batch, *middle, dims = x.shape
        if dims % self.num_groups:
            raise ValueError(
                f"[GroupNorm] the input has {dims} channels; it must be a multiple of the "
                f"{self.num_groups} groups"
            )
        size = dims // self.num_groups
        normalized = self._runs(x, size) if self.pytorch_compatible else self._strided(x, size)
        x = normalized.reshape(batch, *middle, dims)
        return self.weight * x + self.bias if "weight" in self else x


class BatchNorm(Module):
    """(x - mean) / √(var + eps) per channel over a batch (N, C), (N, L, C) or (N, H, W, C)
    (Ioffe and Szegedy 2015); with `affine`, times `weight` (C,) plus `bias` (C,).

    With `track_running_stats`, training moves `running_mean` and `running_var` (unbiased) towards
    the batch's by `momentum`, and evaluation uses them. They are never trained.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__()
        require_sizes("BatchNorm", 0, num_features=num_features)
        require_numbers("BatchNorm", eps=eps)
        require("BatchNorm", "in [0, 1]", lambda m: 0 <= m <= 1, momentum=momentum)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = mx.ones((num_features,))
            self.bias = mx.zeros((num_features,))
        if track_running_stats:
            self.running_mean = mx.zeros((num_features,))
            self.running_var = mx.ones((num_features,))
            self.freeze(keys=["running_mean", "running_var"], recurse=False)

    def unfreeze(self, *args, **kwargs):
        """As `Module.unfreeze`, but the running statistics stay frozen."""
        super().unfreeze(*args, **kwargs)
        if self.track_running_stats:
            self.freeze(keys=["running_mean", "running_var"], recurse=False)
        return self

    def _extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={'weight' in self}, track_running_stats={self.track_running_stats}"
        )

    def _batch_stats(self, x):
        axes = tuple(range(x.ndim - 1))
        mean, var = mx.mean(x, axis=axes), mx.var(x, axis=axes)
        if self.track_running_stats:
            count = x.size // x.shape[-1]
            unbiased = var * (count / (count - 1)) if count > 1 else var
            keep, move = 1 - self.momentum, self.momentum
            self.running_mean = keep * self.running_mean + move * mean
            self.running_var = keep * self.running_var + move * unbiased
        return mean, var

    @names_errors
    def __call__(self, x):
        if not 2 <= x.ndim <= 4:
            raise ValueError(f"[BatchNorm] the input has {x.ndim} axes; it must have 2, 3 or 4")
        if self.training or not self.track_running_stats:
            mean, var = self._batch_stats(x)
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean) * mx.rsqrt(var + self.eps)
        return self.weight * x + self.bias if "weight" in self else x
