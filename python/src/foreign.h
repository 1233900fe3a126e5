// SPDX-License-Identifier: MIT
// Memory of other Python packages: what a buffer or a DLPack tensor says of its elements.
#pragma once

#include <memory>

#include "base/inline_vector.h"
#include "bind.h"

namespace cermet::python {

struct ForeignView {
  char* data = nullptr;  // element [0, ..., 0]
  InlineVector<int64_t, 4> shape;
  InlineVector<int64_t, 4> strides;  // bytes
  Dtype dtype = Dtype::float32;
  bool swapped = false;  // bytes in the order that is not the machine's
  bool read_only = false;
  std::shared_ptr<void> owner;  // keeps the memory; may be dropped on any thread
};

// Objects with the buffer protocol (NumPy, memoryview), with __dlpack__ (torch, jax), and NumPy arrays of
// bfloat16. Raises [array] type for anything else.
ForeignView view_of(nb::handle object);

// Drops references to Python objects that were given up by threads without the GIL. Called where such
// objects come in; needs the GIL.
void drop_released();
// A shared reference to a Python object that any thread may drop.
std::shared_ptr<void> keep_alive(nb::object object);

// A new buffer, in the native order; NumPy's default dtypes shrink as MLX does when `narrow`. Elements that
// fill one block of memory in another order of the axes than by rows keep it, unless rows are asked for.
array copy_view(const ForeignView& view, bool narrow, bool by_rows = false);
bool is_numpy_array(nb::handle object);  // and of no subclass
// The same of such an array, if the buffer protocol knows its dtype; else nullopt.
std::optional<array> copy_numpy_array(nb::handle object, bool narrow);
// The same memory, pinned. Raises [asarray] value when it cannot be shared.
array share_view(const ForeignView& view);

}  // namespace cermet::python
