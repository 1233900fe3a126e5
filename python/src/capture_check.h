// SPDX-License-Identifier: MIT
// A quick look whether a walk over captured state would find what it found before: dicts by their version,
// lists, cells and functions by what they hold. In the order of the walk, so that nothing is looked at
// whose owner has changed; no reference is held.
#pragma once

#include <vector>

#include "bind.h"

namespace cermet::python {

class WalkChecks {
 public:
  void dict(PyObject* d);
  void list(PyObject* l);
  void cell(PyObject* c);
  void function(PyObject* f);
  void attributes(PyObject* object, PyObject* dict);    // and its class
  PyObject* slot(PyObject* object, Py_ssize_t offset);  // gives what is there
  void weak(PyObject* reference, PyObject* object);
  // The globals that a function names, found or not.
  void globals(PyObject* dict, PyObject* names);
  void give_up() { complete_ = false; }  // something that cannot be checked quickly

  bool complete() const { return complete_; }
  bool hold();

 private:
  enum class Kind : uint8_t {
    dict,
    list,
    item,
    cell,
    function,
    attributes,
    slot,
    weak,
    globals,
    name
  };
  struct Check {
    Kind kind;
    PyObject* object;
    PyObject* content = nullptr;
    uint64_t number = 0;  // version, size, position
    PyObject *more = nullptr, *most = nullptr;
  };
  bool globals_hold(size_t& i);

  std::vector<Check> checks_;
  bool complete_ = true;
};

}  // namespace cermet::python
