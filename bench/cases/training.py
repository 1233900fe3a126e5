# SPDX-License-Identifier: MIT
"""Training steps of two models: forward, backward, clipping, AdamW. Both are the text model of
examples/, in its own size and as a larger transformer.

Their matmuls are nearly all of their arithmetic, so the rate is judged by that of one matmul of our
own, or by the peers, which run the same model written in their own style.
"""

import importlib
import pathlib
import sys
from dataclasses import dataclass

from case import Case, add
from gates import All, Faster, PeakAtMostPeers, RateAtLeast, RelativeAtMost

from cases.gemm import product

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/text_model"
SQUARE = 1024
PEERS = ("mlx", "torch", "torch_compiled", "jax")


@dataclass(frozen=True)
class Sizes:
    """Of the model, with the names of the example's Config, and of the step."""

    batch: int
    layers: int
    dims: int
    heads: int
    hidden: int
    context: int = 256
    vocabulary: int = 256
    learning_rate: float = 2e-3
    betas: tuple = (0.9, 0.98)
    weight_decay: float = 0.1
    clip: float = 1.0

    def config(self, example):
        names = ("vocabulary", "context", "layers", "dims", "heads", "hidden")
        return example.Config(**{name: getattr(self, name) for name in names})

    def tokens(self):
        """Random bytes (B, T + 1); what they are does not matter for the speed."""
        import numpy as np

        shape = self.batch, self.context + 1
        return np.random.default_rng(0).integers(0, self.vocabulary, shape, dtype=np.int32)

    def flops(self):
        """Multiplications and additions of a step: a matmul's backward is twice its forward;
        attention multiplies whole squares, which the mask then covers by half, in every library
        here."""
        block = 4 * self.dims * self.dims + 3 * self.dims * self.hidden
        weights = self.layers * block + self.dims * self.vocabulary
        positions = self.batch * self.context
        attention = self.layers * positions * 4 * self.context * self.dims
        return 3 * (2 * weights * positions + attention)


def training_step(sizes, compiled=True):
    def build(lib):
        if lib.name in ("cermet", "mlx"):
            return mlx_style_step(lib, sizes, compiled)
        name = "jax" if lib.name == "jax" else "torch"
        return importlib.import_module(f"text_model_{name}").step(lib, sizes)

    return build


def mlx_style_step(lib, sizes, compiled):
    mx, root = lib.xp, lib.name
    if root == "mlx":  # the example runs on MLX under other names
        for name in ("", ".core", ".nn", ".optimizers", ".utils"):
            sys.modules["cermet" + name] = importlib.import_module("mlx" + name)
    sys.path.insert(0, str(EXAMPLE))
    example = importlib.import_module("model")
    optimizers = importlib.import_module(f"{root}.optimizers")

    model = example.TextModel(sizes.config(example))
    optimizer = optimizers.AdamW(
        sizes.learning_rate, betas=list(sizes.betas), weight_decay=sizes.weight_decay
    )
    optimizer.init(model.trainable_parameters())
    loss_and_gradients = lib.nn.value_and_grad(model, lambda x, y: example.loss_fn(model, x, y))
    state = [model.state, optimizer.state]
    mx.eval(state)
    text = mx.array(sizes.tokens())
    x, y = text[:, :-1], text[:, 1:]

    def step(x, y):
        loss, gradients = loss_and_gradients(x, y)
        gradients, _ = optimizers.clip_grad_norm(gradients, sizes.clip)
        optimizer.update(model, gradients)
        return loss

    if compiled:
        step = mx.compile(step, inputs=state, outputs=state)

    def run():
        loss = step(x, y)
        mx.eval(loss, state)
        return loss

    return run


TEXT_MODEL = Sizes(batch=16, layers=4, dims=256, heads=4, hidden=683)
TRANSFORMER = Sizes(batch=8, layers=12, dims=512, heads=8, hidden=2048)
RATE = RateAtLeast(0.65, f"x@w {SQUARE}³")
for name, sizes, gate, rest in (
    (
        "text model, training step",
        TEXT_MODEL,
        RATE,
        {"baseline": product(SQUARE), "baseline_flops": 2 * SQUARE**3},
    ),
    ("12 layers, training step", TRANSFORMER, All(Faster(), PeakAtMostPeers()), {}),
):
    add(
        Case(
            name,
            (sizes.batch, sizes.context),
            training_step(sizes),
            gate,
            flops=sizes.flops(),
            peers=PEERS,
            **rest,
        )
    )
    add(
        Case(
            f"{name}, eager",
            (sizes.batch, sizes.context),
            training_step(sizes, compiled=False),
            RelativeAtMost(1.15, "compiled"),
            flops=sizes.flops(),
            baseline=training_step(sizes),
        )
    )
