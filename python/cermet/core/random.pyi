"""Random numbers from splittable keys (Threefry)."""

import cermet.core


state: list = ...

def seed(seed: object) -> None:
    """Sets the default key to key(seed): the two halves of a 64-bit number."""

def key(seed: object) -> cermet.core.array:
    """The key [seed >> 32, seed & 0xffffffff]."""

def split(key: cermet.core.array, num: int = 2, stream: object | None = None) -> cermet.core.array:
    """num new keys, of shape (num, 2)."""

def bits(shape: object = (), width: int = 4, key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """
    Random bits as unsigned integers of `width` bytes (1, 2 or 4): Threefry in JAX's original order.
    """

def uniform(low: object = 0, high: object = 1, shape: object = (), dtype: cermet.core.Dtype | None = ..., key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Uniform in [low, high)."""

def normal(shape: object = (), dtype: cermet.core.Dtype | None = ..., loc: object | None = None, scale: object | None = None, key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Normal with mean loc and deviation scale."""

def truncated_normal(lower: object, upper: object, shape: object | None = None, dtype: cermet.core.Dtype | None = ..., key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Normal, within [lower, upper]."""

def gumbel(shape: object = (), dtype: cermet.core.Dtype | None = ..., key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Standard Gumbel."""

def laplace(shape: object = (), dtype: cermet.core.Dtype | None = ..., loc: float = 0.0, scale: float = 1.0, key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Laplace with mean loc and scale."""

def randint(low: object, high: object, shape: object = (), dtype: cermet.core.Dtype | None = ..., key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Integers in [low, high)."""

def bernoulli(p: object = 0.5, shape: object | None = None, key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """True with probability p."""

def categorical(logits: cermet.core.array, axis: int = -1, shape: object | None = None, num_samples: int | None = None, key: object | None = None, stream: object | None = None) -> cermet.core.array:
    """Indices along axis, with probability softmax(logits)."""
