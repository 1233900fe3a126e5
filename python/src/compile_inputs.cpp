// SPDX-License-Identifier: MIT
#include "compile_inputs.h"

namespace cermet::python {

namespace {

// A tuple of constants is one, too: its numbers stand for axes and sizes.
bool is_tuple(PyObject* p) { return PyTuple_Check(p) && !is_key_constant(p); }

nb::object stolen(PyObject* object) {
  if (object == nullptr) nb::raise_python_error();
  return nb::steal(object);
}

template <typename F>
nb::object remade(nb::handle tree, const F& leaf) {
  PyObject* p = tree.ptr();
  const bool dict = is_plain_dict(tree), list = PyList_CheckExact(p), tuple = is_tuple(p);
  if (!dict && !list && !tuple) return leaf(tree);
  const RecursionLevel level("compile");
  if (dict) {
    nb::object copy = PyDict_CheckExact(p) ? copy_of(tree) : nb::object(tree.attr("copy")());
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(copy.ptr(), &position, &key, &value))
      if (PyObject_SetItem(copy.ptr(), key, remade(nb::borrow(value), leaf).ptr()) != 0)
        nb::raise_python_error();
    return copy;
  }
  const Py_ssize_t n = list ? PyList_GET_SIZE(p) : PyTuple_GET_SIZE(p);
  if (list) {
    nb::object copy = copy_of(tree);
    for (Py_ssize_t i = 0; i < n; i++)
      PyList_SetItem(copy.ptr(), i,
                     remade(nb::borrow(PyList_GET_ITEM(copy.ptr(), i)), leaf).release().ptr());
    return copy;
  }
  nb::object items = stolen(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; i++)
    PyTuple_SET_ITEM(items.ptr(), i, remade(PyTuple_GET_ITEM(p, i), leaf).release().ptr());
  return tuple_like(tree, std::move(items));
}

}  // namespace

template <typename F>
void OwnArguments::remake(const Arguments& from, const F& leaf) {
  positional_ = from.positional;
  names_ = nb::borrow(from.names);
  for (size_t i = 0; i < from.positional + from.named(); i++)
    values_.push_back(remade(from.values[i], leaf));
  for (const nb::object& value : values_) pointers_.push_back(value.ptr());
}

OwnArguments::OwnArguments(const Arguments& theirs) {
  remake(theirs, [](nb::handle leaf) {
    if (is_array(leaf)) return nb::cast(array_of(leaf));  // what is assigned to it stays here
    return PySet_CheckExact(leaf.ptr()) ? stolen(PySet_New(leaf.ptr())) : nb::borrow(leaf);
  });
}

OwnArguments::OwnArguments(const nb::args& args, const nb::kwargs& kwargs) {
  std::vector<PyObject*> values;
  for (nb::handle value : args) values.push_back(value.ptr());
  nb::list names;
  for (auto [name, value] : kwargs) {
    names.append(name);
    values.push_back(value.ptr());
  }
  const nb::tuple all_names(names);
  *this = OwnArguments(Arguments{values.data(), args.size(), all_names.ptr()});
}

OwnArguments::OwnArguments(const OwnArguments& own, const Arrays& arrays,
                           const std::vector<Number>& numbers) {
  size_t next_array = 0, next_number = 0;
  remake(own.arguments(), [&](nb::handle leaf) {
    if (is_array(leaf)) return nb::cast(arrays[next_array++]);
    if (open_number(leaf)) return traced_number_object(numbers[next_number++]);
    return nb::borrow(leaf);
  });
}

CallInputs::CallInputs(const Arguments& arguments) {
  key.add(arguments.positional);
  for (size_t i = 0; i < arguments.positional; i++) leaf(arguments.values[i]);
  for (size_t i = 0; i < arguments.named(); i++) {
    key.add(static_cast<uint64_t>(PyObject_Hash(arguments.name(i).ptr())));
    leaf(arguments.value(i));
  }
}

void CallInputs::leaf(nb::handle object) {
  if (is_array(object)) {
    key.add(1);
    held(object);
    arrays.push_back(nb::inst_ptr<array>(object));
    may_look.push_back(depth_ > 0);
  } else if (const auto number = open_number(object)) {
    key.add(4 + static_cast<uint64_t>(number->kind));
    numbers.push_back(*number);
  } else if (is_key_constant(object)) {
    key.add(2);
    key.add(key_of_constant(object));
  } else if (PyTuple_Check(object.ptr())) {
    tuple(object);
  } else if (PyList_CheckExact(object.ptr())) {
    list(object);
  } else if (is_plain_dict(object)) {
    dict(object);
  } else {
    key.add(3);
    held(object);
    objects.push_back(object);
  }
}

void CallInputs::begin(nb::handle container, Py_ssize_t size) {
  key.add(static_cast<uint64_t>(size));
  key.add(reinterpret_cast<uintptr_t>(Py_TYPE(container.ptr())));
}

void CallInputs::held(nb::handle part) {
  if (depth_ > 0) held_.push_back(nb::borrow(part));
}

void CallInputs::tuple(nb::handle items) {
  const RecursionLevel level("compile");
  held(items);
  begin(items, PyTuple_GET_SIZE(items.ptr()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); i++)
    leaf(PyTuple_GET_ITEM(items.ptr(), i));
}

void CallInputs::list(nb::handle items) {
  const RecursionLevel level("compile");
  begin(items, PyList_GET_SIZE(items.ptr()));
  depth_++;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); i++)
    leaf(nb::borrow(PyList_GET_ITEM(items.ptr(), i)));
  depth_--;
}

void CallInputs::dict(nb::handle items) {
  const RecursionLevel level("compile");
  begin(items, PyDict_GET_SIZE(items.ptr()));
  depth_++;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(items.ptr(), &position, &key, &value)) {
    const nb::object kept_key = nb::borrow(key), kept_value = nb::borrow(value);
    name(kept_key);
    leaf(kept_value);
  }
  depth_--;
}

// Of an entry of a dict.
void CallInputs::name(nb::handle name) {
  if (is_key_constant(name)) return key.add(key_of_constant(name));
  held(name);
  objects.push_back(name);
}

}  // namespace cermet::python
