// The store and the dispatcher without HTTP: receipts until they are indexed beside a bare SQLite loop with the same
// rows and bodies; dispatch, parking and replay beside each other; and each again with 1,000,000 dead letters in the
// store and with 100,000 events behind one retrying subject.
#include <sqlite3.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/encoding.h"
#include "base/log.h"
#include "bench/common/pipeline.h"
#include "store/embedded/schema_text.h"

namespace dlo::bench {
namespace {

struct Sizes {
  int events = 100'000, letters = 1'000'000, rounds = 5;
};

Receipt MakeReceipt(std::int64_t n, std::string_view prefix) {
  Receipt receipt;
  receipt.source = "stripe";
  receipt.key = fmt::format("{}_{}", prefix, n);
  receipt.kind = "invoice.paid";
  receipt.subject = fmt::format("sub_{}", n % 5'000);
  receipt.account = "acct_1";
  receipt.livemode = true;
  receipt.received_at = RealClock().Now();
  receipt.verdict = {.verified = true, .scheme = "stripe", .secret_id = "secrets[0]", .signed_at = receipt.received_at};
  receipt.headers = {
      {"Content-Type", "application/json"},
      {"User-Agent", "Stripe/1.0"},
      {"Stripe-Signature", "t=1700000000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"}};
  receipt.body = fmt::format(R"({{"id":"{}","type":"invoice.paid","data":{{"object":{{"subscription":"{}","lines":")",
                             receipt.key, receipt.subject);
  receipt.body.append(kBodyBytes - receipt.body.size() - 4, 'x');
  receipt.body += "\"}}}";
  return receipt;
}

/// Before each measurement: the index finishes what it does while nobody asks for anything, and the system has written
/// back what was made before, which would slow the journal's syncs.
void Quiet() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  sync();
}

bool show_cpu = false;

/// Hands `count` receipts in, at most some thousands ahead of the journal, and waits until the index has them.
double Accept(Pipeline& pipeline, std::string_view prefix, int count, const std::string& subject = {}) {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
  Quiet();
  const auto cpu = CpuByThread();
  const auto began = Steady::now();
  for (int i = 0; i < count; ++i) {
    auto receipt = std::make_shared<Receipt>(MakeReceipt(i, prefix));
    if (!subject.empty()) receipt->subject = subject;
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
  pipeline.WaitForIndex();
  const double rate = count / Seconds(began);
  if (show_cpu) TellCpu("accept", count, cpu);
  return rate;
}

/// The baseline: one bare loop, transactions of 1,024, 16 KB pages, the same rows and constraints, bodies in the table.
double RawSqlite(const std::string& folder, int count) {
  sqlite3* db = nullptr;
  const auto check = [&](int code) {
    if (code != SQLITE_OK && code != SQLITE_DONE) Die(sqlite3_errmsg(db));
  };
  const auto exec = [&](const std::string& sql) { check(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr)); };
  check(sqlite3_open((folder + "/raw.db").c_str(), &db));
  exec("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536");
  exec(store::kMigrations.front());
  exec(
      "CREATE UNIQUE INDEX raw_key ON receipts (key_digest, key_ordinal);"
      "CREATE TABLE bodies (id INTEGER PRIMARY KEY, headers TEXT NOT NULL, body BLOB NOT NULL)");
  Quiet();
  sqlite3_stmt *event = nullptr, *receipt = nullptr, *body = nullptr;
  check(sqlite3_prepare_v2(
      db,
      "INSERT INTO receipts (id, source, key_digest, key, kind, subject, account, livemode, segment, position, length, "
      "body_bytes, body_sha256, last_seen_at) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, 1, 1, ?1, ?8, ?8, ?9, ?7)",
      -1, &receipt, nullptr));
  check(sqlite3_prepare_v2(db,
                           "INSERT INTO events (id, source, received_at, state, due_at, lane, behind) "
                           "VALUES (?1, 1, ?2, 0, ?2, ?3, ?4)",
                           -1, &event, nullptr));
  check(sqlite3_prepare_v2(db, "INSERT INTO bodies VALUES (?1, ?2, ?3)", -1, &body, nullptr));
  const auto began = Steady::now();
  for (int i = 0; i < count; ++i) {
    if (i % 1'024 == 0) exec(i == 0 ? "BEGIN" : "COMMIT; BEGIN");
    const Receipt r = MakeReceipt(i, "raw");
    const Sha256Digest digest = Sha256(r.body);
    const auto received = static_cast<sqlite3_int64>(r.received_at.time_since_epoch().count());
    const auto text = [&](int at, const std::string& value) {
      check(sqlite3_bind_text(receipt, at, value.data(), static_cast<int>(value.size()), SQLITE_STATIC));
    };
    sqlite3_bind_int64(receipt, 1, i + 1);
    sqlite3_bind_int64(receipt, 2, Digest64("stripe" + r.key));
    text(3, r.key);
    text(4, r.kind);
    text(5, r.subject);
    text(6, r.account);
    sqlite3_bind_int64(receipt, 7, received);
    sqlite3_bind_int64(receipt, 8, static_cast<sqlite3_int64>(r.body.size()));
    check(sqlite3_bind_blob(receipt, 9, digest.data(), static_cast<int>(digest.size()), SQLITE_STATIC));
    check(sqlite3_step(receipt));
    sqlite3_reset(receipt);
    sqlite3_bind_int64(event, 1, i + 1);
    sqlite3_bind_int64(event, 2, received);
    sqlite3_bind_int64(event, 3, Digest64(r.subject));
    sqlite3_bind_int(event, 4, i < 5'000 ? 0 : 1);
    check(sqlite3_step(event));
    sqlite3_reset(event);
    std::string headers;
    for (const Header& h : r.headers) headers += h.name + ": " + h.value + "\n";
    sqlite3_bind_int64(body, 1, i + 1);
    check(sqlite3_bind_text(body, 2, headers.data(), static_cast<int>(headers.size()), SQLITE_STATIC));
    check(sqlite3_bind_blob(body, 3, r.body.data(), static_cast<int>(r.body.size()), SQLITE_STATIC));
    check(sqlite3_step(body));
    sqlite3_reset(body);
  }
  exec("COMMIT");
  const double rate = count / Seconds(began);
  sqlite3_finalize(receipt);
  sqlite3_finalize(event);
  sqlite3_finalize(body);
  sqlite3_close(db);
  return rate;
}

/// What waits is handed to `handler` until `state` has grown by `count`.
double Work(Pipeline& pipeline, Handler handler, State state, int count) {
  const std::int64_t before = pipeline.Count(state);
  Quiet();
  const auto cpu = CpuByThread();
  const auto began = Steady::now();
  pipeline.Dispatch(std::move(handler));
  pipeline.WaitFor(state, before + count);
  const double rate = count / Seconds(began);
  if (show_cpu) TellCpu(state == State::dead ? "park" : "dispatch", count, cpu);
  pipeline.StopDispatch();
  return rate;
}

/// The newest `count` letters, unpaced, at a handler that works.
double Replay(Pipeline& pipeline, int count, std::int64_t since_id) {
  Filter filter;
  filter.states = {State::dead};
  if (since_id > 0) filter.since = pipeline.store().Show(since_id)->letter.received_at;
  Quiet();
  const auto cpu = CpuByThread();
  const auto began = Steady::now();
  pipeline.Dispatch(Applied);
  pipeline.Replay(filter, count);
  const double rate = count / Seconds(began);
  if (show_cpu) TellCpu("replay", count, cpu);
  pipeline.StopDispatch();
  return rate;
}

double ResidentMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

struct Rates {
  std::vector<double> raw, accept, dispatch, park, replay;
};

void Round(Rates& rates, Folder& folder, const Sizes& sizes) {
  rates.raw.push_back(RawSqlite(folder.Fresh(), sizes.events));
  {
    Pipeline pipeline(folder.Fresh());
    rates.accept.push_back(Accept(pipeline, "evt", sizes.events));
    rates.dispatch.push_back(Work(pipeline, Applied, State::succeeded, sizes.events));
  }
  Pipeline pipeline(folder.Fresh());
  Accept(pipeline, "evt", sizes.events);
  rates.park.push_back(Work(pipeline, Refused, State::dead, sizes.events));
  rates.replay.push_back(Replay(pipeline, sizes.events, 0));
}

/// The same again in a store that is full of letters, each round beside one in an empty store: what the machine does
/// meanwhile (memory it took back, a disk that is busy) meets both.
void Full(std::vector<Figure>& figures, Rates& empty, Folder& folder, const Sizes& sizes) {
  Folder full("bench-full");
  Pipeline pipeline(full.Fresh());
  fmt::print(stderr, "making {} dead letters\n", sizes.letters);
  for (int made = 0; made < sizes.letters; made += 50'000) {
    Accept(pipeline, fmt::format("old{}", made), 50'000);
    Work(pipeline, Refused, State::dead, 50'000);
  }
  std::vector<double> accept, dispatch, park, replay;
  double resident = 0;
  EventId first = sizes.letters;
  for (int round = 0; round < sizes.rounds; ++round) {
    Round(empty, folder, sizes);
    accept.push_back(Accept(pipeline, fmt::format("a{}", round), sizes.events));
    dispatch.push_back(Work(pipeline, Applied, State::succeeded, sizes.events));
    resident = std::max(resident, ResidentMegabytes());
    first += sizes.events;
    Accept(pipeline, fmt::format("b{}", round), sizes.events);
    park.push_back(Work(pipeline, Refused, State::dead, sizes.events));
    replay.push_back(Replay(pipeline, sizes.events, first + 1));
    first += sizes.events;
  }
  const auto add = [&](const char* name, const std::vector<double>& now, const std::vector<double>& before) {
    figures.push_back({fmt::format("{}, 1,000,000 dead letters", name), "1/s", Median(now), Median(before),
                       Median(now) / Median(before), 0.9});
  };
  add("accept until indexed", accept, empty.accept);
  add("dispatch", dispatch, empty.dispatch);
  add("park", park, empty.park);
  add("replay", replay, empty.replay);
  figures.push_back({"resident memory, 1,000,000 letters, under load", "MB", resident, 200, 200 / resident, 1});
}

/// One event retries; 100,000 of its subject wait behind it; the others are worked off.
void Behind(std::vector<Figure>& figures, Folder& folder, const Sizes& sizes, const Rates& empty) {
  std::vector<double> rates;
  for (int round = 0; round < sizes.rounds; ++round) {
    Pipeline pipeline(folder.Fresh());
    Accept(pipeline, "first", 1, "stuck");
    pipeline.Dispatch([](const Delivery&) { return Outcome::Retryable("busy"); });
    while (pipeline.store().Attempts(1)->empty() || pipeline.Count(State::waiting) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pipeline.StopDispatch();
    Accept(pipeline, "stuck", 100'000, "stuck");
    Accept(pipeline, "evt", sizes.events);
    rates.push_back(Work(pipeline, Applied, State::succeeded, sizes.events));
  }
  figures.push_back({"dispatch, 100,000 behind one retrying subject", "1/s", Median(rates), Median(empty.dispatch),
                     Median(rates) / Median(empty.dispatch), 0.9});
}

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json"), quick = words.Flag("--quick");  // quick: without the million
  show_cpu = words.Flag("--cpu");
  Sizes sizes;
  sizes.rounds = words.Number("--rounds", sizes.rounds, 1);
  sizes.letters = words.Number("--letters", sizes.letters, 50'000);
  words.Finish();
  log::SetLevel("off");
  Folder folder;
  Rates rates;
  std::vector<Figure> full;
  for (int round = 0; quick && round < sizes.rounds; ++round) Round(rates, folder, sizes);
  if (!quick) Full(full, rates, folder, sizes);
  const double dispatch = Median(rates.dispatch);
  std::vector<Figure> figures = {
      {"accept until indexed beside raw SQLite", "1/s", Median(rates.accept), Median(rates.raw),
       Median(rates.accept) / Median(rates.raw), 1.5},
      {"park of a backlog beside its dispatch", "1/s", Median(rates.park), dispatch, Median(rates.park) / dispatch, 0},
      {"replay of a backlog beside its dispatch", "1/s", Median(rates.replay), dispatch,
       Median(rates.replay) / dispatch, 0}};
  Behind(figures, folder, sizes, rates);
  figures.insert(figures.end(), full.begin(), full.end());
  Tell(figures, json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
