#include "store/embedded/index_context.h"

namespace dlo::store {

Result<std::optional<std::int64_t>> Names::Find(Db& db, std::string_view name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  Statement statement = db.Prepare("SELECT id FROM names WHERE name = ?1");
  const Result<bool> row = statement.Bind(1, name).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::nullopt;
  const std::int64_t id = statement.Int(0);
  ids_.emplace(name, id);
  names_.emplace(id, name);
  return id;
}

Result<std::int64_t> Names::Id(Db& db, std::string_view name) {
  const Result<std::optional<std::int64_t>> known = Find(db, name);
  if (!known) return std::unexpected(known.error());
  if (*known) return **known;
  if (Result<void> added = db.Prepare("INSERT INTO names (name) VALUES (?1)").Bind(1, name).Run(); !added) {
    return std::unexpected(added.error());
  }
  const Result<std::optional<std::int64_t>> added = Find(db, name);
  if (!added) return std::unexpected(added.error());
  return added->value();
}

Result<std::string> Names::Name(Db& db, std::int64_t id) {
  if (const auto known = names_.find(id); known != names_.end()) return known->second;
  Statement statement = db.Prepare("SELECT name FROM names WHERE id = ?1");
  const Result<bool> row = statement.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::corrupt, "database_corrupt", "the index names an unknown source or worker");
  std::string name = statement.String(0);
  ids_.emplace(name, id);
  names_.emplace(id, name);
  return name;
}

bool Names::FirstOf(std::int64_t source, std::string_view version) {
  // A handler that never says the same version twice must not fill the memory.
  static constexpr std::size_t kMaxRemembered = 1'000;
  auto& met = versions_[source];
  if (met.contains(version)) return false;
  if (met.size() >= kMaxRemembered) met.clear();
  met.emplace(version);
  return true;
}

void Names::Forget() {
  ids_.clear();
  names_.clear();
  versions_.clear();
}

}  // namespace dlo::store
