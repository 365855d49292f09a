// Catches what a handler answers, without a socket.
#pragma once

#include <future>
#include <memory>

#include "server/http_server.h"

namespace dlo::testing {

class FakeSink final : public server::ResponseSink {
 public:
  void Complete(std::uint64_t, server::Response response) override { answer_.set_value(std::move(response)); }
  void Release(std::size_t) override {}
  std::future<server::Response> answer() { return answer_.get_future(); }

 private:
  std::promise<server::Response> answer_;
};

/// As a connection would: the head is judged, then the request handled; waits for the answer.
inline server::Response Ask(server::Handler& handler, server::RequestHead head, std::string body = {}) {
  if (auto admission = handler.Begin(head); !admission) return std::move(admission.error());
  auto sink = std::make_shared<FakeSink>();
  auto answer = sink->answer();
  handler.Handle(std::move(head), std::move(body), server::Responder(sink, 1, 0));
  return answer.get();
}

}  // namespace dlo::testing
