// SPDX-License-Identifier: MIT
// Trees of Python containers. Containers keep their types: a NamedTuple stays one, and a dict subclass
// (cermet.nn.Module) is rebuilt as a plain dict, since its class may want arguments.
#include <functional>

#include "selection.h"

namespace cermet::python {

namespace {

// A copy, since the visit of a leaf may run code that changes the dict.
nb::list pairs_of(nb::handle dict) { return nb::steal<nb::list>(PyDict_Items(dict.ptr())); }

nb::object map_tuple(const char* op, nb::handle tuple,
                     const std::function<nb::object(nb::handle)>& map) {
  const auto n = static_cast<Py_ssize_t>(nb::len(tuple));
  nb::object items = nb::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; i++)
    PyTuple_SET_ITEM(items.ptr(), i,
                     tree_map(op, PyTuple_GET_ITEM(tuple.ptr(), i), map).release().ptr());
  return tuple_like(tuple, items);
}

nb::object map_list(const char* op, nb::handle list,
                    const std::function<nb::object(nb::handle)>& map) {
  nb::list items;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); i++)
    items.append(tree_map(op, nb::borrow(PyList_GET_ITEM(list.ptr(), i)), map));
  return items;
}

nb::object map_dict(const char* op, nb::handle dict,
                    const std::function<nb::object(nb::handle)>& map) {
  nb::dict items;
  for (nb::handle pair : pairs_of(dict)) items[pair[0]] = tree_map(op, nb::object(pair[1]), map);
  return items;
}

}  // namespace

bool is_plain_dict(nb::handle object) {
  static const auto* with_default = reinterpret_cast<PyTypeObject*>(
      nb::object(nb::module_::import_("collections").attr("defaultdict")).release().ptr());
  PyObject* p = object.ptr();
  return PyDict_CheckExact(p) || PyODict_CheckExact(p) || Py_TYPE(p) == with_default;
}

nb::object tuple_like(nb::handle tuple, nb::object items) {
  if (PyTuple_CheckExact(tuple.ptr())) return items;
  return nb::hasattr(tuple, "_fields") ? tuple.type().attr("_make")(items) : tuple.type()(items);
}

void tree_visit(const char* op, nb::handle tree,
                const std::function<void(nb::handle leaf)>& visit) {
  PyObject* p = tree.ptr();
  if (!PyList_Check(p) && !PyTuple_Check(p) && !PyDict_Check(p)) return visit(tree);
  const RecursionLevel level(op);
  if (PyList_Check(p)) {
    // By position: the visit may run Python code that changes the list.
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(p); i++)
      tree_visit(op, nb::borrow(PyList_GET_ITEM(p, i)), visit);
  } else if (PyTuple_Check(p)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++)
      tree_visit(op, PyTuple_GET_ITEM(p, i), visit);
  } else {
    for (nb::handle pair : pairs_of(tree)) tree_visit(op, nb::object(pair[1]), visit);
  }
}

nb::object tree_map(const char* op, nb::handle tree,
                    const std::function<nb::object(nb::handle leaf)>& map) {
  PyObject* p = tree.ptr();
  if (!PyList_Check(p) && !PyTuple_Check(p) && !PyDict_Check(p)) return map(tree);
  const RecursionLevel level(op);
  if (PyList_Check(p)) return map_list(op, tree, map);
  return PyTuple_Check(p) ? map_tuple(op, tree, map) : map_dict(op, tree, map);
}

Arrays tree_arrays(const char* op, nb::handle tree) {
  Arrays arrays;
  tree_visit(op, tree, [&](nb::handle leaf) {
    if (is_array(leaf)) arrays.push_back(nb::cast<array>(leaf));
    else if (is_selection(leaf)) refuse_selection(nb::cast<const Selection&>(leaf).mask);
  });
  return arrays;
}

}  // namespace cermet::python
