// A folder with an embedded store.
#pragma once

#include <string>

#include "base/metrics.h"
#include "contract/fixture.h"
#include "env/files.h"

namespace dlo::store::contract {

class EmbeddedPlace final : public StorePlace {
 public:
  EmbeddedPlace();
  ~EmbeddedPlace() override;

  Result<std::unique_ptr<Store>> Open(Clock& clock, const OpenOptions& options) override;
  std::unique_ptr<StorePlace> AsIfKilledNow() override;
  void DamageBody(const std::string& text) override;
  std::vector<std::string> BrokenLaws() override;

  [[nodiscard]] std::string database() const { return folder_ + "/dlo.db"; }
  [[nodiscard]] std::string journal() const { return folder_ + "/journal"; }
  /// Removes the database with its log. The store is closed.
  void RemoveDatabase();
  /// Runs SQL on the closed store's database.
  void Execute(const std::string& sql);

 private:
  std::string folder_;
  RealFiles files_;
  NoCrashPoints no_crash_points_;
  Metrics metrics_;
};

}  // namespace dlo::store::contract
