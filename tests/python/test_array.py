# SPDX-License-Identifier: MIT
"""The array class: construction, operators, conversions, properties, copies."""

import copy
import operator
import pickle
import threading

import cermet.core as mx
import mlx.core
import numpy as np
import pytest
from mlx_oracle import same, same_values

CONSTRUCTIONS = [
    "1",
    "1.5",
    "True",
    "2j",
    "2**40",
    "-(2**40)",
    "[]",
    "[[]]",
    "[1, 2]",
    "[1, 2.5, True]",
    "[True, False]",
    "[1, 2j]",
    "[[1, 2], [3, 4]]",
    "[2**40, 1]",
    "(1, 2)",
    "[(1, 2), [3, 4]]",
    "np.array([1, 2])",
    "np.array([1.5])",
    "np.array([1j])",
    "np.float32(2)",
    "np.float64(2)",
    "np.int8(3)",
    "np.bool_(True)",
    "np.array([1], 'uint16')",
    "np.array([1.5], 'float16')",
    "np.arange(6).reshape(2, 3).T",
    "np.broadcast_to(np.float32(3), (2, 2))",
    "[lib.mx.array(1), 2]",
    "[lib.mx.array([1, 2]), [3, 4]]",
    "lib.mx.array([1, 2])",
    "np.zeros((0, 3), 'float32')",
]


@pytest.mark.parametrize("code", CONSTRUCTIONS)
def test_construction(code):
    same_values(lambda lib: lib.mx.array(eval(code, {"np": np, "lib": lib})))


@pytest.mark.parametrize(
    "dtype", ["bool_", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"]
)
def test_construction_with_dtype(dtype):
    for values in (1, [0, 1, 1], [[1.0], [0.0]], np.array([0.0, 1.0]), [True, False]):
        same_values(lambda lib, v=values: lib.mx.array(v, dtype=getattr(lib.mx, dtype)))


def test_dtypes_that_the_wheel_lacks():
    assert mx.array(np.array([1.5]), dtype=mx.float64).item() == 1.5
    assert mx.array(np.array([0.1]), dtype=mx.float64).item() == 0.1
    assert mx.array([1 + 2j], dtype=mx.complex128).dtype == mx.complex128
    assert mx.array(2**63).dtype == mx.uint64 and mx.array(2**63).item() == 2**63
    assert mx.array([2**64 - 1, 0]).tolist() == [2**64 - 1, 0]
    assert mx.array(2**63, dtype=mx.float32).item() == 2.0**63


@pytest.mark.parametrize(
    "text",
    [
        "m.array([m.array([1, 2]), m.array([3, 4])])",
        "m.array([[m.array(1), 2], [3.5, m.array(4)]])",
        "m.array([m.array([1.0, 2]), [3, 4]])",
        "m.array([m.array([1, 2], m.int8), m.array([3, 4], m.uint8)])",
        "m.array([m.array([1, 2], m.float16), m.array([3, 4], m.bfloat16)])",
        "m.array((m.array([1]), m.array([2])), m.float16)",
        "m.array([m.array([[1, 2]]), m.array([[3, 4]])])",
        "m.array([[m.array([True, False])], [m.array([1, 0])]])",
    ],
)
def test_nested_lists_of_arrays(text):
    assert repr(eval(text, {"m": mx})) == repr(eval(text, {"m": mlx.core}))


BAD = [
    ("mx.array('a')", TypeError, "str"),
    ("mx.array(None)", TypeError, "val is None"),
    ("mx.array({1: 2})", TypeError, "dict"),
    ("mx.array([1, [2]])", ValueError, "ragged"),
    ("mx.array([[1, 2], [3]])", ValueError, "ragged"),
    ("mx.array([[1], 2])", ValueError, "ragged"),
    ("mx.array([mx.array([1, 2]), mx.array([3])])", ValueError, r"ragged.*\(1,\).*\(2,\)"),
    ("mx.array([mx.array(1), mx.array([2])])", ValueError, "ragged"),
    ("mx.array(300, mx.uint8)", OverflowError, "300 does not fit uint8"),
    ("mx.array([1, -1], mx.uint16)", OverflowError, "-1 does not fit uint16"),
    ("mx.array(2**70)", OverflowError, "does not fit 64 bits"),
    ("mx.array([1], mx.uint8) + 300", OverflowError, "300"),
    ("mx.array(np.array(['a']))", TypeError, "format"),
    ("mx.array([1]) + 'a'", TypeError, ""),
    ("mx.array([1]) + [1]", TypeError, ""),
    ("mx.array([1, 2]).item()", ValueError, r"shape \(2,\)"),
    ("bool(mx.array([1, 2]))", ValueError, "one element"),
    ("[1][mx.array(0.5)]", TypeError, "float32"),
    ("len(mx.array(1))", TypeError, "0-d"),
    ("mx.zeros((2, 3)) + mx.zeros((4,))", ValueError, r"\(2, 3\).*\(4,\)"),
]


@pytest.mark.parametrize("code, error, text", BAD)
def test_refusals(code, error, text):
    with pytest.raises(error, match=text):
        eval(code, {"mx": mx, "np": np})


OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_numbers(name):
    f = getattr(operator, name)
    for dtype in ("int32", "uint8", "float16", "float32", "complex64"):
        if dtype == "complex64" and name in ("floordiv", "mod", "lt", "le", "gt", "ge"):
            continue
        for other in (2, 2.5, True):

            def forward(lib, other=other, dtype=dtype):
                return f(lib.mx.array([1, 2, 3], dtype=getattr(lib.mx, dtype)), other)

            def backward(lib, other=other, dtype=dtype):
                return f(other, lib.mx.array([1, 2, 3], dtype=getattr(lib.mx, dtype)))

            same(forward)
            same(backward)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "matmul"])
