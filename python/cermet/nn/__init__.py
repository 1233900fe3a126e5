# SPDX-License-Identifier: MIT
"""Neural networks: layers, activations, losses, initializers, gradients of modules."""

from cermet.nn import init, layers, losses
from cermet.nn.layers import *  # noqa: F403
from cermet.nn.utils import value_and_grad

__all__ = [*layers.__all__, "init", "layers", "losses", "value_and_grad"]
