// The user's application behind an HTTP target: a process of its own.
#pragma once

#include <sys/prctl.h>

#include <boost/json.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.h"
#include "bench/common/load.h"
#include "server/http_server.h"
#include "store/embedded/sqlite.h"

namespace dlo::bench {

/// Answers 200 without looking.
class AlwaysApplied final : public server::Handler {
 public:
  void Handle(server::RequestHead, std::string, server::Responder respond) override {
    respond({.content_type = "text/plain", .body = "ok"});
  }
};

/// What a user's handler does: reads the event, commits its effect once per key in a database, then answers.
class Billing final : public server::Handler {
 public:
  explicit Billing(const std::string& path) {
    auto opened = store::Db::Open(path, store::Db::Mode::writer);
    if (!opened) Die(opened.error().message);
    db_ = std::move(*opened);
    sqlite3_wal_autocheckpoint(db_->handle(), 1'000);
    const auto made = db_->Exec("CREATE TABLE paid (event TEXT PRIMARY KEY, subscription TEXT) WITHOUT ROWID");
    if (!made) Die(made.error().message);
  }
  void Handle(server::RequestHead, std::string body, server::Responder respond) override {
    const boost::json::value event = boost::json::parse(body);
    const std::string_view id = event.at("id").as_string();
    const std::string_view subscription = event.at("data").at("object").at("subscription").as_string();
    bool applied = false;
    {
      const std::lock_guard lock(mutex_);
      const auto done =
          db_->Prepare("INSERT OR IGNORE INTO paid VALUES (?1, ?2)").Bind(1, id).Bind(2, subscription).Run();
      if (!done) Die(done.error().message);
      applied = db_->Changes() == 1;
    }
    respond({.status = applied ? 200 : 409, .content_type = "text/plain", .body = applied ? "ok" : "already applied"});
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<store::Db> db_;
};

/// The user's application: another process.
class HandlerProcess {
 public:
  /// Forks: before any thread exists.
  explicit HandlerProcess(std::function<std::unique_ptr<server::Handler>()> make) {
    int ports[2];
    if (pipe(ports) != 0) Die("no pipe");
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      log::SetLevel("off");
      RealClock clock;
      const std::unique_ptr<server::Handler> handler = make();
      server::HttpServer http({}, clock);
      if (auto ok = http.Start("127.0.0.1:0", *handler); !ok) Die(ok.error().message);
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

}  // namespace dlo::bench
