// The contract of a store, said once and run over each implementation: a test asks the store it is given and nothing
// below it. A second store is added by one line in fixture.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/time_text.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "store/store.h"

namespace dlo::store::contract {

inline const Time kStart = FromMicros(1'764'504'000'000'000);

struct OpenOptions {
  std::function<bool(const std::string& source, std::string_view first, std::string_view second)> same_event;
  std::function<bool(const std::string& source)> holds_lane;
  std::function<std::int64_t(std::string_view)> key_digest;
  std::size_t hot_bytes = std::size_t{64} << 20;
  CrashPoints* crash_points = nullptr;
};

/// The place of one store, empty at first; what was committed is there again at the next Open.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  virtual Result<std::unique_ptr<Store>> Open(Clock& clock, const OpenOptions& options) = 0;
  /// A place with all that a process killed just now would leave behind. Open stores go on.
  virtual std::unique_ptr<StorePlace> AsIfKilledNow() = 0;
  /// Changes a byte of the stored body of the newest event whose body contains `text`. The store may be open.
  virtual void DamageBody(const std::string& text) = 0;
  /// Rows that break a law of states or lanes, in words; empty = none. The store may be open.
  virtual std::vector<std::string> BrokenLaws() = 0;
};

struct StoreFactory {
  std::string name;
  std::function<std::unique_ptr<StorePlace>()> make;
};
inline void PrintTo(const StoreFactory& factory, std::ostream* out) {
  *out << factory.name;
}
std::vector<StoreFactory> Factories();

#define DLO_FOR_EACH_STORE(Suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(Factories()), \
                           [](const testing::TestParamInfo<StoreFactory>& each) { return each.param.name; })

/// A receipt with what most tests need; change the rest.
Receipt MakeReceipt(const std::string& key, const std::string& subject = {}, const std::string& source = "stripe");

/// How an attempt ended, as Decide would say it.
Transition Ended(const Claimed& claimed, State to, Time at);

class StoreTest : public testing::TestWithParam<StoreFactory> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void Open();
  void Reopen();
  /// Accepts and waits for the answer; then for the index, so that the events are claimable.
  Result<std::vector<Accepted>> TryAccept(std::vector<Receipt> receipts);
  std::vector<Accepted> Accept(std::vector<Receipt> receipts);
  Accepted Accept(Receipt receipt);
  /// Until everything received is taken in.
  void Settle();

  ExchangeResult Exchange(std::vector<Transition> finished, std::vector<ClaimWant> wants);
  std::vector<Claimed> Claim(int max = 100, const std::string& source = "stripe");
  Claimed ClaimOne();
  ApplyStatus Apply(const Transition& transition);
  Letter Get(EventId id);
  std::int64_t CountIn(State state);
  /// Lanes, states and sums hold. Also called by TearDown.
  void ExpectLawful();
  [[nodiscard]] Time Now() const { return clock_.Now(); }

  ManualClock clock_{kStart};
  NoCrashPoints no_crash_points_;
  OpenOptions options_;
  Lease lease_{"worker-1"};
  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<Store> store_;
};

/// Ids of what was claimed.
std::vector<EventId> Ids(const std::vector<Claimed>& claimed);

}  // namespace dlo::store::contract
