// SPDX-License-Identifier: MIT
// What print and parse share: the words of the enumerations and the dtype that needs no mention.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel/ir.h"

namespace cermet::ir {

// The words of an enumeration in the order of its enumerators.
template <typename E>
struct Words;
#define CERMET_WORDS(E, ...)                                  \
  template <>                                                 \
  struct Words<E> {                                           \
    static constexpr std::string_view list[] = {__VA_ARGS__}; \
  }
CERMET_WORDS(Access, "in", "out", "inout");
CERMET_WORDS(ParamKind, "buffer", "scalar", "status");
CERMET_WORDS(Order, "lanes", "serial");
CERMET_WORDS(Emit, "last", "each");
CERMET_WORDS(Scheme, "fma", "fma_local", "fma_split_k", "fma_tall", "fma_wide", "panel",
             "panel_long", "panel_four", "panel_four_long", "panel_packed", "panel_four_packed",
             "dot_bf16", "dot_int8", "dot_int16", "amx_bf16", "amx_panel", "amx_int8", "amx_split",
             "amx_split_local", "amx_split_k");
CERMET_WORDS(ForKind, "stage", "chunk", "serial", "lane", "block", "thread");
CERMET_WORDS(LocalScope, "kernel", "thread");
CERMET_WORDS(MicroKind, "gemm", "transpose", "turn", "rows", "pack", "panel_n", "panel_k",
             "panel_strips", "tile_gemm");
#undef CERMET_WORDS

template <typename E>
std::string_view text_of(E value) {
  return Words<E>::list[static_cast<size_t>(value)];
}

template <typename E>
std::optional<E> from_text(std::string_view word) {
  size_t i = 0;
  for (std::string_view candidate : Words<E>::list) {
    if (candidate == word) return static_cast<E>(i);
    ++i;
  }
  return std::nullopt;
}

// The dtype of an op that the text form leaves out; none where it is always written.
std::optional<Dtype> usual_dtype(const Kernel& kernel, const Expr& op);

// One statement without what is nested in it, for messages.
std::string print(const Kernel& kernel, const Stmt& stmt);

}  // namespace cermet::ir
