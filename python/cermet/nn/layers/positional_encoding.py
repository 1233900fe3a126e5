# SPDX-License-Identifier: MIT
"""Rotary, sinusoidal and ALiBi encodings of positions."""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require, require_sizes
from cermet.nn.layers.base import Module


def _require_pairs(op, dims):
    require_sizes(op, 2, dims=dims)
    require(op, "even", lambda n: n % 2 == 0, dims=dims)


class RoPE(Module):
    """Rotary position encoding (Su et al. 2021) of (..., T, D), along T.

    The first `dims` of D are turned in pairs, pair i at position p by the angle
    scale·p·base^(-2i/dims). Pairs are (i, i + dims/2), or with `traditional` (2i, 2i + 1).
    """

    def __init__(self, dims, traditional=False, base=10000, scale=1.0):
        super().__init__()
        _require_pairs("RoPE", dims)
        require("RoPE", "a number above 0", lambda n: n > 0, base=base)
        self.dims = dims
        self.traditional = traditional
        self.base = base
        self.scale = scale

    def _extra_repr(self):
        return f"{self.dims}, traditional={self.traditional}"

    @names_errors
    def __call__(self, x, offset=0):
        """`offset` (an integer or an array) is the position of the first entry along T."""
        return mx.fast.rope(
            x,
            self.dims,
            traditional=self.traditional,
            base=self.base,
            scale=self.scale,
            offset=offset,
        )


class SinusoidalPositionalEncoding(Module):
    """Positions (...) → (..., dims): scale·(sin(p·f), cos(p·f)) for dims/2 frequencies f spaced
    geometrically from `max_freq` down to `min_freq` (Vaswani et al. 2017).

    `scale` is √(2/dims) by default; `cos_first` puts the cosines first; `full_turns` takes the
    frequencies in turns (times 2π) instead of radians.
    """

    def __init__(
        self, dims, min_freq=0.0001, max_freq=1, scale=None, cos_first=False, full_turns=False
    ):
        super().__init__()
        op = "SinusoidalPositionalEncoding"
        _require_pairs(op, dims)
        require(op, "a number above 0", lambda n: n > 0, min_freq=min_freq, max_freq=max_freq)
        half = dims // 2
        falling = 1 - mx.arange(0, half) / max(half - 1, 1)
        low, high = math.log(min_freq), math.log(max_freq)
        frequencies = mx.exp(falling * (high - low) + low)
        self._sigmas = frequencies * (2 * math.pi) if full_turns else frequencies
        self.scale = (2 / dims) ** 0.5 if scale is None else scale
        self.cos_first = cos_first

    @names_errors
    def __call__(self, x):
        angles = x[..., None] * self._sigmas
        parts = [mx.sin(angles), mx.cos(angles)]
        y = mx.concatenate(parts[::-1] if self.cos_first else parts, axis=-1)
        return y * self.scale if self.scale != 1 else y


class ALiBi(Module):
    """Attention with linear biases (Press et al. 2022): adds -slope_h·|query - key position| to
    attention scores (B, H, Tq, Tk).
    """

    @staticmethod
    def create_alibi_matrix(
        q_sequence_length, k_sequence_length, num_heads, offset=0, dtype=mx.float32
    ):
        """The bias (1, num_heads, q_sequence_length - offset, k_sequence_length); `offset` is
        the position of the first query.
        """
        queries = mx.arange(offset, q_sequence_length)
        keys = mx.arange(k_sequence_length)
        distance = mx.abs(queries[:, None] - keys[None, :])[None, None]
        slope = ALiBi.create_alibi_slope(num_heads)
        return (-distance * slope).astype(dtype)

    @staticmethod
    def create_alibi_slope(num_heads, dtype=mx.float32):
        """The slopes (num_heads, 1, 1): 2^(-8i/n) for n heads when n is a power of two; otherwise
        those of the largest power of two below, then every second one of twice as many heads.
        """

        require_sizes("ALiBi", num_heads=num_heads)

        def geometric(n):
            return [2 ** (-8 * i / n) for i in range(1, n + 1)]

        whole = 2 ** math.floor(math.log2(num_heads))
        slopes = geometric(whole) + geometric(2 * whole)[::2][: num_heads - whole]
        return mx.array(slopes, dtype=dtype)[:, None, None]

    @names_errors
    def __call__(self, attention_scores, offset=0, mask=None):
        if attention_scores.ndim != 4:
            raise ValueError(
                f"[ALiBi] the scores have shape {attention_scores.shape}; "
                "it must be (batch, heads, queries, keys)"
            )
        bias = ALiBi.create_alibi_matrix(
            q_sequence_length=attention_scores.shape[-2] + offset,
            k_sequence_length=attention_scores.shape[-1],
            num_heads=attention_scores.shape[1],
            offset=offset,
            dtype=attention_scores.dtype,
        )
        if mask is not None:
            bias = bias + mask
        return attention_scores + bias
