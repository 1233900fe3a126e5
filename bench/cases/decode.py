# SPDX-License-Identifier: MIT
"""One token through a transformer's layers, batch 1: as fast as the weights can be read. An RMS
norm stands before attention and before the feed-forward part.

With 128 keys and values, of which one is written in place; or with arrays of them that grow by one
a token from 128 on, joined anew each time: no token sees sizes that were seen before.
"""

from case import DTYPE_BYTES, Case, add
from gates import Faster, RelativeAtMost, Share

SIZES = (
    (4, 512, 8, 2048),
    (8, 512, 8, 2048),
    (8, 768, 12, 3072),
    (12, 768, 12, 3072),
)  # layers, D, H, FF
CONTEXT = 128
EAGER_PEERS, COMPILED_PEERS = ("mlx", "torch"), ("mlx", "torch_compiled", "jax")
GROWING_PEERS = ("mlx", "torch")  # torch and jax would compile for each size


def weight_shapes(dims, hidden):
    """Of a layer's matrices, (out, in) as in a Linear."""
    square = (dims, dims)
    return {
        "query": square,
        "key": square,
        "value": square,
        "out": square,
        "up": (hidden, dims),
        "down": (dims, hidden),
    }


def weight_bytes(layers, dims, hidden, dtype):
    shapes = weight_shapes(dims, hidden).values()
    return layers * sum(a * b for a, b in shapes) * DTYPE_BYTES[dtype]


def new_layer(lib, dims, hidden, dtype, seed):
    matrices = {
        name: lib.normal(*shape, seed=seed + i, dtype=dtype)
        for i, (name, shape) in enumerate(weight_shapes(dims, hidden).items())
    }
    return matrices | {n: lib.normal(dims, seed=seed, dtype=dtype) for n in ("norm1", "norm2")}


def token_function(lib, dims, heads, remember):
    """(caches, x, layers) → (caches, x): a token's vector through all layers; `remember` gives rope
    and how keys and values get a position, for the caches at hand."""
    head = dims // heads
    one = (1, heads, 1, head) if lib.heads_first else (1, 1, heads, head)

    def through(caches, x, layers):
        rope, with_position = remember(caches)
        written = []
        for (keys, values), layer in zip(caches, layers, strict=True):
            h = lib.rms_norm(x, layer["norm1"])
            q, k, v = ((h @ layer[n].T).reshape(one) for n in ("query", "key", "value"))
            keys = with_position(keys, rope(k))
            values = with_position(values, v)
            written.append((keys, values))
            y = lib.attention(rope(q), keys, values, causal=False).reshape(1, dims)
            x = x + y @ layer["out"].T
            h = lib.rms_norm(x, layer["norm2"])
            x = x + lib.silu(h @ layer["up"].T) @ layer["down"].T
        return written, x

    return through


def in_place(lib, head):
    rope = lib.rope(head, 1, offset=CONTEXT - 1)
    return lambda caches: (rope, lambda x, new: lib.write_position(x, CONTEXT - 1, new))


def growing(lib, head):
    def remember(caches):
        length = caches[0][0].shape[lib.position_axis]
        return lib.rope(head, 1, offset=length), lib.append_position

    return remember


def decode(size, dtype, compiled, memory=in_place):
    count, dims, heads, hidden = size

    def build(lib):
        layers = [new_layer(lib, dims, hidden, dtype, 10 * i) for i in range(count)]
        shape = (1, heads, CONTEXT, dims // heads)
        if not lib.heads_first:
            shape = (1, CONTEXT, heads, dims // heads)
        x = lib.normal(1, dims, dtype=dtype)
        held = [[[lib.normal(*shape, dtype=dtype) for _ in range(2)] for _ in range(count)]]
        f = token_function(lib, dims, heads, memory(lib, dims // heads))
        if compiled:
            f = (lib.compile_in_place if memory is in_place else lib.compile)(f)

        def token():
            caches, y = f(held.pop(), x, layers)
            held.append(caches)
            lib.wait((caches, y))

        return token

    return build


for dtype in ("f32", "bf16"):
    for size in SIZES:
        layers, dims, heads, hidden = size
        moved = weight_bytes(layers, dims, hidden, dtype)
        for compiled in (True, False):
            add(
                Case(
                    f"decode, {'compiled' if compiled else 'eager'}",
                    size,
                    decode(size, dtype, compiled),
                    Share(0.90, "read") if compiled else RelativeAtMost(1.15, "compiled"),
                    dtype=dtype,
                    bytes=moved,
                    waits=False,
                    peers=COMPILED_PEERS if compiled else EAGER_PEERS,
                    baseline=None if compiled else decode(size, dtype, True),
                )
            )

    for compiled in (True, False):
        layers, dims, heads, hidden = size = SIZES[0]
        add(
            Case(
                f"decode with growing cache, {'compiled' if compiled else 'eager'}",
                size,
                decode(size, dtype, compiled, growing),
                Faster(),
                dtype=dtype,
                bytes=weight_bytes(layers, dims, hidden, dtype),
                waits=False,
                peers=GROWING_PEERS,
            )
        )
