// SPDX-License-Identifier: MIT
#include "schedule/memory_order.h"

#include <algorithm>
#include <numeric>

#include "schedule/regions.h"

namespace cermet::schedule {

namespace {

class Chooser {
 public:
  explicit Chooser(PlanGraph& graph) : graph_(graph), readers_(reader_counts(graph)) {}

  void choose() {
    for (Id id = static_cast<Id>(graph_.nodes.size()) - 1; id >= 0; --id) {
      const auto* move = graph_.nodes[id].lowering<MoveLowering>();
      if (move != nullptr && move->row_major && graph_.nodes[id].kernel < 0) choose_for(id);
    }
  }

 private:
  void choose_for(Id reshape) {
    std::vector<Id> moves;
    Id made = graph_.nodes[reshape].inputs[0];
    while (is_read_once(made) && graph_.nodes[made].lowering<MoveLowering>() != nullptr &&
           graph_.nodes[made].inputs.size() == 1) {
      moves.push_back(made);
      made = graph_.nodes[made].inputs[0];
    }
    if (!is_read_once(made) || !is_chosen_freely(graph_.nodes[made])) return;
    const Shape& shape = graph_.nodes[made].node->shape;
    std::optional<Layout> layout = Layout::contiguous(shape);
    for (size_t i = moves.size(); layout && i-- > 0;)
      layout =
          is_other_dtype(graph_, moves[i]) ? std::nullopt : view_layout(graph_, moves[i], *layout);
    if (!layout || view_layout(graph_, reshape, *layout)) return;
    const NodeRef& read = graph_.nodes[graph_.nodes[reshape].inputs[0]].node;
    const auto order = made_in_order_of(read->shape, *layout, shape);
    // Kernels store rows of their innermost axis.
    if (order && (order->back() == 1 || shape[shape.ndim() - 1] == 1))
      graph_.nodes[made].strides = *order;
  }

  bool is_read_once(Id id) const {
    const PlanNode& n = graph_.nodes[id];
    return readers_[id] == 1 && !n.needed && !n.border && !n.leaf;
  }

  static bool is_chosen_freely(const PlanNode& n) {
    return n.strides.empty() && n.lowering<MoveLowering>() == nullptr &&
           n.lowering<UpdateLowering>() == nullptr &&
           (n.kernel >= 0 || n.lowering<ContractLowering>() != nullptr);
  }

  // The strides of `made` with which `read`, which shows all of it in this layout, is contiguous.
  static std::optional<Strides> made_in_order_of(const Shape& read, const Layout& layout,
                                                 const Shape& made) {
    std::vector<int> axes(static_cast<size_t>(read.ndim()));
    std::iota(axes.begin(), axes.end(), 0);
    std::erase_if(axes, [&](int axis) { return read[axis] == 1; });
    const auto stride = [&](int axis) { return layout.strides[static_cast<size_t>(axis)]; };
    std::ranges::sort(axes, std::greater(), stride);
    const Strides wanted = Layout::contiguous(read).strides;
    Shape sorted;
    Layout there, here;
    for (int axis : axes) {
      sorted.push_back(read[axis]);
      there.strides.push_back(stride(axis));
      here.strides.push_back(wanted[static_cast<size_t>(axis)]);
    }
    if (layout.offset != 0 || sorted.count() != made.count() || !is_contiguous(sorted, there))
      return std::nullopt;
    const auto result = reshape_layout(sorted, here, made);
    return result ? std::optional(result->strides) : std::nullopt;
  }

  PlanGraph& graph_;
  std::vector<int> readers_;
};

}  // namespace

void choose_memory_orders(PlanGraph& graph) { Chooser(graph).choose(); }

}  // namespace cermet::schedule
