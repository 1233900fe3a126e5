# SPDX-License-Identifier: MIT
"""Trains a byte-level transformer on the source of Python's standard library.

    python train.py                    four and a half minutes, then the report
    python train.py --resume           goes on after Ctrl-C

Writes checkpoint.npz, curve.png, samples.txt, report.json and report.txt into `--out`. What a
resumed run computes is, bit for bit, what one run without a break would have; `--steps` and
`--seconds` give it a new end, and its learning rate falls until there.
"""

import argparse
import json
import math
import os
import signal
import statistics
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import cermet.core as mx
import cermet.nn as nn
import cermet.optimizers as optim
import data
from cermet.utils import tree_flatten, tree_unflatten
from model import Config, TextModel, loss_fn
from tqdm import tqdm

VALIDATE_EVERY = 50
RATE_STEPS = 25  # a timed run judges its speed by so many steps, and after each so many
BITS = 1 / math.log(2)  # nats to bits


@dataclass
class Settings:
    """What decides the result of a run; saved with it, so that a resumed run has the same."""

    steps: int | None = None  # None: as many as `seconds` allow
    seconds: float | None = 270
    batch: int = 16
    dtype: str = "f32"
    dropout: float = 0.0
    seed: int = 0
    learning_rate: float = 2e-3
    warmup: int = 50


class WarmupCosine:
    """The learning rate of a step: a line up to `peak` in `warmup` steps, then half a cosine down
    to 5 % of it at the horizon.

    The horizon is an array in `state`, an input of the compiled step, so that it can be set in
    the midst of training without compiling anew.
    """

    def __init__(self, peak, warmup, horizon):
        self.peak, self.warmup = peak, warmup
        self.state = {"horizon": mx.array(float(horizon or 0))}

    def __call__(self, step):
        step = step.astype(mx.float32)
        rising = (step + 1) / self.warmup
        span = mx.maximum(self.state["horizon"] - self.warmup, 1)
        done = mx.clip((step - self.warmup) / span, 0, 1)
        falling = 0.05 + 0.95 * (1 + mx.cos(math.pi * done)) / 2
        return self.peak * mx.where(step < self.warmup, rising, falling)


