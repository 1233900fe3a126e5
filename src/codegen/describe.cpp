// SPDX-License-Identifier: MIT
#include "codegen/describe.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kernel/walk.h"

namespace cermet::codegen {

namespace {

using Numbers = std::set<int32_t>;

// What a chunk loop takes and makes.
struct Uses {
  Numbers read, written;           // buffers of the record
  Numbers locals, locals_written;  // of the kernel
};

class UsesFinder {
 public:
  explicit UsesFinder(const ir::Kernel& kernel) : kernel_(kernel), seen_(kernel.exprs.size()) {}

  Uses of(const ir::For& chunk) {
    ir::for_each_stmt(chunk.body, [&](const ir::Stmt& stmt) {
      std::visit([&](const auto& s) { enter(s); }, stmt);
      ir::for_each_expr(stmt, [&](ir::ExprId id) { use(id); });
    });
    return std::move(uses_);
  }

 private:
  template <typename T>
  void enter(const T&) {}
  void enter(const ir::Store& s) { write(s.buffer); }
  void enter(const ir::Update& s) { write(s.buffer); }
  void enter(const ir::Merge& s) {
    for (ir::LocalId local : s.from) read({true, local});
  }
  // Templates write the first of their buffers (micro.h).
  void enter(const ir::Micro& s) {
    write(s.buffers[0]);
    for (size_t i = 1; i < s.buffers.size(); ++i) read(s.buffers[i]);
  }

  bool is_kernel_local(const ir::BufferRef& buffer) const {
    return buffer.local && kernel_.locals[buffer.id].scope == ir::LocalScope::kernel;
  }
  void read(const ir::BufferRef& buffer) {
    if (!buffer.local) uses_.read.insert(buffer.id);
    if (is_kernel_local(buffer)) uses_.locals.insert(buffer.id);
  }
  void write(const ir::BufferRef& buffer) {
    if (!buffer.local) uses_.written.insert(buffer.id);
    if (!is_kernel_local(buffer)) return;
    uses_.locals.insert(buffer.id);
    uses_.locals_written.insert(buffer.id);
  }
  void use(ir::ExprId id) {
    if (seen_[id]) return;
    seen_[id] = true;
    const ir::Expr& e = kernel_[id];
    if (e.kind == ir::ExprKind::load) read(e.buffer);
    ir::for_each_operand(e, [&](ir::ExprId operand) { use(operand); });
  }

  const ir::Kernel& kernel_;
  std::vector<bool> seen_;
  Uses uses_;
};

bool has_check(const ir::For& chunk) {
  bool found = false;
  ir::for_each_stmt(chunk.body,
                    [&](const ir::Stmt& s) { found |= std::holds_alternative<ir::Check>(s); });
  return found;
}

// Words of the record, in the order in which a loop first uses them.
struct Words {
  std::vector<int32_t> buffers, others;
};

Words words_of(const ir::Kernel& kernel, const ir::LoopIdentity& loop) {
  std::vector<int32_t> extents;  // of each axis
  auto next = static_cast<int32_t>(kernel.params.size());
  for (const ir::Axis& axis : kernel.axes) extents.push_back(axis.has_extent ? next++ : ir::kNone);
  Words words;
  for (ir::ParamId param : loop.params)
    (kernel.params[param].kind == ir::ParamKind::buffer ? words.buffers : words.others)
        .push_back(param);
  for (ir::AxisId axis : loop.axes)
    if (extents[axis] != ir::kNone) words.others.push_back(extents[axis]);
  for (int32_t stride : loop.strides) words.others.push_back(next + stride);
  return words;
}

// Packing entry points whose Locals nobody else writes.
std::vector<Packing> find_packings(const ir::Kernel& kernel) {
  std::vector<const ir::For*> chunks;
  std::vector<Uses> uses;
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* chunk = std::get_if<ir::For>(&stmt);
    if (chunk == nullptr) continue;
    chunks.push_back(chunk);
    uses.push_back(UsesFinder(kernel).of(*chunk));
  }
  std::vector<int32_t> number;  // of a Local among those of the kernel
  int32_t next = 0;
  for (const ir::Local& local : kernel.locals)
    number.push_back(local.scope == ir::LocalScope::kernel ? next++ : next);
  std::vector<Packing> packings;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Uses& mine = uses[i];
    if (chunks[i]->entry != ir::kPackEntry || has_check(*chunks[i]) || !mine.written.empty() ||
        mine.locals != mine.locals_written)
      continue;
    const auto is_mine = [&](const Uses& other) {
      return &other == &mine || std::ranges::none_of(mine.locals, [&](int32_t local) {
        return other.locals_written.contains(local);
      });
    };
    if (!std::ranges::all_of(uses, is_mine)) continue;
    const ir::LoopIdentity identity = ir::identity_of(kernel, *chunks[i]);
    Words words = words_of(kernel, identity);
    Packing packing{identity.hash,
                    static_cast<int32_t>(i),
                    std::move(words.buffers),
                    std::move(words.others),
                    {}};
    for (int32_t local : identity.locals)
      if (mine.locals.contains(local)) packing.locals.push_back(number[local]);
    packings.push_back(std::move(packing));
  }
  return packings;
}

}  // namespace

void describe(const ir::Kernel& kernel, Object& object) {
  std::vector<ir::AxisId> ordinal;
  ir::AxisId next = 0;
  for (const ir::Axis& axis : kernel.axes) ordinal.push_back(axis.has_extent ? next++ : next);
  const auto by_extent = [&](ir::Size& size) {
    for (ir::SizeTerm& term : size.terms) term.axis = ordinal[term.axis];
  };
  for (EntryPoint& entry : object.entries) {
    by_extent(entry.grid);
    for (Work& work : entry.work)
      for (WorkTrip& trip : work.trips) trip.axis = ordinal[trip.axis];
  }
  for (ir::Local local : kernel.locals) {
    by_extent(local.size);
    (local.scope == ir::LocalScope::kernel ? object.kernel_locals : object.thread_locals)
        .push_back(std::move(local));
  }
  object.packings = find_packings(kernel);
  for (size_t i = 0; i < kernel.params.size(); ++i)
    if (kernel.params[i].kind == ir::ParamKind::status)
      object.status_word = static_cast<int32_t>(i);
}

}  // namespace cermet::codegen
