# SPDX-License-Identifier: MIT
"""RNN, GRU and LSTM over sequences (T, D) or (N, T, D).

The input's part of every gate is one matmul over the whole sequence; only the hidden state's part
runs step by step.
"""

import math

import cermet.core as mx
from cermet.arguments import names_errors, require_sizes
from cermet.nn.layers.activations import tanh
from cermet.nn.layers.base import Module


def _require(op, input_size, hidden_size):
    require_sizes(op, 0, input_size=input_size)
    require_sizes(op, hidden_size=hidden_size)


def _require_steps(op, x):
    if x.ndim < 2:
        raise ValueError(
            f"[{op}] the input has {x.ndim} axes; it must have at least 2: the steps and the values"
        )


def _uniform(hidden_size, *shape):
    bound = 1 / math.sqrt(hidden_size)
    return mx.random.uniform(-bound, bound, shape)


class RNN(Module):
    """h_t = nonlinearity(Wxh·x_t + Whh·h_{t-1} + bias) (Elman 1990); tanh by default.

    Parameters `Wxh` (H, D), `Whh` (H, H), `bias` (H,) begin uniform in ±1/√H.
    """

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity=None):
        super().__init__()
        _require("RNN", input_size, hidden_size)
        self.nonlinearity = nonlinearity or tanh
        if not callable(self.nonlinearity):
            raise ValueError(f"[RNN] nonlinearity is {nonlinearity!r}; it must be callable")
        self.hidden_size = hidden_size
        self.Wxh = _uniform(hidden_size, hidden_size, input_size)
        self.Whh = _uniform(hidden_size, hidden_size, hidden_size)
        self.bias = _uniform(hidden_size, hidden_size) if bias else None

    def _extra_repr(self):
        return (
            f"input_dims={self.Wxh.shape[1]}, hidden_size={self.hidden_size}, "
            f"nonlinearity={self.nonlinearity}, bias={self.bias is not None}"
        )

    @names_errors
    def __call__(self, x, hidden=None):
        """(..., T, D) and the hidden state before it (..., H) → all hidden states (..., T, H)."""
        _require_steps("RNN", x)
        x = x @ self.Wxh.T
        if self.bias is not None:
            x = x + self.bias
        states = []
        for t in range(x.shape[-2]):
            step = x[..., t, :]
            if hidden is not None:
                step = step + hidden @ self.Whh.T
            hidden = self.nonlinearity(step)
            states.append(hidden)
        return mx.stack(states, axis=-2)


class GRU(Module):
    """Gated recurrent unit (Cho et al. 2014), with rows of the weights in the order r, z, n:

        r = sigmoid(Wx_r·x + Wh_r·h + b_r)        z = sigmoid(Wx_z·x + Wh_z·h + b_z)
        n = tanh(Wx_n·x + b_n + r·(Wh_n·h + bhn))     h' = (1 - z)·n + z·h

    Parameters `Wx` (3H, D), `Wh` (3H, H), `b` (3H,), `bhn` (H,) begin uniform in ±1/√H.
    """

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        _require("GRU", input_size, hidden_size)
        self.hidden_size = hidden_size
        self.Wx = _uniform(hidden_size, 3 * hidden_size, input_size)
        self.Wh = _uniform(hidden_size, 3 * hidden_size, hidden_size)
        self.b = _uniform(hidden_size, 3 * hidden_size) if bias else None
        self.bhn = _uniform(hidden_size, hidden_size) if bias else None

    def _extra_repr(self):
        return (
            f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, "
            f"bias={self.b is not None}"
        )

    @names_errors
    def __call__(self, x, hidden=None):
        """(..., T, D) and the hidden state before it (..., H) → all hidden states (..., T, H)."""
        _require_steps("GRU", x)
        x = x @ self.Wx.T
        if self.b is not None:
            x = x + self.b
        gates, candidates = x[..., : 2 * self.hidden_size], x[..., 2 * self.hidden_size :]
        states = []
        for t in range(x.shape[-2]):
            hidden = self._step(gates[..., t, :], candidates[..., t, :], hidden)
            states.append(hidden)
        return mx.stack(states, axis=-2)

    def _step(self, gates, candidate, hidden):
        size = self.hidden_size
        if hidden is None:
            r, z = mx.split(mx.sigmoid(gates), 2, axis=-1)
            n = mx.tanh(candidate + r * self.bhn if self.bhn is not None else candidate)
            return (1 - z) * n
        from_hidden = hidden @ self.Wh.T
        r, z = mx.split(mx.sigmoid(gates + from_hidden[..., : 2 * size]), 2, axis=-1)
        recalled = from_hidden[..., 2 * size :]
        if self.bhn is not None:
            recalled = recalled + self.bhn
        n = mx.tanh(candidate + r * recalled)
        return (1 - z) * n + z * hidden


class LSTM(Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with rows of the weights in the
    order i, f, g, o:

        i, f, o = sigmoid(...)   g = tanh(...)   c' = f·c + i·g   h' = o·tanh(c')
        of Wx·x + Wh·h + bias

    Parameters `Wx` (4H, D), `Wh` (4H, H), `bias` (4H,) begin uniform in ±1/√H.
    """

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        _require("LSTM", input_size, hidden_size)
        self.hidden_size = hidden_size
        self.Wx = _uniform(hidden_size, 4 * hidden_size, input_size)
        self.Wh = _uniform(hidden_size, 4 * hidden_size, hidden_size)
        self.bias = _uniform(hidden_size, 4 * hidden_size) if bias else None

    def _extra_repr(self):
        return (
            f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, "
            f"bias={self.bias is not None}"
        )

    @names_errors
    def __call__(self, x, hidden=None, cell=None):
        """(..., T, D) and the states before it (..., H) → all hidden and all cell states, both
        (..., T, H).
        """
        _require_steps("LSTM", x)
        x = x @ self.Wx.T
        if self.bias is not None:
            x = x + self.bias
        hiddens, cells = [], []
        for t in range(x.shape[-2]):
            gates = x[..., t, :]
            if hidden is not None:
                gates = gates + hidden @ self.Wh.T
            i, f, g, o = mx.split(gates, 4, axis=-1)
            taken_in = mx.sigmoid(i) * mx.tanh(g)
            cell = taken_in if cell is None else mx.sigmoid(f) * cell + taken_in
            hidden = mx.sigmoid(o) * mx.tanh(cell)
            hiddens.append(hidden)
            cells.append(cell)
        return mx.stack(hiddens, axis=-2), mx.stack(cells, axis=-2)
