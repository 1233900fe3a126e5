# SPDX-License-Identifier: MIT
"""Where kernels come from, by the counters of fresh processes: the seed cache that comes with the
library, the folder on disk (shared, damaged, unwritable, full), LLVM.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys

import pytest

CHAIN = """
x = mx.array([0.5, 1.5, -2.0, 3.25])
y = mx.array([1.0, 2.0, 3.0, 4.0])
result = (mx.exp(x) * y + mx.abs(x - y) * 3).tolist()
"""
SINGLES = """
result = []
for dtype in (mx.float32, mx.float16, mx.bfloat16, mx.int32):
    x = mx.array([1, 2, 3, 4, 5, 6], dtype=dtype)
    y = mx.array([2, 1, 2, 1, 2, 1], dtype=dtype)
    m, n = x.reshape(2, 3), y.reshape(3, 2)
    mx.eval(x, y, m, n)
    calls = [mx.exp(x), mx.sin(x), mx.abs(x), x + y, x * 2, x - y, x / y, mx.maximum(x, y), x > y]
    calls += [mx.sum(m), mx.sum(m, axis=0), mx.max(m, axis=1), mx.argmax(m, axis=-1)]
    calls += [x.astype(mx.float32)]
    if dtype != mx.int32:
        calls += [mx.softmax(m, axis=-1), mx.mean(m, axis=-1), m @ n]
    for array in calls:
        mx.eval(array)
        result.append(array.astype(mx.float32).tolist())
"""


def start(program, folder, **variables):
    """A fresh process that prints its result and its counters."""
    program = "import json\nimport cermet.core as mx\n" + program
    program += "\nprint(json.dumps([result, mx.counters()]))"
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, "CERMET_CACHE_DIR": str(folder)}
    environment = {**environment, "CERMET_TIER": "fused", **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)


def finish(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return json.loads(out)


def run(program, folder, **variables):
    return finish(start(program, folder, **variables))


def files(folder):
    return sorted((folder / "kernels").glob("*"))


def test_single_ops_come_from_the_seed(tmp_path):
    result, counters = run(SINGLES, tmp_path)
    assert counters["kernels_compiled"] == 0
    assert counters["kernel_hits"]["seed"] > 50
    assert files(tmp_path) == []
    fresh, counters = run(SINGLES, tmp_path, CERMET_KERNEL_CACHE="off")
    assert counters["kernel_hits"]["seed"] == 0
    assert counters["kernels_compiled"] > 50
    assert result == fresh


@pytest.mark.parametrize("level", ["generic", "avx2"])
def test_the_seed_holds_lower_levels(tmp_path, level):
    result, counters = run(SINGLES, tmp_path, CERMET_CPU_FEATURES=level)
    assert counters["kernels_compiled"] == 0
    fresh, _ = run(SINGLES, tmp_path, CERMET_CPU_FEATURES=level, CERMET_KERNEL_CACHE="off")
    assert result == fresh


def test_the_second_process_compiles_nothing(tmp_path):
    result, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    again, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 0
    assert counters["kernel_hits"]["disk"] == 1
    assert again == result


def test_sixteen_processes_share_a_folder(tmp_path):
    answers = [finish(process) for process in [start(CHAIN, tmp_path) for _ in range(16)]]
    assert all(result == answers[0][0] for result, _ in answers)
    for _, counters in answers:
        assert counters["kernels_compiled"] + counters["kernel_hits"]["disk"] == 1
    assert len(files(tmp_path)) == 1
    assert run(CHAIN, tmp_path)[1]["kernels_compiled"] == 0


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_replaced(tmp_path, damage):
    result, _ = run(CHAIN, tmp_path)
    (file,) = files(tmp_path)
    good = file.read_bytes()
    file.write_bytes(damage if damage is not None else good[:200] + b"?" + good[201:])
    again, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    assert again == result
    assert file.read_bytes() == good


def test_an_unwritable_folder_is_no_error(tmp_path):
    (tmp_path / "kernels").mkdir(mode=0o500)
    result, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    nowhere, counters = run(CHAIN, pathlib.Path("/proc/nothing"))
    assert counters["kernels_compiled"] == 1
    assert nowhere == result


def test_a_full_disk_is_no_error(tmp_path):
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, (100, {resource.RLIM_INFINITY}))"
    result, counters = run(f"{limit}\n{CHAIN}", tmp_path)
    assert counters["kernels_compiled"] == 1
    assert files(tmp_path) == []
    assert run(CHAIN, tmp_path)[0] == result


def test_dumps_show_every_kernel(tmp_path):
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    run(CHAIN, tmp_path)
    _, counters = run(CHAIN, tmp_path, CERMET_DUMP=str(dumps))
    assert counters["kernels_compiled"] == 1
    assert any(dumps.iterdir())
