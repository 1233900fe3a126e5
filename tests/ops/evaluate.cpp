// SPDX-License-Identifier: MIT
#include "ops/evaluate.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"

namespace cermet::test {

namespace {

// Contiguous row-major data.
struct Value {
  Dtype dtype;
  Shape shape;
  std::vector<char> data;
};

struct Site {
  int axis;
  int64_t size;
};

Dtype lane_dtype(Dtype dtype) { return real_of(dtype); }

// Lowers one node: axes of its iteration space, one buffer for each input and one for the result.
class NodeKernel final : public LowerContext {
 public:
  NodeKernel(const Node& node, std::span<const Value* const> inputs)
      : builder_(node.row->name.value), node_(node), inputs_(inputs) {
    for (const Value* value : inputs)
      buffers_.push_back(builder_.buffer(lane_dtype(value->dtype), ir::Access::in));
    out_ = builder_.buffer(lane_dtype(node.dtype), ir::Access::inout);
    status_ = builder_.status();
  }

  ir::Builder& builder() override { return builder_; }

  Lane input(int k, const Coords& at) override { return load(k, at, ir::kNone); }
  Lane input_where(ir::ExprId mask, int k, const Coords& at) override { return load(k, at, mask); }

  ir::ExprId expr(const Coord& c) override {
    ir::ExprId sum =
        c.expr != ir::kNone ? builder_.add(c.expr, integer(c.offset)) : integer(c.offset);
    for (const auto& [axis, factor] : c.terms)
      sum = builder_.add(sum, builder_.mul(builder_.axis_ref(axis), integer(factor)));
    return sum;
  }

  std::optional<Bounds> bounds(const Coord&) override { return std::nullopt; }

  ir::ExprId number(const Number& n, Dtype dtype) override {
    if (n.kind <= Number::Kind::integer && !is_floating(dtype))
      return builder_.integer(dtype, n.integer);
    return builder_.constant(dtype, n.kind <= Number::Kind::integer ? static_cast<double>(n.integer)
                                                                    : n.real_imag.real());
  }

  void check_index(ir::ExprId ok, ir::ExprId index, int axis, const Dim& size,
                   const Dim&) override {
    index = builder().cast(index, Dtype::int64);
    checks_.push_back(ir::Check{ok, static_cast<int32_t>(sites_.size()), index});
    sites_.push_back({axis, size});
  }

  ir::ExprId size(int k, int axis) override { return integer(inputs_[k]->shape[axis]); }

  Value run() {
    std::vector<const Shape*> shapes;
    std::vector<Dtype> dtypes;
    for (const Value* value : inputs_) {
      shapes.push_back(&value->shape);
      dtypes.push_back(value->dtype);
    }
    const NodeView view{*node_.row,  node_.params,         node_.dtype,
                        node_.shape, {*node_.row, dtypes}, {*node_.row, shapes}};
    Value result{node_.dtype, node_.shape, {}};
    result.data.resize(node_.shape.size() * size_of(node_.dtype));
    std::visit([&](const auto& lowering) { lower(lowering, view); }, node_.row->lowering.value);
    if (std::holds_alternative<UpdateLowering>(node_.row->lowering.value))
      result.data = inputs_[0]->data;
    interpret(result);
    return result;
  }

 private:
  ir::ExprId integer(int64_t v) { return builder_.integer(Dtype::int64, v); }

  Coords add_axes(const Shape& shape, std::vector<ir::AxisId>* axes) {
    Coords coords;
    for (int64_t size : shape.values()) {
      const ir::AxisId axis = builder_.axis();
      extents_.push_back(size);
      axes->push_back(axis);
      coords.push_back({{{axis, 1}}, 0, ir::kNone});
    }
    return coords;
  }

  // Position of one part of an element, a complex one having two.
  ir::Index index_of(const Coords& at, const Shape& shape, Dtype dtype, int part) {
    const int64_t parts = is_complex(dtype) ? 2 : 1;
    ir::Index index;
    const Strides row_major = Layout::contiguous(shape).strides;
    for (size_t i = 0; i < at.size(); ++i) {
      strides_.push_back(row_major[i] * parts);
      index.push_back({expr(at[i]), builder_.stride()});
    }
    if (part == 1) index.push_back({integer(1), ir::kUnit});
    return index;
  }

