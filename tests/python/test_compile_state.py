# SPDX-License-Identifier: MIT
"""What a compiled function reads from outside is what it is at each call: for each way in which
Python keeps a value, the value is changed between calls, and the compiled function must give what
the plain one gives. Ways that are not seen are listed, too, as docs/transforms.md tells of them.
"""

import array
import collections
import contextvars
import dataclasses
import enum
import functools
import operator
import sys
import threading
import types
import weakref

import cermet.core as mx
import numpy as np
import pytest

SEEN, NOT_SEEN = {}, {}
settings = types.ModuleType("settings_of_a_test")
settings.scale = 2.0
settings.nested = types.SimpleNamespace(scale=2.0)
scale_of_module = 2.0


def seen(make):
    """A case: make() gives a function of an array and a function that changes what it reads."""
    SEEN[make.__name__] = make


def not_seen(make):
    NOT_SEEN[make.__name__] = make


@pytest.fixture(autouse=True)
def modules(monkeypatch):
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    settings.scale = 2.0
    settings.nested.scale = 2.0
    globals()["scale_of_module"] = 2.0


def set_global(value):
    globals()["scale_of_module"] = value


class Plain:
    def __init__(self):
        self.scale = 2.0


# --- variables ---


@seen
def closure_cell():
    scale = 2.0

    def change():
        nonlocal scale
        scale = 3.0

    return lambda x: x * scale, change


@seen
def global_name():
    return lambda x: x * scale_of_module, lambda: set_global(3.0)


@seen
def global_by_name():
    return lambda x: x * globals()["scale_of_module"], lambda: set_global(3.0)


@seen
def global_of_inner_function():
    return lambda x: (lambda: x * scale_of_module)(), lambda: set_global(3.0)


@seen
def default():
    def f(x, scale=2.0):
        return x * scale

    return f, lambda: setattr(f, "__defaults__", (3.0,))


@seen
def keyword_default():
    def f(x, *, scale=2.0):
        return x * scale

    return f, lambda: setattr(f, "__kwdefaults__", {"scale": 3.0})


@seen
def code():
    def f(x):
        return x * 2.0

    return f, lambda: setattr(f, "__code__", (lambda x: x * 3.0).__code__)


@seen
def function_in_a_variable():
    def g(x):
        return x * 2.0

    def change():
        nonlocal g
        g = mx.exp

    return lambda x: g(x), change


@seen
def name_of_a_module():
    return lambda x: x * settings.scale, lambda: setattr(settings, "scale", 3.0)


@seen
def module_imported_inside():
    def f(x):
        import settings_of_a_test

        return x * settings_of_a_test.scale

    return f, lambda: setattr(settings, "scale", 3.0)


@seen
def name_imported_inside():
    def f(x):
        from settings_of_a_test import scale

        return x * scale

    return f, lambda: setattr(settings, "scale", 3.0)


@seen
def module_imported_inside_by_another_name():
    def f(x):
        import settings_of_a_test as other

        return x * other.nested.scale

    return f, lambda: setattr(settings.nested, "scale", 3.0)


@seen
def name_of_a_module_as_text():
    return lambda x: x * getattr(settings, "scale"), lambda: setattr(settings, "scale", 3.0)  # noqa: B009


# --- attributes ---


@seen
def attribute():
    box = Plain()
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def attribute_as_text():
    box = Plain()
    return lambda x: x * getattr(box, "scale"), lambda: setattr(box, "scale", 3.0)  # noqa: B009


@seen
def dict_of_attributes():
    box = Plain()
    return lambda x: x * box.scale, lambda: setattr(box, "__dict__", {"scale": 3.0})


@seen
def class_attribute():
    class Box:
        scale = 2.0

    return lambda x: x * Box.scale, lambda: setattr(Box, "scale", 3.0)


@seen
def attribute_of_a_base_class():
    class Base:
        scale = 2.0

    class Box(Base):
        pass

    box = Box()
    return lambda x: x * box.scale, lambda: setattr(Base, "scale", 3.0)


@seen
def attribute_of_a_metaclass():
    class Meta(type):
        scale = 2.0

    class Box(metaclass=Meta):
        pass

    return lambda x: x * Box.scale, lambda: setattr(Meta, "scale", 3.0)


