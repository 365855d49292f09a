#include "app/office.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <unordered_map>

#include "app/loop.h"
#include "base/log.h"
#include "base/metrics.h"
#include "deadletter/desk.h"
#include "deadletter/replay_pacer.h"
#include "dispatch/dispatcher.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/curl_http_client.h"
#include "env/files.h"
#include "env/memory.h"
#include "env/random.h"
#include "intake/receiver.h"
#include "intake/same_event_rules.h"
#include "observe/figures.h"
#include "observe/health.h"
#include "server/edge.h"
#include "server/http_server.h"
#include "store/embedded/embedded_store.h"

namespace dlo::app {
namespace {

// Together under the 25 s within which a stop must end.
constexpr Duration kEdgeGrace = std::chrono::seconds(5);
constexpr Duration kHandlerGrace = std::chrono::seconds(10);
constexpr Duration kHousekeeping = std::chrono::seconds(1);
constexpr Duration kTryAgain = std::chrono::milliseconds(200);

server::HttpOptions OptionsOf(const ServerConfig& config) {
  server::HttpOptions options;
  options.threads = config.io_threads;
  options.max_connections = config.max_connections;
  options.max_connections_per_address = config.max_connections_per_address;
  options.max_requests = config.max_requests_per_connection;
  options.head = {config.max_request_line, config.max_header_bytes, config.max_header_fields};
  options.body_bytes = config.inflight_body_bytes;
  options.handshake_deadline = config.handshake_deadline;
  options.head_deadline = config.head_deadline;
  options.body_deadline = config.body_deadline;
  options.body_grace = config.body_grace;
  options.body_rate = config.min_body_rate;
  options.idle_deadline = config.idle_deadline;
  options.write_deadline = config.write_deadline;
  options.tls_cert = config.tls_cert;
  options.tls_key = config.tls_key;
  return options;
}

class OfficeImpl final : public Office {
 public:
  explicit OfficeImpl(OfficeOptions options)
      : config_(std::move(options.config)),
        bootstrap_token_(std::move(options.bootstrap_token)),
        listen_(options.listen && !config_.server.listen.empty()),
        crash_at_(std::move(options.crash_at)),
        crash_points_(crash_at_) {
    for (const SourceConfig& source : config_.sources) by_name_[source.name] = &source;
  }
  ~OfficeImpl() override { Stop(); }

  Result<void> OpenStore() {
    store::EmbeddedOptions options;
    options.database = DatabasePath(config_);
    options.hot_bytes = config_.store.hot_bytes;
    options.holds_lane = [this](const std::string& source) { return HoldsLane(source); };
    options.same_event = [this](const std::string& source, std::string_view first, std::string_view second) {
      return same_event_.SameEvent(source, first, second);
    };
    auto store = store::OpenEmbedded(std::move(options), files_, clock_, crash_points_, metrics_);
    if (!store) return std::unexpected(store.error());
    store_ = std::move(*store);
    receiver_ = std::make_unique<intake::Receiver>(config_.sources, *store_, *store_, clock_, metrics_);
    http_ = std::make_unique<RealHttpClient>();
    dispatcher_ = std::make_unique<dispatch::Dispatcher>(
        config_, dispatch::DispatcherDeps{*store_, *store_, *http_, clock_, random_, crash_points_, metrics_});
    dispatcher_->OnWake([this] {
      dispatch_loop_.Ring();
      progress_.notify_all();
    });
    pacer_ = std::make_unique<deadletter::ReplayPacer>(*store_, [this] { return dispatcher_->Flows(); });
    desk_ = std::make_unique<deadletter::Desk>(
        deadletter::DeskDeps{.store = *store_,
                             .clock = clock_,
                             .pacer = *pacer_,
                             .holds_lane = [this](const std::string& source) { return HoldsLane(source); },
                             .wait = [this](Duration length) { WaitForProgress(length); },
                             .ring = [this] { housekeeping_loop_.Ring(); }});
    scrape_ = std::make_unique<observe::Scrape>(metrics_, *store_, clock_);
    health_ = std::make_unique<observe::Health>(*store_);
    return {};
  }