  Lane load(int k, const Coords& at, ir::ExprId mask) {
    const Value& value = *inputs_[k];
    check_rank(at.size() == static_cast<size_t>(value.shape.ndim()));
    Lane lane;
    for (int part = 0; part < (is_complex(value.dtype) ? 2 : 1); ++part) {
      ir::ExprId otherwise = ir::kNone;
      if (mask != ir::kNone) otherwise = builder_.constant_bits(lane_dtype(value.dtype), 0);
      const ir::ExprId loaded = builder_.load(
          {false, buffers_[k]}, index_of(at, value.shape, value.dtype, part), mask, otherwise);
      (part == 0 ? lane.re : lane.im) = builder_.cast(loaded, compute_dtype(value.dtype));
    }
    return lane;
  }

  static void check_rank(bool ok) {
    CERMET_INTERNAL_CHECK(ok, "coordinates of another rank than the input");
  }

  void store(std::vector<ir::Stmt>* body, const Coords& at, const Lane& value) {
    for (int part = 0; part < (is_complex(node_.dtype) ? 2 : 1); ++part) {
      const ir::ExprId stored =
          builder_.cast(part == 0 ? value.re : value.im, lane_dtype(node_.dtype));
      body->push_back(
          ir::Store{{false, out_}, index_of(at, node_.shape, node_.dtype, part), stored});
    }
  }

  void add_stage(std::vector<ir::AxisId> axes, std::vector<ir::Stmt> body) {
    ir::For stage{.kind = ir::ForKind::stage, .axes = std::move(axes)};
    stage.body = std::move(body);
    builder_.kernel().body.push_back(std::move(stage));
  }

  std::vector<ir::Stmt> take_checks() {
    std::vector<ir::Stmt> checks;
    checks.swap(checks_);
    return checks;
  }

  void lower(const MapLowering& map, const NodeView& view) {
    std::vector<ir::AxisId> axes;
    const Coords at = add_axes(view.shape, &axes);
    std::vector<Lane> lanes;
    for (size_t k = 0; k < inputs_.size(); ++k) lanes.push_back(input(static_cast<int>(k), at));
    std::vector<ir::Stmt> body;
    store(&body, at, map.expr(*this, view, lanes));
    add_stage(axes, std::move(body));
  }

  void lower(const MoveLowering& move, const NodeView& view) {
    std::vector<ir::AxisId> axes;
    const Coords at = add_axes(view.shape, &axes);
    const Lane value = move.pull(*this, view, at);
    std::vector<ir::Stmt> body = take_checks();
    store(&body, at, value);
    add_stage(axes, std::move(body));
  }

  void lower(const FoldLowering& fold, const NodeView& view) {
    std::vector<ir::AxisId> axes, folded, kept;
    const Coords at = add_axes(*view.input_shapes[0], &axes);
    const Axes over = fold.axes(view);
    ir::ExprId position = integer(0);
    Coords kept_at;
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool is_folded = std::ranges::count(over, static_cast<int>(i)) > 0;
      (is_folded ? folded : kept).push_back(axes[i]);
      if (!is_folded) kept_at.push_back(at[i]);
      if (is_folded && view.shape.ndim() == static_cast<int>(axes.size())) kept_at.push_back({});
      if (is_folded)
        position = builder_.add(builder_.mul(position, builder_.extent(axes[i])),
                                builder_.axis_ref(axes[i]));
    }
    std::vector<ir::FoldState> states = fold.states(*this, view, input(0, at), position);
    std::vector<Dtype> dtypes;
    for (const ir::FoldState& state : states) dtypes.push_back(state.dtype);
    const ir::ValueId value = builder_.value(dtypes);
    add_stage(axes, {ir::Fold{value, folded, ir::Emit::last, ir::Order::lanes, states}});
    std::vector<ir::ExprId> results;
    for (size_t i = 0; i < states.size(); ++i)
      results.push_back(states.size() == 1
                            ? builder_.ref(value)
                            : builder_.get(static_cast<int>(i), builder_.ref(value)));
    std::vector<ir::Stmt> body;
    store(&body, kept_at, fold.finish(*this, view, results));
    add_stage(kept, std::move(body));
  }

