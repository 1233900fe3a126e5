# SPDX-License-Identifier: MIT
"""Derivatives and batching over a table of functions, judged by properties in float64.

jvp against central differences; vjp against jvp (⟨u, J·v⟩ = ⟨Jᵀ·u, v⟩); second derivatives against
differences of gradients; vmap against a loop. Then what grad, vjp, jvp and vmap accept and refuse.
"""

import cermet.core as mx
import numpy as np
import programs
import pytest

STEP = 1e-6  # of central differences: their error is near 1e-10 of the third derivative
TOLERANCE = dict(rtol=1e-6, atol=1e-7)


def between(low, high, *shape):
    """Numbers spread over [low, high], in mixed order."""
    return ("uniform", low, high, shape or (3, 4))


def integers(below, *shape):
    return ("integers", 0, below, shape)


ANY, POSITIVE = between(-2, 2), between(0.3, 2)
SQUARE = between(-1, 1, 3, 3)
LINE = between(-1, 1, 4)
FAR = between(0.9, 1.1, 3, 4)


def make(spec, seed):
    kind, low, high, shape = spec
    random = np.random.default_rng([seed, *shape])
    if kind == "integers":
        return random.integers(low, high, shape)
    return random.uniform(low, high, shape)


def to_array(values):
    integral = values.dtype.kind in "iu"
    return mx.array(values.astype(np.int32)) if integral else mx.array(values, dtype=mx.float64)


def layer_norm(x, w, b):
    centred = x - mx.mean(x, axis=-1, keepdims=True)
    return centred * mx.rsqrt(mx.var(x, axis=-1, keepdims=True) + 0.1) * w + b


def assigned(a, values, *at):
    """At repeated indices the last holds."""
    y = a * 1
    y[at] = values
    return mx.sin(y)


def turned(a):
    """Of complex: numbers that turn with their size."""
    return a.astype(mx.complex128) + 1j * mx.sin(a)


