// SPDX-License-Identifier: MIT
// Lines for people who look for the cause of something, to stderr, by topic (CERMET_LOG). Off costs
// one load. Each line is written whole, so lines of several threads do not mix.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

namespace cermet {

#define CERMET_LOG_TOPICS(X) X(plan) X(kernel) X(compile) X(launch) X(alloc) X(sync)

enum class LogTopic : uint8_t {
#define X(name) name,
  CERMET_LOG_TOPICS(X)
#undef X
};

bool log_enabled(LogTopic topic);
void set_log(const std::string& topics);  // comma list as in CERMET_LOG; raises [log] value
void write_log(LogTopic topic, const std::string& text);  // "[cermet plan] text\n"
void write_warning(const std::string& text);              // "[cermet] text\n", whatever the topics

// The arguments are evaluated always: guard costly ones with log_enabled.
template <typename... Args>
void log_line(LogTopic topic, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(topic)) write_log(topic, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace cermet
