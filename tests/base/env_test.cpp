// SPDX-License-Identifier: MIT
// Environment variables: each is read once per process, so every test reads them in a child.
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include "base/error.h"

namespace cermet {
namespace {

// Whether `read` gives `<text>`, or raises an error of that text, with the variable set to value.
bool gives(const char* variable, const char* value, const std::function<std::string()>& read,
           const std::string& text) {
  if (value != nullptr) {
    ::setenv(variable, value, 1);
  } else {
    ::unsetenv(variable);
  }
  std::string got;
  try {
    got = "<" + read() + ">";
  } catch (const Error& error) {
    got = error.what();
  }
  if (got != text) std::cerr << "got " << got << "\n";
  return got == text;
}

void expect(const char* variable, const char* value, const std::function<std::string()>& read,
            const std::string& text) {
  EXPECT_EXIT(std::_Exit(gives(variable, value, read, text) ? 0 : 1), testing::ExitedWithCode(0),
              "");
}

TEST(Env, DefaultsWhenUnsetOrEmpty) {
  expect("CERMET_TIER", nullptr, env::tier, "<auto>");
  expect("CERMET_TIER", "", env::tier, "<auto>");
  expect("CERMET_TIER", "fused", env::tier, "<fused>");
  expect("CERMET_CACHE_DIR", "/some/where", env::cache_dir, "</some/where>");
  expect("CERMET_SKIP_PASS", "simplify,tile", env::skip_pass, "<simplify,tile>");
}

TEST(Env, AWrongChoiceNamesTheChoices) {
  expect("CERMET_TIER", "fast", env::tier,
         "[env] CERMET_TIER=fast is no value of it; use auto|fused|single");
  expect(
      "CERMET_LOG", "plan,plans", env::log,
      "[env] CERMET_LOG=plan,plans is no value of it; use plan,kernel,compile,launch,alloc,sync");
  expect("CERMET_LOG", "plan,sync", env::log, "<plan,sync>");
}

TEST(Env, IsSetKnowsOnlyTheTable) {
  const auto disabled = [] { return env::is_set("CERMET_DISABLE_COMPILE") ? "yes" : "no"; };
  expect("CERMET_DISABLE_COMPILE", "1", disabled, "<yes>");
  expect("CERMET_DISABLE_COMPILE", "", disabled, "<no>");
  expect("CERMET_DISABLE_COMPILE", nullptr, disabled, "<no>");
  EXPECT_THROW(env::is_set("HOME"), Error);
}

TEST(Env, IsReadOnce) {
  const auto twice = [] {
    const std::string first = env::dump();
    ::setenv("CERMET_DUMP", "later", 1);
    return first + env::dump();
  };
  expect("CERMET_DUMP", "now", twice, "<nownow>");
}

TEST(Env, TableHasEveryVariableWithItsValue) {
  const auto find = [] {
    for (const env::Row& row : env::table()) {
      if (row.variable == std::string("CERMET_NUM_THREADS")) return row.value;
    }
    return std::string("missing");
  };
  expect("CERMET_NUM_THREADS", "3", find, "<3>");
}

TEST(Env, ListsAndIntegers) {
  EXPECT_TRUE(env::list_has("plan,kernel", "kernel"));
  EXPECT_TRUE(env::list_has("plan", "plan"));
  EXPECT_FALSE(env::list_has("plan,kernel", "kern"));
  EXPECT_FALSE(env::list_has("", "plan"));
  EXPECT_EQ(env::to_int("N", "-12"), -12);
  for (const char* bad : {"", "x", "1x", " 1", "1.5", "99999999999999999999"}) {
    try {
      env::to_int("CERMET_NUM_THREADS", bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), std::string("[env] CERMET_NUM_THREADS=") + bad +
                                  " is not an integer; use a decimal integer of 64 bits");
    }
  }
}

}  // namespace
}  // namespace cermet
