// Bulk replays: freezing a selection beside a plain INSERT ... SELECT of the same ids in the same file, replay with
// order per subject beside replay without, and live events beside a replay.
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "bench/common/pipeline.h"
#include "deadletter/replay_pacer.h"

namespace dlo::bench {
namespace {

struct Sizes {
  int letters = 1'000'000, events = 50'000, rounds = 3;
};

const Actor kWho{"bench", "admin"};

Receipt MakeReceipt(std::int64_t n, std::string_view prefix, std::string subject) {
  Receipt receipt;
  receipt.source = "stripe";
  receipt.key = fmt::format("{}_{}", prefix, n);
  receipt.kind = n % 3 == 0 ? "invoice.paid" : "customer.updated";
  receipt.subject = std::move(subject);
  receipt.received_at = RealClock().Now();
  receipt.verdict = {.verified = true, .scheme = "stripe", .secret_id = "secrets[0]", .signed_at = receipt.received_at};
  receipt.body = fmt::format(R"({{"id":"{}"}})", receipt.key);
  return receipt;
}

/// Before each measurement: the system has written back what was made before, which would slow the journal's syncs.
void Quiet() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  sync();
}

/// `count` letters; `subjects` 0: none has one.
void MakeLetters(Pipeline& pipeline, std::string_view prefix, int count, int subjects) {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
  const std::int64_t before = pipeline.Count(State::dead);
  pipeline.Dispatch(Refused);
  for (int i = 0; i < count; ++i) {
    auto receipt =
        std::make_shared<Receipt>(MakeReceipt(i, prefix, subjects == 0 ? "" : fmt::format("sub_{}", i % subjects)));
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open < 4'096; });
      ++open;
    }
    pipeline.store().Accept({std::move(receipt)}, [&](const Result<std::vector<Accepted>>& accepted) {
      if (!accepted) Die(accepted.error().message);
      const std::lock_guard lock(mutex);
      if (--open < 2'048) changed.notify_one();
    });
    if (i % 50'000 == 49'999) pipeline.WaitForIndex();
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return open == 0; });
  lock.unlock();
  pipeline.WaitFor(State::dead, before + count);
  pipeline.StopDispatch();
}

/// With the store closed: one statement, the ids alone.
double PlainInsert(const std::string& folder) {
  sqlite3* db = nullptr;
  const auto exec = [&](const char* sql) {
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) Die(sqlite3_errmsg(db));
  };
  if (sqlite3_open((folder + "/dlo.db").c_str(), &db) != SQLITE_OK) Die(sqlite3_errmsg(db));
  exec("PRAGMA synchronous = NORMAL; CREATE TABLE plain (id INTEGER PRIMARY KEY)");
  const auto began = Steady::now();
  exec("INSERT INTO plain SELECT id FROM events INDEXED BY events_letters WHERE letter NOT NULL ORDER BY id");
  const double seconds = Seconds(began);
  exec("DROP TABLE plain");
  sqlite3_close(db);
  return seconds;
}

