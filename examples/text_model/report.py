# SPDX-License-Identifier: MIT
"""What a finished run tells: how well the model predicts, how fast it learnt, and what the
compiled step was made into. Calls that only Cermet has are used where they exist.
"""

import json
import os
import statistics
import subprocess
import time
from collections import Counter
from pathlib import Path

import cermet.core as mx
import data
import matplotlib
from cermet.utils import tree_flatten
from sample import samples

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def write(trainer, validation, out):
    """Measure, write curve.png, samples.txt, report.json and report.txt, print the report."""
    facts = collect(trainer, validation)
    written = samples(trainer.model)
    facts["samples_tokens_per_second"] = round(statistics.mean(speed for _, speed in written), 1)
    explanation = mx.explain(trainer.step, *trainer.batch()) if hasattr(mx, "explain") else None
    facts["step_kernels"] = explanation and len(explanation.kernels)
    facts["step_fusions"] = explanation and fusions(explanation.kernels)
    facts["uncompiled_step_seconds"] = time_uncompiled(trainer)
    plot(trainer, facts, out / "curve.png")
    (out / "samples.txt").write_text(
        "\n\n".join(f"{text}\n[{speed:.0f} tokens/s]" for text, speed in written) + "\n"
    )
    (out / "report.json").write_text(json.dumps(facts, indent=2) + "\n")
    text = render(trainer, facts)
    table = f"\n\nEvery kernel of a step:\n\n{explanation}" if explanation else ""
    (out / "report.txt").write_text(f"{text}{table}\n")
    print(f"\n{text}\n\nA sample:\n\n{written[0][0]}\n")
    print(f"Wrote checkpoint.npz, curve.png, samples.txt, report.json, report.txt to {out}/")


def collect(trainer, validation):
    """The figures of the run, as a dict of plain numbers."""
    peak_memory = mx.get_peak_memory()  # before the measurements below need any
    counters = mx.counters() if hasattr(mx, "counters") else {}
    config, settings = trainer.config, trainer.settings
    tokens = settings.batch * config.context
    usual = statistics.median(trainer.history["seconds"])
    flops = step_flops(trainer)
    ceiling = matmul_rate()
    batches = data.validation_batches(validation, 16, settings.batch, config.context)
    return {
        "parameters": count(trainer.model.parameters()),
        "steps": trainer.steps_done,
        "seconds": round(trainer.seconds, 1),
        "validation_bits_per_byte": round(trainer.validate(batches), 4),
        "yardsticks_bits_per_byte": {
            k: round(v, 4) for k, v in data.yardsticks(validation).items()
        },
        "tokens_per_second": round(tokens / usual, 1),
        "step_seconds": round(usual, 5),
        "compile_seconds": round(max(trainer.history["seconds"][0] - usual, 0), 3),
        "kernels_generated": counters.get("kernels_compiled"),
        "kernels_generated_ms": round(counters["compile_us"] / 1e3, 1) if counters else None,
        "peak_memory_bytes": peak_memory,
        "step_flops": flops,
        "flops_per_second": flops / usual,
        "matmul_flops_per_second": ceiling,
        "share_of_matmul_peak": round(flops / usual / ceiling, 4),
        "fma_flops_per_second": (peak := fma_peak()),
        "share_of_fma_peak": peak and round(flops / usual / peak, 4),
    }


def count(tree):
    return sum(array.size for _, array in tree_flatten(tree))


def step_flops(trainer):
    """Forward and backward: 6 for each token and weight of a matmul, and attention's
    12·layers·B·T²·D.
    """
    config, batch = trainer.config, trainer.settings.batch
    weights = sum(
        array.size
        for name, array in tree_flatten(trainer.model.parameters())
        if array.ndim == 2 and not name.startswith("embedding")
    )
    attention = 12 * config.layers * batch * config.context**2 * config.dims
    return 6 * weights * batch * config.context + attention


def matmul_rate(size=1024, repeats=7):
    """FLOP/s of a float32 matmul of `size`³: the yardstick for the step's."""
    a, b = mx.random.normal((size, size)), mx.random.normal((size, size))
    mx.eval(a, b, a @ b)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        mx.eval(a @ b)
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times)


def fma_peak():
    """FLOP/s of float32 multiply-adds on all cores, as the build's own program measures it; None
    outside a checkout.
    """
    program = Path(__file__).resolve().parents[2] / "build/bench_ceiling"
    if not program.exists():
        return None
    threads = str(len(os.sched_getaffinity(0)))
    found = subprocess.run([program, threads], capture_output=True, text=True, check=True)
    return json.loads(found.stdout)["fma_f32_gflops"] * 1e9


