# SPDX-License-Identifier: MIT
"""Functions over trees: nested dicts, lists and tuples whose leaves are anything else.

Parameters, gradients and optimizer states are such trees. A leaf's path is its keys and indices
joined by dots ("layers.0.weight"). Named tuples stay named tuples; dict subclasses become dicts.
"""

from functools import reduce as _fold
from functools import wraps as _wraps

from cermet.arguments import path_pairs as _path_pairs

__all__ = [
    "tree_map",
    "tree_map_with_path",
    "tree_flatten",
    "tree_unflatten",
    "tree_reduce",
    "tree_merge",
]


def _children(tree):
    if isinstance(tree, dict):
        return iter(tree.values())
    return iter(tree) if isinstance(tree, (list, tuple)) else iter(())


def _holds_itself(tree):
    around, rest = [tree], [_children(tree)]
    while rest:
        for child in rest[-1]:
            if any(child is branch for branch in around):
                return True
            if isinstance(child, (dict, list, tuple)) and child:
                around.append(child)
                rest.append(_children(child))
                break
        else:
            around.pop(), rest.pop()
    return False


def _of_trees(function):
    """The function, with an answer to trees that do not end."""

    @_wraps(function)
    def answering(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if not any(_holds_itself(tree) for tree in (*args, *kwargs.values())):
                raise
        raise ValueError(
            f"[{function.__name__}] a dict, list or tuple of the tree holds itself; "
            "give a tree that ends"
        )

    return answering


def _rebuild_sequence(like, values):
    """A list or tuple of `like`'s type (named tuples included) that holds `values`."""
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)


def _is_branch(tree, is_leaf):
    return isinstance(tree, (dict, list, tuple)) and not (is_leaf is not None and is_leaf(tree))


def _item(op, tree, key):
    """What stands at the key in a further tree."""
    kinds = {dict: KeyError, list: IndexError, tuple: IndexError}
    kind = next((k for k in kinds if isinstance(tree, k)), None)
    if kind is None:
        raise TypeError(
            f"[{op}] the first tree has {key!r} where a further one is of type "
            f"{type(tree).__name__}; further trees must have all that the first has"
        )
    there = list(tree) if kind is dict else range(len(tree))
    if key not in there:
        has = ", ".join(map(str, there)) or "nothing"
        raise kinds[kind](f"[{op}] a further tree lacks {key!r}, which the first has; it has {has}")
    return tree[key]


@_of_trees
def tree_map(fn, tree, *rest, is_leaf=None):
    """The tree with `fn(leaf, *leaves of rest)` in place of each leaf.

    The trees in `rest` need every key and index that `tree` has and may have more; where `tree`
    has a leaf, they may have a whole subtree. `is_leaf(subtree)` true stops the descent there.
    """
    return _map(fn, tree, rest, is_leaf)


def _map(fn, tree, rest, is_leaf):
    if not _is_branch(tree, is_leaf):
        return fn(tree, *rest)
    if isinstance(tree, dict):
        return {
            k: _map(fn, v, [_item("tree_map", r, k) for r in rest], is_leaf)
            for k, v in tree.items()
        }
    mapped = (
        _map(fn, v, [_item("tree_map", r, i) for r in rest], is_leaf) for i, v in enumerate(tree)
    )
    return _rebuild_sequence(tree, mapped)


@_of_trees
def tree_map_with_path(fn, tree, *rest, is_leaf=None, path=None):
    """Like `tree_map`, calling `fn(path, leaf, *leaves of rest)`.

    `path` is put before every path; the path of a tree that is itself a leaf is `path`.
    """
    return _map_with_path(fn, tree, rest, is_leaf, path)


def _map_with_path(fn, tree, rest, is_leaf, path):
    if not _is_branch(tree, is_leaf):
        return fn(path, tree, *rest)

    def visit(key):
        below = f"{path}.{key}" if path else str(key)
        further = [_item("tree_map_with_path", t, key) for t in rest]
        return _map_with_path(fn, tree[key], further, is_leaf, below)

    if isinstance(tree, dict):
        return {k: visit(k) for k in tree}
    return _rebuild_sequence(tree, (visit(i) for i in range(len(tree))))


