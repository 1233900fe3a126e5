"""Fused kernels by name; plain ops get the same ones."""

import cermet.core


def rms_norm(x: cermet.core.array, weight: object | None, eps: float = 1e-05, *, stream: object | None = None) -> cermet.core.array:
    """x / sqrt(mean(x * x) + eps) * weight over the last axis."""

def layer_norm(x: cermet.core.array, weight: object | None, bias: object | None, eps: float = 1e-05, *, stream: object | None = None) -> cermet.core.array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis."""

def rope(a: cermet.core.array, dims: int, *, traditional: bool = False, base: float | None = 10000.0, scale: float = 1.0, offset: object = 0, freqs: object | None = None, stream: object | None = None) -> cermet.core.array:
    """
    Rotary positions on the first dims features of the last axis; exactly one of base and freqs.
    """

def scaled_dot_product_attention(q: cermet.core.array, k: cermet.core.array, v: cermet.core.array, *, scale: float | None = None, mask: object | None = None, sinks: object | None = None, force_fused: bool = False, stream: object | None = None) -> cermet.core.array:
    """
    softmax(scale * q @ k.T + mask) @ v for (batch, heads, length, width); scale 1 / sqrt(width) unless given; mask: 'causal', booleans (true: look) or numbers to add.
    """

def cross_entropy(logits: cermet.core.array, targets: cermet.core.array, *, stream: object | None = None) -> cermet.core.array:
    """
    logsumexp(logits) - logits[target] over the last axis, for class indices of the other axes' shape; float32 for halves.
    """
