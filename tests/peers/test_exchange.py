# SPDX-License-Identifier: MIT
"""torch and jax CPU tensors are exchanged without a copy, both ways, for every dtype that both
sides have, strided ones too; a shared array is not written by us.
"""

import gc

import cermet.core as mx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

TORCH = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64".split()
TORCH += "float16 bfloat16 float32 float64 complex64 complex128".split()
JAX = "bool uint8 uint16 uint32 int8 int16 int32 float16 bfloat16 float32 complex64".split()
JAX_WIDE = ["uint64", "int64", "float64", "complex128"]


def ours(name):
    return getattr(mx, "bool_" if name == "bool" else name)


def numbers(name, shape=(3, 4)):
    n = int(np.prod(shape))
    return mx.array(np.arange(n, dtype=np.int32).reshape(shape) % 5).astype(ours(name))


def values(a):
    """As nested lists, of what float32 or complex64 hold exactly."""
    return a.tolist()


def address(a):
    return np.asarray(a).ctypes.data


@pytest.fixture(scope="module", autouse=True)
def wide_jax():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("name", TORCH)
def test_torch_takes_ours(name):
    a = numbers(name)
    mx.eval(a)
    t = torch.from_dlpack(a)
    assert t.dtype == getattr(torch, name) and tuple(t.shape) == a.shape
    assert t.tolist() == values(a)
    assert t.data_ptr() == address(a)
    strided = torch.from_dlpack(a.T[1:, ::2])
    assert strided.tolist() == values(a.T[1:, ::2])
    assert strided.data_ptr() == t.data_ptr() + a.itemsize


@pytest.mark.parametrize("take", [torch.from_dlpack, torch.as_tensor])
@pytest.mark.parametrize("name", TORCH)
def test_torch_takes_every_layout(name, take):
    a = numbers(name)
    mx.eval(a)
    for x in (a, a.T, a[:, ::2], a[1:], a[:0], a[0, 1], mx.broadcast_to(a[:1], (3, 4))):
        t = take(x)
        assert t.dtype == getattr(torch, name) and tuple(t.shape) == x.shape
        assert t.tolist() == values(x)
        if x.size > 0:
            assert t.data_ptr() == address(x)


def test_torch_asarray_takes_bytes():
    """As docs/lazy_evaluation.md tells."""
    assert torch.asarray(numbers("float32")).shape == (12,)
    for x in (numbers("float32").T, mx.zeros((0, 3)), numbers("bfloat16")):
        with pytest.raises((RuntimeError, ValueError)):
            torch.asarray(x)


@pytest.mark.parametrize("name", TORCH)
def test_we_take_torch(name):
    t = (torch.arange(12).reshape(3, 4) % 5).to(getattr(torch, name))
    for x in (t, t.T, t[1:, ::2], t[0, 0], t[:0]):
        a = mx.from_dlpack(x)
        assert a.dtype == ours(name) and a.shape == tuple(x.shape)
        assert values(a) == x.tolist()
        assert values(mx.array(x)) == x.tolist()
    shared = mx.from_dlpack(t)
    assert torch.from_dlpack(shared).data_ptr() == t.data_ptr()
    t[0, 0] = 3 if name != "bool" else True
    assert shared[0, 0].item() == t[0, 0].item()


@pytest.mark.parametrize("name", [*JAX, *JAX_WIDE])
def test_jax_both_ways(name):
    a = numbers(name)
    mx.eval(a)
    j = jnp.from_dlpack(a)
    assert j.dtype.name == name and j.shape == a.shape
    assert j.tolist() == values(a)
    back = mx.from_dlpack(j)
    assert back.dtype == ours(name) and values(back) == values(a)
    made = jnp.asarray(values(a), dtype=name)
    taken = mx.from_dlpack(made)
    assert values(taken) == made.tolist()
    assert address(taken) == made.unsafe_buffer_pointer()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8"])
def test_jax_shares_aligned_memory(name):
    a = numbers(name, (64, 64))
    mx.eval(a)
    assert jnp.from_dlpack(a).unsafe_buffer_pointer() == address(a)


def test_what_is_shared_is_not_written():
    """An op may write into its input's place when nobody else has it: torch has."""
    a = mx.ones((1000,))
    mx.eval(a)
    t = torch.from_dlpack(a)
    a = a + 1
    a += 1
    mx.eval(a)
    assert t.sum().item() == 1000 and a.sum().item() == 3000
    t2 = torch.ones(1000)
    b = mx.from_dlpack(t2)
    b += 1
    mx.eval(b)
    assert t2.sum().item() == 1000 and b.sum().item() == 2000


def test_lifetimes():
    t = torch.from_dlpack(mx.arange(1000) * 2)
    gc.collect()
    assert t.sum().item() == 999000
    a = mx.from_dlpack(torch.arange(1000))
    gc.collect()
    mx.eval(mx.ones((1000, 1000)))
    assert a.sum().item() == 499500
    start = mx.get_active_memory()
    held = torch.from_dlpack(mx.ones((1 << 18,)))
    assert mx.get_active_memory() - start >= 1 << 20
    del held
    gc.collect()
    assert mx.get_active_memory() == start


def test_gradients_meet():
    """A step in torch and the same in Cermet, on shared weights."""
    w = torch.randn(16, 4, requires_grad=True)
    x = torch.randn(8, 16)
    torch.tanh(x @ w).square().sum().backward()
    ours_w, ours_x = mx.from_dlpack(w.detach()), mx.from_dlpack(x)
    g = mx.grad(lambda w: mx.square(mx.tanh(ours_x @ w)).sum())(ours_w)
    np.testing.assert_allclose(np.array(g), w.grad.numpy(), rtol=2e-4, atol=1e-5)
