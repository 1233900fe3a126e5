// SPDX-License-Identifier: MIT
// Devices, streams and their queues, events: defaults, scopes, order, cancelling, forks, exit.
#include "runtime/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/child.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/event.h"
#include "runtime/poll.h"
#include "runtime/stream_queue.h"

#if defined(__SANITIZE_THREAD__)
// Children of forks start threads here.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif

namespace cermet {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

template <typename F>
std::string message_of(F&& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Device, Names) {
  EXPECT_EQ(to_string(Device(Device::gpu, 2)), "Device(gpu, 2)");
  EXPECT_EQ(Device(Device::cpu), Device::cpu);
  EXPECT_LT(Device(Device::cpu, 1), Device(Device::gpu, 0));
}

TEST(Device, AbsentOnesRaise) {
  EXPECT_TRUE(is_available(Device::cpu));
  EXPECT_FALSE(is_available(Device::gpu));
  EXPECT_EQ(device_count(Device::cpu), 1);
  EXPECT_EQ(device_count(Device::gpu), 0);
  EXPECT_EQ(message_of([] { set_default_device(Device::gpu); }, ErrorKind::device),
            "[set_default_device] there is no gpu device here; use mx.cpu");
  EXPECT_EQ(message_of([] { default_stream(Device(Device::cpu, 3)); }, ErrorKind::device),
            "[default_stream] there is no Device(cpu, 3); the index of a cpu is below 1 here");
  EXPECT_FALSE(is_available(Device(Device::cpu, -1)));
  message_of([] { new_stream(Device::gpu); }, ErrorKind::device);
  message_of([] { StreamContext scope{Device::gpu}; }, ErrorKind::device);
  message_of([] { to_stream(Device::gpu); }, ErrorKind::device);
  EXPECT_EQ(default_device(), Device::cpu);
}

TEST(Device, Info) {
  const DeviceInfo info = device_info(Device::cpu);
  EXPECT_FALSE(std::get<std::string>(info.at("device_name")).empty());
  EXPECT_FALSE(std::get<std::string>(info.at("architecture")).empty());
  message_of([] { device_info(Device::gpu); }, ErrorKind::device);
}

TEST(Device, RegisteredOnesCount) {
  EXPECT_EQ(in_child([] {
              register_devices(Device::gpu, 2);
              set_default_device(Device(Device::gpu, 1));
              bool ok = default_device() == Device(Device::gpu, 1);
              std::thread([&] { ok = ok && default_device() == Device(Device::gpu, 1); }).join();
              const Stream gpu = default_stream(Device(Device::gpu, 1));
              ok = ok && gpu == default_stream(Device(Device::gpu, 1)) && gpu != Stream();
              {
                StreamContext scope(Device::cpu);
                ok = ok && default_device() == Device::cpu;
                std::thread([&] { ok = ok && default_device() != Device::cpu; }).join();
              }
              return ok && default_device() == Device(Device::gpu, 1) && to_stream({}) == gpu;
            }),
            0);
}

TEST(Stream, DefaultsBelongToThreads) {
  const Stream first = default_stream(Device::cpu);
  EXPECT_EQ(first, Stream(0, Device::cpu));
  EXPECT_EQ(to_string(first), "Stream(Device(cpu, 0), 0)");
  EXPECT_FALSE(peek_default_stream(Device::cpu));
  const Stream mine = new_stream(Device::cpu);
  EXPECT_NE(mine, first);
  set_default_stream(mine);
  EXPECT_EQ(default_stream(Device::cpu), mine);
  EXPECT_EQ(to_stream({}), mine);
  EXPECT_EQ(to_stream(Device::cpu), mine);
  EXPECT_EQ(to_stream(first), first);
  std::thread([&] {
    EXPECT_EQ(default_stream(Device::cpu), first);
    set_default_stream(mine);  // any stream on any thread
    EXPECT_EQ(default_stream(Device::cpu), mine);
  }).join();
  {
    StreamContext scope(first);
    EXPECT_EQ(default_stream(Device::cpu), first);
    StreamContext inner(Device::cpu);
    EXPECT_EQ(default_stream(Device::cpu), first);
  }
  EXPECT_EQ(default_stream(Device::cpu), mine);
  reset_default_stream(Device::cpu);
  EXPECT_FALSE(peek_default_stream(Device::cpu));
  {
    StreamContext scope(mine);
    EXPECT_EQ(peek_default_stream(Device::cpu), mine);
  }
  EXPECT_FALSE(peek_default_stream(Device::cpu));
  message_of([] { set_default_stream(Stream(10000, Device::cpu)); }, ErrorKind::value);
  message_of([] { synchronize(Stream(-1, Device::cpu)); }, ErrorKind::value);
}

TEST(Stream, ThreadLocalStreams) {
  const ThreadLocalStream handle = new_thread_local_stream(Device::cpu);
  const Stream here = stream_from_thread_local_stream(handle);
  EXPECT_EQ(to_stream(handle), here);
  Stream there;
  std::thread([&] { there = to_stream(handle); }).join();
  EXPECT_NE(there, here);
  Stream later;  // streams of ended threads are used again
  std::thread([&] { later = to_stream(handle); }).join();
  EXPECT_EQ(later, there);
  synchronize(handle);
}

TEST(StreamQueue, RunsInOrder) {
  StreamQueue queue;
  std::vector<int> order;
  EXPECT_TRUE(queue.idle());
  for (int i = 0; i < 1000; ++i) queue.enqueue([&order, i] { order.push_back(i); });
  queue.wait_idle();
  EXPECT_TRUE(queue.idle());
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(StreamQueue, ManyProducersKeepTheirOrder) {
  StreamQueue queue;
  std::vector<std::vector<int>> seen(4);
  std::vector<std::thread> producers;
  for (int p = 0; p < 4; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < 500; ++i) {
        queue.enqueue([&, p, i] { seen[p].push_back(i); });
        if (i % 100 == 0) queue.wait_idle();
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  queue.wait_idle();
  for (const auto& one : seen) {
    EXPECT_EQ(one.size(), 500u);
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
  }
}

TEST(StreamQueue, WaitsOnlyWhenThereIsWork) {
  StreamQueue queue;
  const uint64_t before = total(Counter::syncs);
  queue.wait_idle();
  EXPECT_EQ(total(Counter::syncs), before);
  Event go;
  bool from_worker = false;
  queue.enqueue([&] {
    go.wait();
    queue.wait_idle();  // from its own worker: returns
    from_worker = queue.on_worker();
  });
  EXPECT_FALSE(queue.idle());
  EXPECT_FALSE(queue.on_worker());
  go.signal();
  queue.wait_idle();
  EXPECT_TRUE(from_worker);
  EXPECT_GT(total(Counter::syncs), before);
}

TEST(StreamQueue, DropsWhatATaskHeldBeforeItCountsAsDone) {
  StreamQueue queue;
  auto held = std::make_shared<int>(1);
  queue.enqueue([held] {}, [held] {});
  queue.wait_idle();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(StreamQueue, SurvivesExceptionsAndStops) {
  StreamQueue queue;
  std::atomic<int> run{0};
  testing::internal::CaptureStderr();
  queue.enqueue([] { throw std::runtime_error("an odd task"); });
  queue.enqueue([&] { ++run; });
  queue.stop();
  EXPECT_EQ(run, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("an odd task"), std::string::npos);
  queue.enqueue([&] { ++run; });
  queue.wait_idle();
  EXPECT_EQ(run, 2);
  {
    StreamQueue other;
    other.enqueue([&] {
      sleep_ms(5);
      ++run;
    });
  }
  EXPECT_EQ(run, 3);
}

TEST(StreamQueue, WaitIsCancelled) {
  StreamQueue queue;
  Event go;
  queue.enqueue([&] { go.wait(); });
  static const auto caller = std::this_thread::get_id();
  set_poll_hook([] { return std::this_thread::get_id() == caller; });
  message_of([&] { queue.wait_idle(); }, ErrorKind::interrupted);
  Event never;
  message_of(
      [&] {
        sleep_ms(25);
        never.wait("item");
      },
      ErrorKind::interrupted);
  set_poll_hook(nullptr);
  go.signal();
  queue.wait_idle();
}

TEST(StreamQueue, ClearStreamsWaits) {
  const Stream stream = new_stream(Device::cpu);
  std::atomic<int> run{0};
  queue_of(stream).enqueue([&] {
    sleep_ms(5);
    ++run;
  });
  clear_streams();
  EXPECT_EQ(run, 1);
  queue_of(stream).enqueue([&] { ++run; });
  synchronize(stream);
  EXPECT_EQ(run, 2);
  EXPECT_EQ(&queue_of(stream), &queue_of(stream));
  EXPECT_NE(&queue_of(stream), &queue_of(Stream()));
}

TEST(StreamQueue, ForkKeepsWhatWasNotBegun) {
  for (int round = 0; round < 20; ++round) {
    StreamQueue queue;
    auto run = std::make_unique<std::atomic<int>>(0);
    Event begun;
    for (int i = 0; i < 10; ++i) {
      queue.enqueue([&run, &begun] {
        begun.signal();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++*run;
      });
    }
#if defined(__SANITIZE_ADDRESS__)
    begun
        .wait();  // a child has the sanitizer's locks as they are, and a thread that starts holds some
#endif
    EXPECT_EQ(in_child([&] {
                queue.wait_idle();
                queue.enqueue([&] { ++*run; });
                queue.wait_idle();
                return *run == 11;
              }),
              0);
    queue.wait_idle();
    EXPECT_EQ(*run, 10);
  }
}

TEST(StreamQueue, ForkReplacesTheTaskItCutsShort) {
  StreamQueue queue;
  Event begun, go;
  std::atomic<int> lost{0}, done{0};
  const auto task = [&] {
    begun.signal();
    go.wait();
  };
  queue.enqueue(task, [&] { ++lost; });
  queue.enqueue([&] { ++done; });
  begun.wait();
  EXPECT_EQ(in_child([&] {
              queue.wait_idle();
              return lost == 1 && done == 1;
            }),
            0);
  go.signal();
  queue.wait_idle();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(done, 1);
}

TEST(StreamQueue, ExitWithWorkInFlight) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      auto* data = new std::vector<int>(1000);
      for (int i = 0; i < 1000; ++i) {
        queue_of(Stream()).enqueue([data] {
          for (int& x : *data) ++x;
          sleep_ms(1);
        });
      }
      exit(7);
    }
    EXPECT_EQ(wait_for_child(child), 7);
  }
}

TEST(Event, IsSeenByAll) {
  for (int round = 0; round < 50; ++round) {
    auto event = std::make_unique<Event>();
    int value = 0;
    std::vector<std::thread> waiters;
    std::atomic<int> right{0};
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] {
        event->wait();
        if (value == 5) ++right;
      });
    }
    EXPECT_FALSE(event->is_signaled());
    value = 5;
    event->signal();
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(right, 4);
    EXPECT_TRUE(event->is_signaled());
    event->wait();
  }
}

}  // namespace
}  // namespace cermet
