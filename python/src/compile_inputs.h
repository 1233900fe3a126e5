// SPDX-License-Identifier: MIT
// What a compiled function is called with.
#pragma once

#include <vector>

#include "bind.h"
#include "capture.h"
#include "compile_number.h"
#include "graph/array.h"

namespace cermet::python {

// Of a call, as the interpreter has them: those by position, then those by name.
struct Arguments {
  PyObject* const* values;
  size_t positional;
  PyObject* names;  // a tuple; null: none

  size_t named() const {
    return names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  }
  nb::handle name(size_t i) const { return PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)); }
  nb::handle value(size_t i) const { return values[positional + i]; }
  nb::object call(const nb::object& f) const {
    PyObject* result = PyObject_Vectorcall(f.ptr(), values, positional, names);
    if (result == nullptr) throw nb::python_error();
    return nb::steal(result);
  }
};

using Inputs = InlineVector<const array*, 8>;

// What a call was given: arrays (an input each), objects that are state, and all else as a key.
class CallInputs {
 public:
  explicit CallInputs(const Arguments& arguments) {
    key.add(arguments.positional);
    for (size_t i = 0; i < arguments.positional; i++) leaf(arguments.values[i]);
    for (size_t i = 0; i < arguments.named(); i++) {
      key.add(static_cast<uint64_t>(PyObject_Hash(arguments.name(i).ptr())));
      leaf(arguments.value(i));
    }
  }

  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;

  // From here on the arrays are what they are now, whatever other threads assign to them.
  void keep() {
    kept_.reserve(arrays.size());
    for (const array*& a : arrays) a = &kept_.emplace_back(*a);
  }

  Inputs arrays;
  std::vector<Number> numbers;
  std::vector<nb::handle> objects;
  CaptureKey key;

 private:
  void tuple(nb::handle items) {
    const RecursionLevel level("compile");
    key.add(static_cast<uint64_t>(PyTuple_GET_SIZE(items.ptr())));
    key.add(reinterpret_cast<uintptr_t>(Py_TYPE(items.ptr())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); i++)
      leaf(PyTuple_GET_ITEM(items.ptr(), i));
  }

  void leaf(nb::handle object) {
    if (is_array(object)) {
      key.add(1);
      arrays.push_back(nb::inst_ptr<array>(object));
    } else if (const auto number = open_number(object)) {
      key.add(4 + static_cast<uint64_t>(number->kind));
      numbers.push_back(*number);
    } else if (is_key_constant(object)) {
      key.add(2);
      key.add(key_of_constant(object));
    } else if (PyTuple_Check(object.ptr())) {
      tuple(object);
    } else {
      key.add(3);
      objects.push_back(object);
    }
  }

  Arrays kept_;
};

// Arguments with the arrays and numbers among them (not those in objects) replaced in order.
struct TracedArguments {
  const Arrays& arrays;
  const std::vector<Number>& numbers;
  size_t next_array = 0, next_number = 0;

  nb::object replace(nb::handle tree) {
    if (is_array(tree)) return nb::cast(arrays[next_array++]);
    if (open_number(tree)) return traced_number_object(numbers[next_number++]);
    if (!PyTuple_Check(tree.ptr()) || is_key_constant(tree)) return nb::borrow(tree);
    const RecursionLevel level("compile");
    const Py_ssize_t n = PyTuple_GET_SIZE(tree.ptr());
    nb::object items = nb::steal(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; i++)
      PyTuple_SET_ITEM(items.ptr(), i, replace(PyTuple_GET_ITEM(tree.ptr(), i)).release().ptr());
    if (PyTuple_CheckExact(tree.ptr())) return items;
    return nb::hasattr(tree, "_fields") ? tree.type().attr("_make")(items) : tree.type()(items);
  }
};

}  // namespace cermet::python