# name, function, inputs; those with integers are not differentiated.
UNARY = {
    "exp": ANY,
    "expm1": ANY,
    "log": POSITIVE,
    "log2": POSITIVE,
    "log10": POSITIVE,
    "log1p": between(-0.5, 2),
    "sqrt": POSITIVE,
    "rsqrt": POSITIVE,
    "square": ANY,
    "reciprocal": POSITIVE,
    "abs": POSITIVE,
    "negative": ANY,
    "sin": ANY,
    "cos": ANY,
    "tan": between(-1, 1),
    "arcsin": between(-0.8, 0.8),
    "arccos": between(-0.8, 0.8),
    "arctan": ANY,
    "sinh": ANY,
    "cosh": ANY,
    "tanh": ANY,
    "arcsinh": ANY,
    "arccosh": between(1.3, 3),
    "arctanh": between(-0.8, 0.8),
    "erf": ANY,
    "erfinv": between(-0.8, 0.8),
    "sigmoid": ANY,
    "degrees": ANY,
    "radians": ANY,
}
BINARY = {
    "add": (ANY, ANY),
    "subtract": (ANY, ANY),
    "multiply": (ANY, ANY),
    "divide": (ANY, POSITIVE),
    "power": (POSITIVE, ANY),
    "maximum": (ANY, ANY),
    "minimum": (ANY, ANY),
    "logaddexp": (ANY, ANY),
    "arctan2": (ANY, POSITIVE),
}
TABLE = [(name, getattr(mx, name), [spec]) for name, spec in UNARY.items()]
TABLE += [(name, getattr(mx, name), list(specs)) for name, specs in BINARY.items()]
TABLE += [
    ("broadcast", lambda a, b: a * b + b, [ANY, between(-1, 1, 4)]),
    ("where", lambda a, b: mx.where(a > 0, a * b, b * b), [ANY, ANY]),
    ("clip", lambda a: mx.clip(a, -1, 1) * a, [ANY]),
    ("power 3", lambda a: a**3, [ANY]),
    ("sum", lambda a: mx.sum(a * a), [ANY]),
    ("row sums", lambda a: mx.sum(a * a, axis=-1), [ANY]),
    ("column sums", lambda a: mx.sum(a * a, axis=0, keepdims=True), [ANY]),
    ("mean", lambda a: mx.mean(a * a, axis=1), [ANY]),
    ("var", lambda a: mx.var(a, axis=-1), [ANY]),
    ("std", lambda a: mx.std(a, axis=-1), [ANY]),
    ("max", lambda a: mx.max(a, axis=-1) ** 2, [ANY]),
    ("min", lambda a: mx.min(a, axis=0) ** 2, [ANY]),
    ("prod", lambda a: mx.prod(a, axis=-1), [POSITIVE]),
    ("logsumexp", lambda a: mx.logsumexp(a, axis=-1), [ANY]),
    ("softmax", lambda a: mx.softmax(a, axis=-1), [ANY]),
    ("layer norm", layer_norm, [ANY, between(-1, 1, 4), between(-1, 1, 4)]),
    ("reshape", lambda a: a.reshape(2, 6) ** 2, [ANY]),
    ("transpose", lambda a: a.T * mx.sin(a).T, [ANY]),
    ("moveaxis", lambda a: mx.moveaxis(a, 0, 2) ** 2, [between(-1, 1, 2, 3, 2)]),
    ("broadcast_to", lambda a: mx.broadcast_to(a, (2, 3, 4)) ** 2, [ANY]),
    ("slice", lambda a: a[1:, ::2] ** 2, [ANY]),
    ("interleaved slices", lambda a: a[:, ::2] * mx.sin(a[:, 1::2]), [ANY]),
    (
        "slices by several steps",
        lambda a: mx.concatenate([a[:, ::2] ** 2, a[:, 1::4] * a[:, 2::4], a[:, ::5] ** 2], axis=1),
        [between(-1, 1, 3, 8)],
    ),
    ("reversed", lambda a: a[:, ::-1] * a, [ANY]),
    ("contiguous", lambda a: mx.contiguous(a.T) ** 2, [ANY]),
    ("concatenate", lambda a, b: mx.concatenate([a * a, b], axis=1), [ANY, ANY]),
    ("stack", lambda a, b: mx.stack([a * b, b]), [ANY, ANY]),
    ("split", lambda a: mx.split(a, 2, axis=1)[1] ** 2, [ANY]),
    ("pad", lambda a: mx.pad(a, 1) ** 2, [ANY]),
    ("take", lambda a, i: mx.take(a, i, axis=0) ** 2, [ANY, integers(3, 5)]),
    ("repeated take", lambda a, i: mx.sum(a[i] ** 2, axis=0), [ANY, integers(3, 7)]),
    (
        "take_along_axis",
        lambda a, i: mx.take_along_axis(a, i, axis=1) ** 2,
        [ANY, integers(4, 3, 2)],
    ),
    ("update of a slice", lambda a, b: a.at[1:, :2].add(b) ** 2, [ANY, between(-1, 1, 2, 2)]),
    ("assignment at repeated indices", assigned, [ANY, between(-1, 1, 5, 4), integers(3, 5)]),
    (
        "assignment at repeated indices of two axes",
        assigned,
        [ANY, between(-1, 1, 20), integers(3, 20), integers(4, 20)],
    ),
    (
        "assignment of one number at repeated indices",
        assigned,
        [ANY, between(-1, 1, 1), integers(3, 5)],
    ),
    (
        "put_along_axis",
        lambda a, b, i: mx.put_along_axis(a, i, b, axis=1) ** 2,
        [ANY, between(-1, 1, 3, 6), integers(4, 3, 6)],
    ),
    ("abs of complex", lambda a: mx.abs(a.astype(mx.complex128) + 1j), [ANY]),
    ("sign of complex", lambda a: mx.imag(mx.sign(turned(a)) * (1 - 2j)), [ANY]),
    ("matmul", lambda a, b: a @ b, [between(-1, 1, 3, 4), between(-1, 1, 4, 2)]),
    ("matmul, square", lambda a: a @ mx.sin(a), [SQUARE]),
    ("batched matmul", lambda a, b: a @ b, [between(-1, 1, 2, 3, 4), between(-1, 1, 4, 2)]),
    ("matrix, vector", lambda a, b: a @ b, [between(-1, 1, 3, 4), between(-1, 1, 4)]),
    ("addmm", lambda c, a, b: mx.addmm(c, a, b, 2.0, 0.5), [SQUARE, SQUARE, SQUARE]),
    (
        "gather_mm",
        lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i) ** 2,
        [between(-1, 1, 5, 2, 3), between(-1, 1, 3, 3, 4), integers(3, 5)],
    ),
    (
        "gather_mm of many rows",
        lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i) ** 2,
        [between(-1, 1, 9, 1, 3), between(-1, 1, 3, 3, 4), integers(3, 9)],
    ),
    (
        "gather_mm in order",
        lambda a, b, i: mx.gather_mm(a, b, None, i, sorted_indices=True),
        [between(-1, 1, 9, 2, 3), between(-1, 1, 3, 3, 4), integers(3, 9)],
    ),
    (
        "gather_mm by both",
        lambda a, b, i, j: mx.gather_mm(a, b, i, j),
        [between(-1, 1, 2, 2, 3), between(-1, 1, 3, 3, 4), integers(2, 5), integers(3, 5)],
    ),
    (
        "segmented_mm",
        lambda a, b: mx.segmented_mm(a, b, mx.array([[0, 3], [2, 5], [4, 4]])) ** 2,
        [between(-1, 1, 4, 5), between(-1, 1, 5, 3)],
    ),
    (
        "segmented_mm of computed segments",
        lambda a, b, i: mx.segmented_mm(a, b, i.reshape(2, 2)),
        [between(-1, 1, 4, 5), between(-1, 1, 5, 3), integers(6, 4)],
    ),
    (
        "block_masked_mm",
        lambda a, b, m: mx.block_masked_mm(a, b, 2, m, m, m),
        [between(-1, 1, 3, 4), between(-1, 1, 4, 4), between(-1, 1, 2, 2)],
    ),
    ("tril", lambda a: mx.tril(a) ** 2, [SQUARE]),
    (
        "attention",
        lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.7, mask="causal"),
        [between(-1, 1, 2, 2, 10, 3), between(-1, 1, 2, 1, 9, 3), between(-1, 1, 2, 1, 9, 2)],
    ),
    (
        "attention, mask and sinks",
        lambda q, k, v, mask, sinks: mx.fast.scaled_dot_product_attention(
            q, k, v, scale=0.7, mask=mask, sinks=sinks
        ),
        [
            between(-1, 1, 1, 2, 10, 3),
            between(-1, 1, 1, 2, 9, 3),
            between(-1, 1, 1, 2, 9, 2),
            between(-1, 1, 2, 10, 9),
            between(-1, 1, 2),
        ],
    ),
    ("roll", lambda a: mx.roll(a, 1, 1) * a, [ANY]),
    ("meshgrid", lambda a, b: mx.multiply(*mx.meshgrid(a, b)), [LINE, LINE]),
    ("unstack", lambda a: mx.multiply(*mx.unstack(a, axis=1)[:2]), [ANY]),
    ("diff", lambda a: mx.diff(a, 2) ** 2, [ANY]),
    ("diagonal", lambda a: mx.diagonal(a, 1) ** 2, [ANY]),
    ("diagonal of a block", lambda a: mx.diagonal(a, -1, 2, 0) ** 2, [between(-1, 1, 3, 2, 4)]),
    ("diag", lambda a: mx.diag(a, -1) @ mx.diag(a, -1), [LINE]),
    ("trace", lambda a: mx.trace(a @ a), [SQUARE]),
    ("as_strided", lambda a: mx.as_strided(a, (3, 3), (2, 1), 1) ** 2, [ANY]),
    ("nan_to_num", lambda a: mx.nan_to_num(a) ** 2, [ANY]),
    ("minmax", lambda a: mx.multiply(*mx.minmax(a, 1)), [ANY]),
    ("inner", lambda a, b: mx.inner(a, b), [ANY, ANY]),
    ("outer", lambda a, b: mx.outer(a, b), [LINE, LINE]),
    ("vecdot", lambda a, b: mx.vecdot(a, b, axis=0), [ANY, ANY]),
    ("kron", lambda a, b: mx.kron(a, b), [SQUARE, LINE]),
    ("tensordot", lambda a, b: mx.tensordot(a, b, [[0], [0]]), [ANY, SQUARE]),
    ("einsum", lambda a, b: mx.einsum("ij,jk,ki->i", a, b, a), [SQUARE, SQUARE]),
    ("einsum, diagonal", lambda a: mx.einsum("ii,ij->j", a, a), [SQUARE]),
    ("cumsum", lambda a: mx.cumsum(a, axis=1) ** 2, [ANY]),
    ("cumsum of all", lambda a: mx.cumsum(a * a), [ANY]),
    ("cumsum, exclusive", lambda a: mx.cumsum(a, 0, inclusive=False) ** 2, [ANY]),
    ("cumsum, reverse", lambda a: mx.cumsum(a, 0, reverse=True) ** 2, [ANY]),
    ("cumprod", lambda a: mx.cumprod(a, axis=1), [ANY]),
    ("cumprod, reverse", lambda a: mx.cumprod(a, 0, reverse=True), [ANY]),
    (
        "cumprod with zeros",
        lambda a: mx.cumprod(a * mx.array([[0.0], [1.0], [0.0]]), axis=0),
        [ANY],
    ),
    ("cumprod, exclusive", lambda a: mx.cumprod(a, 0, inclusive=False), [ANY]),
    ("cummax", lambda a: mx.cummax(a, axis=1) ** 2, [ANY]),
    ("cummin, reverse", lambda a: mx.cummin(a, axis=0, reverse=True) ** 2, [ANY]),
    ("logcumsumexp", lambda a: mx.logcumsumexp(a, axis=1), [ANY]),
    ("logcumsumexp, reverse", lambda a: mx.logcumsumexp(a, 0, reverse=True), [ANY]),
    (
        "logcumsumexp of far numbers",
        lambda a: mx.logcumsumexp(a * mx.array([0.0, 400.0, 1.0, -400.0])),
        [FAR],
    ),
    # programs
    (
        "lstm",
        programs.lstm,
        [between(-1, 1, 2, 3, 4), between(-1, 1, 4, 12), between(-1, 1, 3, 12)],
    ),
    ("gru", programs.gru, [between(-1, 1, 2, 3, 4), between(-1, 1, 4, 9), between(-1, 1, 3, 9)]),
    (
        "attention with a cache",
        programs.cached_attention,
        [between(-1, 1, 1, 2, 4), between(-1, 1, 1, 3, 4), between(-1, 1, 1, 1, 4)],
    ),
    (
        "mixture of experts",
        programs.mixture_of_experts,
        [ANY, between(-1, 1, 4, 3), between(-1, 1, 3, 4, 4)],
    ),
    (
        "loss of a preference",
        programs.preference_loss,
        [between(-1, 1, 2, 3, 5), between(-1, 1, 2, 3, 5), integers(5, 2, 3), integers(2, 2, 3)],
    ),
    ("alignment", programs.alignment, [ANY]),
    ("transport", programs.transport, [ANY]),
    ("advantages", programs.advantages, [ANY, between(-1, 1, 4, 4)]),
    ("messages", programs.messages, [ANY, between(-1, 1, 4, 2), integers(3, 6), integers(3, 6)]),
    ("running attention", programs.running_attention, [ANY, ANY, ANY]),
    ("contrast", programs.contrast, [ANY, ANY, between(-1, 1, 1)]),
]


