// accrue's dead-letter API, walked through ours: docs/accrue.md is the map, this is its proof. Each row of the table is
// one thing that accrue promises; the named tests below it are what accrue is known to do wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "dlo/service.h"

namespace dlo {
namespace {

constexpr double kAMillisecond = 0.001 / 86'400;  // in days

/// Fails by kind, as long as it is told to; keeps the order of its calls.
class Handlers {
 public:
  Outcome Handle(const Delivery& delivery) {
    const std::lock_guard lock(mutex_);
    const std::string& kind = delivery.receipt->kind;
    calls_.push_back(delivery.receipt->key);
    if (kind == "gone" && delivery.replay) return Outcome::Gone("not_found");
    if (!fixed_ && kind != "good") return Outcome::Permanent("schema_mismatch", "unknown field");
    return Outcome::Applied();
  }
  void Fix() {
    const std::lock_guard lock(mutex_);
    fixed_ = true;
    calls_.clear();
  }
  std::vector<std::string> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  bool fixed_ = false;
  std::vector<std::string> calls_;
};

class Accrue : public testing::Test {
 protected:
  Accrue() {
    std::string name = (std::filesystem::temp_directory_path() / "dlo-accrue-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    Config config;
    config.store.url = "sqlite:" + (folder_ / "dlo.db").string();
    config.server.listen.clear();
    config.log_level = "error";
    SourceConfig source{.name = "stripe", .scheme = "none", .target = "app"};
    source.key = "/id";
    source.kind = "/type";
    source.livemode = "/livemode";
    config.sources.push_back(source);
    TargetConfig target{.name = "app", .type = TargetType::in_process};
    target.concurrency = 1;
    target.handler = [this](const Delivery& delivery) { return handlers_.Handle(delivery); };
    config.targets.push_back(target);
    service_ = OrThrow(Service::Open(std::move(config)));
    OrThrow(service_->Start());
  }
  ~Accrue() override {
    service_.reset();
    std::filesystem::remove_all(folder_);
  }

  DeadLetters& dlq() { return service_->dead_letters(); }
  EventId Receive(const std::string& kind, bool livemode = true) {
    const std::string key = "evt_" + std::to_string(++made_);
    return OrThrow(service_->Receive("stripe", {},
                                     R"({"id":")" + key + R"(","type":")" + kind + R"(","livemode":)" +
                                         (livemode ? "true}" : "false}")))
        .at(0)
        .id;
  }
  Letter WaitFor(EventId id, State state) {
    for (;;) {  // ctest's timeout is the limit
      Letter letter = dlq().ShowOrThrow(id).letter;
      if (letter.state == state) return letter;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EventId Dead(const std::string& kind = "invoice.paid", bool livemode = true) {
    const EventId id = Receive(kind, livemode);
    WaitFor(id, State::dead);
    return id;
  }
  EventId Succeeded() {
    const EventId id = Receive("good");
    WaitFor(id, State::succeeded);
    return id;
  }
  ReplayProgress WaitForReplay(std::int64_t id) {
    for (;;) {
      ReplayProgress progress = dlq().ReplayOrThrow(id);
      if (progress.state == "done") return progress;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static Filter Type(const std::string& type) {
    Filter filter;
    filter.types = {type};
    return filter;
  }
  /// The raising form raises what the other returns.
  template <typename R>
  static void ExpectBoth(const Result<R>& returned, const std::string& code, const std::function<void()>& raise) {
    ASSERT_FALSE(returned);
    EXPECT_EQ(returned.error().code, code);
    try {
      raise();
      ADD_FAILURE() << "nothing was raised";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error().code, code);
    }
  }

  const Actor ana_{.name = "ana", .role = "operator", .reason = "fixed"};
  std::filesystem::path folder_;
  int made_ = 0;
  Handlers handlers_;
  std::unique_ptr<Service> service_;
};

TEST_F(Accrue, TheTable) {
  const struct {
    const char* accrue;
    std::function<void()> ours;
  } table[] = {
      {"requeue(id): ok, a fresh budget",
       [&] {
         const EventId id = Dead();
         EXPECT_EQ(OrThrow(dlq().Requeue(id, ana_)).id, id);
         EXPECT_EQ(WaitFor(id, State::dead).replays_failed, 1);
         EXPECT_EQ(dlq().ShowOrThrow(id).letter.attempts, 1) << "live tries stay as they were";
       }},
      {"requeue!(id)", [&] { EXPECT_NO_THROW(dlq().RequeueOrThrow(Dead(), ana_)); }},
      {"requeue: not_found",
       [&] {
         ExpectBoth(dlq().Requeue(99'999, ana_), "not_found", [&] { dlq().RequeueOrThrow(99'999, ana_); });
         EXPECT_EQ(dlq().Requeue(-1, ana_).error().code, "not_found") << "accrue raises a cast error";
       }},
      {"requeue: not_dead_lettered",
       [&] {
         const EventId id = Succeeded();
         ExpectBoth(dlq().Requeue(id, ana_), "not_dead_lettered", [&] { dlq().RequeueOrThrow(id, ana_); });
       }},
      {"list(filter, limit)",
       [&] {
         for (int i = 0; i < 5; ++i) Dead("list");
         EXPECT_EQ(OrThrow(dlq().List(Type("list"), 3)).items.size(), 3U);
         const Page page = dlq().ListOrThrow(Type("list"), 3);
         EXPECT_EQ(dlq().ListOrThrow(Type("list"), 3, *page.next).items.size(), 2U) << "the cursor stands for offset";
       }},
      {"count(filter)",
       [&] {
         for (int i = 0; i < 4; ++i) Dead("count");
         EXPECT_EQ(OrThrow(dlq().Count(Type("count"))), 4);
         EXPECT_EQ(dlq().CountOrThrow(Type("count")), 4);
       }},
      {"filter: type (one or a list), since, until, livemode",
       [&] {
         Dead("f1");
         const Letter middle = dlq().ShowOrThrow(Dead("f2", false)).letter;
         Dead("f1");
         Filter filter;
         filter.types = {"f1", "f2"};
         EXPECT_EQ(dlq().CountOrThrow(filter), 3);
         filter.livemode = false;
         EXPECT_EQ(dlq().CountOrThrow(filter), 1);
         filter.livemode.reset();
         filter.since = middle.received_at;
         EXPECT_EQ(dlq().CountOrThrow(filter), 2);
         filter.until = middle.received_at + Duration(1);
         EXPECT_EQ(dlq().CountOrThrow(filter), 1);
       }},
      {"requeue_where: dry_run counts and changes nothing",
       [&] {
         for (int i = 0; i < 2; ++i) Dead("dry");
         const ReplayPlan plan = dlq().RequeueWhereOrThrow(Type("dry"), {.dry_run = true}, ana_);
         EXPECT_EQ(plan.count, 2);
         EXPECT_EQ(plan.id, 0);
         EXPECT_EQ(dlq().CountOrThrow(Type("dry")), 2);
       }},
      {"requeue_where: batch_size, stagger_ms",
       [&] {
         for (int i = 0; i < 3; ++i) Dead("batch");
         const ReplayPlan slow =
             dlq().RequeueWhereOrThrow(Type("batch"), {.batch_size = 2, .stagger_ms = 600'000}, ana_);
         while (dlq().ReplayOrThrow(slow.id).requeued == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
         EXPECT_EQ(dlq().ReplayOrThrow(slow.id).requeued, 2) << "the second batch comes after the stagger";
         for (int i = 0; i < 3; ++i) Dead("quick");
         const ReplayPlan quick = dlq().RequeueWhereOrThrow(Type("quick"), {.batch_size = 2, .stagger_ms = 0}, ana_);
         const ReplayProgress done = WaitForReplay(quick.id);
         EXPECT_EQ(done.requeued, 3);
         EXPECT_EQ(done.skipped, 0);
         EXPECT_EQ(dlq().RequeueWhere(Type("batch"), {.batch_size = 0}, ana_).error().kind, ErrorKind::invalid);
         EXPECT_EQ(dlq().RequeueWhere(Type("batch"), {.stagger_ms = -1}, ana_).error().kind, ErrorKind::invalid);
       }},
      {"requeue_where: replay_too_large, force",
       [&] {
         for (int i = 0; i < 3; ++i) Dead("cap");
         ReplayOptions options{.stagger_ms = 0, .max = 2};
         ExpectBoth(dlq().RequeueWhere(Type("cap"), options, ana_), "replay_too_large",
                    [&] { dlq().RequeueWhereOrThrow(Type("cap"), options, ana_); });
         options.force = true;
         EXPECT_EQ(WaitForReplay(dlq().RequeueWhereOrThrow(Type("cap"), options, ana_).id).requeued, 3);
       }},
      {"defaults: batch 100, stagger 1000 ms, 10,000 rows",
       [&] {
         const ReplayOptions options;
         EXPECT_EQ(options.batch_size, 100);
         EXPECT_EQ(options.stagger_ms, 1'000);
         EXPECT_EQ(options.max, 10'000);
         EXPECT_FALSE(options.force || options.dry_run);
       }},
      {"prune: keeps every unresolved letter readable and replayable; infinity disables",
       [&] {
         const EventId id = Dead("old");
         const std::string payload = dlq().PayloadOrThrow(id);
         EXPECT_EQ(dlq().PruneOrThrow(std::nullopt, ana_).letters, 0);
         ExpectBoth(dlq().Prune(0, ana_), "bad_days", [&] { dlq().PruneOrThrow(0, ana_); });
         EXPECT_GE(dlq().PruneOrThrow(kAMillisecond, ana_).letters, 1);
         EXPECT_EQ(dlq().CountOrThrow(Type("old")), 1) << "accrue deletes it";
         EXPECT_EQ(dlq().PayloadOrThrow(id), payload);
       }},
      {"prune_succeeded: infinity disables",
       [&] {
         const EventId id = Succeeded();
         EXPECT_EQ(dlq().PruneSucceededOrThrow(std::nullopt, ana_).succeeded, 0);
         ExpectBoth(dlq().PruneSucceeded(-1, ana_), "bad_days", [&] { dlq().PruneSucceededOrThrow(-1, ana_); });
         EXPECT_GE(dlq().PruneSucceededOrThrow(kAMillisecond, ana_).succeeded, 1);
         EXPECT_TRUE(dlq().ShowOrThrow(id).pruned);
       }},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(row.accrue);
    row.ours();
  }
}

TEST_F(Accrue, AnAppliedReplayIsAlreadyReplayedWhichAccrueNeverReaches) {
  const EventId id = Dead();
  handlers_.Fix();
  dlq().RequeueOrThrow(id, ana_);
  WaitFor(id, State::replayed);
  ExpectBoth(dlq().Requeue(id, ana_), "already_replayed", [&] { dlq().RequeueOrThrow(id, ana_); });
}

TEST_F(Accrue, TwoRequeuesAtOnceReplayOnce) {
  const EventId id = Dead();
  handlers_.Fix();
  std::vector<std::thread> people;
  std::atomic<int> taken{0};
  for (int i = 0; i < 8; ++i) {
    people.emplace_back([&] {
      if (dlq().Requeue(id, ana_)) ++taken;
    });
  }
  for (std::thread& person : people) person.join();
  WaitFor(id, State::replayed);
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(handlers_.calls().size(), 1U);
}

TEST_F(Accrue, TheSecondReplayHasItsAuditRecordToo) {
  const EventId id = Dead();
  for (int i = 1; i <= 2; ++i) {
    dlq().RequeueOrThrow(id, {.name = "ana" + std::to_string(i), .reason = "again"});
    while (WaitFor(id, State::dead).replays_failed < i) {
    }
  }
  const auto records = dlq().AuditOfOrThrow(id);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].actor, "ana2") << "accrue writes no row for it, and no name for any";
  EXPECT_EQ(records[1].actor, "ana1");
}

TEST_F(Accrue, WhatIsGoneUpstreamEndsReplayedAndNeverDeadAgain) {
  const EventId id = Dead("gone");
  dlq().RequeueOrThrow(id, ana_);
  const Letter letter = WaitFor(id, State::replayed);
  EXPECT_EQ(letter.replays_failed, 0);
  EXPECT_EQ(dlq().ShowOrThrow(id).attempts.at(0).outcome, OutcomeKind::gone);
}

TEST_F(Accrue, ACountLooksAtTheStateAndIsWhatAReplayWouldTake) {
  for (int i = 0; i < 4; ++i) Dead("good ");
  Succeeded();
  EXPECT_EQ(dlq().CountOrThrow(Filter{}), 4) << "accrue counts succeeded ones too";
  EXPECT_EQ(dlq().RequeueWhereOrThrow(Filter{}, {.dry_run = true}, ana_).count, dlq().CountOrThrow(Filter{}));
  Filter all;
  all.states = {State::dead, State::succeeded};
  EXPECT_EQ(dlq().CountOrThrow(all), 5) << "it can be asked for";
}

TEST_F(Accrue, ABulkReplayGoesOldestReceiptFirst) {
  std::vector<std::string> keys;
  for (int i = 0; i < 20; ++i) keys.push_back(dlq().ShowOrThrow(Dead()).letter.key);
  handlers_.Fix();
  WaitForReplay(dlq().RequeueWhereOrThrow(Filter{}, {.batch_size = 3, .stagger_ms = 0}, ana_).id);
  EXPECT_EQ(handlers_.calls(), keys);
}

TEST_F(Accrue, ADryRunOverTheCapStillAnswers) {
  for (int i = 0; i < 3; ++i) Dead();
  const ReplayPlan plan = dlq().RequeueWhereOrThrow(Filter{}, {.max = 2, .dry_run = true}, ana_);
  EXPECT_EQ(plan.count, 3);
  EXPECT_TRUE(plan.over_cap);
}

TEST_F(Accrue, EveryActNeedsANameForTheAuditLog) {
  const EventId id = Dead();
  EXPECT_FALSE(dlq().Requeue(id, {}));
  EXPECT_FALSE(dlq().RequeueWhere(Filter{}, {}, {}));
  EXPECT_EQ(dlq().ShowOrThrow(id).letter.state, State::dead);
}

}  // namespace
}  // namespace dlo
