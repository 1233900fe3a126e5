# SPDX-License-Identifier: MIT
"""The libraries of the bench behind one vocabulary, so that a case is written once.

A worker makes the adapter of its library with `load(name)`. `lib.xp` is the library's own module;
the adapter adds what is called differently elsewhere. `call(f)` is how a user of the library runs f
often: plain in Cermet, torch and NumPy; compiled in MLX, JAX and torch.compile. An operation that a
library lacks raises Absent.
"""

import importlib.util
import sys

NAMES = ("mlx", "torch", "torch_compiled", "jax", "numpy")


class Absent(Exception):
    """The library has no such thing; the row shows a dash."""


def normal_values(shape, seed):
    import numpy as np

    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), np.float32)


class Lib:
    """What all adapters share. Axes and keepdims are spelled as in NumPy; torch takes them."""

    name = ""

    def normal(self, *shape, seed=0, dtype="f32"):
        """Standard normal numbers, the same in every library."""
        return self.array(normal_values(shape, seed), dtype)

    def call(self, f):
        return f

    def compile(self, f):
        return f

    def wait(self, result):
        """Until the result is computed."""

    def clear(self):
        """Give cached memory back."""

    def item(self, x):
        return x.item()

    def erf(self, x):
        raise Absent

    def gradient(self, f):
        """g(*inputs, cotangent): the cotangents of the inputs of f."""
        raise Absent

    def relu(self, x):
        return self.xp.maximum(x, 0)

    def max(self, x, axis, keepdims):
        return self.xp.max(x, axis=axis, keepdims=keepdims)

    def softmax(self, x):
        raise Absent

    def layer_norm(self, x, weight, bias):
        raise Absent

    def rms_norm(self, x, weight):
        raise Absent


class MlxLike(Lib):
    """MLX, and Cermet with the same names."""

    def __init__(self, xp, version):
        self.xp, self.version = xp, version

    def array(self, values, dtype="f32"):
        made = self.xp.array(values)
        if dtype == "bf16":
            made = made.astype(self.xp.bfloat16)
        self.xp.eval(made)
        return made

    def wait(self, result):
        self.xp.eval(result)

    def clear(self):
        self.xp.clear_cache()

    def compile(self, f):
        return self.xp.compile(f)

    def erf(self, x):
        return self.xp.erf(x)

    def gradient(self, f):
        return lambda *inputs: self.xp.vjp(f, list(inputs[:-1]), [inputs[-1]])[1]

    def softmax(self, x):
        return self.xp.softmax(x, axis=-1)

    def layer_norm(self, x, weight, bias):
        return self.xp.fast.layer_norm(x, weight, bias, 1e-5)

    def rms_norm(self, x, weight):
        return self.xp.fast.rms_norm(x, weight, 1e-5)


class Cermet(MlxLike):
    name = "cermet"

    def __init__(self):
        import cermet.core as mx

        super().__init__(mx, mx.__version__)


class Mlx(MlxLike):
    name = "mlx"

    def __init__(self):
        import mlx.core as mx

        super().__init__(mx, mx.__version__)

    def call(self, f):
        return self.xp.compile(f)


class Torch(Lib):
    name = "torch"

    def __init__(self):
        import torch

        self.xp, self.version = torch, torch.__version__
        torch.set_num_threads(2)
        torch.set_grad_enabled(False)

    def array(self, values, dtype="f32"):
        made = self.xp.from_numpy(values.copy())
        return made.to(self.xp.bfloat16) if dtype == "bf16" else made

    def relu(self, x):
        return self.xp.relu(x)

    def max(self, x, axis, keepdims):
        return self.xp.amax(x, dim=axis, keepdim=keepdims)

    def erf(self, x):
        return self.xp.erf(x)

    def gradient(self, f):
        torch = self.xp

        def gradients(*inputs):
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in inputs[:-1]]
                return torch.autograd.grad(f(*leaves), leaves, inputs[-1])

        return gradients

    def softmax(self, x):
        return self.xp.softmax(x, -1)

    def layer_norm(self, x, weight, bias):
        return self.xp.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def rms_norm(self, x, weight):
        return self.xp.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-5)


class TorchCompiled(Torch):
    name = "torch_compiled"

    def compile(self, f):
        return self.xp.compile(f, dynamic=False)

    call = compile


class Jax(Lib):
    name = "jax"

    def __init__(self):
        import jax
        import jax.numpy

        self.jax, self.xp, self.version = jax, jax.numpy, jax.__version__

    def array(self, values, dtype="f32"):
        return self.xp.array(values, self.xp.bfloat16 if dtype == "bf16" else None)

    def call(self, f):
        return self.jax.jit(f)

    compile = call

    def wait(self, result):
        self.jax.block_until_ready(result)

    def erf(self, x):
        return self.jax.lax.erf(x)

    def gradient(self, f):
        return lambda *inputs: self.jax.vjp(f, *inputs[:-1])[1](inputs[-1])

    def softmax(self, x):
        return self.jax.nn.softmax(x)


class Numpy(Lib):
    name = "numpy"

    def __init__(self):
        import numpy

        self.xp, self.version = numpy, numpy.__version__

    def array(self, values, dtype="f32"):
        if dtype == "bf16":
            raise Absent
        return values.copy()


ADAPTERS = {a.name: a for a in (Cermet, Mlx, Torch, TorchCompiled, Jax, Numpy)}


def load(name):
    """The adapter of a library; raises ModuleNotFoundError where it is not installed."""
    adapter = ADAPTERS[name]
    root = {"torch_compiled": "torch"}.get(name, name)
    if importlib.util.find_spec(root) is None:
        raise ModuleNotFoundError(f"{root} is not installed in {sys.prefix}")
    return adapter()
