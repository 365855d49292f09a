#include "observe/alarm_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/time_text.h"
#include "observe/business_hours.h"

namespace dlo::observe {
namespace {

using store::AlarmCondition;
using store::Alert;

constexpr std::string_view kOthers = "other";
constexpr std::size_t kWhatBytes = 400;

bool Contains(const std::vector<std::string>& list, std::string_view word) {
  return list.empty() || std::ranges::find(list, word) != list.end();
}

bool Wants(const AlertConfig& alert, std::string_view source) {
  return source != kProbeName && Contains(alert.sources, source);
}

/// Once it fires it goes on until a tenth below its limit, so that one letter to and fro is not an alert each time.
std::int64_t DepthLimit(const AlertConfig& alert, bool fires) {
  return fires ? alert.depth_over * 9 / 10 : alert.depth_over;
}

bool Fires(const std::vector<AlarmCondition>& conditions, const std::string& receiver, std::string_view rule) {
  return std::ranges::any_of(
      conditions, [&](const AlarmCondition& c) { return c.receiver == receiver && c.rule == rule && !c.clear_since; });
}

std::string Letters(std::int64_t n) {
  return n == 1 ? "1 letter" : fmt::format("{} letters", n);
}

struct Way {
  std::string route;
  Time due{};
};

Way WayNow(const AlertConfig& alert, Time now) {
  if (!alert.business_hours || IsOpen(*alert.business_hours, now)) return {"page", now};
  if (alert.outside == "hold") return {"page", NextOpening(*alert.business_hours, now)};
  return {alert.outside == "ticket" ? "ticket" : "outside", now};
}

/// A receiver keeps apart what it got by two ways: an alert that changes its way must be ended where it was.
bool KnowsWays(const AlertConfig& alert) {
  return alert.format == "alertmanager" || alert.outside != "ticket";
}

/// One receiver's part of a pass.
class Receiver {
 public:
  Receiver(const AlertConfig& config, const AlarmFacts& facts, store::AlarmPass& pass)
      : config_(config), name_(ReceiverName(config)), facts_(facts), pass_(pass), way_(WayNow(config, facts.now)) {}

  void Run(const store::AlarmsNow& now) {
    for (const AlarmCondition& c : now.conditions) {
      if (c.receiver == name_) before_[{c.rule, c.name}] = c;
    }
    after_ = before_;
    for (const Firing& firing : FiringNow(config_, facts_, now.conditions)) Note(firing);
    if (Contains(config_.on, "arrivals")) {
      for (const store::Arrival& arrival : now.arrivals) Note(arrival);
    }
    for (auto& [key, condition] : after_) {
      if (key.first != "arrivals" && !fires_.contains(key) && !condition.clear_since) {
        condition.clear_since = facts_.now;
      }
      Tell(condition);
    }
    Keep();
  }

 private:
  using Key = std::pair<std::string, std::string>;  // rule, name

  AlarmCondition& At(const Key& key, const std::string& source) {
    AlarmCondition& c = after_[key];
    if (!c.receiver.empty()) return c;
    c.receiver = name_;
    c.rule = key.first;
    c.name = key.second;
    c.source = source;
    c.since = facts_.now;
    return c;
  }

  void Note(const Firing& firing) {
    const Key key{firing.rule, firing.name};
    AlarmCondition& c = At(key, firing.source);
    c.clear_since.reset();
    fires_[key] = firing;
  }

  void Note(const store::Arrival& arrival) {
    if (!Wants(config_, arrival.source)) return;
    const std::string cause = arrival.source + "/" + arrival.fingerprint;
    const bool known = after_.contains({"arrivals", cause});
    const auto causes = std::ranges::count_if(after_, [](const auto& c) { return c.first.first == "arrivals"; });
    const bool apart = known || static_cast<std::size_t>(causes) < kMaxCauses;
    AlarmCondition& c = At({"arrivals", apart ? cause : std::string(kOthers)}, apart ? arrival.source : "");
    c.pending += arrival.n;
    c.total += arrival.n;
    c.sample = arrival.sample;
    c.clear_since = facts_.now;
    c.what = apart ? CleanText(fmt::format("{} {}: {}{}{}", arrival.kind.empty() ? "events" : arrival.kind,
                                           Name(arrival.failure_class), arrival.code,
                                           arrival.message.empty() ? "" : ": ", arrival.message),
                               kWhatBytes)
                   : "of many other causes: see `dlo groups`";
  }

  void Tell(AlarmCondition& c) {
    const bool arrivals = c.rule == "arrivals";
    const Time now = facts_.now;
    const bool over = c.clear_since && now - *c.clear_since >= config_.resolve_after && c.pending == 0;
    if (over) {
      if (c.told_at) Add(c, "resolved", c.route, way_.due);
      c.receiver.clear();  // ended
      return;
    }
    if (arrivals ? c.pending == 0 : c.clear_since.has_value()) return;
    if (const auto firing = fires_.find({c.rule, c.name}); firing != fires_.end()) {
      // The words change with every letter; what is kept is what was told.
      what_now_ = firing->second.what;
      sample_now_ = firing->second.sample;
    } else {
      what_now_ = c.what;
      sample_now_ = c.sample;
    }
    const Duration wait = arrivals ? config_.arrivals_every : config_.repeat_every;
    const bool becomes_page = c.told_at && c.route != "page" && way_.route == "page";
    if (c.told_at && !becomes_page && now - *c.told_at < wait) return;
    c.what = what_now_;
    c.sample = sample_now_;
    if (c.told_at && c.route != way_.route && KnowsWays(config_)) Add(c, "resolved", c.route, now);
    c.route = way_.route;
    Add(c, "firing", c.route, way_.due);
    c.told_at = now;
    c.pending = 0;
  }

