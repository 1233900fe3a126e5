// SPDX-License-Identifier: MIT
// The public entry header: arrays, ops, evaluation, transforms, memory, in the order of their layers.
// Names and forms of calls are those of MLX's C++ API, in namespace cermet.
#pragma once

#include <set>

#include "base/dtype_info.h"
#include "base/env.h"
#include "base/error.h"
#include "base/version.h"
#include "graph/array.h"
#include "graph/hooks.h"
#include "graph/print.h"
#include "io/npy.h"
#include "ops/call_forms.h"
#include "ops/index_forms.h"
#include "ops/ops.h"
#include "ops/random_forms.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/poll.h"
#include "runtime/stream.h"
#include "schedule/eval.h"
#include "transform/compile.h"
#include "transform/custom.h"
#include "transform/custom_op.h"
#include "transform/functions.h"
#include "transform/transform.h"

namespace cermet {

using namespace dtype_names;
using ShapeElem = int64_t;

// Whoever includes this has the evaluator linked in, though only hooks may name it.
[[gnu::used]] inline void (*const kEvaluator)(std::span<const array>) = &eval;

// eval(a, b, ...); async_eval alike.
template <std::same_as<array>... A>
  requires(sizeof...(A) > 0)
void eval(const A&... arrays) {
  eval({arrays...});
}
inline void eval(const Arrays& arrays) { eval(std::span<const array>(arrays)); }
inline void async_eval(const Arrays& arrays) { async_eval(std::span<const array>(arrays)); }
template <std::same_as<array>... A>
  requires(sizeof...(A) > 0)
void async_eval(const A&... arrays) {
  async_eval(Arrays{arrays...});
}

inline DeviceInfo device_info() { return device_info(default_device()); }
// Streams do not matter to reading: the data is there when it returns.
inline array load(const std::string& file, const StreamOrDevice&) { return load(file); }
// Bytes of the buffers of ready arrays, each once.
inline size_t get_array_buffer_size(const Arrays& arrays) {
  std::set<const Buffer*> seen;
  size_t bytes = 0;
  for (const array& a : arrays)
    if (a.is_ready() && seen.insert(&*a.node()->buffer).second) bytes += a.node()->buffer->size();
  return bytes;
}
inline int normalize_axis_index(int axis, int ndim, const std::string& op = "") {
  return normalize_axis(op.c_str(), axis, ndim);
}

}  // namespace cermet
