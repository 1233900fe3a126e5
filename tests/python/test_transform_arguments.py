# SPDX-License-Identifier: MIT
"""What grad and vmap call a function with. Modules and other dicts and lists of classes of one's
own are handed on, with other arrays in them as long as the call lasts; plain containers are copies.
The `mlx` wheel says what is right, where it does not end the process.
"""

import collections

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import pytest
from mlx_oracle import fill, same_values, values

CASES = {}


def case(f):
    CASES[f.__name__] = f


def linear(lib, seed=0):
    return fill(lib, lib.nn.Linear(2, 3), seed)


def points(lib):
    return lib.mx.array(values((4, 2)))


@case
def a_model(lib):
    model, x = linear(lib), points(lib)
    weight = model.weight
    seen = []

    def loss(m, x):
        seen.append(m is model)
        return lib.mx.square(m(x)).sum()

    gradients = lib.mx.grad(loss)(model, x)
    return type(gradients) is dict, gradients, seen, model.weight is weight


@case
def value_and_gradients_for_a_step(lib):
    model, optimizer = linear(lib), lib.optim.SGD(0.1)
    step = lib.mx.value_and_grad(lambda m, x: lib.mx.square(m(x)).sum())
    losses = []
    for _ in range(3):
        loss, gradients = step(model, points(lib))
        optimizer.update(model, gradients)
        losses.append(loss)
    return losses, model.parameters()


@case
def models_in_trees(lib):
    nn, mx = lib.nn, lib.mx
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)]
    model = fill(lib, nn.Sequential(*layers))
    tree = {"model": model, "rest": [mx.array(2.0), (linear(lib, 5),)]}

    def loss(t):
        x = points(lib)
        return (t["model"](x) * t["rest"][0]).sum() + mx.tanh(t["rest"][1][0](x)).sum()

    gradients = mx.grad(loss)(tree)
    kinds = [type(g).__name__ for g in gradients["model"]["layers"]]
    return gradients, kinds, model.layers[0] is layers[0]


@case
def by_number_and_by_name(lib):
    model, x = linear(lib), points(lib)

    def loss(x, m):
        return lib.mx.square(m(x)).sum()

    both = lib.mx.grad(loss, argnums=(0, 1))(x, model)
    return both, lib.mx.grad(loss, argnames="m")(x, m=model)


@case
def frozen_and_hidden_arrays_count(lib):
    model = linear(lib)
    model.freeze(keys="bias")
    model._scale = lib.mx.array(2.0)
    return lib.mx.grad(lambda m: (m(points(lib)) * m._scale).sum())(model)


@case
def what_the_function_assigns_stays(lib):
    model = linear(lib)
    before = model.weight

    def loss(m):
        m.weight = m.weight * 2
        return m(points(lib)).sum()

    gradients = lib.mx.grad(loss)(model)
    return gradients, lib.mx.allclose(model.weight, 2 * before).item()


@case
def statistics_of_a_batch_norm(lib):
    norm = lib.nn.BatchNorm(2)
    gradients = lib.mx.grad(lambda m: lib.mx.square(m(points(lib))).sum())(norm)
    return sorted(gradients), norm.running_mean, norm.running_var


@case
def second_derivatives(lib):
    mx = lib.mx

    def slope(m):
        inner = mx.grad(lambda m: mx.tanh(m(points(lib))).sum())(m)
        return sum(mx.square(g).sum() for g in inner.values())

    return mx.grad(slope)(linear(lib))


@case
def one_model_twice(lib):
    """The place that is looked at last has the gradient."""
    model = linear(lib)
    return lib.mx.grad(lambda a, b: (a(points(lib)) * b(points(lib))).sum(), argnums=(0, 1))(
        model, model
    )