class Trainer:
    """Model, optimizer and data of a run, its step function, and its history."""

    def __init__(self, settings, text, validation, config=None, compiled=True):
        mx.random.seed(settings.seed)
        self.settings, self.text = settings, text
        self.config = config or Config(dropout=settings.dropout)
        self.model = TextModel(self.config)
        self.schedule = WarmupCosine(settings.learning_rate, settings.warmup, settings.steps)
        self.optimizer = optim.AdamW(self.schedule, betas=[0.9, 0.98], weight_decay=0.1)
        self.optimizer.init(self.model.trainable_parameters())
        self.state = [
            self.model.state,
            self.optimizer.state,
            mx.random.state,
            self.schedule.state,
        ]
        mx.eval(self.state)
        self.loss_and_gradients = nn.value_and_grad(self.model, self.loss)
        self.step = self.plain_step
        if compiled:
            self.step = mx.compile(self.plain_step, inputs=self.state, outputs=self.state)
        self.validation = data.validation_batches(
            validation, 4, settings.batch, self.config.context
        )
        self.steps_done, self.seconds = 0, 0.0
        self.history = {"loss": [], "seconds": [], "validation": []}

    def loss(self, x, y):
        if self.settings.dtype == "bf16":
            self.model.set_dtype(mx.bfloat16)  # of this call only: see plain_step
        return loss_fn(self.model, x, y)

    def plain_step(self, x, y):
        weights = self.model.parameters()
        loss, gradients = self.loss_and_gradients(x, y)
        self.model.update(weights)  # the float32 weights are trained, whatever dtype computes
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        self.optimizer.update(self.model, gradients)
        return loss

    def batch(self):
        """The next step's bytes and the bytes that follow them, as arrays."""
        s = self.settings
        step, context = self.steps_done, self.config.context
        windows = data.training_batch(self.text, step, s.seed, s.batch, context)
        return [mx.array(w) for w in windows]

    def train_step(self):
        """Take one step; its loss goes into the history, in bits per byte."""
        begin = time.perf_counter()
        loss = self.step(*self.batch())
        mx.eval(loss, self.state)
        took = time.perf_counter() - begin
        self.steps_done += 1
        self.seconds += took
        self.history["loss"].append(loss.item() * BITS)
        self.history["seconds"].append(took)
        since_warmup = self.steps_done - self.settings.warmup
        if self.settings.steps is None and since_warmup >= 0 and since_warmup % RATE_STEPS == 0:
            self.set_horizon()

    def set_horizon(self):
        """Let the cosine end when the time is up, judging by the speed of late."""
        usual = statistics.median(self.history["seconds"][-RATE_STEPS:])
        left = max(self.settings.seconds - self.seconds, 0) * 0.97  # some goes to validation
        self.schedule.state["horizon"] = mx.array(float(self.steps_done + round(left / usual)))

    def move_horizon(self):
        """Let the cosine end at limits that came after the horizon was set."""
        if self.settings.steps is None and self.steps_done > self.settings.warmup:
            self.set_horizon()
        else:
            self.schedule.state["horizon"] = mx.array(float(self.settings.steps or 0))

    @property
    def horizon(self):
        """The step at which the cosine ends; 0 while it is not known."""
        return int(self.schedule.state["horizon"].item())

    def finished(self):
        s = self.settings
        limit = (self.horizon or math.inf) if s.steps is None else s.steps
        return self.steps_done >= limit or (s.seconds is not None and self.seconds >= s.seconds)

    def validate(self, batches=None):
        """Bits per byte of the validation text, or of a sample of it spread over the whole."""
        self.model.eval()
        losses = []
        for windows in batches or self.validation:
            losses.append(loss_fn(self.model, *[mx.array(w) for w in windows]))
            mx.eval(losses[-1])
        self.model.train()
        return sum(loss.item() for loss in losses) / len(losses) * BITS

    def validate_now(self):
        begin = time.perf_counter()
        bits = self.validate()
        self.seconds += time.perf_counter() - begin
        self.history["validation"].append([self.steps_done, bits])

    def save(self, path):
        """Write the checkpoint; a break while writing leaves the former one whole."""
        arrays = tree_flatten(self.model.parameters(), ".model", destination={})
        tree_flatten(self.optimizer.state, ".optimizer", destination=arrays)
        arrays["schedule.horizon"] = self.schedule.state["horizon"]
        arrays["random"] = mx.random.state[0]
        run = {
            "settings": asdict(self.settings),
            "steps_done": self.steps_done,
            "seconds": self.seconds,
            "history": self.history,
        }
        arrays["run"] = mx.array(list(json.dumps(run).encode()), dtype=mx.uint8)
        part = path.with_suffix(".part.npz")
        mx.savez(str(part), **arrays)
        os.replace(part, path)

    def load(self, path):
        """Take up the state that `save` wrote; other limits than it had move the horizon."""
        arrays = mx.load(str(path))
        run = read_run(arrays)
        self.steps_done, self.seconds = run["steps_done"], run["seconds"]
        self.history = run["history"]
        tree = tree_unflatten(arrays)
        self.model.update(tree["model"])
        self.optimizer.state.update(tree["optimizer"])
        self.optimizer.init(self.model.trainable_parameters())  # the branches without arrays
        self.schedule.state["horizon"] = arrays["schedule.horizon"]
        if limits(Settings(**run["settings"])) != limits(self.settings):
            self.move_horizon()
        high, low = arrays["random"].tolist()
        mx.random.seed(high << 32 | low)  # a seed's two halves are the key itself
        mx.eval(self.state)


def read_run(arrays):
    """The settings and history in a checkpoint's arrays."""
    return json.loads(bytes(arrays["run"].tolist()))


def train(trainer, checkpoint):
    """Train to the end or to Ctrl-C, save, and tell whether it was the end."""
    with stop_on_interrupt() as stopped, progress_bar(trainer) as bar:
        while not (stopped or trainer.finished()):
            trainer.train_step()
            if trainer.steps_done % VALIDATE_EVERY == 0:
                trainer.validate_now()
            bar.total = trainer.horizon or None
            bar.set_postfix_str(progress(trainer), refresh=False)
            bar.update()
    trainer.save(checkpoint)
    return trainer.finished()


@contextmanager
def stop_on_interrupt():
    """A list that is empty until Ctrl-C: a step once begun is finished, so the state saved after
    it is whole.
    """
    stopped = []
    former = signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, former)


def progress_bar(trainer):
    return tqdm(
        initial=trainer.steps_done,
        total=trainer.horizon or None,
        bar_format="|{bar}| {n_fmt}/{total_fmt} {elapsed}<{remaining}{postfix}",
    )


