# SPDX-License-Identifier: MIT
"""Calls that fit, made on Cermet and on the wheel: both answer the same dtype, shape and values, or
both raise. The calls are lines of Python, drawn from all of call_families.py. What differs on
purpose is named here by the row of docs/differences.md that tells of it.
"""

import pathlib
import random
import re

import call_families
import numpy as np
import pytest
from mlx_oracle import CERMET, MLX, outcome

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/differences.md"
CALLS = 3000

# The start of a row or an item of docs/differences.md; calls that it is about.
ON_PURPOSE = [
    ("`expm1` of complex", r"expm1\(A\('complex"),
    ("`//` of complex", r"floor_divide\(.*(complex|1j)"),
    ("integers to a negative power", r"power\(.*(int|bool).*(int|-)"),
    ("`%` of integers by 0", r"(remainder|floor_divide)\(.*(bool|int|0|False)"),
    ("`<<` and `>>`", r"shift\("),
    ("a Python number that does not fit", r"uint64.*-\d|-\d.*uint64"),
    ("`sum` and `prod` over no axes", r"mx.(sum|prod)\(A\('(bool_|u?int(8|16))', \(\)"),
    (
        "`sum`, `mean`, `all` and other reductions over no",
        r"mx.(sum|prod|any|all|mean|var|std|logsumexp|count_nonzero|array_equal)\(A\('\w+', \(0,\)",
    ),
    ("`mean`, `var` and `std` of integers", r"(mean|var|std)\(A\('u?int"),
    ("`matmul`, `inner`", r"mx.(matmul|inner|tensordot|addmm)\(A\('(bool|u?int)"),
    ("`softmax` of integers", r"softmax\(A\('(bool|u?int)"),
    ("`logsumexp` of unsigned", r"logsumexp\(A\('(bool|uint)"),
    ("- bfloat16 arrays as NumPy", r"nan_to_num\(A\('(float64|complex)"),
    ("functions of float64", r"A\('float64'"),
    ("an int assigned to a bool", r"set_item\(A\('bool_'|A\('bool_'.*\.at\["),
    ("integers to a negative power", r"power\(True, A\('int"),
    ("a Python number that does not fit", r"'bool_'.*2\*\*40"),
    ("complex functions of infinite", r"power\(math.inf, A\('complex"),
    ("complex functions of infinite", r"mx.cum(max|min)\(A\('complex.*inclusive=False"),
    ("half-typed interiors", r"nn.log_softmax\(A\('bfloat16"),
    ("`logsumexp` of complex", r"logsumexp\(A\('complex"),
    ("`logcumsumexp` of complex", r"logcumsumexp\(A\('complex"),
    ("`x.at[i].divide(n)`", r"A\('u?int.*divide\("),
    ("floats that do not fit", r"A\('(b?float|complex).*astype\(mx.u?int"),
    ("floats that do not fit", r"(set_item|at\[).*A\('u?int\d+'.*\d\.\d"),
    ("derivatives through integers", r"gradient\(.*mx.(divmod|astype)"),
    (
        "float64 with complex numbers",
        r"(result_type|can_cast)\(.*(complex.*float64|float64.*complex)",
    ),
    ("random numbers", r"random.*float64"),
    ("- bfloat16 arrays as NumPy", r"random.*float64"),
]


def result(lib, text):
    """What the call gives; an exception's type is not compared."""
    names = call_families.names(lib)
    got = outcome(lambda lib: eval(text, names), lib)
    return "raised" if isinstance(got, type) else got


def tolerance(dtype):
    return {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 5e-5)


def differs(ours, theirs):
    if isinstance(theirs, tuple) and len(theirs) == 2 and isinstance(theirs[1], np.ndarray):
        if not isinstance(ours, tuple) or ours[0] != theirs[0]:
            return True
        x, y = ours[1], theirs[1]
        if x.shape != y.shape or x.dtype != y.dtype:
            return True
        close = tolerance(theirs[0])
        return not np.allclose(x, y, close, close / 10 if close > 1e-3 else 1e-6, equal_nan=True)
    if isinstance(theirs, (list, tuple)):
        if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
            return True
        return any(differs(a, b) for a, b in zip(ours, theirs, strict=True))
    return ours != theirs


def on_purpose(text):
    return any(re.search(pattern, text) for _, pattern in ON_PURPOSE)


def check(texts):
    """The calls whose answers differ, and how many returned."""
    faults, returned = [], 0
    for text in texts:
        theirs, ours = result(MLX, text), result(CERMET, text)
        returned += theirs != "raised"
        if differs(ours, theirs):
            faults.append(f"{text}\n    Cermet: {ours}\n    MLX:    {theirs}"[:700])
    return faults, returned


@pytest.mark.filterwarnings("ignore")
def test_calls_answer_as_the_wheel(seed):
    texts = [t for t in call_families.all_calls() if not on_purpose(t)]
    assert len(texts) > 4 * CALLS
    faults, returned = check(random.Random(seed).sample(texts, CALLS))
    assert not faults, f"{len(faults)} calls differ\n" + "\n".join(faults[:20])
    assert returned > 0.6 * CALLS


def test_what_differs_is_documented():
    page = PAGE.read_text()
    assert all(f"\n| {row}" in page or f"\n{row}" in page for row, _ in ON_PURPOSE)


