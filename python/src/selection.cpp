// SPDX-License-Identifier: MIT
// Selections: their operands, and what they refuse. The operators come from array.cpp, the functions from
// where those of arrays do.
#include "selection.h"

#include <algorithm>

namespace cermet::python {

namespace {

// The mask with axes of size 1 behind it.
array condition_over(const array& mask, int ndim) {
  AxisList behind;
  for (int axis = mask.ndim(); axis < ndim; axis++) behind.push_back(axis);
  return behind.empty() ? mask : expand_dims(mask, behind);
}

// No derivative comes from where nothing is chosen: it may be infinite there, and 0 times it no number.
array chosen_only(const array& values, const array& condition) {
  return where(condition, values, stop_gradient(values));
}

// An array beside a selection has none of the mask's axes, or one of size 1 in their place.
array over_mask(const array& a, const Selection& like) {
  const int rest = like.values.ndim() - like.mask.ndim();
  const bool fits = a.ndim() <= rest || (a.ndim() == rest + 1 && same_size(a.shape().dim(0), 1));
  if (!fits) refuse_selection(like.mask);
  return a.ndim() <= rest ? a : squeeze(a, AxisList{0});
}

constexpr int kMostCompared = 64;  // nodes of a mask that is computed twice

bool is_same_value(const NodeRef& a, const NodeRef& b, int& budget) {
  if (a == b) return true;
  if (--budget < 0 || a->row == nullptr || a->row != b->row || a->dtype != b->dtype ||
      a->row->effect.value != Effect::none || !equal_params(a->params, b->params))
    return false;
  return std::ranges::equal(a->inputs, b->inputs, [&](const NodeRef& x, const NodeRef& y) {
    return is_same_value(x, y, budget);
  });
}

void check_same_mask(const array& a, const array& b) {
  int budget = kMostCompared;
  CERMET_CHECK(
      is_same_value(a.node(), b.node(), budget), value, "index",
      "elements that one boolean mask of shape {} chooses stand beside those of another, of "
      "shape {}, and a trace cannot know that they are as many; use one mask, or "
      "where(mask, x, y)",
      a.shape().to_string(), b.shape().to_string());
}

}  // namespace

PyTypeObject* selection_type() {
  static auto* const type = reinterpret_cast<PyTypeObject*>(nb::type<Selection>().ptr());
  return type;
}

void refuse_selection(const array& mask) {
  fail(ErrorKind::value, "index",
       "a boolean mask of shape {} chooses a number of elements that only its values tell, and a "
       "trace (compile, vmap) has none of its arguments; take where(mask, x, 0), whose shape is "
       "known, or assign through the mask alone: x[mask] = value, x[mask] += 1, "
       "x[mask] = mx.exp(x[mask])",
       mask.shape().to_string());
}

Selection selection_of(const array& a, const array& mask) {
  return {chosen_only(a, condition_over(mask, a.ndim())), mask};
}

ArrayOrSelection selection_object(Selection selection) {
  return nb::steal<ArrayOrSelection>(nb::cast(std::move(selection)).release());
}

const Selection& common_selection(std::span<const nb::handle> operands) {
  const Selection* first = nullptr;
  for (nb::handle operand : operands) {
    if (!is_selection(operand)) continue;
    const auto& selection = nb::cast<const Selection&>(operand);
    if (first == nullptr) first = &selection;
    check_same_mask(first->mask, selection.mask);
    if (first->values.ndim() != selection.values.ndim()) refuse_selection(first->mask);
  }
  CERMET_INTERNAL_CHECK(first != nullptr, "none of {} operands is a selection", operands.size());
  return *first;
}

nb::object at_places(nb::handle operand, const Selection& like) {
  if (is_selection(operand)) return array_object(nb::cast<const Selection&>(operand).values);
  if (is_scalar(operand) || operand.is_none()) return nb::borrow(operand);
  const array a = over_mask(to_array_like("index", operand, like.values), like);
  const array condition = condition_over(like.mask, like.values.ndim());
  return array_object(chosen_only(a, condition));
}

array values_at(const array& a, const array& mask, const Selection& selection) {
  check_same_mask(mask, selection.mask);
  const array& values = selection.values;
  CERMET_CHECK(
      values.ndim() == a.ndim(), value, "index",
      "elements with {} axes behind the mask's are assigned where an array of shape {} has "
      "{}; they must be as many",
      values.ndim() - mask.ndim(), a.shape().to_string(), a.ndim() - mask.ndim());
  return astype(broadcast_to(values, a.shape()), a.dtype());
}

void init_selection(nb::module_& m) {
  nb::class_<Selection> c(m, "Selection",
                          "The elements of an array that a boolean mask chooses, in a trace: to "
                          "compute with element by element and to assign through the same mask.");
  for (const char* name : {"__getattr__", "__getitem__", "__setitem__", "__len__", "__iter__",
                           "__bool__", "__int__", "__float__", "__mlx_array__"})
    c.def(name, [](const Selection& s, const nb::args&) { refuse_selection(s.mask); });
  c.def(
      "astype",
      [](const Selection& s, PyDtype dtype, nb::handle stream) {
        return Selection{astype(s.values, dtype, to_stream_arg(stream)), s.mask};
      },
      nb::arg("dtype"), nb::arg("stream") = nb::none(), "Elements converted to a dtype.");
  c.def_prop_ro("dtype", [](const Selection& s) { return PyDtype{s.values.dtype()}; });
}

}  // namespace cermet::python