def test_operators_of_subclasses(name):
    """A subclass, and a class changed later, has the operators that its methods say."""
    f = getattr(operator, name)
    method, reflected = f"__{name}__", f"__r{name}__"
    a, values = mx.array([1.0, 2.0]), np.array([1.0, 2.0], np.float32)
    plain = type("plain", (mx.array,), {})([1.0, 2.0])
    own = type("own", (mx.array,), {method: lambda *_: "to", reflected: lambda *_: "from"})([1.0])
    for x, y in ((plain, a), (a, plain), (plain, plain), (getattr(a, method), None)):
        got = x(a) if y is None else f(x, y)
        np.testing.assert_array_equal(np.array(got), f(values, values))
    assert (f(own, a), f(own, 2), f(own, own)) == ("to", "to", "to")
    assert (f(a, own), f(2, own)) == ("from", "from")
    for x, y in ((a, "x"), ("x", a), (None, a), (a, None)):
        with pytest.raises(TypeError):
            f(x, y)
    defined = getattr(mx.array, method)
    setattr(mx.array, method, lambda *_: "patched")
    try:
        assert f(a, a) == "patched"
    finally:
        setattr(mx.array, method, defined)
    np.testing.assert_array_equal(np.array(f(a, a)), f(values, values))


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bit_operators(name):
    f = getattr(operator, name)
    same_values(lambda lib: f(lib.mx.array([1, 6, 7]), lib.mx.array([1, 2, 3])))
    same_values(lambda lib: f(lib.mx.array([1, 6, 7]), 2))


def test_unary_operators():
    same_values(
        lambda lib: [-lib.mx.array([1, -2]), abs(lib.mx.array([1, -2])), ~lib.mx.array([1, -2])]
    )
    same_values(lambda lib: ~lib.mx.array([True, False]))
    assert (+mx.array([1])).tolist() == [1]


def test_in_place_operators_keep_the_object():
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"):
        a = alias = mx.array([4.0, 9.0])
        want = getattr(operator, name)(np.array([4.0, 9.0]), 2.0)
        a = getattr(operator, name)(a, 2.0)
        assert a is alias and a.tolist() == want.tolist()
    a = mx.array([[1.0, 2.0], [3.0, 4.0]])
    a @= a
    assert a.tolist() == [[7, 10], [15, 22]]


