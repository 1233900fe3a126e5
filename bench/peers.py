# SPDX-License-Identifier: MIT
"""The libraries of the bench behind one vocabulary, so that a case is written once.

A worker makes the adapter of its library with `load(name)`. `lib.xp` is the library's own module;
the adapter adds what is called differently elsewhere. `call(f)` is how a user of the library runs f
often: plain in Cermet, torch and NumPy; compiled in MLX, JAX and torch.compile. An operation that a
library lacks raises Absent.
"""

import functools
import importlib.util
import math
import sys

NAMES = ("mlx", "torch", "torch_compiled", "jax", "numpy")


class Absent(Exception):
    """The library has no such thing; the row shows a dash."""


DTYPES = {
    "bool": "bool_",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "i32": "int32",
    "u32": "uint32",
    "c64": "complex64",
}


def generator(shape, seed):
    import numpy as np

    return np.random.default_rng([seed, *shape])


def normal_values(shape, seed):
    import numpy as np

    return generator(shape, seed).standard_normal(shape, np.float32)


@functools.lru_cache(2)  # cases one after another take the same
def uniform_kept(shape, low, high, seed):
    return generator(shape, seed).random(shape, "float32") * (high - low) + low


def uniform_values(shape, low, high, seed):
    return uniform_kept(shape, low, high, seed).copy()


def typed(values, dtype):
    """NumPy's values of the dtype; those of bfloat16, which NumPy lacks, in float32."""
    import numpy as np

    return np.asarray(values, DTYPES["f32" if dtype == "bf16" else dtype])


class Lib:
    """What all adapters share. Axes and keepdims are spelled as in NumPy; torch takes them."""

    name = ""
    heads_first = True  # attention's arrays are (B, H, T, D), else (B, T, H, D)

    @property
    def position_axis(self):
        return 2 if self.heads_first else 1

    def dtype(self, name):
        return getattr(self.xp, DTYPES[name])

    def integers(self, *shape, high, seed=0):
        """Below `high`, int32, the same in every library."""
        return self.array(generator(shape, seed).integers(high, size=shape), "i32")

    def distinct(self, count, high, seed=0):
        """So many different integers below `high` in random order."""
        return self.array(generator((count, high), seed).permutation(high)[:count], "i32")

    def uniform(self, *shape, low, high, seed=0, dtype="f32"):
        """Numbers between the limits, the same in every library; whole ones of a whole dtype."""
        if dtype == "bool":
            values = generator(shape, seed).integers(max(low, 0), min(high, 1) + 1, size=shape)
        elif dtype in ("i32", "u32"):
            most = max(int(high), 1) + 1
            values = generator(shape, seed).integers(math.ceil(low), most, size=shape)
        else:
            values = uniform_values(shape, low, high, seed)
        return self.array(values + 1j * values[::-1] if dtype == "c64" else values, dtype)

    def normal(self, *shape, seed=0, dtype="f32"):
        """Standard normal numbers, the same in every library."""
        return self.array(normal_values(shape, seed), dtype)

    def call(self, f):
        return f

    def compile(self, f):
        return f

    def in_place(self, f):
        """As call(f), where f may take the memory of its first argument."""
        return self.call(f)

    def compile_in_place(self, f):
        return self.compile(f)

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

    # How functions of the table of ops are called here where they have other names or take their
    # arguments otherwise.
    names = {}

    def modules(self):
        """Where its functions are."""
        return [self.xp]

    def function(self, name):
        """The one that does the same as the op of that name."""
        name = self.names.get(name, name)
        for module in self.modules():
            if hasattr(module, name):
                return getattr(module, name)
        raise Absent

    def relu(self, x):
        return self.xp.maximum(x, 0)

    def max(self, x, axis, keepdims):
        return self.xp.max(x, axis=axis, keepdims=keepdims)

    def transpose(self, x, axes):
        return self.xp.transpose(x, axes)

    def contiguous(self, x):
        """In memory as its shape says."""
        raise Absent

    def cast(self, x, dtype):
        return x.astype(self.dtype(dtype))

    def softmax(self, x):
        raise Absent

    def layer_norm(self, x, weight, bias):
        raise Absent

    def rms_norm(self, x, weight):
        raise Absent

    def silu(self, x):
        raise Absent

    def rope(self, dims, context, offset=0):
        """The function that turns attention's arrays of `context` positions from `offset` on."""
        raise Absent

    def attention(self, q, k, v, causal):
        raise Absent

    def cross_entropy(self, logits, targets):
        """The mean over rows."""
        raise Absent

    def dropout(self, share):
        """The function that drops this share of its argument."""
        raise Absent

    def add_rows(self, x, rows, updates):
        """x with updates added to some rows, in x's own memory."""
        raise Absent

    def write_position(self, x, position, new):
        """Attention's array x with one position written, in x's own memory."""
        x[:, :, position : position + 1] = new
        return x

    def append_position(self, x, new):
        """Attention's array x and one position more, in memory of its own."""
        return self.xp.concatenate([x, new], self.position_axis)


