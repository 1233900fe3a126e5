// SPDX-License-Identifier: MIT
#include "schedule/steps.h"

#include <algorithm>
#include <ranges>

#include "kernel/text.h"
#include "schedule/number_bits.h"
#include "schedule/product_scheme.h"
#include "schedule/program.h"

namespace cermet {

using schedule::Operand;

Steps::Steps(const Program& program) {
  for (size_t v = 0; v < program.values.size(); v++) {
    const Program::Value& value = program.values[v];
    if (value.input >= 0) inputs.push_back({static_cast<int32_t>(v), value.input});
    else if (value.constant) constants.push_back(static_cast<int32_t>(v));
  }
  for (size_t i = 0; i < program.launches.size(); i++) add(program, i);
}

void Steps::add(const Program& program, size_t number) {
  const Program::Launch& launch = program.launches[number];
  const schedule::EmittedKernel& kernel = launch.kernel;
  std::vector<uint64_t> record;
  std::vector<BufferWord> pointers;
  std::vector<ScalarWord> numbers;
  for (const Operand& operand : kernel.operands) {
    const auto word = static_cast<int32_t>(record.size());
    record.push_back(operand.kind == Operand::Kind::constant
                         ? schedule::number_bits(operand.number, operand.dtype)
                         : 0);
    if (operand.kind == Operand::Kind::buffer)
      pointers.push_back({operand.offset, word, operand.value,
                          static_cast<uint32_t>(size_of(program.values[operand.value].dtype))});
    else if (operand.kind == Operand::Kind::scalar)
      numbers.push_back({word, program.scalar_positions[operand.scalar], operand.dtype});
  }
  record.insert(record.end(), kernel.extents.begin(), kernel.extents.end());
  record.insert(record.end(), kernel.strides.begin(), kernel.strides.end());
  std::vector<Output> made;
  for (int value : launch.outputs)
    made.push_back(
        {value, static_cast<size_t>(program.values[value].bytes), program.members[value].op});
  std::vector<TakeOver> taken;
  for (auto [output, dying] : launch.take_over) taken.push_back({output, dying});
  std::vector<int32_t> packed;
  for (const Packing& packing : launch.code->code->object.packings)
    for (int32_t source : packing.sources) packed.push_back(kernel.operands[source].value);
  std::vector<int32_t> dying(launch.dies);
  dying.insert(dying.end(), launch.dies_shared.begin(), launch.dies_shared.end());

  Step step{.code = launch.code.get(),
            .batch = launch.batch,
            .target = kernel.update_target,
            .words = words.add(record),
            .buffers = buffers.add(pointers),
            .scalars = scalars.add(numbers),
            .outputs = outputs.add(made),
            .take_overs = take_overs.add(taken),
            .sources = values.add(packed),
            .dying = values.add(dying),
            .bytes_read = static_cast<uint64_t>(launch.bytes_read),
            .bytes_written = static_cast<uint64_t>(launch.bytes_written)};
  if (kernel.kept) {
    step.kept = static_cast<int32_t>(kept.size());
    kept.push_back({ir::hash_of(schedule::with_scheme(*kernel.ir, *kernel.kept)), number});
  }
  step.target_is_whole = step.target >= 0 && !launch.keeps_target &&
                         std::ranges::find(launch.dies, step.target) != launch.dies.end() &&
                         launch.target_layout.offset == 0 &&
                         std::ranges::all_of(launch.outputs, [&](int value) {
                           return is_contiguous(program.values[value].shape, launch.target_layout);
                         });
  if (step.batch > 0) {
    std::vector<int64_t> extents;
    for (int i = 0; i < step.batch; i++) {
      const std::vector<Dim>& own = program.launches[number + i].kernel.extents;
      extents.insert(extents.end(), own.begin(), own.end());
    }
    step.sizes = static_cast<int32_t>(sizes.size());
    sizes.emplace_back(*launch.code, step.batch, extents);
  }
  all.push_back(step);
}

}  // namespace cermet
