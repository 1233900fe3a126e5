// SPDX-License-Identifier: MIT
// Trees of Python containers. Containers keep their types: a NamedTuple stays one, and a dict subclass
// (cermet.nn.Module) is rebuilt as a plain dict, since its class may want arguments.
#include <functional>

#include "bind.h"

namespace cermet::python {

namespace {

bool is_named_tuple(nb::handle object) {
  return PyTuple_Check(object.ptr()) && nb::hasattr(object, "_fields");
}

nb::object map_tuple(nb::handle tuple, const std::function<nb::object(nb::handle)>& map) {
  const auto n = static_cast<Py_ssize_t>(nb::len(tuple));
  nb::object items = nb::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; i++)
    PyTuple_SET_ITEM(items.ptr(), i,
                     tree_map(PyTuple_GET_ITEM(tuple.ptr(), i), map).release().ptr());
  if (PyTuple_CheckExact(tuple.ptr())) return items;
  if (is_named_tuple(tuple)) return tuple.type().attr("_make")(items);
  return tuple.type()(items);
}

nb::object map_list(nb::handle list, const std::function<nb::object(nb::handle)>& map) {
  nb::list items;
  for (nb::handle item : nb::borrow<nb::list>(list)) items.append(tree_map(item, map));
  return items;
}

nb::object map_dict(nb::handle dict, const std::function<nb::object(nb::handle)>& map) {
  nb::dict items;
  for (auto [key, value] : nb::borrow<nb::dict>(dict)) items[key] = tree_map(value, map);
  return items;
}

}  // namespace

void tree_visit(nb::handle tree, const std::function<void(nb::handle leaf)>& visit) {
  PyObject* p = tree.ptr();
  if (PyList_Check(p)) {
    // By position: the visit may run Python code that changes the list.
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(p); i++)
      tree_visit(nb::borrow(PyList_GET_ITEM(p, i)), visit);
  } else if (PyTuple_Check(p)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++) tree_visit(PyTuple_GET_ITEM(p, i), visit);
  } else if (PyDict_Check(p)) {
    for (auto [key, value] : nb::borrow<nb::dict>(tree)) tree_visit(value, visit);
  } else {
    visit(tree);
  }
}

nb::object tree_map(nb::handle tree, const std::function<nb::object(nb::handle leaf)>& map) {
  if (PyList_Check(tree.ptr())) return map_list(tree, map);
  if (PyTuple_Check(tree.ptr())) return map_tuple(tree, map);
  if (PyDict_Check(tree.ptr())) return map_dict(tree, map);
  return map(tree);
}

Arrays tree_arrays(nb::handle tree) {
  Arrays arrays;
  tree_visit(tree, [&](nb::handle leaf) {
    if (is_array(leaf)) arrays.push_back(nb::cast<array>(leaf));
  });
  return arrays;
}

}  // namespace cermet::python