  Result<void> Start() override {
    if (listen_) {
      if (auto listening = Listen(); !listening) return listening;
    }
    dispatch_loop_.Start();
    housekeeping_loop_.Start();
    started_ = true;
    return {};
  }

  void Stop() override {
    const std::lock_guard lock(stop_mutex_);
    if (stopped_) return;
    stopped_ = true;
    if (health_) health_->SetDraining();
    if (desk_) desk_->StopWaiting();  // a drain that waits would keep its connection
    if (server_) server_->Stop(kEdgeGrace);
    housekeeping_loop_.Stop();
    dispatch_loop_.Stop();
    if (dispatcher_ && started_) dispatcher_->Drain(kHandlerGrace);
    if (http_) http_->Stop();  // its callbacks read what is destroyed after it
    if (store_) store_->Close();
  }

  Result<std::vector<Accepted>> Receive(const std::string& source, std::vector<Header> headers,
                                        std::string body) override {
    const SourceConfig* found = receiver_->Find(source);
    if (found == nullptr) {
      return Fail(ErrorKind::not_found, "unknown_source", fmt::format("there is no source {}", source));
    }
    if (auto refusal = gate_.Refusal(source)) return std::unexpected(std::move(*refusal));
    auto promise = std::make_shared<std::promise<Result<std::vector<Accepted>>>>();
    auto answer = promise->get_future();
    receiver_->Receive(*found, intake::Incoming{std::move(headers), std::move(body), "in-process"},
                       [promise](Result<std::vector<Accepted>> result) { promise->set_value(std::move(result)); });
    return answer.get();
  }

  DeadLetters& dead_letters() override { return *desk_; }
  [[nodiscard]] int port() const override { return server_ ? server_->port() : 0; }

