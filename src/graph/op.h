// SPDX-License-Identifier: MIT
// What an op is: one row, in its family's file under ops/. Everything else (builders, derivatives,
// batching, lowering, printing, tests, docs) is derived from rows. A row or a required field that is
// missing does not compile or link.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/inline_vector.h"
#include "graph/array.h"
#include "kernel/builder.h"

namespace cermet {

template <typename T>
struct Required {
  T value;
  template <std::convertible_to<T> U>  // no default: leaving a field out does not compile
  constexpr Required(U&& v) : value(std::forward<U>(v)) {}
  constexpr operator const T&() const { return value; }
};

// Raises [op] value: argument k was read, counted from 0, of so many that were given.
[[noreturn]] void throw_too_few(const OpRow& row, size_t k, size_t given);

// A list of what an op is given, for its rules. To read past its end raises [op] value: rows are written
// outside the library, too.
template <typename T>
class Given {
 public:
  Given(const OpRow& row, std::span<const T> items) : row_(&row), items_(items) {}

  const T& operator[](size_t k) const {
    if (k >= items_.size()) [[unlikely]]
      throw_too_few(*row_, k, items_.size());
    return items_[k];
  }
  const T& front() const { return (*this)[0]; }
  const T& back() const { return (*this)[items_.size() - 1]; }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  operator std::span<const T>() const { return items_; }

 private:
  const OpRow* row_;
  std::span<const T> items_;
};

// A call being built or lowered.
struct OpCall {
  OpCall(const OpRow& r, const Params& p, std::span<const array> given)
      : row(r), params(p), inputs(r, given) {}
  const OpRow& row;
  const Params& params;
  Given<array> inputs;
  template <typename P>
  const P& get() const {
    return std::get<P>(params);
  }
};

// --- dtypes and shapes ---
using DtypeSet = uint32_t;  // bit for each Dtype
using ResultDtype = Dtype (*)(const OpCall&);
using ResultShape = Shape (*)(const OpCall&);

// --- derivatives: graph in, graph out; `output` is the node being differentiated ---
// Rules build on the thread's default stream.
// Elementwise: the partial with respect to input k applied to g. It serves both: jvp is diff(t); vjp is
// diff(g), for a complex dtype conj(diff(conj(g))).
struct Elementwise {
  array (*diff)(const OpCall&, const array& output, int k, const array& g);
};
// Linear in every inexact input together: jvp applies the op to the tangents (and the other inputs as
// they are). transpose, lhs, rhs and vjp are adjoints under Re(conj(a) b): they conjugate themselves.
struct Linear {
  array (*transpose)(const OpCall&, int k, const array& cotangent);
};
struct Bilinear {
  array (*lhs)(const OpCall&, const array& cotangent);
  array (*rhs)(const OpCall&, const array& cotangent);
};
struct Opaque {
  array (*jvp)(const OpCall&, const array& output, int k, const array& tangent);
  array (*vjp)(const OpCall&, const array& output, int k, const array& cotangent);
  bool (*is_zero)(const OpCall&) = nullptr;  // of these inputs; none: of no inputs
};
// From the composite's graph, unless the row has a better one.
struct Derived {
  array (*vjp)(const OpCall&, const array& output, int k, const array& cotangent) = nullptr;
};
struct Zero {};   // no derivative: integers, comparisons, stop_gradient
struct First {};  // that of input 0, whose values these are; the others have none
using Derivative = std::variant<Elementwise, Linear, Bilinear, Opaque, Derived, Zero, First>;

// --- vmap families: batched inputs carry the batch axis at 0; the result must, too ---
struct BroadcastVmap {};  // elementwise: align ranks, apply
struct AxisShiftVmap {};  // axes in the parameters move up by one
struct AxisMapVmap {
  array (*apply)(const OpCall&, std::span<const bool> batched, const Dim& size);
};
struct BatchAxesVmap {};  // leading batch axes are the op's own (matmul)
struct DerivedVmap {};
struct CustomVmap {
  array (*apply)(const OpCall&, std::span<const bool> batched, const Dim& size);
};
using Vmap =
    std::variant<BroadcastVmap, AxisShiftVmap, AxisMapVmap, BatchAxesVmap, DerivedVmap, CustomVmap>;

// --- lowering ---
// A value inside a kernel: `im` is kNone unless the dtype is complex.
struct Lane {
  ir::ExprId re = ir::kNone;
  ir::ExprId im = ir::kNone;
};
// A coordinate: Σ coefficient · axis + offset, or any int64 expression.
struct Coord {
  struct Term {
    ir::AxisId axis;
    Dim coefficient;
    bool operator==(const Term&) const = default;
  };
  InlineVector<Term, 2> terms;
  Dim offset = 0;
  ir::ExprId expr = ir::kNone;  // set: the coordinate is this expression (plus offset), terms empty
};
using Coords = InlineVector<Coord, 4>;
struct Bounds {
  Dim least, most;
};

// What a rule may ask while it is lowered. Values come in compute dtypes (compute_dtype(input dtype)).
class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual ir::Builder& builder() = 0;
  virtual Lane input(int k, const Coords& at) = 0;  // the value of input k there
  // The same where `mask` holds, and any value elsewhere: `at` may then lie outside the input (pad,
  // concatenate); nothing is read there.
  virtual Lane input_where(ir::ExprId mask, int k, const Coords& at) = 0;
  virtual ir::ExprId expr(const Coord& c) = 0;                  // int64
  virtual std::optional<Bounds> bounds(const Coord& c) = 0;     // nullopt: not known
  virtual ir::ExprId number(const Number& n, Dtype dtype) = 0;  // a runtime scalar
  // Raises, at run time on the CPU, [op] index out of range unless ok; `index` (int64 or uint64), `axis`, its
  // `size` and the `extent` of the slice there are reported.
  virtual void check_index(ir::ExprId ok, ir::ExprId index, int axis, const Dim& size,
                           const Dim& extent) = 0;
  // extent of an axis of input k as an int64 expression (runtime)
  virtual ir::ExprId size(int k, int axis) = 0;
};

