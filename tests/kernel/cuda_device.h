// SPDX-License-Identifier: MIT
// A GPU in tests, where there is one: the CUDA driver, loaded at run time, runs code of NVRTC. Each buffer lies
// between margins, so that a byte written beside it is a test failure. So is every error of the driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cermet {

class CudaDevice {
 public:
  // The first of the machine; null without one, or without a driver.
  static const CudaDevice* first();

  int architecture() const { return architecture_; }      // 90: compute capability 9.0
  int64_t shared_bytes() const { return shared_bytes_; }  // that a block may have

 private:
  CudaDevice() = default;
  int architecture_ = 0;
  int64_t shared_bytes_ = 0;
};

// Memory of the device.
class CudaBytes {
 public:
  explicit CudaBytes(const std::vector<char>& bytes);
  ~CudaBytes();
  CudaBytes(CudaBytes&& other) noexcept;
  CudaBytes(const CudaBytes&) = delete;
  uint64_t address() const;
  std::vector<char> bytes() const;  // a test failure if a margin was written

 private:
  uint64_t base_ = 0;
  size_t size_ = 0;
};

// Code loaded from a cubin, its name in errors.
class CudaModule {
 public:
  CudaModule(const std::string& cubin, std::string name);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;

  // What a block may have beside the shared memory that the entry's code names.
  int64_t dynamic_bytes(const std::string& entry) const;
  // Waits for its end. False, and a test failure, where the driver reports an error.
  bool run(const std::string& entry, unsigned blocks, unsigned threads, size_t dynamic_bytes,
           const std::vector<void*>& arguments) const;

 private:
  void* function(const std::string& entry) const;
  void* module_ = nullptr;
  std::string name_;
};

}  // namespace cermet
