# SPDX-License-Identifier: MIT
"""Errors: their kinds, their form `[op] what is wrong, with the values; what would be right`, and
work going on after them.
"""

import itertools
import re
import signal
import subprocess
import sys

import cermet.core as mx
import cermet.nn as nn
import pytest
from cermet.utils import tree_flatten, tree_map, tree_map_with_path, tree_merge, tree_reduce

X = "mx.zeros((2, 3))"
ERRORS = [
    (f"mx.add({X}, mx.zeros((4,)))", ValueError, ["(2, 3)", "(4,)"]),
    (f"mx.matmul({X}, {X})", ValueError, ["(2, 3)"]),
    (f"mx.sum({X}, axis=2)", ValueError, ["2"]),
    (f"mx.sum({X}, axis=2)", IndexError, ["2"]),
    (f"mx.sum({X}, axis=(0, 0))", ValueError, ["0"]),
    (f"mx.reshape({X}, (4, 2))", ValueError, ["(2, 3)", "(4, 2)"]),
    (f"mx.reshape({X}, (-1, -1))", ValueError, ["-1"]),
    (f"mx.mean({X}, {X}.at[0])", TypeError, []),
    (f"mx.pad({X}, (2**62, 2**62))", OverflowError, ["sum"]),
    (f"mx.pad({X}, (2**62, 2**62), mode='edge')", OverflowError, ["sum"]),
    (f"mx.repeat({X}, 2**62, 0)", OverflowError, [str(2**62)]),
    (f"mx.tile({X}, (2**62, 4))", OverflowError, [str(2**62)]),
    (f"mx.concatenate([mx.zeros((2**40, 0))] * 3 + [{X}])", ValueError, ["(2, 3)"]),
    (f"mx.reshape({X}, (-1, -(2**63)))", ValueError, ["negative"]),
    ("mx.linspace(0, 1, 2**63 - 1)", OverflowError, [str(2**63 - 1)]),
    (f"mx.put_along_axis({X}, mx.array([[0]]), mx.zeros((3, 2)), 0)", ValueError, ["(3, 2)"]),
    ("mx.identity(-1)", ValueError, ["-1"]),
    (f"mx.trace({X}, 0, 5)", ValueError, ["5"]),
    (f"mx.reshape({X}, (-1, 2**40, 2**40))", OverflowError, ["1099511627776"]),
    (f"mx.transpose({X}, (0, 0))", ValueError, ["0"]),
    (f"mx.squeeze({X}, 0)", ValueError, ["2"]),
    (f"mx.concatenate([{X}, mx.zeros((2, 4))])", ValueError, ["(2, 3)", "(2, 4)"]),
    ("mx.concatenate([])", ValueError, []),
    (f"mx.stack([{X}, mx.zeros((2,))])", ValueError, ["(2,)"]),
    (f"mx.split({X}, 2, axis=1)", ValueError, ["3", "2"]),
    (f"mx.broadcast_to({X}, (3, 2))", ValueError, ["(2, 3)", "(3, 2)"]),
    (f"mx.take_along_axis({X}, mx.zeros((2,), mx.int32), 0)", ValueError, ["(2,)"]),
    (f"{X}[5]", IndexError, ["5", "0", "2"]),
    (f"mx.eval(mx.take({X}, mx.array([7]), 0))", IndexError, ["7", "2"]),
    ("mx.zeros((2,), mx.int32) & mx.zeros((2,))", TypeError, ["float32"]),
    ("mx.floor(mx.array([1j]))", TypeError, ["complex64"]),
    ("mx.zeros((-1,))", ValueError, ["-1"]),
    ("mx.zeros((2**40, 2**40))", OverflowError, ["1099511627776"]),
    ("mx.zeros((2.5,))", TypeError, ["float"]),
    ("mx.full((2,), 300, mx.uint8) + 300", OverflowError, ["300", "uint8"]),
    ("mx.set_default_device(mx.gpu)", ValueError, ["gpu"]),
    ("mx.Device(mx.cpu, 5)", ValueError, ["Device(cpu, 5)", "below 1"]),
    ("mx.Device(mx.gpu, -1)", ValueError, ["-1", "at least 0"]),
    ("mx.zeros((2,), stream=3)", TypeError, ["int"]),
    ("mx.finfo(mx.int32)", ValueError, ["int32"]),
    ("mx.iinfo(mx.float32)", ValueError, ["float32"]),
    ("mx.arange(0, 10, 0)", ValueError, ["0"]),
    ("mx.arange()", TypeError, ["start", "stop"]),
    ("mx.linspace(0, 1, -1)", ValueError, ["-1"]),
    ("mx.pad(mx.zeros((2,)), 1, mode='bend')", ValueError, ["bend"]),
    (f"mx.as_strided({X}, (3, 3), (2, 1))", ValueError, ["(3, 3)", "2, 1", "6"]),
    (f"mx.as_strided({X}, (2,), (-1,))", ValueError, ["-1", "6"]),
    (f"mx.as_strided({X}, (5,), (2**62,))", ValueError, [str(2**62)]),
    (f"mx.as_strided({X}, (5, 3), (2**62, -(2**63)))", ValueError, [str(2**62)]),
    (f"mx.as_strided({X}, (2,), (1,), 2**63 - 1)", ValueError, [str(2**63 - 1)]),
    (f"mx.as_strided({X}, (2,), (1, 1))", ValueError, ["(2,)", "2"]),
    ("mx.zeros((3,), mx.uint8).view(mx.int32)", ValueError, ["(3,)", "int32"]),
    ("mx.diag(mx.zeros((3,)), 2**62)", OverflowError, [str(2**62)]),
    ("mx.diag(mx.zeros((3,)), -(2**63))", OverflowError, [str(2**63)]),
    ("mx.diag(mx.zeros((3, 3, 3)))", ValueError, ["(3, 3, 3)"]),
    (f"mx.diagonal({X}, 0, 1, 1)", ValueError, ["1"]),
    ("mx.diagonal(mx.zeros((3,)))", ValueError, ["(3,)"]),
    (f"mx.roll({X}, (1, 2), (0, 1, 1))", ValueError, ["2", "3"]),
    (f"mx.diff({X}, -1)", ValueError, ["-1"]),
    (f"mx.meshgrid({X}, indexing='no')", ValueError, ["no"]),
    (f"mx.inner({X}, mx.zeros((2,)))", ValueError, ["(2, 3)", "(2,)"]),
    (f"mx.tensordot({X}, {X}, 3)", ValueError, ["3", "(2, 3)"]),
    (f"mx.tensordot({X}, {X}, [[0], [1]])", ValueError, ["(2, 3)"]),
    (f"mx.gather_mm({X}, {X}, None, mx.array([0]))", ValueError, ["(2, 3)", "3", "2"]),
    (f"mx.gather_mm({X}, {X}.T, mx.array([0.0]))", TypeError, ["lhs_indices", "float32"]),
    (f"mx.gather_mm({X}, {X}.T, None, mx.array([True]))", TypeError, ["rhs_indices", "bool"]),
    (
        "mx.gather_mm(mx.zeros((4, 1, 3)), mx.zeros((2, 3, 5)), None, mx.array([0, 1, 1]))",
        ValueError,
        ["(4,)", "(3,)"],
    ),
    (
        "mx.gather_mm(mx.zeros((4, 1, 3)), mx.zeros((0, 3, 5)), None, mx.zeros((4,), mx.int32))",
        IndexError,
        ["(4,)", "(0, 3, 5)"],
    ),
    (f"mx.segmented_mm({X}, {X}, mx.array([[0, 1]]))", ValueError, ["(2, 3)", "3", "2"]),
    (f"mx.segmented_mm({X}[None], {X}.T, mx.array([[0, 1]]))", ValueError, ["(1, 2, 3)"]),
    (f"mx.segmented_mm({X}, {X}.T, mx.array([[0.5, 1]]))", TypeError, ["float32"]),
    (f"mx.segmented_mm({X}, {X}.T, mx.array([0, 1, 2]))", ValueError, ["(3,)", "2"]),
    (f"mx.block_masked_mm({X}, {X}.T, 0)", ValueError, ["block_size", "0"]),
    (
        f"mx.block_masked_mm({X}, {X}.T, 2, mx.ones((2, 1)))",
        ValueError,
        ["mask_out", "(2, 1)", "(2, 2)", "(1, 1)"],
    ),
    (f"mx.vecdot({X}, mx.zeros((2,)))", ValueError, ["(2, 3)", "(2,)"]),
    (f"mx.einsum('ij,jk->ik', {X}, {X})", ValueError, ["3", "2"]),
    (f"mx.einsum('ij', {X}, {X})", ValueError, ["ij", "2"]),
    (f"mx.einsum('ijk', {X})", ValueError, ["ijk", "2"]),
    (f"mx.einsum('ij->ii', {X})", ValueError, ["ij->ii"]),
    (f"mx.einsum('ij->k', {X})", ValueError, ["ij->k"]),
    (f"mx.einsum('i+j', {X})", ValueError, ["i+j"]),
    (f"mx.cumsum({X}, axis=2)", IndexError, ["2"]),
    ("mx.cumsum(mx.zeros((3,)), dtype=mx.bool_)", TypeError, ["bool"]),
    ("mx.fast.scaled_dot_product_attention(*[mx.zeros((3,))] * 3)", ValueError, ["(3,)"]),
    ("mx.fast.rope(mx.zeros((1, 4, 4)), 4, offset=2.5)", TypeError, ["offset", "float32"]),
    ("mx.fast.rope(mx.zeros((1, 4, 4)), 4, offset=2**31)", OverflowError, ["2147483648", "int32"]),
    (f"mx.sum({X}, axis='a')", TypeError, ["str"]),
    (f"mx.sum({X}, axis=[0.5])", TypeError, ["float"]),
    (f"mx.sum({X}, axis=2**70)", OverflowError, [str(2**70)]),
    (f"mx.cumsum({X}, axis=2**64)", OverflowError, [str(2**64)]),
    (f"mx.argmax({X}, axis='0')", TypeError, ["str"]),
    (f"mx.std({X}, correction=1.5)", TypeError, ["float"]),
    (f"mx.std({X}, correction=2**40)", OverflowError, [str(2**40)]),
    (f"mx.pad({X}, 'ab')", TypeError, ["str"]),
    (f"mx.pad({X}, [(1, 2, 3)])", ValueError, ["3"]),
    ("mx.stack(3)", TypeError, ["int"]),
    ("mx.concatenate(mx.array(3))", ValueError, ["()"]),
    ("mx.concatenate(mx.zeros((2**31,)))", ValueError, [str(2**31)]),
    (f"mx.min({X}, mx.zeros((2**31,)))", ValueError, [str(2**31)]),
    ("mx.split(mx.zeros((0,)), 2**40)", ValueError, [str(2**40)]),
    (f"mx.split({X}, 'a')", TypeError, ["str"]),
    (f"mx.tensordot({X}, {X}, 'ab')", TypeError, ["str"]),
    (f"{X}[::0]", ValueError, ["zero"]),
    ("mx.array(mx.array)", TypeError, ["array"]),
    ("mx.exp(mx.array.__new__(mx.array))", TypeError, ["__new__"]),
    (f"{X} + mx.array.__new__(mx.array)", TypeError, ["__new__"]),
    ("memoryview(mx.array.__new__(mx.array))", TypeError, ["__init__"]),
    ("mx.array.__new__(mx.array).__array__(copy=True)", TypeError, ["__init__"]),
    ("mx.asarray(mx.array.__new__(mx.array))", TypeError, ["__init__"]),
    ("mx.from_dlpack(mx.array.__new__(mx.array))", TypeError, ["__init__"]),
    ("mx.synchronize(mx.Stream.__new__(mx.Stream))", TypeError, ["__init__"]),
    ("mx.array(10**5000)", OverflowError, ["64 bits"]),
    ("mx.grad(mx.multiply, argnums=(0, 0))", ValueError, ["0 more than once"]),
    ("mx.value_and_grad(mx.multiply, argnums=[1, 0, 1])", ValueError, ["1 more than once"]),
    ("mx.grad(lambda x: x, argnums='a')", TypeError, ["str", "int or a sequence"]),
    ("mx.vmap(3)", TypeError, ["int"]),
    (f"{X} * (1, 2)", TypeError, ["tuple"]),
    (f"{X} + [1]", TypeError, ["list"]),
    (f"mx.tile({X}, 'a')", TypeError, ["reps", "str"]),
    ("mx.zeros('a')", TypeError, ["shape", "str"]),
    ("mx.zeros(2.5)", TypeError, ["shape", "float"]),
    ("mx.arange(1j)", TypeError, ["complex"]),
    ("mx.full((2,), 2**40, mx.int32)", OverflowError, [str(2**40), "int32"]),
    ("mx.full_like(mx.zeros((2,), mx.uint8), -1)", OverflowError, ["-1", "uint8"]),
    (f"mx.full((3,), {X})", ValueError, ["(2, 3)", "(3,)"]),
    ("mx.array([1]).__index__()", TypeError, ["(1,)"]),
    (f"{X}.__index__()", TypeError, ["(2, 3)", "float32"]),
    (
        "mx.zeros((2, 3, 4)) @ mx.zeros((3, 4, 5))",
        ValueError,
        ["(2, 3, 4)", "(3, 4, 5)", "(2,)", "(3,)"],
    ),
    ("mx.grad(lambda x: x, argnames=[3])", TypeError, ["int"]),
    ("mx.vmap(lambda x: x, in_axes=({'a': 0},))({'b': mx.zeros((2,))})", ValueError, ["axes"]),
    ("mx.grad(lambda x: x)(mx.zeros((2,)))", ValueError, ["(2,)"]),
    ("mx.grad(lambda x: x.sum())(mx.array([1]))", ValueError, ["int32"]),
]


