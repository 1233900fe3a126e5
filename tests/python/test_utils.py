# SPDX-License-Identifier: MIT
"""cermet.utils against mlx.utils on the same trees."""

from collections import OrderedDict, namedtuple

import pytest
from mlx_oracle import CERMET, MLX, same, same_values

Pair = namedtuple("Pair", "a b")


def is_list(tree):
    return isinstance(tree, list)


def add(a, b):
    return a + b


# function, positional arguments, keyword arguments; arguments are built anew for each library
AGREE = {
    "map_none": ("tree_map", lambda: (lambda x: x, None), {}),
    "map_named_tuple": ("tree_map", lambda: (lambda x: x + 1, Pair(1, [2, 3])), {}),
    "map_dict_subclass": ("tree_map", lambda: (lambda x: x + 1, OrderedDict(b=1, a=2)), {}),
    "map_tuple": ("tree_map", lambda: (lambda x: x + 1, (1, (2,))), {}),
    "map_rest": ("tree_map", lambda: (add, {"a": 1}, {"a": 2, "b": 3}), {}),
    "map_rest_lacks_key": ("tree_map", lambda: (add, {"a": 1, "c": 2}, {"a": 2}), {}),
    "map_rest_short": ("tree_map", lambda: (add, [1, 2], [1]), {}),
    "map_rest_long": ("tree_map", lambda: (add, [1], [1, 2]), {}),
    "map_rest_subtree": ("tree_map", lambda: (lambda x, y: (x, y), {"a": 1}, {"a": {"q": 2}}), {}),
    "map_is_leaf": ("tree_map", lambda: (len, {"a": [1, 2]}), {"is_leaf": is_list}),
    "path": ("tree_map_with_path", lambda: (Pair, {"a": [1, {"b": 2}]}), {}),
    "path_given": ("tree_map_with_path", lambda: (Pair, {"a": [1, {"b": 2}]}), {"path": "pre"}),
    "path_leaf": ("tree_map_with_path", lambda: (Pair, 3), {}),
    "path_leaf_given": ("tree_map_with_path", lambda: (Pair, 3), {"path": "z"}),
    "path_rest": ("tree_map_with_path", lambda: (lambda *a: a, {"a": 3}, {"a": 4}), {}),
    "path_named": ("tree_map_with_path", lambda: (lambda p, x: p, Pair(1, 2)), {}),
    "path_is_leaf": ("tree_map_with_path", lambda: (Pair, [[1], {"a": 2}]), {"is_leaf": is_list}),
    "flatten": ("tree_flatten", lambda: ({"a": [1, (2, 3)], "b": {"c": 4}},), {}),
    "flatten_leaf": ("tree_flatten", lambda: (3,), {}),
    "flatten_none": ("tree_flatten", lambda: ({"a": None},), {}),
    "flatten_empty": ("tree_flatten", lambda: ({"a": [], "b": {}},), {}),
    "flatten_named": ("tree_flatten", lambda: (Pair(1, 2),), {}),
    "flatten_int_keys": ("tree_flatten", lambda: ({1: 2, 2: {3: 4}},), {}),
    "flatten_prefix": ("tree_flatten", lambda: ({"a": 1},), {"prefix": ".x"}),
    "flatten_prefix_bare": ("tree_flatten", lambda: ({"a": 1},), {"prefix": "x"}),
    "flatten_prefix_leaf": ("tree_flatten", lambda: (1,), {"prefix": ".x"}),
    "flatten_is_leaf": ("tree_flatten", lambda: ({"a": [1, 2]},), {"is_leaf": is_list}),
    "flatten_to_dict": ("tree_flatten", lambda: ({"a": [1, 2]},), {"destination": {"z": 0}}),
    "flatten_to_list": ("tree_flatten", lambda: ({"a": [1]},), {"destination": [("q", 1)]}),
    "flatten_to_other": ("tree_flatten", lambda: ({"a": 1},), {"destination": 3}),
    "unflatten": ("tree_unflatten", lambda: ([("a.0", 1), ("a.1", 2), ("b.c", 3)],), {}),
    "unflatten_leaf": ("tree_unflatten", lambda: ([("", 3)],), {}),
    "unflatten_empty": ("tree_unflatten", lambda: ([],), {}),
    "unflatten_empty_dict": ("tree_unflatten", lambda: ({},), {}),
    "unflatten_dict": ("tree_unflatten", lambda: ({"a.x": 1, "a.y": 2},), {}),
    "unflatten_gap": ("tree_unflatten", lambda: ([("0", 1), ("2", 3)],), {}),
    "unflatten_order": ("tree_unflatten", lambda: ([(str(i), i) for i in (10, 9, 2, 0)],), {}),
    "unflatten_mixed": ("tree_unflatten", lambda: ([("a.0", 1), ("a.b", 2)],), {}),
    "unflatten_conflict": ("tree_unflatten", lambda: ([("a", 1), ("a.0", 2)],), {}),
    "unflatten_zero_padded": ("tree_unflatten", lambda: ([("01", 1), ("1", 2)],), {}),
    "reduce": ("tree_reduce", lambda: (add, {"a": [1, 2], "b": 3}), {}),
    "reduce_from": ("tree_reduce", lambda: (add, {"a": [1, 2], "b": 3}, 10), {}),
    "reduce_empty": ("tree_reduce", lambda: (add, []), {}),
    "reduce_empty_from": ("tree_reduce", lambda: (add, [], 5), {}),
    "reduce_leaf": ("tree_reduce", lambda: (add, 3), {}),
    "reduce_order": ("tree_reduce", lambda: (lambda a, b: (a, b), [1, None, {"x": 2}]), {}),
    "reduce_is_leaf": (
        "tree_reduce",
        lambda: (lambda a, b: a + len(b), {"x": [1, 2], "y": [3]}, 0),
        {"is_leaf": is_list},
    ),
    "merge": ("tree_merge", lambda: ({"a": {"x": 1}}, {"a": {"y": 2}, "b": 3}), {}),
    "merge_conflict": ("tree_merge", lambda: ({"a": 1}, {"a": 2}), {}),
    "merge_equal_values": ("tree_merge", lambda: ({"a": 1}, {"a": 1}), {}),
    "merge_fn": ("tree_merge", lambda: ({"a": 1}, {"a": 2}, Pair), {}),
    "merge_fn_branches": ("tree_merge", lambda: ({"a": {"b": 1}}, {"a": 2}, Pair), {}),
    "merge_lists": ("tree_merge", lambda: ([{"a": 1}], [{"b": 3}, 4]), {}),
    "merge_lists_none": ("tree_merge", lambda: ([None, 2], [3, None]), {}),
    "merge_lists_conflict": ("tree_merge", lambda: ([1, 2], [3]), {}),
    "merge_none": ("tree_merge", lambda: ({"a": None}, {"a": 2}), {}),
    "merge_none_twice": ("tree_merge", lambda: (None, None), {}),
    "merge_empty": ("tree_merge", lambda: ({"a": {}, "b": 2}, {"a": 2, "b": []}), {}),
    "merge_list_and_dict": ("tree_merge", lambda: ({"a": [1]}, {"a": {"b": 1}}), {}),
    "merge_tuples": ("tree_merge", lambda: ((1, {"a": 1}), (None, {"b": 1})), {}),
    "merge_named": ("tree_merge", lambda: (Pair(1, {"a": 1}), Pair(None, {"b": 2})), {}),
}


