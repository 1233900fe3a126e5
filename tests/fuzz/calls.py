# SPDX-License-Identifier: MIT
"""Random calls (tests/python/random_call.py) until the time is over. Those with faults are shown
with their numbers, which repeat them: TEST_SEED=n make fuzz ONLY=calls ARGS="--calls 1"
"""

import time

import pytest
import random_call

BATCH = 4000


@pytest.mark.timeout(0)
def test_random_calls(seed, request, capsys):
    start, done, faults = time.monotonic(), 0, []
    count = request.config.getoption("--calls")
    seconds = request.config.getoption("--seconds")
    while done < count and time.monotonic() - start < seconds:
        last = min(done + BATCH, count)
        faults += random_call.check_range(seed + done, seed + last)[0]
        done = last
        with capsys.disabled():
            passed = time.monotonic() - start
            print(f"\r{done} calls, {passed:.0f} s, TEST_SEED={seed}", end="", flush=True)
    assert not faults, random_call.report(faults)