@pytest.mark.parametrize("code, kind, values", ERRORS)
def test_messages(code, kind, values):
    with pytest.raises(kind) as caught:
        eval(code, {"mx": mx})
    text = str(caught.value)
    assert re.match(r"\[\w+\] \S.*; \S", text, re.DOTALL), text
    for value in values:
        assert value in text, text
    called = re.match(r"mx\.(?:random\.|fast\.)?([a-z]\w*)\([^()]*(?:\([^()]*\)[^()]*)*\)$", code)
    if called and kind in (ValueError, TypeError, OverflowError) and called[1] != "array":
        assert text.startswith(f"[{called[1]}]"), text


# Calls that no signature takes: by type, number, name or size of an argument.
REFUSED = [
    (
        "mx.zeros((2,), dtype='float32')",
        TypeError,
        "[zeros] dtype is 'float32' of type str; it must be Dtype or None, as in "
        "zeros(shape, dtype: Dtype | None = None, *, stream=None)",
    ),
    (
        f"{X}.astype([mx.int8])",
        TypeError,
        "[astype] dtype is of type list; it must be Dtype, as in astype(dtype: Dtype, stream=None)",
    ),
    (
        "mx.random.split(3)",
        TypeError,
        "[split] key is 3 of type int; it must be array, as in "
        "split(key: array, num: int = 2, stream=None)",
    ),
    (
        "mx.softmax(mx.array(3), precise='yes')",
        TypeError,
        "[softmax] precise is 'yes' of type str; it must be bool, as in "
        "softmax(a: array, axis=None, *, precise: bool = False, stream=None)",
    ),
    (
        "mx.Device(3)",
        TypeError,
        "[Device] type is 3 of type int; it must be DeviceType, as in "
        "Device(type: DeviceType, index: int = 0)",
    ),
    (
        "mx.array.astype(3, mx.int8)",
        TypeError,
        "[astype] self is 3 of type int; it must be array, as in astype(dtype: Dtype, stream=None)",
    ),
    (
        "setattr(mx.PrintOptions(3), 'precision', 'a')",
        TypeError,
        "[precision] arg is 'a' of type str; it must be int, as in precision(arg: int)",
    ),
    (
        "mx.zeros()",
        TypeError,
        "[zeros] missing a required argument: 'shape'; call it as "
        "zeros(shape, dtype: Dtype | None = None, *, stream=None)",
    ),
    (
        f"{X}.astype(1, 2, 3)",
        TypeError,
        "[astype] 3 positional arguments were given; call it as astype(dtype: Dtype, stream=None)",
    ),
    (
        "mx.eval(1, strem=2)",
        TypeError,
        "[eval] got an unexpected keyword argument 'strem'; call it as eval(*args)",
    ),
    (
        "mx.concatenate([], arrays=[])",
        TypeError,
        "[concatenate] multiple values for argument 'arrays'; call it as "
        "concatenate(arrays, axis=0, *, stream=None)",
    ),
    (
        "mx.eye(2**70)",
        OverflowError,
        "[eye] n is 1180591620717411303424; it must be an int that fits 64 bits, as in "
        "eye(n: int, m=None, k: int = 0, dtype: Dtype | None = None, *, stream=None)",
    ),
    (
        "mx.set_memory_limit(-1)",
        ValueError,
        "[set_memory_limit] limit is -1; it must be at least 0, as in set_memory_limit(limit: int)",
    ),
    (
        "mx.exp(None)",
        TypeError,
        "[exp] a is None; it must have a value, as in exp(a, *, stream=None)",
    ),
    (
        "mx.Stream(mx.cpu)",
        TypeError,
        "[Stream] there is no constructor; functions of cermet.core make them",
    ),
    (
        "mx.einsum('\\ud800')",
        TypeError,
        "[einsum] the arguments do not fit: one '\\ud800' of type str; call it as "
        "einsum(subscripts: str, *operands, stream=None)",
    ),
]


