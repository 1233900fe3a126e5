# SPDX-License-Identifier: MIT
"""cermet.optimizers against mlx.optimizers: parameters and states after several steps."""

import numpy as np
import pytest
from mlx_oracle import CERMET, assert_close, fill, plain, same, same_values, values

mx, nn, optim = CERMET.mx, CERMET.nn, CERMET.optim

SHAPES = {"a": (3,), "b": {"c": (4, 6), "d": [(6, 4), (2, 3, 4)]}, "e": ()}


def tree_of_arrays(lib, seed, dtype="float32"):
    return lib.utils.tree_map(
        lambda shape: lib.mx.array(values(shape, seed), dtype=getattr(lib.mx, dtype)),
        SHAPES,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def warmup(lib):
    return lib.optim.linear_schedule(0.01, 0.1, 3)


OPTIMIZERS = {
    "sgd": lambda lib: lib.optim.SGD(0.1),
    "sgd_momentum": lambda lib: lib.optim.SGD(0.1, momentum=0.9, weight_decay=0.1),
    "sgd_dampening": lambda lib: lib.optim.SGD(0.1, momentum=0.9, dampening=0.3),
    "sgd_nesterov": lambda lib: lib.optim.SGD(0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda lib: lib.optim.RMSprop(0.1, alpha=0.8, eps=1e-6),
    "adagrad": lambda lib: lib.optim.Adagrad(0.1),
    "adadelta": lambda lib: lib.optim.AdaDelta(0.5, rho=0.8),
    "adam": lambda lib: lib.optim.Adam(0.1),
    "adam_corrected": lambda lib: lib.optim.Adam(0.1, betas=(0.8, 0.9), bias_correction=True),
    "adamw": lambda lib: lib.optim.AdamW(0.1, betas=[0.9, 0.98], weight_decay=0.2),
    "adamw_corrected": lambda lib: lib.optim.AdamW(0.1, bias_correction=True),
    "adamax": lambda lib: lib.optim.Adamax(0.1),
    "lion": lambda lib: lib.optim.Lion(0.1, weight_decay=0.1),
    "adafactor": lambda lib: lib.optim.Adafactor(),
    "adafactor_rate": lambda lib: lib.optim.Adafactor(0.1, relative_step=False),
    "adafactor_all": lambda lib: lib.optim.Adafactor(
        beta_1=0.9, weight_decay=0.1, warmup_init=True, clip_threshold=0.5
    ),
    "adafactor_unscaled": lambda lib: lib.optim.Adafactor(
        0.1, scale_parameter=False, relative_step=False, weight_decay=0.3
    ),
    "muon": lambda lib: lib.optim.Muon(0.1),
    "muon_plain": lambda lib: lib.optim.Muon(0.1, nesterov=False, weight_decay=0.0, ns_steps=3),
    "scheduled": lambda lib: lib.optim.AdamW(warmup(lib)),
    "several": lambda lib: lib.optim.MultiOptimizer(
        [lib.optim.SGD(0.1, momentum=0.9), lib.optim.Lion(0.2), lib.optim.Adam(warmup(lib))],
        [lambda path, g: path.startswith("b.d"), lambda path, g: g.ndim == 0],
    ),
}


def after_steps(lib, optimizer, steps, dtype="float32"):
    parameters = tree_of_arrays(lib, 0, dtype)
    for i in range(steps):
        gradients = tree_of_arrays(lib, i + 1, dtype)
        parameters = optimizer.apply_gradients(gradients, parameters)
    return parameters


# Muon repeats matmuls on values near its fixed point, where the two libraries' rounding differs.
def tolerance(name):
    return 1e-3 if name.startswith("muon") else 1e-5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name):
    def run(lib):
        optimizer = OPTIMIZERS[name](lib)
        parameters = after_steps(lib, optimizer, 5)
        return parameters, optimizer.state

    same_values(run, rtol=tolerance(name), atol=tolerance(name) / 10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_initial_state(name):
    def run(lib):
        optimizer = OPTIMIZERS[name](lib)
        before = plain(optimizer.state, lib)
        optimizer.init(tree_of_arrays(lib, 0))
        return before, optimizer.state

    same_values(run)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_half_precision(name):
    def run(lib):
        optimizer = OPTIMIZERS[name](lib)
        parameters = after_steps(lib, optimizer, 1, "bfloat16")
        return lib.utils.tree_map(lambda x: x.dtype, [parameters, optimizer.state])

    same_values(run)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_moves_to_another_optimizer(name):
    straight = OPTIMIZERS[name](CERMET)
    expected = after_steps(CERMET, straight, 4)
    first, second = OPTIMIZERS[name](CERMET), OPTIMIZERS[name](CERMET)
    parameters = after_steps(CERMET, first, 2)
    flat = CERMET.utils.tree_flatten(first.state, destination={})
    second.state = CERMET.utils.tree_unflatten(flat)
    for i in (2, 3):
        parameters = second.apply_gradients(tree_of_arrays(CERMET, i + 1), parameters)
    assert_close(plain(parameters, CERMET), plain(expected, CERMET), 0, 0, "parameters")
    assert_close(plain(second.state, CERMET), plain(straight.state, CERMET), 0, 0, "state")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_step(name):
    """The step inside mx.compile, with the optimizer's state as an input and output."""
    plain_optimizer, optimizer = OPTIMIZERS[name](CERMET), OPTIMIZERS[name](CERMET)
    expected = after_steps(CERMET, plain_optimizer, 4)
    parameters = tree_of_arrays(CERMET, 0)
    optimizer.init(parameters)
    state = [optimizer.state]

    step = mx.compile(lambda g, p: optimizer.apply_gradients(g, p), inputs=state, outputs=state)
    for i in range(4):
        parameters = step(tree_of_arrays(CERMET, i + 1), parameters)
        mx.eval(parameters, state)
    limit = 10 * tolerance(name)
    assert_close(plain(parameters, CERMET), plain(expected, CERMET), limit, limit, "parameters")
    assert optimizer.step.item() == 4


def test_update_trains_a_model():
    def run(lib):
        layers = [lib.nn.Linear(5, 8), lib.nn.ReLU(), lib.nn.Linear(8, 1)]
        model = fill(lib, lib.nn.Sequential(*layers))
        model.layers[0].freeze(keys="bias")
        optimizer = lib.optim.Adam(0.05)
        x, y = lib.mx.array(values((16, 5), 1)), lib.mx.array(values((16, 1), 2))
        step = lib.nn.value_and_grad(model, lambda: lib.nn.losses.mse_loss(model(x), y))
        losses = []
        for _ in range(10):
            loss, gradients = step()
            assert optimizer.update(model, gradients) is None
            losses.append(loss.item())
        return losses, model.parameters(), sorted(optimizer.state["layers"][0])

    losses = same_values(run, rtol=1e-4, atol=1e-5)[0]
    assert losses[-1] < 0.8 * losses[0]


def test_gradients_of_some_parameters():
    def run(lib):
        optimizer, parameters = lib.optim.Adam(0.1), tree_of_arrays(lib, 0)
        return optimizer.apply_gradients({"a": parameters["a"]}, parameters), optimizer.state

    same_values(run)


def test_an_optimizer_of_ones_own():
    def run(lib):
        class Signs(lib.optim.Optimizer):
            def apply_single(self, gradient, parameter, state):
                return parameter - 0.1 * lib.mx.sign(gradient)

            if lib is not CERMET:

                def init_single(self, parameter, state):
                    pass

        optimizer = Signs()
        return after_steps(lib, optimizer, 3), optimizer.step

    same_values(run)


def lamb(lib):
    """As users write one: settings in the state, some of them schedules, and compiled below."""
    mx = lib.mx

    class Lamb(lib.optim.Optimizer):
        def __init__(self, learning_rate, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1):
            super().__init__()
            self._maybe_schedule("learning_rate", learning_rate)
            self._maybe_schedule("decay", weight_decay)
            self.betas, self.eps = betas, eps

        def init_single(self, parameter, state):
            state["m"] = mx.zeros_like(parameter)
            state["v"] = mx.zeros_like(parameter)

        def apply_single(self, gradient, parameter, state):
            rate = self.learning_rate.astype(gradient.dtype)
            decay = self.state["decay"].astype(gradient.dtype)
            b1, b2 = self.betas
            state["m"] = b1 * state["m"] + (1 - b1) * gradient
            state["v"] = b2 * state["v"] + (1 - b2) * mx.square(gradient)
            step = state["m"] / (mx.sqrt(state["v"]) + self.eps) + decay * parameter
            norm, size = (mx.sqrt(mx.square(a).sum()) for a in (parameter, step))
            ratio = mx.where((norm > 0) & (size > 0), norm / (size + self.eps), 1.0)
            return parameter - rate * ratio * step

    return Lamb


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_optimizer_with_settings_of_ones_own(dtype):
    def run(lib):
        optimizer = lamb(lib)(warmup(lib), weight_decay=lambda step: 0.1 / (step + 1))
        return after_steps(lib, optimizer, 4, dtype), optimizer.state, optimizer.learning_rate

    same_values(run, **({} if dtype == "float32" else {"rtol": 2e-3, "atol": 2e-3}))


def test_an_optimizer_of_ones_own_in_a_compiled_step():
    def run(lib):
        model = fill(lib, lib.nn.Linear(6, 4))
        several = lib.optim.MultiOptimizer(
            [lamb(lib)(warmup(lib)), lib.optim.SGD(0.1)], [lambda path, g: path == "weight"]
        )
        several.init(model.trainable_parameters())
        state = [model.state, several.state]

        def step(x):
            loss, gradients = lib.nn.value_and_grad(model, lambda x: model(x).square().mean())(x)
            several.update(model, gradients)
            return loss

        compiled = lib.mx.compile(step, inputs=state, outputs=state)
        losses = [compiled(lib.mx.array(values((3, 6)))) for _ in range(4)]
        saved = lib.optim.MultiOptimizer(
            [lamb(lib)(0.3), lib.optim.SGD(0.1)], [lambda path, g: path == "weight"]
        )
        saved.state = several.state
        return losses, model.parameters(), saved.state, saved.optimizers[0].learning_rate

    same_values(run)


def test_the_base_has_no_rule():
    parameters = tree_of_arrays(CERMET, 0)
    optimizer = CERMET.optim.Optimizer()
    optimizer.init(parameters)
    with pytest.raises(TypeError, match=r"\[Optimizer\] no rule updates a parameter; use "):
        optimizer.apply_gradients(parameters, parameters)


def test_learning_rate():
    def run(lib):
        optimizer = lib.optim.SGD(0.1)
        seen = [optimizer.learning_rate]
        optimizer.learning_rate = 0.5
        seen.append(optimizer.learning_rate)
        optimizer.learning_rate = lib.mx.array(0.25)
        seen.append(optimizer.learning_rate)
        scheduled = lib.optim.SGD(lambda step: 0.1 * (step + 1))
        seen += [scheduled.learning_rate, scheduled.step]
        after_steps(lib, scheduled, 3)
        return [*seen, scheduled.learning_rate, scheduled.step, lib.optim.SGD(1).learning_rate]

    same_values(run)


@pytest.mark.parametrize("code", [
    lambda lib: lib.optim.SGD(0.1, nesterov=True),
    lambda lib: lib.optim.SGD(0.1, momentum=0.9, dampening=0.1, nesterov=True),
    lambda lib: lib.optim.RMSprop(0.1, alpha=-1),
    lambda lib: lib.optim.RMSprop(0.1, eps=-1),
    lambda lib: lib.optim.Adagrad(0.1, eps=-1),
    lambda lib: lib.optim.AdaDelta(0.1, rho=-1),
    lambda lib: lib.optim.AdaDelta(0.1, eps=-1),
    lambda lib: lib.optim.Adam(0.1, eps=-1),
    lambda lib: lib.optim.Adam(0.1, betas=[1.0, 0.9]),
    lambda lib: lib.optim.AdamW(0.1, betas=[0.9, 1.5]),
    lambda lib: lib.optim.Adamax(0.1, eps=-1),
    lambda lib: lib.optim.MultiOptimizer([lib.optim.SGD(0.1)], [lambda k, v: True]),
    lambda lib: lib.optim.MultiOptimizer([lib.optim.SGD(0.1), lib.optim.SGD(0.1)], []),
    lambda lib: setattr(lib.optim.MultiOptimizer([lib.optim.SGD(0.1)]), "state", {"states": []}),
    lambda lib: lib.optim.Optimizer().learning_rate,
    lambda lib: lib.optim.linear_schedule(0, 1, 0),
    lambda lib: lib.optim.join_schedules([], []),
    lambda lib: lib.optim.join_schedules([lambda step: step], [1]),
])  # fmt: skip
def test_errors(code):
    assert isinstance(same(code), type)


SCHEDULES = {
    "exponential": lambda optim: optim.exponential_decay(0.1, 0.9),
    "step": lambda optim: optim.step_decay(0.1, 0.5, 10),
    "cosine": lambda optim: optim.cosine_decay(0.1, 20),
    "cosine_end": lambda optim: optim.cosine_decay(0.1, 20, 0.01),
    "linear": lambda optim: optim.linear_schedule(0.0, 1.0, 7),
    "linear_down": lambda optim: optim.linear_schedule(1, 0, 7),
    "joined": lambda optim: optim.join_schedules(
        [optim.linear_schedule(0.0, 1.0, 10), optim.cosine_decay(1.0, 10)], [10]
    ),
    "three": lambda optim: optim.join_schedules(
        [optim.linear_schedule(0.0, 1.0, 5), lambda step: 1.0, optim.exponential_decay(1.0, 0.9)],
        [5, 12],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name):
    def run(lib):
        schedule = SCHEDULES[name](lib.optim)
        steps = (0, 1, 5, 9, 10, 11, 20, 40)
        return [lib.mx.array(schedule(lib.mx.array(s, lib.mx.uint64))) for s in steps]

    # Both end at exactly 0 or within a rounding of the cosine's 1 of it.
    same_values(run, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_of_a_python_integer(name):
    def run(lib):
        return [float(SCHEDULES[name](lib.optim)(s)) for s in (0, 3, 10, 25)]

    same_values(run, atol=1e-7)


@pytest.mark.parametrize("max_norm", [0.5, 500.0])
def test_clip_grad_norm(max_norm):
    def run(lib, dtype="float32"):
        return lib.optim.clip_grad_norm(tree_of_arrays(lib, 0, dtype), max_norm)

    same_values(run)
    same_values(lambda lib: run(lib, "bfloat16"), rtol=2e-2)
    flat = np.concatenate(
        [np.array(x).ravel() for _, x in CERMET.utils.tree_flatten(tree_of_arrays(CERMET, 0))]
    )
    clipped, norm = run(CERMET)
    assert norm.item() == pytest.approx(np.linalg.norm(flat), rel=1e-5)
    ratio = clipped["a"] / tree_of_arrays(CERMET, 0)["a"]
    assert ratio[0].item() == pytest.approx(min(1, max_norm / norm.item()), rel=1e-5)


def test_clip_grad_norm_of_nothing():
    same_values(lambda lib: lib.optim.clip_grad_norm({}, 1.0))
    same_values(lambda lib: lib.optim.clip_grad_norm({"a": lib.mx.zeros(3)}, 1.0))


def test_muon_makes_the_update_orthogonal():
    optimizer = optim.Muon(1.0, weight_decay=0.0)
    updated = optimizer.apply_gradients({"w": mx.array(values((6, 4)))}, {"w": mx.zeros((6, 4))})
    singular = np.linalg.svd(np.array(updated["w"]), compute_uv=False) / np.sqrt(6 / 4)
    assert (singular > 0.6).all() and (singular < 1.3).all()


def test_multi_optimizer_properties():
    optimizer = OPTIMIZERS["several"](CERMET)
    after_steps(CERMET, optimizer, 2)
    assert optimizer.step.item() == 2
    optimizer.learning_rate = 0.5
    assert [o.learning_rate.item() for o in optimizer.optimizers] == [0.5] * 3
