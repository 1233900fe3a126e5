# SPDX-License-Identifier: MIT
"""Exchange with NumPy, the buffer protocol and DLPack: values, sharing, lifetimes."""

import gc
import hashlib
import sys
import threading
import weakref

import cermet.core as mx
import ml_dtypes
import numpy as np
import pytest

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES += "float16 float32 float64 complex64 complex128".split()


def dtype_of(name):
    return getattr(mx, "bool_" if name == "bool" else name)


def sample(dtype, shape=(2, 3, 4)):
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[:, ::-1],
    "strided": lambda x: x[:, ::2, 1:3],
    "broadcast": lambda x: (
        np.broadcast_to(x[:1, :1], (5, 2, 4))
        if isinstance(x, np.ndarray)
        else mx.broadcast_to(x[:1, :1], (5, 2, 4))
    ),
    "0-d": lambda x: x[1, 2, 3],
    "empty": lambda x: x[:, :0],
    "size-1": lambda x: x[:1, :1, :1],
}


def names(arrays):
    return [np.asarray(a).dtype.name for a in arrays]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_both_ways(dtype, layout):
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.asarray(LAYOUTS[layout](sample(numpy_dtype)))
    a = mx.array(x, dtype=dtype_of(dtype))
    assert a.dtype == dtype_of(dtype) and a.shape == x.shape
    back = np.array(a)
    assert back.dtype == x.dtype and back.shape == x.shape
    np.testing.assert_array_equal(back, x)
    view = LAYOUTS[layout](mx.array(sample(numpy_dtype), dtype=dtype_of(dtype)))
    np.testing.assert_array_equal(np.array(view), x)
    assert mx.asarray(x).dtype == dtype_of(dtype)


def test_default_dtypes_of_array_and_asarray():
    assert mx.array(np.zeros(2)).dtype == mx.float32
    assert mx.array(np.zeros(2, "complex128")).dtype == mx.complex64
    assert mx.array(np.zeros(2, "int64")).dtype == mx.int64
    assert mx.asarray(np.zeros(2)).dtype == mx.float64
    assert mx.asarray([1.0, 2.0]).dtype == mx.float32
    for name in DTYPES:
        number = np.dtype(name).type(1)
        assert mx.asarray(number).dtype == dtype_of(name), name
        assert np.asarray(mx.asarray(number)) == number, name
    assert mx.asarray(np.float64(0.1)).item() == 0.1
    assert mx.asarray(np.complex128(0.1j)).item() == 0.1j
    assert mx.asarray(np.float64(0.1), dtype=mx.float32).dtype == mx.float32
    assert mx.asarray(0.1).dtype == mx.float32 and mx.array(np.float64(0.1)).dtype == mx.float32
    assert mx.asarray(np.zeros(2), dtype=mx.int8).dtype == mx.int8
    assert mx.array(np.array([0.1]), dtype=mx.float64).item() == 0.1
    big = np.random.default_rng(0).standard_normal((300, 70)).T
    np.testing.assert_array_equal(np.array(mx.array(big)), big.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex128"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_a_copy_keeps_the_order_of_the_axes(order, dtype):
    """What fills a block of memory is copied as a block."""
    x = sample(dtype, (3, 1, 5)).transpose(order)
    a = mx.array(x)
    view = np.array(a, copy=False)
    np.testing.assert_array_equal(view, x)
    sizes = [n > 1 for n in x.shape]
    steps = np.array(x.strides)[sizes] // x.itemsize
    np.testing.assert_array_equal(np.array(view.strides)[sizes] // view.itemsize, steps)
    np.testing.assert_array_equal(np.array(a + a), (x + x).astype(view.dtype))
    assert bytes(a) == x.astype(view.dtype).tobytes()


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 70_000])
@pytest.mark.parametrize(
    "layout", ["x", "x[::-1]", "x[::3]", "x.astype('>f8')", "x.reshape(1, -1)"]
)
def test_copies_of_all_sizes(layout, n):
    x = eval(layout, {"x": np.random.default_rng(n).standard_normal(n)})
    np.testing.assert_array_equal(np.array(mx.array(x)), x.astype(np.float32))
    np.testing.assert_array_equal(np.array(mx.array(x, mx.float64)), x)


def test_a_numpy_view_is_writable_and_has_the_strides():
    a = mx.arange(12, dtype=mx.int32).reshape(3, 4)
    mx.eval(a)
    view = np.array(a, copy=False)
    assert view.flags.writeable and not view.flags.owndata
    view[1, 2] = 100
    assert a[1, 2].item() == 100
    assert np.array(a, copy=True).flags.owndata and np.array(a).flags.owndata
    assert np.array(a.T, copy=False).strides == (4, 16)
    assert np.array(mx.broadcast_to(mx.array(1), (3,)), copy=False).strides == (0,)
    assert np.array(a[::-1, 1::2], copy=False).strides == (-16, 8)
    half = np.array(mx.ones((2,), mx.bfloat16), copy=False)
    assert half.dtype == ml_dtypes.bfloat16 and not half.flags.owndata
    assert np.asarray(a, dtype=np.float64).dtype == np.float64


