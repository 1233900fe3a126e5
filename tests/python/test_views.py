# SPDX-License-Identifier: MIT
"""Views: `view` as another dtype against NumPy's, with the kernels that it takes (none where NumPy
takes none, one where the bytes of the last axis do not lie side by side), and reshapes."""

import itertools

import cermet.core as mx
import numpy as np
import own_process
import pytest

DTYPES = (
    "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128"
).split()
LAID_OUT = {
    "whole": lambda x: x,
    "part": lambda x: x[1:, 4:],
    "reversed rows": lambda x: x[::-1],
    "every other row": lambda x: x[1::2],
    "one row": lambda x: x[2:3],
    "nothing": lambda x: x[:0],
    "every other column": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
}
COPIED = ("every other column", "transposed")


def launched(make, *inputs):
    """What `make` gives, and the kernels that it takes."""
    before = mx.counters()["kernels_launched"]
    made = make(*inputs)
    mx.eval(made)
    return made, mx.counters()["kernels_launched"] - before


def ready(x):
    a = mx.array(x, dtype=getattr(mx, x.dtype.name))
    mx.eval(a)
    return a


def viewed(x, target):
    """NumPy's view of the same bytes; None where it refuses."""
    try:
        return np.ascontiguousarray(x).view(target)
    except ValueError:
        return None


@pytest.mark.parametrize("layout", LAID_OUT)
def test_views_are_numpys_bits_and_take_no_kernel(rng, layout):
    bits = rng.integers(0, 256, (6, 64), dtype=np.uint8)
    for source, target in itertools.product(DTYPES, DTYPES):
        x = LAID_OUT[layout](bits.view(source))
        want = viewed(x, target)
        part = LAID_OUT[layout](ready(bits.view(source)))
        mx.eval(part)
        if want is None:
            with pytest.raises(ValueError, match="does not divide"):
                part.view(getattr(mx, target))
            continue
        got, kernels = launched(lambda a, t: a.view(getattr(mx, t)), part, target)
        # Complex numbers are made of real ones of half their size.
        in_place = source == target or (
            x.itemsize == want.itemsize and "c" not in x.dtype.kind + want.dtype.kind
        )
        assert kernels == (layout in COPIED and not in_place), f"{source} as {target}"
        assert got.dtype == getattr(mx, target) and got.shape == want.shape
        if kernels == 0:
            assert np.array(got).tobytes() == want.tobytes(), f"{source} as {target}"
        else:  # which NaN an operation gives is left open
            np.testing.assert_array_equal(np.array(got), want, f"{source} as {target}")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("start", range(9))
def test_wider_elements_of_any_place(rng, start, compiled):
    """What does not begin at a multiple of the wider size is moved: no element lies across two."""
    bits = rng.integers(0, 256, 256, dtype=np.uint8)
    whole = ready(bits)
    part = whole[start : start + 128]
    mx.eval(part)
    for target in ("int16", "float32", "int64", "complex128"):
        f = lambda x, t=target: x.view(getattr(mx, t))  # noqa: E731
        want = bits[start : start + 128].view(target)
        got, kernels = launched(mx.compile(f) if compiled else f, part)
        np.testing.assert_array_equal(np.array(got), want)
        assert kernels == (start % want.itemsize != 0)


def test_memory_of_numpy_at_odd_places(rng):
    bits = rng.integers(0, 256, 4097, dtype=np.uint8)
    for start in (0, 1, 4):
        x = bits[start : start + 4088].view(np.uint8)
        for f in (lambda a: a.view(mx.int64), mx.compile(lambda a: a.view(mx.int64))):
            np.testing.assert_array_equal(np.array(f(mx.array(x))), x.view(np.int64))


def test_views_share_memory_with_numpy(rng):
    x = ready(rng.standard_normal((8, 16)).astype(np.float32))
    view = x[2:].view(mx.int16)
    mx.eval(view)
    whole, part = np.array(x, copy=False), np.array(view, copy=False)
    assert part.ctypes.data == whole.ctypes.data + 2 * 64
    np.testing.assert_array_equal(part, whole[2:].view(np.int16))


