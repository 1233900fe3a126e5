# SPDX-License-Identifier: MIT
"""A training step of the text model of examples/: forward, backward, clipping, AdamW.

Its matmuls are nearly all of its arithmetic, so its rate is judged by that of one matmul of our
own. The peers run the same model, written in their own style.
"""

import importlib
import pathlib
import sys

from case import Case, RateAtLeast, add

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/text_model"
BATCH, CONTEXT, VOCABULARY = 16, 256, 256
LAYERS, DIMS, HEADS, HIDDEN = 4, 256, 4, 683  # the defaults of the example
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 2e-3, (0.9, 0.98), 0.1, 1.0
SQUARE = 1024


def step_flops():
    """Multiplications and additions of a step: a matmul's backward is twice its forward; attention
    multiplies whole squares, which the mask then covers by half, in every library here."""
    weights = LAYERS * (4 * DIMS * DIMS + 3 * DIMS * HIDDEN) + DIMS * VOCABULARY
    attention = LAYERS * BATCH * 4 * CONTEXT * CONTEXT * DIMS
    return 3 * (2 * weights * BATCH * CONTEXT + attention)


def tokens():
    """Random bytes (BATCH, CONTEXT + 1); what they are does not matter for the speed."""
    import numpy as np

    return np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, CONTEXT + 1), dtype=np.int32)


def build(lib):
    if lib.name in ("cermet", "mlx"):
        return mlx_style_step(lib)
    name = "jax" if lib.name == "jax" else "torch"
    return importlib.import_module(f"text_model_{name}").step(lib, sys.modules[__name__])


def mlx_style_step(lib):
    mx, root = lib.xp, lib.name
    if root == "mlx":  # the example runs on MLX under other names
        for name in ("", ".core", ".nn", ".optimizers", ".utils"):
            sys.modules["cermet" + name] = importlib.import_module("mlx" + name)
    sys.path.insert(0, str(EXAMPLE))
    example = importlib.import_module("model")
    nn = importlib.import_module(f"{root}.nn")
    optimizers = importlib.import_module(f"{root}.optimizers")

    model = example.TextModel(example.Config())
    optimizer = optimizers.AdamW(LEARNING_RATE, betas=list(BETAS), weight_decay=WEIGHT_DECAY)
    optimizer.init(model.trainable_parameters())
    loss_and_gradients = nn.value_and_grad(model, lambda x, y: example.loss_fn(model, x, y))
    state = [model.state, optimizer.state]
    mx.eval(state)
    text = mx.array(tokens())
    x, y = text[:, :-1], text[:, 1:]

    def step(x, y):
        loss, gradients = loss_and_gradients(x, y)
        gradients, _ = optimizers.clip_grad_norm(gradients, CLIP)
        optimizer.update(model, gradients)
        return loss

    step = mx.compile(step, inputs=state, outputs=state)

    def run():
        loss = step(x, y)
        mx.eval(loss, state)
        return loss

    return run


def square_matmul(lib):
    a, b = lib.normal(SQUARE, SQUARE, seed=1), lib.normal(SQUARE, SQUARE, seed=2)
    return lambda: lib.xp.matmul(a, b)


add(
    Case(
        "text model, training step",
        (BATCH, CONTEXT),
        build,
        RateAtLeast(0.65, f"x@w {SQUARE}³"),
        flops=step_flops(),
        peers=("mlx", "torch", "torch_compiled", "jax"),
        baseline=square_matmul,
        baseline_flops=2 * SQUARE**3,
    )
)
