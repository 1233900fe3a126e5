# SPDX-License-Identifier: MIT
"""The demo at a tiny size: the same losses as under MLX, exact resumption, data, report."""

import fcntl
import importlib
import json
import math
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mlx.core
import mlx.nn
import mlx.optimizers
import mlx.utils
import numpy as np
import pytest

pytest.importorskip("tqdm")
pytest.importorskip("matplotlib")

FOLDER = Path(__file__).parents[2] / "examples" / "text_model"
FILES = ("data", "model", "sample", "train", "report")
RNG = np.random.default_rng(0)
TEXT = RNG.choice(np.frombuffer(b"abcdefgh ", np.uint8), 4000)
VALIDATION = RNG.choice(np.frombuffer(b"abcdefgh ", np.uint8), 700)


def load_example(stand_ins=None):
    """The demo's modules, imported anew with `stand_ins` in sys.modules meanwhile."""
    kept = sys.modules.copy()
    sys.path.insert(0, str(FOLDER))
    try:
        sys.modules.update(stand_ins or {})
        for name in FILES:
            sys.modules.pop(name, None)
        return SimpleNamespace(**{name: importlib.import_module(name) for name in FILES})
    finally:
        sys.path.remove(str(FOLDER))
        for name in FILES:
            sys.modules.pop(name, None)
        sys.modules.update({name: kept[name] for name in stand_ins or {} if name in kept})


def mlx_as_cermet():
    package = ModuleType("cermet")
    parts = {
        "core": mlx.core,
        "nn": mlx.nn,
        "optimizers": mlx.optimizers,
        "utils": mlx.utils,
    }
    vars(package).update(parts)
    return {"cermet": package, **{f"cermet.{k}": v for k, v in parts.items()}}


CERMET = load_example()
MLX = load_example(mlx_as_cermet())


def tiny(example, dropout=0.0):
    return example.model.Config(context=16, layers=2, dims=32, heads=2, hidden=48, dropout=dropout)


def make_trainer(example, compiled=True, **settings):
    settings = example.train.Settings(**{"steps": 20, "seconds": None, "batch": 4, **settings})
    config = tiny(example, settings.dropout)
    return example.train.Trainer(settings, TEXT, VALIDATION, config, compiled)


def flat_parameters(model, utils):
    return {k: np.array(v) for k, v in utils.tree_flatten(model.parameters())}


def test_modules_are_the_ones_meant():
    assert MLX.model.mx is mlx.core and MLX.train.nn is mlx.nn
    assert CERMET.model.mx is sys.modules["cermet.core"]
    assert CERMET.train.nn is sys.modules["cermet.nn"]


def test_model_file_uses_no_name_that_mlx_lacks():
    source = (FOLDER / "model.py").read_text()
    assert "hasattr" not in source
    assert CERMET.model.TextModel is not MLX.model.TextModel


@pytest.mark.parametrize("compiled", [True, False])
def test_five_steps_give_the_losses_of_mlx(compiled):
    ours, theirs = (make_trainer(e, compiled) for e in (CERMET, MLX))
    weights = flat_parameters(theirs.model, mlx.utils)
    ours.model.load_weights([(k, CERMET.model.mx.array(v)) for k, v in weights.items()])
    for trainer in (ours, theirs):
        for _ in range(5):
            trainer.train_step()
    losses = np.array([ours.history["loss"], theirs.history["loss"]])
    assert np.abs(losses[0] - losses[1]).max() < 1e-4
    assert losses[0, 0] == pytest.approx(8, abs=0.7)  # nearly uniform over 256 bytes
    assert losses[0, 4] < losses[0, 0]
    assert ours.validate() == pytest.approx(theirs.validate(), abs=1e-4)
    after = flat_parameters(ours.model, CERMET.train)
    assert all(np.abs(after[k] - weights[k]).max() > 0 for k in weights)


def test_bf16_computes_in_bf16_and_keeps_float32_weights():
    mx = CERMET.model.mx
    half, full = make_trainer(CERMET, dtype="bf16"), make_trainer(CERMET)
    for trainer in (half, full):
        for _ in range(8):
            trainer.train_step()
    assert all(v.dtype == mx.float32 for _, v in CERMET.train.tree_flatten(half.model.parameters()))
    differences = np.abs(np.subtract(half.history["loss"], full.history["loss"]))
    assert 0 < differences.max() < 0.1


