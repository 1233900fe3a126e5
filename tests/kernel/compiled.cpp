// SPDX-License-Identifier: MIT
#include "kernel/compiled.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "kernel/run.h"

namespace cermet {

namespace {

int64_t evaluate(const ir::Size& size, const std::vector<int64_t>& extents) {
  int64_t value = size.constant;
  for (const ir::SizeTerm& term : size.terms)
    value *= (extents[term.axis] + term.tile - 1) / term.tile;
  return value;
}

size_t bytes_of(const ir::Local& local, const std::vector<int64_t>& extents) {
  return static_cast<size_t>(evaluate(local.size, extents)) * size_of(local.dtype);
}

}  // namespace

GuardedBytes::GuardedBytes(const std::vector<char>& bytes, bool at_end) : size_(bytes.size()) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inner = (size_ + page - 1) / page * page;
  mapped_ = inner + 2 * page;
  map_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (inner > 0) mprotect(map_ + page, inner, PROT_READ | PROT_WRITE);
  data_ = map_ + page + (at_end ? inner - size_ : 0);
  if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
}

GuardedBytes::~GuardedBytes() {
  if (map_ != nullptr) munmap(map_, mapped_);
}

GuardedBytes::GuardedBytes(GuardedBytes&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)),
      mapped_(other.mapped_),
      data_(other.data_),
      size_(other.size_) {}

std::vector<CpuLevel> host_levels() {
  std::vector<CpuLevel> levels;
  for (int l = 0; l <= static_cast<int>(std::min(cpu_level(), CpuLevel::avx512)); ++l)
    levels.push_back(static_cast<CpuLevel>(l));
  if (cpu_level() > CpuLevel::avx512) levels.push_back(cpu_level());
  return levels;
}

const char* name_of(CpuLevel level) {
  static constexpr const char* kNames[] = {"generic",     "avx2",        "avx512",
                                           "avx512_bf16", "avx512_fp16", "amx"};
  return kNames[static_cast<size_t>(level)];
}

KernelOutput run_interpreted(const ir::Kernel& kernel, const KernelInput& input,
                             ir::Arithmetic arithmetic) {
  KernelOutput output{.bytes = input.bytes, .failure = {}};
  std::vector<ir::Argument> arguments;
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    ir::Argument a;
    const auto size = static_cast<int64_t>(size_of(kernel.params[i].dtype));
    a.bits = input.scalars[i];
    a.before = input.before[i];
    a.data = output.bytes[i].data() + a.before * size;
    a.elements = static_cast<int64_t>(output.bytes[i].size()) / size - a.before;
    arguments.push_back(a);
  }
  output.failure = ir::interpret(kernel, arguments, input.extents, input.strides, arithmetic);
  return output;
}

void expect_same(const ir::Kernel& kernel, const KernelOutput& got, const KernelOutput& expected) {
  EXPECT_EQ(got.failure.site, expected.failure.site);
  if (expected.failure.site >= 0) {
    EXPECT_EQ(got.failure.index, expected.failure.index);
    return;
  }
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const std::string where =
        ir::difference(kernel.params[i].dtype, got.bytes[i], expected.bytes[i]);
    EXPECT_EQ(where, "") << "parameter " << i << " (compiled, interpreted)";
  }
}

LaunchMemory::LaunchMemory(const Object& object, const ir::Kernel& tiled, const KernelInput& input,
                           bool at_end)
    : input_(input) {
  for (size_t i = 0; i < tiled.params.size(); ++i) {
    buffers_.emplace_back(input.bytes[i], at_end);
    const auto size = static_cast<int64_t>(size_of(tiled.params[i].dtype));
    const auto data = reinterpret_cast<uint64_t>(buffers_[i].data() + input.before[i] * size);
    const ir::ParamKind kind = tiled.params[i].kind;
    record.push_back(kind == ir::ParamKind::buffer   ? data
                     : kind == ir::ParamKind::scalar ? input.scalars[i]
                                                     : reinterpret_cast<uint64_t>(&status));
  }
  for (int64_t extent : input.extents) record.push_back(static_cast<uint64_t>(extent));
  for (int64_t stride : input.strides) record.push_back(static_cast<uint64_t>(stride));
  for (const ir::Local& local : object.kernel_locals) {
    locals_.emplace_back(std::vector<char>(bytes_of(local, input.extents), '\xff'), at_end);
    record.push_back(reinterpret_cast<uint64_t>(locals_.back().data()));
  }
  for (const ir::Local& local : object.thread_locals)
    thread_bytes += (bytes_of(local, input.extents) + 63) / 64 * 64;
}

