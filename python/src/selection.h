// SPDX-License-Identifier: MIT
// x[mask] in a trace, where only the mask's values tell how many elements there are: the elements with the
// places that they stand at. What works element by element gives another selection, and x[mask] = selection
// writes it at the same places; x[mask] += 1 is both. All else needs the number and is refused.
#pragma once

#include <span>

#include "bind.h"

namespace cermet::python {

struct Selection {
  array values;  // over the mask's axes and the others; of no meaning where the mask is false
  array mask;
};

// What a function gives that takes selections, too.
class ArrayOrSelection : public nb::object {
  NB_OBJECT_DEFAULT(ArrayOrSelection, nb::object, "array", PyObject_Type)
};

PyTypeObject* selection_type();
inline bool is_selection(nb::handle object) { return Py_TYPE(object.ptr()) == selection_type(); }
// Raises that the number of chosen elements is not known.
[[noreturn]] void refuse_selection(const array& mask);
Selection selection_of(const array& a, const array& mask);
ArrayOrSelection selection_object(Selection selection);
// One of the operands; all that are selections must be of one mask and rank.
const Selection& common_selection(std::span<const nb::handle> operands);
// An operand beside a selection: numbers and None as they are, all else as an array over the mask's axes.
nb::object at_places(nb::handle operand, const Selection& like);
// In the shape and dtype of a, what is to be written where the mask holds, which must be the selection's.
array values_at(const array& a, const array& mask, const Selection& selection);

// a[index], which a mask without values makes a selection.
ArrayOrSelection select_item(const array& a, nb::handle index);

// f, which gives an array element by element, of operands that may be selections.
template <typename F, typename... Operands>
ArrayOrSelection element_wise(F f, Operands... operands) {
  if ((!is_selection(operands) && ...)) [[likely]]
    return nb::steal<ArrayOrSelection>(array_object(f(operands...)).release());
  const nb::handle all[] = {operands...};
  const Selection like = common_selection(all);
  return selection_object({f(at_places(operands, like)...), like.mask});
}

}  // namespace cermet::python
