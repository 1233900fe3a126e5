# SPDX-License-Identifier: MIT
"""Random graphs (tests/python/random_graph.py) until the time is over. The first that fails is
shown with its seed, which repeats it: TEST_SEED=n make fuzz ONLY=graphs ARGS="--graphs 1"
"""

import time

import pytest
import random_graph

BATCH = 25


@pytest.mark.timeout(0)
def test_random_graphs(seed, request, capsys):
    start, done = time.monotonic(), 0
    count = request.config.getoption("--graphs")
    seconds = request.config.getoption("--seconds")
    while done < count and time.monotonic() - start < seconds:
        with capsys.disabled():  # the seed may be needed after a crash
            passed = time.monotonic() - start
            print(f"\r{done} graphs, {passed:.0f} s, TEST_SEED={seed + done}", end="", flush=True)
        last = min(done + BATCH, count)
        random_graph.check_range(seed + done, seed + last)
        done = last
