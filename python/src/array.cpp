// SPDX-License-Identifier: MIT
// The array class: properties, operators, conversions. Methods that are ops come from shape_ops.cpp and
// ops.cpp through the same functions as the module's.
#include "numpy.h"
#include "selection.h"

namespace cermet::python {

namespace {

template <BinaryOp f>
nb::object apply(const char* op, nb::handle a, nb::handle b) {
  return element_wise([op](nb::handle x, nb::handle y) { return elementwise(op, f, x, y, {}); }, a,
                      b);
}

template <>
nb::object apply<static_cast<BinaryOp>(matmul)>(const char* op, nb::handle a, nb::handle b) {
  const auto [x, y] = to_operands(op, a, b);
  return array_object(matmul(x, y));
}

bool is_operated(nb::handle object) { return is_array(object) || is_selection(object); }

bool stands_for_array(nb::handle object) {
  return PyObject_CheckBuffer(object.ptr()) != 0 || nb::hasattr(object, "__mlx_array__") ||
         nb::hasattr(object, "__dlpack__");
}

// Python would go on to repeat or join a list, and blame the array for being no int.
void refuse_list(const char* op, nb::handle other) {
  const bool is_list = PyList_CheckExact(other.ptr()) || PyTuple_CheckExact(other.ptr());
  CERMET_CHECK(
      !is_list, type, op,
      "{} stands beside an array; operators take arrays and numbers, and mx.array() makes an "
      "array of it",
      type_of(other));
}

template <BinaryOp f>
nb::object binary(const char* op, nb::handle a, nb::handle b) {
  if (!is_operated(a) || (!is_array(b) && !is_scalar(b) && !stands_for_array(b)))
    return nb::borrow(Py_NotImplemented);
  return apply<f>(op, a, b);
}

template <BinaryOp f>
nb::object reflected(const char* op, nb::handle a, nb::handle b) {
  if (!is_operated(a) || (!is_scalar(b) && !stands_for_array(b)))
    return nb::borrow(Py_NotImplemented);
  return apply<f>(op, b, a);
}

// `a += b` keeps the Python object: its handle moves on to the new node.
template <BinaryOp f>
nb::object in_place(const char* op, nb::object self, nb::handle b) {
  refuse_list(op, b);
  nb::object result = binary<f>(op, self, b);
  if (result.ptr() == Py_NotImplemented) return result;
  if (is_selection(result)) return result;
  content_of(self) = array_of(result);
  return self;
}

template <BinaryOp f>
const char* name_of_slot = nullptr;

// Either operand may be the array.
template <BinaryOp f>
PyObject* number_slot(PyObject* a, PyObject* b) {
  try {
    if (!is_array(a)) return reflected<f>(name_of_slot<f>, b, a).release().ptr();
    refuse_list(name_of_slot<f>, b);
    return binary<f>(name_of_slot<f>, a, b).release().ptr();
  } catch (...) {
    set_python_error(std::current_exception());
    return nullptr;
  }
}

// Python would come to the methods by looking them up in the class, which takes longer than what they do.
// After the methods: defining one leads the slot to it. Subclasses that have methods of their own do so.
template <BinaryOp f>
void set_slot(nb::class_<array>& c, const char* op, binaryfunc PyNumberMethods::* slot) {
  name_of_slot<f> = op;
  reinterpret_cast<PyTypeObject*>(c.ptr())->tp_as_number->*slot = number_slot<f>;
}

void set_slots(nb::class_<array>& c) {
  set_slot<add>(c, "add", &PyNumberMethods::nb_add);
  set_slot<subtract>(c, "subtract", &PyNumberMethods::nb_subtract);
  set_slot<multiply>(c, "multiply", &PyNumberMethods::nb_multiply);
  set_slot<divide>(c, "divide", &PyNumberMethods::nb_true_divide);
  set_slot<matmul>(c, "matmul", &PyNumberMethods::nb_matrix_multiply);
}

// A selection is replaced by `a += b`, not changed.
template <typename T>
constexpr bool is_assignable = std::is_same_v<T, array>;

template <BinaryOp f, typename T>
void def_operator(nb::class_<T>& c, const char* op, const std::string& name, bool reversible,
                  bool assignable) {
  c.def(("__" + name + "__").c_str(),
        [op](nb::handle a, nb::handle b) {
          refuse_list(op, b);
          return binary<f>(op, a, b);
        },
        nb::is_operator(), nb::arg("other"));
  if (reversible)
    c.def(("__r" + name + "__").c_str(),
          [op](nb::handle a, nb::handle b) { return reflected<f>(op, a, b); }, nb::is_operator(),
          nb::arg("other"));
  if (is_assignable<T> && assignable)
    c.def(("__i" + name + "__").c_str(),
          [op](nb::object a, nb::handle b) { return in_place<f>(op, a, b); }, nb::is_operator(),
          nb::arg("other"), nb::rv_policy::none);
}

template <UnaryOp f>
array of_array(nb::handle a) {
  return f(to_array(a), {});
}

array invert(nb::handle object) {
  const array a = to_array(object);
  return a.dtype() == Dtype::boolean ? logical_not(a) : bitwise_invert(a);
}

template <typename T>
void def_operators(nb::class_<T>& c) {
  def_operator<add>(c, "add", "add", true, true);
  def_operator<subtract>(c, "subtract", "sub", true, true);
  def_operator<multiply>(c, "multiply", "mul", true, true);
  def_operator<divide>(c, "divide", "truediv", true, true);
  def_operator<divide>(c, "divide", "div", true, false);
  def_operator<floor_divide>(c, "floor_divide", "floordiv", true, true);
  def_operator<remainder>(c, "remainder", "mod", true, true);
  def_operator<power>(c, "power", "pow", true, true);
  def_operator<matmul>(c, "matmul", "matmul", true, true);
  def_operator<bitwise_and>(c, "bitwise_and", "and", true, true);
  def_operator<bitwise_or>(c, "bitwise_or", "or", true, true);
  def_operator<bitwise_xor>(c, "bitwise_xor", "xor", true, true);
  def_operator<left_shift>(c, "left_shift", "lshift", false, true);
  def_operator<right_shift>(c, "right_shift", "rshift", false, true);
  def_operator<less>(c, "less", "lt", false, false);
  def_operator<less_equal>(c, "less_equal", "le", false, false);
  def_operator<greater>(c, "greater", "gt", false, false);
  def_operator<greater_equal>(c, "greater_equal", "ge", false, false);
  c.def(
      "__eq__",
      [](nb::handle a, nb::handle b) -> nb::object {
        nb::object result = binary<equal>("equal", a, b);
        return result.ptr() == Py_NotImplemented ? nb::bool_(false) : result;
      },
      nb::arg("other").none());
  c.def(
      "__ne__",
      [](nb::handle a, nb::handle b) -> nb::object {
        nb::object result = binary<not_equal>("not_equal", a, b);
        return result.ptr() == Py_NotImplemented ? nb::bool_(true) : result;
      },
      nb::arg("other").none());
  c.def("__hash__", [](nb::handle self) { return reinterpret_cast<int64_t>(self.ptr()) >> 4; });
  c.def("__neg__", [](nb::handle a) { return element_wise(of_array<negative>, a); });
  c.def("__pos__",
        [](nb::handle a) { return element_wise([](nb::handle x) { return to_array(x); }, a); });
  c.def("__abs__", [](nb::handle a) { return element_wise(of_array<abs>, a); });
  c.def("__invert__", [](nb::handle a) { return element_wise(invert, a); });
}

// Whether an element equals the value, which broadcasts. Elements that both repeat are compared once, so that
// a broadcast of any size has an answer.
bool contains(nb::handle self, nb::handle value) {
  if (!is_array(value) && !is_scalar(value) && !stands_for_array(value)) return false;
  const auto [x, y] = to_operands("equal", self, value);
  Shape shape = broadcast_shapes("in", x.shape(), y.shape());
  const array a = broadcast_to(x, shape), b = broadcast_to(y, shape);
  return without_gil([&] {
    eval({a, b});
    for (int axis = 0; axis < shape.ndim(); axis++) {
      const auto i = static_cast<size_t>(axis);
      if (shape[axis] > 1 && a.strides()[i] == 0 && b.strides()[i] == 0) shape.dim(axis) = 1;
    }
    const auto part = [&](const array& all) {
      return sized_slice(all, Shape(std::vector<int64_t>(all.strides().size(), 0)),
                         SliceSteps(all.strides().size(), 1), shape);
    };
    return any(equal(part(a), part(b))).item<bool>();
  });
}

// Goes over the first axis; each element is cut off when it is asked for.
struct ArrayIterator {
  array a;
  int64_t next = 0;
};

// An object that stands for an array by its __mlx_array__ method.
struct ArrayLike {
  nb::object object;
};

void def_companions(nb::module_& m) {
  nb::class_<ArrayIterator>(m, "ArrayIterator", "The elements along the first axis, one by one.")
      .def("__iter__", [](nb::object self) { return self; })
      .def("__next__", [](ArrayIterator& it) {
        if (it.next >= it.a.shape(0)) throw nb::stop_iteration();
        return get_item(it.a, nb::int_(it.next++));
      });
  nb::class_<ArrayLike>(m, "ArrayLike", "An object with __mlx_array__, accepted where an array is.")
      .def(
          "__init__",
          [](ArrayLike* self, nb::object object) {
            CERMET_CHECK(nb::hasattr(object, "__mlx_array__"), type, "ArrayLike",
                         "{} has no __mlx_array__; it must be a method that gives an array",
                         type_of(object));
            new (self) ArrayLike{object};
          },
          nb::arg("object"))
      .def("__mlx_array__", [](const ArrayLike& a) { return a.object.attr("__mlx_array__")(); });
}

void def_conversions(nb::class_<array>& c) {
  c.def(
      "item", [](const array& a) { return to_python_scalar(a, "item"); },
      "The one element as a Python scalar; evaluates.");
  c.def("tolist", &to_list, "The elements as nested lists, or a scalar for 0-d; evaluates.");
  c.def("__bool__",
        [](const array& a) { return nb::bool_(nb::object(to_python_scalar(a, "bool"))); });
  c.def("__int__",
        [](const array& a) { return nb::steal(PyNumber_Long(to_python_scalar(a, "int").ptr())); });
  c.def("__float__", [](const array& a) {
    return nb::steal(PyNumber_Float(to_python_scalar(a, "float").ptr()));
  });
  c.def("__complex__", [](const array& a) {
    return nb::module_::import_("builtins").attr("complex")(to_python_scalar(a, "complex"));
  });
  c.def("__index__", [](const array& a) {
    CERMET_CHECK(a.ndim() == 0 && is_integer(a.dtype()), type, "index",
                 "an array of shape {} and dtype {} is no index; one without axes, of integers, is",
                 a.shape().to_string(), name_of(a.dtype()));
    return nb::steal(PyNumber_Index(to_python_scalar(a, "index").ptr()));
  });
  c.def("__format__", [](nb::object self, const std::string& spec) -> nb::object {
    const array a = to_array(self);
    if (spec.empty() && a.ndim() > 0) return nb::str(self);
    CERMET_CHECK(a.ndim() == 0, type, "format",
                 "an array of shape {} has no format '{}'; only 0-d arrays have",
                 a.shape().to_string(), spec);
    return to_python_scalar(a, "format").attr("__format__")(spec);
  });
  c.def("__repr__", &repr_of);
}

}  // namespace

void init_array(nb::module_& m) {
  nb::class_<array> c(
      m, "array",
      "A lazy n-dimensional array. `array(val, dtype=None)`: val is a scalar, a nested list, "
      "a NumPy array or an array; the data is copied.",
      nb::type_slots(array_slots));
  c.def(
      "__init__",
      [](array* self, nb::handle val, OptionalDtype dtype) {
        new (self) array(to_array(val, to_dtype(dtype)));
      },
      nb::arg("val"), nb::arg("dtype") = nb::none());
  c.def_prop_ro(
       "size", [](const array& a) { return size_object(a.shape().count()); }, "Number of elements.")
      .def_prop_ro("ndim", &array::ndim, "Number of axes.")
      .def_prop_ro("itemsize", &array::itemsize, "Bytes of one element.")
      .def_prop_ro("nbytes", &array::nbytes, "Bytes of all elements.")
      .def_prop_ro(
          "shape", [](const array& a) { return shape_tuple(a.shape()); }, "Sizes of the axes.")
      .def_prop_ro("dtype", [](const array& a) { return PyDtype{a.dtype()}; })
      .def_prop_ro(
          "device", [](const array& a) { return a.node()->stream.device; },
          "The device that makes it.")
      .def(
          "to_device",
          [](const array& a, Device device, nb::handle stream) {
            check_device("to_device", device);
            if (device == a.node()->stream.device) return a;
            return contiguous(a, stream.is_none() ? StreamOrDevice(device) : to_stream_arg(stream));
          },
          nb::arg("device"), nb::kw_only(), nb::arg("stream") = nb::none(),
          "The array on a device: itself, or a copy made on the stream, or on the device's default "
          "stream.")
      .def_prop_ro("real", [](const array& a) { return real(a); })
      .def_prop_ro("imag", [](const array& a) { return imag(a); })
      .def_prop_ro(
          "T", [](const array& a) { return transpose(a); }, "All axes reversed.")
      .def_prop_ro(
          "mT", [](const array& a) { return swapaxes(a, -1, -2); }, "The last two axes swapped.")
      .def("__len__",
           [](const array& a) {
             CERMET_CHECK(a.ndim() > 0, type, "len",
                          "a 0-d array has no length; a.item() is its value, a.reshape(1) has one");
             return a.shape(0);
           })
      .def("__iter__",
           [](const array& a) {
             CERMET_CHECK(a.ndim() > 0, type, "iter",
                          "a 0-d array cannot be iterated over; a.item() is its value, "
                          "a.reshape(1) has an axis");
             return ArrayIterator{a};
           })
      .def("__contains__", &contains, nb::arg("value").none())
      .def(
          "__getitem__", [](const array& a, nb::handle index) { return select_item(a, index); },
          nb::arg("arg").none())
      .def(
          "__setitem__",
          [](array& a, nb::handle index, nb::handle value) { set_item(a, index, value); },
          nb::arg("arg0").none(), nb::arg("arg1"));
  def_operators(c);
  set_slots(c);
  nb::class_<Selection> selection = nb::borrow<nb::class_<Selection>>(m.attr("Selection"));
  def_operators(selection);
  def_conversions(c);
  def_exchange(c);
  c.def(
      "__array_namespace__", [m](const array&, nb::handle) { return m; },
      nb::arg("api_version") = nb::none());
  def_companions(m);
}

}  // namespace cermet::python
