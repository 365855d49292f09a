#include "server/ingest.h"

#include <fmt/format.h>

#include <iterator>

#include "server/answer.h"

namespace dlo::server {
namespace {

void AddAccepted(std::string& out, const Accepted& accepted) {
  const std::string_view status = accepted.status == AcceptStatus::duplicate ? "duplicate" : "stored";
  fmt::format_to(std::back_inserter(out), R"({{"status":"{}","id":{})", status, accepted.id);
  if (accepted.status == AcceptStatus::conflict) {
    fmt::format_to(std::back_inserter(out), R"(,"conflict_with":{})", accepted.first_id);
  }
  out += '}';
}

Response Stored(const std::vector<Accepted>& accepted) {
  Response response;
  if (accepted.size() == 1) {
    AddAccepted(response.body, accepted.front());
    return response;
  }
  response.body = R"({"status":"stored","events":[)";
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    if (i > 0) response.body += ',';
    AddAccepted(response.body, accepted[i]);
  }
  response.body += "]}";
  return response;
}

Response NotStored(const Error& error) {
  switch (error.kind) {
    case ErrorKind::forbidden: {
      // Why is counted and quarantined; a forger learns nothing.
      Response response;
      response.status = 401;
      response.body = R"({"status":"rejected"})";
      return response;
    }
    case ErrorKind::invalid:
      return Problem(415, error.code, error.message);
    default:
      return FromError(error);
  }
}

}  // namespace

std::expected<Admission, Response> Ingest::Begin(RequestHead& head) {
  const auto* source = receiver_.Find(head.path().substr(kPrefix.size()));
  if (source == nullptr || source->name == kProbeName) {
    return std::unexpected(Problem(404, "unknown_source", "No source of this name is configured."));
  }
  if (head.method != "POST") {
    Response response = Problem(405, "method_not_allowed", "Events are sent here with POST.");
    response.headers.push_back({"Allow", "POST"});
    return std::unexpected(std::move(response));
  }
  if (gate_ != nullptr) {
    if (const auto refusal = gate_->Refusal(source->name)) {
      return std::unexpected(
          Later(refusal->code == "source_backlog" ? 429 : 503, refusal->code, refusal->message, true));
    }
  }
  head.route = source;
  return Admission{.max_body = source->max_body, .answer_within = commit_deadline_};
}

void Ingest::Handle(RequestHead head, std::string body, Responder respond) {
  const auto& source = *static_cast<const SourceConfig*>(head.route);
  receiver_.Receive(source,
                    {.headers = std::move(head.headers), .body = std::move(body), .remote = std::move(head.remote)},
                    [respond = std::move(respond)](Result<std::vector<Accepted>> result) mutable {
                      respond(result ? Stored(*result) : NotStored(result.error()));
                    });
}

}  // namespace dlo::server
