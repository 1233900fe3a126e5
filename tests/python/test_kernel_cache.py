# SPDX-License-Identifier: MIT
"""Where kernels come from, by the counters of fresh processes: the seed cache that comes with the
library, the folder on disk (shared, damaged, unwritable, full), LLVM.
"""

import json
import os
import pathlib
import re
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

# Kernels of one evaluation: one of the seed, seven others, and two equal to the last of these.
SEVERAL = """
inputs = [mx.linspace(0.5, 2, n) for n in range(4, 14)]
mx.eval(inputs)
results = []
for n, x in enumerate(inputs):
    y = mx.sin(x)
    for _ in range(min(n, 7)):
        y = mx.cos(y) * x
    results.append(y)
mx.counters(reset=True)
mx.eval(results)
result = [r.tolist() for r in results]
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


def test_emulated_tiles_are_kernels_of_their_own(tmp_path):
    product = """
x = mx.arange(20 * 24, dtype=mx.bfloat16).reshape(20, 24) % 5
y = mx.contiguous(x.T)
mx.eval(x, y)
mx.counters(reset=True)
result = (x @ y).astype(mx.float32).tolist()
result.append(mx.explain(lambda a, b: a @ b, x, y).kernels[0].scheme)
"""
    plain, _ = run(product, tmp_path, CERMET_CPU_FEATURES="avx2")
    assert plain.pop() in ("fma", "fma_local")  # by costs
    for compiled in (1, 0):
        result, counters = run(product, tmp_path, CERMET_CPU_FEATURES="amx_emulated")
        assert result.pop() == "amx_bf16" and result == plain
        assert counters["kernels_compiled"] >= compiled and counters["kernel_hits"]["seed"] == 0
    assert counters["kernels_compiled"] == 0


def test_the_second_process_compiles_nothing(tmp_path):
    result, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    again, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 0
    assert counters["kernel_hits"]["disk"] == 1
    assert again == result


def test_a_kernel_is_counted_where_it_was_found(tmp_path):
    """Not where it is once the plan has asked whether it is there."""
    run(CHAIN, tmp_path)
    for tier in ("auto", "fused"):
        _, counters = run(CHAIN, tmp_path, CERMET_TIER=tier)
        assert counters["kernels_compiled"] == 0
        assert counters["kernel_hits"] == {"memory": 0, "disk": 1, "seed": 0}
    _, counters = run(CHAIN.replace("result", "first") + CHAIN, tmp_path, CERMET_TIER="auto")
    assert counters["kernel_hits"]["disk"] == 1


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


def spoilt_folder(folder, how):
    """A cache folder in which nothing can be kept, or nothing is to be trusted."""
    kernels = folder / "kernels"
    if how == "read-only":
        kernels.mkdir(mode=0o500)
    elif how == "a file":
        kernels.write_text("not a folder")
    elif how == "below a file":
        folder = folder / "file"
        folder.write_text("not a folder")
    elif how == "open to others":
        kernels.mkdir()
        kernels.chmod(0o777)
    elif how == "another user's":
        if os.geteuid() == 0:
            kernels.mkdir()
            os.chown(kernels, 12345, 12345)
        else:  # only root gives folders away, and has one that others read
            kernels.symlink_to("/")
    elif how == "a link to nowhere":
        kernels.symlink_to(folder / "nowhere")
    elif how == "a link to itself":
        kernels.symlink_to(kernels)
    elif how == "nowhere":
        folder = pathlib.Path("/proc/nothing")
    elif how == "a long name":
        folder = folder / ("x" * 300)
    return folder


UNTRUSTED = ["open to others", "another user's"]
SPOILT = ["read-only", "a file", "below a file", "a link to nowhere", "a link to itself", "nowhere"]


@pytest.mark.parametrize("how", [*SPOILT, *UNTRUSTED, "a long name"])
def test_a_spoilt_folder_is_no_error(tmp_path, how):
    result, _ = run(CHAIN, tmp_path / "good")
    (tmp_path / "spoilt").mkdir()
    folder = spoilt_folder(tmp_path / "spoilt", how)
    before = files(folder) if how in UNTRUSTED else []
    again, counters = run(CHAIN, folder)
    assert counters["kernels_compiled"] == 1
    assert again == result
    if how in UNTRUSTED:
        assert files(folder) == before


@pytest.mark.parametrize("left", [0, 1, 23, 24, 40, 100, -1])
def test_a_truncated_file_is_replaced(tmp_path, left):
    result, _ = run(CHAIN, tmp_path)
    (file,) = files(tmp_path)
    good = file.read_bytes()
    file.write_bytes(good[:left])
    again, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    assert again == result
    assert file.read_bytes() == good


@pytest.mark.parametrize(
    "what", ["another kernel", "another version", "a folder", "a pipe", "a link"]
)
def test_what_is_not_the_kernel_is_not_run(tmp_path, what):
    """Whole files under the name of a kernel that they do not hold, and no files at all."""
    result, _ = run(CHAIN, tmp_path)
    (file,) = files(tmp_path)
    good = file.read_bytes()
    file.unlink()
    if what == "another kernel":
        run(CHAIN.replace("* 3", "- 3 * x"), tmp_path)
        (other,) = files(tmp_path)
        other.rename(file)
    elif what == "another version":
        other, count = re.subn(rb"cermetk\d", b"cermetk0", good, count=1)
        assert count == 1 and other != good
        file.write_bytes(other)
    elif what == "a folder":
        file.mkdir()
    elif what == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    again, counters = run(CHAIN, tmp_path)
    assert counters["kernels_compiled"] == 1
    assert again == result


def test_a_full_disk_is_no_error(tmp_path):
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, (100, {resource.RLIM_INFINITY}))"
    result, counters = run(f"{limit}\n{CHAIN}", tmp_path)
    assert counters["kernels_compiled"] == 1
    assert files(tmp_path) == []
    assert run(CHAIN, tmp_path)[0] == result


# Kernels of ten shapes of expression, so that the folder is used again and again.
MANY = """
x = mx.array([0.5, 1.5, -2.0, 3.25])
result = []
for n in range(10):
    spoil(n)
    y = x
    for i in range(n + 1):
        y = mx.exp(-y * y) if i % 2 else y * 3 + mx.abs(y - 1)
    result.append(y.tolist())