@seen
def class_of_an_object():
    class One:
        scale = 2.0

    class Other:
        scale = 3.0

    box = One()
    return lambda x: x * box.scale, lambda: setattr(box, "__class__", Other)


@seen
def method():
    class Box:
        def apply(self, x):
            return x * 2.0

    box = Box()
    return lambda x: box.apply(x), lambda: setattr(Box, "apply", lambda self, x: x * 3.0)


@seen
def property_over_an_attribute():
    class Box:
        scale_ = 2.0

        @property
        def scale(self):
            return self.scale_

    box = Box()
    return lambda x: x * box.scale, lambda: setattr(box, "scale_", 3.0)


@seen
def property_over_a_global():
    class Box:
        @property
        def scale(self):
            return scale_of_module

    box = Box()
    return lambda x: x * box.scale, lambda: set_global(3.0)


@seen
def cached_property_replaced():
    class Box:
        @functools.cached_property
        def scale(self):
            return 2.0

    box = Box()
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def slot():
    class Box:
        __slots__ = ("scale",)

    box = Box()
    box.scale = 2.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def slots_as_a_string():
    class Box:
        __slots__ = "scale"

    box = Box()
    box.scale = 2.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def slots_of_a_base_class_as_a_string():
    class Base:
        __slots__ = "scale"

    class Box(Base):
        __slots__ = ()

    box = Box()
    box.scale = 2.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def slots_beside_attributes():
    class Base:
        __slots__ = ("scale",)

    class Box(Base):
        pass

    box = Box()
    box.scale, box.other = 2.0, 1.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def private_slot():
    class Box:
        __slots__ = ("__scale",)

        def __init__(self):
            self.__scale = 2.0

        def change(self):
            self.__scale = 3.0

        def __call__(self, x):
            return x * self.__scale

    box = Box()
    return lambda x: box(x), box.change


@seen
def slots_named_by_an_iterator():
    class Box:
        __slots__ = iter(["scale"])

    box = Box()
    box.scale = 2.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def array_in_a_slot():
    class Box:
        __slots__ = "scale"

    box = Box()
    box.scale = mx.array(2.0)
    return lambda x: x * box.scale, lambda: setattr(box, "scale", mx.array(3.0))


@seen
def attribute_of_a_list():
    class Items(list):
        pass

    items = Items([1.0])
    items.scale = 2.0
    return lambda x: x * items.scale, lambda: setattr(items, "scale", 3.0)


@seen
def attribute_of_a_tuple():
    class Items(tuple):
        pass

    items = Items([1.0])
    items.scale = 2.0
    return lambda x: x * items.scale, lambda: setattr(items, "scale", 3.0)


@seen
def attribute_of_a_dict():
    class Items(dict):
        pass

    items = Items(one=1.0)
    items.scale = 2.0
    return lambda x: x * items.scale, lambda: setattr(items, "scale", 3.0)


@seen
def attribute_of_an_int():
    class Count(int):
        pass

    count = Count(4)
    count.scale = 2.0
    return lambda x: x * count.scale, lambda: setattr(count, "scale", 3.0)


@seen
def attribute_of_a_string():
    class Name(str):
        pass

    name = Name("a")
    name.scale = 2.0
    return lambda x: x * name.scale, lambda: setattr(name, "scale", 3.0)


@seen
def attribute_of_a_set():
    class Items(set):
        pass

    items = Items({1})
    items.scale = 2.0
    return lambda x: x * items.scale, lambda: setattr(items, "scale", 3.0)


@seen
def attribute_of_a_function():
    def g(x):
        return x * g.scale

    g.scale = 2.0
    return lambda x: g(x), lambda: setattr(g, "scale", 3.0)


@seen
def attribute_of_the_function_itself():
    def f(x):
        return x * f.scale

    f.scale = 2.0
    return f, lambda: setattr(f, "scale", 3.0)


@seen
def new_attribute_of_a_function():
    def g(x):
        return x * getattr(g, "scale", 2.0)

    return lambda x: g(x), lambda: setattr(g, "scale", 3.0)


