# SPDX-License-Identifier: MIT
"""Module, the base of every layer and model.

A module is a dict: arrays, dicts, lists, tuples and modules assigned to it become its items, all
other attributes stay ordinary Python attributes. Its parameters are the arrays reachable through
modules, dicts and lists whose name does not begin with an underscore.
"""

import os
import textwrap
from collections.abc import Iterable

import cermet.core as mx
from cermet.arguments import path_pairs, require_type
from cermet.utils import tree_flatten, tree_unflatten

__all__ = ["Module"]


class Module(dict):
    """Base class of layers and models.

    A subclass calls `super().__init__()` first, assigns its parameters and sub-modules, and
    defines `__call__`:

        class MLP(nn.Module):
            def __init__(self, dims):
                super().__init__()
                self.layers = [nn.Linear(dims, dims), nn.Linear(dims, 1)]

            def __call__(self, x):
                return self.layers[1](nn.relu(self.layers[0](x)))
    """

    def __init__(self):
        self._no_grad = set()
        self._training = True

    @property
    def training(self):
        """True in training mode, the initial one; see `train` and `eval`."""
        return self._training

    @property
    def state(self):
        """The module itself: a tree of everything it holds, for `mx.compile` and `mx.eval`."""
        return self

    def _extra_repr(self):
        """What `repr` shows in the parentheses; for subclasses to override."""
        return ""

    def __repr__(self):
        children = tree_flatten(self.children(), is_leaf=self.is_module)
        lines = [textwrap.indent(f"({name}): {child!r}\n", "  ") for name, child in children]
        below = "\n" + "".join(lines) if lines else ""
        return f"{type(self).__name__}({self._extra_repr()}{below})"

    def __getattr__(self, key):
        if key in self:
            return self[key]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")

    def __setattr__(self, key, val):
        if isinstance(val, (mx.array, dict, list, tuple)):
            self.__dict__.pop(key, None)
            self[key] = val
        else:
            super().__setattr__(key, val)
            self.pop(key, None)

    def __delattr__(self, name):
        if name in self:
            del self[name]
        elif name in self.__dict__:
            super().__delattr__(name)
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def load_weights(self, file_or_weights, strict=True):
        """Set the parameters from a `.npz` file, or from (path, array) pairs.

        With `strict` the names and shapes must be exactly the model's, else a ValueError tells
        what differs. Without it, unknown names are ignored and missing ones keep their value.
        Returns the module.
        """
        if isinstance(file_or_weights, (str, os.PathLike)):
            file_or_weights = mx.load(os.fspath(file_or_weights))
        pairs = path_pairs("Module.load_weights", file_or_weights)
        if strict:
            _check_weights(dict(tree_flatten(self.parameters())), dict(pairs))
        return self.update(tree_unflatten(pairs), strict=False)

    def save_weights(self, file):
        """Write the parameters to a `.npz` file."""
        require_type("Module.save_weights", "a path", (str, os.PathLike), file=file)
        file = os.fspath(file)
        weights = tree_flatten(self.parameters(), destination={})
        if not file.endswith(".npz"):
            raise ValueError(
                f"[Module.save_weights] cannot tell the format of {file!r}; "
                "the name must end in .npz"
            )
        mx.savez(file, **weights)

    @staticmethod
    def is_module(value):
        """Whether `value` is a Module."""
        return isinstance(value, Module)

    @staticmethod
    def valid_child_filter(module, key, value):
        """Keeps what can hold sub-modules: modules, dicts and lists."""
        return isinstance(value, (dict, list))

    @staticmethod
    def valid_parameter_filter(module, key, value):
        """Keeps arrays and what can hold them, except names that begin with an underscore."""
        return isinstance(value, (dict, list, mx.array)) and not key.startswith("_")

    @staticmethod
    def trainable_parameter_filter(module, key, value):
        """Like `valid_parameter_filter`, without the frozen parameters."""
        return Module.valid_parameter_filter(module, key, value) and key not in module._no_grad

    def filter_and_map(self, filter_fn, map_fn=None, is_leaf_fn=None):
        """The tree of the items that `filter_fn(module, key, value)` keeps, with
        `map_fn(leaf)` in place of each leaf.

        Inside dicts and lists, `key` is the path from the module ("blocks.0"), and items not kept
        become `{}`. `is_leaf_fn(module, key, value)` ends the descent; by default everything but
        modules, dicts and lists is a leaf.
        """
        walk = _Walk(filter_fn, map_fn or (lambda value: value), is_leaf_fn or _is_plain)
        return walk.module(self)

    def parameters(self):
        """The tree of all parameters: nested dicts and lists with arrays as leaves."""
        return self.filter_and_map(self.valid_parameter_filter)

    def trainable_parameters(self):
        """The tree of the parameters that are not frozen."""
        return self.filter_and_map(self.trainable_parameter_filter)

    def children(self):
        """The tree of the direct sub-modules."""
        return self.filter_and_map(self.valid_child_filter, is_leaf_fn=_is_submodule)

    def leaf_modules(self):
        """The tree of the sub-modules that have no sub-modules themselves."""

        def is_leaf(module, key, value):
            return isinstance(value, Module) and not tree_flatten(
                value.children(), is_leaf=Module.is_module
            )

        return self.filter_and_map(self.valid_child_filter, is_leaf_fn=is_leaf)

    def update(self, parameters, strict=True):
        """Replace the parameters that stand in the tree `parameters`; others keep their value.

        With `strict`, a name that the module lacks or a value that is no array is a ValueError.
        Returns the module.
        """
        _update_arrays(self, parameters, strict)
        return self

    def apply(self, map_fn, filter_fn=None):
        """Replace each parameter (or each item that `filter_fn` keeps) by `map_fn` of it."""
        filter_fn = filter_fn or self.valid_parameter_filter
        return self.update(self.filter_and_map(filter_fn, map_fn))

    def update_modules(self, modules, strict=True):
        """Replace the sub-modules that stand in the tree `modules`, as `children()` gives it.

        With `strict`, a name that the module lacks or a value that is no module is a ValueError.
        Returns the module.
        """
        _update_modules(self, modules, strict)
        return self

    def apply_to_modules(self, apply_fn):
        """Call `apply_fn(path, module)` for this module, whose path is "", and all below it."""
        for path, module in self.named_modules():
            apply_fn(path, module)
        return self

    def modules(self):
        """This module and all below it, as a list."""
        return [module for _, module in self.named_modules()]

    def named_modules(self):
        """(path, module) of this module and all below it, as a list."""
        found, pending = [], [("", self)]
        while pending:
            path, module = pending.pop()
            found.append((path, module))
            if children := module.children():
                prefix = f".{path}" if path else ""
                pending += tree_flatten(children, prefix=prefix, is_leaf=self.is_module)
        return found

    def freeze(self, *, recurse=True, keys=None, strict=False):
        """Take parameters out of training: `trainable_parameters` leaves them out.

        `keys`: the names to freeze, in this module and, with `recurse`, all below it; None means
        all. With `strict`, a module that lacks one of the keys raises a KeyError. Returns the
        module.
        """
        if recurse:
            return self._for_each(lambda m: m.freeze(recurse=False, keys=keys, strict=strict))
        self._no_grad.update(self._own_keys(keys, strict))
        return self

    def unfreeze(self, *, recurse=True, keys=None, strict=False):
        """Undo `freeze`; the arguments mean the same."""
        if recurse:
            return self._for_each(lambda m: m.unfreeze(recurse=False, keys=keys, strict=strict))
        if keys is None:
            self._no_grad.clear()
        else:
            self._no_grad.difference_update(self._own_keys(keys, strict))
        return self

    def train(self, mode=True):
        """Set training mode, or with `mode=False` evaluation mode, here and below."""

        def set_mode(module):
            module._training = bool(mode)

        return self._for_each(set_mode)

    def eval(self):
        """Set evaluation mode: dropout and batch statistics are off."""
        return self.train(False)

    def set_dtype(self, dtype, predicate=lambda x: mx.issubdtype(x, mx.floating)):
        """Cast the parameters whose dtype satisfies `predicate` (None: all) to `dtype`."""
        require_type("Module.set_dtype", "a dtype", mx.Dtype, dtype=dtype)
        wanted = predicate or (lambda _: True)
        return self.apply(lambda x: x.astype(dtype) if wanted(x.dtype) else x)

    def _for_each(self, fn):
        for module in self.modules():
            fn(module)
        return self

    def _own_keys(self, keys, strict):
        """The names that `keys` (a name, several, or None for all) means in this module alone."""
        if keys is None:

            def is_own(module, key, value):
                return Module.valid_parameter_filter(module, key, value) and not isinstance(
                    value, Module
                )

            return [path for path, _ in tree_flatten(self.filter_and_map(is_own))]
        keys = [keys] if isinstance(keys, str) else keys
        require_type("Module.freeze", "a name, several, or None", Iterable, keys=keys)
        for key in keys if strict else ():
            if key not in self:
                raise KeyError(
                    f"[Module.freeze] {type(self).__name__} has no member {key!r}; "
                    f"it has {_names(self)}"
                )
        return keys