"""


@pytest.mark.parametrize("how", ["removed", "replaced by a file", "damaged"])
def test_a_folder_that_is_spoilt_in_use_is_no_error(tmp_path, how):
    spoil = {
        "removed": "shutil.rmtree(folder)",
        "replaced by a file": "shutil.rmtree(folder); folder.write_text('')",
        "damaged": "[f.write_bytes(f.read_bytes()[:50]) for f in folder.iterdir()]",
    }[how]
    head = f"""
import shutil, pathlib
folder = pathlib.Path({str(tmp_path / "used" / "kernels")!r})
def spoil(n):
    if n == 4:
        {spoil}
"""
    right, _ = run("spoil = lambda n: None\n" + MANY, tmp_path / "good")
    for _ in range(2):
        result, counters = run(head + MANY, tmp_path / "used")
        assert result == right
        if how == "replaced by a file":
            (tmp_path / "used" / "kernels").unlink()


def test_sixteen_processes_meet_damaged_files(tmp_path):
    right, _ = run("spoil = lambda n: None\n" + MANY, tmp_path)
    for i, file in enumerate(files(tmp_path)):
        file.write_bytes(file.read_bytes()[: 40 * i])
    processes = [start("spoil = lambda n: None\n" + MANY, tmp_path) for _ in range(16)]
    assert all(finish(process)[0] == right for process in processes)
    _, counters = run("spoil = lambda n: None\n" + MANY, tmp_path)
    assert counters["kernels_compiled"] == 0
    assert all("." not in file.name for file in files(tmp_path)), "unfinished files stay"


def test_dumps_show_every_kernel(tmp_path):
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    run(CHAIN, tmp_path)
    _, counters = run(CHAIN, tmp_path, CERMET_DUMP=str(dumps))
    assert counters["kernels_compiled"] == 1
    assert any(dumps.iterdir())


def test_kernels_are_compiled_side_by_side(tmp_path):
    """The threads of the pool share the kernels of an evaluation: each is compiled once, and the
    results are those of one thread."""
    one, counters = run(SEVERAL, tmp_path / "one", CERMET_NUM_THREADS="1")
    two, shared = run(SEVERAL, tmp_path / "two", CERMET_NUM_THREADS="2")
    assert one == two
    assert counters["kernels_compiled"] == shared["kernels_compiled"] == 7
    assert len(files(tmp_path / "one")) == len(files(tmp_path / "two"))
    again, loaded = run(SEVERAL, tmp_path / "two", CERMET_NUM_THREADS="2")
    assert again == one
    assert loaded["kernels_compiled"] == 0
