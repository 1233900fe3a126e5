// SPDX-License-Identifier: MIT
// Memory functions, counters, device information, the table of environment variables.
#include <unistd.h>

#include <fstream>

#include "bind.h"
#include "runtime/kernel_cache.h"

namespace cermet::python {

namespace {

void def_memory(nb::module_& m) {
  m.def("get_active_memory", &get_active_memory, "Bytes of live arrays.");
  m.def("get_peak_memory", &get_peak_memory,
        "The most bytes of live arrays since the start or the last reset.");
  m.def("reset_peak_memory", &reset_peak_memory, "Sets the peak to 0.");
  m.def("get_cache_memory", &get_cache_memory, "Bytes kept for reuse.");
  m.def("set_memory_limit", &set_memory_limit, nb::arg("limit"),
        "Bytes that may be held; past them MemoryError. Returns the limit before.");
  m.def("set_cache_limit", &set_cache_limit, nb::arg("limit"),
        "Bytes that may be kept for reuse. Returns the limit before.");
  m.def("set_wired_limit", &set_wired_limit, nb::arg("limit"),
        "Kept and returned; nothing is wired here.");
  m.def("clear_cache", &clear_cache, "Gives all kept bytes back to the system.");
}

nb::object get_counters(bool reset) {
  const CounterSnapshot s = snapshot_counters(reset);
  nb::dict all, hits, calls;
  const auto put = [&](const char* name, uint64_t value) {
    const std::string_view text = name;
    constexpr std::string_view prefix = "kernel_hits_";
    if (text.starts_with(prefix)) hits[text.substr(prefix.size()).data()] = value;
    else all[name] = value;
  };
#define X(name, meaning) put(#name, s.name);
  CERMET_COUNTERS(X)
#undef X
  all["kernel_hits"] = hits;
  for (const auto& [name, count] : s.library_calls) calls[name.c_str()] = count;
  all["library_calls"] = calls;
  return all;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

nb::dict device_info(nb::handle d) {
  const StreamOrDevice given = to_stream_arg(d);
  Device device = default_device();
  if (const Device* exact = std::get_if<Device>(&given)) device = *exact;
  if (const DeviceType* type = std::get_if<DeviceType>(&given)) device = Device(*type);
  check_device("device_info", device);
  nb::dict info;
  if (device.type == Device::cpu) {
#if defined(__x86_64__)
    info["architecture"] = "x86_64";
#elif defined(__aarch64__)
    info["architecture"] = "aarch64";
#endif
    info["device_name"] = processor_name();
    info["memory_size"] = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
  return info;
}

// MLX's submodule for Apple's GPUs: present, and never available here.
void def_metal(nb::module_& parent) {
  nb::module_ m =
      submodule(parent, "metal", "MLX's module of Metal functions; there is no Metal here.");
  m.def("is_available", [] { return false; });
  def_memory(m);
  m.def(
      "start_capture",
      [](const std::string&) {
        fail(ErrorKind::runtime, "start_capture",
             "there is no Metal device to capture; mx.explain(f, *args) shows the kernels of a "
             "call");
      },
      nb::arg("path"));
  m.def("stop_capture", [] {});
  m.def("device_info", [] { return nb::dict(); });
}

nb::list env_table() {
  nb::list rows;
  for (const env::Row& row : env::table())
    rows.append(nb::make_tuple(row.variable, row.values, row.value, row.meaning));
  return rows;
}

}  // namespace

void init_memory(nb::module_& m) {
  def_memory(m);
  m.def("get_memory_limit", &get_memory_limit, "Bytes that may be held.");
  m.def(
      "get_array_buffer_size",
      [](nb::args arrays) {
        size_t bytes = 0;
        for (const array& a : tree_arrays("get_array_buffer_size", arrays)) {
          CERMET_CHECK(a.is_ready(), value, "get_array_buffer_size",
                       "an array is not evaluated yet; call eval on it first");
          bytes += a.node()->buffer->size();
        }
        return bytes;
      },
      nb::arg("args"), "Bytes of the buffers behind evaluated arrays.");
  m.def("device_info", &device_info, nb::arg("d") = nb::none(), "What is known of a device.");
  m.def(
      "counters", &get_counters, nb::arg("reset") = false,
      "Totals of what was launched, compiled, read, written and allocated since the start; reset: "
      "clears them afterwards.");
  m.def("_env_table", &env_table,
        "(variable, choices, value, meaning) of each environment variable.");
  m.def(
      "_keep_kernels", &keep_kernels, nb::arg("path"), nb::arg("generator"),
      "Keeps the kernels compiled from now on for a seed cache at that path; an earlier one there "
      "that the same code generator made saves compiling.");
  m.def("_write_kept_kernels", &write_kept_kernels,
        "Writes the seed cache: the kernels kept, for every level of processor; returns how many "
        "were compiled for it.");
  def_metal(m);
}

}  // namespace cermet::python
