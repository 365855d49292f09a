// Durable receipts per second over HTTP, beside a bare durable sink in the same process: the same server and signature
// check, the bodies appended to one flat file with one write and one fdatasync for all that gathered. The two take
// turns; medians are told.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "bench/common/edge.h"
#include "bench/common/measure.h"
#include "env/crash_points.h"
#include "env/files.h"
#include "store/embedded/embedded_store.h"

namespace dlo::bench {
namespace {

constexpr double kReach = 0.7;
constexpr double kReachP99 = 0.25;  // four times the sink's

class FlatFileInbox final : public store::Inbox {
 public:
  FlatFileInbox(Files& files, const std::string& path) {
    auto file = files.Open(path, OpenMode::create_new);
    if (!file) Die(file.error().message);
    file_ = std::move(*file);
    thread_ = std::thread([this] { Loop(); });
  }
  ~FlatFileInbox() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, store::AcceptDone done) override {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = waiting_.empty();
      waiting_.push_back({std::move(batch), std::move(done)});
    }
    if (first) wake_.notify_one();
  }

 private:
  struct Waiting {
    std::vector<std::shared_ptr<Receipt>> batch;
    store::AcceptDone done;
  };

  void Loop() {
    // As the journal does: the space is there before it is needed, so that a sync writes data only.
    constexpr std::uint64_t kStep = std::uint64_t{64} << 20;
    std::uint64_t end = 0, allocated = 0;
    EventId id = 0;
    while (true) {
      std::vector<Waiting> group;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        group.swap(waiting_);
      }
      std::vector<iovec> parts;
      std::uint64_t bytes = 0;
      for (const Waiting& one : group) {
        for (const auto& receipt : one.batch) {
          parts.push_back({receipt->body.data(), receipt->body.size()});
          bytes += receipt->body.size();
        }
      }
      if (end + bytes > allocated) {
        allocated += kStep;
        if (auto ok = file_->Allocate(allocated); !ok) Die(ok.error().message);
      }
      if (auto ok = file_->WriteAt(end, parts); !ok) Die(ok.error().message);
      if (auto ok = file_->Sync(); !ok) Die(ok.error().message);
      end += bytes;
      for (Waiting& one : group) {
        std::vector<Accepted> accepted(one.batch.size());
        for (Accepted& a : accepted) a.id = ++id;
        one.done(std::move(accepted));
      }
    }
  }

  std::unique_ptr<File> file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Waiting> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

class Bench {
 public:
  explicit Bench(int count) : count_(count) {}
  bool show_cpu = false;

  Measured Sink(const std::string& folder) {
    FlatFileInbox inbox(files_, folder + "/sink");
    return Serve(inbox);
  }
  Measured Store(const std::string& folder) {
    Metrics metrics;
    auto store = store::OpenEmbedded({.database = folder + "/dlo.db"}, files_, clock_, crash_points_, metrics);
    if (!store) Die(store.error().message);
    const Measured measured = Serve(**store);
    const auto figures = (*store)->Read();
    if (!figures || figures->receipts != count_) Die("the store does not hold what it acknowledged");
    (*store)->Close();
    return measured;
  }

 private:
  Measured Serve(store::Inbox& inbox) {
    load_.Prepare(count_);
    std::optional<Edge> edge(std::in_place, inbox, clock_);
    const Measured measured = load_.Drive(edge->port());
    if (show_cpu) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // the index takes in what it gathered
      TellCpu("receipts", count_);
    }
    if (measured.stored != count_) Die(fmt::format("{} of {} were not stored", measured.other, count_));
    return measured;
  }

  const int count_;
  LoadGenerator load_;
  RealFiles files_;
  RealClock clock_;
  NoCrashPoints crash_points_;
};

struct Rounds {
  std::vector<double> rate, p50, p99;
  void Add(const Measured& m) {
    rate.push_back(m.stored / m.seconds);
    p50.push_back(m.p50_ms);
    p99.push_back(m.p99_ms);
  }
};

void TellRounds(const Rounds& sink, const Rounds& store) {
  fmt::print("Durable receipts over HTTP: Stripe-signed, {} bytes, {} connections, synced before the 200\n\n",
             kBodyBytes, kConnections);
  fmt::print("{:<10}{:>14}{:>10}{:>10}\n", "", "receipts/s", "p50 ms", "p99 ms");
  for (std::size_t i = 0; i < sink.rate.size(); ++i) {
    fmt::print("{:<10}{:>14.0f}{:>10.2f}{:>10.2f}\n", "sink", sink.rate[i], sink.p50[i], sink.p99[i]);
    fmt::print("{:<10}{:>14.0f}{:>10.2f}{:>10.2f}\n", "dlo", store.rate[i], store.p50[i], store.p99[i]);
  }
  fmt::print("\n");
}

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json"), cpu = words.Flag("--cpu");
  const int count = words.Number("--count", 150'000, 1'000), rounds = words.Number("--rounds", 5, 1);
  words.Finish();
  log::SetLevel("error");
  Bench bench(count);
  bench.show_cpu = cpu;
  Folder folder;
  Rounds sink, store;
  for (int round = 0; round < rounds; ++round) {
    sink.Add(bench.Sink(folder.Fresh()));
    store.Add(bench.Store(folder.Fresh()));
  }
  if (!json) TellRounds(sink, store);
  const double rate = Median(store.rate), bare = Median(sink.rate);
  const double p99 = Median(store.p99), bare_p99 = Median(sink.p99);
  Tell({{"durable receipts beside the bare sink", "1/s", rate, bare, rate / bare, kReach},
        {"answer time p99 beside the bare sink", "ms", p99, bare_p99, bare_p99 / p99, kReachP99}},
       json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
