// SPDX-License-Identifier: MIT
// What a transform calls a function with: the caller's trees, with other arrays in place of their own.
#pragma once

#include <vector>

#include "bind.h"

namespace cermet::python {

// While one lives, the objects of classes of their own that it was given (Modules, other classes of dicts and
// lists) hold the arrays lent to them. Afterwards they have their own again, but where the function has
// put something else. Plain dicts, lists and tuples are not changed: the function gets copies.
class LentArrays {
 public:
  LentArrays() = default;
  ~LentArrays();
  LentArrays(const LentArrays&) = delete;
  LentArrays& operator=(const LentArrays&) = delete;

  // The tree as the function gets it; its arrays, in the order of tree_arrays, are `arrays` from `next` on.
  nb::object lend(nb::handle tree, const Arrays& arrays, size_t& next);

 private:
  struct Loan {
    nb::object container, key, own, lent;
    NodeRef node;  // of `lent`, if that is an array
  };

  nb::object lend_to_tuple(nb::handle tuple, bool in_object, const Arrays& arrays, size_t& next);
  nb::object lend_below(nb::handle tree, bool in_object, const Arrays& arrays, size_t& next);
  void put(nb::handle container, nb::handle key, nb::handle own, nb::object lent);
  static void take_back(const Loan& loan);

  std::vector<Loan> loans_;
};

}  // namespace cermet::python
