# SPDX-License-Identifier: MIT
"""Embedding."""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require_sizes
from cermet.nn.layers.base import Module


class Embedding(Module):
    """A table from integers to vectors.

    `weight` (num_embeddings, dims) begins normal with variance 1/dims.
    """

    def __init__(self, num_embeddings, dims):
        super().__init__()
        require_sizes("Embedding", 0, num_embeddings=num_embeddings)
        require_sizes("Embedding", dims=dims)
        self.weight = mx.random.normal((num_embeddings, dims), scale=math.sqrt(1 / dims))

    def _extra_repr(self):
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"

    @names_errors
    def __call__(self, x):
        """Integers (...) in [0, num_embeddings) → (..., dims)."""
        with mx._meant("Embedding"):
            return self.weight[x]

    @names_errors
    def as_linear(self, x):
        """x @ weightᵀ: (..., dims) → (..., num_embeddings), the table as an output layer."""
        return x @ self.weight.T