@case
def classes_of_containers(lib):
    class Own(dict):
        pass

    class Row(list):
        pass

    Point = collections.namedtuple("Point", "x y")
    kinds = []

    def loss(tree):
        kinds.append(type(tree).__name__)
        leaves = tree.values() if isinstance(tree, dict) else tree
        return sum(leaf * leaf for leaf in leaves)

    a, b = lib.mx.array(2.0), lib.mx.array(3.0)
    trees = [Own(a=a, b=b), Row([a, b]), collections.OrderedDict(b=b, a=a), Point(a, b), [a], (b,)]
    gradients = [lib.mx.grad(loss)(tree) for tree in trees]
    return kinds, [dict(g) if isinstance(g, dict) else list(g) for g in gradients]


@case
def integers_beside_what_has_a_gradient(lib):
    tree = {"w": lib.mx.array([1.0, 2.0]), "index": lib.mx.array([1, 0]), "on": lib.mx.array(True)}
    return lib.mx.grad(lambda t: (t["w"] * lib.mx.array([3.0, 4.0])).sum())(tree)


@pytest.mark.parametrize("name", CASES)
def test_grad(name):
    same_values(CASES[name])


def test_a_model_has_its_arrays_after_an_error():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = [layer.weight for layer in model.layers]

    def fails(m):
        assert m.layers[0].weight is not before[0]
        raise RuntimeError("no loss")

    for transform in (mx.grad, mx.vmap):
        with pytest.raises(RuntimeError, match="no loss"):
            transform(fails)(model)
        assert all(layer.weight is w for layer, w in zip(model.layers, before, strict=True))


def test_a_model_in_a_compiled_gradient():
    model = nn.Linear(2, 3)
    x = mx.array(values((4, 2)))
    gradient = mx.grad(lambda m, x: mx.square(m(x)).sum())
    want, weight = gradient(model, x), model.weight
    compiled = mx.compile(lambda x: gradient(model, x))
    for _ in range(2):
        for name, g in compiled(x).items():
            np.testing.assert_allclose(np.array(g), np.array(want[name]), rtol=1e-6)
    assert model.weight is weight


def test_new_arrays_and_assignments_in_place_stay():
    model = nn.Linear(2, 2)
    before = np.array(model.weight)

    def loss(m):
        m.weight += 1
        m.calls = mx.array(1)
        del m.bias
        return m(mx.ones((1, 2))).sum()

    mx.grad(loss)(model)
    np.testing.assert_allclose(np.array(model.weight), before + 1)
    assert list(model) == ["weight", "calls"]


def test_vmap_of_a_model():
    """With arrays that all share, and with its own for each."""
    model, x = nn.Linear(2, 3), mx.array(values((4, 2)))
    shared = mx.vmap(lambda m, x: m(x), in_axes=(None, 0))(model, x)
    np.testing.assert_allclose(np.array(shared), np.array(model(x)), rtol=1e-5, atol=1e-6)
    several = nn.Linear(2, 3)
    several.update({name: mx.stack([v, 2 * v]) for name, v in model.parameters().items()})
    weight = several.weight
    each = mx.vmap(lambda m, x: m(x), in_axes=(0, None))(several, x)
    want = np.stack([np.array(model(x)), 2 * np.array(model(x))])
    np.testing.assert_allclose(np.array(each), want, rtol=1e-5, atol=1e-6)
    assert several.weight is weight
    renamed = mx.vmap(lambda m: m, out_axes=0)(several)
    assert type(renamed) is dict and renamed["weight"].shape == weight.shape


@pytest.mark.parametrize("transform", [mx.grad, mx.value_and_grad, mx.vmap])
def test_plain_containers_stay_as_they_are(transform):
    """The wheel changes the caller's, or ends the process."""

    def f(tree):
        tree["a"] = tree["a"] * 2
        tree["new"] = tree["a"] + 1
        tree["list"].append(tree["list"][0])
        tree["list"][0] = tree["list"][0] * tree["a"]
        return mx.sum(tree["list"][0])

    a, b, inner = mx.array([2.0]), mx.array([3.0]), {}
    tree = {"a": a, "list": [b], "inner": inner}
    transform(f)(tree)
    assert list(tree) == ["a", "list", "inner"] and tree["a"] is a and tree["inner"] is inner
    assert len(tree["list"]) == 1 and tree["list"][0] is b
