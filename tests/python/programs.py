# SPDX-License-Identifier: MIT
"""Small programs as users write them: cells, caches, losses, messages. Each gives one array."""

import cermet.core as mx


def lstm(x, wx, wh):
    h = c = mx.zeros((x.shape[0], wh.shape[0]))
    gates = x @ wx
    for t in range(x.shape[1]):
        i, f, g, o = mx.split(gates[:, t] + h @ wh, 4, axis=-1)
        c = mx.sigmoid(f) * c + mx.sigmoid(i) * mx.tanh(g)
        h = mx.sigmoid(o) * mx.tanh(c)
    return h


def gru(x, wx, wh):
    h, states = mx.zeros((x.shape[0], wh.shape[0])), []
    for t in range(x.shape[1]):
        (r, z, n), (hr, hz, hn) = (mx.split(a, 3, axis=-1) for a in (x[:, t] @ wx, h @ wh))
        z = mx.sigmoid(z + hz)
        h = (1 - z) * mx.tanh(n + mx.sigmoid(r + hr) * hn) + z * h
        states.append(h)
    return mx.stack(states, axis=1)


def cached_attention(q, k, new):
    cache = mx.zeros((1, 6, 4), dtype=k.dtype)
    cache[:, :3] = k
    cache[:, 3:4] = new
    keys = cache[:, :4]
    return mx.softmax(q @ keys.swapaxes(1, 2) * 0.5, axis=-1) @ keys


def mixture_of_experts(x, gate, w):
    weights = mx.softmax(x @ gate, axis=-1)
    chosen = mx.stop_gradient(mx.argmax(weights, axis=-1))
    scale = mx.take_along_axis(weights, chosen[:, None], axis=-1)
    masked = sum((chosen == e)[:, None] * mx.tanh(x @ w[e]) for e in range(w.shape[0]))
    return scale * (masked + (x[:, None] @ w[chosen])[:, 0])


def preference_loss(a, b, targets, mask):
    def score(x):
        x = x - mx.logsumexp(x, axis=-1, keepdims=True)
        return (mx.take_along_axis(x, targets[..., None], -1).squeeze(-1) * mask).sum(-1)

    return mx.logaddexp(0, score(b) - score(a))


def alignment(scores):
    """Of a path through rows: the forward variables."""
    a = scores[0]
    for row in scores[1:]:
        a = mx.logaddexp(a, mx.concatenate([mx.array([-1e3]), a[:-1]])) + row
    return a


def transport(cost):
    k = -cost / 0.5
    for _ in range(3):
        k = k - mx.logsumexp(k, axis=1, keepdims=True)
        k = k - mx.logsumexp(k, axis=0, keepdims=True)
    return mx.exp(k)


def advantages(rewards, values):
    last, result = mx.zeros(rewards.shape[1:]), []
    for t in reversed(range(rewards.shape[0])):
        last = rewards[t] + 0.9 * values[t + 1] - values[t] + 0.8 * last
        result.insert(0, last)
    result = mx.stack(result)
    return (result - result.mean()) / (mx.std(result) + 0.1)


def messages(x, w, source, target):
    """Of a graph, the mean of what comes to each node."""
    count = mx.zeros((x.shape[0],)).at[target].add(mx.ones(target.shape))
    return mx.zeros_like(x @ w).at[target].add((x @ w)[source]) / (count + 1)[:, None]


def running_attention(q, k, v):
    q, k = mx.exp(q), mx.exp(k)
    sums = mx.cumsum(k[:, :, None] * v[:, None], axis=0)
    return (q[:, None] @ sums)[:, 0] / (q * mx.cumsum(k, axis=0)).sum(-1, keepdims=True)


def contrast(a, b, scale):
    a, b = (x * mx.rsqrt((x * x).sum(-1, keepdims=True)) for x in (a, b))
    scores = mx.exp(scale) * a @ b.T
    targets = mx.arange(a.shape[0])
    return mx.fast.cross_entropy(scores, targets) + mx.fast.cross_entropy(scores.T, targets)
