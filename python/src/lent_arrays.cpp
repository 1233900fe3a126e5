// SPDX-License-Identifier: MIT
#include "lent_arrays.h"

namespace cermet::python {

namespace {

nb::object entry_of(nb::handle container, nb::handle key) {
  if (PyDict_Check(container.ptr()))
    return nb::borrow(PyDict_GetItemWithError(container.ptr(), key.ptr()));
  const auto i = PyLong_AsSsize_t(key.ptr());
  return nb::borrow(i < PyList_GET_SIZE(container.ptr()) ? PyList_GET_ITEM(container.ptr(), i)
                                                         : nullptr);
}

// Past what the class does when it is assigned to.
void set_entry(nb::handle container, nb::handle key, nb::handle value) {
  const bool set = PyDict_Check(container.ptr())
                       ? PyDict_SetItem(container.ptr(), key.ptr(), value.ptr()) == 0
                       : PyList_SetItem(container.ptr(), PyLong_AsSsize_t(key.ptr()),
                                        value.inc_ref().ptr()) == 0;
  if (!set) nb::raise_python_error();
}

}  // namespace

LentArrays::~LentArrays() {
  for (auto loan = loans_.rbegin(); loan != loans_.rend(); ++loan) {
    try {
      take_back(*loan);
    } catch (nb::python_error& error) {  // of the __eq__ of a key
      error.discard_as_unraisable("a transform that gives arrays back");
    }
  }
}

void LentArrays::take_back(const Loan& loan) {
  const nb::object now = entry_of(loan.container, loan.key);
  if (!now.is_valid()) {
    PyErr_Clear();
    return;
  }
  const bool kept = now.is(loan.lent) && (!loan.node || array_of(now).node() == loan.node);
  if (kept) set_entry(loan.container, loan.key, loan.own);
}

nb::object LentArrays::lend(nb::handle tree, const Arrays& arrays, size_t& next) {
  return lend_below(tree, false, arrays, next);
}

nb::object LentArrays::lend_below(nb::handle tree, bool in_object, const Arrays& arrays,
                                  size_t& next) {
  if (is_array(tree)) return nb::cast(arrays[next++]);
  PyObject* p = tree.ptr();
  const bool dict = PyDict_Check(p), list = PyList_Check(p);
  if (!dict && !list && !PyTuple_Check(p)) return nb::borrow(tree);
  const RecursionLevel level("tree");
  if (!dict && !list) return lend_to_tuple(tree, in_object, arrays, next);
  const bool plain = dict ? is_plain_dict(tree) : PyList_CheckExact(p);
  const bool copies = plain && !in_object;
  const nb::object to = copies ? nb::object(tree.attr("copy")()) : nb::borrow(tree);
  // As they are now: to set one may run code that changes the container.
  const nb::object entries = nb::steal(dict ? PyDict_Items(p) : PySequence_List(p));
  if (!entries.is_valid()) nb::raise_python_error();
  size_t i = 0;
  for (nb::handle entry : entries) {
    const nb::object key = dict ? nb::object(entry[0]) : nb::int_(i++);
    const nb::object own = dict ? nb::object(entry[1]) : nb::borrow(entry);
    nb::object lent = lend_below(own, in_object || !copies, arrays, next);
    if (lent.is(own)) continue;
    if (copies) set_entry(to, key, lent);
    else put(to, key, own, std::move(lent));
  }
  return to;
}

nb::object LentArrays::lend_to_tuple(nb::handle tuple, bool in_object, const Arrays& arrays,
                                     size_t& next) {
  bool changed = false;
  nb::list items;
  for (nb::handle own : nb::borrow<nb::tuple>(tuple)) {
    items.append(lend_below(own, in_object, arrays, next));
    changed |= !items[nb::len(items) - 1].is(own);
  }
  return changed ? tuple_like(tuple, nb::tuple(items)) : nb::borrow(tuple);
}

void LentArrays::put(nb::handle container, nb::handle key, nb::handle own, nb::object lent) {
  set_entry(container, key, lent);
  const NodeRef node = is_array(lent) ? array_of(lent).node() : NodeRef();
  loans_.push_back({nb::borrow(container), nb::borrow(key), nb::borrow(own), lent, node});
}

}  // namespace cermet::python