def test_views_among_other_ops(rng):
    x = rng.standard_normal((32, 64)).astype(np.float32)
    a = ready(x)
    for make, want, kernels in (
        (lambda a: (a * 2).view(mx.int32), (x * 2).view(np.int32), 1),
        (lambda a: (a * 2).view(mx.int32) ^ 1, (x * 2).view(np.int32) ^ 1, 1),
        (lambda a: (a * 2).view(mx.int16), (x * 2).view(np.int16), 1),
        (lambda a: a.view(mx.int16) + 1, x.view(np.int16) + 1, 1),
        (lambda a: a.view(mx.int64) + 1, x.view(np.int64) + 1, 1),
        (lambda a: (a * 2).view(mx.complex64), (x * 2).view(np.complex64), 1),
        (lambda a: a[::2].view(mx.int64).T[::-1], x[::2].view(np.int64).T[::-1], 0),
        (lambda a: a.view(mx.uint8)[:, 8:24].view(mx.int64), x.view("u1")[:, 8:24].view("i8"), 0),
        (lambda a: a.view(mx.uint8)[:, 3:19].view(mx.int64), x.view("u1")[:, 3:19], 1),
        (lambda a: a.view(mx.int16).view(mx.complex128).view(mx.float32), x, 0),
        (lambda a: a.view(mx.int32).reshape(64, 32).view(mx.float32), x.reshape(64, 32), 0),
        (lambda a: a.view(mx.bool_), np.ascontiguousarray(x.view(np.uint8) != 0), 1),
    ):
        got, took = launched(make, a)
        want = np.ascontiguousarray(want).view(np.array(got).dtype)
        np.testing.assert_array_equal(np.array(got), want)
        assert took == kernels


def test_a_view_and_what_it_is_of_are_both_results(rng):
    x = rng.standard_normal(1000).astype(np.float32)

    def f(a):
        made = a + 1
        return made, made.view(mx.int16), made.view(mx.int64)

    for call in (f, mx.compile(f)):
        got, kernels = launched(call, ready(x))
        assert kernels == 1
        for part, dtype in zip(got, ("f4", "i2", "i8"), strict=True):
            np.testing.assert_array_equal(np.array(part), (x + 1).view(dtype))


def test_what_a_view_shows_is_not_written_over(rng):
    """In place only where nobody else holds the memory, by whatever dtype."""
    x = rng.standard_normal(1 << 16).astype(np.float32)
    for hold in (False, True):
        a = mx.array(x) * 1
        mx.eval(a)
        view = a.view(mx.int32)
        mx.eval(view)
        held = a if hold else None
        del a
        more = view + 1
        del view
        mx.eval(more)
        np.testing.assert_array_equal(np.array(more), x.view(np.int32) + 1)
        if held is not None:
            np.testing.assert_array_equal(np.array(held), x)


@pytest.mark.parametrize("compiled", [False, True])
def test_memory_of_a_view_is_taken_over(rng, compiled):
    """A result of the same size goes where an input lies that is read as bits."""
    n = 1 << 20
    x = rng.standard_normal(n).astype(np.float32)
    f = lambda a: a.view(mx.int32) + 1  # noqa: E731
    f = mx.compile(f) if compiled else f
    mx.eval(f(mx.array(x) * 1))
    a = mx.array(x) * 1
    mx.eval(a)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    got = f(a)
    del a
    mx.eval(got)
    assert mx.get_peak_memory() - before < 4 * n
    np.testing.assert_array_equal(np.array(got), x.view(np.int32) + 1)