def test_numpy_operands_are_weak():
    """Beside an array, NumPy's arrays raise its dtype to their category and no further."""
    half = mx.array([1.0], mx.float16)
    assert (half + np.array([1.0])).dtype == mx.float16
    assert (half + np.float32(1)).dtype == mx.float16
    assert (mx.array([1], mx.uint8) + np.array([1])).dtype == mx.uint8
    mixed = mx.array([1, 2]) + np.array([1.5, 2.5])
    assert mixed.dtype == mx.float32 and mixed.tolist() == [2.5, 4.5]
    assert mx.add(np.array([1]), np.array([2])).dtype == mx.int64


def test_comparison_with_other_objects():
    a = mx.array([1, 2])
    assert (a == "a") is False and (a != "a") is True
    assert (a == None) is False  # noqa: E711
    assert {a: 1}[a] == 1


CONTAINED = [
    "1 in a",
    "7 in a",
    "2.5 in a",
    "True in a",
    "m.array(3) in a",
    "m.array([0, 1, 2]) in a",
    "m.array([[5], [3]]) in a",
    "m.array([7, 7, 5]) in a",
    "1 in m.array(1)",
    "0 in m.array([])",
    "float('nan') in m.array([float('nan')])",
    "1j in m.array([1j, 2])",
    "m.array([0, 1, 2, 3]) in a",
]


@pytest.mark.parametrize("code", CONTAINED)
def test_in_is_numpys(code):
    def answer(m, a):
        try:
            return eval(code, {"m": m, "a": a})
        except ValueError:
            return ValueError

    assert answer(mx, mx.arange(6).reshape(2, 3)) == answer(np, np.arange(6).reshape(2, 3))


def test_in_of_a_broadcast_without_end():
    huge = mx.broadcast_to(mx.arange(3), (2**40, 3))
    assert 2 in huge and 3 not in huge
    assert mx.array([0, 5, 5]) in huge and mx.array([1, 2, 0]) not in huge
    assert mx.broadcast_to(mx.array(2), (2**40, 1)) in huge
    assert "2" not in huge and None not in huge
    with pytest.raises(MemoryError, match="add"):
        2 in huge + 1  # noqa: B015


def test_in_of_a_captured_array():
    known = mx.array([1, 2])
    doubled = mx.compile(lambda x: x * 2 if 2 in known else x)
    assert doubled(mx.array(3)).item() == 6
    known[1] = 5
    assert doubled(mx.array(3)).item() == 3
    with pytest.raises(ValueError, match="stands for an argument"):
        mx.compile(lambda x: x * (2 in x))(mx.array([2]))


def test_scalar_conversions():
    assert int(mx.array(1.7)) == 1 and float(mx.array([2])) == 2.0 and complex(mx.array(2j)) == 2j
    assert [10, 11, 12][mx.array(1)] == 11 and range(5)[mx.array(2)] == 2
    assert bool(mx.array([0.0])) is False and bool(mx.array(3)) is True
    assert mx.zeros((mx.array(2), 3)).shape == (2, 3)
    for dtype, value in (
        ("bool_", True),
        ("int8", -3),
        ("uint64", 2**63),
        ("bfloat16", 1.5),
        ("complex64", 1 + 2j),
    ):
        item = mx.array(value, getattr(mx, dtype)).item()
        assert item == value and type(item) is type(value)


def test_tolist():
    x = np.arange(24).reshape(2, 3, 4)
    for view in ("x", "x.T", "x[:, ::-1]", "x[1, :, 2]", "x[0, 0, 0]", "x[:, :0]"):
        assert eval(view, {"x": mx.array(x)}).tolist() == eval(view, {"x": x}).tolist()


