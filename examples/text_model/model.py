# SPDX-License-Identifier: MIT
"""A byte-level transformer: pre-norm, RMSNorm, rotary positions, SwiGLU, no biases.

Every call here is plain MLX style: with `mlx` for `cermet` in the imports, the file runs on MLX.
Shapes: B sequences, T positions, D model dims, H heads.
"""

from dataclasses import dataclass

import cermet.core as mx
import cermet.nn as nn


@dataclass
class Config:
    """Sizes of the model; the defaults give 3.3 million parameters."""

    vocabulary: int = 256
    context: int = 256
    layers: int = 4
    dims: int = 256
    heads: int = 4
    hidden: int = 683
    dropout: float = 0.0


class KVCache:
    """The keys and values that one attention layer has seen, (B, H, length, D/H) each.

    They are written into buffers with room to spare, which grow by `step` positions when full.
    """

    step = 64

    def __init__(self):
        self.keys = self.values = None
        self.length = 0

    def append(self, keys, values):
        """Add the new positions; returns all keys and all values so far."""
        start = mx.array([self.length])
        self.length += keys.shape[2]
        self.keys = mx.slice_update(self._with_room(self.keys, keys), keys, start, axes=[2])
        self.values = mx.slice_update(self._with_room(self.values, values), values, start, axes=[2])
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def _with_room(self, buffer, new):
        size = 0 if buffer is None else buffer.shape[2]
        if self.length <= size:
            return buffer
        wanted = (self.length + self.step - 1) // self.step * self.step
        room = mx.zeros((*new.shape[:2], wanted - size, new.shape[3]), dtype=new.dtype)
        return room if buffer is None else mx.concatenate([buffer, room], axis=2)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config):
        super().__init__()
        dims = config.dims
        self.heads = config.heads
        self.query = nn.Linear(dims, dims, bias=False)
        self.key = nn.Linear(dims, dims, bias=False)
        self.value = nn.Linear(dims, dims, bias=False)
        self.out = nn.Linear(dims, dims, bias=False)
        self.rope = nn.RoPE(dims // config.heads)

    def __call__(self, x, cache=None):
        B, T, D = x.shape

        def split(y):  # (B, T, D) → (B, H, T, D/H)
            return y.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        seen = 0 if cache is None else cache.length
        q, k = self.rope(q, offset=seen), self.rope(k, offset=seen)
        if cache is not None:
            k, v = cache.append(k, v)
        scale = (D // self.heads) ** -0.5
        mask = "causal" if T > 1 else None
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)
        return self.out(y.transpose(0, 2, 1, 3).reshape(B, T, D))


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x))·up(x))."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.dims, config.hidden, bias=False)
        self.up = nn.Linear(config.dims, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dims, bias=False)

    def __call__(self, x):
        return self.down(nn.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and feed-forward, each on the normalised input with a residual around it."""

    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.norm1 = nn.RMSNorm(config.dims)
        self.norm2 = nn.RMSNorm(config.dims)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x, cache=None):
        x = x + self.dropout(self.attention(self.norm1(x), cache))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class TextModel(nn.Module):
    """Bytes (B, T) → logits of each next byte (B, T, vocabulary)."""

    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.dims)
        self.blocks = [Block(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.dims)
        self.head = nn.Linear(config.dims, config.vocabulary, bias=False)

    def __call__(self, tokens, caches=None):
        """`caches`: one KVCache a block; `tokens` then continue what the caches have seen."""
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.head(self.norm(x))

    def new_caches(self):
        return [KVCache() for _ in self.blocks]


def loss_fn(model, x, y):
    """Mean cross-entropy, in nats, of the next bytes `y` (B, T) after `x` (B, T); float32."""
    logits = model(x).astype(mx.float32)
    return nn.losses.cross_entropy(logits, y, reduction="mean")
