# SPDX-License-Identifier: MIT
"""Schedules: functions from the step (an array, so they work inside `mx.compile`) to a value.

Pass one in place of a learning rate, or of any other scheduled setting of an optimizer.
"""

import math
from itertools import pairwise

import cermet.core as mx
from cermet.arguments import require, require_callable, require_numbers, require_type


def _require(op, **values):
    require(op, "a finite number", math.isfinite, **values)


def exponential_decay(init, decay_rate):
    """init·decay_rate^step."""
    _require("exponential_decay", init=init)
    require_numbers("exponential_decay", decay_rate=decay_rate)
    return lambda step: init * decay_rate**step


def step_decay(init, decay_rate, step_size):
    """init·decay_rate^⌊step/step_size⌋."""
    _require("step_decay", init=init)
    require_numbers("step_decay", decay_rate=decay_rate)
    require_numbers("step_decay", 1, step_size=step_size)
    return lambda step: init * decay_rate ** (step // step_size)


def cosine_decay(init, decay_steps, end=0.0):
    """Half a cosine from `init` at step 0 down to `end` at `decay_steps`, then `end`."""
    _require("cosine_decay", init=init, end=end)
    require_numbers("cosine_decay", 1, decay_steps=decay_steps)

    def schedule(step):
        done = mx.minimum(step, decay_steps)
        return end + 0.5 * (init - end) * (1.0 + mx.cos((math.pi / decay_steps) * done))

    return schedule


def linear_schedule(init, end, steps):
    """A line from `init` at step 0 to `end` at `steps`, then `end`."""
    _require("linear_schedule", init=init, end=end)
    require_numbers("linear_schedule", 1, steps=steps)
    return lambda step: mx.minimum(step, steps) * ((end - init) / steps) + init


def join_schedules(schedules, boundaries):
    """`schedules[i]` from step `boundaries[i - 1]` on, each counting its steps from there."""
    given = {"schedules": schedules, "boundaries": boundaries}
    require_type("join_schedules", "a list", (list, tuple), **given)
    require_callable("join_schedules", **{f"schedule {i}": s for i, s in enumerate(schedules)})
    if not schedules:
        raise ValueError("[join_schedules] there is no schedule; it needs at least one")
    if len(schedules) != len(boundaries) + 1:
        raise ValueError(
            f"[join_schedules] {len(boundaries)} boundaries for {len(schedules)} schedules; "
            "there must be one less than schedules"
        )
    ascending = all(low < high for low, high in pairwise(boundaries))
    require("join_schedules", "ascending", lambda _: ascending, boundaries=boundaries)

    def schedule(step):
        value = schedules[0](step)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            value = mx.where(step < boundary, value, following(step - boundary))
        return value

    return schedule
