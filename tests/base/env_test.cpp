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
  expect("CERMET_SKIP_PASS", "simplify,unswitch", env::skip_pass, "<simplify,unswitch>");
}

TEST(Env, AWrongChoiceNamesTheChoices) {
  expect("CERMET_TIER", "fast", env::tier,
         "[env] CERMET_TIER=fast is no value of it; use auto|fused|single");
  expect(
      "CERMET_LOG", "plan,plans", env::log,
      "[env] CERMET_LOG=plan,plans is no value of it; use plan,kernel,compile,launch,alloc,sync");
  expect("CERMET_LOG", "plan,sync", env::log, "<plan,sync>");
  expect("CERMET_MATMUL_F32", "bad", env::matmul_f32,
         "[env] CERMET_MATMUL_F32=bad is no value of it; use auto|fma");
  expect("CERMET_SKIP_PASS", "simplify,tile", env::skip_pass,
         "[env] CERMET_SKIP_PASS=simplify,tile is no value of it; "
         "use simplify,relax_max,unswitch,simplify_tiled");
}

TEST(Env, CountsAreFromOneOn) {
  expect("CERMET_FAIL_ALLOC", "501", env::fail_alloc, "<501>");
  for (const char* bad : {"0", "-3", "x", "1x", " 1", "1.5", "99999999999999999999"})
    for (const char* variable : {"CERMET_FAIL_ALLOC", "CERMET_NUM_THREADS"})
      expect(variable, bad, env::num_threads,
             fmt::format("[env] {}={} is no value of it; use an integer from 1 to 2**63 - 1",
                         variable, bad));
  EXPECT_EQ(env::to_int("12"), 12);
  EXPECT_EQ(env::to_int(""), 0);
}

TEST(Env, AnyReadingChecksAllVariables) {
  expect("CERMET_MATMUL_F32", "bad", env::tier,
         "[env] CERMET_MATMUL_F32=bad is no value of it; use auto|fma");
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

TEST(Env, Lists) {
  EXPECT_TRUE(env::list_has("plan,kernel", "kernel"));
  EXPECT_TRUE(env::list_has("plan", "plan"));
  EXPECT_FALSE(env::list_has("plan,kernel", "kern"));
  EXPECT_FALSE(env::list_has("", "plan"));
}

}  // namespace
}  // namespace cermet