def inputs_of(row, batch=None):
    """The row's inputs as NumPy arrays; with `batch`, that many stacked."""
    if batch is None:
        return [make(spec, seed) for seed, spec in enumerate(row[2])]
    return [
        np.stack([make(spec, 100 * k + seed) for k in range(batch)])
        for seed, spec in enumerate(row[2])
    ]


def floats(arrays):
    return [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]


def of_floats(f, arrays):
    """f as a function of its floating inputs alone, and these as arrays."""
    chosen = floats(arrays)
    whole = [to_array(a) for a in arrays]

    def g(*some):
        given = list(whole)
        for i, a in zip(chosen, some, strict=True):
            given[i] = a
        return f(*given)

    return g, [whole[i] for i in chosen]


def directions(arrays, seed=50):
    return [mx.array(make(("uniform", -1, 1, a.shape), seed), dtype=mx.float64) for a in arrays]


def moved(arrays, vectors, step):
    return [a + v * step for a, v in zip(arrays, vectors, strict=True)]


def difference(f, arrays, vectors):
    """The directional derivative of f by central differences, as a NumPy array."""
    up, down = (
        np.array(f(*moved(arrays, vectors, STEP))),
        np.array(f(*moved(arrays, vectors, -STEP))),
    )
    return (up - down) / (2 * STEP)


