#include "observe/heads.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "base/log.h"

namespace dlo::observe {
namespace {

constexpr Duration kFirstWait = std::chrono::seconds(30);
constexpr Duration kAnswerWait = std::chrono::seconds(10);

Counter& Heads(Metrics& metrics, const char* to, const char* outcome) {
  return metrics.counter("dlo_audit_heads_total", "Heads of the audit log that were put outside of the store, or not",
                         {{"to", to}, {"outcome", outcome}});
}

}  // namespace

/// One of the two, and when it is due. Answers come on another thread.
struct HeadKeeper::Place {
  Place(const char* name, Duration length, Metrics& metrics)
      : to(name), every(length), kept(Heads(metrics, name, "kept")), failed(Heads(metrics, name, "failed")) {}

  void End(const Result<void>& done, std::int64_t seq, Time now) {
    const std::lock_guard lock(mutex);
    under_way = false;
    if (done) {
      if (failures > 0) log::Info("audit_head_kept_again", {{"to", to}, {"seq", seq}, {"failures", failures}});
      failures = 0;
      next = now + every;
      kept.Add();
      return;
    }
    const Duration wait = std::min(every, kFirstWait * (std::int64_t{1} << std::min(failures, 20)));
    ++failures;
    next = now + wait;
    failed.Add();
    log::Warn("audit_head_not_kept", {{"to", to},
                                      {"seq", seq},
                                      {"why", done.error().message},
                                      {"failures", failures},
                                      {"again_in_s", wait / std::chrono::seconds(1)}});
  }
  bool Due(Time now) {
    const std::lock_guard lock(mutex);
    if (under_way || now < next) return false;
    under_way = true;
    return true;
  }
  Time Next() {
    const std::lock_guard lock(mutex);
    return next;
  }

  const char* const to;
  const Duration every;
  Counter& kept;
  Counter& failed;
  std::mutex mutex;
  bool under_way = false;
  int failures = 0;
  Time next{};
};

HeadKeeper::HeadKeeper(const EvidenceConfig& config, HeadKeeperDeps deps) : config_(config), deps_(deps) {
  if (!config_.head_file.empty()) file_ = std::make_shared<Place>("file", config_.every, deps_.metrics);
  if (!config_.head_url.empty()) url_ = std::make_shared<Place>("url", config_.every, deps_.metrics);
  if (config_.signing_secret.empty()) return;
  if (auto signer = intake::Signer::Compile("standard-webhooks", {}, config_.signing_secret)) {
    signer_ = std::move(*signer);  // Config::Validate has refused any other
  }
}

HeadKeeper::~HeadKeeper() = default;

Time HeadKeeper::RunOnce(Time now) {
  const bool to_file = file_ && file_->Due(now), to_url = url_ && url_->Due(now);
  if (to_file || to_url) {
    const auto head = deps_.store.Head();
    if (head) {
      if (to_file) ToFile(*head, now);
      if (to_url) ToUrl(*head, now);
    } else {
      const Result<void> failed = std::unexpected(head.error());
      if (to_file) file_->End(failed, 0, now);
      if (to_url) url_->End(failed, 0, now);
    }
  }
  Time next = now + config_.every;
  for (const auto& place : {file_, url_}) {
    if (place) next = std::min(next, place->Next());
  }
  // One under way is looked at again soon, since its answer does not ring.
  return std::max(next, now + std::chrono::seconds(1));
}

void HeadKeeper::ToFile(const store::EvidenceHead& head, Time now) {
  file_->End(Append(store::HeadToJson(head) + "\n"), head.seq, now);
}

Result<void> HeadKeeper::Append(const std::string& line) {
  const bool fresh = !deps_.files.Exists(config_.head_file);
  const std::filesystem::path parent = std::filesystem::path(config_.head_file).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (fresh) {
    if (auto made = deps_.files.MakeFolders(folder); !made) return made;
  }
  const auto file = deps_.files.Open(config_.head_file, OpenMode::append);
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->Size();
  if (!size) return std::unexpected(size.error());
  std::string bytes;
  if (*size > 0) {
    char last = '\n';
    const auto read = (*file)->ReadAt(*size - 1, std::span(&last, 1));
    if (!read) return std::unexpected(read.error());
    if (last != '\n') bytes = "\n";  // a line that was cut by a crash or a full disk ends here
  }
  bytes += line;
  const iovec part{bytes.data(), bytes.size()};
  if (auto written = (*file)->WriteAt(*size, std::span(&part, 1)); !written) return written;
  if (auto synced = (*file)->Sync(); !synced) return synced;
  return fresh ? deps_.files.SyncFolder(folder) : Result<void>();
}

void HeadKeeper::ToUrl(const store::EvidenceHead& head, Time now) {
  const auto body = std::make_shared<const std::string>(store::HeadToJson(head));
  HttpRequest request{.url = config_.head_url, .headers = {"Content-Type: application/json"}};
  if (signer_) {
    const std::string id = fmt::format("head_{}_{}", head.seq, now.time_since_epoch().count());
    for (const Header& header : signer_->Sign(*body, now, id)) {
      request.headers.push_back(header.name + ": " + header.value);
    }
  }
  request.body = *body;
  request.body_owner = body;
  request.timeout = kAnswerWait;
  request.allow_private = config_.allow_private;
  deps_.http.Start(
      std::move(request), [place = url_, seq = head.seq, &clock = deps_.clock](const HttpResponse& answer) {
        if (answer.failure != HttpFailure::none) {
          place->End(Fail(ErrorKind::unavailable, "head_url", answer.failure_message), seq, clock.Now());
        } else if (answer.status < 200 || answer.status > 299) {
          place->End(Fail(ErrorKind::unavailable, "head_url", fmt::format("HTTP {}", answer.status)), seq, clock.Now());
        } else {
          place->End({}, seq, clock.Now());
        }
      });
}

}  // namespace dlo::observe
