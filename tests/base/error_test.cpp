// SPDX-License-Identifier: MIT
// The form of errors: `[op] message`, kinds kept, arguments of checks evaluated only on failure.
#include "base/error.h"

#include <gtest/gtest.h>

namespace cermet {
namespace {

TEST(Error, TextNamesTheOpAndKeepsTheKind) {
  try {
    fail(ErrorKind::dtype, "sin", "no meaning for {}; use {}", "bool", "float32");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[sin] no meaning for bool; use float32");
    EXPECT_EQ(error.kind(), ErrorKind::dtype);
    EXPECT_EQ(error.op(), "sin");
    return;
  }
  FAIL() << "fail() returned";
}

TEST(Error, CheckEvaluatesItsArgumentsOnlyOnFailure) {
  int evaluated = 0;
  auto count = [&] { return ++evaluated; };
  CERMET_CHECK(true, value, "op", "{}", count());
  EXPECT_EQ(evaluated, 0);
  EXPECT_THROW(CERMET_CHECK(false, value, "op", "{}", count()), Error);
  EXPECT_EQ(evaluated, 1);
}

TEST(Error, InternalErrorsCarryFileAndLine) {
  try {
    CERMET_INTERNAL_CHECK(1 + 1 == 3, "sum is {}", 2);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp:"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("sum is 2"), std::string::npos);
    return;
  }
  FAIL() << "the check passed";
}

}  // namespace
}  // namespace cermet
