// SPDX-License-Identifier: MIT
// What a number is in a record of words.
#pragma once

#include <cstdint>

#include "graph/params.h"

namespace cermet::schedule {

// The bits of a number as an element of dtype, zero-extended (complex: the real part).
uint64_t number_bits(const Number& number, Dtype dtype);

}  // namespace cermet::schedule
