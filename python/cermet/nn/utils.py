# SPDX-License-Identifier: MIT
"""Transforms of functions that use a module's parameters."""

from functools import wraps

import cermet.core as mx
from cermet.arguments import require_callable


def value_and_grad(model, fn):
    """A function with `fn`'s arguments that returns (fn's result, gradients).

    `fn` uses `model` and returns a scalar loss, or a tuple that begins with it. The gradients are
    with respect to the model's trainable parameters and form the same tree. The model keeps its
    own arrays, whatever `fn` does to it.
    """

    if not hasattr(model, "trainable_parameters"):
        raise TypeError(
            f"[value_and_grad] model is of type {type(model).__name__}; it must be a Module"
        )
    require_callable("value_and_grad", fn=fn)

    def of_parameters(parameters, *args, **kwargs):
        model.update(parameters)
        return fn(*args, **kwargs)

    differentiated = mx.value_and_grad(of_parameters)

    @wraps(fn)
    def call(*args, **kwargs):
        own = model.trainable_parameters()
        try:
            return differentiated(model.trainable_parameters(), *args, **kwargs)
        finally:
            model.update(own)

    return call


def checkpoint(module, fn=None):
    """`fn` (or the module's call), whose intermediate results are computed again for the gradients
    with respect to its arguments and to the module's parameters, instead of kept for them.
    """
    checkpointed = mx.checkpoint(module if fn is None else fn)

    @wraps(type(module).__call__ if fn is None else fn)
    def call(*args, **kwargs):
        return checkpointed(*args, **kwargs)

    return call