def test_contiguous():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    a = mx.array(x)
    for ours, theirs in (
        (a.T, x.T),
        (a[:, ::-1], x[:, ::-1]),
        (a[:, 1:3], x[:, 1:3]),
        (a[1:], x[1:]),
        (mx.broadcast_to(a[0], (2, 4)), np.broadcast_to(x[0], (2, 4))),
    ):
        view = np.array(mx.contiguous(ours), copy=False)
        assert view.flags.c_contiguous
        np.testing.assert_array_equal(view, theirs)
    assert np.shares_memory(np.array(mx.contiguous(a), copy=False), np.array(a, copy=False))


def test_memory_that_numpy_sees_is_not_reused():
    """Neither for another array after the last reference is gone, nor in place by an op."""
    a = mx.arange(1 << 16, dtype=mx.float32) * 1
    mx.eval(a)
    view = np.array(a, copy=False)
    a = a + 1
    a = a * 2
    mx.eval(a)
    others = [mx.ones((1 << 16,)) * i for i in range(8)]
    mx.eval(others)
    np.testing.assert_array_equal(view, np.arange(1 << 16, dtype=np.float32))
    assert a[5].item() == 12


def test_a_view_outlives_its_array():
    gc.collect()
    before = mx.get_active_memory()
    a = mx.ones((1 << 20,))
    mx.eval(a)
    view = np.array(a, copy=False)[10:20]
    del a
    gc.collect()
    assert mx.get_active_memory() >= before + (1 << 22)
    assert view.tolist() == [1] * 10
    del view
    gc.collect()
    assert mx.get_active_memory() == before


def test_assignment_leaves_a_view_behind():
    a = mx.zeros((3,))
    view = np.array(a, copy=False)
    a[0] = 5
    assert view.tolist() == [0, 0, 0] and a.tolist() == [5, 0, 0]


def test_memoryview():
    formats = dict(zip(DTYPES, "? B H I Q b h i q e f d Zf Zd".split(), strict=True))
    for dtype, code in formats.items():
        m = memoryview(mx.array(sample(dtype), dtype=dtype_of(dtype)))
        assert (m.format, m.shape, m.readonly) == (code, (2, 3, 4), False)
        assert m.itemsize == np.dtype(dtype).itemsize
    with pytest.raises(BufferError, match="bfloat16; use numpy.asarray"):
        memoryview(mx.zeros((2,), mx.bfloat16))
    half = mx.ones((2,), mx.bfloat16)
    assert hashlib.sha256(half).digest() == hashlib.sha256(bytes(half)).digest()  # asks for none
    a = mx.arange(6)
    count = sys.getrefcount(a)
    m = memoryview(a)
    assert m.tolist() == [0, 1, 2, 3, 4, 5] and sys.getrefcount(a) == count + 1
    m.release()
    assert sys.getrefcount(a) == count
    assert memoryview(a[::2]).tolist() == [0, 2, 4]
    with pytest.raises(BufferError, match="contiguous"):
        hashlib.sha256(a[::2])  # asks for packed memory
    assert hashlib.sha256(a).digest() == hashlib.sha256(np.arange(6, dtype=np.int32)).digest()
    with pytest.raises(ValueError, match="broadcast"):
        np.asarray(mx.array([1, 2]) + mx.array([1, 2, 3]))


def test_an_error_in_evaluation_comes_out_of_numpy():
    with pytest.raises(IndexError):
        np.array(mx.arange(3)[mx.array([7])])


def test_asarray_shares_when_told():
    x = np.arange(12, dtype=np.float64).reshape(3, 4)
    a = mx.asarray(x, copy=False)
    assert a.dtype == mx.float64
    x[1, 1] = 50
    assert a[1, 1].item() == 50
    shared = np.array(a, copy=False)
    shared[0, 0] = -1
    assert x[0, 0] == -1
    part = mx.asarray(x[::-1, 1::2], copy=False)
    np.testing.assert_array_equal(np.array(part), x[::-1, 1::2])
    assert (part + 1).tolist() == (x[::-1, 1::2] + 1).tolist()
    half = np.ones(3, ml_dtypes.bfloat16)
    assert mx.asarray(half, copy=False).dtype == mx.bfloat16
    copied, default = mx.asarray(x, copy=True), mx.asarray(x)
    x[2, 2] = 99
    assert copied[2, 2].item() == 10 and default[2, 2].item() == 10


