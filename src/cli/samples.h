// Billing events shaped like a real provider's, for `dlo send`, the demo and tests. Same seed, same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/time.h"
#include "env/random.h"

namespace dlo::cli {

struct Sample {
  std::string id;  // "evt_1Q..."
  std::string kind;
  std::string body;  // JSON, two spaces a level, as the provider sends it
};

/// One paying customer; events of one subscription share it.
struct Customer {
  std::string id, subscription, name, email;
  std::string currency = "usd";
  std::int64_t amount = 4900;  // minor units
};

/// Customers that the sample handler knows to be deleted.
[[nodiscard]] std::span<const std::string_view> DeletedCustomers();
/// A customer whose account the handler's ledger has locked for longer than the demo's short retry budget.
[[nodiscard]] std::string_view LockedCustomer();
/// Kinds that Make knows; the last is one that no handler of the demo expects.
[[nodiscard]] std::span<const std::string_view> SampleKinds();

/// Not thread-safe.
class SampleMaker {
 public:
  explicit SampleMaker(std::uint64_t seed) : random_(seed) {}
  [[nodiscard]] Customer MakeCustomer();
  /// nullopt for a kind that is not in SampleKinds(). `id` empty = drawn.
  [[nodiscard]] std::optional<Sample> Make(std::string_view kind, const Customer& customer, Time now,
                                           bool livemode = true, std::string id = {});
  /// In [0, n).
  [[nodiscard]] std::size_t Pick(std::size_t n) { return static_cast<std::size_t>(random_.Next() % n); }

 private:
  std::string Letters(int n);
  std::string Id(std::string_view prefix);

  SeededRandom random_;
};

}  // namespace dlo::cli