@pytest.mark.parametrize("code, kind, text", REFUSED)
def test_calls_that_no_signature_takes(code, kind, text):
    with pytest.raises(kind) as caught:
        eval(code, {"mx": mx})
    assert str(caught.value) == text


def test_an_error_of_a_called_function_stays_its_own():
    """Not taken for one of the function that calls it."""

    def inner(x):
        raise TypeError("inner(): incompatible function arguments. Mine")

    with pytest.raises(TypeError, match="^inner.*Mine"):
        mx.grad(inner)(mx.array(1.0))

    def surrogate(x):
        raise TypeError("\ud800")

    with pytest.raises(TypeError, match="^\ud800$"):
        mx.grad(surrogate)(mx.array(1.0))
    with pytest.raises(TypeError, match=r"^\[astype\] dtype is 'a'"):
        mx.grad(lambda x: x.astype("a"))(mx.array(1.0))


def test_every_function_refuses_in_our_form():
    """Given one argument too many; what takes any number says itself what is wrong."""
    checked = 0
    for scope in (mx, mx.random, mx.fast, mx.metal, mx.array):
        for name, function in vars(scope).items():
            if type(function).__name__ not in ("nb_func", "nb_method") or name.startswith("__"):
                continue
            if re.search(r"\*args|\*trees", function.__nb_signature__[0][0]):
                continue
            with pytest.raises((TypeError, ValueError)) as caught:
                function(*[object()] * 40)
            text = str(caught.value)
            assert re.match(r"\[\w+\] \S.*; \S", text, re.DOTALL), f"{name}: {text}"
            checked += 1
    assert checked > 300