@seen
def attribute_of_a_method():
    class Box:
        def apply(self, x):
            return x * Box.apply.scale

    Box.apply.scale = 2.0
    box = Box()
    return lambda x: box.apply(x), lambda: setattr(Box.apply, "scale", 3.0)


# --- containers ---


@seen
def list_item():
    items = [2.0]
    return lambda x: x * items[0], lambda: items.__setitem__(0, 3.0)


@seen
def nested_items():
    items = {"a": [(1.0, {"b": [2.0]})]}
    change = lambda: items["a"][0][1]["b"].__setitem__(0, 3.0)  # noqa: E731
    return lambda x: x * items["a"][0][1]["b"][0], change


@seen
def length_of_a_list():
    items = [1.0, 1.0]
    return lambda x: x * len(items), lambda: items.append(1.0)


@seen
def order_of_a_dict():
    items = {"a": 2.0, "b": 3.0}
    change = lambda: items.update(a=items.pop("a"))  # noqa: E731
    return lambda x: x * next(iter(items.values())), change


@seen
def set_item():
    items = {2.0}
    return lambda x: x * max(items), lambda: items.add(3.0)


@seen
def deque_item():
    items = collections.deque([2.0])
    return lambda x: x * items[0], lambda: items.__setitem__(0, 3.0)


@seen
def ordered_dict_item():
    items = collections.OrderedDict(scale=2.0)
    return lambda x: x * items["scale"], lambda: items.__setitem__("scale", 3.0)


@seen
def default_dict_item():
    items = collections.defaultdict(lambda: 2.0)
    return lambda x: x * items["scale"], lambda: items.__setitem__("scale", 3.0)


@seen
def counter_item():
    items = collections.Counter("aa")
    return lambda x: x * items["a"], lambda: items.update("a")


@seen
def user_dict_item():
    items = collections.UserDict(scale=2.0)
    return lambda x: x * items["scale"], lambda: items.__setitem__("scale", 3.0)


@seen
def user_list_item():
    items = collections.UserList([2.0])
    return lambda x: x * items[0], lambda: items.__setitem__(0, 3.0)


@seen
def chain_map_item():
    items = collections.ChainMap({"scale": 2.0})
    return lambda x: x * items["scale"], lambda: items.__setitem__("scale", 3.0)


@seen
def view_of_a_dict():
    items = {"scale": 2.0}
    view = types.MappingProxyType(items)
    return lambda x: x * view["scale"], lambda: items.__setitem__("scale", 3.0)


@seen
def namespace():
    box = types.SimpleNamespace(scale=2.0)
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def data_class():
    @dataclasses.dataclass
    class Box:
        scale: float = 2.0

    box = Box()
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def data_class_with_slots():
    @dataclasses.dataclass(slots=True)
    class Box:
        scale: float = 2.0

    box = Box()
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@seen
def named_tuple():
    Pair = collections.namedtuple("Pair", "a b")
    pair = Pair(2.0, [1.0])
    return lambda x: x * pair.a * pair.b[0], lambda: pair.b.__setitem__(0, 2.0)


@seen
def attribute_of_an_enum():
    class Kind(enum.Enum):
        ONE = 1

    Kind.ONE.scale = 2.0
    return lambda x: x * Kind.ONE.scale, lambda: setattr(Kind.ONE, "scale", 3.0)


# --- functions that hold functions and objects ---


@seen
def partial_of_a_function():
    box = Plain()
    g = functools.partial(lambda b, x: x * b.scale, box)
    return lambda x: g(x), lambda: setattr(box, "scale", 3.0)


@seen
def decorated_function():
    box = Plain()

    def decorate(f):
        @functools.wraps(f)
        def g(x):
            return f(x) * box.scale

        return g

    return decorate(lambda x: x + 1), lambda: setattr(box, "scale", 3.0)


@seen
def bound_method():
    class Box:
        scale = 2.0

        def apply(self, x):
            return x * self.scale

    box = Box()
    return box.apply, lambda: setattr(box, "scale", 3.0)


@seen
def static_method():
    class Box:
        scale = [2.0]

        @staticmethod
        def apply(x):
            return x * Box.scale[0]

    return lambda x: Box.apply(x), lambda: Box.scale.__setitem__(0, 3.0)