class MlxLike(Lib):
    """MLX, and Cermet with the same names."""

    names = {"rint": "round"}

    def __init__(self, xp, version):
        self.xp, self.version = xp, version

    def array(self, values, dtype="f32"):
        made = self.xp.array(typed(values, dtype))
        if dtype == "bf16":
            made = made.astype(self.xp.bfloat16)
        self.xp.eval(made)
        return made

    @property
    def nn(self):
        return importlib.import_module(f"{self.name}.nn")

    def contiguous(self, x):
        return self.xp.contiguous(x)

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

    def silu(self, x):
        return x * self.xp.sigmoid(x)

    def rope(self, dims, context, offset=0):
        rope = self.xp.fast.rope
        return lambda x: rope(x, dims, traditional=False, base=10_000.0, scale=1.0, offset=offset)

    def attention(self, q, k, v, causal):
        return self.xp.fast.scaled_dot_product_attention(
            q, k, v, scale=q.shape[-1] ** -0.5, mask="causal" if causal else None
        )

    def cross_entropy(self, logits, targets):
        return self.nn.losses.cross_entropy(logits, targets, reduction="mean")

    def dropout(self, share):
        return self.nn.Dropout(share)

    def add_rows(self, x, rows, updates):
        return x.at[rows].add(updates)


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
    names = {
        "bitwise_invert": "bitwise_not",
        "conjugate": "conj_physical",
        "degrees": "rad2deg",
        "equal": "eq",
        "left_shift": "bitwise_left_shift",
        "max": "amax",
        "min": "amin",
        "power": "pow",
        "radians": "deg2rad",
        "right_shift": "bitwise_right_shift",
        "rint": "round",
    }

    def __init__(self):
        import torch

        self.xp, self.version = torch, torch.__version__
        torch.set_num_threads(2)
        torch.set_grad_enabled(False)

    def dtype(self, name):
        return getattr(self.xp, DTYPES[name].removesuffix("_"))

    def array(self, values, dtype="f32"):
        made = self.xp.from_numpy(typed(values, dtype).copy())
        return self.cast(made, dtype) if dtype == "bf16" else made

    def cast(self, x, dtype):
        return x.to(self.dtype(dtype))

    @property
    def functional(self):
        return self.xp.nn.functional

    def transpose(self, x, axes):
        return self.xp.permute(x, axes)

    def contiguous(self, x):
        return x.contiguous()

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
        return self.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def rms_norm(self, x, weight):
        return self.functional.rms_norm(x, x.shape[-1:], weight, 1e-5)

    def silu(self, x):
        return self.functional.silu(x)

    def rope(self, dims, context, offset=0):
        return importlib.import_module("text_model_torch").Rope(dims, context, offset)

    def attention(self, q, k, v, causal):
        return self.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def cross_entropy(self, logits, targets):
        return self.functional.cross_entropy(logits, targets.long())

    def dropout(self, share):
        return lambda x: self.functional.dropout(x, share)

    def add_rows(self, x, rows, updates):
        return x.index_add_(0, rows, updates)


class TorchCompiled(Torch):
    name = "torch_compiled"

    def compile(self, f):
        return self.xp.compile(f, dynamic=False)

    call = compile


class Jax(Lib):
    name = "jax"
    heads_first = False

    def __init__(self):
        import jax
        import jax.numpy

        self.jax, self.xp, self.version = jax, jax.numpy, jax.__version__

    def modules(self):

        special = importlib.import_module("jax.scipy.special")
        return [self.xp, self.jax.lax, self.jax.nn, special]

    def array(self, values, dtype="f32"):
        return self.xp.array(typed(values, dtype), self.dtype(dtype))

    def call(self, f):
        return self.jax.jit(f)

    compile = call

    def in_place(self, f):
        return self.jax.jit(f, donate_argnums=0)

    compile_in_place = in_place

    def wait(self, result):
        self.jax.block_until_ready(result)

    def erf(self, x):
        return self.jax.lax.erf(x)

    def gradient(self, f):
        return lambda *inputs: self.jax.vjp(f, *inputs[:-1])[1](inputs[-1])

    def softmax(self, x):
        return self.jax.nn.softmax(x)

    def contiguous(self, x):
        return x  # what a compiled function returns is

    def rms_norm(self, x, weight):
        return importlib.import_module("text_model_jax").rms_norm(x, weight)

    def silu(self, x):
        return self.jax.nn.silu(x)

    def rope(self, dims, context, offset=0):
        rope = importlib.import_module("text_model_jax").rope
        return lambda x: rope(x, offset)

    def attention(self, q, k, v, causal):
        return self.jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    def cross_entropy(self, logits, targets):
        return importlib.import_module("text_model_jax").cross_entropy(logits, targets)

    def dropout(self, share):
        random, keep = self.jax.random, 1 - share

        def dropped(x):
            return self.xp.where(random.bernoulli(random.key(0), keep, x.shape), x / keep, 0)

        return dropped

    def add_rows(self, x, rows, updates):
        return x.at[rows].add(updates)

    def write_position(self, x, position, new):
        return x.at[:, position : position + 1].set(new)


class Numpy(Lib):
    name = "numpy"

    def __init__(self):
        import numpy

        self.xp, self.version = numpy, numpy.__version__

    def array(self, values, dtype="f32"):
        self.dtype(dtype)
        return typed(values, dtype).copy()

    def dtype(self, name):
        if name == "bf16":
            raise Absent
        return super().dtype(name)

    def contiguous(self, x):
        return self.xp.ascontiguousarray(x)

    def add_rows(self, x, rows, updates):
        self.xp.add.at(x, rows, updates)
        return x


ADAPTERS = {a.name: a for a in (Cermet, Mlx, Torch, TorchCompiled, Jax, Numpy)}


def load(name):
    """The adapter of a library; raises ModuleNotFoundError where it is not installed."""
    adapter = ADAPTERS[name]
    root = {"torch_compiled": "torch"}.get(name, name)
    if importlib.util.find_spec(root) is None:
        raise ModuleNotFoundError(f"{root} is not installed in {sys.prefix}")
    return adapter()
