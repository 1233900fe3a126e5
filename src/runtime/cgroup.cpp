// SPDX-License-Identifier: MIT
#include "runtime/cgroup.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime/affinity.h"

namespace cermet {
namespace {

struct Mount {
  std::string root;   // the group shown at the mount point
  std::string point;  // where it is mounted
};

bool in_list(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

// The mount of the unified hierarchy (controller "") or of a version 1 controller.
std::optional<Mount> find_mount(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash));
    std::istringstream right(line.substr(dash + 3));
    std::string skip, type, source, options;
    Mount mount;
    left >> skip >> skip >> skip >> mount.root >> mount.point;
    right >> type >> source >> options;
    const bool found =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && in_list(options, controller);
    if (found) return mount;
  }
  return std::nullopt;
}

// The process's group in that hierarchy.
std::optional<std::string> find_group(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : in_list(controllers, controller);
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders that control the process, from its own group up to the mount point.
std::vector<std::string> folders_of(const std::string& root, const std::string& controller) {
  const auto mount = find_mount(root, controller);
  const auto group = find_group(root, controller);
  if (!mount || !group) return {};
  // Inside a container the mount may show a group below the one that /proc names.
  std::string path = *group;
  if (mount->root != "/" && path.starts_with(mount->root)) path.erase(0, mount->root.size());
  if (path.find("..") != std::string::npos) path.clear();
  const std::string top = root + mount->point;
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(top + path);
    path.erase(path.rfind('/'));
  }
  folders.push_back(top);
  return folders;
}

// The first words of a file; empty ones where they or the file are missing.
std::pair<std::string, std::string> read_words(const std::string& path) {
  std::ifstream file(path);
  std::pair<std::string, std::string> words;
  file >> words.first >> words.second;
  return words;
}

// nullopt for "max", -1, a missing file and values that mean no limit.
std::optional<double> to_limit(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || value <= 0 || value >= 0x1p62) return std::nullopt;
  return value;
}

std::optional<double> lesser(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

template <typename Read>
std::optional<double> smallest(const std::vector<std::string>& folders, Read&& read) {
  std::optional<double> least;
  for (const std::string& folder : folders) least = lesser(least, read(folder));
  return least;
}

std::optional<double> ratio(const std::string& quota, const std::string& period) {
  const auto numerator = to_limit(quota);
  const auto denominator = to_limit(period);
  if (!numerator || !denominator) return std::nullopt;
  return *numerator / *denominator;
}

}  // namespace

int affinity_cores() {
  const std::optional<AffinityMask> mask = AffinityMask::of(0);
  return mask ? std::max(1, mask->count()) : 1;
}

std::optional<double> cpu_quota(const std::string& root) {
  const auto unified = smallest(folders_of(root, ""), [](const std::string& folder) {
    const auto [quota, period] = read_words(folder + "/cpu.max");
    return ratio(quota, period);
  });
  const auto legacy = smallest(folders_of(root, "cpu"), [](const std::string& folder) {
    return ratio(read_words(folder + "/cpu.cfs_quota_us").first,
                 read_words(folder + "/cpu.cfs_period_us").first);
  });
  return lesser(unified, legacy);
}

std::optional<uint64_t> memory_quota(const std::string& root) {
  const auto unified = smallest(folders_of(root, ""), [](const std::string& folder) {
    return to_limit(read_words(folder + "/memory.max").first);
  });
  const auto legacy = smallest(folders_of(root, "memory"), [](const std::string& folder) {
    return to_limit(read_words(folder + "/memory.limit_in_bytes").first);
  });
  const auto least = lesser(unified, legacy);
  if (!least) return std::nullopt;
  return static_cast<uint64_t>(*least);
}

uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace cermet