LISTS = [
    "[]",
    "[1, 2, 3]",
    "[1.5, 2.5]",
    "[1, 2.5, 3]",
    "[2.5, 1, True]",
    "[True, 2]",
    "[True, False]",
    "[1, 2**40, 3]",
    "[-1, 2**40, 0.5]",
    "[1, 2j, 2.5]",
    "[[1, 2], [3.5, 4]]",
    "[(1, 2), [3, 4]]",
    "[[[1], [2]], [[3], [0.5]]]",
    "[1] * 5000 + [0.5] * 5000",
    "[0.5] * 3000 + [1] * 3000 + [True] * 3000",
    "list(range(5000))",
]


@pytest.mark.parametrize("text", LISTS)
def test_lists_there_and_back(text):
    numbers = eval(text)
    a = mx.array(numbers)
    wide = np.array(numbers)
    assert a.shape == wide.shape
    kinds = {"b": mx.bool_, "i": mx.int32, "u": mx.uint64, "f": mx.float32, "c": mx.complex64}
    is_long = wide.dtype.kind == "i" and np.abs(wide).max(initial=0) >= 2**31
    assert a.dtype == (mx.int64 if is_long else kinds[wide.dtype.kind])
    np.testing.assert_array_equal(np.array(a), wide.astype(np.array(a).dtype))
    assert a.tolist() == wide.astype(np.array(a).dtype).tolist()
    for dtype in (mx.float32, mx.float16, mx.complex64, mx.bool_):
        np.testing.assert_array_equal(
            np.array(mx.array(numbers, dtype)), wide.astype(np.array(mx.zeros(0, dtype)).dtype)
        )


def test_a_list_that_changes_while_it_is_read():
    numbers = []

    class Cut:
        def __mlx_array__(self):
            numbers.clear()
            return mx.array(1)

    numbers += [1, 2, Cut(), 4]
    assert mx.array(numbers).tolist() == [1, 2, 1, 4]


def test_properties():
    a = mx.zeros((2, 3, 4), mx.float16)
    assert (a.shape, a.ndim, a.size, a.itemsize, a.nbytes) == ((2, 3, 4), 3, 24, 2, 48)
    assert a.T.shape == (4, 3, 2) and a.mT.shape == (2, 4, 3) and len(a) == 2
    c = mx.array([1 + 2j])
    assert c.real.tolist() == [1] and c.imag.tolist() == [2]
    assert a.__array_namespace__() is mx
    assert mx.bool == mx.bool_ and mx.__array_api_version__ >= "2022.12"
    assert a.device == mx.Device(mx.cpu) and a.to_device(a.device) is not None
    assert np.array_equal(np.array(a.to_device(mx.Device(mx.cpu), stream=None)), np.array(a))
    with pytest.raises(ValueError, match="cpu"):
        a.to_device(mx.Device(mx.gpu, 3))
    assert mx.array([1]).real.dtype == mx.int32


def test_copies_and_pickles():
    for dtype in ("bool_", "int64", "float16", "bfloat16", "float64", "complex64"):
        a = mx.array([[0, 1, 1], [1, 0, 1]], getattr(mx, dtype)).T
        for b in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            assert b is not a and b.dtype == a.dtype and b.tolist() == a.tolist()
    a = mx.zeros((2,))
    b = copy.copy(a)
    b[0] = 1
    assert a.tolist() == [0, 0]
    assert pickle.loads(pickle.dumps(mx.float32)) == mx.float32
    assert bytes(mx.array([1, 2], mx.int16)) == b"\x01\x00\x02\x00"
    assert bytes(mx.array([[1, 2], [3, 4]], mx.int8).T) == b"\x01\x03\x02\x04"


class Holder:
    """An object that stands for an array."""

    def __init__(self, value):
        self.value = value

    def __mlx_array__(self):
        return mx.array(self.value)


def test_objects_that_stand_for_arrays():
    assert mx.add(Holder([1.0]), 2).tolist() == [3]
    assert (mx.array([1.0]) + Holder([2.0])).tolist() == [3]
    assert mx.array(Holder([1, 2])).tolist() == [1, 2]
    assert mx.arange(5)[Holder([1, 3])].tolist() == [1, 3]
    assert mx.exp(mx.ArrayLike(Holder([0.0]))).tolist() == [1]
    with pytest.raises(TypeError, match="__mlx_array__"):
        mx.ArrayLike(3)


