// SPDX-License-Identifier: MIT
// Functions that say how they are differentiated and batched, and those whose intermediate results are
// computed again for their derivatives.
#pragma once

#include <functional>
#include <optional>

#include "graph/custom_call.h"
#include "transform/transform.h"

namespace cermet {

// (primals, cotangents of the outputs, outputs) -> a cotangent for each primal
using OwnVjp = std::function<Arrays(const Arrays&, const Arrays&, const Arrays&)>;
// (primals, tangents of some, their numbers) -> a tangent for each output
using OwnJvp = std::function<Arrays(const Arrays&, const Arrays&, const std::vector<int>&)>;
// (inputs, batch axis of each or -1) -> outputs and the batch axis of each or -1
using OwnVmap =
    std::function<std::pair<Arrays, std::vector<int>>(const Arrays&, const std::vector<int>&)>;

struct OwnRules {
  OwnVjp vjp;  // empty: through the function
  OwnJvp jvp;
  OwnVmap vmap;
};

// f, which computes from `primals`, is called once; its results stand for it under transforms.
Arrays call_custom(const std::function<Arrays()>& f, const Arrays& primals, OwnRules rules);
// The same for a checkpointed f. What it was made from is found in its results' graph.
Arrays checkpointed(const std::function<Arrays()>& f);

Function custom_function(Function f, std::optional<OwnVjp> vjp = {}, std::optional<OwnJvp> jvp = {},
                         std::optional<OwnVmap> vmap = {});
Function custom_vjp(Function f, OwnVjp vjp);
// f; derivatives compute its intermediate results again instead of keeping them.
Function checkpoint(Function f);

}  // namespace cermet
