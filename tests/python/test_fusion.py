# SPDX-License-Identifier: MIT
"""How many kernels run: one table, eager and compiled alike.

A case is a name, the number of kernels, a function and its inputs, written as "dtype[shape]" (see
`make_input`). The inputs are evaluated before; what is counted is the evaluation of all arrays that
the function returns. Both ways of running give the same bits.
"""

import math
import re

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import own_process
import pytest

DTYPES = {
    "f32": mx.float32,
    "f16": mx.float16,
    "bf16": mx.bfloat16,
    "i32": mx.int32,
    "u8": mx.uint8,
    "bool": mx.bool_,
}


def make_input(text, seed):
    """ "f32[4,5]": normal numbers; "i32<7[4]": integers from 0 to 6; "bool[4]": fair coins;
    "key": a random key.
    """
    if text == "key":
        return mx.random.key(7)
    name, below, shape = re.fullmatch(r"(\w+)(?:<(\d+))?\[([\d,]*)\]", text).groups()
    shape = tuple(int(n) for n in shape.split(",") if n)
    random = np.random.default_rng([seed, *shape])
    if name == "bool":
        return mx.array(random.random(shape) < 0.5)
    if below:
        return mx.array(random.integers(0, int(below), shape, dtype=np.int32)).astype(DTYPES[name])
    return mx.array(random.standard_normal(shape).astype(np.float32)).astype(DTYPES[name])


def arrays_of(tree):
    """The arrays of a function's result, as a list."""
    if isinstance(tree, (list, tuple)):
        return [a for part in tree for a in arrays_of(part)]
    return [tree]


def kernels_of(f, inputs):
    """(kernels launched, results as NumPy arrays) of one evaluation of f."""
    mx.eval(inputs)
    before = mx.counters()
    results = arrays_of(f(*inputs))
    mx.eval(results)
    after = mx.counters()
    launched = after["kernels_launched"] - before["kernels_launched"]
    calls = sum(after["library_calls"].values()) - sum(before["library_calls"].values())
    return launched + calls, [np.array(r.astype(mx.float32)) for r in results]


def measure(case):
    """(kernels eager, kernels compiled, results eager, results compiled)."""
    _, _, f, *specs = case
    inputs = [make_input(text, seed) for seed, text in enumerate(specs)]
    eager, plain = kernels_of(f, inputs)
    compiled = mx.compile(f)
    mx.eval(arrays_of(compiled(*inputs)))
    replay, replayed = kernels_of(compiled, inputs)
    return eager, replay, plain, replayed


# --- functions of the table ---


def gelu(x):
    return 0.5 * x * (1 + mx.erf(x * math.sqrt(0.5)))


def gelu_tanh(x):
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def silu(x):
    return x * mx.sigmoid(x)


def softmax(x):
    e = mx.exp(x - mx.max(x, axis=-1, keepdims=True))
    return e / mx.sum(e, axis=-1, keepdims=True)


def logsumexp(x):
    top = mx.max(x, axis=-1, keepdims=True)
    return mx.log(mx.sum(mx.exp(x - top), axis=-1, keepdims=True)) + top


def log_softmax(x):
    return x - logsumexp(x)


def layer_norm(x, w, b):
    mean = mx.mean(x, axis=-1, keepdims=True)
    return (x - mean) * mx.rsqrt(mx.var(x, axis=-1, keepdims=True) + 1e-5) * w + b


def rms_norm(x, w):
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-5) * w


def l2_normalise(x):
    return x / mx.sqrt(mx.sum(x * x, axis=-1, keepdims=True))


def cross_entropy(logits, targets):
    return nn.losses.cross_entropy(logits, targets, reduction="none")


def picked(of):
    """The mean of what `of` gives for one element of each row."""
    return lambda x, t: mx.mean(mx.take_along_axis(of(x), t[:, None], -1))


def picked_by_rows(of):
    return lambda x, t: mx.mean(of(x)[mx.arange(x.shape[0]), t])


def plain_cross_entropy(logits, targets):
    chosen = mx.take_along_axis(logits, targets[:, None], axis=-1)
    return (logsumexp(logits) - chosen)[:, 0]


def rope(x):
    """(B, H, T, D), halves rotated."""
    T, half = x.shape[-2], x.shape[-1] // 2
    angles = mx.arange(T)[:, None] * mx.exp(-mx.arange(half) * (math.log(10_000) / half))
    cos, sin = mx.cos(angles), mx.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def dropout(x, key):
    return x * mx.random.bernoulli(0.9, x.shape, key=key) * (1 / 0.9)


def gradient(f):
    """The cotangents of all inputs of f but the last one, which is the result's cotangent."""
    return lambda *inputs: mx.vjp(f, list(inputs[:-1]), [inputs[-1]])[1]


def loss_gradient(f, argnums=0):
    return mx.grad(lambda *inputs: mx.mean(f(*inputs)), argnums=argnums)


def chain_of(ops):
    def f(x, y):
        for i in range(ops):
            x = x * y if i % 2 else x + y
        return x

    return f