  void lower(const ScanLowering& scan, const NodeView& view) {
    std::vector<ir::AxisId> axes;
    Coords at = add_axes(view.shape, &axes);
    const AxisParams& p = view.get<AxisParams>();
    if (p.flag) at[p.axis] = {{{axes[p.axis], -1}}, view.shape[p.axis] - 1, ir::kNone};
    std::vector<Lane> elements;
    for (size_t k = 0; k < inputs_.size(); ++k) elements.push_back(input(static_cast<int>(k), at));
    std::vector<ir::FoldState> states = scan.states(*this, view, elements);
    std::vector<Dtype> dtypes;
    for (const ir::FoldState& state : states) dtypes.push_back(state.dtype);
    const ir::ValueId value = builder_.value(dtypes);
    std::vector<ir::Stmt> body = {
        ir::Fold{value, {axes[p.axis]}, ir::Emit::each, ir::Order::serial, states}};
    std::vector<ir::ExprId> results;
    for (size_t i = 0; i < states.size(); ++i)
      results.push_back(states.size() == 1
                            ? builder_.ref(value)
                            : builder_.get(static_cast<int>(i), builder_.ref(value)));
    store(&body, at, scan.finish(*this, view, results));
    add_stage(axes, std::move(body));
  }

  void lower(const UpdateLowering& update, const NodeView& view) {
    constexpr ir::Code kCodes[] = {ir::Code::add, ir::Code::add, ir::Code::mul, ir::Code::max,
                                   ir::Code::min};
    const int last = static_cast<int>(inputs_.size()) - 1;
    std::vector<ir::AxisId> axes;
    const Coords at = add_axes(inputs_[last]->shape, &axes);
    const Coords target = update.target(*this, view, at);
    const Lane value = input(last, at);
    std::vector<ir::Stmt> body = take_checks();
    const ScatterReduce reduce = update.reduce(view);
    if (reduce == ScatterReduce::assign) {
      store(&body, target, value);
    } else {
      body.push_back(ir::Update{{false, out_},
                                index_of(target, node_.shape, node_.dtype, 0),
                                kCodes[static_cast<int>(reduce)],
                                value.re,
                                ir::kNone,
                                value.im});
    }
    add_stage(axes, std::move(body));
  }

  void lower(const CompositeLowering&, const NodeView&) {}
  void lower(const ContractLowering&, const NodeView&) {}

  void interpret(Value& result) {
    verify(builder_.kernel());
    std::vector<ir::Argument> arguments;
    auto add = [&](const void* data, const Value& value) {
      const int64_t parts = is_complex(value.dtype) ? 2 : 1;
      arguments.push_back({const_cast<void*>(data), value.shape.size() * parts});
    };
    for (const Value* value : inputs_) add(value->data.data(), *value);
    add(result.data.data(), result);
    int64_t status[8] = {};
    arguments.push_back({status, 8});
    const ir::CheckFailure failure =
        ir::interpret(builder_.kernel(), arguments, extents_, strides_);
    if (failure.site < 0) return;
    const Site site = sites_[failure.site];
    fail(ErrorKind::index, "index", "index {} for axis {} of size {}", failure.index, site.axis,
         site.size);
  }

  ir::Builder builder_;
  const Node& node_;
  std::span<const Value* const> inputs_;
  std::vector<ir::ParamId> buffers_;
  ir::ParamId out_ = 0, status_ = 0;
  std::vector<int64_t> extents_, strides_;
  std::vector<ir::Stmt> checks_;
  std::vector<Site> sites_;
};

std::complex<double> element(const Value& value, int64_t i) {
  return visit_dtype(value.dtype, [&]<typename T>(std::type_identity<T>) -> std::complex<double> {
    T e;
    std::memcpy(&e, value.data.data() + i * sizeof(T), sizeof(T));
    if constexpr (requires { e.real(); }) return {e.real(), e.imag()};
    else if constexpr (requires { e.bits; }) return static_cast<float>(e);
    else return static_cast<double>(e);
  });
}

void set_element(Value& value, int64_t i, std::complex<double> to) {
  visit_dtype(value.dtype, [&]<typename T>(std::type_identity<T>) {
    T e;
    if constexpr (requires { e.real(); })
      e = T(static_cast<typename T::value_type>(to.real()),
            static_cast<typename T::value_type>(to.imag()));
    else if constexpr (requires { e.bits; }) e = T(static_cast<float>(to.real()));
    else e = static_cast<T>(to.real());
    std::memcpy(value.data.data() + i * sizeof(T), &e, sizeof(T));
  });
}

Value multiply(const Node& node, const Value& a, const Value& b) {
  Value result{node.dtype, node.shape, {}};
  result.data.resize(node.shape.size() * size_of(node.dtype));
  const int ndim = node.shape.ndim();
  const int64_t m = node.shape[ndim - 2], n = node.shape[ndim - 1], k = a.shape[ndim - 1];
  const int64_t batch = node.shape.size() / std::max<int64_t>(m * n, 1);
  for (int64_t t = 0; t < batch; ++t)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        std::complex<double> sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += element(a, (t * m + i) * k + l) * element(b, (t * k + l) * n + j);
        set_element(result, (t * m + i) * n + j, sum);
      }
  return result;
}