def gradients_of(f, arrays, argnums=None):
    """The gradients of a scalar function by those arguments, as a list also if it is one."""
    argnums = list(range(len(arrays))) if argnums is None else argnums
    gradients = mx.grad(f, argnums=argnums)(*arrays)
    return [gradients] if len(argnums) == 1 else list(gradients)


def dot(xs, ys):
    return sum(float(np.sum(np.array(x) * np.array(y))) for x, y in zip(xs, ys, strict=True))


over_table = pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])


@over_table
def test_jvp_is_the_difference(row):
    f, arrays = of_floats(row[1], inputs_of(row))
    vectors = directions(arrays)
    _, tangents = mx.jvp(f, arrays, vectors)
    np.testing.assert_allclose(np.array(tangents[0]), difference(f, arrays, vectors), **TOLERANCE)


@over_table
def test_vjp_is_the_transpose_of_jvp(row):
    f, arrays = of_floats(row[1], inputs_of(row))
    vectors = directions(arrays)
    outputs, tangents = mx.jvp(f, arrays, vectors)
    covectors = directions(outputs, seed=60)
    _, cotangents = mx.vjp(f, arrays, covectors)
    for a, c in zip(arrays, cotangents, strict=True):
        assert c.shape == a.shape and c.dtype == a.dtype
    assert dot(covectors, tangents) == pytest.approx(dot(cotangents, vectors), rel=1e-10, abs=1e-12)


