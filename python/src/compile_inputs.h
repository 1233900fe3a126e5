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

// What a function gets in place of the caller's dicts, lists and sets, to any depth of them and of tuples,
// is its own: what it does to them is seen in its result alone, when it is traced, when the trace runs, and
// when it is called as it is. Objects, Modules and other kinds of dicts and lists too, are handed on.
class OwnArguments {
 public:
  // As they are now, whatever others do to theirs afterwards.
  explicit OwnArguments(const Arguments& theirs);
  OwnArguments(const nb::args& args, const nb::kwargs& kwargs);

  // The arrays and open numbers among them replaced in order.
  OwnArguments(const OwnArguments& own, const Arrays& arrays, const std::vector<Number>& numbers);

  Arguments arguments() const { return {pointers_.data(), positional_, names_.ptr()}; }
  nb::object call(const nb::object& f) const { return arguments().call(f); }

 private:
  template <typename F>
  void remake(const Arguments& from, const F& leaf);

  std::vector<nb::object> values_;
  std::vector<PyObject*> pointers_;
  size_t positional_ = 0;
  nb::object names_;  // a tuple, or none
};

// What a call was given: arrays (an input each), objects that are state, and all else as a key.
class CallInputs {
 public:
  explicit CallInputs(const Arguments& arguments);

  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;

  // From here on the arrays are what they are now, whatever other threads assign to them.
  void keep() {
    kept_.reserve(arrays.size());
    for (const array*& a : arrays) a = &kept_.emplace_back(*a);
  }

  Inputs arrays;
  InlineVector<bool, 8> may_look;  // of each: it is in a dict or list, a trace may go by its value
  std::vector<Number> numbers;
  std::vector<nb::handle> objects;
  CaptureKey key;

 private:
  void leaf(nb::handle object);
  void tuple(nb::handle items);
  void list(nb::handle items);
  void dict(nb::handle items);
  void name(nb::handle key);
  void begin(nb::handle container, Py_ssize_t size);
  void held(nb::handle part);

  Arrays kept_;
  InlineVector<nb::object, 8> held_;  // what a hash of the user's might drop
  int depth_ = 0;                     // of dicts and lists
};

}  // namespace cermet::python
