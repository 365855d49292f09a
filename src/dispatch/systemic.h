// The systemic breaker of one source. When nearly every new event of a source fails for one permanent cause, the cause
// is a contract change or a bad deploy and not the events: dispatch stops while receiving goes on, and one probe a
// minute looks whether it was mended. Otherwise the whole stream would become dead letters. One thread; plain state.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "dlo/time.h"
#include "model/transition.h"

namespace dlo::dispatch {

class Systemic {
 public:
  static constexpr std::size_t kWindow = 50;  // first attempts looked at, and needed before it judges
  static constexpr std::size_t kTrip = 40;    // of them with one permanent fingerprint: 80 %
  static constexpr Duration kProbeEvery = std::chrono::minutes(1);

  enum class Verdict : unsigned char { nothing, pause, resume };

  /// An attempt of the source ended with what Decide made of it. Only first live attempts are remembered. A probe that
  /// ends otherwise than permanent for the known cause says resume; one that ends without a judgement of the handler
  /// (retryable, crashed, corrupt) says nothing, and the next is due in its time.
  [[nodiscard]] Verdict Ended(const RunContext& run, const Transition& transition, bool probe, Time now);

  /// From the store, at start.
  void Load(std::string fingerprint, Time now);
  /// Resumed, by a probe or a person: forgets everything.
  void Clear();

  [[nodiscard]] bool paused() const { return paused_; }
  [[nodiscard]] const std::string& fingerprint() const { return cause_.fingerprint; }
  [[nodiscard]] const std::string& message() const { return cause_.message; }  // of one such failure, for people
  [[nodiscard]] bool ProbeDue(Time now) const { return paused_ && !probing_ && now >= next_probe_at_; }
  [[nodiscard]] std::optional<Time> next_probe_at() const {
    return paused_ && !probing_ ? std::optional(next_probe_at_) : std::nullopt;
  }
  void ProbeClaimed(Time now);
  /// The probe ended without having been asked.
  void ProbeLost() { probing_ = false; }

 private:
  struct Cause {
    std::string fingerprint;  // of a permanent failure; empty = ended otherwise
    std::string message;
    std::size_t number = 0;  // made of the fingerprint: each failure is compared with all
  };
  [[nodiscard]] const Cause& Majority() const;
  void Pause(Cause cause, Time now);

  std::array<Cause, kWindow> recent_;
  std::size_t seen_ = 0;       // saturating
  std::size_t permanent_ = 0;  // of recent_
  std::size_t next_ = 0;
  bool paused_ = false;
  bool probing_ = false;
  Cause cause_;
  Time next_probe_at_{};
};

}  // namespace dlo::dispatch