def fusions(kernels):
    """[(how many kernels, form, ops fused into each)] of kernels alike, most ops first."""
    alike = Counter((k.form, tuple(op for op, *_ in k.ops)) for k in kernels)
    found = [(times, form, list(ops)) for (form, ops), times in alike.items()]
    return sorted(found, key=lambda f: len(f[2]), reverse=True)


def fusion_line(times, form, ops, width=70):
    """One line: "4 × row (9 ops): 2 multiply, square, mean, ..."."""
    named = [f"{n} {op}" if n > 1 else op for op, n in Counter(ops).items()]
    return shorten(f"{times:5} × {form} ({len(ops)} ops): {', '.join(named)}", width)


def shorten(line, width):
    return line if len(line) <= width else line[: width - 1] + "…"


def time_uncompiled(trainer, steps=3):
    """Seconds of the same step without compile. It changes the model: call it last."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        mx.eval(trainer.plain_step(*trainer.batch()), trainer.state)
        times.append(time.perf_counter() - begin)
    return round(min(times), 5)


def render(trainer, facts):
    """The report as text."""
    lines = [
        f"{facts['parameters']:,} parameters, {facts['steps']} steps in {facts['seconds']} s, "
        f"computed in {trainer.settings.dtype}",
        "",
        "bits per byte of the held-out text",
        f"  {facts['validation_bits_per_byte']:7.3f}  this model",
        *(f"  {v:7.3f}  {k}" for k, v in facts["yardsticks_bits_per_byte"].items()),
        "",
        "speed",
        f"  {facts['tokens_per_second']:9,.0f}  tokens/s in training",
        f"  {facts['samples_tokens_per_second']:9,.0f}  tokens/s when writing",
        f"  {facts['step_seconds'] * 1e3:9,.1f}  ms a step",
        f"  {facts['uncompiled_step_seconds'] * 1e3:9,.1f}  ms a step without compile",
        f"  {facts['flops_per_second'] / 1e9:9,.1f}  GFLOP/s, "
        f"{facts['share_of_matmul_peak']:.0%} of the {facts['matmul_flops_per_second'] / 1e9:,.0f} "
        "of a 1024³ float32 matmul",
        *share_of_peak(facts),
        f"  {facts['peak_memory_bytes'] / 2**20:9,.0f}  MiB of memory at most",
        f"  {facts['compile_seconds']:9,.2f}  s longer for the first step, which compiles",
    ]
    if facts["kernels_generated"] is not None:
        lines += [
            f"  {facts['kernels_generated']:9,}  kernels generated in this process",
            f"  {facts['kernels_generated_ms']:9,.0f}  ms to compile them, added up over threads",
        ]
    if facts["step_kernels"] is not None:
        lines += [
            "",
            f"the step runs as {facts['step_kernels']} kernels; those fused from the most ops",
            *(fusion_line(*fusion) for fusion in facts["step_fusions"][:8]),
        ]
    return "\n".join(lines)


def share_of_peak(facts):
    """The line about the processor's own peak, where that is known."""
    if facts["fma_flops_per_second"] is None:
        return []
    share, peak = facts["share_of_fma_peak"], facts["fma_flops_per_second"] / 1e9
    return [f"  {share:9.0%}  of the processor's {peak:,.0f} GFLOP/s of multiply-adds"]


def plot(trainer, facts, path):
    """Loss and speed over the steps."""
    losses, seconds = trainer.history["loss"], trainer.history["seconds"]
    steps = range(1, len(losses) + 1)
    figure, (top, bottom) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 6.5), height_ratios=[3, 1], layout="constrained"
    )
    top.plot(steps, losses, color="tab:blue", alpha=0.25, linewidth=0.8)
    top.plot(steps, smooth(losses), color="tab:blue", label="training")
    if trainer.history["validation"]:
        checked = zip(*trainer.history["validation"], strict=True)
        top.plot(*checked, "o-", color="tab:red", label="validation")
    yardsticks = facts["yardsticks_bits_per_byte"].items()
    for (name, bits), style in zip(yardsticks, ("--", "-.", ":"), strict=True):
        top.axhline(bits, color="gray", linestyle=style, linewidth=1, label=name)
    top.set_ylabel("bits per byte")
    top.set_ylim(0, 6)
    top.set_title(f"{facts['parameters'] / 1e6:.1f} M parameters on Python's standard library")
    top.legend()
    tokens = trainer.settings.batch * trainer.config.context
    bottom.plot(steps, [tokens / s for s in seconds], color="tab:green", linewidth=0.8)
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("tokens/s")
    bottom.set_xlabel("step")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def smooth(values, width=20):
    """The mean of each value and the up to `width` - 1 before it."""
    return [statistics.fmean(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]
