# SPDX-License-Identifier: MIT
"""A few thousand random calls; `make fuzz` makes more, under new seeds. Calls that once found a
fault stay here, as their texts."""

import call_draw
import pytest
import random_call

CALLS = 2500


def test_random_calls(seed):
    faults, counts = random_call.check_range(seed, seed + CALLS)
    assert not faults, random_call.report(faults)
    assert counts["returned"] > 0.25 * CALLS, "too few calls fit"
    assert counts["raised"] > 0.25 * CALLS, "too few calls are wrong"


def test_every_function_is_called():
    """Over the numbers of a long run, with all its arguments fitting at least once."""
    table = call_draw.Table()
    texts = "\n".join(call_draw.Draw(n, table).text() for n in range(20_000))
    missing = [c.text for c in [*table.core, *table.package] if f"{c.text}(" not in texts]
    assert not missing


# Each crashed, hung, raised what is no answer, or left arrays unusable.
FOUND = """
mx.log10(np.datetime64('2020-01-01'))
A() + np.datetime64('2020-01-01')
mx.ceil(Shape(2**62))
mx.square(mx.array)
mx.array(cyclic([]))
mx.eval(cyclic([]))
mx.array(nested(100000))
mx.eval(nested(100000))
mx.arcsinh(uninitialised(mx.array))
A() + uninitialised(mx.array)
A().cumsum(decimal.Decimal('1.5'))
A().cummax(2**64 - 1)
mx.prod(A(), np.array(['a']))
A().__dlpack__(copy=Index(None))
A().std(1, True, 2, correction=A())
mx.transpose(A(), A('int16', (3, 3)))
A('float32', (3,), 'strided')[mx.array([2**40])]
A('float32', (6,), 'lazy')[A('int64', (6,)) + 2**40]
mx.sum(A(), shrinking(3, 'index'))
mx.reshape(A(), shrinking(100, 'index'))
mx.array(shrinking(100, 'mlx'))
mx.einsum('\\0', A('float32', (6, 5, 70)), A('float32', (6, 70)), A('float32', (5,)))
mx.load(damaged('npy', 549470))
mx.slice(A(), mx.array([0]), shrinking(3, 'index'), (1,))
mx.slice_update(A(), A(), mx.array([0]), shrinking(3, 'index'))
A()[::0]
""".strip().splitlines()


@pytest.mark.parametrize("call", FOUND)
def test_faults_stay_away(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert random_call.fault_in_child(call) is None