int64_t LaunchMemory::items(const EntryPoint& entry) const {
  return evaluate(entry.grid, input_.extents);
}

std::vector<size_t> LaunchMemory::local_bytes() const {
  std::vector<size_t> sizes;
  for (const GuardedBytes& local : locals_) sizes.push_back(local.bytes().size());
  return sizes;
}

KernelOutput LaunchMemory::output() const {
  KernelOutput output;
  for (const GuardedBytes& buffer : buffers_) output.bytes.push_back(buffer.bytes());
  output.failure = {static_cast<int32_t>(status.site), status.index};
  return output;
}

KernelOutput run_compiled(const LoadedKernel& code, const ir::Kernel& tiled,
                          const KernelInput& input, bool at_end, int64_t calls) {
  LaunchMemory memory(code.object, tiled, input, at_end);
  for (size_t e = 0; e < code.functions.size() && memory.status.site < 0; ++e) {
    const int64_t items = memory.items(code.object.entries[e]);
    const auto call = [&](int64_t begin, int64_t end) {
      const GuardedBytes local(std::vector<char>(memory.thread_bytes, '\xff'), at_end);
      code.functions[e](memory.record.data(), begin, end, local.data());
    };
    const int64_t turn = code.object.entries[e].turn;
    if (turn != 0 && calls > 1) {
      for (int64_t begin = 0; begin < items; begin += turn)
        for (int64_t i = 0; i < calls; ++i)
          call(begin + turn * i / calls, begin + turn * (i + 1) / calls);
      continue;
    }
    const int64_t step = std::max<int64_t>(1, (items + calls - 1) / calls);
    for (int64_t begin = 0; begin < items; begin += step)
      call(begin, std::min(items, begin + step));
  }
  return memory.output();
}

KernelOutput CompiledKernels::run(const ir::Kernel& tiled, const KernelInput& input, bool at_end) {
  std::shared_ptr<LoadedKernel>& code = known_[ir::print(tiled)];
  if (code == nullptr) code = load_kernel(compile_cpu(tiled, cpu_level()));
  return run_compiled(*code, tiled, input, at_end);
}

void expect_as_interpreted(const ir::Kernel& tiled, const std::vector<KernelInput>& inputs,
                           CpuLevel least) {
  ir::verify(tiled, true);
  std::vector<KernelOutput> expected;
  for (const KernelInput& input : inputs) expected.push_back(run_interpreted(tiled, input));
  const auto expect_from = [&](const LoadedKernel& code, bool at_end, int64_t calls) {
    for (size_t k = 0; k < inputs.size() && !testing::Test::HasFailure(); ++k) {
      SCOPED_TRACE(fmt::format("input {}", k));
      expect_same(tiled, run_compiled(code, tiled, inputs[k], at_end, calls), expected[k]);
    }
  };
  for (CpuLevel level : host_levels()) {
    if (level < least || testing::Test::HasFailure()) continue;
    SCOPED_TRACE(name_of(level));
    const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(tiled, level));
    expect_from(*code, true, 1);
    expect_from(*code, false, 3);
    if (level != cpu_level()) continue;
    SCOPED_TRACE("with polls");
    expect_from(*load_kernel(compile_cpu(tiled, level, true)), true, 1);
  }
}

}  // namespace cermet
