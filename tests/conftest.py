# SPDX-License-Identifier: MIT
"""One seed for all generated cases of a run: TEST_SEED, a number or `new`. It is printed.

Regions run as one kernel at first sight, so that the kernels of an evaluation can be counted;
test_tiers.py tests the other ways.
"""

import os
import random
import signal

import numpy as np
import pytest

os.environ.setdefault("CERMET_TIER", "fused")
# Repeatable unless asked otherwise: `make fuzz` looks for what other seeds find.
SEED = os.environ.get("TEST_SEED", "0")
SEED = random.SystemRandom().randrange(2**31) if SEED == "new" else int(SEED)
os.environ["TEST_SEED"] = str(SEED)  # of all processes that share the tests

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them press.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header():
    return f"TEST_SEED={SEED}"


@pytest.fixture
def seed():
    """Of the run, for tests that print the seeds of their cases themselves."""
    return SEED


@pytest.fixture
def rng(request):
    """A generator of its own for each test, the same for the same seed."""
    name = [ord(c) for c in request.node.name]
    print(f"TEST_SEED={SEED}")
    return np.random.default_rng([SEED, *name])
