# SPDX-License-Identifier: MIT
"""Linear, Bilinear and Identity."""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require_sizes
from cermet.nn.layers.base import Module


class Identity(Module):
    """Returns its input; any arguments are accepted and ignored."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def __call__(self, x):
        return x


class Linear(Module):
    """x @ weightᵀ + bias: (..., input_dims) → (..., output_dims).

    `weight` (output_dims, input_dims) and `bias` (output_dims,) begin uniform in ±1/√input_dims.
    """

    def __init__(self, input_dims, output_dims, bias=True):
        super().__init__()
        require_sizes("Linear", input_dims=input_dims)
        require_sizes("Linear", 0, output_dims=output_dims)
        bound = math.sqrt(1 / input_dims)
        self.weight = mx.random.uniform(-bound, bound, (output_dims, input_dims))
        if bias:
            self.bias = mx.random.uniform(-bound, bound, (output_dims,))

    def _extra_repr(self):
        output_dims, input_dims = self.weight.shape
        return f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}"

    @names_errors
    def __call__(self, x):
        y = x @ self.weight.T
        return y + self.bias if "bias" in self else y


class Bilinear(Module):
    """y_k = x1ᵀ · weight_kᵀ · x2 + bias_k: (..., input1_dims), (..., input2_dims) →
    (..., output_dims).

    `weight` (output_dims, input2_dims, input1_dims) and `bias` (output_dims,) begin uniform in
    ±1/√input1_dims.
    """

    def __init__(self, input1_dims, input2_dims, output_dims, bias=True):
        super().__init__()
        require_sizes("Bilinear", input1_dims=input1_dims)
        require_sizes("Bilinear", 0, input2_dims=input2_dims, output_dims=output_dims)
        bound = math.sqrt(1 / input1_dims)
        self.weight = mx.random.uniform(-bound, bound, (output_dims, input2_dims, input1_dims))
        if bias:
            self.bias = mx.random.uniform(-bound, bound, (output_dims,))

    def _extra_repr(self):
        output_dims, input2_dims, input1_dims = self.weight.shape
        return (
            f"input1_dims={input1_dims}, input2_dims={input2_dims}, "
            f"output_dims={output_dims}, bias={'bias' in self}"
        )

    @names_errors
    def __call__(self, x1, x2):
        output_dims, input2_dims, input1_dims = self.weight.shape
        for x, name, dims in ((x1, "x1", input1_dims), (x2, "x2", input2_dims)):
            if x.ndim == 0 or x.shape[-1] != dims:
                raise ValueError(f"[Bilinear] {name} has shape {x.shape}; it must be (..., {dims})")
        # All outputs at once: (n, i1) @ (i1, o·i2) → (n, o, i2), then a product with each x2.
        table = self.weight.reshape(output_dims * input2_dims, input1_dims)
        rows = (x1.reshape(-1, input1_dims) @ table.T).reshape(-1, output_dims, input2_dims)
        y = (rows @ x2.reshape(-1, input2_dims, 1)).squeeze(-1)
        y = y.reshape(*x1.shape[:-1], output_dims)
        return y + self.bias if "bias" in self else y
