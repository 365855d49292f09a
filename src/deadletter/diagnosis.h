// What the letters look like together. One letter says what failed; their number, spread and sameness say whose fault
// it is. Diagnose is a pure function of a summary; each threshold has a name here and a row in its table test.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/store.h"

namespace dlo::deadletter {

/// The letters looked at: the newest so many of the last so long.
inline constexpr int kLettersLookedAt = 10'000;
inline constexpr Duration kWindow = std::chrono::hours(7 * 24);
inline constexpr int kTrafficLookedAt = 1'000;
inline constexpr int kEventsBefore = 200;  // whose handler versions are compared with the burst's

/// A burst: so many letters of one cause in its busiest hour, this share of all letters of that kind since it began,
/// and sudden: half of them in that hour, or none of them in the first day of the window.
inline constexpr std::int64_t kBurstLetters = 10;
inline constexpr double kBurstShare = 0.8;
inline constexpr double kSuddenShare = 0.5;
inline constexpr std::size_t kManyKinds = 3;  // bursts of one code at once: not the contract of one kind
inline constexpr Duration kQuietBefore = std::chrono::hours(24);
/// Few accounts: at most so many have this share of the letters whose account is known, though they make at most half
/// of the traffic.
inline constexpr std::size_t kFewAccounts = 3;
inline constexpr double kAccountsShare = 0.8;
inline constexpr double kTrafficShare = 0.5;
inline constexpr std::int64_t kAccountsLetters = 5;
/// A steady trickle: letters that name something missing, of so many kinds, in so many hours, no hour with more than
/// half.
inline constexpr std::int64_t kTrickleLetters = 6;
inline constexpr std::size_t kTrickleKinds = 3;
inline constexpr std::size_t kTrickleHours = 6;
inline constexpr double kTrickleBusiest = 0.5;
/// An outage: so many exhausted letters, and the target's breaker is not closed, or several kinds died in one hour.
inline constexpr std::int64_t kOutageLetters = 5;
/// A store without a letter is suspicious from so many events on.
inline constexpr std::int64_t kEnoughEvents = 1'000;

enum class Shape : unsigned char { contract_change, bad_deploy, lifecycle, accounts, outage, always_empty, none };
[[nodiscard]] std::string_view Name(Shape shape);

struct DiagnosisSummary {
  Time now{};
  std::vector<store::LetterBrief> letters;  // newest receipt first; without the probe's
  bool capped = false;                      // there are more than were looked at
  std::vector<store::TrafficBrief> traffic;
  std::set<std::string> breaker_open;  // sources whose target's breaker is not closed
  std::int64_t events = 0;             // in the store, without the probe's
  std::int64_t letters_ever = 0;       // of them, that were ever a letter
  std::optional<Time> last_arrival_at, last_probe_at;
  std::string probe_failed;
};

struct Evidence {
  std::int64_t letters = 0;
  std::optional<Time> first_seen, last_seen;
  std::int64_t one_message = 0;  // letters of the commonest cause
  std::string fingerprint, message;
  EventId sample = 0;
  std::vector<std::pair<std::string, std::int64_t>> kinds,
      accounts;                                        // commonest first, at most 5; "" = unknown account
  std::size_t kinds_in_all = 0, accounts_in_all = 0;   // known ones
  std::vector<std::string> versions, versions_before;  // of the handler; empty = it does not tell
  std::vector<std::int64_t> curve;                     // arrivals in 24 equal parts of first to last
  Duration part{};                                     // length of one
  bool breaker_open = false;
};

struct Finding {
  Shape shape = Shape::none;
  std::string source;  // empty: all
  std::string says, next;
  Evidence evidence;
};

struct DiagnosisReport {
  std::int64_t looked_at = 0;
  bool capped = false;
  std::vector<Finding> findings;  // most letters first; never empty
};

/// Versions that judged just before an event was received.
using VersionsBefore = std::function<std::vector<std::string>(EventId)>;

[[nodiscard]] DiagnosisReport Diagnose(const DiagnosisSummary& summary, const VersionsBefore& versions_before);
/// Does the failure name something that is not there?
[[nodiscard]] bool NamesMissingEntity(std::string_view code, std::string_view message);

/// Reads the summary, at bounded cost, and judges it.
[[nodiscard]] Result<DiagnosisReport> DiagnoseStore(store::Store& store, std::set<std::string> breaker_open, Time now);

}  // namespace dlo::deadletter
