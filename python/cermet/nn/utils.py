# SPDX-License-Identifier: MIT
"""Transforms of functions that use a module's parameters."""

from functools import wraps

import cermet.core as mx


def value_and_grad(model, fn):
    """A function with `fn`'s arguments that returns (fn's result, gradients).

    `fn` uses `model` and returns a scalar loss, or a tuple that begins with it. The gradients are
    with respect to the model's trainable parameters and form the same tree. The model keeps its
    own arrays, whatever `fn` does to it.
    """

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
