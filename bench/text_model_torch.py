# SPDX-License-Identifier: MIT
"""The model of examples/text_model in torch, for the bench; `sizes`: Sizes of cases.training."""

import torch
import torch.nn.functional as F
from torch import nn


class Rope(nn.Module):
    """Rotary positions, halves rotated, base 10 000."""

    def __init__(self, dims, context, offset=0):
        super().__init__()
        frequencies = 10_000 ** (-torch.arange(0, dims // 2) * 2 / dims)
        angles = torch.arange(offset, offset + context)[:, None] * frequencies
        self.register_buffer("cos", torch.cos(angles))
        self.register_buffer("sin", torch.sin(angles))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes.heads
        linear = [nn.Linear(sizes.dims, sizes.dims, bias=False) for _ in range(4)]
        self.query, self.key, self.value, self.out = linear
        self.rope = Rope(sizes.dims // sizes.heads, sizes.context)

    def forward(self, x):
        B, T, D = x.shape

        def split(y):
            return y.reshape(B, T, self.heads, -1).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        y = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.attention = Attention(sizes)
        self.norm1 = nn.RMSNorm(sizes.dims, eps=1e-5)
        self.norm2 = nn.RMSNorm(sizes.dims, eps=1e-5)
        self.gate = nn.Linear(sizes.dims, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.dims, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.dims, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class TextModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dims)
        self.blocks = nn.ModuleList([Block(sizes) for _ in range(sizes.layers)])
        self.norm = nn.RMSNorm(sizes.dims, eps=1e-5)
        self.head = nn.Linear(sizes.dims, sizes.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def step(lib, sizes):
    """A training step; lib.compile compiles loss and gradients, or does nothing."""
    model = TextModel(sizes)
    optimizer = torch.optim.AdamW(
        model.parameters(), sizes.learning_rate, sizes.betas, weight_decay=sizes.weight_decay
    )
    text = torch.from_numpy(sizes.tokens()).long()
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss_of(x, y):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    loss_of = lib.compile(loss_of)

    def run():
        with torch.enable_grad():
            optimizer.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), sizes.clip)
            optimizer.step()
        return loss.detach()

    return run
