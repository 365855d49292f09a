// What retention costs those who send: accept's p99 while closed events are compressed, moved to the archive and pruned
// from the index, beside the same load with nothing else to do; and the memory it takes.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "bench/common/pipeline.h"
#include "deadletter/retention.h"

namespace dlo::bench {
namespace {

constexpr int kRate = 2'000;  // receipts a second

std::shared_ptr<Receipt> MakeReceipt(std::int64_t n, std::string_view prefix) {
  auto receipt = std::make_shared<Receipt>();
  receipt->source = "stripe";
  receipt->key = fmt::format("{}_{}", prefix, n);
  receipt->kind = "invoice.paid";
  receipt->subject = fmt::format("sub_{}", receipt->key);
  receipt->received_at = RealClock().Now();
  receipt->headers = {{"Content-Type", "application/json"}};
  receipt->body = fmt::format(R"({{"id":"{}","type":"invoice.paid","lines":[)", receipt->key);
  // Neither all alike nor noise: what webhooks compress like.
  for (int i = 0; receipt->body.size() < 1'400; ++i) {
    receipt->body += fmt::format(R"({{"id":"li_{:x}","amount":{},"currency":"eur","description":"seat {}"}},)",
                                 static_cast<std::uint64_t>(n) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(i),
                                 (n * 37 + i * 101) % 100'000, i);
  }
  receipt->body += "{}]}";
  return receipt;
}

/// Hands in `count` as fast as the index takes them, then has them applied.
void Make(Pipeline& pipeline, int count) {
  for (int made = 0; made < count;) {
    const int share = std::min(50'000, count - made);
    std::atomic<int> open{0};
    for (int i = 0; i < share; ++i) {
      while (open.load() > 4'096) std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++open;
      pipeline.store().Accept({MakeReceipt(made + i, "old")}, [&open](const auto& accepted) {
        if (!accepted) Die(accepted.error().message);
        --open;
      });
    }
    while (open.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pipeline.WaitForIndex();
    made += share;
    pipeline.Dispatch(Applied);
    pipeline.WaitFor(State::succeeded, made);
    pipeline.StopDispatch();
  }
}

/// Milliseconds from when each receipt was due to its answer, at a steady rate, until `done`.
std::vector<double> Latencies(Pipeline& pipeline, std::string_view prefix, const std::function<bool()>& done) {
  std::mutex mutex;
  std::vector<double> all;
  std::atomic<std::int64_t> open{0};
  const auto began = Steady::now();
  for (std::int64_t i = 0; !done(); ++i) {
    const auto due = began + std::chrono::microseconds(i * 1'000'000 / kRate);
    auto receipt = MakeReceipt(i, prefix);
    std::this_thread::sleep_until(due);
    ++open;
    pipeline.store().Accept({std::move(receipt)}, [&, due](const auto& accepted) {
      if (!accepted) Die(accepted.error().message);
      const double ms = Seconds(due) * 1e3;
      const std::lock_guard lock(mutex);
      all.push_back(ms);
      --open;
    });
  }
  while (open.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return all;
}

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// To stderr: what each second of it was like.
void TellBySecond(const std::vector<double>& latencies) {
  for (std::size_t from = 0; from < latencies.size(); from += kRate) {
    const auto begin = latencies.begin() + static_cast<std::ptrdiff_t>(from);
    const std::vector<double> second(
        begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(kRate, latencies.size() - from)));
    fmt::print(stderr, "  second {:3}: p50 {:7.2f} ms, p99 {:7.2f} ms\n", from / kRate, Percentile(second, 0.5),
               Percentile(second, 0.99));
  }
}

double ResidentMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

/// The archive's thread, as the office runs it.
PruneReport ArchiveAll(Pipeline& pipeline, Time now) {
  const store::RetentionCutoffs cutoffs{.succeeded = now, .now = true};
  PruneReport sum;
  for (;;) {
    const auto go_on = [](Duration worked) {
      std::this_thread::sleep_for(deadletter::RestAfter(worked));
      return true;
    };
    const auto work = pipeline.store().ArchiveNext(cutoffs, RealClock().Now(), go_on, Duration(0));
    if (!work) Die(work.error().message);
    sum.succeeded += work->report.succeeded;
    sum.segments += work->report.segments;
    if (!work->worked) return sum;
  }
}

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json"), by_second = words.Flag("--seconds");
  const int events = words.Number("--events", 1'000'000, 1'000);
  const int idle_seconds = words.Number("--idle", 20, 1);
  words.Finish();
  log::SetLevel("error");
  Folder folder;
  Pipeline pipeline(folder.Fresh());
  fmt::print(stderr, "making {} closed events\n", events);
  Make(pipeline, events);
  const Time now = pipeline.clock().Now();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  sync();

  auto began = Steady::now();
  const auto idle = Latencies(pipeline, "idle", [&] { return Seconds(began) > idle_seconds; });
  const double idle_memory = ResidentMegabytes();

  std::atomic<bool> over{false};
  PruneReport report;
  double memory = 0;
  began = Steady::now();
  double took = 0;
  std::thread archive([&] {
    NameThread("dlo-archive");
    StepBack();
    report = ArchiveAll(pipeline, now);
    took = Seconds(began);
    over = true;
  });
  auto looked = began;
  const auto busy = Latencies(pipeline, "busy", [&] {
    if (Seconds(looked) > 0.1) {
      looked = Steady::now();
      memory = std::max(memory, ResidentMegabytes());
    }
    return over.load();
  });
  archive.join();
  const auto figures = pipeline.store().Read();
  if (!figures || figures->pruned != report.succeeded || figures->accounting_difference != 0) Die("they do not add up");
  fmt::print(stderr, "{} segments, {} events pruned in {:.1f} s\n", report.segments, report.succeeded, took);

  if (by_second) TellBySecond(busy);
  const double busy99 = Percentile(busy, 0.99), idle99 = Percentile(idle, 0.99);
  Tell({{fmt::format("accept p99 while {} events are archived, beside idle", report.succeeded), "ms", busy99, idle99,
         idle99 / busy99, 0.5},
        {"accept p50 likewise", "ms", Percentile(busy, 0.5), Percentile(idle, 0.5),
         Percentile(idle, 0.5) / Percentile(busy, 0.5), 0},
        {"resident memory meanwhile, beside idle and 32 MB", "MB", memory, idle_memory + 32,
         (idle_memory + 32) / memory, 1},
        {"events archived and pruned", "1/s", static_cast<double>(report.succeeded) / took, 0, 0, 0}},
       json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