def test_shared_memory_is_never_written_by_an_op():
    x = np.ones(1 << 16, np.float32)
    a = mx.asarray(x, copy=False)
    for _ in range(3):
        a = a + 1
        mx.eval(a)
    assert (x == 1).all() and a[7].item() == 4
    b = mx.asarray(x, copy=False)
    b[0] = 100
    mx.eval(b)
    assert x[0] == 1


REFUSED = [
    ("mx.asarray([1], copy=False)", ValueError, "no memory to share"),
    ("mx.asarray(2.0, copy=False)", ValueError, "no memory to share"),
    ("mx.asarray(np.float64(2.0), copy=False)", ValueError, "no memory to share"),
    ("mx.asarray(np.zeros(2), dtype=mx.int8, copy=False)", ValueError, "without a copy"),
    ("mx.asarray(np.zeros(2, '>f4'), copy=False)", ValueError, "native order"),
    ("mx.asarray(np.zeros(3, 'i1,f4')['f1'], copy=False)", ValueError, "copy=True"),
    ("mx.array(np.zeros(2, 'M8[s]'))", ValueError, r"\[array\] an ndarray gives no buffer"),
    ("mx.exp(ml_dtypes.float8_e5m2(1))", TypeError, r"\[exp\] a ml_dtypes.float8_e5m2 gives"),
    ("mx.array(np.array([{}]))", TypeError, "format"),
    ("mx.from_dlpack([1])", TypeError, "__dlpack__"),
]


@pytest.mark.parametrize("code, error, text", REFUSED)
def test_refusals(code, error, text):
    with pytest.raises(error, match=text):
        eval(code, {"mx": mx, "np": np, "ml_dtypes": ml_dtypes})


def test_unusual_buffers():
    np.testing.assert_array_equal(np.array(mx.array(np.arange(3, dtype=">i4"))), [0, 1, 2])
    np.testing.assert_array_equal(np.array(mx.array(np.array([1 + 2j], ">c8"))), [1 + 2j])
    records = np.zeros(3, "i1,f4")
    records["f1"] = [1, 2, 3]
    assert mx.array(records["f1"]).tolist() == [1, 2, 3]
    assert mx.array(bytearray(b"\x01\x02")).tolist() == [1, 2]
    assert mx.array(memoryview(b"ab")).dtype == mx.uint8
    assert mx.array(np.zeros(2, np.longlong)).dtype == mx.int64


def test_the_source_lives_as_long_as_the_array():
    class Array(np.ndarray):
        pass

    x = np.ones(100, np.float32).view(Array)
    gone = weakref.ref(x)
    a = mx.asarray(x, copy=False)
    del x
    gc.collect()
    assert gone() is not None
    box = [a]
    del a
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    gc.collect()
    mx.array(np.zeros(1))
    assert gone() is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack(dtype):
    x = sample(dtype)
    a = mx.array(x, dtype=dtype_of(dtype))
    out = np.from_dlpack(a)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_array_equal(np.from_dlpack(a.T), x.T)
    back = mx.from_dlpack(x)
    assert back.dtype == dtype_of(dtype)
    np.testing.assert_array_equal(np.array(back), x)
    np.testing.assert_array_equal(np.array(mx.from_dlpack(x[:, ::-1])), x[:, ::-1])


def test_dlpack_shares():
    x = np.arange(4, dtype=np.float32)
    a = mx.from_dlpack(x)
    x[0] = 7
    assert a[0].item() == 7
    copied = mx.from_dlpack(x, copy=True)
    x[0] = 8
    assert copied[0].item() == 7
    b = mx.ones((3,))
    view = np.from_dlpack(b)
    assert b.__dlpack_device__() == (1, 0)
    del b
    gc.collect()
    assert view.tolist() == [1, 1, 1]
    assert "dltensor" in repr(mx.ones((1,)).__dlpack__())
    assert "dltensor_versioned" in repr(mx.ones((1,)).__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        mx.ones((1,)).__dlpack__(dl_device=(2, 0))


def test_read_only_memory_is_shared_and_stays_read_only():
    x = np.arange(4.0)
    x.flags.writeable = False
    a = mx.asarray(x, copy=False)
    view = np.asarray(a)
    assert np.shares_memory(view, x) and not view.flags.writeable
    assert memoryview(a).readonly and not np.from_dlpack(a).flags.writeable
    assert not np.asarray(a[1:]).flags.writeable
    b = a + 1
    a += 1
    mx.eval(a, b)
    assert x.tolist() == [0, 1, 2, 3] and a.tolist() == b.tolist() == [1, 2, 3, 4]
    assert np.asarray(a).flags.writeable
    assert np.array(mx.asarray(x, copy=False)).flags.writeable
    assert mx.asarray(b"abc", copy=False).tolist() == [97, 98, 99]


def test_numpy_functions_take_arrays():
    a = mx.array([1.0, 4.0])
    assert np.sqrt(a).tolist() == [1, 2]
    assert (np.array([1.0, 2.0]) * np.asarray(a)).tolist() == [1, 8]