class _Walk:
    """One traversal for `filter_and_map`: what to keep, what is a leaf, what to make of it."""

    def __init__(self, keep, map_fn, is_leaf):
        self.keep, self.map_fn, self.is_leaf = keep, map_fn, is_leaf

    def module(self, module):
        return {k: self.value(module, k, v) for k, v in module.items() if self.keep(module, k, v)}

    def value(self, module, key, value):
        if self.is_leaf(module, key, value):
            return self.map_fn(value)
        if isinstance(value, Module):
            return self.module(value)
        if isinstance(value, dict):
            return {k: self.item(module, f"{key}.{k}", v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.item(module, f"{key}.{i}", v) for i, v in enumerate(value)]
        raise RuntimeError(
            f"[Module.filter_and_map] {key!r} is of type {type(value).__name__}, which has nothing "
            "below it; is_leaf_fn must be true for it or filter_fn false"
        )

    def item(self, module, path, value):
        return self.value(module, path, value) if self.keep(module, path, value) else {}


def _is_plain(module, key, value):
    return not isinstance(value, (dict, list))


def _is_submodule(module, key, value):
    return isinstance(value, Module)


def _names(module):
    return ", ".join(module) or "none"


def _check_weights(have, given):
    """ValueError unless `given` has exactly the names and shapes of `have`."""
    if extra := sorted(given.keys() - have.keys()):
        raise ValueError(
            f"[Module.load_weights] {len(extra)} names that the model does not have: "
            f"{', '.join(extra)}; strict=False ignores them"
        )
    if missing := sorted(have.keys() - given.keys()):
        raise ValueError(
            f"[Module.load_weights] {len(missing)} parameters are missing: {', '.join(missing)}; "
            "strict=False keeps their present values"
        )
    for name, value in given.items():
        if not isinstance(value, mx.array):
            raise ValueError(
                f"[Module.load_weights] {name} is of type {type(value).__name__}; "
                "it must be an array"
            )
        if value.shape != have[name].shape:
            raise ValueError(
                f"[Module.load_weights] {name} has shape {value.shape}; the model's has "
                f"{have[name].shape}"
            )


def _entries(op, target, tree, strict, kind):
    """(key, present value, new value) of the places in `tree` that `target` has too.

    An empty branch changes nothing: trees of parameters have them where there is no parameter.
    """
    if _is_empty(tree):
        return
    if isinstance(target, dict) and isinstance(tree, dict):
        unknown = [key for key in tree if key not in target]
        problem = f"no {kind} {unknown[0]!r}" if unknown else None
        right = f"it has {_names(target)}"
        found = [(key, target[key], new) for key, new in tree.items() if key in target]
    elif isinstance(target, list) and isinstance(tree, (list, tuple)):
        problem = f"{len(target)} items, not {len(tree)}" if len(tree) > len(target) else None
        right = "give as many or less"
        found = [(i, *pair) for i, pair in enumerate(zip(target, tree, strict=False))]
    else:
        problem = f"not the form {type(tree).__name__}, which the tree has in its place"
        right = "the tree must have the form of what it updates"
        found = []
    if strict and problem:
        raise ValueError(f"[{op}] {type(target).__name__} has {problem}; {right}")
    yield from (entry for entry in found if not _is_empty(entry[2]))


def _is_empty(tree):
    return isinstance(tree, (dict, list, tuple)) and not isinstance(tree, Module) and not tree


def _update_arrays(target, tree, strict):
    for key, old, new in _entries("Module.update", target, tree, strict, "parameter"):
        if not isinstance(old, mx.array):
            _update_arrays(old, new, strict)
        elif strict and not isinstance(new, mx.array):
            raise ValueError(
                f"[Module.update] {key!r} is of type {type(new).__name__}; it must be an array"
            )
        else:
            target[key] = new


def _update_modules(target, tree, strict):
    for key, old, new in _entries("Module.update_modules", target, tree, strict, "sub-module"):
        if isinstance(old, Module) and isinstance(new, Module):
            target[key] = new
        elif isinstance(old, (dict, list)):
            _update_modules(old, new, strict)
        elif strict:
            raise ValueError(
                f"[Module.update_modules] {key!r} is of type {type(old).__name__}; "
                "it must be a module"
            )