def attention(mask=None):
    def f(q, k, v, given=mask):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, mask=given)

    return f


def heads_of_features(*arrays):
    return attention("causal")(*(a.reshape(2, 24, 4, 16).transpose(0, 2, 1, 3) for a in arrays))


LAYER_NORM, RMS_NORM, LINEAR = nn.LayerNorm(96), nn.RMSNorm(96), nn.Linear(96, 80)
mx.eval(LAYER_NORM.parameters(), RMS_NORM.parameters(), LINEAR.parameters())

HEADS, SHARED = "f32[2,4,24,16]", "f32[2,2,24,16]"
M, ROW, PICK = "f32[64,96]", "f32[96]", "i32<96[64,3]"

CASES = [
    # element-wise
    ("relu(a·b+c)", 1, lambda a, b, c: mx.maximum(a * b + c, 0), M, M, M),
    ("gelu", 1, gelu, M),
    ("gelu tanh", 1, gelu_tanh, M),
    ("silu of nn", 1, nn.silu, M),
    ("gelu of nn", 1, nn.gelu, M),
    ("swiglu", 1, lambda a, b: silu(a) * b, M, M),
    ("clip, power, logaddexp", 1, lambda a, b: mx.logaddexp(mx.clip(a, -1, 1) ** 3, b), M, M),
    (
        "mixed dtypes",
        1,
        lambda a, b, c: a * b.astype(mx.float32) + c,
        M,
        "bf16[64,96]",
        "i32<9[96]",
    ),
    ("half types", 1, lambda a, b: mx.exp(a * 0.5) + b, "f16[64,96]", "f16[64,96]"),
    ("half with half", 1, lambda a, b: a * b - 1, "f16[64,96]", "bf16[64,96]"),
    ("compare, select", 1, lambda a, b: mx.where(a > b, a * 2, b), M, M),
    ("select by bool", 1, lambda m, a: mx.where(m, a, -1e9), "bool[64,96]", M),
    ("logic", 1, lambda a, b: (a > b) & ~(a < 0) | (b == 1), M, M),
    ("integers", 1, lambda a, b: (a * 3 + b) % 7 // 2, "i32<50[64,96]", "i32<50[96]"),
    ("casts", 1, lambda a: (a * 255).astype(mx.uint8).astype(mx.float32) / 255, M),
    ("broadcast row, column", 1, lambda a, r, c: a * r + c, M, ROW, "f32[64,1]"),
    ("outer", 1, lambda c, r: mx.exp(c - r), "f32[64,1]", "f32[1,96]"),
    ("broadcast inside", 1, lambda c, a: mx.broadcast_to(mx.sin(c), (64, 96)) * a, "f32[64,1]", M),
    ("points by a matrix", 1, lambda p, w: p @ w * 2 + p, "f32[2000,3]", "f32[3,3]"),
    ("scalar array", 1, lambda a, s: a * s + 1, M, "f32[]"),
    ("scan of an expression, chain", 1, lambda a, b: mx.cumsum(a * b, 1) * 2 + b, M, M),
    ("scan of columns, chain", 1, lambda a, b: mx.exp(mx.cummax(a - b, 0)), M, M),
    ("scan of all, chain", 1, lambda a: mx.cumsum(a.reshape(-1)) + 1, M),
    ("exclusive scan", 1, lambda a: mx.cumsum(a, 1, inclusive=False), M),
    ("scan from the end", 1, lambda a: mx.cumprod(a + 1, 1, reverse=True), M),
    ("two scans of one value", 1, lambda a: (mx.cumsum(a, 1), mx.cummin(a, 1)), M),
    ("scan of a softmax", 1, lambda a: mx.cumsum(mx.softmax(a, -1), -1), M),
    ("transposed operand", 1, lambda a, b: a.T + b, M, "f32[96,64]"),
    ("transpose between", 1, lambda a, b: mx.exp(a + 1).T * b, M, "f32[96,64]"),
    ("sliced operands", 1, lambda a, b: a[::2, 1:] * b[1:33, :-1], M, M),
    ("slice between", 1, lambda a: mx.sin(a * 2)[:, 32:64] + 1, M),
    ("flip", 1, lambda a: a[:, ::-1] * a, M),
    ("reshape", 1, lambda a, b: a.reshape(8, 8, 96) * b, M, "f32[8,8,96]"),
    ("reshape between", 1, lambda a: mx.exp(a).reshape(32, 192) * 2, M),
    (
        "products whose heads are joined",
        1,
        lambda a, b: (a @ b).transpose(0, 2, 1, 3).reshape(2, 24, 64),
        "f32[2,4,24,20]",
        "f32[2,4,20,16]",
    ),
    ("split heads", 1, lambda a: (a * 2).reshape(8, 8, 12, 8).transpose(0, 2, 1, 3) + 1, M),
    ("expand, squeeze", 1, lambda a, b: (a[:, None, :] * b[None])[:, 0], M, "f32[1,96]"),
    ("concatenate", 1, lambda a, b: mx.concatenate([a * 2, mx.exp(b)], axis=-1) + 1, M, M),
    ("stack", 1, lambda a, b: mx.stack([a + b, a - b]) * 2, M, M),
    ("pad", 1, lambda a: mx.pad(a * 2, ((1, 1), (0, 0))) + 1, M),
    ("three outputs", 1, lambda a, b: (a + b, a * b, mx.exp(a)), M, M),
    ("outputs sharing work", 1, lambda a, b: (mx.sin(a * b), mx.cos(a * b)), M, M),
    ("output and its user", 1, lambda a: (mx.exp(a), mx.exp(a) * 2 + a), M),
    ("outputs of two dtypes", 1, lambda a: (a > 0, (a * 3).astype(mx.float16)), M),
    ("diamond", 1, lambda a: (lambda e: e / (1 + e) * (e - 1))(mx.exp(a)), M),
    ("100 ops", 1, chain_of(100), M, M),
    ("complex numbers", 1, lambda a, b: mx.real((a + 1j * b) * (a - 1j * b)), M, M),
    ("arange", 1, lambda a: a * mx.arange(96) + mx.arange(64)[:, None], M),
    ("triangle", 1, lambda a: mx.where(mx.tri(64, 96), a, 0.0), M),
    # reductions
    ("sum", 1, mx.sum, M),
    ("max(abs(x))", 1, lambda a: mx.max(mx.abs(a)), M),
    ("sum(x·x)", 1, lambda a: mx.sum(a * a), M),
    ("mean, scaled", 1, lambda a: mx.mean(a * 2) * 3 + 1, M),
    ("var", 1, mx.var, M),
    ("dot", 1, lambda a, b: mx.sum(a * b), M, M),
    ("any", 1, lambda a: mx.any(a > 3), M),
    ("row sums", 1, lambda a: mx.sum(a * a, axis=-1), M),
    ("row means of columns", 1, lambda a: mx.mean(mx.exp(a), axis=0), M),
    ("row variance", 1, lambda a: mx.var(a, axis=-1), M),
    ("column variance", 1, lambda a: mx.var(a, axis=0), M),
    ("column variances, inner axes", 1, lambda a: mx.var(a, axis=(0, 1)), "f32[7,9,64]"),
    ("column logsumexp", 1, lambda a: mx.logsumexp(a, axis=0), M),
    ("softmax of columns", 2, lambda a: mx.softmax(a, axis=0), M),
    ("middle axis", 1, lambda a: mx.sum(a * 2, axis=1), "f32[8,16,96]"),
    ("two axes", 1, lambda a: mx.max(mx.abs(a), axis=(0, 2)), "f32[8,16,96]"),
    ("sum of a transpose", 1, lambda a: mx.sum(a.T * 2, axis=0), M),
    ("argmax of a chain", 1, lambda a: mx.argmax(a * 2 + 1, axis=-1), M),
    ("minimum and maximum", 1, lambda a: (mx.min(a, axis=-1), mx.max(a, axis=-1)), M),
    ("sum and sum of squares", 1, lambda a: (mx.sum(a), mx.sum(a * a)), M),
    ("chain and its sum", 1, lambda a: (mx.exp(a), mx.sum(mx.exp(a), axis=-1)), M),
    ("row sum, then a chain", 1, lambda a: mx.sqrt(mx.sum(a * a, axis=-1) + 1), M),
    ("centred rows", 1, lambda a: a - mx.mean(a, axis=-1, keepdims=True), M),
    ("standardised rows", 1, lambda a: (a - mx.mean(a, -1, True)) / mx.std(a, -1, True), M),
    ("half sum", 1, lambda a: mx.sum(a * a, axis=-1), "bf16[64,96]"),
    # norms
    ("layer norm", 1, layer_norm, M, ROW, ROW),
    ("layer norm of fast", 1, lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5), M, ROW, ROW),
    ("layer norm of nn", 1, LAYER_NORM, M),
    ("layer norm, half", 1, layer_norm, "bf16[64,96]", "bf16[96]", "bf16[96]"),
    ("layer norm, 3 axes", 1, layer_norm, "f32[4,16,96]", ROW, ROW),
    ("layer norm of a sum", 1, lambda x, r, w, b: layer_norm(x + r, w, b), M, M, ROW, ROW),
    (
        "layer norm and the sum",
        1,
        lambda x, r, w, b: (x + r, layer_norm(x + r, w, b)),
        M,
        M,
        ROW,
        ROW,
    ),
    ("gelu of a layer norm", 1, lambda x, w, b: gelu(layer_norm(x, w, b)), M, ROW, ROW),
    ("RMS norm", 1, rms_norm, M, ROW),
    ("RMS norm of fast", 1, lambda x, w: mx.fast.rms_norm(x, w, 1e-5), M, ROW),
    ("RMS norm of nn", 1, RMS_NORM, M),
    ("RMS norm, half", 1, rms_norm, "f16[64,96]", "f16[96]"),
    (
        "residual + scale·rms_norm",
        1,
        lambda r, s, x, w: r + s * mx.fast.rms_norm(x, w, 1e-5),
        M,
        "f32[]",
        M,
        ROW,
    ),
    ("l2 normalise", 1, l2_normalise, M),
    # softmax and its kin
    ("softmax", 1, softmax, M),
    ("softmax of core", 1, lambda x: mx.softmax(x, axis=-1), M),
    ("softmax, half", 1, softmax, "bf16[64,96]"),
    ("softmax, scaled and masked", 1, lambda x, m: softmax(x * 0.125 + m), M, M),
    ("softmax under a bool mask", 1, lambda x, m: softmax(mx.where(m, x, -1e9)), M, "bool[64,96]"),
    ("softmax + residual", 1, lambda x, r: softmax(x) * 2 + r, M, M),
    ("log-softmax", 1, log_softmax, M),
    ("log-softmax of nn", 1, lambda x: nn.log_softmax(x, axis=-1), M),
    ("logsumexp", 1, logsumexp, M),
    ("logsumexp of core", 1, lambda x: mx.logsumexp(x, axis=-1), M),
    ("cross-entropy of nn", 1, cross_entropy, M, "i32<96[64]"),
    ("cross-entropy, mean", 1, lambda x, t: mx.mean(cross_entropy(x, t)), M, "i32<96[64]"),
    ("cross-entropy, plain ops", 1, plain_cross_entropy, M, "i32<96[64]"),
    ("log-softmax, picked", 1, picked(nn.log_softmax), M, "i32<96[64]"),
    ("log-softmax, picked by rows", 1, picked_by_rows(log_softmax), M, "i32<96[64]"),
    (
        "log-softmax of halves, picked",
        1,
        picked(lambda x: nn.log_softmax(x.astype(mx.float32) * 0.5)),
        "bf16[64,96]",
        "i32<96[64]",
    ),
    ("rows of a scaled table", 1, lambda w, i: mx.exp(w)[i] * 2, "f32[200,96]", "i32<200[64]"),
    # backward
    (
        "log-softmax, picked by rows, backward",
        1,
        lambda x, t: mx.grad(picked_by_rows(log_softmax))(x, t),
        M,
        "i32<96[64]",
    ),
    ("relu chain backward", 1, gradient(lambda a, b: mx.maximum(a * b, 0)), M, M, M),
    ("gelu backward", 1, gradient(gelu), M, M),
    ("swiglu backward", 1, gradient(lambda a, b: silu(a) * b), M, M, M),
    ("bias backward", 1, gradient(lambda a, b: gelu(a + b)), M, ROW, M),
    ("sum(x·x) backward", 1, mx.grad(lambda a: mx.sum(a * a)), M),
    ("row variance backward", 1, gradient(lambda a: mx.var(a, axis=-1)), M, "f32[64]"),
    ("layer norm backward", 1, gradient(layer_norm), M, ROW, ROW, M),
    (
        "layer norm of fast, backward",
        1,
        gradient(lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5)),
        M,
        ROW,
        ROW,
        M,
    ),
    ("RMS norm backward", 1, gradient(rms_norm), M, ROW, M),
    (
        "RMS norm of fast, backward",
        1,
        gradient(lambda x, w: mx.fast.rms_norm(x, w, 1e-5)),
        M,
        ROW,
        M,
    ),
    (
        "norm with residual, backward",
        1,
        gradient(lambda r, x, w: r + rms_norm(x + r, w)),
        M,
        M,
        ROW,
        M,
    ),
    ("l2 normalise backward", 1, gradient(l2_normalise), M, M),
    ("softmax backward", 1, gradient(softmax), M, M),
    ("softmax of core, backward", 1, gradient(lambda x: mx.softmax(x, axis=-1)), M, M),
    ("log-softmax backward", 1, gradient(log_softmax), M, M),
    ("logsumexp backward", 1, gradient(lambda x: mx.logsumexp(x, axis=-1)), M, "f32[64]"),
    ("cross-entropy backward", 1, loss_gradient(cross_entropy), M, "i32<96[64]"),
    ("plain cross-entropy backward", 1, loss_gradient(plain_cross_entropy), M, "i32<96[64]"),
    (
        "cross-entropy and gradient",
        1,
        mx.value_and_grad(lambda x, t: mx.mean(cross_entropy(x, t))),
        M,
        "i32<96[64]",
    ),
    # matmul
    ("x@w", 1, lambda x, w: x @ w, M, "f32[96,80]"),
    ("x@w+b", 1, lambda x, w, b: x @ w + b, M, "f32[96,80]", "f32[80]"),
    ("gelu(x@w+b)", 1, lambda x, w, b: gelu(x @ w + b), M, "f32[96,80]", "f32[80]"),
    ("x@w.T", 1, lambda x, w: x @ w.T * 2, M, "f32[80,96]"),
    (
        "act(x@w+b)·gate+residual",
        1,
        lambda x, w, b, g, r: silu(x @ w + b) * g + r,
        M,
        "f32[96,80]",
        "f32[80]",
        "f32[64,80]",
        "f32[64,80]",
    ),
    ("addmm", 1, lambda c, x, w: mx.addmm(c, x, w), "f32[64,80]", M, "f32[96,80]"),
    (
        "addmm, scaled",
        1,
        lambda c, x, w: mx.addmm(c, x, w, alpha=2, beta=0.5),
        "f32[64,80]",
        M,
        "f32[96,80]",
    ),
    ("relu of nn.Linear", 1, lambda x: nn.relu(LINEAR(x)), M),
    ("batched", 1, lambda x, w: mx.exp(x @ w), "f32[4,16,96]", "f32[4,96,32]"),
    ("half matmul", 1, lambda x, w, b: gelu(x @ w + b), "bf16[64,96]", "bf16[96,80]", "bf16[80]"),
    ("two epilogue outputs", 1, lambda x, w: (lambda y: (y, silu(y)))(x @ w), M, "f32[96,80]"),
    ("scaled operand", 1, lambda x, w: (x * 0.5) @ w, M, "f32[96,80]"),
    ("cast operand", 1, lambda x, w: x @ w.astype(mx.float32), M, "bf16[96,80]"),
    (
        "dequantised operand",
        1,
        lambda x, q, s: x @ (q.astype(mx.float32) * s),
        M,
        "u8<200[96,80]",
        "f32[80]",
    ),
    ("row-scaled operand", 1, lambda x, s, w: (x * s) @ w, M, "f32[64,1]", "f32[96,80]"),
    ("column-scaled operand", 1, lambda x, s, w: (x * s) @ w, M, ROW, "f32[96,80]"),
    # attention
    ("attention", 1, attention(), HEADS, HEADS, HEADS),
    ("causal attention", 1, attention(mask="causal"), HEADS, HEADS, HEADS),
    ("attention, shared keys", 1, attention(mask="causal"), HEADS, SHARED, SHARED),
    ("attention, bool mask", 1, attention(), HEADS, HEADS, HEADS, "bool[24,24]"),
    ("attention, additive mask", 1, attention(), HEADS, HEADS, HEADS, "f32[2,1,24,24]"),
    ("attention of halves", 1, attention(), *["bf16[2,4,24,16]"] * 3),
    ("attention over split heads", 1, heads_of_features, *["f32[2,24,64]"] * 3),
    ("attention backward", 1, gradient(attention()), *[HEADS] * 4),
    ("causal attention backward", 1, gradient(attention(mask="causal")), *[HEADS] * 4),
    (
        "attention under vmap",
        1,
        mx.vmap(attention(mask="causal")),
        *["f32[3,2,4,24,16]"] * 3,
    ),
    (
        "attention, computed mask",
        1,
        lambda q, k, v: attention()(
            q, k, v, mx.where(mx.arange(24)[:, None] - mx.arange(24) < 5, 0.0, -1e9)
        ),
        *[HEADS] * 3,
    ),
    (
        "attention, taken keys",
        2,
        lambda q, k, v, i: attention()(q, k[:, :, i], v[:, :, i]),
        *[HEADS] * 3,
        "i32<24[20]",
    ),
    # gradients of shared keys and values are added up over the heads that share them
    ("attention backward, shared keys", 2, gradient(attention()), HEADS, SHARED, SHARED, HEADS),
    # the rest
    ("rope, plain ops", 1, rope, "f32[2,4,16,32]"),
    (
        "rope of fast",
        1,
        lambda x: mx.fast.rope(x, 32, traditional=False, base=10_000, scale=1, offset=0),
        "f32[2,4,16,32]",
    ),
    ("rope, plain ops, a table of angles", 1, rope, "f32[4,8,128,32]"),
    (
        "traditional rope, a table of angles",
        1,
        lambda x: mx.fast.rope(x, 32, traditional=True, base=10_000, scale=1, offset=0),
        "f32[4,8,128,32]",
    ),
    ("gather, chain", 1, lambda e, t: e[t] * 2 + 1, "f32[50,96]", "i32<50[64]"),
    (
        "embeddings of tokens and places",
        1,
        lambda e, p, t: e[t] + p,
        "f32[50,96]",
        "f32[16,96]",
        "i32<50[4,16]",
    ),
    (
        "take along an axis, chain",
        1,
        lambda a, i: mx.exp(mx.take_along_axis(a, i, -1)),
        M,
        "i32<96[64,3]",
    ),
    ("dropout", 1, dropout, M, "key"),
    ("dropout between", 1, lambda x, r, k: r + dropout(gelu(x), k), M, M, "key"),
    # no elements
    ("nothing of nothing", 0, lambda x: (mx.exp(x) * 2, mx.sum(x, axis=1)), "f32[3,4,0]"),
    (
        "what no index chooses",  # a kernel would look at the index first
        0,
        lambda x, i: mx.take(x, mx.flatten(i), 0),
        "f32[1,1,1]",
        "i32<1[3,0,2]",
    ),
    ("sums of nothing", 1, lambda x: mx.sum(mx.exp(x @ x.T)), "f32[0,4]"),
    ("a product over nothing", 1, lambda x, y: x @ y + 1, "f32[4,0]", "f32[0,5]"),
    ("dropout, then a norm", 1, lambda x, w, k: rms_norm(dropout(x, k), w), M, ROW, "key"),
    (
        "uniform numbers, chain",
        1,
        lambda a, k: a + mx.random.uniform(shape=(64, 96), key=k),
        M,
        "key",
    ),
    (
        "an op written twice, in half precision",
        1,
        lambda a, b: [a / (mx.abs(b) + 1), b / (mx.abs(b) + 1)],
        "f16[3,65,7]",
        "f16[3,65,1]",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_kernels(case):
    eager, compiled, plain, replayed = measure(case)
    assert (eager, compiled) == (case[1], case[1]), "kernels (eager, compiled)"
    for a, b in zip(plain, replayed, strict=True):
        assert np.array_equal(a, b, equal_nan=True), "eager and compiled differ"


def test_names_are_distinct():
    names = [case[0] for case in CASES]
    assert len(set(names)) == len(names)


def test_outputs_in_the_memory_of_dying_inputs():
    """An output that does not depend on what it is computed from must not hide it from another."""
    numbers = np.arange(160, dtype=np.int32)
    for nothing in (lambda v: v - v, lambda v: v ^ v):
        v = mx.maximum(mx.array(numbers), mx.array(-numbers))  # temporaries: their memory is free
        w = nothing(v)
        mx.eval(w, v)
        assert np.array_equal(np.array(v), numbers) and not np.any(np.array(w))


def test_equal_numbers_do_not_stay_equal():
    """Where two ops took equal numbers, the next evaluation's may differ."""

    def f(x, s, t):
        return (x * s + 1) * 2 - (x * t + 1)

    x = np.arange(6, dtype=np.float32)
    compiled = mx.compile(f)
    for s, t in [(2, 2), (2, 3), (3, 3), (1, 2), (1, 1), (5, 2.0), (2.0, 2)]:
        for run in (f, compiled):
            assert np.array_equal(np.array(run(mx.array(x), s, t)), f(x, s, t)), (s, t, run)


def test_a_value_at_all_places_and_on_the_diagonal():
    """Kernels over (i, j) and (k, k) are not one: i and j stay two axes."""
    random = np.random.default_rng(5)
    z, w = (mx.array(random.standard_normal((40, 40)).astype(np.float32)) for _ in range(2))
    mx.eval(z, w)

    def f(m, z, w):
        return (m.exp(z) * 3 + m.diag(m.exp(m.diagonal(z)))) @ w

    wide = f(np, np.array(z, dtype=np.float64), np.array(w))
    for run in (f, mx.compile(lambda z, w: f(mx, z, w))):
        result = run(mx, z, w) if run is f else run(z, w)
        np.testing.assert_allclose(np.array(result), wide, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "step",
    [
        lambda m, a: m.concatenate([a[1:], a[:1]]),
        lambda m, a: m.roll(a, 1) + 1,
        lambda m, a: m.stack([a[::2], a[1::2]], 1).reshape(-1),
        lambda m, a: m.concatenate(m.split(a, 2)[::-1]),
    ],
)
def test_many_joins_in_a_row(step):
    """Each is made once, however often the next one takes from it: in milliseconds."""
    numbers = np.arange(100, dtype=np.float32)
    ours, theirs = mx.array(numbers), numbers
    for _ in range(40):
        ours = step(mx, ours)
        theirs = step(np, theirs)
    assert np.array_equal(np.array(ours), theirs)


def test_an_empty_output_beside_another():
    """Loops of no points are no multiple of, nor divide, other loops."""
    s = mx.sum(mx.ones((5, 7)), axis=0)
    twice, none = s * 2, s[2:2] + 1
    mx.eval(twice, none)
    assert twice.tolist() == [10] * 7 and none.shape == (0,)


def rotated(m, x, w):
    return x * m.cos(m.arange(x.shape[-2])[:, None] * m.exp(w)) + 1


def shifted(m, x, w):
    return x + m.sin(m.exp(w)) * 2


@pytest.mark.parametrize(
    ("f", "shapes", "stages"),
    [
        (rotated, ["f32[64,48,40]", "f32[40]"], 2),
        (shifted, ["f32[4096,40]", "f32[40]"], 2),
        # not worth a stage, cheap, made once for each row anyway, or to be rounded between
        (rotated, ["f32[3,48,40]", "f32[40]"], 1),
        (lambda m, x, w: x * (w * w + 1), ["f32[4096,40]", "f32[40]"], 1),
        (shifted, ["f32[4096,40]", "f32[4096,1]"], 1),
        (shifted, ["f16[4096,40]", "f16[40]"], 1),
    ],
)
def test_dear_values_of_inner_axes_are_a_table(f, shapes, stages):
    """What costs much and does not depend on an outer axis is made once, by a stage of its own."""
    inputs = [make_input(text, i) for i, text in enumerate(shapes)]
    kernels = mx.explain(lambda x, w: f(mx, x, w), *inputs).kernels
    assert [k.ir.count("for stage") for k in kernels] == [stages]
    result, compiled = f(mx, *inputs), mx.compile(lambda x, w: f(mx, x, w))(*inputs)
    mx.eval(result)  # before it is cast: half results are rounded
    mx.eval(compiled)
    plain = np.array(result.astype(mx.float32))
    exact = f(np, *(np.array(a.astype(mx.float32)).astype(np.float64) for a in inputs))
    # sines and cosines are taken of float32 angles below 2**10, or rounded to half
    bound = 2.0**-8 if "f16" in shapes[0] else 2.0**-12
    assert np.all(np.abs(plain - exact) <= bound * (1 + np.abs(exact)))
    assert np.array_equal(plain, np.array(compiled.astype(mx.float32)))


@pytest.mark.parametrize(
    ("f", "stages"),
    [
        (lambda x, p: x * p[:, 1] + p[:, 2], 3),
        (lambda x, p: (x * p[:, 1]).sum(0), 3),
        (lambda x, p: x * (x + 1)[:, 0], 2),
        (lambda x, p: x[None] * p.reshape(64, 1, 8, 8)[:, :, 3, 2][:, 0], 2),
        # of one column, for few rows, along memory by another axis, or backwards
        (lambda x, p: x * p[:, 1:2], 1),
        (lambda x, p: x[:4] * p[:, 1], 1),
        (lambda x, p: x.reshape(16, 16, 16) * p[:16, :16].T, 1),
        (lambda x, p: x * x[0][::-1], 1),
    ],
)
def test_what_lies_apart_is_copied_for_who_reads_it_again(f, stages):
    """As a column of a matrix that scales the columns of another."""
    x, p = make_input("f32[64,64]", 1), make_input("f32[64,64]", 2)
    kernels = mx.explain(lambda: f(x, p)).kernels
    assert [k.ir.count("for stage") for k in kernels] == [stages]
    exact = f(*(np.array(a).astype(np.float64) for a in (x, p)))
    result = f(x, p)
    assert np.allclose(np.array(result), exact, rtol=1e-5, atol=1e-5)
    assert np.array_equal(result, mx.compile(f)(x, p))


def test_an_array_that_lies_apart_is_copied_for_who_reads_it_again(tmp_path):
    """The column is there before the graph is made."""
    script = """
        import cermet.core as mx
        x, p = mx.ones((64, 64)), mx.arange(4096).reshape(64, 64)
        column = p[:, 3]
        mx.eval(x, column)
        print((x * column)[1].tolist(), end="")
    """
    column = [float(i) for i in range(3, 4096, 64)]
    assert own_process.run(script, CERMET_DUMP=str(tmp_path)) == str(column)
    kernels = [path.read_text() for path in tmp_path.glob("*given.ir")]
    assert [k.count("for stage") for k in kernels if "multiply" in k] == [2]


@pytest.mark.parametrize(("n", "kernels"), [(70_000, 2), (1000, 1)])
def test_many_computed_indices_are_made_before_an_update(n, kernels):
    """Every thread would compute all of them, one by one."""
    numbers = make_input(f"f32[{n}]", 1)
    weights = mx.arange(n) % 7

    def histogram(x, w):
        return mx.zeros(64, dtype=mx.int32).at[mx.floor(x * 6 + 32).astype(mx.int32)].add(w)

    plain = np.array(numbers)
    expected = np.zeros(64, np.int64)
    np.add.at(expected, np.floor(plain * 6 + 32).astype(np.int64), np.arange(n) % 7)
    assert np.array_equal(histogram(numbers, weights), expected)
    assert np.array_equal(mx.compile(histogram)(numbers, weights), expected)
    zeros, *made = mx.explain(histogram, numbers, weights).kernels
    assert ["floor" in {name for name, *_ in k.ops} for k in made] == [True, False][:kernels]


def forces(m, x):
    d = x[None] - x[:, None]
    r = (d * d).sum(-1) + 0.01
    return (d * (r**-1.5)[..., None]).sum(1)


@pytest.mark.parametrize("points", [200, 600])
def test_dear_values_of_a_few_lanes_are_made_before_they_go_down_columns(points):
    """A power for each pair of points is made in vectors, not one by one for three coordinates."""
    x = mx.random.normal((points, 3), key=mx.random.key(1))
    kernels = mx.explain(lambda x: forces(mx, x), x).kernels
    assert ["power" in {name for name, *_ in k.ops} for k in kernels] == [True, False]
    exact = forces(np, np.array(x).astype(np.float64))
    bound = 1e-5 * np.abs(exact).max()  # of 600 terms, some near 1000
    assert np.abs(np.array(forces(mx, x)) - exact).max() <= bound
    assert np.array_equal(forces(mx, x), mx.compile(lambda x: forces(mx, x))(x))


# Where a half in between overflows, or is far too coarse.
WIDE_INSIDE = {
    "RMS norm": lambda m, x: x * (1 / m.sqrt(m.mean(x * x) + 1e-5)),
    "RMS norm of squares": lambda m, x: x * (1 / m.sqrt(m.mean(x**2) + 1e-5)),
    "standardised": lambda m, x: (x - m.mean(x)) * (1 / m.sqrt(m.var(x) + 1e-5)),
    "standard deviation": lambda m, x: m.std(x),
    "of small numbers": lambda m, x: m.std(x * 2.0**-11 * 2.0**-11) * 2048 * 2048,
    "hypotenuse": lambda m, x: m.hypot(x * 200, x * 200) / 200,
    "sums of pairs": lambda m, x: m.sum(m.abs(x).reshape(-1, 2) * 120, axis=1) / 120,
}


@pytest.mark.parametrize("size", [2, 8192])
@pytest.mark.parametrize("name", WIDE_INSIDE)
def test_halves_inside_a_kernel_are_wide(name, size):
    """Of ops that are graphs of others, too: rounded once, where the result is stored."""
    f = WIDE_INSIDE[name]
    x = np.resize(np.array([-300, 300]), size)
    want = f(np, x.astype(np.float64))
    for g in (lambda x: f(mx, x), mx.compile(lambda x: f(mx, x))):
        for _ in range(3):
            got = np.array(g(mx.array(x, dtype=mx.float16)))
            assert got.dtype == np.float16
            np.testing.assert_allclose(got, want, rtol=2**-11)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_products_round_what_is_made_before_them(dtype):
    """A product takes what an op before it would have stored; its scheme is that of the dtype."""
    x, w = make_input(f"{dtype}[200,160]", 1), make_input(f"{dtype}[160,300]", 2)
    scale, bias = make_input(f"{dtype}[160]", 3), make_input(f"{dtype}[160,1]", 4)
    report = mx.explain(lambda *a: (a[0] * a[2]) @ (a[1] + a[3]), x, w, scale, bias)
    assert len(report.kernels) == 1
    schemes = [k.scheme for k in (report.kernels[0], mx.explain(mx.matmul, x, w).kernels[0])]
    assert len({s.replace("_tall", "") for s in schemes}) == 1  # blocks may differ: A is packed
    left, right = x * scale, w + bias
    mx.eval(left, right)
    fused, apart = (x * scale) @ (w + bias), left @ right
    mx.eval(fused, apart)
    fused, apart = (np.array(a.astype(mx.float32)) for a in (fused, apart))
    assert np.array_equal(fused, apart)


def test_the_one_row_of_a_product_is_made_once():
    """It has no packing: in the product's kernel it would be made anew for each column."""
    random = np.random.default_rng(7)
    q, k, w = (random.standard_normal(s, np.float32) for s in [(4, 1, 64), (4, 256, 64), (64,)])

    def f(m, q, k, w):
        a, b, c, s = q[..., :32], q[..., 32:], w[:32], w[32:]
        turned = m.concatenate([a * c - b * s, a * s + b * c], axis=-1) * 0.5 + w
        return turned @ m.swapaxes(k, -1, -2)

    wide = f(np, *(v.astype(np.float64) for v in (q, k, w)))
    for run in (lambda *v: f(mx, *v), mx.compile(lambda *v: f(mx, *v))):
        launched, (result,) = kernels_of(run, [mx.array(v) for v in (q, k, w)])
        assert launched == 2
        np.testing.assert_allclose(result, wide, rtol=0, atol=2e-5)


def test_views_of_an_array_share_strides():
    """One word for the three that are read, one for the result."""
    x = mx.zeros((64, 10))
    kernel = mx.explain(lambda x: x[:, :4] * x[:, 4:8] - x[:, 1:5], x).kernels[0]
    assert "\n  strides 2\n" in kernel.ir


LATE_HALVES = {
    "mean": lambda x, c: mx.mean(mx.tanh(x) * c) * mx.array(2**-7, c.dtype),
    "var": lambda x, c: mx.sum(mx.var(x * c, axis=-1)),
    "std": lambda x, c: mx.sum(mx.std(x * c, axis=-1)),
    "rms_norm": lambda x, c: mx.sum(mx.fast.rms_norm(x * c, None, 1e-5) * c),
    "layer_norm": lambda x, c: mx.sum(mx.fast.layer_norm(x * c, None, None, 1e-5) * c),
}


@pytest.mark.parametrize("name", LATE_HALVES)
def test_gradients_inside_a_kernel_are_wide(name):
    """What ops compute in float32 of halves has a derivative that is rounded where it is stored, to
    float32 here, not on the way: small ones are not lost."""
    f = LATE_HALVES[name]
    x, c = (make_input("f16[64,256]", seed) for seed in (1, 2))

    def gradient(x, c):
        return mx.grad(lambda x: f(x, c).astype(mx.float32))(x).astype(mx.float32)

    wide = [a.astype(mx.float64) for a in (x, c)]
    want = np.array(mx.grad(f)(*wide))
    assert len(mx.explain(gradient, x, c).kernels) == 1
    for run in (gradient, mx.compile(gradient)):
        np.testing.assert_allclose(
            np.array(run(x, c)), want, rtol=1e-5, atol=2e-6 * np.abs(want).max()
        )