# Each once answered otherwise than the wheel.
FOUND = """
mx.round(3)
mx.round(A('bool_', (3,)), -1)
mx.logical_or(A('uint8', (3,)), -1)
mx.logical_xor(-300, A('uint8', (3,)))
mx.full((2,), 2**40)
mx.arange(2**40, 2**40 + 2)
mx.arange(-2**31 - 1, -2**31 + 2)
mx.arange(0, 2**31, 2**30)
mx.arange(5, 0, -2**40)
mx.arange(1j)
mx.sum(A('float32', (2, 3)), axis=np.int64(0))
mx.sum(A('float32', (2, 3)), axis=mx.array(1))
mx.softmax(A('float32', (2, 3)), np.int32(-1))
mx.expand_dims(A('float32', (2, 3)), np.int64(0))
mx.split(A('float32', (2, 4)), np.int64(2), np.int64(1))
mx.pad(A('float32', (2, 3)), np.int64(1))
mx.tensordot(A('float32', (2, 3)), A('float32', (2, 3)), np.int64(2))
mx.count_nonzero(A('float32', (2, 3)), 0)
mx.count_nonzero(A('float32', (2, 3)), 0, True)
mx.count_nonzero(A('float32', (2, 3)), 0, keepdims=True)
mx.zeros(np.array([2, 3]))
mx.ones(mx.array([2, 3]))
mx.zeros(range(1, 3))
mx.full(np.array([2, 2]), 1)
mx.reshape(A('float32', (2, 3)), mx.array([3, 2]))
A('float32', (2, 3)).reshape(np.array([3, 2]))
mx.tile(A('float32', (2, 3)), np.array([1, 2]))
mx.broadcast_to(mx.array(1), np.array([2, 3]))
mx.random.uniform(shape=np.array([2, 3]), key=mx.random.key(1))
mx.as_strided(A('float32', (2, 3)), np.array([2, 2]), np.array([1, 1]))
operator.index(mx.array([1]))
A('bool_', (3,)).at[0].add(True)
A('bool_', (3,)).at[mx.array([0, 0, 1])].add(A('bool_', (3,)))
mx.slice_update(mx.zeros((4, 5)), mx.ones((2,)), mx.array([1]), (1,))
mx.slice_update(mx.zeros((4, 5)), mx.array(9.0), mx.array([1]), (0,))
mx.slice_update(mx.zeros((2, 4, 5)), mx.ones((1, 2)), mx.array([1]), (-1,))
mx.random.categorical(A('float32', (3,)), num_samples=50, key=mx.random.key(4))
mx.random.categorical(A('float32', (3,)), shape=(5, 2), key=mx.random.key(4))
mx.random.categorical(A('float32', (1, 300)), key=mx.random.key(4))
mx.random.categorical(A('float32', (30, 1)), 0, shape=(7, 1), key=mx.random.key(5))
mx.random.categorical(A('int32', (3,)), shape=(6,), key=mx.random.key(4))
mx.random.categorical(mx.array([0.0, -math.inf, 0]), num_samples=20, key=mx.random.key(4))
mx.array([1 + 2j, 3 - 1j, -2 - 2j]) / 0
mx.reciprocal(mx.array([2j, 0j]))
mx.vmap(lambda x: (x, x.sum()), 1, (0, 0))(A('float32', (2, 3)))
mx.vmap(lambda x: {'a': x}, 0, {'a': -1})(A('float32', (2, 3, 4)))['a']
mx.fast.rms_norm(A('int32', (2, 4)), A('float32', (4,)), 1e-5)
mx.fast.layer_norm(A('int32', (2, 4)), A('float32', (4,)), A('float32', (4,)), 1e-5)
mx.fast.layer_norm(A('int32', (2, 4)), None, None, 1e-5)
gradient(nn.elu, A('float32', (6,)))
gradient(nn.selu, A('float32', (6,)))
nn.losses.smooth_l1_loss(A('float32', (6,)), A('float32', (6,)) * 2, beta=0)
nn.losses.cross_entropy(A('float32', (2, 3)) + 100, A('float32', (2, 3), 'pos'))
gradient(lambda x: nn.losses.cross_entropy(x, A('float32', (2, 3), 'pos')), A('float32', (2, 3)))
optim.clip_grad_norm({'a': mx.full((3,), 300.0, mx.float16)}, 1.0)[1]
optim.clip_grad_norm({'a': A('bfloat16', (3,)), 'b': A('float32', (3,))}, 1.0)[0]['a']
mx.stack(A('float32', (3, 4)))
mx.stack(A('float32', (3, 4, 5)), axis=-1)
mx.concatenate(A('float32', (3, 4, 5)), 1)
repr(mx.finfo(mx.float32))
repr(mx.finfo(mx.bfloat16))
repr(mx.iinfo(mx.uint64))
""".strip().splitlines()


@pytest.mark.parametrize("text", FOUND)
def test_what_once_differed(text):
    faults, _ = check([text])
    assert not faults, faults[0]


ARANGES = [
    "5, 2, mx.float32",
    "5, None, mx.int8",
    "0.5, 2, mx.float32",
    "7, 2, None",
    "1, 5, None, mx.int8",
    "stop=5, step=2, dtype=mx.int8",
    "5, 2, mx.float32, mx.int8",
    "5, 2, mx.float32, dtype=mx.int8",
    "5, 2, 'a'",
]


@pytest.mark.parametrize("arguments", ARANGES)
def test_the_second_signature_of_arange(arguments):
    """arange(stop, step, dtype): a dtype in the third place makes the first the end."""
    ours, theirs = (result(lib, f"mx.arange({arguments})") for lib in (CERMET, MLX))
    assert str(ours) == str(theirs)
