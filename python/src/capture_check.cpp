// SPDX-License-Identifier: MIT
#include "capture_check.h"

namespace cermet::python {

namespace {

// Each change of any dict gives it a number never used before; later versions of CPython have none.
#if PY_VERSION_HEX < 0x030C0000
constexpr bool kHasVersions = true;
uint64_t version_of(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#else
constexpr bool kHasVersions = false;
uint64_t version_of(PyObject*) { return 0; }
#endif

}  // namespace

void WalkChecks::dict(PyObject* d) { checks_.push_back({Kind::dict, d, nullptr, version_of(d)}); }

void WalkChecks::list(PyObject* l) {
  checks_.push_back({Kind::list, l, nullptr, static_cast<uint64_t>(PyList_GET_SIZE(l))});
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(l); i++)
    checks_.push_back({Kind::item, l, PyList_GET_ITEM(l, i), static_cast<uint64_t>(i)});
}

void WalkChecks::cell(PyObject* c) { checks_.push_back({Kind::cell, c, PyCell_GET(c)}); }

void WalkChecks::function(PyObject* f) {
  checks_.push_back({Kind::function, f, PyFunction_GET_CODE(f), 0, PyFunction_GET_DEFAULTS(f),
                     PyFunction_GET_KW_DEFAULTS(f)});
}

void WalkChecks::attributes(PyObject* object, PyObject* dict) {
  checks_.push_back(
      {Kind::attributes, object, dict, 0, reinterpret_cast<PyObject*>(Py_TYPE(object))});
}

namespace {

PyObject* content_of_slot(PyObject* object, uint64_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

}  // namespace

PyObject* WalkChecks::slot(PyObject* object, Py_ssize_t offset) {
  const auto position = static_cast<uint64_t>(offset);
  PyObject* content = content_of_slot(object, position);
  checks_.push_back({Kind::slot, object, content, position});
  return content;
}

void WalkChecks::weak(PyObject* reference, PyObject* object) {
  checks_.push_back({Kind::weak, reference, object});
}

void WalkChecks::globals(PyObject* dict, PyObject* names) {
  const Py_ssize_t n = PyTuple_GET_SIZE(names);
  if (n == 0) return;
  checks_.push_back(
      {Kind::globals, dict, nullptr, version_of(dict), reinterpret_cast<PyObject*>(n)});
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    checks_.push_back({Kind::name, name, PyDict_GetItem(dict, name)});
  }
}

// After a change elsewhere in the dict the names are looked up once.
bool WalkChecks::globals_hold(size_t& i) {
  Check& head = checks_[i];
  const auto n = reinterpret_cast<size_t>(head.more);
  if (version_of(head.object) != head.number) {
    for (size_t k = i + 1; k <= i + n; k++)
      if (PyDict_GetItem(head.object, checks_[k].object) != checks_[k].content) return false;
    head.number = version_of(head.object);
  }
  i += n;
  return true;
}

bool WalkChecks::hold() {
  if (!complete_ || !kHasVersions) return false;
  for (size_t i = 0; i < checks_.size(); i++) {
    const Check& c = checks_[i];
    bool same = true;
    switch (c.kind) {
      case Kind::dict: same = version_of(c.object) == c.number; break;
      case Kind::list: same = static_cast<uint64_t>(PyList_GET_SIZE(c.object)) == c.number; break;
      case Kind::item: same = PyList_GET_ITEM(c.object, c.number) == c.content; break;
      case Kind::cell: same = PyCell_GET(c.object) == c.content; break;
      case Kind::function:
        same = PyFunction_GET_CODE(c.object) == c.content &&
               PyFunction_GET_DEFAULTS(c.object) == c.more &&
               PyFunction_GET_KW_DEFAULTS(c.object) == c.most;
        break;
      case Kind::attributes: {
        PyObject** dict = _PyObject_GetDictPtr(c.object);
        same = dict != nullptr && *dict == c.content &&
               reinterpret_cast<PyObject*>(Py_TYPE(c.object)) == c.more;
        break;
      }
      case Kind::slot: same = content_of_slot(c.object, c.number) == c.content; break;
      case Kind::weak: same = PyWeakref_GET_OBJECT(c.object) == c.content; break;
      case Kind::globals: same = globals_hold(i); break;
      case Kind::name: break;
    }
    if (!same) return false;
  }
  return true;
}

}  // namespace cermet::python