@pytest.mark.parametrize("dtype", ["int32", "int16", "int64"])
@pytest.mark.parametrize("held", [False, True])
def test_updates_of_views(rng, dtype, held):
    x = rng.standard_normal((64, 32)).astype(np.float32)
    want = x.copy().view(dtype)
    want[3:5, 2:4] = 7
    want[[1, 9]] += 1
    a = mx.array(x) * 1
    mx.eval(a)
    b = a.view(getattr(mx, dtype))
    b[3:5, 2:4] = 7
    b = b.at[mx.array([1, 9])].add(1)
    kept = a if held else None
    del a
    mx.eval(b)
    np.testing.assert_array_equal(np.array(b), want)
    if kept is not None:
        np.testing.assert_array_equal(np.array(kept), x)


def test_transforms_of_views(rng):
    x = rng.standard_normal((4, 6, 8)).astype(np.float32)
    for target in ("int32", "int16", "int64", "complex64", "complex128"):
        got, kernels = launched(mx.vmap(lambda a, t=target: a.view(getattr(mx, t))), ready(x))
        np.testing.assert_array_equal(np.array(got), x.view(target))
        assert kernels == 0

    def through_bits(a):
        return (a.view(mx.int32).view(mx.float32) * a).sum()

    a = ready(x)
    np.testing.assert_array_equal(np.array(mx.grad(through_bits)(a)), x)  # bits have no derivative

    def through_pairs(a):
        z = a.view(mx.complex64)
        return (mx.abs(z * (2 + 1j)) ** 2).sum() + (z.view(mx.float32) * 3).sum()

    np.testing.assert_allclose(np.array(mx.grad(through_pairs)(a)), 10 * x + 3, rtol=1e-5)


def test_explain_tells_of_no_kernel(rng):
    a = ready(rng.standard_normal((8, 16)).astype(np.float32))
    assert len(mx.explain(lambda x: x.view(mx.int16), a).kernels) == 0
    report = mx.explain(lambda x: x.view(mx.int16) + 1, a)
    assert len(report.kernels) == 1
    assert report.kernels[0].bytes_read == a.nbytes


