// Runs the command line against a server that answers from a script, with every side effect in the test's hand.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "env/clock.h"
#include "env/files.h"
#include "server/http_server.h"

namespace dlo::cli {

/// "GET /path?query" -> answers in turn; the last one stays. What is not in the script is 404 without a body.
class ScriptedServer final : public server::Handler {
 public:
  ScriptedServer() {
    auto started = http_.Start("127.0.0.1:0", *this);
    if (!started) std::abort();
  }
  ~ScriptedServer() override { http_.Stop(Duration(0)); }

  void On(const std::string& call, int status, const std::string& body) {
    std::lock_guard lock(mutex_);
    script_[call].push_back({.status = status, .body = body});
  }
  [[nodiscard]] std::string address() const { return "http://127.0.0.1:" + std::to_string(http_.port()); }
  /// "POST /v1/replays {...}" in order.
  [[nodiscard]] std::vector<std::string> calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] std::vector<server::RequestHead> heads() {
    std::lock_guard lock(mutex_);
    return heads_;
  }

  void Handle(server::RequestHead head, std::string body, server::Responder respond) override {
    std::string call = head.method + " " + head.target;
    server::Response answer{.status = 404, .content_type = "text/plain", .body = "no"};
    {
      std::lock_guard lock(mutex_);
      calls_.push_back(body.empty() ? call : call + " " + body);
      heads_.push_back(head);
      if (auto found = script_.find(call); found != script_.end()) {
        answer = found->second.front();
        if (found->second.size() > 1) found->second.pop_front();
      }
    }
    respond(std::move(answer));
  }

 private:
  RealClock clock_;
  std::mutex mutex_;
  std::map<std::string, std::deque<server::Response>> script_;
  std::vector<std::string> calls_;
  std::vector<server::RequestHead> heads_;
  server::HttpServer http_{{.threads = 1}, clock_};  // last: it calls Handle until it is gone
};

struct Ran {
  int code = -1;
  std::string out, err;
};

struct Runner {
  ManualClock clock{Time(std::chrono::seconds(1'796'000'000))};
  RealFiles files;
  std::map<std::string, std::string> environment;
  std::string input;
  Terminal terminal{.in = false, .out = false, .err = false, .columns = 80};
  int waits = 1000;  // then the process is asked to stop
  std::string served, checked;
  VerifyRequest verified;

  Ran Run(std::vector<std::string> words) {
    std::istringstream in(input);
    std::ostringstream out, err;
    CliDeps deps{
        .serve =
            [&](const ServeOptions& options) {
              served = options.config;
              return 0;
            },
        .config_check =
            [&](const std::string& path) {
              checked = path;
              return 1;
            },
        .verify =
            [&](const VerifyRequest& request) {
              verified = request;
              return 0;
            },
        .archive_export = [](const std::string&, const std::string&, bool) { return 0; },
        .environment = [&](const std::string& name) -> std::optional<std::string> {
          auto found = environment.find(name);
          return found == environment.end() ? std::nullopt : std::optional(found->second);
        },
        .wait =
            [&](Duration d) {
              clock.Advance(d);
              return waits-- > 0;
            },
        .clock = clock,
        .files = files,
        .in = in,
        .out = out,
        .err = err,
        .terminal = terminal,
    };
    std::vector<const char*> argv = {"dlo"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    int code = RunCli(static_cast<int>(argv.size()), argv.data(), deps);
    return {code, out.str(), err.str()};
  }
};

}  // namespace dlo::cli
