# SPDX-License-Identifier: MIT
"""CERMET_LOG: each topic tells what its name promises, one line an event; without it nothing."""

import re

import pytest
from own_process import run_logged

PROGRAM = """
import cermet.core as mx

def affine(x, k):
    return mx.tanh(x * k) if x.shape[0] < 16 else mx.sin(x * k)

f = mx.compile(affine)
for rows in (4, 8, 20):
    mx.eval(f(mx.ones((rows, 3)), 2.0))
    mx.eval(f(mx.ones((rows, 3)), 2.0))
x = mx.random.uniform(shape=(300_000,))
mx.eval(x)
for _ in range(2):
    mx.eval((x * 0.3 + 7).max())
mx.async_eval(mx.cumsum(mx.sin(x)))
mx.synchronize()
del x
mx.clear_cache()
c = mx.counters()
print(c["traces"], c["programs_built"], c["allocations"], c["allocator_hits"], c["syncs"])
print(c["kernels_compiled"], *c["kernel_hits"].values(), c["compile_us"])
"""
TOPICS = ("plan", "kernel", "compile", "launch", "alloc", "sync")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the program printed, and its lines by topic."""
    folder = tmp_path_factory.mktemp("kernels")
    shown, log = run_logged(PROGRAM, CERMET_LOG=",".join(TOPICS), CERMET_CACHE_DIR=str(folder))
    lines = {topic: [] for topic in TOPICS}
    for line in log.splitlines():
        topic, text = re.fullmatch(r"\[(?:cermet )?(\w+)\] (.+)", line).groups()
        lines[topic].append(text)
    return [[int(n) for n in line.split()] for line in shown.splitlines()], lines


def test_no_topic_is_silent(told):
    assert all(told[1].values()), {topic: len(lines) for topic, lines in told[1].items()}


def test_nothing_is_told_unasked():
    assert run_logged(PROGRAM, CERMET_LOG="")[1] == ""


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_alone(topic, tmp_path):
    log = run_logged(PROGRAM, CERMET_LOG=topic, CERMET_CACHE_DIR=str(tmp_path))[1]
    lines = log.splitlines()
    assert any(line.startswith(f"[cermet {topic}] ") for line in lines)
    passes = f"[{topic}] "  # over kernels
    assert all(line.startswith((f"[cermet {topic}] ", passes)) for line in lines)


def test_plan(told):
    (_, built, *_), lines = told[0][0], told[1]["plan"]
    made = [line for line in lines if line.startswith("built in ")]
    assert len(made) == built
    pattern = (
        r"built in \d+ us for (eval [0-9a-f]{32}|compile at sizes \[[\d ]*\])"
        r"(, op by op at first)?: \d+ nodes, \d+ inputs, \d+ outputs, \d+ kernels \(.*\)"
    )
    assert all(re.fullmatch(pattern, line) for line in made), made
    assert any("compile at sizes [20 3 " in line for line in made), made
    assert any(re.fullmatch(r"found for eval [0-9a-f]{32}, wanted \d+ times", s) for s in lines)


def test_compile(told):
    (traces, *_), lines = told[0][0], told[1]["compile"]
    assert len(lines) == traces == 2
    assert re.fullmatch(r"affine traced in \d+\.\d\d ms: first call", lines[0])
    assert re.fullmatch(
        r"affine traced in \d+\.\d\d ms: broken guard: "
        r"\(argument array 0\.shape\[0\] = 20\) < \(16\) was true",
        lines[1],
    )


def test_kernel(told):
    compiled, *hits, us = told[0][1]
    lines = told[1]["kernel"]
    made = [
        re.search(r"\((\w+)\): lowered in ([\d.]+) ms, compiled in ([\d.]+) ms", s) for s in lines
    ]
    made = [m for m in made if m]
    assert len(made) == compiled > 0
    spent = sum(float(m[2]) + float(m[3]) for m in made)
    assert us / 1e3 == pytest.approx(spent, abs=0.02 * compiled)
    found = [
        s for s in lines if re.fullmatch(r"[0-9a-f]{32} \S+ \(\w+\) from (memory|disk|seed).*", s)
    ]
    assert len(found) == sum(hits)


def test_alloc(told):
    (_, _, new, reused, _), lines = told[0][0], told[1]["alloc"]
    end = r"; .+ active, .+ held"
    assert (
        sum(bool(re.fullmatch(r".+ for \S+, in a new block of \d+ bytes" + end, s)) for s in lines)
        == new
    )
    assert (
        sum(bool(re.fullmatch(r".+ for \S+, in a kept block of \d+ bytes" + end, s)) for s in lines)
        == reused
    )
    given = [s for s in lines if re.fullmatch(r".+ given back to the system" + end, s)]
    assert given and len(given) + new + reused == len(lines)
    assert any(s.startswith("1.14 MiB (1200000 bytes) for ") for s in lines)


def test_sync(told):
    (*_, syncs), lines = told[0][0], told[1]["sync"]
    assert len(lines) == syncs > 0
    assert all(re.fullmatch(r"waited [\d.]+ us for .+", line) for line in lines)