@_of_trees
def tree_flatten(tree, prefix="", is_leaf=None, destination=None):
    """All leaves with their paths, in order: `[("a.0", leaf), ...]`.

    `prefix` is put before each path and is written with a leading dot (".model" gives
    "model.a.0"). `destination` is a list to append to or a dict to fill, and is returned.
    A tree that is itself a leaf has the path "". Empty branches leave no trace.
    """
    if destination is None:
        destination = []
    if isinstance(destination, list):
        put = destination.append
    elif isinstance(destination, dict):

        def put(item):
            destination[item[0]] = item[1]

    else:
        raise ValueError(
            f"[tree_flatten] destination is of type {type(destination).__name__}; "
            "it must be a list, a dict or None"
        )
    _flatten_into(put, tree, prefix, is_leaf)
    return destination


def _flatten_into(put, tree, prefix, is_leaf):
    if not _is_branch(tree, is_leaf):
        put((prefix[1:], tree))
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        _flatten_into(put, value, f"{prefix}.{key}", is_leaf)


def tree_unflatten(tree):
    """The tree of the (path, leaf) pairs in a list, or of a dict from path to leaf.

    Path parts that are all integers at one level make a list (missing indices become `{}`),
    anything else a dict. A sole path "" gives the leaf itself, no pairs at all an empty list.
    """
    pairs = _path_pairs("tree_unflatten", tree)
    if len(pairs) == 1 and pairs[0][0] == "":
        return pairs[0][1]
    below = {}
    for path, leaf in pairs:
        head, _, tail = path.partition(".")
        below.setdefault(head, []).append((tail, leaf))
    for head, found in below.items():
        if sum(tail == "" for tail, _ in found) > 1:
            raise ValueError(
                f"[tree_unflatten] the path ending in '{head}' appears twice; paths must differ"
            )
    if not all(head.isdecimal() and head == str(int(head)) for head in below):
        return {head: tree_unflatten(found) for head, found in below.items()}
    items = [{} for _ in range(max(map(int, below), default=-1) + 1)]
    for head, found in below.items():
        items[int(head)] = tree_unflatten(found)
    return items


@_of_trees
def tree_reduce(fn, tree, initializer=None, is_leaf=None):
    """`fn(...fn(fn(initializer, leaf0), leaf1)..., leafN)`; without an initializer (None) it
    starts from the first leaf. A tree without leaves gives the initializer.
    """
    leaves = []
    _flatten_into(lambda item: leaves.append(item[1]), tree, "", is_leaf)
    leaves = iter(leaves)
    if initializer is None:
        initializer = next(leaves, None)
    return _fold(fn, leaves, initializer)


@_of_trees
def tree_merge(tree_a, tree_b, merge_fn=None):
    """One tree with the leaves of both.

    None and empty branches give way to what stands in their place in the other tree; lists are
    merged item by item. Where both have something that cannot be joined, `merge_fn(a, b)` decides;
    without it that is a ValueError.
    """
    return _merge(tree_a, tree_b, merge_fn)


def _merge(tree_a, tree_b, merge_fn):
    if _is_absent(tree_a):
        if tree_a is not None or tree_b is not None:
            return tree_b
    elif _is_absent(tree_b):
        return tree_a
    elif isinstance(tree_a, dict) and isinstance(tree_b, dict):
        merged = dict(tree_a)
        for key, value in tree_b.items():
            merged[key] = _merge(merged[key], value, merge_fn) if key in merged else value
        return merged
    elif isinstance(tree_a, (list, tuple)) and isinstance(tree_b, (list, tuple)):
        shared = min(len(tree_a), len(tree_b))
        both = [_merge(a, b, merge_fn) for a, b in zip(tree_a, tree_b, strict=False)]
        return _rebuild_sequence(tree_a, (*both, *tree_a[shared:], *tree_b[shared:]))
    if merge_fn is None:
        raise ValueError(
            "[tree_merge] both trees have an element at the same place "
            f"({_describe(tree_a)} and {_describe(tree_b)}); pass merge_fn to join them"
        )
    return merge_fn(tree_a, tree_b)


def _is_absent(tree):
    return tree is None or (isinstance(tree, (dict, list, tuple)) and len(tree) == 0)


def _describe(value):
    name = type(value).__name__
    return f"{name} {value}" if isinstance(value, (int, float, str)) else name
