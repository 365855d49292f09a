// The whole server at twice the load that it can carry, as a process of its own: what is still handled, what the rest
// is told, and how soon it is normal again; then one source that floods beside one that does not.
#include <fcntl.h>
#include <sys/prctl.h>

#include <csignal>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "bench/common/handlers.h"
#include "env/curl_http_client.h"

namespace dlo::bench {
namespace {

constexpr int kPeakEvents = 60'000;
constexpr int kQuietRate = 200;

int FreePort() {
  static int next = 20'000 + getpid() % 20'000;
  return next++;
}

/// `dlo serve`, the binary beside this one.
class Server {
 public:
  /// `max_waiting`: of each source.
  Server(const std::string& folder, int billing_port, int max_waiting) {
    const std::string config = folder + "/dlo.toml";
    std::ofstream out(config);
    out << fmt::format(
        "[store]\nurl = \"sqlite:{}/dlo.db\"\n[server]\nlisten = \"127.0.0.1:{}\"\n[log]\nlevel = \"error\"\n", folder,
        port_);
    for (const char* name : {"stripe", "quiet"}) {
      out << fmt::format(
          "[[source]]\nname = \"{0}\"\nscheme = \"stripe\"\nsecrets = [\"{1}\"]\ntarget = \"{0}\"\nmax_waiting = {2}\n"
          "[[target]]\nname = \"{0}\"\nurl = \"http://127.0.0.1:{3}/webhooks\"\nallow_private = true\nconcurrency = "
          "32\n",
          name, kSecret, max_waiting, billing_port);
    }
    out.close();
    const std::string binary = std::filesystem::canonical("/proc/self/exe").parent_path() / "dlo";
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
      execl(binary.c_str(), "dlo", "serve", "--config", config.c_str(), nullptr);
      _exit(127);
    }
    const auto began = Steady::now();
    while (!Metrics()) {
      if (Seconds(began) > 20) Die("dlo did not start: " + binary);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~Server() {
    kill(child_, SIGTERM);
    waitpid(child_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] int port() const { return port_; }
  std::int64_t Applied(const std::string& target) {
    const auto outcome = [&](const char* name) {
      return Number(fmt::format("dlo_attempts_total{{target=\"{}\",outcome=\"{}\"}} ", target, name));
    };
    return outcome("applied") + outcome("already_applied");
  }
  void WaitForApplied(const std::string& target, std::int64_t count) {
    const auto began = Steady::now();
    while (Applied(target) < count) {
      if (Seconds(began) > 60) Die(fmt::format("{} of {} were applied", Applied(target), count));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  std::optional<std::string> Metrics() {
    HttpRequest request;
    request.method = "GET";
    request.url = fmt::format("http://127.0.0.1:{}/metrics", port_);
    request.allow_private = true;
    request.keep_body_bytes = request.max_body_bytes = std::size_t{1} << 20;
    std::promise<HttpResponse> answered;
    http_.Start(std::move(request), [&](HttpResponse response) { answered.set_value(std::move(response)); });
    HttpResponse response = answered.get_future().get();
    if (response.status != 200) return std::nullopt;
    return std::move(response.body);
  }
  std::int64_t Number(const std::string& line) {
    const std::optional<std::string> metrics = Metrics();
    if (!metrics) return 0;
    const std::size_t at = metrics->find("\n" + line);
    return at == std::string::npos ? 0 : std::atoll(metrics->c_str() + at + 1 + line.size());
  }

  int port_ = FreePort();
  pid_t child_ = 0;
  RealHttpClient http_;
};

struct Bench {
  LoadGenerator load, quiet;
  Folder handlers_folder{"handler"};
  HandlerProcess billing{[this] { return std::make_unique<Billing>(handlers_folder.Fresh() + "/billing.db"); }};
  Folder folder;

  /// Events a second from the sender to the committed result.
  double Peak() {
    std::vector<double> rates;
    for (int round = 0; round < 3; ++round) {
      Server server(folder.Fresh(), billing.port(), kPeakEvents);
      load.Prepare(kPeakEvents);
      const auto began = Steady::now();
      const Measured sent = load.Drive(server.port());
      server.WaitForApplied("stripe", sent.stored);
      rates.push_back(sent.stored / Seconds(began));
    }
    return Median(rates);
  }
};

int Main(int argc, char** argv) {
  Words words(argc, argv);
  const bool json = words.Flag("--json");
  const int seconds = words.Number("--seconds", 10, 3);
  words.Finish();
  log::SetLevel("off");
  Bench bench;
  const double peak = bench.Peak();
  Server server(bench.folder.Fresh(), bench.billing.port(), static_cast<int>(peak));

  // Twice that, for some seconds. It is full after the first.
  const int rate = static_cast<int>(2 * peak);
  bench.load.Prepare(rate * seconds, rate);
  double goodput = 0;
  std::thread watch([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
    const std::int64_t before = server.Applied("stripe");
    const auto began = Steady::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(seconds * 1'000 - 2'000));
    goodput = static_cast<double>(server.Applied("stripe") - before) / Seconds(began);
  });
  const Measured surge = bench.load.Drive(server.port());
  const auto ended = Steady::now();
  watch.join();
  if (surge.unexplained > 0) Die(fmt::format("{} were refused without a Retry-After", surge.unexplained));
  if (!json) {
    fmt::print("surge: {} events in {:.1f} s; {} stored, {} told to come back\n", rate * seconds, surge.seconds,
               surge.stored, surge.other);
  }
  double normal_after = 0;
  for (Measured calm{.other = 1}; calm.other > 0 || calm.p99_ms > 100;) {
    if (Seconds(ended) > 120) Die("it is not normal again after two minutes");
    bench.load.Prepare(100, kQuietRate);
    normal_after = Seconds(ended);
    calm = bench.load.Drive(server.port());
  }

  // A source that sends little, alone and while another floods.
  const auto quiet = [&] {
    const std::int64_t before = server.Applied("quiet");
    bench.quiet.Prepare(kQuietRate * 4, kQuietRate, "quiet");
    const Measured measured = bench.quiet.Drive(server.port());
    if (measured.other > 0) Die("the quiet source was refused");
    const auto began = Steady::now();
    server.WaitForApplied("quiet", before + measured.stored);
    return std::pair(measured.p99_ms, Seconds(began));
  };
  const auto alone = quiet();
  bench.load.Prepare(rate * 6, rate);
  Measured flood;
  std::thread flooding([&] { flood = bench.load.Drive(server.port()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  const auto beside = quiet();
  flooding.join();

  Tell({{"handled at twice the load it can carry; beside peak", "1/s", goodput, peak, goodput / peak, 0.8},
        {"normal again after the surge; beside a minute", "s", normal_after, 60, 60 / std::max(normal_after, 1.0), 1},
        {"answer time p99 of a source while another floods; beside alone", "ms", beside.first, alone.first,
         alone.first / beside.first, 0},
        {"its last event handled after its last answer; beside alone", "s", beside.second, alone.second,
         alone.second / beside.second, 0}},
       json);
  return 0;
}

}  // namespace
}  // namespace dlo::bench

int main(int argc, char** argv) {
  return dlo::bench::Main(argc, argv);
}
