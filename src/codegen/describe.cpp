// SPDX-License-Identifier: MIT
#include "codegen/describe.h"

namespace cermet::codegen {

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
  for (size_t i = 0; i < kernel.params.size(); ++i)
    if (kernel.params[i].kind == ir::ParamKind::status)
      object.status_word = static_cast<int32_t>(i);
}

}  // namespace cermet::codegen
