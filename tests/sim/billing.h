// The user's billing application behind a network that delays, fails and loses answers. It applies each idempotency key
// once; what it did is the truth about effects, whatever dlo was told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "env/clock.h"
#include "env/http_client.h"
#include "env/random.h"

namespace dlo::sim {

struct Call {
  std::uint64_t number = 0;
  EventId id = 0;
  std::string key;  // the idempotency key
  std::string body;
  int attempt = 0;
  bool replay = false;
  Time began{};
  bool done = false;  // answered, or its process died
};

class Billing final : public HttpClient {
 public:
  Billing(Clock& clock, Random& random) : clock_(clock), random_(random) {}

  void Start(HttpRequest request, Done done) override;
  /// What is due by now happens, in order: effects and answers.
  void Run();
  [[nodiscard]] std::optional<Time> NextDue() const;
  /// The process that called has died: its answers have nowhere to go. What the application was told it may still do.
  void CallerDied();
  /// Every bug is repaired and the network is good from here on.
  void Heal() { healed_ = true; }

  /// By idempotency key: the body that took effect.
  std::map<std::string, std::string> applied;
  std::map<std::uint64_t, Call> open;  // calls whose answer has not come
  std::function<void(const Call&)> on_start, on_answer;

 private:
  struct Due {
    std::uint64_t call = 0;
    bool applies = false;
    std::optional<HttpResponse> answer;
  };
  HttpResponse Judge(const Call& call);
  static HttpResponse Failure(HttpFailure failure, std::string why);

  Clock& clock_;
  Random& random_;
  bool healed_ = false;
  std::uint64_t next_ = 1;
  std::multimap<Time, Due> due_;
  std::map<std::uint64_t, Done> waiting_;
  std::map<std::uint64_t, Call> known_;  // until their last Due
};

}  // namespace dlo::sim
