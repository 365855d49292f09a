// The whole HTTP face of the office: events at /in/, everything else is the admin API.
#pragma once

#include "server/admin_api.h"
#include "server/ingest.h"

namespace dlo::server {

class Edge final : public Handler {
 public:
  /// Both outlive it.
  Edge(Ingest& ingest, AdminApi& admin) : ingest_(ingest), admin_(admin) {}

  std::expected<Admission, Response> Begin(RequestHead& head) override { return For(head).Begin(head); }
  void Handle(RequestHead head, std::string body, Responder respond) override {
    Handler& handler = For(head);
    handler.Handle(std::move(head), std::move(body), std::move(respond));
  }

 private:
  [[nodiscard]] Handler& For(const RequestHead& head) const {
    return head.path().starts_with(Ingest::kPrefix) ? static_cast<Handler&>(ingest_) : admin_;
  }

  Ingest& ingest_;
  AdminApi& admin_;
};

}  // namespace dlo::server
