// From the sender to the committed result: events received over HTTP and handled in this process, beside receipts
// alone; and handled over HTTP by another process, beside the load that this handler takes directly.
#include <sys/prctl.h>

#include <csignal>
#include <optional>

#include "base/log.h"
#include "bench/common/edge.h"
#include "bench/common/pipeline.h"

namespace dlo::bench {
namespace {

class AlwaysApplied final : public server::Handler {
 public:
  void Handle(server::RequestHead, std::string, server::Responder respond) override {
    respond({.content_type = "text/plain", .body = "ok"});
  }
};

/// The user's application: another process that answers 200 as fast as it can.
class HandlerProcess {
 public:
  /// Forks: before any thread exists.
  HandlerProcess() {
    int ports[2];
    if (pipe(ports) != 0) Die("no pipe");
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      log::SetLevel("off");
      RealClock clock;
      AlwaysApplied handler;
      server::HttpServer http({}, clock);
      if (auto ok = http.Start("127.0.0.1:0", handler); !ok) Die(ok.error().message);
      Put(ports[1], http.port());
      for (;;) pause();
    }
    if (!Take(ports[0], port_)) Die("the handler did not start");
  }
  ~HandlerProcess() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  HandlerProcess(const HandlerProcess&) = delete;
  HandlerProcess& operator=(const HandlerProcess&) = delete;
  [[nodiscard]] int port() const { return port_; }

 private:
  pid_t child_ = 0;
  int port_ = 0;
};

struct Bench {
  LoadGenerator load;
  HandlerProcess handler;
  Folder folder;
  int count = 0;
  bool show_cpu = false;

  double Direct() {
    load.Prepare(count);
    const Measured measured = load.Drive(handler.port());
    return measured.stored / measured.seconds;
  }
  double Receipts() {
    Pipeline pipeline(folder.Fresh());
    load.Prepare(count);
    Edge edge(pipeline.store(), pipeline.clock());
    const Measured measured = load.Drive(edge.port());
    return measured.stored / measured.seconds;
  }
  /// Until the last one is committed as succeeded.
  double Handled(const char* what, const TargetConfig& target) {
    Pipeline pipeline(folder.Fresh());
    pipeline.Dispatch(target);
    load.Prepare(count);
    Edge edge(pipeline.store(), pipeline.clock());
    const auto began = Steady::now();
    const Measured measured = load.Drive(edge.port());
    if (measured.stored != count) Die("not everything was stored");
    pipeline.WaitFor(State::succeeded, count);
    const double seconds = Seconds(began);
    if (show_cpu) TellCpu(what, count);
    return count / seconds;
  }
};

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json");
  const bool cpu = words.Flag("--cpu");
  const int rounds = words.Number("--rounds", 3, 1);
  Bench bench;
  bench.count = words.Number("--count", 100'000, 1'000);
  words.Finish();
  bench.show_cpu = cpu;
  log::SetLevel("off");
  TargetConfig here{.name = "billing", .type = TargetType::in_process};
  here.handler = [](const Delivery&) { return Outcome::Applied(); };
  here.concurrency = 128;
  TargetConfig there{.name = "billing"};
  there.url = fmt::format("http://127.0.0.1:{}/webhooks", bench.handler.port());
  there.allow_private = true;
  there.concurrency = 128;
  std::vector<double> receipts, in_process, direct, http;
  for (int round = 0; round < rounds; ++round) {
    receipts.push_back(bench.Receipts());
    in_process.push_back(bench.Handled("handled in process", here));
    direct.push_back(bench.Direct());
    http.push_back(bench.Handled("handled over HTTP", there));
  }
  Tell({{"received, handled in process, committed; beside receipts", "1/s", Median(in_process), Median(receipts),
         Median(in_process) / Median(receipts), 0.6},
        {"received, handled over HTTP, committed; beside direct", "1/s", Median(http), Median(direct),
         Median(http) / Median(direct), 0.3}},
       json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