def test_axis_errors_are_of_both_kinds():
    assert issubclass(mx.AxisError, ValueError) and issubclass(mx.AxisError, IndexError)
    with pytest.raises(mx.AxisError):
        mx.zeros((2,)).sum(3)


def test_a_failed_array_and_what_comes_from_it():
    """Each raises the same error, again and again; other work goes on."""
    good = mx.ones((3,))
    bad = mx.arange(3)[mx.array([5])]
    derived = bad + 1
    for array in (derived, bad, derived):
        with pytest.raises(IndexError, match="5"):
            mx.eval(array)
    assert (good + 1).tolist() == [2, 2, 2]
    with pytest.raises(IndexError):
        mx.eval(good * 3, derived)
    assert (good * 3).tolist() == [3, 3, 3]


@pytest.mark.parametrize("made", ["strided", "lazy"])
def test_an_index_out_of_range_spares_what_does_not_come_from_it(made):
    """An array that the failing one was made of, and others of the same evaluation, stay usable;
    the memory of what they are made of was not given to what failed."""
    source = mx.arange(10) * 1
    if made == "strided":
        mx.eval(source)
    x = source[0:5:2]
    y = x + 1
    del source
    bad = (x * 2)[mx.array([2**40])]
    for _ in range(2):
        with pytest.raises(IndexError, match=str(2**40)):
            mx.eval(bad, y)
    assert x.tolist() == [0, 2, 4]
    assert y.tolist() == [1, 3, 5]


