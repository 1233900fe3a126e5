// SPDX-License-Identifier: MIT
// The parameters of nodes: plain structs, each with its one list of fields. Equality, hashing, printing
// and export of a node's parameters are derived from that list, never written per op.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "graph/op_list.h"

namespace cermet {

struct NoParams {
  static auto fields(auto&) { return std::tie(); }
};

struct CastParams {
  Dtype dtype = Dtype::float32;
  // To a half, and the derivative to one, here; else where the result is stored, as that of any op.
  bool rounds = true;
  static auto fields(auto& p) { return std::tie(p.dtype, p.rounds); }
};

// A reduction: axes normalised, sorted. Softmax keeps its axes; there keepdims means precise.
struct ReduceParams {
  Axes axes;
  bool keepdims = false;
  static auto fields(auto& p) { return std::tie(p.axes, p.keepdims); }
};

struct AxisParams {
  int axis = 0;
  bool flag = false;  // argmin, argmax: keepdims; scans: from the end
  int batches = 0;    // axes that vmap has put before it: errors tell of it without them
  static auto fields(auto& p) { return std::tie(p.axis, p.flag, p.batches); }
};

struct AxesParams {  // transpose: the permutation; flip: the axes
  Axes axes;
  static auto fields(auto& p) { return std::tie(p.axes); }
};

struct ShapeParams {  // reshape, broadcast_to
  Shape shape;
  static auto fields(auto& p) { return std::tie(p.shape); }
};

// One entry for each axis; size elements starting at start, step apart (any sign, not 0).
struct SliceParams {
  PerAxis start;
  SliceSteps step;
  Shape size;
  int reduce = 0;  // slice_update: ScatterReduce
  static auto fields(auto& p) { return std::tie(p.start, p.step, p.size, p.reduce); }
};

struct PadParams {
  PerAxis low, high;  // not negative
  static auto fields(auto& p) { return std::tie(p.low, p.high); }
};

enum class ScatterReduce : int { assign, add, multiply, maximum, minimum };

// gather: inputs x, idx_0 .. idx_{n-1} (broadcast alike); axes[i] is indexed by idx_i; slice sizes for
// every axis of x. Result shape: index shape followed by slice sizes. scatter: inputs x, idx..., updates.
struct GatherParams {
  Axes axes;
  Shape slice_sizes = {};
  int reduce = 0;         // scatter: ScatterReduce
  bool in_order = false;  // equal indices follow each other: speed, not meaning, depends on it
  int batches = 0;  // axes that vmap has put before those indexed: errors tell of them without
  static auto fields(auto& p) {
    return std::tie(p.axes, p.slice_sizes, p.reduce, p.in_order, p.batches);
  }
};

struct DiagonalParams {  // diagonal, diagonal_matrix: of matrices of this many rows and columns
  Dim offset = 0;
  Dim rows = 0, columns = 0;
  static auto fields(auto& p) { return std::tie(p.offset, p.rows, p.columns); }
};

struct StridedParams {  // as_strided: strides and offset in elements of the flattened input
  Shape shape;
  PerAxis strides;
  Dim offset = 0;
  static auto fields(auto& p) { return std::tie(p.shape, p.strides, p.offset); }
};

// A number as given by the user, exact: value of full, start and step of arange.
struct Number {
  enum class Kind : uint8_t { boolean, integer, floating, complex } kind = Kind::integer;
  int64_t integer = 0;
  std::complex<double> real_imag = 0;
  uint32_t expr =
      0;  // in a trace: what the number is computed by (0: a constant); its value is that of the trace
  static auto fields(auto& p) { return std::tie(p.kind, p.integer, p.real_imag); }
};

// full: every element is value. The value is a runtime scalar of its kernel: it is no part of a plan.
struct FullParams {
  Shape shape;
  Number value;  // as the dtype holds it
  Dtype dtype = Dtype::float32;
  static auto fields(auto& p) { return std::tie(p.shape, p.value, p.dtype); }
};

struct ArangeParams {  // element i = start + i * step
  Number start, step;
  Dim size = 0;
  Dtype dtype = Dtype::float32;
  static auto fields(auto& p) { return std::tie(p.start, p.step, p.size, p.dtype); }
};

struct RandomParams {  // random_bits(key): bytes of each element
  Shape shape;
  int width = 4;
  static auto fields(auto& p) { return std::tie(p.shape, p.width); }
};

struct NormParams {
  double eps = 1e-5;
  static auto fields(auto& p) { return std::tie(p.eps); }
};

struct RopeParams {
  int dims = 0;
  bool traditional = false;
  double base = 10000.0;
  double scale = 1.0;
  bool has_scale = false, has_freqs = false;  // inputs: x, offset, scale?, freqs?
  static auto fields(auto& p) {
    return std::tie(p.dims, p.traditional, p.base, p.scale, p.has_scale, p.has_freqs);
  }
};

// What is done to scores before the softmax, or to weights behind it: an element-wise op of the value so
// far and, maybe, of inputs.
struct AttentionStep {
  enum class Kind : uint8_t {
    hide,       // -inf where the condition, an input, is false
    replace,    // a number there, the input after the condition
    fill,       // a number, an input, where the op of the value is true: in place of NaN
    unary,      // the op alone
    by_array,   // the op with an input of the scores' size
    by_number,  // the op with an input that is one number
  };
  Kind kind = Kind::hide;
  OpId op = OpId{};
  bool is_second = false;  // the value is the op's second operand, the input its first

