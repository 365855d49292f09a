// From the sender to the committed result: events received over HTTP and handled in this process, beside receipts
// alone; the same when all of them are parked, and when these are replayed; and handled over HTTP by another process,
// beside the load that this handler takes directly from wrk.
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>

#include "base/log.h"
#include "bench/common/edge.h"
#include "bench/common/handlers.h"
#include "bench/common/pipeline.h"

namespace dlo::bench {
namespace {

/// Events a second that wrk gets answered, of the size and kind that the load generator sends.
double Wrk(const std::string& folder, int port) {
  const std::string script = folder + "/post.lua";
  std::ofstream(script) << fmt::format(
      "wrk.method = 'POST'\n"
      "wrk.headers['Content-Type'] = 'application/json'\n"
      "local n, tail = 0, string.rep('x', {})\n"
      "request = function()\n"
      "  n = n + 1\n"
      "  return wrk.format(nil, nil, nil, '{{\"id\":\"evt_{}_' .. n .. "
      "'\",\"object\":\"event\",\"type\":\"invoice.paid\",' ..\n"
      "    '\"data\":{{\"object\":{{\"id\":\"in_1\",\"subscription\":\"sub_' .. n % 5000 .. '\",\"lines\":\"' .. tail "
      ".. '\"}}}}}}')\n"
      "end\n",
      kBodyBytes - 150, RealClock().Now().time_since_epoch().count());
  const std::string command =
      fmt::format("wrk -t1 -c{} -d4s -s '{}' http://127.0.0.1:{}/webhooks 2>&1", kConnections, script, port);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Die("no wrk");
  std::string said;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) said.append(buffer.data(), n);
  pclose(pipe);
  const std::size_t at = said.find("Requests/sec:");
  if (at == std::string::npos || said.contains("Non-2xx")) Die("wrk (apt-get install wrk) said: " + said);
  return std::atof(said.c_str() + at + 13);
}

struct Bench {
  LoadGenerator load;
  Folder handlers_folder{"handler"};
  HandlerProcess bare{[] { return std::make_unique<AlwaysApplied>(); }};
  HandlerProcess billing{[this] { return std::make_unique<Billing>(handlers_folder.Fresh() + "/billing.db"); }};
  Folder folder;
  int count = 0;
  bool show_cpu = false;

  double Receipts() {
    Pipeline pipeline(folder.Fresh());
    load.Prepare(count);
    Edge edge(pipeline.store(), pipeline.clock());
    const Measured measured = load.Drive(edge.port());
    return measured.stored / measured.seconds;
  }
  /// Until the last one is committed in `end`. `then` is called with the store as it is left, before it is closed.
  double Handled(const char* what, const TargetConfig& target, State end = State::succeeded,
                 const std::function<void(Pipeline&)>& then = {}) {
    Pipeline pipeline(folder.Fresh());
    pipeline.Dispatch(target);
    load.Prepare(count);
    std::optional<Edge> edge(std::in_place, pipeline.store(), pipeline.clock());
    const auto began = Steady::now();
    const Measured measured = load.Drive(edge->port());
    if (measured.stored != count) Die("not everything was stored");
    pipeline.WaitFor(end, count);
    const double seconds = Seconds(began);
    if (show_cpu) TellCpu(what, count);
    edge.reset();
    if (then) then(pipeline);
    return count / seconds;
  }
  /// Letters replayed a second, unpaced, each with success.
  double Replayed(Pipeline& pipeline, const TargetConfig& target) {
    pipeline.StopDispatch();
    const auto began = Steady::now();
    pipeline.Dispatch(target);
    pipeline.Replay({.states = {State::dead}}, count);
    return count / Seconds(began);
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
  here.handler = Applied;
  here.concurrency = 128;
  TargetConfig refusing = here;
  refusing.handler = Refused;
  const auto over_http = [](const HandlerProcess& handler) {
    TargetConfig target{.name = "billing"};
    target.url = fmt::format("http://127.0.0.1:{}/webhooks", handler.port());
    target.allow_private = true;
    target.concurrency = 64;
    return target;
  };
  std::vector<double> receipts, in_process, parked, replayed, direct, http, direct_bare, http_bare;
  for (int round = 0; round < rounds; ++round) {
    receipts.push_back(bench.Receipts());
    in_process.push_back(bench.Handled("handled in process", here));
    parked.push_back(bench.Handled("parked", refusing, State::dead,
                                   [&](Pipeline& pipeline) { replayed.push_back(bench.Replayed(pipeline, here)); }));
    direct.push_back(Wrk(bench.folder.Fresh(), bench.billing.port()));
    http.push_back(bench.Handled("handled over HTTP", over_http(bench.billing)));
    direct_bare.push_back(Wrk(bench.folder.Fresh(), bench.bare.port()));
    http_bare.push_back(bench.Handled("handled over HTTP by one that does nothing", over_http(bench.bare)));
  }
  const auto figure = [](const char* name, std::vector<double>& ours, std::vector<double>& theirs, double reach) {
    return Figure{name, "1/s", Median(ours), Median(theirs), Median(ours) / Median(theirs), reach};
  };
  Tell({figure("received, handled in process, committed; beside receipts", in_process, receipts, 0.6),
        figure("live dispatch in which all is parked, beside one in which all succeeds", parked, in_process, 0.8),
        figure("replay of these letters, unpaced, beside live dispatch", replayed, in_process, 0.8),
        figure("received, handled over HTTP, committed; beside wrk direct", http, direct, 0.3),
        figure("the same when the handler does nothing", http_bare, direct_bare, 0)},
       json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
