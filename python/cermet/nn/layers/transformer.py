# SPDX-License-Identifier: MIT
"""Multi-head attention and the transformer of Vaswani et al. 2017, pre- or post-norm."""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require, require_callable, require_sizes
from cermet.nn.layers.activations import relu
from cermet.nn.layers.base import Module
from cermet.nn.layers.dropout import Dropout
from cermet.nn.layers.linear import Linear
from cermet.nn.layers.normalization import LayerNorm
from cermet.nn.utils import checkpoint as checkpointed


def _or(size, default):
    return default if size is None else size


class MultiHeadAttention(Module):
    """softmax(Q·Kᵀ/√d + mask)·V in `num_heads` heads, with projections before and after.

    The query and key heads share `dims`, the value heads `value_dims` (by default `dims`); the
    other sizes default to `dims`, the values' input to the keys'.
    """

    def __init__(
        self,
        dims,
        num_heads,
        query_input_dims=None,
        key_input_dims=None,
        value_input_dims=None,
        value_dims=None,
        value_output_dims=None,
        bias=False,
    ):
        super().__init__()
        op = "MultiHeadAttention"
        require_sizes(op, dims=dims, num_heads=num_heads)
        key_input_dims = _or(key_input_dims, dims)
        value_dims = _or(value_dims, dims)
        of_heads = f"a multiple of the {num_heads} heads"
        require(op, of_heads, lambda n: n % num_heads == 0, dims=dims, value_dims=value_dims)
        self.num_heads = num_heads
        self.query_proj = Linear(_or(query_input_dims, dims), dims, bias=bias)
        self.key_proj = Linear(key_input_dims, dims, bias=bias)
        self.value_proj = Linear(_or(value_input_dims, key_input_dims), value_dims, bias=bias)
        self.out_proj = Linear(value_dims, _or(value_output_dims, dims), bias=bias)

    @names_errors
    def __call__(self, queries, keys, values, mask=None):
        """(B, Tq, ·), (B, Tk, ·), (B, Tk, ·) → (B, Tq, value_output_dims).

        `mask` broadcasts to (B, H, Tq, Tk): boolean (true takes part) or additive; or "causal".
        """
        q = self._heads(self.query_proj(queries))
        k = self._heads(self.key_proj(keys))
        v = self._heads(self.value_proj(values))
        scale = math.sqrt(1 / q.shape[-1])
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)
        y = y.transpose(0, 2, 1, 3)
        return self.out_proj(y.reshape(*y.shape[:2], -1))

    def _heads(self, x):
        if x.ndim != 3:
            raise ValueError(
                f"[MultiHeadAttention] the input has shape {x.shape}; "
                "it must be (batch, length, features)"
            )
        batch, length, _ = x.shape
        return x.reshape(batch, length, self.num_heads, -1).transpose(0, 2, 1, 3)

    @staticmethod
    def create_additive_causal_mask(N, dtype=mx.float32):
        """(N, N): 0 on and below the diagonal, the dtype's lowest value above."""
        require_sizes("create_additive_causal_mask", 0, N=N)
        positions = mx.arange(N)
        above = positions[:, None] < positions[None, :]
        return above.astype(dtype) * mx.finfo(dtype).min


class TransformerEncoderLayer(Module):
    """Self-attention and a two-layer perceptron of width `mlp_dims` (4·dims by default), each
    with a residual around it; `norm_first` normalises before them, else after.
    """

    def __init__(
        self, dims, num_heads, mlp_dims=None, dropout=0.0, activation=relu, norm_first=True
    ):
        super().__init__()
        require_callable("TransformerEncoderLayer", activation=activation)
        mlp_dims = _or(mlp_dims, dims * 4)
        self.attention = MultiHeadAttention(dims, num_heads)
        self.ln1 = LayerNorm(dims)
        self.ln2 = LayerNorm(dims)
        self.linear1 = Linear(dims, mlp_dims)
        self.linear2 = Linear(mlp_dims, dims)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = activation
        self.norm_first = norm_first

    def __call__(self, x, mask):
        """(B, T, dims) and a mask as for `MultiHeadAttention` → (B, T, dims)."""

        def attend(y):
            return self.dropout1(self.attention(y, y, y, mask))

        def perceptron(y):
            return self.linear2(self.dropout2(self.activation(self.linear1(y))))

        if self.norm_first:
            x = x + attend(self.ln1(x))
            return x + perceptron(self.ln2(x))
        x = self.ln1(x + attend(x))
        return self.ln2(x + perceptron(x))


