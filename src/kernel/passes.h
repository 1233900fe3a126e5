// SPDX-License-Identifier: MIT
// The passes over kernel IR and the runner. Each pass is a free function; lower.cpp holds the flat list.
// The runner names, times, dumps (CERMET_DUMP), verifies, and leaves out optional passes by name
// (CERMET_SKIP_PASS).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "kernel/ir.h"

namespace cermet::ir {

// What lowering must know of a target; codegen/target.h gives one row for each.
struct TargetFacts {
  std::string name;         // "cpu" or "cuda"
  int vector_bytes = 16;    // width of one vector register
  bool full_width = false;  // arithmetic on 64 bytes takes no longer than on 32
  bool fma = false;         // fused multiply-add in one instruction
  bool dot_bf16 = false;    // a dot instruction for bfloat16, and faster than fma
  bool dot_int8 = false;    // a dot instruction for uint8 by int8
  bool dot_int16 = false;   // the same for int16
  bool amx_bf16 = false;    // tile instructions for bfloat16, or code that stands for them
  bool amx_int8 = false;    // the same for int8 and uint8
  bool scales = false;      // scale2 by a floor, and fract, in one instruction each
  bool polls = false;       // items are long: their loops ask whether to stop (runtime/loader.h)
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  uint64_t native_math = 0;  // bit (code - Code::exp) set: that math code needs no expansion
};

// Raises an internal error that names the statement and prints the kernel: dtypes, arity, values
// defined before use and read where they live, one writer per value, indices int64, State/Other only
// inside folds, masks bool, only core codes where `lowered`.
void verify(const Kernel& kernel, bool lowered = false);

// The text form; without names the names of kernel, parameters, axes and values are left out.
std::string print(const Kernel& kernel, bool names = true);
Kernel parse(
    std::string_view text);  // print(parse(print(k))) == print(k); raises [ir] value with line

// 128 bits over the content (names excluded): kernels hash alike when they print alike without names.
struct Hash {
  uint64_t lo = 0, hi = 0;
  bool operator==(const Hash&) const = default;
  std::string hex() const;
};
Hash hash_of(const Kernel& kernel);
Hash hash_bytes(std::string_view bytes);

// A loop, whatever kernel it stands in: two that hash alike do the same, each with what it names, in order of first use.
struct LoopIdentity {
  Hash hash;
  std::vector<int32_t> params, axes, strides, values, locals;
};
LoopIdentity identity_of(const Kernel& kernel, const For& loop);

// Constant folding and identities that keep the bits (x*1, select of equal arms, casts of casts that
// lose nothing, integer index arithmetic); removes dead values and checks that cannot fail. Parameters,
// axes and strides keep their numbers: the caller fills the record by them.
Kernel simplify(const Kernel& kernel);

// Makes maxima and minima by a choice where what they are in rows with a NaN shows in no result.
Kernel relax_max(const Kernel& kernel, const TargetFacts& target);

// Replaces math codes by their expansions (math.h).
Kernel expand(const Kernel& kernel, const TargetFacts& target);

// Chooses a form and turns stages into loops.
Kernel tile(const Kernel& kernel, const TargetFacts& target);
// The form `tile` chooses: map, row, column, full, row_column, transpose, gather, scan, gemm,
// attention.
std::string_view form_of(const Kernel& kernel, const TargetFacts& target);
// How its products are made: a Scheme's name, or fold; empty without products.
std::string_view scheme_of(const Kernel& kernel, const TargetFacts& target);

// A lane loop that selects between loads, by what does not change in it, by a bound on its variable or on
// a sum with it, or by several of these together, becomes a loop for each choice: loads that are not
// chosen are then not made. Masked off, they take time, and much where their addresses lie in memory that
// is not there. A loop that is too long to be there several times, and whose lanes would divide for their masks,
// runs for each part in turn, as long as these have no more than kMostTurnEdges edges.
inline constexpr int kMostTurnEdges = 14;
Kernel unswitch(const Kernel& kernel, const TargetFacts& target);

// simplify, relax_max, expand, tile, unswitch, simplify: ready for codegen.
Kernel lower(const Kernel& kernel, const TargetFacts& target);

}  // namespace cermet::ir
