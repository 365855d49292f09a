// The way of an event into the dead letters and out, in steps that the tests of letters share.
#pragma once

#include <string>

#include "contract/fixture.h"

namespace dlo::store::contract {

class LetterTest : public StoreTest {
 protected:
  /// Received, tried once and dead.
  EventId Dead(const Receipt& receipt, FailureClass failure_class = FailureClass::permanent,
               const std::string& message = "No such subscription") {
    const EventId id = Accept(receipt).id;
    Claimed claimed = ClaimOne();
    EXPECT_EQ(claimed.run.id, id);
    Fail(claimed, failure_class, message);
    return id;
  }
  EventId Dead(const std::string& key, const std::string& subject = {},
               FailureClass failure_class = FailureClass::permanent) {
    return Dead(MakeReceipt(key, subject), failure_class);
  }
  void Fail(const Claimed& claimed, FailureClass failure_class, const std::string& message = "No such subscription",
            bool keep_lane = false) {
    Transition t = Ended(claimed, State::dead, Now());
    t.failure_class = failure_class;
    t.outcome.message = message;
    t.keep_lane = keep_lane;
    EXPECT_EQ(Apply(t), ApplyStatus::applied);
  }
  /// How a good attempt ends: replayed for a replay, else succeeded.
  void Succeed(const Claimed& claimed) {
    EXPECT_EQ(Apply(Ended(claimed, claimed.run.replaying ? State::replayed : State::succeeded, Now())),
              ApplyStatus::applied);
  }
  static TriageAct Request(EventId id, Act act) {
    TriageAct request{.id = id, .act = act};
    request.hold.link = "https://issues.example/1";
    request.resolve_code = ResolveCode::handled_manually;
    return request;
  }
  Result<Letter> Do(const TriageAct& request) {
    auto done = store_->Triage(std::span(&request, 1), actor_, Now());
    if (!done) return std::unexpected(done.error());
    EXPECT_EQ(done->size(), 1U);
    return done->at(0);
  }
  Result<Letter> Do(EventId id, Act act) { return Do(Request(id, act)); }
  std::vector<AuditRecord> Records(EventId id = 0) { return OrThrow(store_->Audit(id, 0, 500)); }
  std::vector<EventId> Listed(const Filter& filter = {}) {
    std::vector<EventId> ids;
    for (const Letter& l : OrThrow(store_->List(filter, 500, "")).items) ids.push_back(l.id);
    return ids;
  }

  Actor actor_{.name = "jane", .role = "operator", .reason = "fixed"};
};

}  // namespace dlo::store::contract