@seen
def class_method():
    class Box:
        scale = 2.0

        @classmethod
        def apply(cls, x):
            return x * cls.scale

    return lambda x: Box.apply(x), lambda: setattr(Box, "scale", 3.0)


@seen
def static_method_over_a_global():
    class Box:
        @staticmethod
        def apply(x):
            return x * scale_of_module

    box = Box()
    return lambda x: box.apply(x), lambda: set_global(3.0)


@seen
def class_method_over_a_global():
    class Box:
        @classmethod
        def apply(cls, x):
            return x * scale_of_module

    return lambda x: Box.apply(x), lambda: set_global(3.0)


@seen
def callable_object():
    class Box:
        def __init__(self):
            self.scale = 2.0

        def __call__(self, x):
            return x * self.scale

    box = Box()
    return box, lambda: setattr(box, "scale", 3.0)


@seen
def another_compiled_function():
    box = Plain()
    g = mx.compile(lambda x: x * box.scale)
    return lambda x: g(x) + 1, lambda: setattr(box, "scale", 3.0)


@seen
def gradient_of_a_function():
    box = Plain()
    g = mx.grad(lambda x: (x * x * box.scale).sum())
    return lambda x: g(x), lambda: setattr(box, "scale", 3.0)


@seen
def object_behind_a_weak_reference():
    box = Plain()
    reference = weakref.ref(box)
    kept = [box]

    def change():
        kept[0].scale = 3.0

    return lambda x: x * reference().scale, change


@seen
def object_behind_a_weak_proxy():
    box = Plain()
    proxy = weakref.proxy(box)
    kept = [box]

    def change():
        kept[0].scale = 3.0

    return lambda x: x * proxy.scale, change


@seen
def dead_weak_reference():
    kept = [Plain()]
    reference = weakref.ref(kept[0])
    return lambda x: x * (2.0 if reference() is None else 3.0), kept.clear


# --- what is not seen ---


@not_seen
def value_in_a_numpy_array():
    values = np.array([2.0])
    return lambda x: x * float(values[0]), lambda: values.__setitem__(0, 3.0)


@not_seen
def value_in_an_array_of_the_standard_library():
    values = array.array("d", [2.0])
    return lambda x: x * values[0], lambda: values.__setitem__(0, 3.0)


@not_seen
def bytes_changed_in_place():
    items = bytearray([2])
    return lambda x: x * items[0], lambda: items.__setitem__(0, 3)


@not_seen
def thread_local():
    box = threading.local()
    box.scale = 2.0
    return lambda x: x * box.scale, lambda: setattr(box, "scale", 3.0)


@not_seen
def context_variable():
    variable = contextvars.ContextVar("scale", default=2.0)
    return lambda x: x * variable.get(), lambda: variable.set(3.0)


@not_seen
def global_by_a_name_made_at_run_time():
    name = "_".join(["scale", "of", "module"])
    return lambda x: x * globals()[name], lambda: set_global(3.0)


@not_seen
def result_of_an_attribute_getter():
    box = Plain()
    get = operator.attrgetter("scale")
    boxes = iter(lambda: box, None)
    return lambda x: x * get(next(boxes)), lambda: setattr(box, "scale", 3.0)


def check(make, is_seen):
    f, change = make()
    compiled = mx.compile(f)
    x = mx.array([1.0, -2.0])
    for _ in range(3):
        assert compiled(x).tolist() == f(x).tolist()
    before = f(x).tolist()
    change()
    assert f(x).tolist() != before
    for _ in range(2):
        assert (compiled(x).tolist() == f(x).tolist()) is is_seen


@pytest.mark.parametrize("name", SEEN)
def test_a_change_is_seen(name):
    check(SEEN[name], True)


@pytest.mark.parametrize("name", SEEN)
def test_no_change_is_no_trace(name):
    f, change = SEEN[name]()
    compiled = mx.compile(f)
    x = mx.array([1.0, -2.0])
    f(x)  # fills caches and default dicts
    compiled(x)
    before = mx.counters()["traces"]
    for _ in range(3):
        compiled(x)
    assert mx.counters()["traces"] == before and callable(change)


@pytest.mark.parametrize("name", NOT_SEEN)
def test_a_change_that_the_docs_call_unseen(name):
    check(NOT_SEEN[name], False)
