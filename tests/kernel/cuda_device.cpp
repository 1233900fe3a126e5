// SPDX-License-Identifier: MIT
#include "kernel/cuda_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace cermet {

namespace {

// What is used of cuda.h, by its names there.
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76,
              kMaxSharedMemoryPerBlockOptin = 97;
constexpr int kSharedSizeBytes = 1, kMaxDynamicSharedSizeBytes = 8;
constexpr int kLeastArchitecture = 75;  // that NVRTC 13 compiles for

struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_get_attribute)(int*, int, int) = nullptr;
  int (*context_retain)(void**, int) = nullptr;
  int (*context_set)(void*) = nullptr;
  int (*synchronize)() = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*allocate)(uint64_t*, size_t) = nullptr;
  int (*free)(uint64_t) = nullptr;
  int (*fill)(uint64_t, unsigned char, size_t) = nullptr;
  int (*to_device)(uint64_t, const void*, size_t) = nullptr;
  int (*to_host)(void*, uint64_t, size_t) = nullptr;
  int (*module_load)(void**, const void*) = nullptr;
  int (*module_unload)(void*) = nullptr;
  int (*module_get_function)(void**, void*, const char*) = nullptr;
  int (*function_get_attribute)(int*, int, void*) = nullptr;
  int (*function_set_attribute)(void*, int, int) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**) = nullptr;
  bool found = false;  // all of them
};

Driver load_driver() {
  Driver d;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return d;
  d.found = true;
  const auto find = [&]<typename F>(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    d.found &= function != nullptr;
  };
  find(d.init, "cuInit");
  find(d.device_get, "cuDeviceGet");
  find(d.device_get_attribute, "cuDeviceGetAttribute");
  find(d.context_retain, "cuDevicePrimaryCtxRetain");
  find(d.context_set, "cuCtxSetCurrent");
  find(d.synchronize, "cuCtxSynchronize");
  find(d.error_name, "cuGetErrorName");
  find(d.allocate, "cuMemAlloc_v2");
  find(d.free, "cuMemFree_v2");
  find(d.fill, "cuMemsetD8_v2");
  find(d.to_device, "cuMemcpyHtoD_v2");
  find(d.to_host, "cuMemcpyDtoH_v2");
  find(d.module_load, "cuModuleLoadData");
  find(d.module_unload, "cuModuleUnload");
  find(d.module_get_function, "cuModuleGetFunction");
  find(d.function_get_attribute, "cuFuncGetAttribute");
  find(d.function_set_attribute, "cuFuncSetAttribute");
  find(d.launch, "cuLaunchKernel");
  return d;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

bool expect_done(int error, const std::string& what) {
  if (error == 0) return true;
  const char* name = nullptr;
  driver().error_name(error, &name);
  ADD_FAILURE() << what << " gives " << (name == nullptr ? "an unknown error" : name);
  return false;
}

constexpr size_t kMargin = 264;  // element 0 is aligned as an element of 8 bytes, no more
constexpr char kMarginByte = '\x5a';

}  // namespace

const CudaDevice* CudaDevice::first() {
  static const CudaDevice* const device = []() -> const CudaDevice* {
    const Driver& d = driver();
    int number = 0, major = 0, minor = 0, shared = 0;
    void* context = nullptr;
    const bool there =
        d.found && d.init(0) == 0 && d.device_get(&number, 0) == 0 &&
        d.device_get_attribute(&major, kComputeCapabilityMajor, number) == 0 &&
        d.device_get_attribute(&minor, kComputeCapabilityMinor, number) == 0 &&
        d.device_get_attribute(&shared, kMaxSharedMemoryPerBlockOptin, number) == 0 &&
        10 * major + minor >= kLeastArchitecture && d.context_retain(&context, number) == 0 &&
        d.context_set(context) == 0;
    if (!there) return nullptr;
    static CudaDevice found;
    found.architecture_ = 10 * major + minor;
    found.shared_bytes_ = shared;
    fmt::print("CUDA text runs on a GPU of compute capability {}.{}, too\n", major, minor);
    return &found;
  }();
  return device;
}

CudaBytes::CudaBytes(const std::vector<char>& bytes) : size_(bytes.size()) {
  expect_done(driver().allocate(&base_, size_ + 2 * kMargin), "cuMemAlloc");
  expect_done(driver().fill(base_, kMarginByte, size_ + 2 * kMargin), "cuMemsetD8");
  if (size_ > 0) expect_done(driver().to_device(address(), bytes.data(), size_), "cuMemcpyHtoD");
}

CudaBytes::~CudaBytes() {
  if (base_ != 0) driver().free(base_);
}

CudaBytes::CudaBytes(CudaBytes&& other) noexcept
    : base_(std::exchange(other.base_, 0)), size_(other.size_) {}

uint64_t CudaBytes::address() const { return base_ + kMargin; }

std::vector<char> CudaBytes::bytes() const {
  std::vector<char> all(size_ + 2 * kMargin);
  expect_done(driver().to_host(all.data(), base_, all.size()), "cuMemcpyDtoH");
  const auto begin = all.begin() + kMargin, end = all.end() - kMargin;
  const auto is_margin = [](char byte) { return byte == kMarginByte; };
  EXPECT_TRUE(std::all_of(all.begin(), begin, is_margin)) << "bytes before a buffer were written";
  EXPECT_TRUE(std::all_of(end, all.end(), is_margin)) << "bytes behind a buffer were written";
  return {begin, end};
}

CudaModule::CudaModule(const std::string& cubin, std::string name) : name_(std::move(name)) {
  expect_done(driver().module_load(&module_, cubin.c_str()), "cuModuleLoadData of " + name_);
}

CudaModule::~CudaModule() {
  if (module_ != nullptr) driver().module_unload(module_);
}

void* CudaModule::function(const std::string& entry) const {
  void* found = nullptr;
  if (module_ != nullptr)
    expect_done(driver().module_get_function(&found, module_, entry.c_str()),
                "cuModuleGetFunction of " + entry);
  return found;
}

int64_t CudaModule::dynamic_bytes(const std::string& entry) const {
  void* const code = function(entry);
  int named = 0;
  if (code == nullptr ||
      !expect_done(driver().function_get_attribute(&named, kSharedSizeBytes, code),
                   "cuFuncGetAttribute"))
    return 0;
  return CudaDevice::first()->shared_bytes() - named;
}

bool CudaModule::run(const std::string& entry, unsigned blocks, unsigned threads,
                     size_t dynamic_bytes, const std::vector<void*>& arguments) const {
  void* const code = function(entry);
  if (code == nullptr) return false;
  const std::string what = fmt::format("{} of {}", entry, name_);
  std::vector<void*> list = arguments;
  return expect_done(driver().function_set_attribute(code, kMaxDynamicSharedSizeBytes,
                                                     static_cast<int>(dynamic_bytes)),
                     "cuFuncSetAttribute of " + what) &&
         expect_done(
             driver().launch(code, blocks, 1, 1, threads, 1, 1,
                             static_cast<unsigned>(dynamic_bytes), nullptr, list.data(), nullptr),
             "cuLaunchKernel of " + what) &&
         expect_done(driver().synchronize(), what);
}

}  // namespace cermet
