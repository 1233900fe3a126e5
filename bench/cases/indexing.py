# SPDX-License-Identifier: MIT
"""Moving data to other places: as fast as it can be copied."""

from case import ARRAY_PEERS, Case, add
from gates import Faster, Share

TABLE, DIMS, ROWS = 32768, 1024, 8192
SIDE = 4096
ONE = 4 * SIDE * SIDE
IMAGES = 64, 224, 224, 3
SHORT_HEADS = 64, 1024, 32, 8
ELEMENTS = 1 << 24


def gather(count, size, dims):
    def build(lib):
        table, rows = lib.normal(size, dims), lib.distinct(count, size)
        f = lib.call(lambda table, rows: table[rows])
        return lambda: f(table, rows)

    return build


def scatter_add(lib):
    """Into a table that nobody else holds; not even its last state is kept."""
    held = [lib.normal(TABLE, DIMS)]
    rows, updates = lib.distinct(ROWS, TABLE), lib.normal(ROWS, DIMS, seed=1)
    f = lib.in_place(lib.add_rows)

    def run():
        held.append(f(held.pop(), rows, updates))
        lib.wait(held[0])

    return run


def repeated(places, row=()):
    """Updates of few or many places, each many times."""

    def build(lib):
        points = ELEMENTS // (row[0] if row else 1)
        held = [lib.normal(places, *row)]
        indices = lib.uniform(points, low=0, high=places - 1, dtype="i32")
        updates = lib.normal(points, *row, seed=1)
        f = lib.in_place(lib.add_rows)

        def run():
            held.append(f(held.pop(), indices, updates))
            lib.wait(held[0])

        return run

    return build


def transposing_copy(lib):
    x = lib.normal(SIDE, SIDE)
    f = lib.call(lambda x: lib.contiguous(x.T))
    return lambda: f(x)


def split_heads(lib):
    """Features of each of 16 heads together, as attention wants them."""
    x = lib.normal(4, 4096, 16, 64)
    f = lib.call(lambda x: lib.contiguous(lib.transpose(x, (0, 2, 1, 3))))
    return lambda: f(x)


def space_to_depth(lib):
    x = lib.normal(2, 64, 256, 512)
    f = lib.call(
        lambda x: lib.contiguous(
            lib.transpose(x.reshape(2, 64, 128, 2, 256, 2), (0, 1, 3, 5, 2, 4))
        )
    )
    return lambda: f(x)


def patches_of_pixels(lib):
    """Images with channels last in patches of 4 × 4, as small vision transformers take them."""
    x = lib.normal(*IMAGES)
    images, height, width, channels = IMAGES
    f = lib.call(
        lambda x: lib.contiguous(
            lib.transpose(
                x.reshape(images, height // 4, 4, width // 4, 4, channels), (0, 1, 3, 2, 4, 5)
            )
        )
    )
    return lambda: f(x)


def short_heads(lib):
    x = lib.normal(*SHORT_HEADS)
    f = lib.call(lambda x: lib.contiguous(lib.transpose(x, (0, 2, 1, 3))))
    return lambda: f(x)


def concatenate(axis):
    def build(lib):
        parts = [lib.normal(*halved(axis), seed=i) for i in range(2)]
        f = lib.call(lambda x, y: lib.xp.concatenate([x, y], axis))
        return lambda: f(*parts)

    return build


def halved(axis):
    return tuple(SIDE // 2 if i == axis else SIDE for i in range(2))


def pad(lib):
    """One row or column of zeros on every side."""
    x = lib.normal(SIDE, SIDE)
    if lib.name.startswith("torch"):
        f = lib.call(lambda x: lib.functional.pad(x, (1, 1, 1, 1)))
    else:
        f = lib.call(lambda x: lib.xp.pad(x, 1))
    return lambda: f(x)


def mask_select(lib):
    """The result's size depends on values: no library compiles that."""
    x = lib.normal(ELEMENTS)
    mask = x > 0
    return lambda: x[mask]


MOVED_ROWS = 4 * ROWS * DIMS
for name, shape, build, moved, peers in (
    ("gather of rows", (ROWS, TABLE, DIMS), gather(ROWS, TABLE, DIMS), 2 * MOVED_ROWS, ARRAY_PEERS),
    ("scatter-add, donated", (ROWS, TABLE, DIMS), scatter_add, 3 * MOVED_ROWS, ARRAY_PEERS),
    ("transposing copy", (SIDE, SIDE), transposing_copy, 2 * ONE, ARRAY_PEERS),
    ("heads of attention", (4, 4096, 16, 64), split_heads, 2 * ONE, ARRAY_PEERS),
    ("space to depth", (2, 64, 256, 512), space_to_depth, 2 * ONE, ARRAY_PEERS),
    ("concatenate, axis 0", (SIDE, SIDE), concatenate(0), 2 * ONE, ARRAY_PEERS),
    ("concatenate, axis 1", (SIDE, SIDE), concatenate(1), 2 * ONE, ARRAY_PEERS),
    ("pad", (SIDE, SIDE), pad, 2 * ONE, ARRAY_PEERS),
):
    waits = build is not scatter_add
    add(Case(name, shape, build, Share(0.70, "copy"), bytes=moved, peers=peers, waits=waits))
for name, shape, build in (
    ("patches of 4 × 4 pixels", IMAGES, patches_of_pixels),
    ("heads of 8 features", SHORT_HEADS, short_heads),
):
    add(Case(name, shape, build, Faster(), peers=ARRAY_PEERS))
for dims in (16, 64):
    shape = ELEMENTS // dims, 2 * ELEMENTS // dims, dims
    add(Case("gather of short rows", shape, gather(*shape), Faster(), peers=ARRAY_PEERS))
for places, row in ((256, ()), (65536, ()), (1 << 22, ()), (65536, (64,))):
    add(
        Case(
            f"scatter-add into {places}" + (f" × {row[0]}" if row else ""),
            (ELEMENTS // row[0], *row) if row else (ELEMENTS,),
            repeated(places, row),
            Faster(),
            peers=ARRAY_PEERS,
            waits=False,
        )
    )
add(Case("boolean mask select", (ELEMENTS,), mask_select, Faster(3), peers=("numpy",)))