@over_table
def test_second_derivative(row):
    f, arrays = of_floats(row[1], inputs_of(row))
    vectors = directions(arrays)
    covectors = directions([f(*arrays)], seed=60)

    def gradient_dot(*xs):
        """⟨∇(u·f), w⟩ with a fixed w, so that there is one scalar to differentiate again."""
        _, cotangents = mx.vjp(f, list(xs), covectors)
        return sum(mx.sum(c * w) for c, w in zip(cotangents, directions(arrays, 70), strict=True))

    _, tangents = mx.jvp(gradient_dot, arrays, vectors)
    expected = difference(gradient_dot, arrays, vectors)
    np.testing.assert_allclose(np.array(tangents[0]), expected, rtol=1e-5, atol=1e-6)
    again = gradients_of(gradient_dot, arrays)
    assert dot(again, vectors) == pytest.approx(float(expected), rel=1e-5, abs=1e-6)


@over_table
@pytest.mark.parametrize("axes", ["first", "last", "one", "out"])
def test_vmap_is_a_loop(row, axes):
    """All inputs batched at the first or last axis, or only the first input, or results at 1."""
    batch, arrays = 3, inputs_of(row, batch=3)
    singles = [
        [to_array(a[0 if axes == "one" and i else k]) for i, a in enumerate(arrays)]
        for k in range(batch)
    ]
    expected = np.stack([np.array(row[1](*single)) for single in singles])
    in_axes, out_axes = 0, 0
    if axes == "last":
        arrays, in_axes = [np.moveaxis(a, 0, -1) for a in arrays], -1
    elif axes == "one":
        arrays = [arrays[0]] + [a[0] for a in arrays[1:]]
        in_axes = (0,) + (None,) * (len(arrays) - 1)
    elif axes == "out" and expected.ndim > 1:
        out_axes, expected = 1, np.moveaxis(expected, 0, 1)
    arrays = [to_array(np.ascontiguousarray(a)) for a in arrays]
    result = mx.vmap(row[1], in_axes, out_axes)(*arrays)
    np.testing.assert_allclose(np.array(result), expected, rtol=1e-12, atol=1e-13)


@over_table
def test_vmap_of_gradient_is_a_loop(row):
    arrays = inputs_of(row, batch=3)

    def gradients(*xs):
        return gradients_of(lambda *ys: mx.sum(mx.square(row[1](*ys))), xs, floats(arrays))

    batched = mx.vmap(gradients)(*[to_array(a) for a in arrays])
    for k in range(3):
        single = gradients(*[to_array(a[k]) for a in arrays])
        for b, s in zip(batched, single, strict=True):
            np.testing.assert_allclose(np.array(b)[k], np.array(s), rtol=1e-10, atol=1e-12)


