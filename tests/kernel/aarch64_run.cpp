// SPDX-License-Identifier: MIT
#include "kernel/aarch64_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "kernel/run.h"
#include "temp_folder.h"

namespace cermet {

namespace {

constexpr const char* kTools = "aarch64-linux-gnu-";

bool execute(const std::string& command, const std::string& folder) {
  const int status = std::system(fmt::format("{} > '{}/log' 2>&1", command, folder).c_str());
  if (status == 0) return true;
  std::stringstream log;
  log << std::ifstream(folder + "/log").rdbuf();
  ADD_FAILURE() << command << " gives " << status << "\n" << log.str();
  return false;
}

void put(std::ostream& out, int64_t number) {
  out.write(reinterpret_cast<const char*>(&number), sizeof number);
}

void put(std::ostream& out, const std::vector<char>& bytes) {
  put(out, static_cast<int64_t>(bytes.size()));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<char> status_bytes() {
  const KernelStatus status;
  std::vector<char> bytes(sizeof status);
  std::memcpy(bytes.data(), &status, sizeof status);
  return bytes;
}

// Blocks are the parameters (one of no bytes for a scalar), then the kernel's locals.
void write_launch(std::ostream& out, const ir::Kernel& tiled, const Object& object,
                  const KernelInput& input) {
  const LaunchMemory memory(object, tiled, input, true);
  const size_t params = tiled.params.size();
  const std::vector<size_t> locals = memory.local_bytes();
  put(out, static_cast<int64_t>(params + locals.size()));
  int64_t status = -1;
  for (size_t i = 0; i < params; ++i) {
    const bool is_status = tiled.params[i].kind == ir::ParamKind::status;
    if (is_status) status = static_cast<int64_t>(i);
    put(out, is_status ? status_bytes() : input.bytes[i]);
  }
  for (size_t bytes : locals) put(out, std::vector<char>(bytes, '\xff'));
  put(out, static_cast<int64_t>(memory.record.size()));
  const size_t first_local = memory.record.size() - locals.size();
  for (size_t i = 0; i < memory.record.size(); ++i) {
    const bool is_local = i >= first_local;
    const bool is_scalar = i < params && tiled.params[i].kind == ir::ParamKind::scalar;
    const bool is_pointer = is_local || (i < params && !is_scalar);
    const bool is_buffer = i < params && tiled.params[i].kind == ir::ParamKind::buffer;
    put(out, !is_pointer ? -1 : static_cast<int64_t>(is_local ? params + i - first_local : i));
    put(out, is_buffer    ? input.before[i] * static_cast<int64_t>(size_of(tiled.params[i].dtype))
             : is_pointer ? 0
                          : static_cast<int64_t>(memory.record[i]));
  }
  put(out, static_cast<int64_t>(memory.thread_bytes));
  put(out, status);
  put(out, static_cast<int64_t>(object.entries.size()));
  for (const EntryPoint& entry : object.entries) put(out, memory.items(entry));
}

KernelOutput read_output(std::istream& in, const ir::Kernel& tiled, const Object& object,
                         const KernelInput& input) {
  KernelOutput output;
  for (size_t i = 0; i < tiled.params.size(); ++i) {
    const bool is_status = tiled.params[i].kind == ir::ParamKind::status;
    output.bytes.emplace_back(is_status ? sizeof(KernelStatus) : input.bytes[i].size());
    in.read(output.bytes[i].data(), static_cast<std::streamsize>(output.bytes[i].size()));
    if (!is_status) continue;
    KernelStatus status;
    std::memcpy(&status, output.bytes[i].data(), sizeof status);
    output.failure = {static_cast<int32_t>(status.site), status.index};
    output.bytes[i] = input.bytes[i];
  }
  for (size_t bytes : LaunchMemory(object, tiled, input, true).local_bytes())
    in.ignore(static_cast<std::streamsize>(bytes));
  return output;
}

[[maybe_unused]] const bool added = (add_neon(), true);

}  // namespace

size_t Aarch64Batch::add(const ir::Kernel& tiled) {
  kernels_.push_back({tiled, compile_cpu(tiled, CpuLevel::neon)});
  return kernels_.size() - 1;
}

void Aarch64Batch::launch(size_t kernel, const KernelInput& input) {
  launches_.push_back({kernel, input});
}

// The program of all kernels, or "".
std::string Aarch64Batch::build(const std::string& folder) const {
  std::string declared, listed, tables, objects;
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const std::string file = fmt::format("{}/k{}.o", folder, k);
    const Object& object = kernels_[k].object;
    std::ofstream(file, std::ios::binary) << object.blob;
    std::string renamed, entries;
    for (const EntryPoint& entry : object.entries) {
      const std::string name = fmt::format("k{}_{}", k, entry.symbol);
      renamed += fmt::format(" --redefine-sym {}={}", entry.symbol, name);
      declared +=
          fmt::format("extern \"C\" int64_t {}(const uint64_t*, int64_t, int64_t, char*);\n", name);
      entries += name + ", ";
    }
    if (!execute(fmt::format("{}objcopy{} '{}'", kTools, renamed, file), folder)) return "";
    tables += fmt::format("static const Entry k{}[] = {{{}nullptr}};\n", k, entries);
    listed += fmt::format("k{}, ", k);
    objects += fmt::format(" '{}'", file);
  }
  std::ofstream(folder + "/table.cc")
      << "#include <cstdint>\nusing Entry = int64_t (*)(const uint64_t*, int64_t, int64_t, "
         "char*);\n"
      << declared << tables << "extern const Entry* const kernel_entries[];\n"
      << "const Entry* const kernel_entries[] = {" << listed << "nullptr};\n";
  const std::string program = folder + "/kernels";
  const std::string command = fmt::format(
      "{}g++ -std=c++17 -O1 -static '{}/kernel/aarch64_runner.cc' '{}/table.cc'{} -o '{}'", kTools,
      CERMET_TESTS_DIR, folder, objects, program);
  return execute(command, folder) ? program : "";
}

std::vector<KernelOutput> Aarch64Batch::run() const {
  const TempFolder folder;
  const std::string program = build(folder.path()), in = folder.path() + "/in",
                    out = folder.path() + "/out";
  if (program.empty()) return {};
  {
    std::ofstream file(in, std::ios::binary);
    put(file, static_cast<int64_t>(launches_.size()));
    for (const Launch& l : launches_) {
      put(file, static_cast<int64_t>(l.kernel));
      write_launch(file, kernels_[l.kernel].tiled, kernels_[l.kernel].object, l.input);
    }
  }
  if (!execute(fmt::format("qemu-aarch64 '{}' '{}' '{}'", program, in, out), folder.path()))
    return {};
  std::ifstream file(out, std::ios::binary);
  std::vector<KernelOutput> outputs;
  for (const Launch& l : launches_)
    outputs.push_back(
        read_output(file, kernels_[l.kernel].tiled, kernels_[l.kernel].object, l.input));
  EXPECT_TRUE(file.good()) << "the program has written too little";
  return outputs;
}

void Aarch64Batch::expect_as_interpreted() const {
  const std::vector<KernelOutput> outputs = run();
  ASSERT_EQ(outputs.size(), launches_.size());
  for (size_t i = 0; i < outputs.size() && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("AArch64, kernel {}, launch {}", launches_[i].kernel, i));
    const ir::Kernel& tiled = kernels_[launches_[i].kernel].tiled;
    expect_same(tiled, outputs[i], run_interpreted(tiled, launches_[i].input));
  }
}

}  // namespace cermet
