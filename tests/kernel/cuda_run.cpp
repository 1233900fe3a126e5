// SPDX-License-Identifier: MIT
#include "kernel/cuda_run.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/cuda_source.h"
#include "kernel/cuda_launch.h"
#include "kernel/run.h"

namespace cermet {

namespace {

std::string read_text(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

// The kernel in a namespace of its own, with what the runner calls.
std::string as_host_text(const Object& object, size_t number) {
  std::string text = object.blob, calls;
  for (const EntryPoint& entry : object.entries) {
    const std::string name = fmt::format("k{}_{}", number, entry.symbol);
    replace_all(text, fmt::format(" {}(const ", entry.symbol), fmt::format(" {}(const ", name));
    calls += fmt::format(R"(extern "C" void run_{0}(const ShimLaunch& l) {{
  {0}(*static_cast<const Record*>(l.record), l.begin, l.end, l.scratch, l.scratch_stride);
}}
)",
                         name);
  }
  return fmt::format(
      "namespace k{0} {{\n{1}\n{2}"
      "alignas(64) char dynamic_shared[1 << 20];\n"
      "extern \"C\" char* shared_k{0}() {{ return dynamic_shared; }}\n}}\n",
      number, text, calls);
}

std::vector<std::string> nvrtc_places() {
  std::vector<std::string> places = {
      fmt::format("{}/nvidia/cu13/lib/libnvrtc.so.13", CERMET_SITE_PACKAGES), "libnvrtc.so",
      "libnvrtc.so.13"};
  const char* path = std::getenv("PATH");
  std::stringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code error;
    const auto nvcc = std::filesystem::canonical(std::filesystem::path(folder) / "nvcc", error);
    if (!error) places.push_back(nvcc.parent_path().parent_path() / "lib64/libnvrtc.so");
  }
  return places;
}

// NVRTC asks the loader for its builtins by name alone: where they lie beside it, they are loaded first.
void load_builtins(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error))
    if (file.path().filename().string().starts_with("libnvrtc-builtins.so"))
      dlopen(file.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
}

// NVRTC by dlopen: the wheel of requirements-test.txt, else from the loader's path or beside the nvcc on
// PATH.
void* nvrtc() {
  static void* const library = [] {
    void* found = nullptr;
    for (const std::string& place : nvrtc_places()) {
      if (found != nullptr) break;
      found = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (found != nullptr) load_builtins(std::filesystem::path(place).parent_path());
    }
    EXPECT_NE(found, nullptr) << "no NVRTC; pip install -r requirements-test.txt has it";
    return found;
  }();
  return library;
}

constexpr unsigned kManyBlocks = 300;
constexpr int kArchitecture = 90;  // without a GPU

std::string architecture_option() {
  const CudaDevice* device = CudaDevice::first();
  return fmt::format("--gpu-architecture=sm_{}",
                     device == nullptr ? kArchitecture : device->architecture());
}

