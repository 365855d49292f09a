// Durable receipts per second over HTTP, beside a bare durable sink in the same process: the same server and signature
// check, the bodies appended to one flat file with one write and one fdatasync for all that gathered. The two take
// turns; medians are told. The load comes from a child process: 64 connections, each sending its next event when the
// last one was answered, all events distinct and signed before the clock starts.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "env/crash_points.h"
#include "env/files.h"
#include "intake/receiver.h"
#include "intake/sign.h"
#include "server/http_server.h"
#include "server/ingest.h"
#include "store/embedded/embedded_store.h"

namespace dlo {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kConnections = 64;
constexpr std::size_t kBodyBytes = 1536;
constexpr const char* kSecret = "whsec_bench_secret_of_sufficient_length";
constexpr double kReach = 0.6;

[[noreturn]] void Die(const std::string& why) {
  fmt::print(stderr, "bench: {}\n", why);
  std::exit(1);
}

// ---- The load, in a child process -----------------------------------------------------------------------------------

struct Order {
  int run = 0;
  int count = 0;
};
struct Measured {
  double seconds = 0, p50_ms = 0, p99_ms = 0;
  int stored = 0, other = 0;
};

/// CPU seconds that each of our threads has used so far, by name.
std::map<std::string, double> CpuByThread() {
  std::map<std::string, double> cpu;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (close == std::string::npos) continue;  // it has ended
    std::istringstream rest(line.substr(close + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    double user = 0, kernel = 0;
    rest >> user >> kernel;
    cpu[line.substr(open + 1, close - open - 1)] += (user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return cpu;
}

template <typename T>
void Put(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) Die("the pipe to the other process broke");
}
template <typename T>
bool Take(int fd, T& value) {
  return read(fd, &value, sizeof value) == static_cast<ssize_t>(sizeof value);
}

/// Whole requests, each with an id of its own and a fresh timestamp.
std::vector<std::string> Sign(const Order& order) {
  const auto signer = intake::Signer::Compile("stripe", {}, kSecret);
  if (!signer) Die(signer.error().message);
  const Time now = RealClock().Now();
  std::vector<std::string> requests;
  requests.reserve(static_cast<std::size_t>(order.count));
  for (int i = 0; i < order.count; ++i) {
    std::string body = fmt::format(
        R"({{"id":"evt_{}_{}","object":"event","type":"invoice.paid","created":{},"livemode":true,"pending_webhooks":1,)"
        R"("data":{{"object":{{"id":"in_{}","object":"invoice","subscription":"sub_{}","customer":"cus_{}","lines":")",
        order.run, i, now.time_since_epoch().count() / 1'000'000, i, i % 5000, i % 5000);
    body.append(kBodyBytes - body.size() - 4, 'x');
    body += "\"}}}";
    std::string request = fmt::format(
        "POST /in/stripe HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        "User-Agent: Stripe/1.0\r\nContent-Length: {}\r\n",
        body.size());
    for (const Header& h : signer->Sign(body, now, "")) request += fmt::format("{}: {}\r\n", h.name, h.value);
    requests.push_back(request + "\r\n" + body);
  }
  return requests;
}

struct Client {
  int fd = -1;
  const std::string* request = nullptr;
  std::size_t sent = 0;
  std::string answer;
  Steady::time_point began;
};

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Die("cannot connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// The whole of an answer has come.
bool Complete(const std::string& answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos) return false;
  static constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = answer.find(kLength);
  if (at == std::string::npos || at > head) Die("an answer without a length");
  std::size_t length = 0;
  std::from_chars(answer.data() + at + kLength.size(), answer.data() + head, length);
  return answer.size() >= head + 4 + length;
}

void SendAll(Client& client) {
  // A request fits the socket's buffer; the loop is for the day when it does not.
  while (client.sent < client.request->size()) {
    const ssize_t n =
        send(client.fd, client.request->data() + client.sent, client.request->size() - client.sent, MSG_NOSIGNAL);
    if (n <= 0) Die("the server closed a connection while it was sent to");
    client.sent += static_cast<std::size_t>(n);
  }
}

Measured Drive(int port, const std::vector<std::string>& requests) {
  const int epoll = epoll_create1(0);
  std::vector<Client> clients(kConnections);
  std::vector<float> milliseconds;
  milliseconds.reserve(requests.size());
  std::size_t next = 0;
  Measured measured;
  const auto start = [&](Client& client) {
    if (next == requests.size()) return;
    client.request = &requests[next++];
    client.sent = 0;
    client.answer.clear();
    client.began = Steady::now();
    SendAll(client);
  };
  for (Client& client : clients) {
    client.fd = Connect(port);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &client}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client.fd, &event);
  }
  const auto began = Steady::now();
  for (Client& client : clients) start(client);
  std::array<epoll_event, kConnections> events{};
  std::array<char, 4096> buffer{};
  while (milliseconds.size() < requests.size()) {
    const int n = epoll_wait(epoll, events.data(), kConnections, 20'000);
    if (n == 0) Die("no answer for 20 s");
    for (int i = 0; i < n; ++i) {
      Client& client = *static_cast<Client*>(events[static_cast<std::size_t>(i)].data.ptr);
      const ssize_t got = recv(client.fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) Die("the server closed a connection");
      client.answer.append(buffer.data(), static_cast<std::size_t>(got));
      if (!Complete(client.answer)) continue;
      milliseconds.push_back(std::chrono::duration<float, std::milli>(Steady::now() - client.began).count());
      ++(client.answer.starts_with("HTTP/1.1 200") ? measured.stored : measured.other);
      start(client);
    }
  }
  measured.seconds = std::chrono::duration<double>(Steady::now() - began).count();
  for (const Client& client : clients) close(client.fd);
  close(epoll);
  std::ranges::sort(milliseconds);
  measured.p50_ms = milliseconds[milliseconds.size() / 2];
  measured.p99_ms = milliseconds[milliseconds.size() * 99 / 100];
  return measured;
}

/// For each order: signs, says it is ready, is told the port, drives, tells what it measured.
void RunLoad(int orders, int results) {
  Order order;
  while (Take(orders, order)) {
    const std::vector<std::string> requests = Sign(order);
    Put(results, order.run);
    int port = 0;
    if (!Take(orders, port)) return;
    Put(results, Drive(port, requests));
  }
}

// ---- The bare durable sink ------------------------------------------------------------------------------------------

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

class NoQuarantine final : public store::Quarantine {
 public:
  void Keep(store::Rejected rejected) override { Die("a delivery was rejected: " + rejected.reason); }
  Result<std::vector<store::Rejected>> RejectedList(const std::string&, std::int64_t, int) override { return {}; }
  Result<store::Rejected> RejectedOne(std::int64_t) override { return store::Rejected{}; }
};

// ---- The two sides --------------------------------------------------------------------------------------------------

class Bench {
 public:
  bool show_cpu = false;

