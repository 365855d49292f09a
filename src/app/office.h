// The whole office wired together: store, intake, dispatch, desk and edge, with the threads that drive them. Behind the
// public Service and behind `dlo serve`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dlo/service.h"

namespace dlo::app {

struct OfficeOptions {
  Config config;
  std::string bootstrap_token;  // DLO_ADMIN_TOKEN: role admin, name "bootstrap"; empty = none
  std::string crash_at;         // DLO_CRASH_AT, for tests
  bool listen = true;           // false: no HTTP edge
};

/// The database's path in store.url.
[[nodiscard]] std::string DatabasePath(const Config& config);
/// The archive's folder.
[[nodiscard]] std::string ArchivePath(const Config& config);

class Office : public Service {
 public:
  static Result<std::unique_ptr<Office>> Open(OfficeOptions options);
  /// The port that was bound; 0 before Start.
  [[nodiscard]] virtual int port() const = 0;
  /// Set once the store failed for good: the process must end and recover at its next start.
  [[nodiscard]] virtual std::optional<Error> failed() const = 0;
};

}  // namespace dlo::app