// Machine code; on failure adds a test failure with the compiler's log.
std::string machine_code_of(const std::string& text) {
  using Program = void*;
  const auto function = [&]<typename F>(F*, const char* name) {
    return reinterpret_cast<F*>(dlsym(nvrtc(), name));
  };
  using Create =
      int(Program*, const char*, const char*, int, const char* const*, const char* const*);
  using Compile = int(Program, int, const char* const*);
  using Size = int(Program, size_t*);
  using Get = int(Program, char*);
  using Destroy = int(Program*);
  const auto get = [&](Program program, const char* size_name, const char* name) {
    size_t size = 0;
    function(static_cast<Size*>(nullptr), size_name)(program, &size);
    std::string result(size, '\0');
    function(static_cast<Get*>(nullptr), name)(program, result.data());
    return result;
  };
  Program program = nullptr;
  function(static_cast<Create*>(nullptr), "nvrtcCreateProgram")(&program, text.c_str(), "kernel.cu",
                                                                0, nullptr, nullptr);
  const std::string architecture = architecture_option();
  std::vector<const char*> options = {architecture.c_str(), "--disable-warnings"};
  for (const std::string& option : cuda_options()) options.push_back(option.c_str());
  const int failed = function(static_cast<Compile*>(nullptr), "nvrtcCompileProgram")(
      program, static_cast<int>(options.size()), options.data());
  EXPECT_EQ(failed, 0) << get(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog") << text;
  const std::string code = failed == 0 ? get(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN") : "";
  function(static_cast<Destroy*>(nullptr), "nvrtcDestroyProgram")(&program);
  return code;
}

// Its machine code, which has all of its entries.
std::string checked_code(const Object& object) {
  std::string code = machine_code_of(object.blob);
  for (const EntryPoint& entry : object.entries)
    EXPECT_NE(code.find(fmt::format(".text.{}", entry.symbol)), std::string::npos) << entry.symbol;
  return code;
}

std::vector<char> bytes_of(const KernelStatus& status) {
  std::vector<char> bytes(sizeof status);
  std::memcpy(bytes.data(), &status, sizeof status);
  return bytes;
}

// A launch's memory on the device: as the host's, with the addresses of copies in the record.
struct DeviceMemory {
  DeviceMemory(const ir::Kernel& tiled, const KernelInput& input, const LaunchMemory& host)
      : record(host.record) {
    for (size_t i = 0; i < tiled.params.size(); ++i) {
      const ir::Param& param = tiled.params[i];
      const bool is_status = param.kind == ir::ParamKind::status;
      buffers.emplace_back(is_status ? bytes_of(KernelStatus{}) : input.bytes[i]);
      if (param.kind == ir::ParamKind::scalar) continue;
      const auto size = static_cast<int64_t>(size_of(param.dtype));
      record[i] = buffers[i].address() + static_cast<uint64_t>(input.before[i] * size);
    }
    const std::vector<size_t> local_bytes = host.local_bytes();
    for (size_t i = 0; i < local_bytes.size(); ++i) {
      locals.emplace_back(std::vector<char>(local_bytes[i], '\xff'));
      record[record.size() - local_bytes.size() + i] = locals.back().address();
    }
    if (record.empty()) record.push_back(0);
  }

  std::vector<uint64_t> record;
  std::vector<CudaBytes> buffers, locals;
};

KernelOutput run_on_device(const CudaModule& module, const ir::Kernel& tiled, const Object& object,
                           const KernelInput& input, const CudaLaunch& how) {
  const LaunchMemory host(object, tiled, input, true);
  DeviceMemory memory(tiled, input, host);
  for (const EntryPoint& entry : object.entries) {
    const bool scratch =
        how.scratch || static_cast<int64_t>(host.thread_bytes) > module.dynamic_bytes(entry.symbol);
    const CudaBytes blocks(std::vector<char>(scratch ? host.thread_bytes * how.blocks : 0, '\xff'));
    long long begin = 0, end = host.items(entry), stride = 0;
    if (scratch) stride = static_cast<long long>(host.thread_bytes);
    uint64_t address = blocks.address();
    module.run(entry.symbol, how.blocks, how.threads, scratch ? 0 : host.thread_bytes,
               {memory.record.data(), &begin, &end, &address, &stride});
    blocks.bytes();
  }
  KernelOutput output;
  for (const CudaBytes& buffer : memory.buffers) output.bytes.push_back(buffer.bytes());
  for (const CudaBytes& local : memory.locals) local.bytes();
  for (size_t i = 0; i < tiled.params.size(); ++i) {
    if (tiled.params[i].kind != ir::ParamKind::status) continue;
    KernelStatus status;
    std::memcpy(&status, output.bytes[i].data(), sizeof status);
    output.failure = {static_cast<int32_t>(status.site), status.index};
    output.bytes[i] = input.bytes[i];
  }
  return output;
}

}  // namespace

std::vector<CudaLaunch> with_device(std::vector<CudaLaunch> launches) {
  if (CudaDevice::first() == nullptr) return launches;
  for (size_t i = 0, count = launches.size(); i < count; ++i) {
    CudaLaunch launch = launches[i];
    launch.device = true;
    launches.push_back(launch);
    launch.blocks += kManyBlocks;
    launches.push_back(launch);
  }
  return launches;
}

CudaBatch::~CudaBatch() {
  if (library_ != nullptr) dlclose(library_);
}

size_t CudaBatch::add(const ir::Kernel& tiled) {
  kernels_.push_back({tiled, cuda_target().compile(tiled, cuda_target().facts()), nullptr});
  return kernels_.size() - 1;
}

bool CudaBatch::build() {
  for (Entry& kernel : kernels_) {
    if (nvrtc() == nullptr || testing::Test::HasFailure()) break;
    const std::string code = checked_code(kernel.object);
    if (CudaDevice::first() != nullptr)
      kernel.module = std::make_unique<CudaModule>(code, kernel.tiled.name);
  }
  return build_for_host() && !testing::Test::HasFailure();
}

bool CudaBatch::build_for_host() {
  {
    std::ofstream file(folder_.path() + "/batch.cpp");
    file << "#include \"kernel/cuda_shim.h\"\n";
    for (size_t k = 0; k < kernels_.size(); ++k) file << as_host_text(kernels_[k].object, k);
  }
  const char* compiler = std::getenv("CXX");
  const std::string command = fmt::format(
      "{0} -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing -I'{1}' "
      "'{2}/batch.cpp' -o '{2}/batch.so' > '{2}/log' 2>&1",
      compiler == nullptr ? "c++" : compiler, CERMET_TESTS_DIR, folder_.path());
  const bool compiled = std::system(command.c_str()) == 0;
  EXPECT_TRUE(compiled) << command << "\n" << read_text(folder_.path() + "/log");
  if (!compiled) return false;
  library_ = dlopen((folder_.path() + "/batch.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library_, nullptr) << dlerror();
  return library_ != nullptr;
}

KernelOutput CudaBatch::run(size_t kernel, const KernelInput& input, const CudaLaunch& how) const {
  const auto& [tiled, object, module] = kernels_[kernel];
  return how.device ? run_on_device(*module, tiled, object, input, how)
                    : run_in_turns(kernel, input, how);
}

KernelOutput CudaBatch::run_in_turns(size_t kernel, const KernelInput& input,
                                     const CudaLaunch& how) const {
  const auto& [tiled, object, module] = kernels_[kernel];
  LaunchMemory memory(object, tiled, input, !how.backwards);
  const auto run = reinterpret_cast<ShimRun>(dlsym(library_, "shim_run"));
  const auto shared =
      reinterpret_cast<char* (*)()>(dlsym(library_, fmt::format("shared_k{}", kernel).c_str()));
  const size_t blocks = how.scratch ? how.blocks : 0;
  for (const EntryPoint& entry : object.entries) {
    const auto call = reinterpret_cast<ShimEntry>(
        dlsym(library_, fmt::format("run_k{}_{}", kernel, entry.symbol).c_str()));
    const GuardedBytes scratch(std::vector<char>(memory.thread_bytes * blocks, '\xff'), true);
    const bool met =
        run(call, {.record = memory.record.data(),
                   .begin = 0,
                   .end = memory.items(entry),
                   .scratch = scratch.data(),
                   .scratch_stride = static_cast<long long>(how.scratch ? memory.thread_bytes : 0),
                   .shared = shared(),
                   .shared_bytes = memory.thread_bytes,
                   .threads = how.threads,
                   .blocks = how.blocks,
                   .backwards = how.backwards});
    EXPECT_TRUE(met) << "threads wait for others that never come in " << entry.symbol
                     << object.blob;
  }
  return memory.output();
}

void CudaBatch::expect_as_interpreted(size_t kernel, const std::vector<KernelInput>& inputs) const {
  const ir::Kernel& tiled = kernels_[kernel].tiled;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const KernelOutput expected = run_interpreted(tiled, inputs[k]);
    for (const CudaLaunch& how : with_device({{}, {64, 1, true, true}, {128, 3, false, true}})) {
      SCOPED_TRACE(fmt::format("kernel {} {}, input {}, {} blocks of {} threads{}", kernel,
                               tiled.name, k, how.blocks, how.threads,
                               how.device ? " on the device" : ""));
      expect_same(tiled, run(kernel, inputs[k], how), expected);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace cermet
