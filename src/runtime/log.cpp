// SPDX-License-Identifier: MIT
#include "runtime/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "base/env.h"
#include "base/error.h"

namespace cermet {
namespace {

constexpr uint32_t kUnread = 1u << 31;  // CERMET_LOG has not been looked at
std::atomic<uint32_t> enabled{kUnread};

constexpr std::array kTopicNames = {
#define X(name) #name,
    CERMET_LOG_TOPICS(X)
#undef X
};

uint32_t parse_topics(std::string_view topics) {
  uint32_t bits = 0;
  while (!topics.empty()) {
    const std::string_view name = topics.substr(0, topics.find(','));
    topics.remove_prefix(std::min(topics.size(), name.size() + 1));
    uint32_t bit = 0;
    for (size_t i = 0; i < kTopicNames.size(); ++i) {
      if (name == kTopicNames[i]) bit = 1u << i;
    }
    CERMET_CHECK(bit != 0 || name.empty(), value, "log", "unknown topic '{}'; the topics are {}",
                 name, fmt::join(kTopicNames, ", "));
    bits |= bit;
  }
  return bits;
}

void write_line(const std::string& line) {
  // A failing stderr must not fail the work.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

bool log_enabled(LogTopic topic) {
  uint32_t bits = enabled.load(std::memory_order_relaxed);
  if (bits == kUnread) [[unlikely]] {
    try {
      set_log(env::log());
    } catch (const Error& error) {
      // Lines are also written where nothing may be thrown.
      enabled.store(0, std::memory_order_relaxed);
      write_warning(error.what());
    }
    bits = enabled.load(std::memory_order_relaxed);
  }
  return (bits >> static_cast<int>(topic) & 1) != 0;
}

void set_log(const std::string& topics) {
  enabled.store(parse_topics(topics), std::memory_order_relaxed);
}

void write_log(LogTopic topic, const std::string& text) {
  write_line(fmt::format("[cermet {}] {}\n", kTopicNames[static_cast<size_t>(topic)], text));
}

void write_warning(const std::string& text) { write_line(fmt::format("[cermet] {}\n", text)); }

}  // namespace cermet