class TransformerEncoder(Module):
    """`num_layers` encoder layers and a last normalisation."""

    def __init__(
        self,
        num_layers,
        dims,
        num_heads,
        mlp_dims=None,
        dropout=0.0,
        activation=relu,
        norm_first=True,
        checkpoint=False,
    ):
        super().__init__()
        require_sizes("TransformerEncoder", 0, num_layers=num_layers)
        self.checkpoint = checkpoint
        self.layers = [
            TransformerEncoderLayer(dims, num_heads, mlp_dims, dropout, activation, norm_first)
            for _ in range(num_layers)
        ]
        self.ln = LayerNorm(dims)

    def __call__(self, x, mask):
        """(B, T, dims) and a mask as for `MultiHeadAttention` → (B, T, dims)."""
        for layer in self.layers:
            x = (checkpointed(layer) if self.checkpoint else layer)(x, mask)
        return self.ln(x)


class TransformerDecoderLayer(Module):
    """Like `TransformerEncoderLayer`, with attention to a memory between the two parts."""

    def __init__(
        self, dims, num_heads, mlp_dims=None, dropout=0.0, activation=relu, norm_first=True
    ):
        super().__init__()
        require_callable("TransformerDecoderLayer", activation=activation)
        mlp_dims = _or(mlp_dims, dims * 4)
        self.self_attention = MultiHeadAttention(dims, num_heads)
        self.cross_attention = MultiHeadAttention(dims, num_heads)
        self.ln1 = LayerNorm(dims)
        self.ln2 = LayerNorm(dims)
        self.ln3 = LayerNorm(dims)
        self.linear1 = Linear(dims, mlp_dims)
        self.linear2 = Linear(mlp_dims, dims)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = activation
        self.norm_first = norm_first

    def __call__(self, x, memory, x_mask, memory_mask):
        """(B, T, dims), (B, S, dims) and a mask for each attention → (B, T, dims)."""

        def attend(y):
            return self.dropout1(self.self_attention(y, y, y, x_mask))

        def recall(y):
            return self.dropout2(self.cross_attention(y, memory, memory, memory_mask))

        def perceptron(y):
            return self.linear2(self.dropout3(self.activation(self.linear1(y))))

        if self.norm_first:
            x = x + attend(self.ln1(x))
            x = x + recall(self.ln2(x))
            return x + perceptron(self.ln3(x))
        x = self.ln1(x + attend(x))
        x = self.ln2(x + recall(x))
        return self.ln3(x + perceptron(x))


class TransformerDecoder(Module):
    """`num_layers` decoder layers and a last normalisation."""

    def __init__(
        self,
        num_layers,
        dims,
        num_heads,
        mlp_dims=None,
        dropout=0.0,
        activation=relu,
        norm_first=True,
        checkpoint=False,
    ):
        super().__init__()
        require_sizes("TransformerDecoder", 0, num_layers=num_layers)
        self.checkpoint = checkpoint
        self.layers = [
            TransformerDecoderLayer(dims, num_heads, mlp_dims, dropout, activation, norm_first)
            for _ in range(num_layers)
        ]
        self.ln = LayerNorm(dims)

    def __call__(self, x, memory, x_mask, memory_mask):
        """(B, T, dims), (B, S, dims) and a mask for each attention → (B, T, dims)."""
        for layer in self.layers:
            call = checkpointed(layer) if self.checkpoint else layer
            x = call(x, memory, x_mask, memory_mask)
        return self.ln(x)


class Transformer(Module):
    """Encoder and decoder; `custom_encoder` and `custom_decoder` take the place of the usual
    ones and are called alike.
    """

    def __init__(
        self,
        dims=512,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        mlp_dims=None,
        dropout=0.0,
        activation=relu,
        custom_encoder=None,
        custom_decoder=None,
        norm_first=True,
        checkpoint=False,
    ):
        super().__init__()
        shared = (dims, num_heads, mlp_dims, dropout, activation, norm_first, checkpoint)
        self.encoder = custom_encoder or TransformerEncoder(num_encoder_layers, *shared)
        self.decoder = custom_decoder or TransformerDecoder(num_decoder_layers, *shared)

    def __call__(self, src, tgt, src_mask, tgt_mask, memory_mask):
        """(B, S, dims), (B, T, dims) and the masks → (B, T, dims)."""
        memory = self.encoder(src, src_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask)
