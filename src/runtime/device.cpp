// SPDX-License-Identifier: MIT
#include "runtime/device.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <atomic>
#include <fstream>
#include <ostream>

#include "base/error.h"

namespace cermet {
namespace {

std::atomic<Device> process_default{Device(Device::cpu)};
thread_local std::optional<Device> thread_default;
std::atomic<int> gpu_count{0};
std::atomic<DeviceInfo (*)(int)> gpu_info{nullptr};

const char* name_of(DeviceType type) { return type == Device::cpu ? "cpu" : "gpu"; }

// The processor's name as the kernel gives it; the architecture's where it gives none.
DeviceInfo cpu_info() {
  utsname system{};
  uname(&system);
  std::string name = system.machine;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return {{"architecture", std::string(system.machine)}, {"device_name", name}};
}

}  // namespace

Device default_device() {
  return thread_default ? *thread_default : process_default.load(std::memory_order_acquire);
}

void set_default_device(Device device) {
  check_device("set_default_device", device);
  process_default.store(device, std::memory_order_release);
  thread_default.reset();
}

std::optional<Device> thread_default_device() { return thread_default; }

void set_thread_default_device(std::optional<Device> device) {
  if (device) check_device("set_default_device", *device);
  thread_default = device;
}

bool is_available(Device device) {
  return device.index >= 0 && device.index < device_count(device.type);
}

int device_count(DeviceType type) {
  return type == Device::cpu ? 1 : gpu_count.load(std::memory_order_acquire);
}

void check_device(const char* op, Device device) {
  if (is_available(device)) return;
  const int count = device_count(device.type);
  if (count == 0) {
    fail(ErrorKind::device, op, "there is no {} device here; use mx.cpu", name_of(device.type));
  }
  fail(ErrorKind::device, op, "there is no {}; the index of a {} is below {} here",
       to_string(device), name_of(device.type), count);
}

void register_devices(DeviceType type, int count, DeviceInfo (*info)(int index)) {
  CERMET_INTERNAL_CHECK(type == Device::gpu && count >= 0, "register_devices({}, {})",
                        name_of(type), count);
  gpu_info.store(info, std::memory_order_release);
  gpu_count.store(count, std::memory_order_release);
}

DeviceInfo device_info(Device device) {
  check_device("device_info", device);
  if (device.type == Device::cpu) return cpu_info();
  const auto info = gpu_info.load(std::memory_order_acquire);
  return info == nullptr ? DeviceInfo{} : info(device.index);
}

std::string to_string(Device device) {
  return fmt::format("Device({}, {})", name_of(device.type), device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace cermet
