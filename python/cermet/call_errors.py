# SPDX-License-Identifier: MIT
"""What is wrong with a call that a function of cermet.core does not take.

The extension asks here when no signature of a function takes the arguments; the answer is an
exception `[name] what is wrong; what would be right`. It comes from the signatures alone, so it
holds for every function.
"""

import ast
import inspect
import operator
import re

_PLAIN = (str, int, float, bool, bytes, type(None))  # shown by value; anything else by its type
_LONGEST = 60  # characters of a value that is shown


class _Text(str):
    """A str that shows without quotes."""

    __repr__ = str.__str__


class _Call:
    """One signature of a function, made from what nanobind says of it."""

    def __init__(self, name, owner, text, defaults):
        text = re.sub(r"def \w*", "def f", text.strip().rpartition("\n")[2])
        text = re.sub(r"\bcermet\.core\.|\bcollections\.abc\.", "", text)
        text = re.sub(r"\\=?(\d+)", r"_\1", text)
        space = {f"_{i}": _Text(_without_module(value)) for i, value in enumerate(defaults or ())}
        exec(f"from __future__ import annotations\n{text}: ...", space)
        signature = inspect.signature(space["f"])
        self.has_self = "self" in signature.parameters
        found = [self._parameter(p, owner) for p in signature.parameters.values()]
        self.not_none = [n for n, p in signature.parameters.items() if p.annotation == "object"]
        self.signature = inspect.Signature(found)
        shown = str(inspect.Signature(found[self.has_self :])).replace(", /", "")
        self.text = f"{name}{shown}"

    @staticmethod
    def _parameter(parameter, owner):
        """Without an annotation where anything is taken."""
        wanted = owner if parameter.name == "self" else parameter.annotation
        many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if wanted in (None, "", parameter.empty, "object", "object | None") or many:
            return parameter.replace(annotation=parameter.empty)
        return parameter.replace(annotation=_Text(wanted))

    def problem(self, args, kwargs):
        """(kind of error, what is wrong) with a call, or None where nothing is found."""
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            many = f"{len(args) - self.has_self} positional arguments were given"
            return TypeError, str(error).replace("too many positional arguments", many)
        for name in self.not_none:
            if name in bound and bound[name] is None:
                return TypeError, f"{name} is None; it must have a value"
        typed = [
            (name, value, _alternatives(ast.parse(wanted, mode="eval").body))
            for name, value in bound.items()
            if isinstance(wanted := self.signature.parameters[name].annotation, str)
        ]
        problems = (look(*p) for look in (_wrong_type, _wrong_size) for p in typed)
        return next(filter(None, problems), None)


def _without_module(value):
    text = repr(value).replace("cermet.core.", "")
    return text if len(text) < _LONGEST else "..."


def _shown(value):
    """A value in a message: itself when it is short and plain, and its type."""
    text = repr(value) if type(value) in _PLAIN else ""
    kind = f"of type {type(value).__name__}"
    return f"{text} {kind}" if 0 < len(text) < _LONGEST else kind


def _alternatives(annotation):
    if isinstance(annotation, ast.BinOp):
        return _alternatives(annotation.left) + _alternatives(annotation.right)
    return [annotation]


def _wrong_type(name, value, choices):
    """(kind of error, what is wrong) where a value is none of the choices of an annotation."""
    if any(_fits(value, choice) for choice in choices):
        return None
    for choice in choices:
        if _is_sequence(choice) and isinstance(value, (list, tuple)):
            kinds = _alternatives(choice.slice)
            items = (_wrong_type(f"{name}[{i}]", item, kinds) for i, item in enumerate(value))
            return next(filter(None, items))
    wanted = " or ".join(ast.unparse(choice) for choice in choices)
    return TypeError, f"{name} is {_shown(value)}; it must be {wanted}"


def _is_sequence(choice):
    return isinstance(choice, ast.Subscript) and choice.value.id in ("Sequence", "list")


def _fits(value, choice):
    """Whether a value is surely or perhaps what one alternative of an annotation says."""
    if isinstance(choice, ast.Constant):
        return choice.value is not None or value is None
    if _is_sequence(choice):
        if isinstance(value, (list, tuple)):
            kinds = _alternatives(choice.slice)
            return all(_wrong_type("", item, kinds) is None for item in value)
        return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes))
    kind = choice.id if isinstance(choice, ast.Name) else "object"
    if kind in ("int", "float"):
        return _converts(value, operator.index) or (kind == "float" and _converts(value, float))
    return kind == "object" or any(base.__name__ == kind for base in type(value).__mro__)


def _converts(value, to):
    if isinstance(value, (str, bytes)):
        return False
    try:
        to(value)
    except Exception:  # whatever it is, the value is none
        return False
    return True


def _wrong_size(name, value, choices):
    """As `_wrong_type`, where an int is negative or has more bits than are kept."""
    is_int = any(isinstance(choice, ast.Name) and choice.id == "int" for choice in choices)
    if not is_int or not isinstance(value, int):
        return None
    if -(2**31) <= value < 2**31:
        return (ValueError, f"{name} is {value}; it must be at least 0") if value < 0 else None
    bits = 32 if -(2**63) <= value < 2**63 else 64
    shown = value if abs(value) < 10**_LONGEST else "a very large int"
    return OverflowError, f"{name} is {shown}; it must be an int that fits {bits} bits"


def _properties(kind):
    return [
        item
        for base in kind.__mro__
        for item in vars(base).items()
        if isinstance(item[1], property)
    ]


def error_of(function, args, kwargs):
    """The exception that answers a call of a function (or of a class) that it does not take."""
    name = function.__name__
    if isinstance(function, type):
        return TypeError(f"[{name}] there is no constructor; functions of cermet.core make them")
    owner = (function.__qualname__ or "").rpartition(".")[0].rpartition(".")[2]
    if name in ("__init__", "__new__"):
        name, owner = owner, None
    elif not name:  # what a property calls
        name = next(n for n, p in _properties(type(args[0])) if function in (p.fget, p.fset))
    calls = [_Call(name, owner, *signature[::2]) for signature in function.__nb_signature__]
    wanted = " or ".join(call.text for call in calls)
    if len(calls) == 1 and (found := calls[0].problem(args, kwargs)):
        kind, problem = found
        return kind(f"[{name}] {problem}{', as in' if ';' in problem else '; call it as'} {wanted}")
    given = [f"one {_shown(value)}" for value in args]
    given += [f"{key} {_shown(value)}" for key, value in kwargs.items()]
    return TypeError(f"[{name}] the arguments do not fit: {', '.join(given)}; call it as {wanted}")
