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
#include "runtime/packed_cache.h"
#include "runtime/poll.h"
#include "schedule/copy.h"
#include "schedule/number_bits.h"
#include "schedule/product_scheme.h"
#include "schedule/program_call.h"

namespace cermet {

namespace {

struct ReportContext {
  const Program* program;
  std::span<const Program::Launch> batch;
  std::span<const Origin> origins;

  Origin origin_of(int node) const {
    const Program::Member& member = program->members[node];
    const bool is_known = member.position < origins.size() && origins[member.position].code;
    return is_known ? origins[member.position] : member.origin;
  }
};

void report_check(const void* context, int member, int32_t site, int64_t index) {
  const auto& c = *static_cast<const ReportContext*>(context);
  const schedule::CheckSite& s = c.batch[member].kernel.sites[site];
  std::string where;
  if (hooks::describe_origin != nullptr) {
    where = hooks::describe_origin(c.origin_of(s.node));
    if (!where.empty()) where = " (" + where + ")";
  }
  const std::string shown =
      s.is_unsigned ? std::to_string(static_cast<uint64_t>(index)) : std::to_string(index);
  if (s.extent > 1)
    fail(ErrorKind::index, s.op,
         "index {} is out of range for axis {} of size {}; a slice of size {} starts at 0 to {}{}",
         shown, s.axis, s.size, s.extent, s.size - s.extent, where);
  fail(ErrorKind::index, s.op,
       "index {} is out of range for axis {} of size {}; it must be in [{}, {}){}", shown, s.axis,
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
           batch[0].kernel.ir->name, fmt::join(batch[0].kernel.extents, " "), more, us,
           bytes / us / 1e3, flops / us / 1e3);
}

}  // namespace

ProgramRun::ProgramRun(const Program& program, ProgramInputs inputs,
                       std::span<const Number> scalars)
    : program_(&program), inputs_(std::move(inputs)), scalars_(scalars) {
  memory_.resize(program_->values.size());
  for (const auto [value, position] : program_->steps.inputs) {
    ProgramInput& input = inputs_[position];
    memory_[value] = {std::move(input.buffer), input.offset, input.donated, input.donated};
  }
  for (const int32_t value : program_->steps.constants) {
    const Node& constant = *program_->values[value].constant;
    memory_[value] = {constant.buffer, constant.layout.offset, false, false};
  }
}

void ProgramRun::run() {
  if (next_ == 0 && program_->runs_apart.load(std::memory_order_relaxed) > 0)
    program_->runs_apart.fetch_sub(1);
  for (const int value : program_->empty)
    memory_[value] = {allocator().allocate(0, program_->members[value].op), 0, true, false};
  const std::span<const Step> steps(program_->steps.all);
  while (next_ < steps.size()) {
    const auto batch = steps.subspan(next_, static_cast<size_t>(steps[next_].batch));
    check_cancelled("eval");
    run_batch(batch);
    leave(batch);
  }
}

void ProgramRun::run_others() {
  const std::span<const Step> steps(program_->steps.all);
  bool failed = true;
  while (next_ < steps.size()) {
    const auto batch = steps.subspan(next_, static_cast<size_t>(steps[next_].batch));
    if (!failed && has_all(batch)) {
      check_cancelled("eval");
      try {
        run_batch(batch);
      } catch (...) {
        if (is_passing(std::current_exception())) throw;
      }
    }
    failed = false;
    leave(batch);
  }
}

void ProgramRun::leave(std::span<const Step> batch) {
  for (const Step& step : batch)
    for (int value : program_->steps.values[step.dying]) drop(value);
  next_ += batch.size();
}

// Whether all that it reads is made.
bool ProgramRun::has_all(std::span<const Step> batch) const {
  const Steps& steps = program_->steps;
  return std::ranges::all_of(batch, [&](const Step& step) {
    const auto outputs = steps.outputs[step.outputs];
    const auto is_there = [&](int value) {
      return memory_[value].buffer != nullptr ||
             std::ranges::any_of(outputs, [&](const auto& made) { return made.value == value; });
    };
    return (step.target < 0 || memory_[step.target].buffer != nullptr) &&
           std::ranges::all_of(steps.buffers[step.buffers],
                               [&](const auto& word) { return is_there(word.value); });
  });
}

ProgramResult ProgramRun::result(size_t number) const {
  const Program::Output& output = program_->outputs[number];
  const Memory& memory = memory_[output.value];
  Layout layout = output.layout;  // relative to the start of the value's own layout
  const Dtype dtype = program_->values[output.value].dtype;
  layout.offset += memory.offset * static_cast<int64_t>(size_of(dtype)) /
                   static_cast<int64_t>(size_of(output.dtype));
  return {memory.buffer, std::move(layout)};
}

std::vector<BufferRef> ProgramRun::take_back() {
  std::vector<BufferRef> buffers;
  for (ProgramInput& input : inputs_)
    buffers.push_back(input.donated ? std::move(input.buffer) : nullptr);
  for (size_t v = 0; v < memory_.size(); v++)
    if (memory_[v].given) buffers[program_->values[v].input] = std::move(memory_[v].buffer);
  memory_.clear();
  return buffers;
}

// A tiny input, a random key say, stays: while nothing is lost, a run may be cut short at any time.
inline void ProgramRun::drop(int value) {
  constexpr int64_t kTinyBytes = 1 << 10;
  const Memory& memory = memory_[value];
  if (memory.given && !memory.spent && memory.buffer->size() <= kTinyBytes) return;
  lost_ |= memory.given;
  memory_[value] = Memory();
}

void ProgramRun::drop_overwritten(const Step& step) {
  const Steps& steps = program_->steps;
  const auto drop_if = [&](int value, int output) {
    if (memory_[value].buffer == memory_[output].buffer) drop(value);
  };
  for (const auto [output, dying] : steps.take_overs[step.take_overs]) drop_if(dying, output);
  if (step.target < 0) return;
  for (const Steps::Output& output : steps.outputs[step.outputs])
    drop_if(step.target, output.value);
}

void ProgramRun::run_batch(std::span<const Step> batch) {
  overwrites_ = must_end_ = false;
  bool started = false;
  try {
    launch_batch(batch, started);
  } catch (...) {
    broken_ = started && overwrites_;
    for (const Step& step : batch) {
      if (broken_) drop_overwritten(step);
      for (const Steps::Output& output : program_->steps.outputs[step.outputs])
        memory_[output.value] = Memory();
    }
    throw;
  }
}

inline std::span<const Program::Launch> ProgramRun::launches_of(std::span<const Step> batch) const {
  const auto first = static_cast<size_t>(batch.data() - program_->steps.all.data());
  return std::span(program_->launches).subspan(first, batch.size());
}

void ProgramRun::launch_batch(std::span<const Step> batch, bool& started) {
  call_.kernel = batch[0].code;
  call_.members = static_cast<int>(batch.size());
  call_.record.clear();
  call_.sizes = &program_->steps.sizes[batch[0].sizes];
  call_.sources.clear();
  for (const Step& step : batch) add_member(step);
  const KernelPtr kept = kept_kernel(batch[0]);
  call_.kept.kernel = kept.get();
  if (kept != nullptr) offer_kept(batch, *kept);
  const ReportContext context{program_, launches_of(batch), origins_};
  call_.report = report_check;
  call_.context = &context;
  call_.started = &started;
  std::optional<Uncancelled> uncancelled;
  if (must_end_) uncancelled.emplace();
  const int64_t begin = log_enabled(LogTopic::launch) ? now_ns() : 0;
  run_kernel(call_);
  if (begin != 0) log_launch(context.batch, now_ns() - begin);
  uint64_t bytes_read = 0, bytes_written = 0;
  for (const Step& step : batch) {
    bytes_read += step.bytes_read;
    bytes_written += step.bytes_written;
  }
  count(Counter::bytes_read, bytes_read);
  count(Counter::bytes_written, bytes_written);
}

// The status word is set by the launch itself.
void ProgramRun::add_member(const Step& step) {
  const Steps& steps = program_->steps;
  for (const auto [output, dying] : steps.take_overs[step.take_overs]) {
    const Memory& old = memory_[dying];
    if (!memory_[output].buffer && old.owned && old.buffer->unique() && !old.buffer->pinned() &&
        old.offset == 0)
      overwrite(dying, output);
  }
  for (const Steps::Output& output : steps.outputs[step.outputs]) prepare_output(step, output);
  const std::span<const uint64_t> words = steps.words[step.words];
  const size_t first = call_.record.size();
  call_.record.append(words);
  uint64_t* record = call_.record.data() + first;
  for (const Steps::BufferWord& word : steps.buffers[step.buffers]) {
    const Memory& memory = memory_[word.value];
    // Offsets of complex values count elements; their kernels see pairs of parts.
    const int64_t offset = memory.offset * static_cast<int64_t>(word.item_size) + word.offset;
    record[word.word] = std::bit_cast<uint64_t>(static_cast<char*>(memory.buffer->data()) + offset);
  }
  for (const Steps::ScalarWord& word : steps.scalars[step.scalars])
    record[word.word] = schedule::number_bits(scalars_[word.scalar], word.dtype);
  for (const int32_t value : steps.values[step.sources]) call_.sources.push_back(lasting(value));
}

// The buffer, if it may still hold the same after this run.
Buffer* ProgramRun::lasting(int value) const {
  const Memory& memory = memory_[value];
  const bool is_lasting = !memory.owned && !memory.buffer->pinned() && !memory.buffer->foreign();
  return is_lasting ? memory.buffer.get() : nullptr;
}

// Null: none, or not worth compiling before it would have served some times.
KernelPtr ProgramRun::kept_kernel(const Step& step) const {
  if (step.kept < 0) return nullptr;
  const Steps::Kept& kept = program_->steps.kept[step.kept];
  if (KernelPtr kernel = find_compiled_kernel(kept.hash)) return kernel;
  const schedule::EmittedKernel& first = program_->launches[kept.launch].kernel;
  const Buffer* matrix = nullptr;  // the largest operand: the weights
  for (const schedule::Operand& operand : first.operands) {
    if (operand.kind != schedule::Operand::Kind::buffer) continue;
    const Buffer* buffer = lasting(operand.value);
    if (buffer != nullptr && (matrix == nullptr || buffer->size() > matrix->size()))
      matrix = buffer;
  }
  if (matrix == nullptr) return nullptr;
  const PackedKey uses{kept.hash.lo, kept.hash.hi, reinterpret_cast<uint64_t>(matrix),
                       matrix->version()};
  if (!find_packed(uses).is_wanted) return nullptr;
  return find_kernel(kept.hash, [&] { return schedule::with_scheme(*first.ir, *first.kept); });
}

void ProgramRun::offer_kept(std::span<const Step> batch, const KernelHandle& kernel) {
  call_.extents.clear();
  call_.kept.sources.clear();
  for (const Program::Launch& launch : launches_of(batch)) {
    const schedule::EmittedKernel& own = launch.kernel;
    call_.extents.insert(call_.extents.end(), own.extents.begin(), own.extents.end());
    for (const Packing& packing : kernel.code->object.packings)
      for (const int32_t source : packing.sources)
        call_.kept.sources.push_back(lasting(own.operands[source].value));
  }
}

inline void ProgramRun::overwrite(int value, int output) {
  memory_[value].buffer->new_version();
  memory_[output] = memory_[value];
  memory_[output].given = false;
  memory_[value].spent = memory_[value].given;
  overwrites_ = true;
  must_end_ |= lost_ || memory_[value].given;
}

// What is overwritten for good must be written to its end. A long launch keeps the user waiting; where a
// copy costs little beside it, it may end at any time.
bool ProgramRun::is_better_copied(const Memory& target) const {
  constexpr double kLongNs = 1e8, kByteNs = 0.2, kShare = 0.05;
  if (!target.given && !lost_) return false;
  double cost = 0;
  for (const LaunchSizes::Work& work : call_.sizes->work) cost += work.total;
  return cost >= kLongNs && static_cast<double>(target.buffer->size()) * kByteNs <= kShare * cost;
}

void ProgramRun::prepare_output(const Step& step, const Steps::Output& output) {
  Memory& memory = memory_[output.value];
  if (step.target >= 0) {
    Memory& from = memory_[step.target];
    if (step.target_is_whole && from.owned && from.buffer->unique() && !from.buffer->pinned() &&
        from.buffer->size() == output.bytes && from.offset == 0 && !is_better_copied(from)) {
      overwrite(step.target, output.value);
      return;
    }
  }
  if (!memory.buffer) memory = {allocator().allocate(output.bytes, output.op), 0, true, false};
  if (step.target >= 0) copy_target(step, output);
}

void ProgramRun::copy_target(const Step& step, const Steps::Output& output) {
  const Memory& from = memory_[step.target];
  const Program::Value& target = program_->values[step.target];
  const Program::Value& value = program_->values[output.value];
  const auto* start = static_cast<const char*>(from.buffer->data()) +
                      from.offset * static_cast<int64_t>(size_of(target.dtype));
  schedule::copy_to_contiguous(start, launches_of({&step, 1})[0].target_layout,
                               memory_[output.value].buffer->data(), value.shape, value.dtype);
}

}  // namespace cermet