@pytest.mark.parametrize("case", AGREE)
def test_agrees_with_mlx(case):
    function, make_args, kwargs = AGREE[case]
    same(lambda lib: getattr(lib.utils, function)(*make_args(), **_copied(kwargs)))


def _copied(kwargs):
    return {k: v.copy() if isinstance(v, (list, dict)) else v for k, v in kwargs.items()}


@pytest.mark.parametrize("case", [c for c in AGREE if c.startswith(("map", "path", "merge"))])
def test_container_types(case):
    """`same` compares lists and tuples alike; here the types of the containers must agree."""
    function, make_args, kwargs = AGREE[case]

    def types(tree):
        if isinstance(tree, dict):
            return {k: types(v) for k, v in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [type(tree).__name__, *map(types, tree)]
        return None

    def run(lib):
        return types(getattr(lib.utils, function)(*make_args(), **kwargs))

    same(run)


def test_arrays_are_leaves():
    def run(lib):
        tree = {"w": [lib.mx.array([1.0, 2.0]), (lib.mx.array(3),)]}
        flat = lib.utils.tree_flatten(lib.utils.tree_map(lambda x: x * 2, tree))
        total = lib.utils.tree_reduce(lambda n, x: n + x.size, tree, 0)
        return flat, lib.utils.tree_unflatten(flat), total

    same_values(run)


def test_destination_is_returned():
    for lib in (CERMET, MLX):
        target = {"z": 1}
        assert lib.utils.tree_flatten({"a": [1]}, destination=target) is target
        assert target == {"z": 1, "a.0": 1}


def test_unflatten_names_the_path_given_twice():
    with pytest.raises(ValueError, match="'a' appears twice"):
        CERMET.utils.tree_unflatten([("a", 1), ("a", 2)])