  Bench(int count, int orders, int results) : count_(count), orders_(orders), results_(results) {}

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
    Put(orders_, Order{.run = ++run_, .count = count_});
    int ready = 0;
    if (!Take(results_, ready)) Die("the load generator ended");
    SourceConfig source{.name = "stripe", .scheme = "stripe", .target = "none"};
    source.secrets = {{"secrets[0]", kSecret}};
    Metrics metrics;
    NoQuarantine quarantine;
    intake::Receiver receiver({source}, inbox, quarantine, clock_, metrics);
    server::Ingest ingest(receiver, std::chrono::seconds(3));
    server::HttpServer http({}, clock_);
    if (auto ok = http.Start("127.0.0.1:0", ingest); !ok) Die(ok.error().message);
    Put(orders_, http.port());
    Measured measured;
    if (!Take(results_, measured)) Die("the load generator ended");
    if (show_cpu) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // the index takes in what it gathered
      for (const auto& [name, seconds] : CpuByThread()) {
        if (seconds > 0.01) fmt::print(stderr, "  {:<16}{:6.2f} us CPU a receipt\n", name, seconds * 1e6 / count_);
      }
    }
    http.Stop();
    if (measured.stored != count_) Die(fmt::format("{} of {} were not stored", measured.other, count_));
    return measured;
  }

  RealFiles files_;
  RealClock clock_;
  NoCrashPoints crash_points_;
  const int count_, orders_, results_;
  int run_ = 0;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Rounds {
  std::vector<double> rate, p50, p99;
  void Add(const Measured& m) {
    rate.push_back(m.stored / m.seconds);
    p50.push_back(m.p50_ms);
    p99.push_back(m.p99_ms);
  }
};