LARGE = (512, 1024)
RESHAPED = {
    "roll": (lambda a: mx.roll(a, 5), lambda x: np.roll(x, 5)),
    "flip": (lambda a: a.reshape(-1, 128)[:, ::-1] + 0, lambda x: x.reshape(-1, 128)[:, ::-1]),
    "pad": (lambda a: mx.pad(a.reshape(-1, 256), 1), lambda x: np.pad(x.reshape(-1, 256), 1)),
    "concatenate": (
        lambda a: mx.concatenate([a.reshape(-1, 256), a.reshape(-1, 256)[::-1]], 1),
        lambda x: np.concatenate([x.reshape(-1, 256), x.reshape(-1, 256)[::-1]], 1),
    ),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_reshapes_are_read_where_they_lie(rng, name):
    """Not by dividing their coordinates: what is no view is copied in its order first."""
    ours, theirs = RESHAPED[name]
    x = rng.standard_normal(LARGE).astype(np.float32)
    for f, want, kernels in (
        (ours, theirs(x), 1),
        (lambda a: ours(a * 2), theirs(x * 2), 2),
        (lambda a: ours(a[::-1]), theirs(x[::-1]), 2),
    ):
        report = mx.explain(f, ready(x)).kernels
        assert len(report) == kernels
        assert not any("div(" in kernel.ir for kernel in report)
        np.testing.assert_array_equal(np.array(f(ready(x))), want)


def test_small_reshapes_are_made_where_they_are_read(rng):
    x = rng.standard_normal((4, 6)).astype(np.float32)
    got, kernels = launched(lambda a: mx.pad((a * 2).reshape(3, 8), 1), ready(x))
    assert kernels == 1
    np.testing.assert_array_equal(np.array(got), np.pad((x * 2).reshape(3, 8), 1))


@pytest.mark.parametrize("level", ["generic", "avx2", "avx512"])
def test_nothing_is_read_beside_columns_and_empty_arrays(level):
    """Rows of the edge, and of arrays of nothing, are left out as wholes."""
    script = """
        import cermet.core as mx
        edges = [(2, 2), (2, 2), (0, 1), (1, 0), (2, 2)]
        for dtype in (mx.int16, mx.float32, mx.complex64):
            column, nothing = mx.arange(64).astype(dtype), mx.zeros((0, 4, 8, 33), dtype)
            mx.eval(column, nothing)
            narrow = mx.broadcast_to(column[:, None], (64, 2))[:, :1]
            padded = mx.pad(narrow, [(0, 1), (1, 1)])
            made = mx.pad(mx.expand_dims(nothing, 3), edges)
            square = mx.diag(column, 3)
            for a in (padded, made, square):
                mx.eval(a)
                print(a.real.sum().item())
    """
    printed = own_process.run(script, CERMET_CPU_FEATURES=level, CERMET_ALLOCATOR="guard")
    assert [float(n) for n in printed.split()] == [2016, 0, 2016] * 3


def test_what_is_picked_along_the_innermost_axis_lies_in_its_own_order(rng):
    """Columns that indices choose are written row by row; rows, as they are read."""
    x = rng.standard_normal((40, 50)).astype(np.float32)
    columns, rows = rng.integers(-50, 50, (2, 30)), rng.integers(-40, 40, 60)
    for make, want, is_in_order in (
        (lambda a: mx.take(a, mx.array(columns), axis=1), x[:, columns], True),
        (lambda a: a[:, mx.array(columns[0])], x[:, columns[0]], True),
        (lambda a: a[:, mx.array(columns[0])].T, x[:, columns[0]].T, False),
        (lambda a: a[mx.array(rows)], x[rows], True),
        (lambda a: a[mx.array(rows)].T, x[rows].T, False),
        (lambda a: a[None, :, mx.array(columns[0])], x[None, :, columns[0]], True),
    ):
        got, kernels = launched(make, ready(x))
        shown = np.array(got, copy=False)
        np.testing.assert_array_equal(shown, want)
        assert kernels == 1 and shown.flags.c_contiguous == is_in_order


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 17), (64, 64), (5, 300), (130, 129)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
def test_neighbours_around_the_edges(rng, shape, dtype):
    """Sums of rolls along two axes: more choices between pieces than there are loops for them."""
    x = rng.integers(-8, 8, shape).astype(dtype)
    a = mx.array(x, getattr(mx, dtype))
    for shifts in (
        [(1, 0), (-1, 0), (1, 1), (-1, 1)],
        [(1, 0), (-1, 0), (2, 0), (-2, 0)],
        [(k, 1) for k in range(1, 8)],
        [(s, axis) for axis in (1, 0) for s in (3, -2, 1)],
    ):
        want = sum(np.roll(x, s, axis) for s, axis in shifts)
        got = sum(mx.roll(a, s, axis) for s, axis in shifts)
        np.testing.assert_array_equal(np.array(got), want)


def between_views(xp, scan, shape, order):
    """A scan of all of x, whose result is folded into `shape`, turned, and used in that order."""

    def f(x, weights):
        turned = xp.transpose(scan(xp.reshape(x, (-1,))).reshape(shape), order)
        return turned + 1, turned * weights, (turned * weights).sum()

    return f


SCANS = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scans_count_in_their_own_order_whatever_that_of_their_users(rng, name, reverse):
    def scanned(x):
        ends = x[::-1] if reverse else x
        made = SCANS[name](ends).astype(np.int64)
        return made[::-1] if reverse else made

    for shape in ((2, 6), (2, 2, 3), (3, 2, 1, 2)):
        x = rng.integers(-3, 4, (4, 3))
        for order in itertools.permutations(range(len(shape))):
            weights = rng.integers(-3, 4, [shape[k] for k in order])
            want = between_views(np, scanned, shape, order)(x, weights)
            ours = between_views(mx, lambda a: getattr(mx, name)(a, reverse=reverse), shape, order)
            for f in (ours, mx.compile(ours)):
                for made, right in zip(f(mx.array(x), mx.array(weights)), want, strict=True):
                    np.testing.assert_array_equal(np.array(made), right, err_msg=f"{shape} {order}")
