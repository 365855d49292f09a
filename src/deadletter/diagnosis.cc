#include "deadletter/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/time_text.h"
#include "dlo/config.h"

namespace dlo::deadletter {
namespace {

using Letters = std::vector<const store::LetterBrief*>;  // newest receipt first
using Counted = std::map<std::string, std::int64_t>;

constexpr Duration kHour = std::chrono::hours(1);
constexpr std::size_t kShown = 5;
constexpr std::size_t kParts = 24;

std::vector<std::pair<std::string, std::int64_t>> Commonest(const Counted& counted) {
  std::vector<std::pair<std::string, std::int64_t>> all(counted.begin(), counted.end());
  std::ranges::stable_sort(all, std::greater<>(), &std::pair<std::string, std::int64_t>::second);
  return all;
}

template <typename Field>
Counted CountBy(const Letters& letters, Field field) {
  Counted counted;
  for (const store::LetterBrief* letter : letters) ++counted[letter->*field];
  return counted;
}

std::map<std::int64_t, std::int64_t> ByHour(const Letters& letters) {
  std::map<std::int64_t, std::int64_t> hours;
  for (const store::LetterBrief* letter : letters) ++hours[letter->parked_at.time_since_epoch() / kHour];
  return hours;
}

/// The most letters within any hour, whenever it begins.
std::int64_t BusiestHour(const Letters& letters) {
  std::vector<Time> times;
  for (const store::LetterBrief* letter : letters) times.push_back(letter->parked_at);
  std::ranges::sort(times);
  std::size_t from = 0, most = 0;
  for (std::size_t to = 0; to < times.size(); ++to) {
    while (times[to] - times[from] >= kHour) ++from;
    most = std::max(most, to - from + 1);
  }
  return static_cast<std::int64_t>(most);
}

Time FirstSeen(const Letters& letters) {
  return (*std::ranges::min_element(letters, {}, &store::LetterBrief::parked_at))->parked_at;
}
Time LastSeen(const Letters& letters) {
  return (*std::ranges::max_element(letters, {}, &store::LetterBrief::parked_at))->parked_at;
}

double Share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

int Percent(std::int64_t part, std::int64_t whole) {
  return static_cast<int>(Share(part, whole) * 100);
}

Letters Without(const Letters& all, const Letters& taken) {
  const std::set<const store::LetterBrief*> out(taken.begin(), taken.end());
  Letters rest;
  std::ranges::copy_if(all, std::back_inserter(rest), [&](const auto* letter) { return !out.contains(letter); });
  return rest;
}

void DrawCurve(const Letters& letters, Evidence& e) {
  const Duration span = *e.last_seen - *e.first_seen;
  e.part = std::max<Duration>(std::chrono::minutes(1), span / static_cast<std::int64_t>(kParts) + Duration(1));
  e.curve.assign(kParts, 0);
  for (const store::LetterBrief* letter : letters) {
    ++e.curve[static_cast<std::size_t>((letter->parked_at - *e.first_seen) / e.part)];
  }
}

Evidence EvidenceOf(const Letters& letters) {
  Evidence e;
  e.letters = std::ssize(letters);
  if (letters.empty()) return e;
  e.first_seen = FirstSeen(letters);
  e.last_seen = LastSeen(letters);
  const auto causes = Commonest(CountBy(letters, &store::LetterBrief::fingerprint));
  e.fingerprint = causes.front().first;
  e.one_message = causes.front().second;
  const auto* sample = *std::ranges::find(letters, e.fingerprint, &store::LetterBrief::fingerprint);
  e.sample = sample->id;
  e.message = sample->code + (sample->message.empty() ? "" : ": " + sample->message);
  e.kinds = Commonest(CountBy(letters, &store::LetterBrief::kind));
  e.accounts = Commonest(CountBy(letters, &store::LetterBrief::account));
  e.kinds_in_all = e.kinds.size();
  e.accounts_in_all = static_cast<std::size_t>(
      std::ranges::count_if(e.accounts, [](const auto& account) { return !account.first.empty(); }));
  e.kinds.resize(std::min(e.kinds.size(), kShown));
  e.accounts.resize(std::min(e.accounts.size(), kShown));
  for (const auto& [version, n] : CountBy(letters, &store::LetterBrief::handler_version)) {
    if (!version.empty() && e.versions.size() < kShown) e.versions.push_back(version);
  }
  DrawCurve(letters, e);
  return e;
}

/// Judges the letters of one source: each step takes away what it explains.
class Source {
 public:
  Source(const DiagnosisSummary& summary, const VersionsBefore& versions_before, std::string name, Letters letters)
      : summary_(summary), versions_before_(versions_before), name_(std::move(name)), rest_(std::move(letters)) {
    for (const store::TrafficBrief& one : summary.traffic) {
      if (one.source == name_ && !one.account.empty()) ++traffic_[one.account];
    }
  }