void Tell(const Rounds& sink, const Rounds& store, bool json) {
  const double rate = Median(store.rate), bare = Median(sink.rate);
  const double p99 = Median(store.p99), bare_p99 = Median(sink.p99);
  if (json) {
    // A ratio is the share of the baseline's performance that we reach; of a time, the baseline divided by ours.
    fmt::print(
        R"([{{"figure":"receipts_per_second","value":{:.0f},"unit":"1/s","baseline":{:.0f},"ratio":{:.3f},"reach":{}}},)"
        "\n"
        R"({{"figure":"receipts_p99_ms","value":{:.2f},"unit":"ms","baseline":{:.2f},"ratio":{:.3f},"reach":null}}])"
        "\n",
        rate, bare, rate / bare, kReach, p99, bare_p99, bare_p99 / p99);
    return;
  }
  fmt::print("Durable receipts over HTTP: Stripe-signed, {} bytes, {} connections, synced before the 200\n\n",
             kBodyBytes, kConnections);
  fmt::print("{:<10}{:>14}{:>10}{:>10}\n", "", "receipts/s", "p50 ms", "p99 ms");
  for (std::size_t i = 0; i < sink.rate.size(); ++i) {
    fmt::print("{:<10}{:>14.0f}{:>10.2f}{:>10.2f}\n", "sink", sink.rate[i], sink.p50[i], sink.p99[i]);
    fmt::print("{:<10}{:>14.0f}{:>10.2f}{:>10.2f}\n", "dlo", store.rate[i], store.p50[i], store.p99[i]);
  }
  fmt::print("\nmedians: dlo {:.0f}/s, bare durable sink {:.0f}/s, ratio {:.2f} (to reach: {})\n", rate, bare,
             rate / bare, kReach);
}

int Main(int argc, char** argv) {
  bool json = false;
  bool cpu = false;
  int count = 100'000, rounds = 3;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--cpu") {
      cpu = true;
    } else if (word == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--count" && i + 1 < argc) {
      count = std::max(1000, std::atoi(argv[++i]));
    } else {
      Die("usage: bench_receipts [--json] [--count N] [--rounds N] [--cpu]");
    }
  }
  log::SetLevel("error");
  int orders[2], results[2];
  if (pipe(orders) != 0 || pipe(results) != 0) Die("no pipe");
  const pid_t child = fork();  // before any thread exists
  if (child == 0) {
    close(orders[1]);
    close(results[0]);
    RunLoad(orders[0], results[1]);
    _exit(0);
  }
  close(orders[0]);
  close(results[1]);

  // On the disk of the build folder: /tmp may be memory.
  const auto home = std::filesystem::canonical("/proc/self/exe").parent_path() / fmt::format("bench-{}", getpid());
  const auto fresh = [&](const std::string& name) {
    std::filesystem::create_directories(home / name);
    return (home / name).string();
  };
  Bench bench(count, orders[1], results[0]);
  bench.show_cpu = cpu;
  Rounds sink, store;
  for (int round = 0; round < rounds; ++round) {
    sink.Add(bench.Sink(fresh(fmt::format("sink{}", round))));
    store.Add(bench.Store(fresh(fmt::format("store{}", round))));
    std::filesystem::remove_all(home);
  }
  close(orders[1]);
  waitpid(child, nullptr, 0);
  Tell(sink, store, json);
  return 0;
}

}  // namespace
}  // namespace dlo

int main(int argc, char** argv) {
  return dlo::Main(argc, argv);
}