@over_table
def test_gradient_of_compiled_is_gradient(row):
    f, arrays = of_floats(row[1], inputs_of(row))

    def loss(*xs):
        return mx.sum(mx.square(f(*xs)))

    plain = gradients_of(loss, arrays)
    inside = mx.compile(lambda *xs: gradients_of(loss, xs))(*arrays)
    outside = gradients_of(mx.compile(loss), arrays)
    for a, b, c in zip(plain, inside, outside, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(np.array(a), np.array(c), rtol=1e-12, atol=1e-13)


# --- grad and value_and_grad ---


def numbers(*values):
    return mx.array(values, dtype=mx.float32)


def test_value_and_gradient():
    value, gradient = mx.value_and_grad(lambda x: (x * x).sum())(numbers(1, 2, 3))
    assert value.item() == 14 and gradient.tolist() == [2, 4, 6]


def test_argnums():
    def f(x, y, z):
        return (x * y + z).sum()

    x, y, z = numbers(1, 2), numbers(3, 4), numbers(5, 6)
    assert mx.grad(f)(x, y, z).tolist() == [3, 4]
    assert mx.grad(f, argnums=1)(x, y, z).tolist() == [1, 2]
    first, last = mx.grad(f, argnums=(0, 2))(x, y, z)
    assert first.tolist() == [3, 4] and last.tolist() == [1, 1]


def test_argnames():
    def f(x, *, scale, shift=1.0):
        return (x * scale + shift).sum()

    x, scale = numbers(1, 2), numbers(3, 4)
    value, gradients = mx.value_and_grad(f, argnums=0, argnames="scale")(x, scale=scale)
    assert value.item() == 13
    assert gradients[0].tolist() == [3, 4] and gradients[1]["scale"].tolist() == [1, 2]
    none, by_name = mx.grad(f, argnames=["scale"])(x, scale=scale)
    assert none is None and by_name["scale"].tolist() == [1, 2]


def test_trees():
    def f(weights, x):
        return (weights["a"] * x + weights["b"][0]).sum()

    weights = {"a": numbers(1, 2), "b": [numbers(3)]}
    gradients = mx.grad(f)(weights, numbers(5, 6))
    assert gradients["a"].tolist() == [5, 6] and gradients["b"][0].tolist() == [2]
    assert weights["a"].tolist() == [1, 2]


def test_auxiliary_values():
    def f(x):
        return (x * x).sum(), x + 1, "name"

    (value, more, name), gradient = mx.value_and_grad(f)(numbers(1, 2))
    assert value.item() == 5 and more.tolist() == [2, 3] and name == "name"
    assert gradient.tolist() == [2, 4]


def test_nested_gradients():
    x, expected = mx.array(0.7), [np.cos(0.7), -np.sin(0.7), -np.cos(0.7)]
    f = mx.sin
    for value in expected:
        f = mx.grad(f)
        assert f(x).item() == pytest.approx(value, abs=1e-6)


def test_stop_gradient():
    gradient = mx.grad(lambda x: (x * mx.stop_gradient(x)).sum())(numbers(2, 3))
    assert gradient.tolist() == [2, 3]


def test_unused_argument_has_zero_gradient():
    unused = mx.grad(lambda x, y: (x * 2).sum(), argnums=1)(numbers(1), numbers(2, 3))
    assert unused.tolist() == [0, 0]


def test_value_used_twice():
    x = numbers(3)
    assert mx.grad(lambda x: (x * x + x * x * x).sum())(x).tolist() == [33]


def test_evaluation_inside_a_gradient():
    def f(x):
        y = x * x
        mx.eval(y)
        return (y * 2 if y.sum().item() > 0 else y).sum()

    assert mx.grad(f)(numbers(1, 2)).tolist() == [4, 8]


def test_gradient_of_maximum_is_shared_between_equal_ones():
    x = numbers(1, 3, 3)
    assert sum(mx.grad(lambda x: x.max())(x).tolist()) == pytest.approx(1)


def test_half_gradients_keep_their_dtype():
    x = numbers(1, 2).astype(mx.bfloat16)
    assert mx.grad(lambda x: (x * x).sum())(x).dtype == mx.bfloat16


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: mx.grad(lambda x: x * 2)(numbers(1, 2)), ValueError),
        (lambda: mx.grad(lambda x: x.sum(), argnums=1)(numbers(1)), ValueError),
        (lambda: mx.grad(lambda x: 3.0)(numbers(1)), (ValueError, TypeError)),
        (lambda: mx.grad(lambda x: x.sum(), argnums=())(numbers(1)), ValueError),
        (lambda: mx.vjp(lambda x: x * 2, [numbers(1)], []), ValueError),
        (lambda: mx.jvp(lambda x: x * 2, [numbers(1)], [numbers(1, 2)]), ValueError),
        (lambda: mx.vmap(lambda x, y: x + y)(mx.zeros((2, 3)), mx.zeros((3, 3))), ValueError),
        (lambda: mx.vmap(lambda x: x, in_axes=2)(mx.zeros((2, 3))), (ValueError, IndexError)),
    ],
    ids=["vector", "argnum", "number", "none", "cotangents", "shapes", "batches", "axis"],
)
def test_refused(call, error):
    with pytest.raises(error):
        call()