  int64_t code() const {
    return static_cast<int64_t>(kind) | int64_t{is_second} << 7 | static_cast<int64_t>(op) << 8;
  }
  static AttentionStep of(int64_t code) {
    return {static_cast<Kind>(code & 127), static_cast<OpId>(code >> 8), (code >> 7 & 1) != 0};
  }
};

// A number by which scores are multiplied or divided besides the scale: an input, given at each run.
enum class AttentionScale : int64_t { none, times, over };

struct AttentionParams {  // inputs: q, k, v, number?, those of each step, sinks?
  double scale = 1.0;
  int64_t scaled = 0;  // AttentionScale
  bool causal = false;
  std::vector<int64_t> score_steps, weight_steps;  // codes of AttentionStep, in order
  bool has_sinks = false;
  // A row that sees nothing gives NaN, as softmax does, and not 0; its scores' gradient is 0 all the same.
  bool empty_is_nan = false;
  bool is_shifted = true;  // exponentials are of scores less the largest of the row
  static auto fields(auto& p) {
    return std::tie(p.scale, p.scaled, p.causal, p.score_steps, p.weight_steps, p.has_sinks,
                    p.empty_is_nan, p.is_shifted);
  }
};

struct AttentionGradientParams {  // inputs: those of attention, then the cotangent
  AttentionParams attention;
  int input = 0;  // that the gradient is for
  static auto fields(auto& p) { return std::tie(p.attention, p.input); }
};

struct CustomCall;
struct
    CallParams {  // custom_call: a result of a call, by its number; what is evaluated is the same
  std::shared_ptr<const CustomCall> call;
  int output = 0;
  static auto fields(auto& p) { return std::tie(p.output); }
};

using Params = std::variant<NoParams, CastParams, ReduceParams, AxisParams, AxesParams, ShapeParams,
                            SliceParams, PadParams, GatherParams, DiagonalParams, StridedParams,
                            FullParams, ArangeParams, RandomParams, NormParams, RopeParams,
                            AttentionParams, AttentionGradientParams, CallParams>;

// Calls `size` for each size and `number` for each number among the fields, to be replaced in place.
void for_each_symbol(Params& params, const std::function<void(Dim&)>& size,
                     const std::function<void(Number&)>& number);

bool equal_params(const Params& a, const Params& b);
uint64_t hash_params(const Params& params);
std::string print_params(const Params& params);  // the fields in order: "[0, 1], true"

}  // namespace cermet
