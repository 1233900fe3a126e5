# SPDX-License-Identifier: MIT
"""What stands between the products of a model: as fast as its bytes can be moved."""

from case import Case, add
from gates import Share

GRADIENT_PEERS = ("mlx", "torch", "torch_compiled", "jax")
B, H, T, D = 8, 16, 2048, 64
VOCABULARY, DIMS, TOKENS, CONTEXT = 32768, 1024, 16384, 1024
CLASSES, ROWS = 32_000, 512
DROPPED = 0.1


def rope(lib):
    x = lib.normal(*((B, H, T, D) if lib.heads_first else (B, T, H, D)))
    f = lib.call(lib.rope(D, T))
    return lambda: f(x)


def embedding(lib):
    """Rows of a table, scaled, with their positions' rows added."""
    table, positions = lib.normal(VOCABULARY, DIMS), lib.normal(CONTEXT, DIMS, seed=1)
    tokens = lib.distinct(TOKENS, VOCABULARY).reshape(-1, CONTEXT)
    f = lib.call(lambda table, tokens, positions: table[tokens] * DIMS**0.5 + positions)
    return lambda: f(table, tokens, positions)


def dropout(lib):
    x = lib.normal(4096, 4096)
    f = lib.call(lib.dropout(DROPPED))
    return lambda: f(x)


def cross_entropy(lib):
    logits = lib.normal(ROWS, CLASSES)
    targets = lib.integers(ROWS, high=CLASSES)
    f = lib.call(lib.cross_entropy)
    return lambda: f(logits, targets)


def cross_entropy_gradient(lib):
    logits, cotangent = lib.normal(ROWS, CLASSES), lib.normal(seed=1)
    targets = lib.integers(ROWS, high=CLASSES)
    gradient = lib.gradient(lambda logits: lib.cross_entropy(logits, targets))
    f = lib.call(gradient)
    return lambda: f(logits, cotangent)


WEIGHTS = VOCABULARY, DIMS
LOGITS = 4 * ROWS * CLASSES
for name, shape, build, moved in (
    ("rope", (B, H, T, D), rope, 8 * B * H * T * D),
    ("embedding and chain", WEIGHTS, embedding, 4 * DIMS * (2 * TOKENS + CONTEXT)),
    ("dropout", (4096, 4096), dropout, 8 * 4096 * 4096),
    ("cross-entropy", (ROWS, CLASSES), cross_entropy, LOGITS),
    ("cross-entropy gradient", (ROWS, CLASSES), cross_entropy_gradient, 2 * LOGITS),
):
    add(Case(name, shape, build, Share(0.80, "copy"), bytes=moved, peers=GRADIENT_PEERS))
