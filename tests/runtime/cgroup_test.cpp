// SPDX-License-Identifier: MIT
// Quotas of control groups, read from folders laid out as the kernel does; affinity; pool size.
#include "runtime/cgroup.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/child.h"
#include "runtime/thread_pool.h"
#include "temp_folder.h"

namespace cermet {
namespace {

class Cgroup : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void unified(const std::string& group, const std::string& mount_root = "/") {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "24 30 0:22 / /proc rw,nosuid shared:13 - proc proc rw\n"
          "35 24 0:30 " +
              mount_root + " /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n");
  }
  void legacy(const std::string& group, const std::string& mount_root = "/") {
    write("/proc/self/cgroup",
          "5:memory:" + group + "\n4:cpuset:/\n3:cpu,cpuacct:" + group + "\n0::/\n");
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
          "32 31 0:29 " +
              mount_root +
              " /sys/fs/cgroup/cpu,cpuacct rw shared:3 master:7 - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "34 31 0:31 " +
              mount_root + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }

  TempFolder folder;
  const std::string root = folder.path();
};

TEST_F(Cgroup, NothingThere) {
  EXPECT_EQ(cpu_quota(root), std::nullopt);
  EXPECT_EQ(memory_quota(root), std::nullopt);
  write("/proc/self/mountinfo", "garbage\n - \n1 2 3\n");
  write("/proc/self/cgroup", "garbage\n:\n0::\n");
  EXPECT_EQ(cpu_quota(root), std::nullopt);
  EXPECT_EQ(memory_quota(root), std::nullopt);
}

TEST_F(Cgroup, UnifiedUnlimited) {
  unified("/user.slice");
  write("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/user.slice/memory.max", "max\n");
  EXPECT_EQ(cpu_quota(root), std::nullopt);
  EXPECT_EQ(memory_quota(root), std::nullopt);
}

TEST_F(Cgroup, UnifiedTakesTheTightestLevel) {
  unified("/a/b/c");
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/a/memory.max", "2147483648\n");
  write("/sys/fs/cgroup/a/b/c/memory.max", "1073741824\n");
  EXPECT_EQ(cpu_quota(root), 1.5);
  EXPECT_EQ(memory_quota(root), uint64_t{1} << 30);
}

TEST_F(Cgroup, UnifiedInAContainer) {
  unified("/");
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(root), 0.5);
  unified("/docker/abc/job", "/docker/abc");
  write("/sys/fs/cgroup/job/cpu.max", "20000 100000\n");
  EXPECT_EQ(cpu_quota(root), 0.2);
  unified("/../../other");  // a group outside what this namespace shows
  EXPECT_EQ(cpu_quota(root), 0.5);
}

TEST_F(Cgroup, Legacy) {
  legacy("/docker/abc");
  const std::string cpu = "/sys/fs/cgroup/cpu,cpuacct";
  write(cpu + "/cpu.cfs_quota_us", "-1\n");
  write(cpu + "/cpu.cfs_period_us", "100000\n");
  write(cpu + "/docker/abc/cpu.cfs_quota_us", "250000\n");
  write(cpu + "/docker/abc/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cpu_quota(root), 2.5);
  EXPECT_EQ(memory_quota(root), std::nullopt);
  write("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(memory_quota(root), uint64_t{512} << 20);
  legacy("/docker/abc", "/docker/abc");
  write(cpu + "/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(cpu_quota(root), 1.0);
}

TEST(Machine, AffinityBoundsThePool) {
  EXPECT_GE(affinity_cores(), 1);
  EXPECT_LE(affinity_cores(), sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_GT(physical_memory(), uint64_t{1} << 26);
  EXPECT_EQ(in_child([] {
              cpu_set_t before, one;
              if (sched_getaffinity(0, sizeof before, &before) != 0) return false;
              CPU_ZERO(&one);
              for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
                if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
              }
              if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
              return affinity_cores() == 1 && default_pool_size() == 1;
            }),
            0);
}

TEST(Machine, NumThreadsBoundsThePool) {
  if (getenv("CERMET_NUM_THREADS") == nullptr) {
    EXPECT_TRUE(rerun_with("CERMET_NUM_THREADS", "1", "Machine.NumThreadsBoundsThePool"));
    EXPECT_TRUE(rerun_with("CERMET_NUM_THREADS", "100000", "Machine.NumThreadsBoundsThePool"));
    return;
  }
  const bool one = std::string(getenv("CERMET_NUM_THREADS")) == "1";
  if (one) {
    EXPECT_EQ(ThreadPool::get().size(), 1);
  } else {
    EXPECT_LE(ThreadPool::get().size(), affinity_cores());
  }
}

}  // namespace
}  // namespace cermet
