// SPDX-License-Identifier: MIT
// Reading and checking of environment variables. The form of a variable's values decides the check:
// `a|b` is one of a choice, `a,b` a list of the names given, `n` an integer from 1 on, else free.
#include "base/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/lazy.h"

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

bool is_count(std::string_view value) {
  int64_t n = 0;
  const auto [parsed, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  return error == std::errc() && parsed == value.data() + value.size() && n >= 1;
}

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

void check_value(const char* variable, std::string_view values) {
  const std::string_view value = text_of(variable);
  if (value.empty()) return;
  const bool is_list = values.find(',') != std::string_view::npos;
  const bool is_choice = values.find('|') != std::string_view::npos;
  CERMET_CHECK(values != "n" || is_count(value), value, "env",
               "{}={} is no value of it; use an integer from 1 to 2**63 - 1", variable, value);
  if (!is_choice && !is_list) return;
  const std::vector<std::string_view> allowed = split(values, is_list ? ',' : '|');
  const std::vector<std::string_view> given =
      is_list ? split(value, ',') : std::vector<std::string_view>{value};
  for (std::string_view item : given) {
    CERMET_CHECK(contains(allowed, item), value, "env", "{}={} is no value of it; use {}", variable,
                 value, values);
  }
}

constexpr std::pair<const char*, const char*> kVariables[] = {
#define X(function, variable, values, fallback, meaning) {variable, values},
    CERMET_ENV(X)
#undef X
};

Setting read(const char* variable, const char* fallback) {
  check();
  const std::string text = text_of(variable);
  return text.empty() ? Setting{fallback, false} : Setting{text, true};
}

#define X(function, variable, values, fallback, meaning)     \
  const Setting& function##_setting() {                      \
    static constinit Lazy<Setting> setting;                  \
    return setting.get([] { return read(variable, fallback); }); \
  }
CERMET_ENV(X)
#undef X

}  // namespace

#define X(function, variable, values, fallback, meaning) \
  const std::string& function() { return function##_setting().value; }
CERMET_ENV(X)
#undef X

void check() {
  for (const auto& [variable, values] : kVariables) check_value(variable, values);
}

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

int64_t to_int(const std::string& value) {
  int64_t n = 0;
  std::from_chars(value.data(), value.data() + value.size(), n);
  return n;
}

std::string of_system(const char* variable) { return text_of(variable); }

std::vector<Row> table() {
  return {
#define X(function, variable, values, fallback, meaning) {variable, values, function(), meaning},
      CERMET_ENV(X)
#undef X
  };
}

}  // namespace cermet::env
