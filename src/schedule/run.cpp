// SPDX-License-Identifier: MIT
// Memory for each value from its launch to its last use, one record for each launch.
#include "schedule/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "graph/hooks.h"
#include "runtime/allocator.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/kernel_cache.h"
#include "runtime/log.h"
#include "runtime/poll.h"
#include "schedule/copy.h"

namespace cermet {

namespace {

using schedule::Operand;

struct ReportContext {
  const Program* program;
  std::span<const Program::Launch> batch;
};

void report_check(const void* context, int member, int32_t site, int64_t index) {
  const auto& c = *static_cast<const ReportContext*>(context);
  const schedule::CheckSite& s = c.batch[member].kernel.sites[site];
  std::string where;
  if (hooks::describe_origin != nullptr) {
    where = hooks::describe_origin(c.program->members[s.node].origin);
    if (!where.empty()) where = " (" + where + ")";
  }
  if (s.extent > 1)
    fail(ErrorKind::index, s.op,
         "index {} is out of range for axis {} of size {}; a slice of size {} starts at 0 to {}{}",
         index, s.axis, s.size, s.extent, s.size - s.extent, where);
  fail(ErrorKind::index, s.op,
       "index {} is out of range for axis {} of size {}; it must be in [{}, {}){}", index, s.axis,
       s.size, -s.size, s.size, where);
}

void log_launch(std::span<const Program::Launch> batch, int64_t ns) {
  const double us = static_cast<double>(ns) / 1e3;
  double bytes = 0, flops = 0;
  for (const Program::Launch& launch : batch) {
    bytes += static_cast<double>(launch.bytes_read + launch.bytes_written);
    flops += static_cast<double>(launch.kernel.flops);
  }
  const std::string more = batch.size() > 1 ? fmt::format(" x {}", batch.size()) : "";
  log_line(LogTopic::launch, "{} [{}]{} {:.1f} us, {:.1f} GB/s, {:.1f} GFLOP/s",
           batch[0].kernel.kernel.name, fmt::join(batch[0].kernel.extents, " "), more, us,
           bytes / us / 1e3, flops / us / 1e3);
}

}  // namespace

ProgramRun::ProgramRun(const Program& program, std::vector<ProgramValue> inputs,
                       std::span<const Number> scalars)
    : program_(&program),
      inputs_(std::move(inputs)),
      scalars_(scalars),
      memory_(program_->values.size()) {
  for (size_t v = 0; v < memory_.size(); v++) {
    const Program::Value& value = program_->values[v];
    if (value.input >= 0) {
      ProgramValue& input = inputs_[value.input];
      memory_[v] = {std::move(input.buffer), std::move(input.layout), input.donated, input.donated};
    } else if (value.constant) {
      memory_[v] = {value.constant->buffer, value.constant->layout, false, false};
    }
  }
}

std::vector<ProgramValue> ProgramRun::run() {
  if (next_ == 0 && program_->runs_apart.load(std::memory_order_relaxed) > 0)
    program_->runs_apart.fetch_sub(1);
  const std::span launches(program_->launches);
  while (next_ < launches.size()) {
    const auto batch = launches.subspan(next_, static_cast<size_t>(launches[next_].batch));
    check_cancelled("eval");
    run_batch(batch);
    for (const Program::Launch& launch : batch) {
      for (int v : launch.dies) drop(v);
      for (int v : launch.dies_shared) drop(v);
    }
    next_ += batch.size();
  }
  std::vector<ProgramValue> results;
  results.reserve(program_->outputs.size());
  for (const Program::Output& output : program_->outputs) {
    const Memory& memory = memory_[output.value];
    Layout layout = output.layout;  // relative to the start of the value's own layout
    layout.offset += memory.layout.offset;
    results.push_back({memory.buffer, std::move(layout), false});
  }
  return results;
}

std::vector<BufferRef> ProgramRun::take_back() {
  std::vector<BufferRef> buffers;
  for (ProgramValue& input : inputs_)
    buffers.push_back(input.donated ? std::move(input.buffer) : nullptr);
  for (size_t v = 0; v < memory_.size(); v++)
    if (memory_[v].given) buffers[program_->values[v].input] = std::move(memory_[v].buffer);
  memory_.clear();
  return buffers;
}

inline void ProgramRun::drop(int value) {
  lost_ |= memory_[value].given;
  memory_[value] = Memory();
}

void ProgramRun::drop_overwritten(const Program::Launch& launch) {
  const auto drop_if = [&](int value, int output) {
    if (memory_[value].buffer == memory_[output].buffer) drop(value);
  };
  for (auto [output, dying] : launch.take_over) drop_if(dying, output);
  if (launch.kernel.update_target < 0) return;
  for (int output : launch.outputs) drop_if(launch.kernel.update_target, output);
}

void ProgramRun::run_batch(std::span<const Program::Launch> batch) {
  overwrites_ = must_end_ = false;
  bool started = false;
  try {
    launch_batch(batch, started);
  } catch (...) {
    broken_ = started && overwrites_;
    for (const Program::Launch& launch : batch) {
      if (broken_) drop_overwritten(launch);
      for (int output : launch.outputs) memory_[output] = Memory();
    }
    throw;
  }
}

void ProgramRun::launch_batch(std::span<const Program::Launch> batch, bool& started) {
  const schedule::EmittedKernel& first = batch[0].kernel;
  Launch call;
  call.kernel = batch[0].code;
  call.members = static_cast<int>(batch.size());
  const size_t words = first.operands.size() + first.extents.size() + first.strides.size();
  call.record.reserve(words * batch.size());
  call.extents.reserve(first.extents.size() * batch.size());
  for (const Program::Launch& launch : batch) add_member(launch, call);
  const ReportContext context{program_, batch};
  call.report = report_check;
  call.context = &context;
  call.started = &started;
  std::optional<Uncancelled> uncancelled;
  if (must_end_) uncancelled.emplace();
  const int64_t begin = log_enabled(LogTopic::launch) ? now_ns() : 0;
  run_kernel(call);
  if (begin != 0) log_launch(batch, now_ns() - begin);
  for (const Program::Launch& launch : batch) {
    count(Counter::bytes_read, static_cast<uint64_t>(launch.bytes_read));
    count(Counter::bytes_written, static_cast<uint64_t>(launch.bytes_written));
  }
}

// The status word is set by the launch itself.
void ProgramRun::add_member(const Program::Launch& launch, Launch& call) {
  for (auto [output, dying] : launch.take_over) {
    const Memory& old = memory_[dying];
    if (!memory_[output].buffer && old.owned && old.buffer->unique() && !old.buffer->pinned() &&
        old.layout.offset == 0)
      overwrite(dying, output);
  }
  for (int output : launch.outputs) prepare_output(launch, output);
  for (const Operand& operand : launch.kernel.operands) call.record.push_back(word(operand));
  for (int64_t extent : launch.kernel.extents) {
    call.record.push_back(static_cast<uint64_t>(extent));
    call.extents.push_back(extent);
  }
  for (int64_t stride : launch.kernel.strides) call.record.push_back(static_cast<uint64_t>(stride));
}

inline void ProgramRun::overwrite(int value, int output) {
  memory_[output] = memory_[value];
  memory_[output].given = false;
  overwrites_ = true;
  must_end_ |= lost_ || memory_[value].given;
}

void ProgramRun::prepare_output(const Program::Launch& launch, int output) {
  Memory& memory = memory_[output];
  const Program::Value& value = program_->values[output];
  const int target = launch.kernel.update_target;
  if (target >= 0) {
    Memory& from = memory_[target];
    const bool dies =
        std::find(launch.dies.begin(), launch.dies.end(), target) != launch.dies.end();
    if (dies && from.owned && from.buffer->unique() && !from.buffer->pinned() &&
        from.buffer->size() == value.bytes && from.layout.offset == 0 &&
        is_contiguous(value.shape, launch.target_layout) && launch.target_layout.offset == 0) {
      overwrite(target, output);
      return;
    }
  }
  if (!memory.buffer) {
    const char* op = program_->members[output].op;
    memory = {allocator().allocate(value.bytes, op), Layout::contiguous(value.shape), true, false};
  }
  if (target >= 0) copy_target(launch, target, memory, value);
}

void ProgramRun::copy_target(const Program::Launch& launch, int target, Memory& to,
                             const Program::Value& value) {
  const Memory& from = memory_[target];
  const auto* start = static_cast<const char*>(from.buffer->data()) +
                      from.layout.offset * static_cast<int64_t>(size_of(value.dtype));
  schedule::copy_to_contiguous(start, launch.target_layout, to.buffer->data(), value.shape,
                               value.dtype);
}

inline uint64_t ProgramRun::word(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::buffer: {
      const Memory& memory = memory_[operand.value];
      // Offsets of complex values count elements; their kernels see pairs of parts.
      const int64_t offset = memory.layout.offset + operand.offset;
      return std::bit_cast<uint64_t>(static_cast<char*>(memory.buffer->data()) +
                                     offset * static_cast<int64_t>(size_of(operand.dtype)));
    }
    case Operand::Kind::scalar:
      return schedule::number_bits(scalars_[program_->scalar_positions[operand.scalar]],
                                   operand.dtype);
    case Operand::Kind::constant: return schedule::number_bits(operand.number, operand.dtype);
    case Operand::Kind::status: return 0;
  }
  __builtin_unreachable();
}

}  // namespace cermet