Value ready_value(const Node& node) {
  Value value{node.dtype, node.shape, {}};
  const size_t size = size_of(node.dtype);
  value.data.resize(node.shape.size() * size);
  const Strides row_major = Layout::contiguous(node.shape).strides;
  const char* data = static_cast<const char*>(node.buffer->data());
  for (int64_t i = 0; i < node.shape.size(); ++i) {
    int64_t at = node.layout.offset;
    for (int axis = 0; axis < node.shape.ndim(); ++axis)
      at += i / row_major[axis] % node.shape[axis] * node.layout.strides[axis];
    std::memcpy(value.data.data() + i * size, data + at * static_cast<int64_t>(size), size);
  }
  return value;
}

using Values = std::map<const Node*, Value>;

// Values of the nodes from `root` down, each computed once.
void evaluate(const NodeRef& root, Values& done) {
  if (root->is_ready()) done.try_emplace(root.get(), ready_value(*root));
  for (const NodeRef& ref : pending_tape({&root, 1})) {
    const Node& node = *ref;
    if (done.contains(&node)) continue;
    std::vector<const Value*> inputs;
    Arrays input_arrays;
    for (const NodeRef& input : node.inputs) {
      if (input->is_ready()) done.try_emplace(input.get(), ready_value(*input));
      inputs.push_back(&done.at(input.get()));
      input_arrays.emplace_back(input);
    }
    if (const auto* composite = std::get_if<CompositeLowering>(&node.row->lowering.value)) {
      const array graph = composite->graph({*node.row, node.params, input_arrays});
      CERMET_INTERNAL_CHECK(graph.shape() == node.shape && graph.dtype() == node.dtype,
                            "the graph of {} has another shape or dtype", node.row->name.value);
      evaluate(graph.node(), done);
      done.emplace(&node, done.at(graph.node().get()));
      // The graph goes; no later node may be taken for one of its nodes.
      const NodeRef graph_root = graph.node();
      for (const NodeRef& inner : tape_to({&graph_root, 1}, node.inputs))
        if (!std::ranges::count(node.inputs, inner)) done.erase(inner.get());
    } else if (std::holds_alternative<ContractLowering>(node.row->lowering.value)) {
      done.emplace(&node, multiply(node, *inputs[0], *inputs[1]));
    } else {
      done.emplace(&node, NodeKernel(node, inputs).run());
    }
  }
}

}  // namespace

std::vector<std::complex<double>> complex_values(const array& a) {
  Values done;
  evaluate(a.node(), done);
  const Value& value = done.at(a.node().get());
  std::vector<std::complex<double>> result;
  for (int64_t i = 0; i < value.shape.size(); ++i) result.push_back(element(value, i));
  return result;
}

std::vector<double> values(const array& a) {
  std::vector<double> result;
  for (const std::complex<double>& v : complex_values(a)) result.push_back(v.real());
  return result;
}

array from_values(std::span<const double> values, Shape shape, Dtype dtype) {
  const std::vector<std::complex<double>> wide(values.begin(), values.end());
  return from_complex(wide, std::move(shape), dtype);
}

array from_complex(std::span<const std::complex<double>> values, Shape shape, Dtype dtype) {
  Value value{dtype, shape, std::vector<char>(values.size() * size_of(dtype))};
  for (size_t i = 0; i < values.size(); ++i) set_element(value, static_cast<int64_t>(i), values[i]);
  return array::from_data(value.data.data(), std::move(shape), dtype);
}

}  // namespace cermet::test
