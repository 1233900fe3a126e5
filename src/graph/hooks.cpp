// SPDX-License-Identifier: MIT
#include "graph/hooks.h"

namespace cermet::hooks {

void (*evaluate)(std::span<const NodeRef> roots) = nullptr;
Origin (*origin)() = nullptr;
constinit thread_local SymbolTrace* trace = nullptr;
std::string (*describe_origin)(const Origin& origin) = nullptr;

}  // namespace cermet::hooks
