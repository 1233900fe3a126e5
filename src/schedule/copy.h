// SPDX-License-Identifier: MIT
// Copies between layouts by a generated kernel: what updates start from, and `contiguous` values.
#pragma once

#include "base/shape.h"

namespace cermet::schedule {

// to[i] = from[i] over the shape; to is contiguous row-major. Counts one kernel.
void copy_to_contiguous(const void* from, const Layout& layout, void* to, const Shape& shape,
                        Dtype dtype);

}  // namespace cermet::schedule
