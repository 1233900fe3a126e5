# SPDX-License-Identifier: MIT
"""Sequential."""

from cermet.arguments import require_callable
from cermet.nn.layers.base import Module


class Sequential(Module):
    """Calls its modules (or any callables) one after the other, each on the former's result."""

    def __init__(self, *modules):
        super().__init__()
        require_callable("Sequential", **{f"module {i}": m for i, m in enumerate(modules)})
        self.layers = list(modules)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