def test_lists_that_hold_themselves_or_are_very_deep():
    cyclic = []
    cyclic.append(cyclic)
    deep = 1.0
    for _ in range(100_000):
        deep = [deep]
    for x in (cyclic, deep):
        with pytest.raises(ValueError, match=r"\[array\] .* deep"):
            mx.array(x)
        with pytest.raises(ValueError, match=r"\[eval\] .* deep"):
            mx.eval(x)
    with pytest.raises(ValueError, match=r"\[compile\] .* deep"):
        mx.compile(lambda x: mx.ones((2,)))(deep)


def self_holding():
    """A list, a dict, and a tuple with an array beside, each within itself."""
    one = mx.array(1.0)
    of_lists, of_dicts, within = [one], {"a": one}, []
    of_lists.append(of_lists)
    of_dicts["b"] = [of_dicts]
    within.append((one, within))
    return {"list": of_lists, "dict": of_dicts, "tuple": (one, within)}


def total(tree):
    return mx.array(1.0) * 2


SELF_HOLDING_CALLS = {
    "eval": mx.eval,
    "async_eval": mx.async_eval,
    "get_array_buffer_size": mx.get_array_buffer_size,
    "grad": mx.grad(total),
    "value_and_grad": mx.value_and_grad(total),
    "vmap": mx.vmap(total),
    "checkpoint": lambda tree: mx.checkpoint(lambda x: tree)(mx.array(1.0)),
    "compile": lambda tree: mx.compile(lambda x: tree)(mx.array(1.0)),
    "array": lambda tree: mx.array([tree]),
    "save": lambda tree: mx.save("never_written.npy", tree),
    "savez": lambda tree: mx.savez("never_written.npz", tree),
    "tree_map": lambda tree: tree_map(lambda x: x, tree),
    "tree_map_with_path": lambda tree: tree_map_with_path(lambda p, x: x, tree),
    "tree_flatten": tree_flatten,
    "tree_reduce": lambda tree: tree_reduce(lambda a, b: a, tree),
    "tree_merge": lambda tree: tree_merge(tree, tree, lambda a, b: a),
}


@pytest.mark.parametrize("kind", self_holding())
@pytest.mark.parametrize("op", SELF_HOLDING_CALLS)
def test_trees_that_hold_themselves(op, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError)) as raised:
        SELF_HOLDING_CALLS[op](self_holding()[kind])
    assert str(raised.value).startswith("["), raised.value
    assert not list(tmp_path.iterdir())


def test_a_compiled_function_takes_state_that_holds_itself():
    """What it captures may lead back to where it was."""
    for tree in (self_holding()["list"], self_holding()["dict"]):
        first = tree[0] if isinstance(tree, list) else tree["a"]
        state = {"tree": tree}
        f = mx.compile(
            lambda x, s=state: (s["tree"][0 if isinstance(s["tree"], list) else "a"]) + x
        )
        assert f(mx.array(1)).item() == f(mx.array(1)).item() == first.item() + 1


def test_recursion_of_the_caller_is_told_as_such():
    def down():
        mx.eval([mx.array(1.0)])
        down()

    with pytest.raises(RecursionError):
        down()


