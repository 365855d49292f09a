#include "contract/embedded_place.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "store/embedded/embedded_store.h"
#include "store/embedded/sqlite.h"

namespace dlo::store::contract {
namespace {

namespace fs = std::filesystem;

std::string FreshFolder() {
  std::string name = testing::TempDir() + "dlo-store-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
  return name;
}

struct Law {
  const char* broken;
  const char* sql;  // counts what breaks it
};
constexpr Law kLaws[] = {
    {"more than one event of a lane is running",
     "SELECT count(*) FROM (SELECT 1 FROM events WHERE state = 1 AND lane IS NOT NULL GROUP BY lane HAVING count(*) > "
     "1)"},
    {"a waiting event is free though it is not the first of its lane",
     "SELECT count(*) FROM events e WHERE state = 0 AND behind = 0 AND lane IS NOT NULL AND EXISTS "
     "(SELECT 1 FROM events o WHERE o.lane = e.lane AND o.id < e.id)"},
    {"a waiting event is free though one of its lane is running",
     "SELECT count(*) FROM events e WHERE state = 0 AND behind = 0 AND lane IS NOT NULL AND EXISTS "
     "(SELECT 1 FROM events o WHERE o.lane = e.lane AND o.state = 1)"},
    {"the first of a lane waits behind nobody",
     "SELECT count(*) FROM events e WHERE state = 0 AND behind = 1 AND NOT EXISTS (SELECT 1 FROM events o WHERE "
     "o.lane = e.lane AND o.id <> e.id AND (o.id < e.id OR o.state = 1))"},
    {"an open event with a subject has no lane",
     "SELECT count(*) FROM events e JOIN receipts r ON r.id = e.id WHERE e.state IN (0, 1) AND r.subject <> '' AND "
     "e.lane IS NULL"},
    {"a finished event is in a lane", "SELECT count(*) FROM events WHERE state IN (2, 5, 6) AND lane IS NOT NULL"},
    {"a running event has no attempt row",
     "SELECT count(*) FROM events e WHERE state = 1 AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id "
     "AND a.number = e.attempt_no AND a.token = e.token AND a.finished_at IS NULL)"},
    {"a letter has no record of its failure",
     "SELECT count(*) FROM events e WHERE state IN (3, 4) AND NOT EXISTS (SELECT 1 FROM failures f WHERE "
     "f.event_id = e.id)"},
};

}  // namespace

EmbeddedPlace::EmbeddedPlace() : folder_(FreshFolder()) {}
EmbeddedPlace::~EmbeddedPlace() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Result<std::unique_ptr<Store>> EmbeddedPlace::Open(Clock& clock, const OpenOptions& options) {
  EmbeddedOptions embedded{.database = database(),
                           .segment_bytes = std::int64_t{1} << 20,
                           .hot_bytes = options.hot_bytes,
                           .same_event = options.same_event,
                           .holds_lane = options.holds_lane,
                           .key_digest = options.key_digest};
  CrashPoints& crash_points = options.crash_points != nullptr ? *options.crash_points : no_crash_points_;
  return OpenEmbedded(std::move(embedded), files_, clock, crash_points, metrics_);
}

std::unique_ptr<StorePlace> EmbeddedPlace::AsIfKilledNow() {
  auto left = std::make_unique<EmbeddedPlace>();
  // The journal last: a process that lives on can only add to it, and an index never leads its journal.
  for (const char* file : {"dlo.db", "dlo.db-wal"}) {
    if (fs::exists(folder_ + "/" + file)) fs::copy_file(folder_ + "/" + file, left->folder_ + "/" + file);
  }
  fs::copy(journal(), left->journal(), fs::copy_options::recursive);
  return left;
}

void EmbeddedPlace::DamageBody(const std::string& text) {
  for (const auto& entry : fs::directory_iterator(journal())) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::size_t at = bytes.rfind(text);
    if (at == std::string::npos) continue;
    file.clear();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(bytes[at] ^ 1));
    return;
  }
  FAIL() << "no stored body contains " << text;
}

std::vector<std::string> EmbeddedPlace::BrokenLaws() {
  std::vector<std::string> broken;
  const std::unique_ptr<Db> db = OrThrow(Db::Open(database(), Db::Mode::reader));
  for (const Law& law : kLaws) {
    Statement statement = OrThrow(db->PrepareOnce(law.sql));
    if (OrThrow(statement.Step()) && statement.Int(0) != 0) broken.emplace_back(law.broken);
  }
  return broken;
}

void EmbeddedPlace::RemoveDatabase() {
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(database() + suffix);
}

void EmbeddedPlace::Execute(const std::string& sql) {
  OrThrow(OrThrow(Db::Open(database(), Db::Mode::writer))->Exec(sql));
}

}  // namespace dlo::store::contract
