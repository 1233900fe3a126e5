// SPDX-License-Identifier: MIT
// Threads that share what is lazy, traced or kept: the bits are those of one thread alone, and the thread
// sanitizer, which is blind to what Python's lock orders, sees them meet.
#include <atomic>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include "cermet.h"
#include "ops/testing.h"
#include "runtime/child.h"
#include "runtime/thread_pool.h"
#include "transform/trace.h"

namespace cermet {
namespace {

using namespace test;

using Floats = std::vector<float>;

Floats floats(const array& a) {
  const array packed = contiguous(a);
  packed.eval();
  const auto* data = packed.data<float>();
  return {data, data + packed.size()};
}

array normal(const Shape& shape, int seed) { return random::normal(shape, random::key(seed)); }

void in_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, KeptPackings) {
  constexpr int kRounds = 60;
  const array a = normal({128, 96}, 1), w = normal({128, 160}, 2);
  const auto product = [&](const array& by) { return matmul(transpose(a), by); };
  const Floats right = floats(product(w));
  std::atomic<bool> over{false};
  std::thread other([&] {  // gives up what is kept, as memory that lacks does
    for (int i = 0; !over; ++i) {
      if (i % 2 == 0) clear_cache();
      else set_cache_limit(set_cache_limit(0));
      std::this_thread::yield();
    }
  });
  std::atomic<int> wrong{0};
  in_threads(3, [&](int number) {
    array own = normal({128, 160}, 3 + number);
    for (int round = 0; round < kRounds; ++round) {
      wrong += floats(product(w)) != right;
      if (round % 8 == 7) own = own * 0.5f;  // in place: what is packed of it is old
      const array other_way = astype(product(astype(own, float64)), float32);
      wrong += !allclose(product(own), other_way, 1e-4, 1e-4).item<bool>();
    }
  });
  over = true;
  other.join();
  EXPECT_EQ(wrong, 0);
}

// Single elements that are updated by one, two and more threads, each of which looks for its own: in order.
TEST(Threads, UpdatesInOrder) {
  constexpr size_t kPoints = 300'000, kPlaces = 40'000;
  const array added = normal({kPoints}, 4);
  const Floats values = floats(added);
  Doubles places(kPoints);
  Floats right(kPlaces);
  for (size_t i = 0; i < kPoints; ++i) {
    const size_t place = i * 2654435761U % kPlaces;
    places[i] = static_cast<double>(place);
    right[place] += values[i];
  }
  const array at = vec(places, int32), start = zeros({kPlaces});
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool::get().set_size(threads);
    EXPECT_EQ(floats(scatter(start, {at}, reshape(added, {kPoints, 1}), {0}, ScatterReduce::add)),
              right)
        << threads;
  }
  ThreadPool::get().set_size(default_pool_size());
}

// Of a trace around `made`, which lasts until `end`.
void trace_until(std::latch& made, std::latch& end, std::optional<array>& result) {
  const array x = normal({8}, 1);
  (void)grad([&](const array& traced) {
    result = sin(traced) * 2;
    made.count_down();
    end.wait();
    return sum(*result);
  })(x);
}

TEST(Threads, ATransformLeavesOtherTracesAlone) {
  std::latch made(1), end(1);
  std::optional<array> foreign;
  std::thread other([&] { trace_until(made, end, foreign); });
  made.wait();
  const array y = normal({8}, 2);
  std::vector<NodeRef> tape;
  const array g = grad([&](const array& traced) {
    const array both = sum(traced * *foreign);
    tape = traced_tape({&both, 1}, {&traced, 1});
    end.count_down();
    other.join();
    foreign->eval();  // drops its inputs: its trace has ended
    return both;
  })(y);
  for (const NodeRef& node : tape) EXPECT_NE(node, foreign->node());
  EXPECT_EQ(floats(g), floats(*foreign));
}

// As a layer does that keeps statistics: the others meet values of a step that has not ended yet.
TEST(Threads, StateThatStepsShare) {
  constexpr int kThreads = 4, kRounds = 50, kOps = 20;
  std::mutex lock;
  array state = zeros({16});
  const auto step = [&](const std::function<array(const array&)>& next) {
    const std::lock_guard guard(lock);
    return std::exchange(state, next(state));
  };
  std::atomic<int> wrong{0};
  in_threads(kThreads, [&](int number) {
    const array x = normal({16}, number);
    const Floats right = floats(cos(x));
    for (int round = 0; round < kRounds; ++round) {
      const auto [value, gradient] = value_and_grad([&](const array& traced) {
        array mine = traced;
        for (int i = 0; i < kOps; ++i) mine = sin(mine * 2);
        const array last = step([&](const array&) { return mine; });
        return sum(sin(traced)) + sum(last * 2.0f + 1.0f);
      })(x);
      eval(value, step([](const array& now) { return now; }));
      wrong += floats(gradient) != right;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(all(abs(state) <= 1.0f).item<bool>());
}

// A fork waits until the other threads hold none of what its child needs.
template <typename F>
void fork_while_another_thread(F&& uses) {
  std::atomic<bool> has_begun{false}, over{false};
  std::thread other([&] {
    for (; !over; has_begun = true) uses();
  });
  while (!has_begun) std::this_thread::yield();
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round)
    EXPECT_EQ(in_child([&] { return uses(); }), 0) << "round " << round;
  over = true;
  other.join();
}

TEST(Threads, ForkWhileAnotherDrawsKeys) {
  fork_while_another_thread([] {
    random::seed(5);
    for (int i = 0; i < 20; ++i) random::key_or_next({});
    return true;
  });
}

TEST(Threads, ForkWhileAnotherCallsTheSameFunction) {
  const auto twice = compile([](const Arrays& in) { return Arrays{in[0] * 2.0f}; });
  const array x = arange(8.0);
  const Floats right = floats(twice({x})[0]);
  fork_while_another_thread([&] { return floats(twice({x})[0]) == right; });
}

// What the process still holds at its end stays whole for the threads that run on.
TEST(Threads, ExitsWhileTheyEvaluate) {
  for (int round = 0; round < 6; ++round) {
    const int code = in_child([&]() -> bool {
      std::latch begun(3);
      for (int number = 0; number < 3; ++number)
        std::thread([&, number] {
          const array x = full({64}, number, float32);
          x.eval();
          begun.count_down();
          for (array y = x;; y = y * 0.5f + 1.0f) y.eval();
        }).detach();
      begun.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
      std::exit(7);
    });
    ASSERT_EQ(code, 7) << "round " << round;
  }
}

}  // namespace
}  // namespace cermet