def progress(trainer):
    """Loss, validation and speed of late, so short that 80 columns show all of the bar."""
    history = trainer.history
    late = history["seconds"][-10:]
    tokens = trainer.settings.batch * trainer.config.context * len(late)
    validation = f"{history['validation'][-1][1]:.3f}" if history["validation"] else "…"
    return (
        f"loss {history['loss'][-1]:.2f} val {validation} bits/byte "
        f"{tokens / sum(late):,.0f} tokens/s"
    )


def limits(settings):
    return settings.steps, settings.seconds


def in_range(kind, least, below=math.inf):
    """A reader of numbers from `least` on, below `below`."""

    def read(text):
        number = kind(text)
        if not least <= number < below:
            upper = f" and below {below}" if below < math.inf else ""
            raise argparse.ArgumentTypeError(
                f"{text} is out of range; give at least {least}{upper}"
            )
        return number

    read.__name__ = kind.__name__
    return read


def parse_args(argv=None):
    """The command line; what decides the result is None where it was not given."""
    parser = argparse.ArgumentParser(
        description="Train a small language model on the source of Python's standard library."
    )
    add = parser.add_argument
    seconds = "training time; default 270 without --steps"
    add("--seconds", type=in_range(float, 0), help=seconds)
    add("--steps", type=in_range(int, 0), help="number of steps, and length of the schedule")
    add("--batch", type=in_range(int, 1), help=f"sequences a step; default {Settings.batch}")
    add("--dtype", choices=["f32", "bf16"], help=f"to compute in; default {Settings.dtype}")
    add("--dropout", type=in_range(float, 0, 1), help=f"default {Settings.dropout}")
    add("--no-compile", action="store_true", help="run the step uncompiled")
    add("--resume", action="store_true", help="go on from OUT/checkpoint.npz")
    add("--seed", type=in_range(int, 0, 2**63), help=f"default {Settings.seed}")
    add("--out", type=Path, default=Path("out"), help="folder for the results")
    return parser.parse_args(argv)


def settings_of(args):
    """The settings that the command line asks for; when resuming, the checkpoint's, with the limits
    of the command line where it has any. What else decides the result cannot change on the way.
    """
    given = {name: getattr(args, name) for name in ("batch", "dtype", "dropout", "seed")}
    given = {name: value for name, value in given.items() if value is not None}
    has_limits = args.steps is not None or args.seconds is not None
    if not args.resume:
        seconds = args.seconds if has_limits else Settings.seconds
        return Settings(args.steps, seconds, **given)
    path = args.out / "checkpoint.npz"
    if not path.exists():
        raise SystemExit(f"{path} is not there: nothing to resume")
    settings = Settings(**read_run(mx.load(str(path)))["settings"])
    for name, value in given.items():
        former = getattr(settings, name)
        if value != former:
            raise SystemExit(
                f"--{name} {value} does not fit {path}, which was trained with {former}; leave it "
                "out, or leave --resume out to start anew"
            )
    if has_limits:
        settings.steps, settings.seconds = args.steps, args.seconds
    return settings


def end_of(settings):
    """Where a run ends, in words."""
    steps, seconds = limits(settings)
    parts = [] if steps is None else [f"step {steps}"]
    parts += [] if seconds is None else [f"{seconds:g} s"]
    return " or ".join(parts)


def main(argv=None):
    args = parse_args(argv)
    settings = settings_of(args)
    if not args.resume and 0 in limits(settings):
        print(f"nothing to train: the run ends at {end_of(settings)}; nothing is written")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint = args.out / "checkpoint.npz"
    text, validation = data.load()
    print(f"{len(text):,} bytes of Python to learn from, {len(validation):,} held out")
    trainer = Trainer(settings, text, validation, compiled=not args.no_compile)
    if args.resume:
        trainer.load(checkpoint)
        print(f"going on after step {trainer.steps_done}, until {end_of(settings)}")
    if trainer.finished():
        print(f"nothing to train: {trainer.steps_done} steps and {trainer.seconds:.0f} s are done")
    elif not train(trainer, checkpoint):
        print(f"\nsaved after step {trainer.steps_done}; to go on:")
        print(f"    {sys.executable} {Path(__file__)} --resume --out {args.out}")
        return
    if trainer.steps_done == 0:
        return
    # Imported here: the report alone needs matplotlib.
    import report

    report.write(trainer, validation, args.out)


if __name__ == "__main__":
    main()
