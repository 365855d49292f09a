// What people wait for while they triage, with 1,000,000 dead letters: a page of 50 of one type, the exact count of
// that type, the groups by fingerprint. Through our store beside the same statements in the sqlite3 shell on the same
// file.
#include <array>
#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "bench/common/pipeline.h"

namespace dlo::bench {
namespace {

constexpr char kType[] = "invoice.paid";

/// Ten types; one in ten is `kType`.
std::shared_ptr<Receipt> MakeReceipt(int n, Time now) {
  static constexpr std::array kTypes = {
      "charge.failed", "charge.refunded", "customer.created", "customer.deleted", "invoice.created",
      kType,           "invoice.voided",  "payout.failed",    "payout.paid",      "subscription.over"};
  auto receipt = std::make_shared<Receipt>();
  receipt->source = "stripe";
  receipt->key = fmt::format("evt_{}", n);
  receipt->kind = kTypes[static_cast<std::size_t>(n) % kTypes.size()];
  receipt->subject = fmt::format("sub_{}", n % 5'000);
  receipt->account = "acct_1";
  receipt->livemode = true;
  receipt->received_at = now;
  receipt->body = fmt::format(R"({{"id":"{}","type":"{}"}})", receipt->key, receipt->kind);
  return receipt;
}

void Receive(Pipeline& pipeline, int from, int to) {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
  for (int i = from; i < to; ++i) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open < 4'096; });
      ++open;
    }
    pipeline.store().Accept({MakeReceipt(i, pipeline.clock().Now())}, [&](const Result<std::vector<Accepted>>& done) {
      if (!done) Die(done.error().message);
      const std::lock_guard lock(mutex);
      --open;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return open == 0; });
}

void MakeLetters(Pipeline& pipeline, int letters) {
  constexpr int kAtOnce = 50'000;
  fmt::print(stderr, "making {} dead letters\n", letters);
  pipeline.Dispatch(Refused);
  for (int made = 0; made < letters; made += kAtOnce) {
    const int next = std::min(made + kAtOnce, letters);
    Receive(pipeline, made, next);
    pipeline.WaitFor(State::dead, next);
  }
  pipeline.StopDispatch();
}

struct Question {
  std::string name, sql;
  std::function<void()> ask;
  int times;  // in one measurement
};

template <typename T>
void Check(const Result<T>& answer) {
  if (!answer) Die(answer.error().message);
}

std::vector<Question> Questions(store::Store& store, int letters) {
  static const std::string kKind = fmt::format("r.kind IN ('{}')", kType);
  Filter of_type;
  of_type.types = {kType};
  of_type.states = {State::dead, State::held};
  Filter all;
  all.states = of_type.states;
  const int few = std::max(1, 500'000 / letters);
  return {
      {"page of 50 of one type",
       "SELECT e.id, n.name, r.key, r.kind, r.subject, r.account, r.livemode, r.occurred_at, e.received_at, "
       "r.last_seen_at, r.deliveries, r.body_bytes, e.state, e.class, e.attempts, e.tries, e.attempt_no, e.crashes, "
       "e.replays, e.replays_failed, e.replay_id, e.due_at, e.lease_until, e.parked_at, e.finished_at, e.fingerprint, "
       "r.conflict_of, e.behind, f.* FROM events e CROSS JOIN receipts r ON r.id = e.id LEFT JOIN names n ON n.id = "
       "e.source LEFT JOIN failures f ON f.event_id = e.id WHERE e.letter NOT NULL AND " +
           kKind + " ORDER BY e.id DESC LIMIT 51;",
       [&store, of_type] { Check(store.List(of_type, 50, "")); }, 200},
      {"exact count of one type",
       "SELECT count(*) FROM events e CROSS JOIN receipts r ON r.id = e.id WHERE e.letter NOT NULL AND " + kKind + ";",
       [&store, of_type, letters] {
         const auto count = store.Count(of_type);
         Check(count);
         if (*count != letters / 10) Die(fmt::format("{} letters of the type were counted", *count));
       },
       few},
      {"groups by fingerprint",
       "SELECT g.*, s.class, sr.kind, sf.code, sf.message FROM (SELECT e.fingerprint, count(*) AS n, "
       "min(coalesce(e.parked_at, e.received_at)), max(coalesce(e.parked_at, e.received_at)), max(e.id) AS sample "
       "FROM events e WHERE e.letter NOT NULL GROUP BY 1) g CROSS JOIN events s ON s.id = g.sample CROSS JOIN receipts "
       "sr ON sr.id = g.sample LEFT JOIN failures sf ON sf.event_id = g.sample ORDER BY g.n DESC;",
       [&store, all] {
         const auto groups = store.Groups(all, "fingerprint");
         Check(groups);
         if (groups->size() != 10) Die(fmt::format("{} groups", groups->size()));
       },
       few},
  };
}

double Ours(const Question& question) {
  const auto began = Steady::now();
  for (int i = 0; i < question.times; ++i) question.ask();
  return Seconds(began) / question.times;
}

/// A shell that is given `times` times the statement, in seconds.
double Shell(const std::string& folder, const std::string& sql, int times) {
  const std::string script = folder + "/question.sql";
  {
    std::ofstream out(script);
    for (int i = 0; i < times; ++i) out << sql << "\n";
  }
  const std::string command =
      fmt::format("sqlite3 -batch -readonly '{0}/dlo.db' < '{1}' > '{0}/answer'", folder, script);
  const auto began = Steady::now();
  if (std::system(command.c_str()) != 0) Die("the sqlite3 shell failed; install the package sqlite3");
  const double seconds = Seconds(began);
  if (times > 0 && std::filesystem::file_size(folder + "/answer") == 0) Die("the sqlite3 shell answered nothing");
  return seconds;
}

int Main(int argc, char** argv) {
  log::SetLevel("error");
  Words words(argc, argv);
  const bool json = words.Flag("--json");
  const int letters = words.Number("--letters", 1'000'000, 1'000) / 10 * 10;
  const int rounds = words.Number("--rounds", 5, 1);
  words.Finish();
  Folder at;
  const std::string folder = at.Fresh();
  Pipeline pipeline(folder);
  MakeLetters(pipeline, letters);

  std::vector<Figure> figures;
  for (const Question& question : Questions(pipeline.store(), letters)) {
    std::vector<double> ours, shell;
    Ours(question);  // both with warm file caches
    Shell(folder, question.sql, 1);
    for (int round = 0; round < rounds; ++round) {
      ours.push_back(Ours(question) * 1'000);
      // Without the time that a shell takes to start.
      const double empty = Shell(folder, question.sql, 0);
      shell.push_back((Shell(folder, question.sql, question.times) - empty) / question.times * 1'000);
    }
    const double value = Median(ours), baseline = Median(shell);
    figures.push_back({.name = fmt::format("{}, {} letters", question.name, letters),
                       .unit = "ms",
                       .value = value,
                       .baseline = baseline,
                       .ratio = baseline / value,
                       .reach = 0.67});
  }
  Tell(figures, json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
