// SPDX-License-Identifier: MIT
// Reading and checking of environment variables. The form of a variable's values decides the check:
// `a|b` is one of a choice, `a,b` a list of the names given (open when it ends in `...`), else
// free.
#include "base/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace cermet::env {
namespace {

struct Setting {
  std::string value;
  bool set;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool contains(const std::vector<std::string_view>& parts, std::string_view item) {
  return std::ranges::find(parts, item) != parts.end();
}

void check_choice(std::string_view variable, std::string_view values, std::string_view value) {
  const bool is_list = values.find(',') != std::string_view::npos;
  const bool is_choice = values.find('|') != std::string_view::npos;
  if (!is_choice && (!is_list || values.ends_with("..."))) return;
  const std::vector<std::string_view> allowed = split(values, is_list ? ',' : '|');
  const std::vector<std::string_view> given =
      is_list ? split(value, ',') : std::vector<std::string_view>{value};
  for (std::string_view item : given) {
    CERMET_CHECK(contains(allowed, item), value, "env", "{}={} is no value of it; use {}", variable,
                 value, values);
  }
}

Setting read(const char* variable, const char* values, const char* fallback) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return {fallback, false};
  check_choice(variable, values, text);
  return {text, true};
}

#define X(function, variable, values, fallback, meaning)            \
  const Setting& function##_setting() {                             \
    static const Setting setting = read(variable, values, fallback); \
    return setting;                                                 \
  }
CERMET_ENV(X)
#undef X

}  // namespace

#define X(function, variable, values, fallback, meaning) \
  const std::string& function() { return function##_setting().value; }
CERMET_ENV(X)
#undef X

bool is_set(std::string_view variable) {
#define X(function, name, values, fallback, meaning) \
  if (variable == name) return function##_setting().set;
  CERMET_ENV(X)
#undef X
  CERMET_INTERNAL_CHECK(false, "{} is not in the table of variables", variable);
  return false;
}

bool list_has(const std::string& comma_list, std::string_view item) {
  return contains(split(comma_list, ','), item);
}

int64_t to_int(std::string_view variable, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  CERMET_CHECK(error == std::errc() && parsed == end, value, "env",
               "{}={} is not an integer; use a decimal integer of 64 bits", variable, text);
  return value;
}

std::string of_system(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::vector<Row> table() {
  return {
#define X(function, variable, values, fallback, meaning) {variable, values, function(), meaning},
      CERMET_ENV(X)
#undef X
  };
}

}  // namespace cermet::env