def test_error_in_a_function_leaves_arrays_alone():
    x = numbers(1, 2)
    with pytest.raises(ZeroDivisionError):
        mx.grad(lambda x: 1 / 0)(x)
    assert (x * 2).tolist() == [2, 4]


# --- vjp, jvp, vmap ---


def test_vjp_of_several_outputs():
    outputs, cotangents = mx.vjp(
        lambda x, y: (x * y, x + y), [numbers(2), numbers(3)], [numbers(10), numbers(1)]
    )
    assert [o.tolist() for o in outputs] == [[6], [5]]
    assert [c.tolist() for c in cotangents] == [[31], [21]]


def test_jvp_of_several_outputs():
    outputs, tangents = mx.jvp(
        lambda x, y: (x * y, x + y), [numbers(2), numbers(3)], [numbers(1), numbers(10)]
    )
    assert [o.tolist() for o in outputs] == [[6], [5]]
    assert [t.tolist() for t in tangents] == [[23], [11]]


def test_vmap_of_trees():
    tree = {"a": mx.array(np.arange(6.0).reshape(2, 3)), "b": numbers(10, 20)}
    result = mx.vmap(lambda t: {"sum": t["a"].sum() + t["b"]})(tree)
    assert result["sum"].tolist() == [13, 32]


def test_nested_vmap():
    a, b = mx.array(np.arange(6.0).reshape(2, 3)), mx.array(np.arange(12.0).reshape(4, 3))
    outer = mx.vmap(lambda x: mx.vmap(lambda y: (x * y).sum())(b))(a)
    np.testing.assert_allclose(np.array(outer), np.array(a) @ np.array(b).T)


def test_vmap_of_captured_array():
    captured = numbers(1, 2, 3)
    result = mx.vmap(lambda x: x * captured)(mx.ones((2, 3)))
    assert result.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_jacobian_by_vmap_of_vjp():
    x = numbers(1, 2, 3)
    rows = mx.vmap(lambda u: mx.vjp(lambda x: x * x, [x], [u])[1][0])(mx.eye(3))
    np.testing.assert_allclose(np.array(rows), np.diag([2, 4, 6]))


def test_hessian_by_vmap_of_jvp_of_grad():
    x = numbers(1, 2)
    gradient = mx.grad(lambda x: x[0] ** 3 * x[1])
    columns = mx.vmap(lambda v: mx.jvp(gradient, [x], [v])[1][0])(mx.eye(2))
    np.testing.assert_allclose(np.array(columns), [[12, 3], [3, 0]], rtol=1e-6)


COMPLEX = {
    "abs of a product": lambda m, x: m.abs((1 + 1j * x) * m.exp(1j * x)),
    "real of a product": lambda m, x: m.real((x + 1j * x) * (x - 2j)),
    "imaginary part of a product": lambda m, x: m.imag(x * (2 + 1j)),
    "quotient": lambda m, x: m.real((x + 1j) / (x * x - 2j)),
    "power": lambda m, x: m.real((x + 1j) ** 2.5),
    "square": lambda m, x: m.imag(m.square(x + 1j)),
    "sine": lambda m, x: m.imag(m.sin(x * (1 - 0.5j))),
    "conjugate": lambda m, x: m.imag(m.conj(x + 1j * x * x) * (1 + 3j)),
    "cumulative product": lambda m, x: m.abs(m.cumprod(x + 1j * x)),
    "sum of exponentials": lambda m, x: m.real(m.exp((x - 1j)[:, None] * m.array([0.5, 2]))),
}


