# SPDX-License-Identifier: MIT
"""A few random graphs; `make fuzz` runs them for longer, under new seeds."""

import numpy as np
import pytest
import random_graph
from bounded import Bounded, cast

BATCHES, GRAPHS = 8, 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs(seed, batch):
    first = seed + batch * GRAPHS
    known, elements = random_graph.check_range(first, first + GRAPHS)
    assert known > 0.5 * elements, "the bounds say too little to test anything"


def test_bounds_are_tight_and_hold():
    """A result that is off by one unit in the last place is found where the reference is exact, and
    one off by four where one rounding is allowed."""
    x = np.linspace(0.5, 4, 100, dtype=np.float32)
    exact = Bounded(x, "float32")
    assert exact.fault(x) is None
    assert exact.fault(np.nextafter(x, np.float32(9))) is not None
    root = random_graph.bounded.UNARY["exp"](exact)
    right = np.exp(x.astype(np.float64)).astype(np.float32)
    assert root.fault(right) is None
    assert root.fault(right * np.float32(1 + 2**-21)) is not None
    whole = cast(root, "int32")
    assert whole.fault(right.astype(np.int32)) is None
    assert whole.fault(right.astype(np.int32) + 1) is not None