struct NodeView {  // the node being lowered
  const OpRow& row;
  const Params& params;
  Dtype dtype;
  const Shape& shape;
  Given<Dtype> input_dtypes;
  Given<const Shape*> input_shapes;
  template <typename P>
  const P& get() const {
    return std::get<P>(params);
  }
};

// Same index in and out; result in compute_dtype(node dtype).
struct MapLowering {
  Lane (*expr)(LowerContext&, const NodeView&, std::span<const Lane> args);
};
// Pull: the value of the node at `at`; asks inputs where it needs them. `view`: the layout of the result
// when the (one) input is a buffer of the given layout, or nullopt when data must move. It counts elements
// of the result's dtype; where these are larger, the schedule sees to it that the buffer is aligned to them.
struct MoveLowering {
  Lane (*pull)(LowerContext&, const NodeView&, const Coords& at);
  std::optional<Layout> (*view)(const NodeView&, const Shape& in, const Layout& layout);
  bool row_major = false;  // the same elements in row-major order, in other axes: axes may be split
  bool computes =
      false;  // does arithmetic: its inputs are read from memory, not computed again in it; it
              // is read from there itself where it is a view
  // The graph of a call on more inputs than one kernel chooses from.
  std::optional<array> (*in_parts)(const OpCall&) = nullptr;
};
// Among more inputs an element-wise kernel chooses only along an innermost axis of few places, in many points:
// there it is written out.
inline constexpr size_t kMostChoices = 8;
inline constexpr int64_t kMostColumns = 64, kManyPoints = 1 << 14;
inline constexpr int64_t kNarrow = kMostColumns / kMostChoices;  // of an input: fewer places
// A fold of one input over axes: states over the element and its position in the folded range.
struct FoldLowering {
  // Whether the input is in memory, and if so how, where strides can say it, and whether as rows: many that follow
  // each other, contiguous along the last axis.
  struct Input {
    bool is_there = false;
    std::optional<Layout> layout = {};
    bool is_in_rows = false;
  };
  std::vector<ir::FoldState> (*states)(LowerContext&, const NodeView&, Lane element,
                                       ir::ExprId position);
  Lane (*finish)(LowerContext&, const NodeView&, std::span<const ir::ExprId> states);
  Axes (*axes)(const NodeView&);  // folded axes of the input
  // The graph of a fold of a few elements, which a vector of results is made by at once. The same bits.
  std::optional<array> (*few_elements)(const OpCall&, const Input& input) = nullptr;
};
// The running fold of its inputs, which have one shape, along the axis of AxisParams; its flag: from the
// end. The result at a position folds all elements up to it.
struct ScanLowering {
  std::vector<ir::FoldState> (*states)(LowerContext&, const NodeView&,
                                       std::span<const Lane> elements);
  Lane (*finish)(LowerContext&, const NodeView&, std::span<const ir::ExprId> states);
};
// matmul: [..., m, k] x [..., k, n]. few_terms: the graph for a sum so short that no products' kernel pays.
struct ContractLowering {
  std::optional<array> (*few_terms)(const OpCall&);
};
// The graph the op stands for. kernel: the graph is one kernel, together with those of the row's other
// calls on the same inputs for which it returns the same (a gradient for each input); nullopt: it is
// planned op by op.
struct CompositeLowering {
  array (*graph)(const OpCall&);
  std::optional<Params> (*kernel)(const OpCall&) = nullptr;
};
// A slice by steps of 1.
struct Slice {
  PerAxis start;
  Shape size;
};
// Writes into a copy (or in place) of input 0: slice_update, scatter. The schedule gives the target.
struct UpdateLowering {
  // Coordinates in the target of the update element at `at`; kNone mask where none.
  Coords (*target)(LowerContext&, const NodeView&, const Coords& at);
  ScatterReduce (*reduce)(const NodeView&);
  // What of the target is replaced by the update; nullopt where that is no such slice.
  std::optional<Slice> (*slice)(const NodeView&) = nullptr;
};
using Lowering = std::variant<MapLowering, MoveLowering, FoldLowering, ScanLowering,
                              ContractLowering, CompositeLowering, UpdateLowering>;

enum class Effect : uint8_t { none, ordered, barrier };

struct Domain {  // where the table tests sample
  double low = -4, high = 4;
};

struct OpRow {
  Required<OpId> id;
  Required<const char*> name;
  Required<DtypeSet> accepts;
  Required<ResultDtype> dtype;
  Required<ResultShape> shape;
  Required<Derivative> derivative;
  Required<Vmap> vmap;
  Required<Lowering> lowering;
  Required<Effect> effect;
  Required<Domain> domain;
  Required<double> max_ulp;  // float32; 0: exact
  Required<const char*> doc;
};

namespace rows {
#define X(id, name, family) extern const OpRow name;
CERMET_OPS(X)
#undef X
}  // namespace rows

const OpRow& row_of(OpId id);
std::span<const OpRow* const> all_rows();

// Builds a node: checks dtypes by the row (raising [op] dtype with what it accepts), computes dtype and
// shape, checks sizes, captures the origin, counts pending work.
array make_node(const OpRow& row, Arrays inputs, Params params, const StreamOrDevice& stream);

// Depth and bytes of what waits below a new node; past the bounds, what it needs is evaluated first.
void bound_laziness(Node& node);

}  // namespace cermet
