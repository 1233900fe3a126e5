// SPDX-License-Identifier: MIT
// The seed cache: what was written is found for every level, and nothing that is damaged or another
// build's is.
#include "runtime/kernel_seed.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "temp_folder.h"

namespace cermet {
namespace {

namespace fs = std::filesystem;

// y = code(x) of float32 elements.
ir::Kernel unary_kernel(const std::string& code) {
  return ir::parse("kernel \"" + code + R"(" {
  param p0 float32 in
  param p1 float32 out
  axis a0 "i"
  strides 0
  for stage (a0) {
    store p1[a0] = )" +
                   code + R"((load(p0[a0]))
  }
}
)");
}

class KernelSeedTest : public testing::Test {
 protected:
  KernelSeedTest() {
    for (const char* code : {"exp", "neg", "sqrt"}) kernels_.push_back(unary_kernel(code));
    write_seed(path_, kernels_);
  }

  std::string content() const {
    std::ostringstream all;
    all << std::ifstream(path_, std::ios::binary).rdbuf();
    return all.str();
  }
  void replace(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
  }
  int found(CpuLevel level) const {
    const KernelSeed seed(path_, level);
    int count = 0;
    for (const ir::Kernel& kernel : kernels_) count += seed.load(ir::hash_of(kernel)).has_value();
    return count;
  }

  TempFolder folder_;
  std::string path_ = folder_.path() + "/kernels.seed";
  std::vector<ir::Kernel> kernels_;
};

TEST_F(KernelSeedTest, HoldsTheCodeOfEveryLevel) {
  for (CpuLevel level : {CpuLevel::generic, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::amx}) {
    const KernelSeed seed(path_, level);
    EXPECT_EQ(seed.size(), kernels_.size());
    for (const ir::Kernel& kernel : kernels_) {
      const std::optional<StoredKernel> stored = seed.load(ir::hash_of(kernel));
      ASSERT_TRUE(stored);
      EXPECT_EQ(stored->name, kernel.name);
      EXPECT_EQ(stored->object.blob, compile_cpu(ir::lower(kernel, cpu_facts(level)), level).blob);
    }
    EXPECT_FALSE(seed.load(ir::hash_of(unary_kernel("floor"))));
  }
}

TEST_F(KernelSeedTest, ServesItsOwnBuildAlone) {
  std::string other = content();
  other[8] = other[8] == 'f' ? '0' : 'f';  // of the build id, after the magic
  replace(other);
  EXPECT_EQ(found(CpuLevel::generic), 0);
}

TEST_F(KernelSeedTest, TakesWhatTheSameGeneratorMade) {
  const size_t levels = write_seed(path_, kernels_, "one") / kernels_.size();
  EXPECT_EQ(levels, static_cast<size_t>(CpuLevel::amx) + 1);
  const std::string fresh = content();
  std::string older = fresh;
  older[8] = older[8] == 'f' ? '0' : 'f';
  replace(older);
  EXPECT_EQ(write_seed(path_, kernels_, "one"), 0u);
  EXPECT_EQ(content(), fresh);
  kernels_.push_back(unary_kernel("floor"));
  EXPECT_EQ(write_seed(path_, kernels_, "one"), levels);
  EXPECT_EQ(found(CpuLevel::avx2), 4);
  const std::string grown = content();
  EXPECT_EQ(write_seed(path_, kernels_, "two"), 4 * levels);
  EXPECT_EQ(content().substr(200), grown.substr(200));  // after the ids
  EXPECT_EQ(write_seed(path_, kernels_), 4 * levels);
  EXPECT_EQ(write_seed(path_, kernels_), 4 * levels);
}

TEST_F(KernelSeedTest, NoDamageGoesUnseen) {
  const std::string good = content();
  std::vector<std::string> right;
  for (const ir::Kernel& kernel : kernels_)
    right.push_back(KernelSeed(path_, CpuLevel::avx2).load(ir::hash_of(kernel))->object.blob);
  const auto check = [&](size_t at) {
    const KernelSeed seed(path_, CpuLevel::avx2);
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const std::optional<StoredKernel> stored = seed.load(ir::hash_of(kernels_[i]));
      EXPECT_TRUE(!stored || stored->object.blob == right[i]) << at;
    }
  };
  for (size_t at = 0; at < good.size(); at += 1 + at / 60) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    replace(bad);
    check(at);
    replace(good.substr(0, at));
    check(at);
  }
  replace(good.substr(0, good.size() / 3));
  EXPECT_LT(found(CpuLevel::amx), 3);
}

TEST_F(KernelSeedTest, LivesWithoutAFile) {
  for (const char* path : {"", "/proc/nothing/here", "/dev/null"}) {
    const KernelSeed seed(path, CpuLevel::generic);
    EXPECT_EQ(seed.size(), 0u);
    EXPECT_FALSE(seed.load({1, 2}));
  }
  EXPECT_THROW(write_seed("/proc/nothing/here", kernels_), Error);
}

}  // namespace
}  // namespace cermet
