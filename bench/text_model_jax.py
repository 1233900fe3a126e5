# SPDX-License-Identifier: MIT
"""The model of examples/text_model in JAX, for the bench; `sizes`: Sizes of cases.training."""

import jax
import jax.numpy as jnp


def new_weights(sizes):
    keys = iter(jax.random.split(jax.random.key(0), 8 * sizes.layers + 2))

    def matrix(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / rows**0.5

    def block():
        names = ("query", "key", "value", "out")
        weights = {name: matrix(sizes.dims, sizes.dims) for name in names}
        weights["gate"] = matrix(sizes.dims, sizes.hidden)
        weights["up"] = matrix(sizes.dims, sizes.hidden)
        weights["down"] = matrix(sizes.hidden, sizes.dims)
        weights["norm1"] = weights["norm2"] = jnp.ones(sizes.dims)
        return weights

    return {
        "embedding": matrix(sizes.vocabulary, sizes.dims),
        "blocks": [block() for _ in range(sizes.layers)],
        "norm": jnp.ones(sizes.dims),
        "head": matrix(sizes.dims, sizes.vocabulary),
    }


def rms_norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def rope(x, offset=0):
    """Rotary positions of (B, T, H, D), halves rotated, base 10 000."""
    half = x.shape[-1] // 2
    angles = (offset + jnp.arange(x.shape[1]))[:, None] * 10_000 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


def attention(weights, x, heads):
    B, T, D = x.shape
    q, k, v = ((x @ weights[n]).reshape(B, T, heads, -1) for n in ("query", "key", "value"))
    y = jax.nn.dot_product_attention(rope(q), rope(k), v, is_causal=True)
    return y.reshape(B, T, D) @ weights["out"]


def loss_of(weights, x, y, heads):
    h = weights["embedding"][x]
    for block in weights["blocks"]:
        h = h + attention(block, rms_norm(h, block["norm1"]), heads)
        n = rms_norm(h, block["norm2"])
        h = h + (jax.nn.silu(n @ block["gate"]) * (n @ block["up"])) @ block["down"]
    logits = rms_norm(h, weights["norm"]) @ weights["head"]
    return cross_entropy(logits, y)


def cross_entropy(logits, targets):
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def updated(sizes, state, x, y):
    """State (weights, first and second moments, step) after one step of AdamW, and the loss."""
    weights, first, second, count = state
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y, sizes.heads)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1, sizes.clip / (norm + 1e-6)), gradients)
    b1, b2 = sizes.betas
    count = count + 1
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, first, gradients)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, second, gradients)
    rate, decay = sizes.learning_rate, sizes.weight_decay

    def moved(w, m, v):
        step = m / (1 - b1**count) / (jnp.sqrt(v / (1 - b2**count)) + 1e-8)
        return w - rate * (step + decay * w)

    return (jax.tree.map(moved, weights, first, second), first, second, count), loss


def step(lib, sizes):
    """A training step, jitted as a whole; the old state's memory is given to the new one."""
    weights = new_weights(sizes)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    # Copies: memory that two of them share cannot be given away twice.
    state = [(*(jax.tree.map(jnp.copy, part) for part in (weights, zeros, zeros)), jnp.zeros(()))]
    text = jnp.array(sizes.tokens())
    x, y = text[:, :-1], text[:, 1:]
    update = jax.jit(lambda s, x, y: updated(sizes, s, x, y), donate_argnums=0)

    def run():
        state[0], loss = update(state[0], x, y)
        return loss

    return run