  void Add(const AlarmCondition& c, const char* status, const std::string& route, Time due) {
    Alert alert;
    alert.receiver = name_;
    alert.rule = c.rule;
    alert.name = c.name;
    alert.source = c.source;
    alert.route = route;
    alert.status = status;
    alert.since = c.since;
    alert.created_at = facts_.now;
    alert.n = alert.status == "firing" ? c.pending : 0;
    alert.total = c.total;
    alert.what = c.what;
    alert.sample = c.sample;
    alert.next_at = due;
    alert.alert = AlertId(alert);
    pass_.alerts.push_back(std::move(alert));
  }

  void Keep() {
    for (const auto& [key, condition] : after_) {
      const auto before = before_.find(key);
      if (condition.receiver.empty()) {
        if (before != before_.end()) pass_.ended.push_back(before->second);
      } else if (before == before_.end() || condition != before->second) {
        pass_.changed.push_back(condition);
      }
    }
  }

  const AlertConfig& config_;
  const std::string name_;
  const AlarmFacts& facts_;
  store::AlarmPass& pass_;
  const Way way_;
  std::map<Key, AlarmCondition> before_, after_;
  std::map<Key, Firing> fires_;
  std::string what_now_;
  EventId sample_now_ = 0;
};

void DepthAndAge(const AlertConfig& alert, const AlarmFacts& facts, bool fires, std::vector<Firing>& out) {
  std::int64_t depth = 0;
  for (const store::StateCount& c : facts.figures.counts) {
    if (c.state == State::dead && Wants(alert, c.source)) depth += c.count;
  }
  if (depth > DepthLimit(alert, fires)) {
    out.push_back(
        {"depth", "", "", fmt::format("{} wait for a decision, more than {}", Letters(depth), alert.depth_over)});
  }
  for (const store::SourceAge& age : facts.figures.oldest) {
    if (!Wants(alert, age.source) || facts.now - age.oldest_unresolved <= alert.oldest_over) continue;
    out.push_back({"oldest", age.source, age.source,
                   fmt::format("event {} waits for a decision since {}, longer than {}", age.id,
                               FormatTime(age.oldest_unresolved), FormatDuration(alert.oldest_over)),
                   age.id});
  }
}

}  // namespace

std::string ReceiverName(const AlertConfig& alert) {
  if (!alert.name.empty()) return alert.name;
  const std::size_t scheme = alert.url.find("://");
  const std::string rest = scheme == std::string::npos ? alert.url : alert.url.substr(scheme + 3);
  const std::string authority = rest.substr(0, rest.find_first_of("/?#"));
  const std::size_t user = authority.rfind('@');
  return user == std::string::npos ? authority : authority.substr(user + 1);
}

std::vector<Firing> FiringNow(const AlertConfig& alert, const AlarmFacts& facts,
                              const std::vector<AlarmCondition>& conditions) {
  std::vector<Firing> all;
  DepthAndAge(alert, facts, Fires(conditions, ReceiverName(alert), "depth"), all);
  for (const store::OverdueHold& hold : facts.holds) {
    if (!Wants(alert, hold.source)) continue;
    all.push_back(
        {"overdue_holds", hold.source, hold.source,
         fmt::format("{} held past their date: dlo list --state held --source {}", Letters(hold.n), hold.source),
         hold.sample});
  }
  for (const Silence& silence : facts.sources) {
    if (!Wants(alert, silence.source) || facts.now - silence.last <= silence.limit) continue;
    all.push_back({"silent_source", silence.source, silence.source,
                   fmt::format("nothing was received since {}, longer than {}: does the sender still send here?",
                               FormatTime(silence.last), FormatDuration(silence.limit))});
  }
  if (const std::int64_t difference = facts.figures.accounting_difference; difference != 0) {
    all.push_back(
        {"accounting", "", "",
         fmt::format("accounting difference {}: events were lost or counted twice; keep the data folder as it "
                     "is and report this",
                     difference)});
  }
  if (facts.disk_level > 0) {
    all.push_back(
        {"disk", "", "",
         facts.disk_level > 1 ? "the disk is nearly full and senders are refused" : "the store's disk fills"});
  }
  if (!facts.probe_failed.empty()) {
    all.push_back({"probe", "", "", "the dead-letter path failed its probe: " + facts.probe_failed});
  }
  std::erase_if(all, [&](const Firing& firing) { return !Contains(alert.on, firing.rule); });
  return all;
}

store::AlarmPass Judge(const std::vector<AlertConfig>& receivers, const AlarmFacts& facts,
                       const store::AlarmsNow& now) {
  store::AlarmPass pass;
  pass.pass = now.pass;
  pass.taken = now.arrivals;
  for (const store::Arrival& arrival : now.arrivals) {
    if (arrival.source == kProbeName) continue;
    pass.last_arrival_at = std::max(pass.last_arrival_at.value_or(arrival.last_at), arrival.last_at);
  }
  for (const AlertConfig& receiver : receivers) Receiver(receiver, facts, pass).Run(now);
  return pass;
}

bool ChangesAnything(const store::AlarmPass& pass) {
  return !pass.taken.empty() || !pass.changed.empty() || !pass.ended.empty() || !pass.alerts.empty();
}

std::string AlertId(const Alert& a) {
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", a.receiver, a.rule, a.name, a.route, a.status, ToMicros(a.created_at));
  return "alert_" + HexEncode(Sha256(text)).substr(0, 24);
}

}  // namespace dlo::observe