@pytest.mark.parametrize("compiled, dtype", [(True, "f32"), (False, "f32"), (True, "bf16")])
def test_resumed_training_is_the_same_to_the_bit(tmp_path, compiled, dtype):
    """20 steps at once, and 10, a checkpoint, and 10 more in a new trainer."""
    settings = {"dropout": 0.1, "dtype": dtype, "warmup": 4}
    first = make_trainer(CERMET, compiled, **settings)
    for _ in range(10):
        first.train_step()
    first.save(tmp_path / "half.npz")
    second = make_trainer(CERMET, compiled, **settings)
    second.load(tmp_path / "half.npz")
    while not second.finished():
        second.train_step()
    second.save(tmp_path / "resumed.npz")
    straight = make_trainer(CERMET, compiled, **settings)
    while not straight.finished():
        straight.train_step()
    straight.save(tmp_path / "straight.npz")
    one, two = np.load(tmp_path / "resumed.npz"), np.load(tmp_path / "straight.npz")
    assert sorted(one) == sorted(two)
    for name in sorted(set(one) - {"run"}):
        assert one[name].tobytes() == two[name].tobytes(), name
    assert one["random"].tobytes() != np.load(tmp_path / "half.npz")["random"].tobytes()
    assert second.history["loss"] == straight.history["loss"] and len(second.history["loss"]) == 20


def test_learning_rate():
    train = CERMET.train
    schedule = train.WarmupCosine(2e-3, 50, 450)
    mx = CERMET.model.mx

    def rate(step):
        return schedule(mx.array(step, dtype=mx.uint64)).item()

    assert rate(0) == pytest.approx(2e-3 / 50)
    assert rate(49) == pytest.approx(2e-3)
    assert rate(50) == pytest.approx(2e-3)
    assert rate(250) == pytest.approx(2e-3 * (0.05 + 0.95 * 0.5), rel=1e-5)
    assert rate(450) == pytest.approx(1e-4, rel=1e-4)
    assert rate(9999) == pytest.approx(1e-4, rel=1e-4)
    schedule.state["horizon"] = mx.array(850.0)
    assert rate(450) == pytest.approx(2e-3 * (0.05 + 0.95 * 0.5), rel=1e-5)


def test_compiled_step_uses_the_schedule():
    trainer = make_trainer(CERMET, steps=8, warmup=4)
    rates = []
    for _ in range(8):
        trainer.train_step()
        rates.append(trainer.optimizer.learning_rate.item())
    falling = [0.05 + 0.95 * (1 + math.cos(math.pi * i / 4)) / 2 for i in range(4)]
    np.testing.assert_allclose(rates, [2e-3 * r for r in [0.25, 0.5, 0.75, 1, *falling]], rtol=1e-5)


def test_timed_run_sets_its_horizon_by_the_speed():
    trainer = make_trainer(CERMET, steps=None, seconds=1000.0, warmup=4)
    horizons = []
    for _ in range(30):
        assert not trainer.finished()
        trainer.history["seconds"] = [9.0] + [2.0] * trainer.steps_done
        trainer.seconds = 10.0 * trainer.steps_done
        trainer.train_step()
        horizons.append(trainer.horizon)
    assert horizons[:3] == [0] * 3 and len(set(horizons[3:28])) == 1
    # What steps really take is far below the 2 s put into the history.
    assert horizons[3] == 4 + round((1000 - 30) * 0.97 / 2)
    assert horizons[28] == 29 + round((1000 - 280) * 0.97 / 2)
    trainer.seconds = 1000.0
    assert trainer.finished()


# KV cache


def test_cached_decoding_gives_the_logits_of_the_whole():
    mx = CERMET.model.mx
    mx.random.seed(1)
    model = CERMET.model.TextModel(tiny(CERMET))
    tokens = mx.array(TEXT[None, :150].astype(np.int32))
    whole = np.array(model(tokens))
    caches, parts, position = model.new_caches(), [], 0
    for length in (7, 1, 1, 60, 1, 80):
        parts.append(np.array(model(tokens[:, position : position + length], caches)))
        position += length
        room = caches[0].keys.shape[2]
        assert room % 64 == 0 and room - 64 < position <= room
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-3, atol=1e-4)


