// SPDX-License-Identifier: MIT
// What the array class takes from numpy.cpp: the buffer protocol, exchange methods, copies.
#pragma once

#include "bind.h"

namespace cermet::python {

extern PyType_Slot array_slots[];
void def_exchange(nb::class_<array>& c);

// New memory, row-major; evaluates.
array copy_of(const array& a);
// The elements, row-major; evaluates.
nb::bytes bytes_of(const array& a);

}  // namespace cermet::python