  std::vector<Finding> Judge() {
    Outage();
    Bursts();
    Lifecycle();
    Accounts();
    if (!rest_.empty()) Rest();
    return std::move(findings_);
  }

 private:
  Finding& Found(Shape shape, const Letters& letters) {
    rest_ = Without(rest_, letters);
    findings_.push_back({.shape = shape, .source = name_, .evidence = EvidenceOf(letters)});
    findings_.back().evidence.breaker_open = summary_.breaker_open.contains(name_);
    return findings_.back();
  }

  void Outage() {
    Letters exhausted;
    std::ranges::copy_if(rest_, std::back_inserter(exhausted),
                         [](const auto* letter) { return letter->failure_class == FailureClass::exhausted; });
    const auto n = std::ssize(exhausted);
    if (n < kOutageLetters) return;
    const bool open = summary_.breaker_open.contains(name_);
    const bool together =
        CountBy(exhausted, &store::LetterBrief::kind).size() > 1 && Share(BusiestHour(exhausted), n) >= kSuddenShare;
    if (!open && !together) return;
    Finding& f = Found(Shape::outage, exhausted);
    f.says =
        fmt::format("outage: {} events used up their retries since {}; the breaker of their target is {}", n,
                    FormatTime(*f.evidence.first_seen), open ? "open, it still fails" : "closed, it answers again");
    f.next = open ? "mend the target; events wait meanwhile and spend no attempts. Then: dlo drain --source " + name_
                  : "dlo drain --source " + name_;
  }

  void Bursts() {
    std::map<std::string, Letters> causes;
    for (const auto* letter : rest_) causes[letter->fingerprint].push_back(letter);
    std::map<std::string, std::vector<Letters>> by_code;
    for (const auto& [fingerprint, letters] : causes) {
      if (IsBurst(letters) && !OnFewAccounts(letters)) by_code[letters[0]->code].push_back(letters);
    }
    for (const auto& [code, bursts] : by_code) {
      // Many kinds at once are no change of one kind's contract: the handler's, or nobody's.
      if (bursts.size() >= kManyKinds) {
        Letters all;
        for (const Letters& letters : bursts) all.insert(all.end(), letters.begin(), letters.end());
        Burst(all, true);
      } else {
        for (const Letters& letters : bursts) Burst(letters, false);
      }
    }
  }

  [[nodiscard]] bool IsBurst(const Letters& letters) const {
    const std::int64_t busiest = BusiestHour(letters);
    if (busiest < kBurstLetters) return false;
    const Time began = FirstSeen(letters);
    const bool sudden =
        Share(busiest, std::ssize(letters)) >= kSuddenShare || began - (summary_.now - kWindow) >= kQuietBefore;
    const auto of_kind = std::ranges::count_if(
        rest_, [&](const auto* other) { return other->kind == letters[0]->kind && other->parked_at >= began; });
    return sudden && Share(std::ssize(letters), of_kind) >= kBurstShare;
  }

  void Burst(const Letters& letters, bool many_kinds) {
    const std::string kind = letters[0]->kind;
    std::vector<std::string> before;
    if (versions_before_)
      before = versions_before_((*std::ranges::min_element(letters, {}, &store::LetterBrief::id))->id);
    Evidence seen = EvidenceOf(letters);
    const bool told = !seen.versions.empty() && !before.empty();
    const bool changed = told && std::ranges::none_of(seen.versions, [&](const std::string& version) {
                           return std::ranges::find(before, version) != before.end();
                         });
    if (many_kinds && !changed) return;
    Finding& f = Found(Shape::contract_change, letters);
    Evidence& e = f.evidence;
    e.versions_before = std::move(before);
    const std::string what = fmt::format("{} {} died of one cause since {}", e.letters,
                                         many_kinds     ? fmt::format("events of {} kinds", e.kinds_in_all)
                                         : kind.empty() ? std::string("events")
                                                        : kind,
                                         FormatTime(*e.first_seen));
    if (changed) {
      f.shape = Shape::bad_deploy;
      f.says = fmt::format("bad deploy: {}, and the handler had changed from {} to {} just before", what,
                           fmt::join(e.versions_before, ", "), fmt::join(e.versions, ", "));
      f.next = fmt::format("roll the handler back or mend it, then: dlo replay {}",
                           many_kinds ? "--source " + name_ : "--fingerprint " + e.fingerprint);
      return;
    }
    f.says = fmt::format("contract change: {}; {}", what,
                         told ? "the handler was the same before, so the sender's shape must have changed"
                              : "or a bad deploy: no version tells them apart, since the handler sends no "
                                "Dlo-Handler-Version");
    f.next = fmt::format(
        "compare one body (dlo payload {}) with what the handler expects and with the provider's change "
        "log; once mended: dlo replay --fingerprint {}",
        e.sample, e.fingerprint);
  }

