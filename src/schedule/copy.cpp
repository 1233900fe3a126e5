// SPDX-License-Identifier: MIT
#include "schedule/copy.h"

#include <bit>

#include "kernel/builder.h"
#include "runtime/kernel_cache.h"

namespace cermet::schedule {

namespace {

struct CopyAxis {
  int64_t size, from, to;
};

// Axes of size > 1, neighbours walked as one collapsed.
std::vector<CopyAxis> copy_axes(const Shape& shape, const Strides& from) {
  std::vector<CopyAxis> axes;
  const Strides to = Layout::contiguous(shape).strides;
  for (int d = 0; d < shape.ndim(); d++) {
    if (shape[d] == 1) continue;
    if (!axes.empty() && axes.back().from == from[d] * shape[d]) {
      axes.back() = {axes.back().size * shape[d], from[d], to[d]};
    } else {
      axes.push_back({shape[d], from[d], to[d]});
    }
  }
  return axes;
}

// An integer of the element's size copies any dtype; complex128 goes as two.
Dtype carrier(size_t bytes) {
  return bytes == 1   ? Dtype::uint8
         : bytes == 2 ? Dtype::uint16
         : bytes == 4 ? Dtype::uint32
                      : Dtype::uint64;
}

}  // namespace

void copy_to_contiguous(const void* from, const Layout& layout, void* to, const Shape& shape,
                        Dtype dtype) {
  if (shape.size() == 0) return;
  std::vector<CopyAxis> axes = copy_axes(shape, layout.strides);
  const int64_t parts = size_of(dtype) == 16 ? 2 : 1;
  if (parts == 2) {
    for (CopyAxis& axis : axes) axis.from *= 2, axis.to *= 2;
    axes.push_back({2, 1, 1});
  }
  const Dtype element = carrier(size_of(dtype));
  ir::Builder builder("copy");
  const ir::ParamId in = builder.buffer(element, ir::Access::in);
  const ir::ParamId out = builder.buffer(element, ir::Access::out);
  Launch launch;
  ir::For stage;
  stage.kind = ir::ForKind::stage;
  ir::Index read, write;
  std::vector<uint64_t> strides;
  auto term = [&](ir::Index& index, ir::AxisId axis, int64_t stride) {
    if (stride == 0) return;
    if (stride == 1) {
      index.push_back({builder.axis_ref(axis), ir::kUnit});
    } else {
      index.push_back({builder.axis_ref(axis), builder.stride()});
      strides.push_back(static_cast<uint64_t>(stride));
    }
  };
  for (const CopyAxis& axis : axes) {
    const ir::AxisId id = builder.axis();
    stage.axes.push_back(id);
    launch.extents.push_back(axis.size);
    term(read, id, axis.from);
    term(write, id, axis.to);
  }
  const auto* start =
      static_cast<const char*>(from) + layout.offset * static_cast<int64_t>(size_of(dtype));
  launch.record = {std::bit_cast<uint64_t>(start), std::bit_cast<uint64_t>(to)};
  for (int64_t extent : launch.extents) launch.record.push_back(static_cast<uint64_t>(extent));
  launch.record.append(strides);
  stage.body.push_back(ir::Store{{false, out}, write, builder.load({false, in}, read)});
  builder.kernel().body.push_back(std::move(stage));
  const KernelPtr kernel = find_kernel(builder.kernel());
  launch.kernel = kernel.get();
  run_kernel(launch);
}

}  // namespace cermet::schedule
