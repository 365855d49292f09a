// A real store and the real dispatcher in front of it, with a handler of this process or over HTTP.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "app/loop.h"
#include "bench/common/load.h"
#include "dispatch/dispatcher.h"
#include "env/crash_points.h"
#include "env/curl_http_client.h"
#include "env/files.h"
#include "env/random.h"
#include "store/embedded/embedded_store.h"

namespace dlo::bench {

inline Outcome Applied(const Delivery&) {
  return Outcome::Applied();
}
/// Of ten kinds, so that it is no systemic failure.
inline Outcome Refused(const Delivery& delivery) {
  return Outcome::Permanent(fmt::format("no_plan_{}", delivery.receipt->id % 10), "no such plan");
}

class Pipeline {
 public:
  explicit Pipeline(const std::string& folder) {
    auto opened = store::OpenEmbedded({.database = folder + "/dlo.db"}, files_, clock_, crash_points_, metrics_);
    if (!opened) Die(opened.error().message);
    store_ = std::move(*opened);
  }
  ~Pipeline() {
    StopDispatch();
    http_.Stop();
    store_->Close();
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  store::Store& store() { return *store_; }
  Clock& clock() { return clock_; }
  dispatch::Dispatcher& dispatcher() { return *dispatcher_; }

  void Dispatch(const TargetConfig& target) {
    Config config;
    config.sources = {SourceConfig{.name = "stripe", .scheme = "none", .target = target.name}};
    config.targets = {target};
    dispatcher_ = std::make_unique<dispatch::Dispatcher>(
        config, dispatch::DispatcherDeps{*store_, *store_, http_, clock_, random_, crash_points_, metrics_});
    loop_ = std::make_unique<app::Loop>("dlo-dispatch", clock_, [this](Time now) {
      const auto next = dispatcher_->RunOnce(now);
      if (!next) Die(next.error().message);
      return *next;
    });
    dispatcher_->OnWake([this] { loop_->Ring(); });
    loop_->Start();
  }
  void Dispatch(Handler handler, int concurrency = 128) {
    TargetConfig target{.name = "billing", .type = TargetType::in_process};
    target.handler = std::move(handler);
    target.concurrency = concurrency;
    target.retry = {std::chrono::hours(1)};
    Dispatch(target);
  }
  void StopDispatch() {
    if (!dispatcher_) return;
    loop_->Stop();
    dispatcher_->Drain(std::chrono::seconds(10));
    dispatcher_.reset();
    loop_.reset();
  }

  /// Replays what the filter selects, which must be `count` letters, unpaced; returns when all are replayed.
  void Replay(const Filter& filter, int count) {
    const std::int64_t before = Count(State::replayed);
    const auto plan = store_->Create(filter, {.batch_size = 1'000, .stagger_ms = 0, .force = true}, "replay",
                                     {"bench", "admin"}, clock_.Now());
    if (!plan) Die(plan.error().message);
    if (plan->count != count) Die(fmt::format("{} letters were selected, not {}", plan->count, count));
    while (*store_->ReleaseBatch(plan->id, 1'000, clock_.Now()) > 0) {
    }
    WaitFor(State::replayed, before + count);
  }

  [[nodiscard]] std::int64_t Count(State state) {
    const auto figures = store_->Read();
    if (!figures) Die(figures.error().message);
    std::int64_t n = 0;
    for (const store::StateCount& count : figures->counts) n += count.state == state ? count.count : 0;
    return n;
  }
  void WaitForIndex() {
    for (;;) {
      if (const auto read = store_->Tokens(); !read) Die(read.error().message);  // as any reader, waits for the index
      const auto figures = store_->Read();
      if (!figures) Die(figures.error().message);
      if (figures->indexed == figures->receipts) return;
    }
  }
  void WaitFor(State state, std::int64_t count) {
    std::int64_t last = -1;
    auto moved = Steady::now();
    for (;;) {
      const std::int64_t now = Count(state);
      if (now >= count) return;
      if (now != last) moved = Steady::now();
      last = now;
      if (Seconds(moved) > 60) Die(fmt::format("nothing moved for 60 s: {} of {}", now, count));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  RealFiles files_;
  RealClock clock_;
  RealRandom random_;
  NoCrashPoints crash_points_;
  Metrics metrics_;
  RealHttpClient http_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<dispatch::Dispatcher> dispatcher_;
  std::unique_ptr<app::Loop> loop_;
};

}  // namespace dlo::bench
