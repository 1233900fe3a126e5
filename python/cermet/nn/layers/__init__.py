# SPDX-License-Identifier: MIT
"""The layers, one family per module; all their names also stand in `cermet.nn`."""
# ruff: noqa: F401

from cermet.nn.layers.activations import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    HardShrink,
    Hardswish,
    HardTanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU2,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Step,
    Tanh,
    celu,
    elu,
    gelu,
    gelu_approx,
    gelu_fast_approx,
    glu,
    hard_shrink,
    hard_tanh,
    hardswish,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    prelu,
    relu,
    relu2,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    step,
    tanh,
)
from cermet.nn.layers.base import Module
from cermet.nn.layers.containers import Sequential
from cermet.nn.layers.dropout import Dropout, Dropout2d, Dropout3d
from cermet.nn.layers.embedding import Embedding
from cermet.nn.layers.linear import Bilinear, Identity, Linear
from cermet.nn.layers.normalization import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
)
from cermet.nn.layers.positional_encoding import ALiBi, RoPE, SinusoidalPositionalEncoding
from cermet.nn.layers.recurrent import GRU, LSTM, RNN
from cermet.nn.layers.transformer import (
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [name for name, value in list(globals().items()) if callable(value)]