  void Lifecycle() {
    Letters missing;
    std::ranges::copy_if(rest_, std::back_inserter(missing),
                         [](const auto* letter) { return NamesMissingEntity(letter->code, letter->message); });
    const auto n = std::ssize(missing);
    if (n < kTrickleLetters || CountBy(missing, &store::LetterBrief::kind).size() < kTrickleKinds) return;
    if (ByHour(missing).size() < kTrickleHours || Share(BusiestHour(missing), n) > kTrickleBusiest) return;
    if (OnFewAccounts(missing)) return;
    Finding& f = Found(Shape::lifecycle, missing);
    f.says = fmt::format(
        "lifecycle fault upstream: a steady trickle of {} letters over {} kinds, each naming something "
        "that is not there",
        n, f.evidence.kinds_in_all);
    f.next = fmt::format(
        "find what deletes or archives these while events about them still come (dlo show {}); mend it "
        "there, not in the handler, then resolve the letters as entity_deleted",
        f.evidence.sample);
  }

  [[nodiscard]] bool OnFewAccounts(const Letters& letters) const {
    Counted accounts = CountBy(letters, &store::LetterBrief::account);
    accounts.erase("");
    std::int64_t known = 0, few = 0, traffic = 0, traffic_of_few = 0;
    for (const auto& [account, n] : accounts) known += n;
    const auto commonest = Commonest(accounts);
    if (known < kAccountsLetters || Share(known, std::ssize(letters)) < 0.5) return false;
    for (const auto& [account, n] : traffic_) traffic += n;
    for (std::size_t i = 0; i < std::min(kFewAccounts, commonest.size()); ++i) {
      few += commonest[i].second;
      if (const auto found = traffic_.find(commonest[i].first); found != traffic_.end())
        traffic_of_few += found->second;
    }
    // Where everybody is one of few, few says nothing.
    return Share(few, known) >= kAccountsShare && traffic_.size() > kFewAccounts &&
           Share(traffic_of_few, traffic) <= kTrafficShare;
  }

  void Accounts() {
    if (!OnFewAccounts(rest_)) return;
    Counted accounts = CountBy(rest_, &store::LetterBrief::account);
    accounts.erase("");
    auto few = Commonest(accounts);
    few.resize(std::min(few.size(), kFewAccounts));
    Letters theirs;
    std::ranges::copy_if(rest_, std::back_inserter(theirs), [&](const auto* letter) {
      return std::ranges::any_of(few, [&](const auto& account) { return account.first == letter->account; });
    });
    const auto all = std::ssize(rest_);
    Finding& f = Found(Shape::accounts, theirs);
    f.says = fmt::format(
        "data of a few accounts: {} of {} letters ({} %) are of {} of the {} or more accounts that send",
        f.evidence.letters, all, Percent(f.evidence.letters, all), f.evidence.accounts_in_all, traffic_.size());
    f.next = fmt::format(
        "look at these accounts' data (dlo show {}): a bug that only they meet; hold with a link until "
        "it is mended: dlo list --account {}",
        f.evidence.sample, f.evidence.accounts.front().first);
  }

  void Rest() {
    Finding& f = Found(Shape::none, Letters(rest_));
    f.says = fmt::format("no shape: {} letters of {} kinds; the commonest cause has {} %", f.evidence.letters,
                         f.evidence.kinds_in_all, Percent(f.evidence.one_message, f.evidence.letters));
    f.next = "look at them one by one: dlo groups --source " + name_;
  }

