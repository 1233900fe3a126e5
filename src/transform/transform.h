// SPDX-License-Identifier: MIT
// Transforms of graphs: derivatives and batching. They work on traced nodes: a function is called on
// placeholders (`trace_inputs`), its outputs are nodes that lead back to them, and a transform makes new
// nodes. Functions of the language faces are only called by them; here are graphs alone.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/op.h"

namespace cermet {

using Function = std::function<Arrays(const Arrays&)>;

// Nodes standing for the arrays in the trace of the TraceScope: same data, dtype and shape.
Arrays trace_inputs(std::span<const array> arrays);

// Cotangents of `inputs`, given those of `outputs`; zeros where an output does not depend on an input.
// Integer inputs get zeros of their own dtype.
Arrays vjp_of(std::span<const array> outputs, std::span<const array> cotangents,
              std::span<const array> inputs);
// Tangents of `outputs`, given those of `inputs`.
Arrays jvp_of(std::span<const array> outputs, std::span<const array> inputs,
              std::span<const array> tangents);

std::pair<Arrays, Arrays> vjp(const Function& f, const Arrays& primals, const Arrays& cotangents);
std::pair<Arrays, Arrays> jvp(const Function& f, const Arrays& primals, const Arrays& tangents);

// Applies outputs (of a trace on unbatched placeholders `inputs`) to batched arrays: axis[i] is the batch
// axis of batched[i], or -1. Results carry the batch axis at out_axis[i] (-1: must not depend on it).
Arrays vmap_of(std::span<const array> outputs, std::span<const array> inputs,
               std::span<const array> batched, std::span<const int> axis,
               std::span<const int> out_axis);

}  // namespace cermet
