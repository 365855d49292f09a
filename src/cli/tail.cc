// `dlo tail`: dead letters as they arrive. An arrival is a letter whose parking is newer than the last look; old
// receipts may arrive late (a retry budget takes long), so a look reaches back further than one second.
#include <fmt/format.h>

#include <map>
#include <ostream>
#include <vector>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/filter_options.h"
#include "cli/json.h"
#include "cli/letter_text.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::value;

constexpr int kPage = 500;
constexpr int kMaxPages = 10;  // a look at 5,000 letters; more dead letters than that are read with filters

struct Options {
  FilterOptions filter;
  std::string window = "24h", interval = "1s";
};

class Follower {
 public:
  Follower(Context& context, const FilterOptions& filter, Duration window)
      : context_(context), filter_(filter), window_(window) {}

  /// Letters not seen before in this parking, oldest first.
  Result<std::vector<value>> Look() {
    std::vector<value> arrived;
    std::map<std::int64_t, std::string> seen_now;
    std::string cursor;
    for (int page = 0; page < kMaxPages; ++page) {
      auto answer = context_.api().Get(Path(cursor));
      if (!answer) return std::unexpected(answer.error());
      auto body = ParseBody(*answer);
      if (!body) return std::unexpected(body.error());
      for (const value& letter : Items(*body)) {
        std::int64_t id = Number(letter, "id");
        std::string parked = Text(letter, "parked_at");
        auto before = seen_.find(id);
        if (before == seen_.end() || before->second != parked) arrived.push_back(letter);
        seen_now[id] = parked;
      }
      cursor = Text(*body, "next");
      if (cursor.empty()) break;
    }
    // The further pages could not be read: what they hold is not new because we miss it.
    if (!cursor.empty()) seen_now.insert(seen_.begin(), seen_.end());
    truncated_ = !cursor.empty();
    seen_ = std::move(seen_now);
    std::ranges::sort(arrived, {}, [](const value& letter) { return Text(letter, "parked_at"); });
    return arrived;
  }
  [[nodiscard]] bool truncated() const { return truncated_; }

 private:
  [[nodiscard]] std::string Path(const std::string& cursor) const {
    std::string path = fmt::format("/v1/dead-letters?limit={}", kPage);
    std::string query = filter_.Query();
    if (!query.empty()) path += "&" + query;
    if (query.find("since=") == std::string::npos) {
      path += "&since=" + UrlEncode(FormatTime(context_.deps.clock.Now() - window_));
    }
    return cursor.empty() ? path : path + "&cursor=" + UrlEncode(cursor);
  }

  Context& context_;
  const FilterOptions& filter_;
  const Duration window_;
  std::map<std::int64_t, std::string> seen_;  // id -> parked_at
  bool truncated_ = false;
};

void PrintArrival(const Context& context, const value& letter) {
  if (context.json) {
    context.Print(boost::json::serialize(letter) + "\n");
    return;
  }
  std::string line =
      EscapeLine(fmt::format("{}  {}  {}  {}  {}  {}", Text(letter, "parked_at"), Text(letter, "id"), StateText(letter),
                             Text(letter, "source"), Text(letter, "kind"), FailureText(letter)));
  Style style = context.OutStyle();
  context.Print((style.width > 0 ? Shorten(line, style.width) : line) + "\n");
}

int Tail(Context& context, Options& options) {
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  std::optional<Duration> window = ParseDuration(options.window), interval = ParseDuration(options.interval);
  if (!window) return context.Usage(fmt::format("--window \"{}\" is no duration; write 24h or 3d", options.window));
  if (!interval || *interval <= Duration(0)) {
    return context.Usage(fmt::format("--interval \"{}\" is no duration; write 1s or 500ms", options.interval));
  }
  Follower follower(context, options.filter, *window);
  auto there = follower.Look();
  if (!there) return context.Report(there.error());
  context.Note(fmt::format("{} there already; waiting for arrivals, Ctrl-C ends.", there->size()));
  if (follower.truncated()) {
    context.Note(
        "More dead letters than one look takes: arrivals of old receipts may be missed. Narrow it by a filter.");
  }
  bool lost = false;
  while (context.deps.wait(*interval)) {
    auto arrived = follower.Look();
    if (!arrived) {
      // A restart of the server must not end a watch that somebody set up for the night.
      if (arrived.error().code != kUnreachableCode) return context.Report(arrived.error());
      if (!lost) (void)context.Report(arrived.error());
      lost = true;
      continue;
    }
    if (lost) context.Note("The server answers again.");
    lost = false;
    for (const value& letter : *arrived) PrintArrival(context, letter);
    context.deps.out.flush();
  }
  return kDone;
}

}  // namespace

void AddTailCommand(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = context.Command(app, "tail", "Print dead letters as they arrive, until Ctrl-C",
                                      [&context, options] { return Tail(context, *options); });
  options->filter.AddTo(command);
  command->add_option("--window", options->window, "Watch events received within this long")->capture_default_str();
  command->add_option("--interval", options->interval, "How often to look")->capture_default_str();
}

}  // namespace dlo::cli
