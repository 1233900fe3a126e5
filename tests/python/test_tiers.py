# SPDX-License-Identifier: MIT
"""How regions run (CERMET_TIER): as one kernel, op by op, or first the one, then the other. The
bits are the same. Each process runs the functions of test_fusion.py, three times.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent

RUN = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
import cermet.core as mx

mx.random.seed(5)  # layers of nn are initialised on import
from test_fusion import CASES, kernels_of, make_input
found = {}
for name, _, f, *specs in CASES:
    inputs = [make_input(text, seed) for seed, text in enumerate(specs)]
    counts, digests = [], []
    for _ in range(3):
        launched, results = kernels_of(f, inputs)
        counts.append(launched)
        digests.append([hashlib.sha256(r.tobytes()).hexdigest() for r in results])
    found[name] = [counts, digests]
print(json.dumps(found))
"""


def run(tier, folder):
    """{case: (kernels of three evaluations, digests of their results)} of a fresh process."""
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, "CERMET_TIER": tier}
    environment["CERMET_CACHE_DIR"] = str(folder)
    command = [sys.executable, "-c", RUN, str(FOLDER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def tiers(tmp_path_factory):
    names = ("fused", "single", "auto")
    return {name: run(name, tmp_path_factory.mktemp(name)) for name in names}


def test_the_bits_do_not_depend_on_the_tier(tiers):
    for tier, cases in tiers.items():
        for name, (_, digests) in cases.items():
            expected = tiers["fused"][name][1][0]
            assert digests == [expected] * 3, (tier, name)


def test_op_by_op_takes_more_kernels(tiers):
    fused = {name: counts for name, (counts, _) in tiers["fused"].items()}
    more = [n for n, (counts, _) in tiers["single"].items() if counts[2] > fused[n][2]]
    assert len(more) > 30


def test_a_region_is_one_kernel_from_its_third_evaluation(tiers):
    for name, (counts, _) in tiers["auto"].items():
        assert counts[2] == tiers["fused"][name][0][2], name


def test_the_first_sight_runs_from_the_seed(tiers):
    first = [n for n, (counts, _) in tiers["auto"].items() if counts[0] > counts[2]]
    assert "relu(a·b+c)" in first