  const DiagnosisSummary& summary_;
  const VersionsBefore& versions_before_;
  const std::string name_;
  Letters rest_;
  Counted traffic_;
  std::vector<Finding> findings_;
};

Finding Empty(const DiagnosisSummary& s) {
  Finding f;
  const std::string probe = !s.last_probe_at         ? "no probe was ever made"
                            : s.probe_failed.empty() ? "the probe of " + FormatTime(*s.last_probe_at) + " went through"
                                                     : "the probe of " + FormatTime(*s.last_probe_at) + " FAILED";
  if (s.letters_ever > 0 || s.last_arrival_at) {
    f.says = fmt::format(
        "no shape: no unresolved letter of the last {} days; {}", kWindow / std::chrono::hours(24),
        s.last_arrival_at ? "the newest came at " + FormatTime(*s.last_arrival_at) : "earlier ones were dealt with");
    f.next = "nothing to do";
  } else if (s.events < kEnoughEvents) {
    f.says = fmt::format("no shape: no letter yet, and {} events are too few to wonder; {}", s.events, probe);
    f.next = "nothing to do";
  } else {
    f.shape = Shape::always_empty;
    f.says = fmt::format(
        "always empty: {} events and never a dead letter. Either all is well, or failures are swallowed "
        "before they get here; {}",
        s.events, probe);
    f.next =
        s.last_probe_at && s.probe_failed.empty()
            ? "dlo's half of the path works; look in the handler for a broad catch that logs and answers 2xx, and "
              "send it one event that it must refuse"
            : "dlo probe: does our half of the path work? Then look in the handler for a broad catch that answers 2xx";
  }
  return f;
}

}  // namespace

std::string_view Name(Shape shape) {
  static constexpr std::array<std::string_view, 7> kNames = {"contract_change", "bad_deploy",   "lifecycle", "accounts",
                                                             "outage",          "always_empty", "none"};
  return kNames[static_cast<std::size_t>(shape)];
}

bool NamesMissingEntity(std::string_view code, std::string_view message) {
  static constexpr std::array kWords = {"not_found",        "not found",     "no such ",        "missing_entity",
                                        "does not exist",   "doesn't exist", "no longer exist", "was deleted",
                                        "resource_missing", "is gone"};
  std::string text = std::string(code) + " " + std::string(message);
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::ranges::any_of(kWords, [&](const char* word) { return text.find(word) != std::string::npos; });
}

DiagnosisReport Diagnose(const DiagnosisSummary& summary, const VersionsBefore& versions_before) {
  DiagnosisReport report;
  report.looked_at = std::ssize(summary.letters);
  report.capped = summary.capped;
  std::map<std::string, Letters> by_source;
  for (const store::LetterBrief& letter : summary.letters) by_source[letter.source].push_back(&letter);
  for (auto& [name, letters] : by_source) {
    auto found = Source(summary, versions_before, name, std::move(letters)).Judge();
    std::ranges::move(found, std::back_inserter(report.findings));
  }
  if (report.findings.empty()) report.findings.push_back(Empty(summary));
  // What fits no shape comes last, whatever its number.
  std::ranges::stable_sort(report.findings, [](const Finding& a, const Finding& b) {
    if ((a.shape == Shape::none) != (b.shape == Shape::none)) return b.shape == Shape::none;
    return a.evidence.letters > b.evidence.letters;
  });
  return report;
}

Result<DiagnosisReport> DiagnoseStore(store::Store& store, std::set<std::string> breaker_open, Time now) {
  DiagnosisSummary summary;
  summary.now = now;
  summary.breaker_open = std::move(breaker_open);
  auto letters = store.NewestLetters(now - kWindow, kLettersLookedAt);
  if (!letters) return std::unexpected(letters.error());
  summary.letters = std::move(*letters);
  summary.capped = std::ssize(summary.letters) == kLettersLookedAt;
  std::erase_if(summary.letters, [](const store::LetterBrief& letter) { return letter.source == kProbeName; });
  auto traffic = store.NewestTraffic(kTrafficLookedAt);
  if (!traffic) return std::unexpected(traffic.error());
  summary.traffic = std::move(*traffic);
  const auto figures = store.Read();
  if (!figures) return std::unexpected(figures.error());
  for (const store::StateCount& c : figures->counts) {
    if (c.source == kProbeName) continue;
    summary.events += c.count;
    if (c.failure_class != FailureClass::none) summary.letters_ever += c.count;
  }
  const auto alarms = store.ReadAlarms();
  if (!alarms) return std::unexpected(alarms.error());
  summary.last_arrival_at = alarms->last_arrival_at;
  summary.last_probe_at = alarms->last_probe_at;
  summary.probe_failed = alarms->probe_failed;
  return Diagnose(summary, [&store](EventId id) {
    return store.VersionsBefore(id, kEventsBefore).value_or(std::vector<std::string>());
  });
}

}  // namespace dlo::deadletter
