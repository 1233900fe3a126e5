// SPDX-License-Identifier: MIT
// The kernel cache: one compilation a kernel whatever the threads and processes, kernels from disk,
// damaged and unwritable folders; and launches: scratch, checks, threads.
#include "runtime/kernel_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "kernel/builder.h"
#include "runtime/counters.h"
#include "runtime/kernel_disk.h"
#include "runtime/thread_pool.h"
#include "temp_folder.h"

namespace cermet {
namespace {

namespace fs = std::filesystem;

// A cache folder; a test may take the rights to it away.
struct Folder {
  ~Folder() {
    std::error_code ignored;
    fs::permissions(path + "/kernels", fs::perms::owner_all, ignored);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(path + "/kernels"))
      found.push_back(entry.path());
    return found;
  }
  TempFolder folder;
  std::string path = folder.path();
};

// y = x * factor + number, untiled; other numbers are other kernels.
ir::Kernel scale_kernel(float number) {
  ir::Builder b("scale");
  const ir::ParamId x = b.buffer(Dtype::float32, ir::Access::in, "x");
  const ir::ParamId y = b.buffer(Dtype::float32, ir::Access::out, "y");
  const ir::ParamId factor = b.scalar(Dtype::float32, "factor");
  const ir::AxisId axis = b.axis("i");
  const ir::Index index = {{b.axis_ref(axis), ir::kUnit}};
  const ir::ExprId product = b.mul(b.load({false, x}, index), b.scalar_ref(factor));
  ir::For stage{.kind = ir::ForKind::stage, .axes = {axis}};
  stage.body.push_back(
      ir::Store{{false, y}, index, b.add(product, b.constant(Dtype::float32, number))});
  b.kernel().body.push_back(std::move(stage));
  return b.take();
}

// The largest |wrong| of running it on n elements.
float error_of(const KernelPtr& kernel, float number, size_t n) {
  std::vector<float> x(n), y(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) * 0.5f;
  const float factor = 3;
  uint32_t bits = 0;
  std::memcpy(&bits, &factor, sizeof bits);
  Launch launch;
  launch.kernel = kernel.get();
  launch.record = {reinterpret_cast<uint64_t>(x.data()), reinterpret_cast<uint64_t>(y.data()), bits,
                   n};
  launch.extents = {static_cast<int64_t>(n)};
  run_kernel(launch);
  float worst = 0;
  for (size_t i = 0; i < n; ++i)
    worst = std::max(worst, std::fabs(y[i] - (x[i] * factor + number)));
  return worst;
}

TEST(KernelCache, CompilesOnceForManyThreads) {
  const uint64_t before = total(Counter::kernels_compiled) + total(Counter::kernel_hits_disk);
  const uint64_t hits = total(Counter::kernel_hits_memory);
  std::vector<KernelPtr> found(8);
  std::vector<std::thread> threads;
  for (KernelPtr& kernel : found)
    threads.emplace_back([&kernel] { kernel = find_kernel(scale_kernel(1.5f)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(total(Counter::kernels_compiled) + total(Counter::kernel_hits_disk), before + 1);
  EXPECT_EQ(total(Counter::kernel_hits_memory), hits + 7);
  for (const KernelPtr& kernel : found) EXPECT_EQ(kernel, found[0]);
  EXPECT_EQ(found[0]->form, "map");
  for (size_t n : {0u, 1u, 100u, 100000u}) EXPECT_EQ(error_of(found[0], 1.5f, n), 0);
}

TEST(KernelCache, FindsByHashWithoutTheKernel) {
  const ir::Kernel kernel = scale_kernel(2.5f);
  const KernelPtr first = find_kernel(kernel);
  const KernelPtr again = find_kernel(ir::hash_of(kernel), []() -> ir::Kernel {
    ADD_FAILURE() << "made again";
    return {};
  });
  EXPECT_EQ(first, again);
  EXPECT_EQ(find_compiled_kernel(ir::hash_of(kernel)), first);
  EXPECT_EQ(find_compiled_kernel(ir::hash_of(scale_kernel(77.125f))), nullptr);
}

TEST(KernelCache, AFailedCompilationIsTriedAgain) {
  const auto number =
      static_cast<float>(std::random_device()() >> 8);  // not on disk from an earlier run
  const ir::Kernel kernel = scale_kernel(number);
  const ir::Hash hash = ir::hash_of(kernel);
  EXPECT_THROW(find_kernel(hash, []() -> ir::Kernel { fail(ErrorKind::value, "test", "no"); }),
               Error);
  EXPECT_EQ(error_of(find_kernel(kernel), number, 10), 0);
}

TEST(KernelCache, KeepsWhatIsHeldAndWhatWasFoundLast) {
  const auto hash = [](int n) { return ir::hash_of(scale_kernel(100.5f + static_cast<float>(n))); };
  const KernelPtr held = find_kernel(scale_kernel(100.5f));
  for (int n = 1; n <= 4; ++n) find_kernel(scale_kernel(100.5f + static_cast<float>(n)));
  EXPECT_NE(find_compiled_kernel(hash(1)), nullptr);
  drop_unused_kernels(2);
  const auto compiled = [] { return total(Counter::kernels_compiled); };
  const uint64_t before = compiled();
  const auto is_there = [&](int n) {
    const uint64_t hits = total(Counter::kernel_hits_memory);
    EXPECT_NE(find_compiled_kernel(hash(n)), nullptr) << "it is on disk";
    return total(Counter::kernel_hits_memory) > hits;
  };
  EXPECT_TRUE(is_there(0)) << "held";
  EXPECT_TRUE(is_there(1)) << "found last";
  EXPECT_FALSE(is_there(2));
  EXPECT_FALSE(is_there(3));
  EXPECT_TRUE(is_there(4)) << "made last";
  EXPECT_EQ(compiled(), before);
  drop_unused_kernels(0);
  EXPECT_EQ(find_compiled_kernel(hash(0)), held);
}

StoredKernel some_kernel() {
  const ir::TargetFacts facts = cpu_target().facts();
  return {cpu_target().compile(ir::lower(scale_kernel(4), facts), facts), "map", "scale"};
}

TEST(KernelDisk, GivesBackWhatItKept) {
  const Folder folder;
  const StoredKernel kernel = some_kernel();
  KernelDisk disk(folder.path);
  EXPECT_FALSE(disk.load({1, 2}));
  disk.store({1, 2}, kernel);
  struct stat info{};
  ASSERT_EQ(stat(disk.folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700);
  const std::optional<StoredKernel> back = KernelDisk(folder.path).load({1, 2});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->object.blob, kernel.object.blob);
  EXPECT_EQ(back->name, "scale");
  EXPECT_EQ(back->form, "map");
  ASSERT_EQ(back->object.entries.size(), kernel.object.entries.size());
  EXPECT_EQ(back->object.entries[0].grid, kernel.object.entries[0].grid);
  EXPECT_EQ(to_bytes(*back, {1, 2}), to_bytes(kernel, {1, 2}));
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(KernelDisk, RefusesEveryDamage) {
  const ir::Hash key{1, 2};
  const std::string good = to_bytes(some_kernel(), key);
  ASSERT_TRUE(from_bytes(good, key));
  EXPECT_FALSE(from_bytes(good, {1, 3})) << "the file of another kernel";
  for (size_t at = 0; at < good.size(); at += 1 + at / 50) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    EXPECT_FALSE(from_bytes(bad, key)) << at;
    EXPECT_FALSE(from_bytes(good.substr(0, at), key)) << at;
  }
  EXPECT_FALSE(from_bytes(good + "x", key));
}

TEST(KernelDisk, ReplacesADamagedFile) {
  const Folder folder;
  KernelDisk disk(folder.path);
  disk.store({3, 4}, some_kernel());
  std::ofstream(folder.files()[0], std::ios::trunc) << "nonsense";
  EXPECT_FALSE(disk.load({3, 4}));
  disk.store({3, 4}, some_kernel());
  EXPECT_TRUE(disk.load({3, 4}));
}

TEST(KernelDisk, LivesWithoutAFolder) {
  const StoredKernel kernel = some_kernel();
  for (const char* path : {"", "/proc/nothing/here", "/dev/null/x"}) {
    KernelDisk disk(path);
    disk.store({1, 1}, kernel);
    EXPECT_FALSE(disk.load({1, 1})) << path;
  }
  // Others may write to it: it is not trusted.
  const Folder folder;
  fs::create_directories(folder.path + "/kernels");
  fs::permissions(folder.path + "/kernels", fs::perms::all);
  KernelDisk open(folder.path);
  open.store({1, 1}, kernel);
  EXPECT_TRUE(folder.files().empty());
}

TEST(KernelDisk, ReadsFromAFolderItCannotWrite) {
  const Folder folder;
  KernelDisk(folder.path).store({5, 6}, some_kernel());
  fs::permissions(folder.path + "/kernels", fs::perms::owner_read | fs::perms::owner_exec);
  KernelDisk disk(folder.path);
  disk.store({7, 8}, some_kernel());
  EXPECT_TRUE(disk.load({5, 6}));
  const bool root = geteuid() == 0;  // who may write anywhere
  EXPECT_EQ(disk.load({7, 8}).has_value(), root);
}

TEST(KernelDisk, KeepsWithinItsLimitWhatWasUsedLast) {
  constexpr uint64_t kLimit = 1'000'000;
  const Folder folder;
  const StoredKernel kernel = some_kernel();
  KernelDisk disk(folder.path, true, kLimit);
  for (uint64_t key = 1; key <= 1024; ++key) {
    disk.store({key, 0}, kernel);
    const std::string path = disk.folder() + "/" + ir::Hash{key, 0}.hex();
    const timespec time{static_cast<time_t>(key), 0};
    const timespec long_ago[2] = {time, time};
    utimensat(AT_FDCWD, path.c_str(), long_ago, 0);
    EXPECT_TRUE(disk.load({1, 0})) << "in use";
  }
  EXPECT_LE(folder.files().size() * to_bytes(kernel, {1, 0}).size(), kLimit);
  EXPECT_FALSE(disk.load({2, 0}));
  EXPECT_TRUE(disk.load({1024, 0}));
}

// Runs f in a child; true if it ends well.
template <typename F>
bool in_child(F&& f) {
  const pid_t child = fork();
  if (child == 0) _exit(f() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(KernelDisk, AFullDiskIsNoError) {
  const Folder folder;
  EXPECT_TRUE(in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    KernelDisk disk(folder.path);
    disk.store({1, 2}, some_kernel());
    return !disk.load({1, 2}) && folder.files().empty();
  }));
}

TEST(KernelDisk, SixteenProcessesAtOnce) {
  const Folder folder;
  const StoredKernel kernel = some_kernel();
  std::vector<pid_t> children;
  for (int c = 0; c < 16; ++c) {
    const pid_t child = fork();
    if (child == 0) {
      KernelDisk disk(folder.path);
      bool good = true;
      for (uint64_t round = 0; round < 50; ++round) {
        disk.store({round % 5, 0}, kernel);
        const std::optional<StoredKernel> back = disk.load({round % 5, 0});
        good = good && back && back->object.blob == kernel.object.blob;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(folder.files().size(), 5u);
}

#ifdef __SANITIZE_ADDRESS__
bool has_thread(const std::string& name) {
  std::error_code ended;  // a thread, while it is looked at
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, found);
    if (found == name) return true;
  }
  return false;
}
#endif

TEST(KernelCache, CompilesAfterFork) {
  const KernelPtr before = find_kernel(scale_kernel(5.5f));
#ifdef __SANITIZE_ADDRESS__
  // The compiler's thread, which may be ending still, takes locks of the sanitizer that forks do not wait for.
  while (has_thread("cermet compile")) std::this_thread::yield();
#endif
  EXPECT_TRUE(in_child([&] {
    return error_of(before, 5.5f, 1000) == 0 &&
           error_of(find_kernel(scale_kernel(6.5f)), 6.5f, 1000) == 0;
  }));
  EXPECT_EQ(error_of(find_kernel(scale_kernel(7.5f)), 7.5f, 1000), 0);
}

TEST(Loader, MemoryOfUnloadedKernelsIsUsedAgain) {
  const Object object = some_kernel().object;
  const LoaderStats before = loader_stats();
  for (int i = 0; i < 3000; ++i) load_kernel(object);
  EXPECT_EQ(loader_stats().code_bytes, before.code_bytes);
  std::vector<std::shared_ptr<LoadedKernel>> kept;
  for (int i = 0; i < 500; ++i) {
    kept.push_back(load_kernel(object));
    if (i % 3 == 0) kept.erase(kept.begin() + i / 7 % static_cast<int>(kept.size()));
  }
  EXPECT_LE(loader_stats().mapped_bytes - before.mapped_bytes, size_t{8} << 20);
}

TEST(Loader, RefusesDamagedObjects) {
  const Object good = some_kernel().object;
  for (size_t at = 0; at < good.blob.size(); at += 3) {
    Object bad = good;
    bad.blob[at] = static_cast<char>(bad.blob[at] ^ 0x55);
    try {
      load_kernel(std::move(bad));  // a change of the code itself goes unseen
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::runtime);
    }
    Object cut = good;
    cut.blob.resize(at);
    EXPECT_THROW(load_kernel(std::move(cut)), Error) << at;
  }
}

// sum over i of x[i], through kernel-scope scratch and two entry points.
ir::Kernel sum_kernel() {
  ir::Builder b("sum");
  const ir::ParamId x = b.buffer(Dtype::float32, ir::Access::in, "x");
  const ir::ParamId y = b.buffer(Dtype::float32, ir::Access::out, "y");
  const ir::AxisId axis = b.axis("i");
  const ir::ValueId sum = b.value({Dtype::float32});
  ir::For stage{.kind = ir::ForKind::stage, .axes = {axis}};
  const ir::ExprId state = b.state(0, Dtype::float32);
  const ir::FoldState fold{Dtype::float32, b.constant(Dtype::float32, -0.0),
                           b.add(state, b.load({false, x}, {{b.axis_ref(axis), ir::kUnit}})),
                           b.add(state, b.other(0, Dtype::float32))};
  stage.body.push_back(ir::Fold{sum, {axis}, ir::Emit::last, ir::Order::lanes, {fold}});
  ir::For store{.kind = ir::ForKind::stage, .axes = {}};
  store.body.push_back(ir::Store{{false, y}, {}, b.ref(sum)});
  b.kernel().body.push_back(std::move(stage));
  b.kernel().body.push_back(std::move(store));
  return b.take();
}

TEST(RunKernel, WholeArraySumOnManyThreads) {
  const KernelPtr kernel = find_kernel(sum_kernel());
  const size_t n = 3'000'001;
  std::vector<float> data(n);
  double expected = 0;
  for (size_t i = 0; i < n; ++i) expected += data[i] = static_cast<float>(i % 17) - 7.5f;
  float first = 0;
  for (int threads : {1, 2, 3}) {
    ThreadPool::get().set_size(threads);
    float result = 0;
    Launch launch;
    launch.kernel = kernel.get();
    launch.record = {reinterpret_cast<uint64_t>(data.data()), reinterpret_cast<uint64_t>(&result),
                     n};
    launch.extents = {static_cast<int64_t>(n)};
    run_kernel(launch);
    EXPECT_NEAR(result, expected, std::fabs(expected) * 1e-5);
    if (threads == 1) first = result;
    EXPECT_EQ(result, first) << threads;
  }
  ThreadPool::get().set_size(default_pool_size());
}

// y[i] = x[index[i]] with a Check.
ir::Kernel take_kernel() {
  ir::Builder b("take");
  const ir::ParamId x = b.buffer(Dtype::float32, ir::Access::in, "x");
  const ir::ParamId index = b.buffer(Dtype::int64, ir::Access::in, "index");
  const ir::ParamId y = b.buffer(Dtype::float32, ir::Access::out, "y");
  b.status();
  const ir::AxisId i = b.axis("i"), size = b.axis("size");
  const ir::Index here = {{b.axis_ref(i), ir::kUnit}};
  const ir::ExprId at = b.load({false, index}, here);
  ir::For stage{.kind = ir::ForKind::stage, .axes = {i}};
  stage.body.push_back(ir::Check{b.compare(ir::Code::lt, at, b.extent(size)), 6, at});
  stage.body.push_back(ir::Store{{false, y}, here, b.load({false, x}, {{at, ir::kUnit}})});
  b.kernel().body.push_back(std::move(stage));
  return b.take();
}

TEST(RunKernel, AFailedCheckIsReportedAlikeOnAnyThreads) {
  const KernelPtr kernel = find_kernel(take_kernel());
  const int64_t n = 400'000;
  std::vector<float> data(10), out(n);
  std::vector<int64_t> indices(n);
  for (int64_t k = 0; k < n; ++k) indices[static_cast<size_t>(k)] = k % 10;
  for (int64_t k = 300'000; k > 100'000; k -= 777) indices[static_cast<size_t>(k)] = 1000 + k;
  const int64_t first = 300'000 - (300'000 - 100'001) / 777 * 777;
  for (int threads : {1, 2, 3}) {
    ThreadPool::get().set_size(threads);
    for (bool with_report : {true, false}) {
      Launch launch;
      launch.kernel = kernel.get();
      launch.record = {reinterpret_cast<uint64_t>(data.data()),
                       reinterpret_cast<uint64_t>(indices.data()),
                       reinterpret_cast<uint64_t>(out.data()),
                       0,
                       static_cast<uint64_t>(n),
                       10};
      launch.extents = {n, 10};
      if (with_report)
        launch.report = [](const void*, int, int32_t site, int64_t bad) {
          fail(ErrorKind::index, "take", "site {} index {}", site, bad);
        };
      try {
        run_kernel(launch);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::index);
        const std::string text = error.what();
        EXPECT_NE(text.find(std::to_string(1000 + first)), std::string::npos) << text;
      }
    }
  }
  ThreadPool::get().set_size(default_pool_size());
}

// Members of very different sizes, some without items, alone and on several threads.
TEST(RunKernel, ABatchRunsAllMembersAsOneLaunch) {
  const KernelPtr kernel = find_kernel(scale_kernel(2.5f));
  const std::vector<size_t> sizes = {0, 1, 3'000'000, 7, 0, 0, 100'000, 129, 64, 0};
  for (int threads : {1, 2, 3}) {
    ThreadPool::get().set_size(threads);
    for (const size_t count : {size_t{2}, size_t{7}, sizes.size()}) {
      std::vector<std::vector<float>> x, y;
      Launch launch;
      launch.kernel = kernel.get();
      launch.members = static_cast<int>(count);
      for (size_t m = 0; m < count; ++m) {
        x.emplace_back(sizes[m]);
        y.emplace_back(sizes[m] + 1, -1.0f);
        for (size_t i = 0; i < sizes[m]; ++i) x[m][i] = static_cast<float>(i % 1000);
        const uint32_t factor = std::bit_cast<uint32_t>(static_cast<float>(m));
        for (const uint64_t word :
             {reinterpret_cast<uint64_t>(x[m].data()), reinterpret_cast<uint64_t>(y[m].data()),
              uint64_t{factor}, uint64_t{sizes[m]}})
          launch.record.push_back(word);
        launch.extents.push_back(static_cast<int64_t>(sizes[m]));
      }
      const uint64_t before = total(Counter::kernels_launched);
      run_kernel(launch);
      EXPECT_EQ(total(Counter::kernels_launched), before + 1);
      for (size_t m = 0; m < count; ++m) {
        EXPECT_EQ(y[m][sizes[m]], -1.0f);
        size_t wrong = 0;
        for (size_t i = 0; i < sizes[m]; ++i)
          wrong += y[m][i] != x[m][i] * static_cast<float>(m) + 2.5f;
        EXPECT_EQ(wrong, 0) << "member " << m << " of " << count << ", threads " << threads;
      }
    }
  }
  ThreadPool::get().set_size(default_pool_size());
}

// Full folds have two entries and scratch of their own: all items of one before the next.
TEST(RunKernel, AFoldInABatchIsTheFoldAlone) {
  const KernelPtr kernel = find_kernel(sum_kernel());
  const std::vector<size_t> sizes = {5, 1'000'003, 0, 4096, 70'000};
  std::vector<float> data(1'000'003), alone(sizes.size());
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<float>(i));
  const auto add_member = [&](Launch& launch, size_t m, float& result) {
    for (const uint64_t word : {reinterpret_cast<uint64_t>(data.data()),
                                reinterpret_cast<uint64_t>(&result), uint64_t{sizes[m]}})
      launch.record.push_back(word);
    launch.extents.push_back(static_cast<int64_t>(sizes[m]));
  };
  for (size_t m = 0; m < sizes.size(); ++m) {
    Launch launch;
    launch.kernel = kernel.get();
    add_member(launch, m, alone[m]);
    run_kernel(launch);
    double expected = 0;
    for (size_t i = 0; i < sizes[m]; ++i) expected += data[i];
    EXPECT_NEAR(alone[m], expected, 1e-2);
  }
  for (int threads : {1, 2, 3}) {
    ThreadPool::get().set_size(threads);
    Launch launch;
    launch.kernel = kernel.get();
    launch.members = static_cast<int>(sizes.size());
    std::vector<float> together(sizes.size());
    for (size_t m = 0; m < sizes.size(); ++m) add_member(launch, m, together[m]);
    run_kernel(launch);
    EXPECT_EQ(together, alone) << threads;
  }
  ThreadPool::get().set_size(default_pool_size());
}

TEST(RunKernel, TheLowestMemberThatFailedIsReported) {
  const KernelPtr kernel = find_kernel(take_kernel());
  const int64_t n = 50'000;
  std::vector<float> data(10), out(n);
  std::vector<int64_t> good(n, 3), bad(n, 3);
  bad[n - 1] = 77;
  for (int threads : {1, 2, 3}) {
    ThreadPool::get().set_size(threads);
    Launch launch;
    launch.kernel = kernel.get();
    launch.members = 8;
    std::vector<std::vector<float>> outs(8, std::vector<float>(n));
    for (int m = 0; m < launch.members; ++m) {
      const std::vector<int64_t>& indices = m == 3 || m == 5 ? bad : good;
      for (const uint64_t word :
           {reinterpret_cast<uint64_t>(data.data()), reinterpret_cast<uint64_t>(indices.data()),
            reinterpret_cast<uint64_t>(outs[m].data()), uint64_t{0}, static_cast<uint64_t>(n),
            uint64_t{10}})
        launch.record.push_back(word);
      launch.extents.insert(launch.extents.end(), {n, 10});
    }
    launch.report = [](const void*, int member, int32_t, int64_t index) {
      fail(ErrorKind::index, "take", "member {} index {}", member, index);
    };
    try {
      run_kernel(launch);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("member 3 index 77"), std::string::npos)
          << error.what();
    }
  }
  ThreadPool::get().set_size(default_pool_size());
}

}  // namespace
}  // namespace cermet
