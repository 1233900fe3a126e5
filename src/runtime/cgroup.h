// SPDX-License-Identifier: MIT
// What the machine grants this process: processors by affinity mask, processor time and memory by
// control groups (version 1 and 2, every level from the process's group up to the mount).
// `root` stands for the root folder, so that tests read a folder of files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cermet {

int affinity_cores();  // processors that this thread may run on, >= 1
// Processors' worth of time, such as 1.5; nullopt: unlimited.
std::optional<double> cpu_quota(const std::string& root = "");
// Bytes; nullopt: unlimited.
std::optional<uint64_t> memory_quota(const std::string& root = "");
uint64_t physical_memory();  // bytes of the machine

}  // namespace cermet