/// The longest that somebody waits for the index thread while `work` runs.
template <typename F>
double LongestHold(Pipeline& pipeline, F&& work) {
  std::atomic<bool> over{false};
  double longest = 0;
  std::thread other([&] {
    while (!over) {
      const auto began = Steady::now();
      if (!pipeline.store().Renew({}, pipeline.clock().Now())) Die("the index does not answer");
      longest = std::max(longest, Seconds(began));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  work();
  over = true;
  other.join();
  return longest * 1'000;
}

void Freeze(std::vector<Figure>& figures, const Sizes& sizes) {
  Folder folder("bench-replay");
  const std::string path = folder.Fresh();
  fmt::print(stderr, "making {} dead letters\n", sizes.letters);
  MakeLetters(*std::make_unique<Pipeline>(path), "old", sizes.letters, 100'000);
  std::vector<double> plain, freeze, plan, hold;
  for (int round = 0; round < sizes.rounds; ++round) {
    plain.push_back(PlainInsert(path));
    Pipeline pipeline(path);
    auto began = Steady::now();
    const auto dry = pipeline.store().Plan({});
    plan.push_back(Seconds(began));
    double seconds = 0;
    std::optional<ReplayPlan> made;
    hold.push_back(LongestHold(pipeline, [&] {
      began = Steady::now();
      auto created = pipeline.store().Create({}, {.force = true, .canary = 3}, "replay", kWho, pipeline.clock().Now());
      seconds = Seconds(began);
      if (!created) Die(created.error().message);
      made = std::move(*created);
    }));
    freeze.push_back(seconds);
    if (!dry || made->count != sizes.letters || dry->digest != made->digest) Die("the plan is not what was frozen");
    if (!pipeline.store().Act(made->id, store::ReplayAct::cancel, kWho, pipeline.clock().Now())) Die("no cancel");
  }
  const auto rate = [&](const std::vector<double>& seconds) { return sizes.letters / Median(seconds); };
  figures.push_back({fmt::format("freeze {} letters beside INSERT ... SELECT", sizes.letters), "1/s", rate(freeze),
                     rate(plain), rate(freeze) / rate(plain), 0.2});
  figures.push_back({fmt::format("dry run of {} letters beside INSERT ... SELECT", sizes.letters), "1/s", rate(plan),
                     rate(plain), rate(plan) / rate(plain), 0});
  figures.push_back({"longest wait for the index meanwhile", "ms", *std::ranges::max_element(hold), 0, 0, 0});
}

double ReplayRate(const std::string& path, int count, int subjects) {
  Pipeline pipeline(path);
  MakeLetters(pipeline, "evt", count, subjects);
  Quiet();
  Filter filter;
  filter.states = {State::dead};
  const auto began = Steady::now();
  pipeline.Dispatch(Applied);
  pipeline.Replay(filter, count);
  const double rate = count / Seconds(began);
  pipeline.StopDispatch();
  return rate;
}

void Ordered(std::vector<Figure>& figures, const Sizes& sizes) {
  Folder folder("bench-replay");
  std::vector<double> ordered, free;
  for (int round = 0; round < sizes.rounds; ++round) {
    free.push_back(ReplayRate(folder.Fresh(), sizes.events, 0));
    ordered.push_back(ReplayRate(folder.Fresh(), sizes.events, 1'000));
  }
  figures.push_back({"replay in order over 1,000 subjects beside without order", "1/s", Median(ordered), Median(free),
                     Median(ordered) / Median(free), 0.9});
}

/// 500 live events a second for some seconds: how long after its receipt each is in the handler's hands, p99.
double LiveP99(Pipeline& pipeline, std::string_view prefix, std::atomic<int>& live, std::mutex& mutex,
               std::vector<double>& waits) {
  constexpr int kEvents = 2'500;
  {
    const std::lock_guard lock(mutex);
    waits.clear();
  }
  live = 0;
  auto next = Steady::now();
  for (int i = 0; i < kEvents; ++i) {
    std::this_thread::sleep_until(next += std::chrono::milliseconds(2));
    pipeline.store().Accept({std::make_shared<Receipt>(MakeReceipt(i, prefix, fmt::format("live_{}", i)))},
                            [](const Result<std::vector<Accepted>>& accepted) {
                              if (!accepted) Die(accepted.error().message);
                            });
  }
  while (live < kEvents) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::lock_guard lock(mutex);
  std::ranges::sort(waits);
  return waits[waits.size() * 99 / 100] * 1'000;
}

/// A handler of 8 places and 5 ms: live events take a third of it, the replay what is left.
void Beside(std::vector<Figure>& figures, const Sizes& sizes) {
  Folder folder("bench-replay");
  std::vector<double> alone, beside;
  std::int64_t replayed = 0;
  for (int round = 0; round < sizes.rounds; ++round) {
    Pipeline pipeline(folder.Fresh());
    MakeLetters(pipeline, "evt", 20'000, 1'000);
    std::atomic<int> live{0};
    std::mutex mutex;
    std::vector<double> waits;
    pipeline.Dispatch(
        [&](const Delivery& delivery) {
          if (!delivery.replay) {
            const double waited =
                std::chrono::duration<double>(RealClock().Now() - delivery.receipt->received_at).count();
            const std::lock_guard lock(mutex);
            waits.push_back(waited);
            ++live;
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return Outcome::Applied();
        },
        8);
    Quiet();
    alone.push_back(LiveP99(pipeline, "alone", live, mutex, waits));
    deadletter::ReplayPacer pacer(pipeline.store(), [&] { return pipeline.dispatcher().Flows(); });
    app::Loop loop("dlo-house", pipeline.clock(), [&](Time now) {
      const auto next = pacer.RunOnce(now);
      if (!next) Die(next.error().message);
      return *next;
    });
    const auto plan = pipeline.store().Create({}, {.batch_size = 1'000, .stagger_ms = 0, .force = true}, "replay", kWho,
                                              pipeline.clock().Now());
    if (!plan) Die(plan.error().message);
    Quiet();
    loop.Start();
    beside.push_back(LiveP99(pipeline, "beside", live, mutex, waits));
    const auto progress = pipeline.store().Get(plan->id);
    if (!progress || progress->state != "running") Die("the replay did not last as long as the live events");
    replayed = progress->committed;
    loop.Stop();
    pipeline.StopDispatch();
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    fmt::print(stderr, "live p99: alone {:.1f} ms, beside a replay {:.1f} ms\n", alone[i], beside[i]);
  }
  figures.push_back({"live p99 until handled beside a replay and without one", "ms", Median(beside), Median(alone),
                     Median(alone) / Median(beside), 0.5});
  figures.push_back({"replayed meanwhile", "1/s", static_cast<double>(replayed) / 5, 0, 0, 0});
}

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json");
  const bool freeze = words.Flag("--freeze"), order = words.Flag("--order"), live = words.Flag("--live");
  const bool all = !freeze && !order && !live;
  Sizes sizes;
  sizes.letters = words.Number("--letters", sizes.letters, 1'000);
  sizes.events = words.Number("--events", sizes.events, 1'000);
  sizes.rounds = words.Number("--rounds", sizes.rounds, 1);
  words.Finish();
  log::SetLevel("off");
  std::vector<Figure> figures;
  if (all || freeze) Freeze(figures, sizes);
  if (all || order) Ordered(figures, sizes);
  if (all || live) Beside(figures, sizes);
  Tell(figures, json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