def wrong(x):
    raise KeyError("mine")


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda: mx.explain(5), TypeError, r"\[explain\] an int \(5\) was given; it must be a fun"),
        (lambda: mx.explain(None), TypeError, r"\[explain\] fun is None; it must"),
        (lambda: mx.explain(wrong, mx.ones(2)), KeyError, "mine"),
        (lambda: mx.compile(5), TypeError, r"\[compile\] an int was given; it must be callable"),
        (
            lambda: mx.compile(abs, inputs=5),
            TypeError,
            r"\[compile\] inputs is an int \(5\); it must",
        ),
        (lambda: mx.compile(abs, outputs="w"), TypeError, r"\[compile\] outputs is a str \('w'\)"),
        (lambda: mx.compile(abs, outputs=abs), TypeError, r"\[compile\] outputs is a builtin_func"),
        (lambda: mx.vmap(abs, in_axes="a")(mx.ones(2)), TypeError, r"\[vmap\] the axes are a str"),
        (lambda: mx.vmap(abs, in_axes=1.5)(mx.ones(2)), TypeError, r"\[vmap\] .* a float \(1.5\)"),
        (lambda: mx.vmap(abs, in_axes=[0, 1])(mx.ones(2)), ValueError, r"\[vmap\] .*\[0, 1\]"),
        (lambda: mx.vmap(abs, in_axes=[{"a": 0}])(mx.ones(2)), ValueError, r"\[vmap\] .*'a': 0"),
        (lambda: mx.vmap(abs, out_axes=[0])(mx.ones(2)), ValueError, r"\[vmap\] .*\[0\]"),
        (lambda: mx.vmap(abs, in_axes=3)(mx.ones(2)), ValueError, r"\[vmap\] .*3"),
        (lambda: mx.vmap(abs, in_axes=None)(mx.ones(2)), ValueError, r"\[vmap\]"),
        (lambda: mx.vmap(5)(mx.ones(2)), TypeError, r"\[vmap\] an int"),
        (lambda: mx.grad(5), TypeError, r"\[grad\] an int"),
        (lambda: mx.checkpoint(5), TypeError, r"\[checkpoint\] an int"),
    ],
)
def test_calls_of_no_functions_and_trees_that_do_not_fit(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_a_plan_of_nothing_has_no_kernels():
    assert mx.explain(lambda: None).kernels == []
    assert mx.explain(lambda x: 3, mx.ones(2)).kernels == []


def test_out_of_memory_names_the_size_and_work_goes_on():
    before = mx.set_memory_limit(1 << 28)
    try:
        with pytest.raises(MemoryError, match=str(1 << 30)):
            mx.eval(mx.ones((1 << 28,)) * 2 + mx.arange(1 << 28))
        assert (mx.ones((1000,)) * 2).sum().item() == 2000
    finally:
        mx.set_memory_limit(before)


C = "mx.array([1, 2, 7, 0, 0])"
NAMED = {
    "take": "mx.take(x, i, axis=0)",
    "take of all": "mx.take(x, i + 9)",
    "index": "x[i]",
    "index by two": "x[i, mx.array([0, 1])]",
    "index along lines": f"x[mx.arange(5), {C}]",
    "index, assigned": "x.__setitem__(i, 1.0) or x",
    "index, added at": "x.at[i].add(1.0)",
    "put_along_axis": "mx.put_along_axis(x, i[:, None], mx.array(1.0), 0)",
    "take_along_axis": f"mx.take_along_axis(x, {C}[:, None], 1)",
    "slice": "mx.slice(x, i[1:], (0,), (2, 3))",
    "slice_update": "mx.slice_update(x, mx.ones((2, 3)), i[1:], (0,))",
    "Embedding": "nn.Embedding(5, 3)(i) * x.sum()",
    "nll_loss": f"nn.losses.nll_loss(x, {C})",
    "nll_loss of a log_softmax": f"nn.losses.nll_loss(nn.log_softmax(x), {C}).sum()",
    "cross_entropy": f"nn.losses.cross_entropy(x, {C})",
    "cross_entropy, smooth": f"nn.losses.cross_entropy(x, {C}, label_smoothing=0.1)",
    "cross_entropy along 0": "nn.losses.cross_entropy(x, mx.array([0, 7, 0]), axis=0)",
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("transform", ["{}", "mx.compile(lambda x: {})(x)", "gradient"])
def test_an_index_out_of_range_is_told_of_as_what_was_called(name, transform):
    if transform == "gradient":
        transform = "mx.grad(lambda x: ({}).square().sum())(x)"
    names = {"mx": mx, "nn": nn, "x": mx.zeros((5, 3)), "i": mx.array([1, 7])}
    with pytest.raises(IndexError) as caught:
        mx.eval(eval(transform.format(NAMED[name]), names))
    op = name.split()[0].rstrip(",")
    assert str(caught.value).startswith(f"[{op}] index "), caught.value


@pytest.mark.parametrize("op", ["take", "index"])
def test_an_index_that_is_refused_is_told_of_as_what_was_called(op):
    index = {"take": lambda x, i: mx.take(x, i, axis=0), "index": lambda x, i: x[i]}[op]
    for size, i in ((0, mx.array([0])), (3, mx.array([1.0]))):
        with pytest.raises((IndexError, TypeError), match=rf"\[{op}\] "):
            index(mx.zeros((size, 2)), i)


@pytest.mark.parametrize(
    "op, call",
    [
        ("exp", "mx.exp('a')"),
        ("clip", "mx.clip(x, 'a', 1)"),
        ("concatenate", "mx.concatenate([x, 'a'])"),
        ("add", "mx.add([[1], [1, 2]], 1)"),
        ("index", "x.__setitem__(0, 'a')"),
        ("array", "mx.array('a')"),
        ("array", "mx.grad(lambda x: mx.array('a'))(x)"),
        ("uniform", "mx.random.uniform(key=3)"),
        ("normal", "mx.random.normal(key=mx.zeros((2, 2), mx.uint32))"),
        ("split", "mx.random.split(mx.array([1, 2]))"),
        ("split", "mx.random.split(mx.random.key(0), -1)"),
        ("uniform", "mx.random.uniform(shape=(1 << 62,))"),
        ("gumbel", "mx.random.gumbel((1 << 62,))"),
        ("categorical", "mx.random.categorical(mx.ones((3, 0)))"),
        ("categorical", "mx.random.categorical(mx.ones((3, 4)), num_samples=-1)"),
    ],
)
def test_an_argument_of_no_use_is_told_of_as_what_was_called(op, call):
    with pytest.raises((TypeError, ValueError, OverflowError), match=rf"^\[{op}\] .*; "):
        eval(call, {"mx": mx, "x": mx.zeros((2, 2))})


def test_equal_graphs_are_told_of_by_their_own_lines():
    """They share a plan."""
    x, i = mx.zeros((5, 3)), mx.array([7])
    lines = []
    for make in (
        lambda: mx.exp(x + 1)[i].sum(),
        lambda: mx.exp(x + 1)[i].sum(),
        lambda: mx.exp(x + 1)[i].sum(),
    ):
        with pytest.raises(IndexError) as caught:
            mx.eval(make())
        lines.append(int(re.search(r"test_errors\.py:(\d+)\)$", str(caught.value))[1]))
    first = lines[0]
    assert lines == [first, first + 1, first + 2]


def test_line_of_a_program_in_a_folder_named_as_the_package():
    code = "y = x[mx.array([7])]\n"
    names = {"mx": mx, "x": mx.arange(3)}
    exec(compile(code, "/home/user/cermet/program.py", "exec"), names)
    with pytest.raises(IndexError, match=r"/home/user/cermet/program\.py:1"):
        mx.eval(names["y"])


@pytest.mark.parametrize("variable", ["MATMUL_F32=bad", "SKIP_PASS=unknown", "FAIL_ALLOC=-3"])
def test_the_import_tells_of_a_wrong_variable(variable):
    variable = f"CERMET_{variable}"
    command = ["env", variable, sys.executable, "-c", "import cermet.core"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: [env] {variable} is no value of it; use "), run.stderr


@pytest.mark.parametrize("wait", ["mx.eval(x)", "np.asarray(x)", "memoryview(x)", "x.tolist()"])
@pytest.mark.parametrize("imported", ["import cermet.core", "pass"])
def test_interruption(imported, wait):
    """Ctrl-C ends an evaluation and nothing else, whatever waits for it, and whatever thread was
    the first to import."""
    code = f"""
import signal, threading, os
def first():
    {imported}
thread = threading.Thread(target=first)
thread.start()
thread.join()
import numpy as np
import cermet.core as mx
x = mx.ones((1500, 1500))
mx.eval(mx.sin(x @ x))
for _ in range(100):
    x = mx.sin(x @ x)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {wait}
    print("it ended before")
except KeyboardInterrupt:
    print("interrupted", (mx.ones((3,)) + 1).tolist())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "interrupted [2.0, 2.0, 2.0]", run.stderr
    assert signal.getsignal(signal.SIGINT) is not None


CALLED = """
nn.glu(mx.zeros((2, 3)))                                | [glu] axis -1 of shape (2, 3) has an odd
nn.GLU()(mx.zeros((2, 3)))                              | [GLU] axis -1 of shape (2, 3) has an odd
nn.glu(mx.zeros((2, 4)), axis=3)                        | [glu] axis 3 is out of range
nn.Bilinear(3, 4, 5)({X}, {X})                          | [Bilinear] x2 has shape (2, 3); it must
nn.Bilinear(4, 3, 5)({X}, {X})                          | [Bilinear] x1 has shape (2, 3); it must
nn.Bilinear(3, 3, 5)({X}, mx.zeros((3, 3)))             | [Bilinear] shapes
nn.Linear(4, 2)({X})                                    | [Linear] shapes (2, 3) and (4, 2)
nn.Sequential(nn.Linear(4, 2))({X})                     | [Linear] shapes (2, 3) and (4, 2)
nn.LayerNorm(4)({X})                                    | [LayerNorm] the weight has shape (4,)
nn.RMSNorm(4)({X})                                      | [RMSNorm] the weight has shape (4,)
nn.BatchNorm(4)({X})                                    | [BatchNorm] shapes (4,) and (3,)
nn.InstanceNorm(4, affine=True)(mx.zeros((1, 2, 3)))    | [InstanceNorm] shapes (4,)
nn.GroupNorm(1, 4)({X})                                 | [GroupNorm] shapes (4,) and (2, 3)
nn.RoPE(4)({X})                                         | [RoPE] the array has shape (2, 3)
nn.ALiBi()(mx.zeros((1, 1, 2, 3)), mask={X}.T)          | [ALiBi] shapes (1, 1, 2, 3) and (3, 2)
nn.MultiHeadAttention(4, 2)(*[mx.zeros((1, 2, 3))] * 3) | [MultiHeadAttention] shapes (1, 2, 3)
nn.TransformerEncoder(1, 4, 2)(mx.zeros((1, 2, 3)), 0)  | [LayerNorm] the weight has shape (4,)
nn.RNN(4, 2)({X})                                       | [RNN] shapes (2, 3) and (4, 2)
nn.GRU(4, 2)({X})                                       | [GRU] shapes (2, 3) and (4, 6)
nn.LSTM(3, 2)({X}, hidden=mx.zeros((7,)))               | [LSTM] shapes (7,) and (2, 8)
nn.Embedding(4, 2)({X})                                 | [Embedding] an index array has dtype
nn.Embedding(4, 2).as_linear({X})                       | [Embedding.as_linear] shapes (2, 3)
nn.PReLU(4)({X})                                        | [PReLU] shapes (4,) and (2, 3)
nn.log_softmax({X}, axis=4)                             | [log_softmax] axis 4 is out of range
nn.Softmin()(mx.array(1.0))                             | [Softmin] axis -1 given, but
nn.mish("a")                                            | [mish] a str was given
nn.losses.kl_div_loss({X}, mx.zeros((4,)))              | [kl_div_loss] shapes (4,) and (2, 3)
nn.losses.hinge_loss({X}, mx.zeros((4,)))               | [hinge_loss] shapes (2, 3) and (4,)
nn.losses.nll_loss({X}, mx.zeros((4,), mx.int32))       | [nll_loss] shapes
nn.losses.mse_loss({X}, {X}, "all")                     | [mse_loss] reduction is 'all'
nn.losses.cosine_similarity_loss({X}, {X}, axis=4)      | [cosine_similarity_loss] axis 4
nn.Linear(3, 4).set_dtype("half")                       | [Module.set_dtype] dtype is 'half'
bool({X})                                               | [bool] the array has shape (2, 3)
int({X})                                                | [int] the array has shape (2, 3)
float({X})                                              | [float] the array has shape (2, 3)
complex({X})                                            | [complex] the array has shape (2, 3)
{X}.item()                                              | [item] the array has shape (2, 3)
"""


@pytest.mark.parametrize("row", CALLED.strip().split("\n"))
def test_errors_name_what_was_called(row):
    code, message = (part.strip() for part in row.replace("{X}", X).rsplit(" | ", 1))
    with pytest.raises((ValueError, TypeError, IndexError)) as raised:
        eval(code)
    assert str(raised.value).startswith(message)


def test_errors_of_the_users_own_functions_stay():
    def mine(x):
        raise ValueError("[mine] is wrong")

    with pytest.raises(ValueError, match=r"^\[mine\] is wrong$"):
        nn.RNN(3, 2, nonlinearity=mine)(mx.zeros((2, 3)))


# --- arrays of more rows than memory holds ---

HUGE = mx.broadcast_to(mx.array(1.0), (2**40, 2))


def test_huge_arrays_are_gone_over_lazily():
    rows = list(itertools.islice(HUGE, 3))
    assert [row.tolist() for row in rows] == [[1, 1]] * 3
    assert [(a.tolist(), i) for a, i in zip(HUGE, range(2), strict=False)] == [
        ([1, 1], 0),
        ([1, 1], 1),
    ]
    assert next(iter(HUGE)).tolist() == next(reversed(HUGE)).tolist() == [1, 1]
    assert next(enumerate(HUGE))[0] == 0 and len(HUGE) == 2**40
    assert 1.0 in HUGE[:, 0] and HUGE[2**39 :: 2**38].shape == (2, 2)
    assert "..." in repr(HUGE) and "..." in f"{HUGE}" and mx.array(HUGE).shape == HUGE.shape


@pytest.mark.parametrize("shape", [(2**40, 2), (2, 2**40), (2**40,), (2**40, 0), (2**40, 2**20)])
def test_lists_of_huge_arrays_are_refused(shape):
    huge = mx.broadcast_to(mx.array(1.0), shape)
    with pytest.raises(MemoryError, match=r"^\[tolist\] lists for shape .*; take a part of"):
        huge.tolist()
    for call in (list, tuple, sorted):
        with pytest.raises(MemoryError):
            call(huge if len(huge) == max(shape) else huge.T)
    assert mx.broadcast_to(mx.array(1.0), (0, *shape)).tolist() == []


def test_what_is_not_made_of_what_failed_is_made():
    """By a compiled call, whose results are made together; the random key goes on."""
    x, good, bad = mx.arange(1024.0), mx.array([1]), mx.array([1 << 20])

    def f(x, i):
        noise = mx.random.normal(x.shape)
        return mx.cumsum(x)[i] * noise[:1], mx.cumsum(x * 2), noise

    for function in (f, mx.compile(f)):
        mx.random.seed(3)
        mx.eval(function(x, good))
        expected = mx.random.normal((4,)).tolist()
        mx.random.seed(3)
        picked, sums, noise = function(x, bad)
        for _ in range(2):
            with pytest.raises(IndexError, match="1048576"):
                mx.eval(picked, sums, noise)
        assert sums[-1].item() == 1024 * 1023
        assert mx.isfinite(noise).all()
        assert mx.random.normal((4,)).tolist() == expected
        with pytest.raises(IndexError, match="1048576"):
            (picked + 1).item()
