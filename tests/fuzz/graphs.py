# SPDX-License-Identifier: MIT
"""Random graphs (tests/python/random_graph.py) until the time is over; the first that fails is shown
with its TEST_SEED. `TEST_SEED=n make fuzz ONLY=graphs ARGS="--graphs 1"` repeats it alone.
"""

import time

import pytest
import random_graph

BATCH = 25


@pytest.mark.timeout(0)
def test_random_graphs(seed, request, capsys):
    start, done = time.monotonic(), 0
    count = request.config.getoption("--graphs")
    while done < count and time.monotonic() - start < request.config.getoption("--seconds"):
        random_graph.check_range(seed + done, seed + min(done + BATCH, count))
        done = min(done + BATCH, count)
        with capsys.disabled():
            print(f"\r{done} graphs, {time.monotonic() - start:.0f} s", end="", flush=True)