  [[nodiscard]] std::optional<Error> failed() const override {
    const Result<void> ready = store_->Ready();
    if (!ready && ready.error().code == "store_failed") return ready.error();
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool HoldsLane(const std::string& source) const {
    const auto found = by_name_.find(source);
    return found != by_name_.end() && found->second->on_park == OnPark::hold;
  }

  Result<void> Listen() {
    ingest_ = std::make_unique<server::Ingest>(*receiver_, config_.server.commit_deadline, &gate_);
    admin_ = std::make_unique<server::AdminApi>(server::AdminDeps{
        .letters = *desk_,
        .store = *store_,
        .clock = clock_,
        .scrape = *scrape_,
        .health = *health_,
        .sources = config_.sources,
        .breakers = [this] { return dispatcher_->Breakers(); },
        .resumed =
            [this](const std::string& source) {
              dispatcher_->Resumed(source);
              dispatch_loop_.Ring();
            },
        .bootstrap_token = bootstrap_token_,
        .max_body = config_.server.max_admin_body,
        .bad_tokens_per_minute = config_.server.bad_tokens_per_minute,
    });
    if (auto tokens = admin_->Start(); !tokens) return tokens;
    edge_ = std::make_unique<server::Edge>(*ingest_, *admin_);
    server_ = std::make_unique<server::HttpServer>(OptionsOf(config_.server), clock_);
    return server_->Start(config_.server.listen, *edge_);
  }

  /// Until something ended, at most `length`.
  void WaitForProgress(Duration length) {
    std::unique_lock lock(progress_mutex_);
    progress_.wait_for(lock, std::min(length, Duration(std::chrono::milliseconds(50))));
  }

  Time DispatchOnce(Time now) {
    const Result<Time> next = dispatcher_->RunOnce(now);
    if (next) {
      dispatch_trouble_ = false;
      return *next;
    }
    if (!dispatch_trouble_) log::Warn("dispatch.store_unavailable", {{"message", next.error().message}});
    dispatch_trouble_ = true;
    return now + kTryAgain;
  }

  Time KeepHouse(Time now) {
    if (now >= next_gate_) {
      next_gate_ = now + kHousekeeping;
      if (const auto figures = store_->Read()) gate_.Update(*figures, LookAtMachine());
      for (const SourceConfig& source : config_.sources) {
        if (source.on_park == OnPark::hold) ReleaseLongLanes(source, now);
      }
    }
    const Result<Time> next = pacer_->RunOnce(now);
    return next ? std::min(*next, now + kHousekeeping) : now + kHousekeeping;
  }

  intake::Machine LookAtMachine() {
    intake::Machine machine;
    if (const auto bytes = files_.TotalBytes(store::JournalFolder(DatabasePath(config_)))) machine.disk_bytes = *bytes;
    machine.resident_bytes = ResidentBytes();
    // Freed memory that the allocator keeps must not refuse anybody.
    if (machine.resident_bytes && gate_.MemoryOver(*machine.resident_bytes)) {
      ReturnFreeMemory();
      machine.resident_bytes = ResidentBytes();
    }
    return machine;
  }

  void ReleaseLongLanes(const SourceConfig& source, Time now) {
    const Actor system{"system", "admin", "limits of on_park = hold"};
    const auto released =
        store_->ReleaseLanes(source.name, source.hold_max_events, now - source.hold_max_age, system, now);
    if (!released) return;
    for (const EventId id : *released) {
      metrics_
          .counter("dlo_lanes_released_total", "Letters that gave up their subject: too many or too old followers.",
                   {{"source", source.name}})
          .Add();
      log::Error("lane.released", {{"source", source.name},
                                   {"id", id},
                                   {"hint", "events behind this dead letter go on now; look at it with `dlo show`"}});
    }
  }

  const Config config_;
  const std::string bootstrap_token_;
  const bool listen_;
  const std::string crash_at_;
  std::unordered_map<std::string, const SourceConfig*> by_name_;

  RealClock clock_;
  RealFiles files_;
  RealRandom random_;
  CrashAt crash_points_;
  Metrics metrics_;
  intake::Gate gate_{config_, metrics_};
  Time next_gate_{};
  intake::SameEventRules same_event_{config_.sources};
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<intake::Receiver> receiver_;
  std::unique_ptr<RealHttpClient> http_;
  std::unique_ptr<dispatch::Dispatcher> dispatcher_;
  std::unique_ptr<deadletter::ReplayPacer> pacer_;
  std::unique_ptr<deadletter::Desk> desk_;
  std::unique_ptr<observe::Scrape> scrape_;
  std::unique_ptr<observe::Health> health_;
  std::unique_ptr<server::Ingest> ingest_;
  std::unique_ptr<server::AdminApi> admin_;
  std::unique_ptr<server::Edge> edge_;
  std::unique_ptr<server::HttpServer> server_;

  std::mutex progress_mutex_;
  std::condition_variable progress_;
  bool dispatch_trouble_ = false;
  std::mutex stop_mutex_;
  bool started_ = false;
  bool stopped_ = false;
  // Last, so that they end first.
  Loop dispatch_loop_{"dlo-dispatch", clock_, [this](Time now) { return DispatchOnce(now); }};
  Loop housekeeping_loop_{"dlo-house", clock_, [this](Time now) { return KeepHouse(now); }};
};

}  // namespace

std::string DatabasePath(const Config& config) {
  return config.store.url.substr(std::string_view("sqlite:").size());
}

Result<std::unique_ptr<Office>> Office::Open(OfficeOptions options) {
  if (const auto valid = options.config.Validate(); !valid) return std::unexpected(valid.error());
  auto office = std::make_unique<OfficeImpl>(std::move(options));
  if (const auto opened = office->OpenStore(); !opened) return std::unexpected(opened.error());
  return office;
}

}  // namespace dlo::app

namespace dlo {

Result<std::unique_ptr<Service>> Service::Open(Config config) {
  log::SetLevel(config.log_level);
  app::OfficeOptions options;
  options.config = std::move(config);
  auto office = app::Office::Open(std::move(options));
  if (!office) return std::unexpected(office.error());
  return std::unique_ptr<Service>(std::move(*office));
}

}  // namespace dlo