class Wide:
    """NumPy in double precision under the names that these functions use."""

    def __getattr__(self, name):
        return {"array": np.asarray, "conj": np.conj}.get(name) or getattr(np, name)


@pytest.mark.parametrize("name", COMPLEX)
def test_gradient_through_complex_numbers(name):
    """Against central differences of NumPy's function of a real argument."""
    f, at, h = COMPLEX[name], np.array([0.7, 1.3, 0.9]), 1e-6
    wide = Wide()
    slope = [(f(wide, at + h * e).sum() - f(wide, at - h * e).sum()) / (2 * h) for e in np.eye(3)]
    gradient = mx.grad(lambda x: f(mx, x).sum())(mx.array(at.astype(np.float32)))
    np.testing.assert_allclose(np.array(gradient), slope, rtol=2e-4, atol=2e-4)


def test_vmap_over_several_composites():
    """Each of them brings a graph of its own."""
    labels = mx.array([1, 0, 2, 3, 5, 4])
    w = mx.ones((6,))

    def f(x):
        loss = mx.fast.cross_entropy(x, labels) + mx.fast.cross_entropy(x * 2, labels)
        first, second = mx.fast.rms_norm(x, w, 1e-5), mx.fast.layer_norm(x.T, w, None, 1e-5)
        return loss[:, None] + first + second + mx.fast.rms_norm(x.T * 3, None, 1e-5)

    x = mx.array(np.random.default_rng(3).standard_normal((4, 6, 6)).astype(np.float32))
    each = np.stack([np.array(f(row)) for row in x])
    for run in (mx.vmap(f), mx.compile(mx.vmap(f))):
        np.testing.assert_allclose(np.array(run(x)), each, rtol=2e-5, atol=2e-5)
    slope = mx.vmap(mx.grad(lambda v: f(v).sum()))(x)
    one = np.stack([np.array(mx.grad(lambda v: f(v).sum())(row)) for row in x])
    np.testing.assert_allclose(np.array(slope), one, rtol=1e-4, atol=1e-4)


def slices_of(x):
    """Ways to read an array part by part: parts that lie apart, overlap, or repeat."""
    rows, columns = x.shape
    return {
        "rows": [x[i] for i in range(rows)],
        "every other row": [x[i] for i in range(1, rows, 2)],
        "rows, some twice": [x[i % 7] for i in range(rows)],
        "pieces": [x[i : i + 3] for i in range(rows - 3)],
        "elements": [x[i, j] for i in range(rows) for j in range(0, columns, 2)],
        "columns from the last": [x[:, -j] for j in range(1, columns)],
        "rows, and all": [x, *(x[i : i + 1] for i in range(rows))],
        "rows by number": [x[mx.array([i, -i - 1])] for i in range(rows)],
        "along an axis": [
            mx.take_along_axis(x, mx.array([[i, i, 0]] * rows), axis=1) for i in range(columns)
        ],
    }


SLICES = sorted(slices_of(mx.zeros((12, 5))))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SLICES)
def test_gradient_of_many_parts(name, compiled):
    """Against central differences; every part has its own weight."""
    x = np.random.default_rng(1).standard_normal((12, 5))

    def loss(a):
        parts = slices_of(a)[name]
        return sum(mx.sin(p * (k + 1)).sum() for k, p in enumerate(parts))

    def value(v):
        return float(loss(mx.array(v, dtype=mx.float64)).item())

    gradient = mx.grad(loss)
    got = np.array((mx.compile(gradient) if compiled else gradient)(mx.array(x, dtype=mx.float64)))
    h, want = 1e-6, np.zeros_like(x)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += h
        down[at] -= h
        want[at] = (value(up) - value(down)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_gradient_of_a_loop_over_rows_is_linear():
    """Twice the rows write twice the bytes: no row's cotangent has the size of all."""

    def written(rows):
        x = mx.ones((rows, 512))

        def loss(x):
            h = mx.zeros(512)
            for i in range(rows):
                h = mx.tanh(x[i] + h)
            return h.sum()

        mx.eval(mx.grad(loss)(x))
        mx.counters(reset=True)
        mx.eval(mx.grad(loss)(x))
        return mx.counters()["bytes_written"]

    assert written(128) < 2.5 * written(64)
