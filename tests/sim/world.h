// One simulated office: the real journal, index and dispatcher on a disk, a clock, a network and a billing application
// that all come from one seed. Kills, power cuts, failing and full disks, pauses and lost answers happen at any step;
// what must hold is checked against the world's own history, never against what the store says of itself.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/metrics.h"
#include "dispatch/dispatcher.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/memory_files.h"
#include "env/random.h"
#include "sim/billing.h"
#include "sim/sim_vfs.h"
#include "store/embedded/embedded_store.h"
#include "store/embedded/sqlite.h"

namespace dlo::sim {

struct Options {
  std::uint64_t seed = 1;
  int steps = 700;
  /// What a broken program would put between the parts; for the tests that show that the checks see it.
  std::function<std::unique_ptr<Files>(Files&)> wrap_files;
  std::function<std::unique_ptr<store::Queue>(store::Queue&, const std::string& vfs)> wrap_queue;
};

struct Report {
  std::string failure;              // empty: everything held
  std::deque<std::string> history;  // the last events
  std::uint64_t digest = 0;         // of the whole history
  int events = 0, calls = 0, effects = 0, deaths = 0, acts = 0;
};

class World {
 public:
  explicit World(Options options);
  ~World();
  Report Run();

 private:
  struct Sent {
    std::shared_ptr<const Receipt> receipt;
    std::optional<Accepted> answer;
  };
  struct Broken {
    std::string what;
  };
  struct Row {
    std::string source, key, subject, sha256;
    std::int64_t ordinal = 0, state = 0, failure_class = 0, tries = 0, lane = 0, behind = 0;
  };

  // What happens.
  void Open();
  void Die(bool power_cut);
  void Step();
  void Send();
  void Dispatch();
  void Dispatch(std::size_t worker);
  void Close();
  void Advance(Duration by);
  void AdvanceToNextDue();
  void Pause();
  void Triage();
  void Replay();
  void Steer(std::int64_t replay, std::uint64_t what);
  void Trouble();
  void Settle();
  void ReplayAll();

  // What must hold.
  void Audit();
  void CheckAnswers(const std::map<EventId, Row>& rows);
  void CheckRows(const std::map<EventId, Row>& rows);
  void CheckReplays();
  void CheckBytes();
  void CheckClaim(const store::Claimed& claimed);
  [[nodiscard]] Time LeaseEnd(const Call& call) const;
  void CheckStart(const Call& call);
  void CheckAnswer(const Call& call);
  void CheckEnd();
  std::map<EventId, Row> Rows();
  std::int64_t Number(const char* sql, EventId id = 0);
  void Require(bool holds, const std::string& what);
  void Note(std::string what);

  std::uint64_t Roll(std::uint64_t sides) { return random_.Next() % sides; }
  static std::tuple<std::string, std::string, std::string> Content(const Receipt& receipt);

  Options options_;
  SeededRandom random_;
  ManualClock clock_;
  MemoryFiles disk_;
  std::unique_ptr<Files> wrapped_files_;
  Files& files_;
  SimVfs vfs_;
  NoCrashPoints crash_points_;
  Billing billing_;
  Config config_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<store::SteppedStore> store_;
  std::unique_ptr<store::Db> eyes_;
  std::unique_ptr<store::Queue> wrapped_queue_;
  std::vector<std::unique_ptr<store::Queue>> queues_;  // as each worker sees it
  std::function<void()> answer_second_;
  std::map<std::pair<EventId, int>, Time> claimed_at_;          // by event and attempt
  std::vector<std::unique_ptr<dispatch::Dispatcher>> workers_;  // two, that share the store

  std::vector<Sent> sent_;
  std::set<std::tuple<std::string, std::string, std::string>> contents_;  // source, key, body of everything sent
  std::set<EventId> final_;            // seen in a state that nothing leaves, since the last power cut
  std::int64_t audit_floor_ = 0;       // audit records that acts which were answered left
  std::vector<std::int64_t> replays_;  // ids
  int epoch_ = 0;
  Report report_;
};

}  // namespace dlo::sim