def test_generation_follows_the_seed():
    mx, sample = CERMET.model.mx, CERMET.sample
    model = CERMET.model.TextModel(tiny(CERMET, dropout=0.5))
    written = []
    for seed in (1, 1, 2):
        mx.random.seed(seed)
        written.append(sample.samples(model, 30, prompts=["ab", "c"]))
    texts = [[text for text, _ in w] for w in written]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0].startswith("ab") and texts[0][1].startswith("c")
    assert all(speed > 0 for w in written for _, speed in w) and model.training


# data


@pytest.fixture
def library(tmp_path):
    files = [f"m{i}.py" for i in range(60)] + [
        "package/a.py",
        "site-packages/b.py",
        "test/c.py",
        "package/tests/d.py",
        "idlelib/idle_test/e.py",
        "__pycache__/f.py",
        "test.py",
        "readme.txt",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"<{name}>")
    return tmp_path


def test_source_files_and_split(library):
    data = CERMET.data
    found = data.source_files(library)
    assert set(found) == {f"m{i}.py" for i in range(60)} | {"package/a.py", "test.py"}
    training, validation = (bytes(part) for part in data.load(library))
    held_out = [name for name in found if data.is_validation(name)]
    assert 0 < len(held_out) < 12
    for name in found:
        tag = f"<{name}>".encode()
        assert (tag in validation) == (name in held_out)
        assert (tag in training) == (name not in held_out)
    # crc32 of "copy.py" is 88137940, of "os.py" 2432680823.
    assert data.is_validation("copy.py") and not data.is_validation("os.py")


def test_the_standard_library_is_found():
    found = CERMET.data.source_files()
    assert "os.py" in found and "json/decoder.py" in found
    assert not any("site-packages" in name or "/test/" in name for name in found)


def test_batches_depend_on_seed_and_step_alone():
    batch = CERMET.data.training_batch
    text = np.arange(1000).astype(np.uint16)
    x, y = batch(text, 3, seed=1, batch=5, context=20)
    assert x.shape == y.shape == (5, 20) and x.dtype == np.int32
    np.testing.assert_array_equal(x + 1, y)
    np.testing.assert_array_equal(x, batch(text, 3, 1, 5, 20)[0])
    assert (x != batch(text, 4, 1, 5, 20)[0]).any() and (x != batch(text, 3, 2, 5, 20)[0]).any()
    every = [batch(text[:22], step, 0, 50, 20)[1].max() for step in range(3)]
    assert max(every) == 21  # the last byte is reached, and nothing beyond it


def test_validation_batches_spread_over_the_text():
    text = np.arange(500).astype(np.uint16)
    batches = CERMET.data.validation_batches(text, 3, 4, 10)
    starts = np.concatenate([x[:, 0] for x, _ in batches])
    assert len(batches) == 3 and starts[0] == 0 and batches[-1][1].max() == 499
    assert (np.diff(starts) > 30).all()


def test_yardsticks():
    data, text = CERMET.data, TEXT.tobytes()
    for previous in (1, 2):
        joint = Counter(text[i : i + previous + 1] for i in range(len(text) - previous))
        context = Counter(text[i : i + previous] for i in range(len(text) - previous))
        total = sum(joint.values())
        expected = -sum(n / total * math.log2(n / context[g[:-1]]) for g, n in joint.items())
        assert data.conditional_entropy(TEXT, previous) == pytest.approx(expected, rel=1e-9)
    periodic = np.tile(np.frombuffer(b"abc", np.uint8), 200)
    assert data.conditional_entropy(periodic, 1) == 0
    assert data.gzip_bits(periodic) < 1 < data.gzip_bits(TEXT) < 8


# the command line


@pytest.fixture
def small_run(monkeypatch):
    monkeypatch.setattr(CERMET.data, "load", lambda: (TEXT, VALIDATION))
    monkeypatch.setattr(CERMET.train, "Config", lambda dropout: tiny(CERMET, dropout))
    monkeypatch.setattr(CERMET.report, "matmul_rate", lambda: 1e9)
    monkeypatch.setattr(CERMET.sample, "PROMPTS", ("a",))
    # main() imports report by name.
    monkeypatch.setitem(sys.modules, "report", CERMET.report)