class Tensor:
    """As torch's: it has neither the buffer protocol nor a way to add an array."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize(
    "code", ["a + t", "t - a", "a * t", "t / a", "a == t", "a < t", "a @ t", "t ** a", "t in a"]
)
def test_operators_take_tensors(code):
    a, t = [1.0, 2.0, 3.0], [1.0, 4.0, 3.0]
    got = eval(code, {"a": mx.array(a), "t": Tensor(t)})
    want = eval(code, {"a": np.array(a), "t": np.array(t)})
    np.testing.assert_array_equal(np.array(got), want)
    assert (mx.array(a, mx.float16) + Tensor(t)).dtype == mx.float16
    assert mx.maximum(Tensor(t), mx.array(a, mx.bfloat16)).dtype == mx.bfloat16


def test_arrays_of_other_threads():
    made = []

    def work(i):
        x = mx.arange(1000) * i
        mx.eval(x)
        made.append((i, x + 1))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, x in made:
        assert x[999].item() == 999 * i + 1


def test_namespace_information():
    same(
        lambda lib: {
            k: str(v).rpartition(".")[2]
            for k, v in lib.mx.__array_namespace_info__().default_dtypes().items()
        }
    )
    info = mx.__array_namespace_info__()
    assert mx.Device(mx.cpu) in info.devices()
    assert set(info.dtypes(kind="integral")) == {
        f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)
    }
    assert info.dtypes()["float64"] == mx.float64
    for kind in ("bool", "integral", "real floating", "numeric", ("bool", "complex floating")):
        for name in ("bool_", "int8", "uint64", "bfloat16", "complex64"):
            same(lambda lib, n=name, k=kind: lib.mx.isdtype(getattr(lib.mx, n), k))
    with pytest.raises(ValueError, match="kinds are"):
        mx.isdtype(mx.int8, "letters")


def test_casts_and_promotion():
    names = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
    names += "float16 bfloat16 float32 complex64".split()
    for a in names:
        for b in names:
            same(
                lambda lib, a=a, b=b: [
                    lib.mx.can_cast(getattr(lib.mx, a), getattr(lib.mx, b)),
                    lib.mx.result_type(getattr(lib.mx, a), getattr(lib.mx, b)),
                ]
            )
    same(
        lambda lib: [
            lib.mx.issubdtype(a, b)
            for a in (lib.mx.int8, lib.mx.floating, lib.mx.bfloat16, lib.mx.bool_)
            for b in (lib.mx.integer, lib.mx.inexact, lib.mx.number, lib.mx.generic, lib.mx.int8)
        ]
    )
    for name in ("float16", "bfloat16", "float32"):
        same(
            lambda lib, n=name: [
                getattr(lib.mx.finfo(getattr(lib.mx, n)), k) for k in ("min", "max", "eps")
            ]
        )
    for name in ("int8", "uint8", "int64", "uint64"):
        same(
            lambda lib, n=name: [
                lib.mx.iinfo(getattr(lib.mx, n)).min,
                lib.mx.iinfo(getattr(lib.mx, n)).max,
            ]
        )


def test_constants():
    same(lambda lib: [lib.mx.pi, lib.mx.e, lib.mx.euler_gamma, lib.mx.inf, lib.mx.newaxis])
    assert mx.nan != mx.nan


def test_submodules_can_be_imported():
    import cermet.core.fast as fast
    from cermet.core import random

    assert fast is mx.fast and random is mx.random


@pytest.mark.parametrize("to", [mx.complex64, mx.complex128, mx.float32, mx.float64, mx.bool_])
@pytest.mark.parametrize("of", [mx.complex64, mx.complex128])
def test_casts_of_complex_numbers(of, to):
    x = mx.array([1 + 2j, -3, 0], of)
    want = [1 + 2j, -3, 0] if to in (mx.complex64, mx.complex128) else [1, -3, 0]
    want = [bool(v) for v in want] if to == mx.bool_ else want
    assert x.astype(to).tolist() == want and x.astype(to).dtype == to
