// SPDX-License-Identifier: MIT
// Devices and the default one. The CPU always exists; GPUs exist once a backend has registered
// them. The default device belongs to the process; a thread may override it for a scope
// (StreamContext), so a scope in one thread never changes where another thread's work
// goes.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace cermet {

struct Device {
  enum class DeviceType : uint8_t { cpu, gpu };
  static constexpr DeviceType cpu = DeviceType::cpu;
  static constexpr DeviceType gpu = DeviceType::gpu;

  constexpr Device(DeviceType type = cpu, int index = 0) : type(type), index(index) {}
  auto operator<=>(const Device&) const = default;

  DeviceType type;
  int index;
};
using DeviceType = Device::DeviceType;

// The device of new work in this thread: the innermost scope's, else the process's.
Device default_device();
// Sets the process's default and leaves this thread's scope, if any. Raises [set_default_device]
// device when it is absent.
void set_default_device(Device device);
// The override of this thread, for scopes that save and restore it; nullopt: none.
std::optional<Device> thread_default_device();
void set_thread_default_device(std::optional<Device> device);

bool is_available(Device device);
int device_count(DeviceType type);
// Raises [op] device, naming what there is, when the device is absent.
void check_device(const char* op, Device device);
// Called by a backend that has found its devices; count replaces an earlier count. info may be
// null.
using DeviceInfo = std::map<std::string, std::variant<std::string, size_t>>;
void register_devices(DeviceType type, int count, DeviceInfo (*info)(int index) = nullptr);
// "device_name" and "architecture", and what the backend adds. Raises [device_info] device.
DeviceInfo device_info(Device device);

std::string to_string(Device device);  // "Device(cpu, 0)"
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace cermet