def test_a_run_writes_its_results(small_run, tmp_path, capsys):
    CERMET.train.main(["--steps", "6", "--batch", "4", "--out", str(tmp_path / "new")])
    out = tmp_path / "new"
    assert sorted(p.name for p in out.iterdir()) == [
        "checkpoint.npz",
        "curve.png",
        "report.json",
        "report.txt",
        "samples.txt",
    ]
    facts = json.loads((out / "report.json").read_text())
    assert facts["steps"] == 6 and 5 < facts["validation_bits_per_byte"] < 9
    matmul_weights = 2 * (4 * 32 * 32 + 3 * 32 * 48) + 32 * 256
    assert facts["step_flops"] == 6 * matmul_weights * 64 + 12 * 2 * 4 * 16**2 * 32
    assert facts["parameters"] == matmul_weights + 256 * 32 + 5 * 32
    assert (facts["kernels_generated_ms"] > 0) == (facts["kernels_generated"] > 0)
    text = (out / "report.txt").read_text()
    assert (
        "this model" in text
        and "ms to compile them" in text
        and "two previous bytes" in text
        and "gzip -9" in text
    )
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "samples.txt").read_text().startswith("def ")
    assert text.splitlines()[0] in capsys.readouterr().out


@pytest.mark.parametrize("steps, seconds", [(6, 0.4), (2700, 0.1), (19_999, 0.01)])
def test_the_bar_shows_all_at_80_columns(steps, seconds, monkeypatch):
    """On a terminal; from the first step on, and hours later."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    history = {"loss": [5.678], "seconds": [seconds], "validation": [[50, 2.345]]}
    trainer = SimpleNamespace(
        steps_done=steps - 1,
        horizon=20_000 if steps > 6 else 0,
        history=history,
        settings=SimpleNamespace(batch=16),
        config=SimpleNamespace(context=256),
    )
    with open(terminal, "w") as out:
        monkeypatch.setattr(sys, "stderr", out)
        with CERMET.train.progress_bar(trainer) as bar:
            bar.start_t -= 0.5 * steps
            bar.set_postfix_str(CERMET.train.progress(trainer), refresh=False)
            bar.update()
            bar.refresh()
            shown = b""
            while select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 1 << 16)
    os.close(master)
    line = shown.decode().replace("\n", "\r").rstrip("\r").split("\r")[-1]
    assert len(line) <= 80
    speed = f"{16 * 256 / seconds:,.0f} tokens/s"
    assert line.rstrip("]").endswith(f"loss 5.68 val 2.345 bits/byte {speed}"), line
    assert f"| {steps}/" in line


def test_interrupt_and_resume(small_run, tmp_path, monkeypatch, capsys):
    take_step = CERMET.train.Trainer.train_step

    def interrupted(trainer):
        take_step(trainer)
        if trainer.steps_done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    arguments = ["--steps", "7", "--batch", "4", "--dropout", "0.2"]
    monkeypatch.setattr(CERMET.train.Trainer, "train_step", interrupted)
    CERMET.train.main([*arguments, "--out", str(tmp_path / "a")])
    shown = capsys.readouterr().out
    assert "saved after step 3" in shown and f"--resume --out {tmp_path / 'a'}" in shown
    assert not (tmp_path / "a" / "report.txt").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(CERMET.train.Trainer, "train_step", take_step)
    CERMET.train.main(["--resume", "--out", str(tmp_path / "a")])
    assert "going on after step 3" in capsys.readouterr().out
    CERMET.train.main([*arguments, "--out", str(tmp_path / "b")])
    one, two = (np.load(tmp_path / name / "checkpoint.npz") for name in "ab")
    for name in set(one) - {"run"}:
        assert one[name].tobytes() == two[name].tobytes(), name


def run_of(folder):
    arrays = np.load(folder / "checkpoint.npz")
    return json.loads(bytes(arrays["run"])), float(arrays["schedule.horizon"])


def test_a_resumed_run_takes_a_new_end(small_run, tmp_path, capsys):
    """The schedule ends with it; the same end, or none, changes nothing."""
    out = ["--out", str(tmp_path)]
    CERMET.train.main(["--steps", "3", "--batch", "4", *out])
    assert run_of(tmp_path)[1] == 3
    CERMET.train.main(["--resume", "--steps", "5", "--batch", "4", *out])
    assert "going on after step 3, until step 5" in capsys.readouterr().out
    run, horizon = run_of(tmp_path)
    assert run["steps_done"] == 5 and horizon == 5 and run["settings"]["steps"] == 5
    before = (tmp_path / "checkpoint.npz").read_bytes()
    for flags in ([], ["--steps", "5"], ["--steps", "2"]):
        CERMET.train.main(["--resume", *flags, *out])
        assert "nothing to train: 5 steps" in capsys.readouterr().out
        assert (tmp_path / "checkpoint.npz").read_bytes() == before
    CERMET.train.main(["--resume", "--seconds", "1000000", "--steps", "6", *out])
    assert "until step 6 or 1e+06 s" in capsys.readouterr().out
    assert run_of(tmp_path)[0]["settings"]["seconds"] == 1e6


def test_more_time_for_a_timed_run(tmp_path):
    first = make_trainer(CERMET, steps=None, seconds=1000.0, warmup=2)
    for _ in range(4):
        first.train_step()
    first.schedule.state["horizon"] = CERMET.model.mx.array(4.0)
    first.save(tmp_path / "c.npz")
    assert first.finished()
    for seconds, goes_on in ((1000.0, False), (2000.0, True)):
        second = make_trainer(CERMET, steps=None, seconds=seconds, warmup=2)
        second.load(tmp_path / "c.npz")
        assert second.finished() is not goes_on
        assert (second.horizon > 100) is goes_on


@pytest.mark.parametrize(
    "flags", [["--batch", "8"], ["--dtype", "bf16"], ["--dropout", "0.5"], ["--seed", "3"]]
)
def test_what_decides_the_result_stays_when_resuming(small_run, tmp_path, flags):
    out = ["--out", str(tmp_path)]
    CERMET.train.main(["--steps", "2", "--batch", "4", *out])
    before = (tmp_path / "checkpoint.npz").read_bytes()
    with pytest.raises(
        SystemExit, match=f"{' '.join(flags)} does not fit .* trained with .*; leave"
    ):
        CERMET.train.main(["--resume", *flags, *out])
    assert (tmp_path / "checkpoint.npz").read_bytes() == before


@pytest.mark.parametrize("flags, end", [(["--steps", "0"], "step 0"), (["--seconds", "0"], "0 s")])
def test_a_run_of_no_steps_trains_nothing_and_says_so(small_run, tmp_path, capsys, flags, end):
    CERMET.train.main([*flags, "--out", str(tmp_path / "new")])
    assert f"nothing to train: the run ends at {end};" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--steps", "-1"], "argument --steps: -1 is out of range; give at least 0"),
        (["--seconds", "nan"], "argument --seconds: nan is out of range; give at least 0"),
        (["--batch", "0"], "argument --batch: 0 is out of range; give at least 1"),
        (["--dropout", "1"], "argument --dropout: 1 is out of range; give at least 0 and below 1"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
    ],
)
def test_flags_out_of_range(flags, text, capsys):
    with pytest.raises(SystemExit):
        CERMET.train.parse_args(flags)
    assert text in capsys.readouterr().err


def test_nothing_to_resume(small_run, tmp_path):
    with pytest.raises(SystemExit, match="nothing to resume"):
        CERMET.train.main(["--resume", "--out", str(tmp_path)])


def test_time_limit(small_run, tmp_path):
    CERMET.train.main(["--seconds", "0.001", "--batch", "4", "--out", str(tmp_path)])
    assert json.loads((tmp_path / "report.json").read_text())["steps"] == 1


def test_sampling_from_a_checkpoint(small_run, tmp_path):
    trainer = make_trainer(CERMET)
    trainer.train_step()
    trainer.save(tmp_path / "checkpoint.npz")
    model = CERMET.sample.load_model(tmp_path / "checkpoint.npz", trainer.config)
    for name, value in flat_parameters(trainer.model, CERMET.train).items():
        np.testing.assert_array_equal(flat_parameters(model, CERMET.train)[name], value)


def test_fusions_are_counted_by_kind():
    def kernel(form, *ops):
        return SimpleNamespace(form=form, ops=[(op, "model.py", 1) for op in ops])

    row = kernel("row", "square", "mean", "rsqrt", "multiply", "multiply")
    gemms = [kernel("gemm", "matmul", "add"), kernel("gemm", "matmul")]
    found = CERMET.report.fusions([gemms[0], row, gemms[1], row])
    assert found[0] == (2, "row", ["square", "mean", "rsqrt", "multiply", "multiply"])
    assert [times for times, *_ in found] == [2, 1, 1]
    assert CERMET.report.fusion_line(*found[0]).endswith(
        "2 × row (5 ops): square, mean, rsqrt, 2 multiply"
    )
