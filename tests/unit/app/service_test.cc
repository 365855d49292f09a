// The public library used as an embedding program would: an in-process handler, real store, no HTTP.
#include "dlo/service.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace dlo {
namespace {

/// Applies each key once; fails as scripted by kind.
class Billing {
 public:
  Outcome Handle(const Delivery& delivery) {
    const std::lock_guard lock(mutex_);
    ++calls_[delivery.receipt->key];
    changed_.notify_all();
    const std::string& kind = delivery.receipt->kind;
    if (kind == "broken" && !fixed_) return Outcome::Permanent("schema_mismatch", "unknown field");
    if (kind == "throws") throw std::runtime_error("null customer");
    if (!applied_.insert({delivery.IdempotencyKey(), 1}).second) return Outcome::AlreadyApplied();
    return Outcome::Applied("row 1");
  }
  void Fix() {
    const std::lock_guard lock(mutex_);
    fixed_ = true;
  }
  int calls(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return calls_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool fixed_ = false;
  std::map<std::string, int> calls_, applied_;
};

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    std::string name = (std::filesystem::temp_directory_path() / "dlo-service-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ServiceTest() override {
    service_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Open() {
    Config config;
    config.store.url = "sqlite:" + (folder_ / "dlo.db").string();
    config.server.listen.clear();
    config.log_level = "error";
    SourceConfig source;
    source.name = "billing";
    source.scheme = "none";
    source.key = "/id";
    source.kind = "/type";
    source.target = "app";
    config.sources.push_back(source);
    TargetConfig target;
    target.name = "app";
    target.type = TargetType::in_process;
    target.handler = [this](const Delivery& delivery) { return billing_.Handle(delivery); };
    config.targets.push_back(target);
    service_ = OrThrow(Service::Open(std::move(config)));
    OrThrow(service_->Start());
  }
  EventId Receive(const std::string& key, const std::string& kind) {
    auto accepted = service_->Receive("billing", {}, R"({"id":")" + key + R"(","type":")" + kind + "\"}");
    EXPECT_TRUE(accepted) << accepted.error().message;
    return accepted->at(0).id;
  }
  Letter WaitFor(EventId id, State state) {
    for (;;) {  // each Show waits for the index, so this loop makes progress; ctest's timeout is the limit
      Letter letter = service_->dead_letters().ShowOrThrow(id).letter;
      if (letter.state == state) return letter;
    }
  }

  std::filesystem::path folder_;
  Billing billing_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, HandlesParksAndReplaysThroughTheSameHandler) {
  Open();
  EXPECT_EQ(WaitFor(Receive("e1", "paid"), State::succeeded).attempts, 1);
  const EventId broken = Receive("e2", "broken");
  const Letter parked = WaitFor(broken, State::dead);
  EXPECT_EQ(parked.failure_class, FailureClass::permanent);
  EXPECT_EQ(parked.code, "schema_mismatch");
  EXPECT_EQ(billing_.calls("e2"), 1);
  billing_.Fix();
  const Actor ana{.name = "ana", .role = "operator", .reason = "handler fixed"};
  EXPECT_EQ(service_->dead_letters().RequeueOrThrow(broken, ana).id, broken);
  WaitFor(broken, State::replayed);
  EXPECT_EQ(billing_.calls("e2"), 2);
  const auto again = service_->dead_letters().Requeue(broken, ana);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, "already_replayed");
  EXPECT_THROW(service_->dead_letters().RequeueOrThrow(broken, ana), Failure);
}

TEST_F(ServiceTest, AnExceptionOfTheHandlerIsAPermanentFailure) {
  Open();
  const Letter parked = WaitFor(Receive("e1", "throws"), State::dead);
  EXPECT_EQ(parked.failure_class, FailureClass::permanent);
  EXPECT_EQ(parked.message, "null customer");
}

TEST_F(ServiceTest, SurvivesAReopenWithoutCallingAgain) {
  Open();
  const EventId id = Receive("e1", "paid");
  WaitFor(id, State::succeeded);
  service_.reset();
  Open();
  EXPECT_EQ(service_->dead_letters().ShowOrThrow(id).letter.state, State::succeeded);
  EXPECT_EQ(billing_.calls("e1"), 1);
  EXPECT_EQ(service_->Receive("billing", {}, R"({"id":"e1","type":"paid"})")->at(0).status, AcceptStatus::duplicate);
}

TEST_F(ServiceTest, ErrorsAreValues) {
  Open();
  EXPECT_EQ(service_->Receive("nowhere", {}, "").error().kind, ErrorKind::not_found);
  EXPECT_EQ(service_->dead_letters().Show(999).error().code, "not_found");
  const Actor nobody{};
  EXPECT_FALSE(service_->dead_letters().Requeue(1, nobody));
}

TEST_F(ServiceTest, BulkReplayDryRunCapAndForce) {
  Open();
  for (int i = 0; i < 5; ++i) WaitFor(Receive("b" + std::to_string(i), "broken"), State::dead);
  const Actor ana{.name = "ana", .role = "operator", .reason = "fixed"};
  Filter filter;
  filter.types = {"broken"};
  ReplayOptions options{.stagger_ms = 0, .max = 4, .dry_run = true};
  const ReplayPlan plan = service_->dead_letters().RequeueWhereOrThrow(filter, options, ana);
  EXPECT_EQ(plan.count, 5);
  EXPECT_TRUE(plan.over_cap);
  options.dry_run = false;
  EXPECT_EQ(service_->dead_letters().RequeueWhere(filter, options, ana).error().code, "replay_too_large");
  options.force = true;
  billing_.Fix();
  const ReplayPlan made = service_->dead_letters().RequeueWhereOrThrow(filter, options, ana);
  while (service_->dead_letters().ReplayOrThrow(made.id).state != "done") {
  }
  EXPECT_EQ(service_->dead_letters().ReplayOrThrow(made.id).committed, 5);
  EXPECT_EQ(service_->dead_letters().CountOrThrow(Filter{}), 0);
}

}  // namespace
}  // namespace dlo
