// `dlo demo` (hidden; `./run demo` starts it beside a server and the sample handler): two hundred billing events as a
// provider would send them, among them what goes wrong in real life, and then the dead letters they left. One seed
// gives one stream of keys, kinds and amounts. A store has it once: the same keys with later times are conflicts.
#include <fmt/format.h>

#include <ostream>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/delivery.h"
#include "cli/json.h"
#include "cli/list.h"
#include "cli/samples.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::value;

constexpr int kCustomers = 40;
constexpr Duration kSettleWithin = std::chrono::seconds(45);
constexpr Duration kLook = std::chrono::milliseconds(500);

struct Options {
  SenderOptions sender;
  int count = 200;
  double rate = 40;
  std::uint64_t seed = 0;  // 0 = the time
  std::string handler = "http://127.0.0.1:3000";
};

struct Sent {
  int stored = 0, repeated = 0, forged = 0, refused = 0;
};

// The i-th event of the stream. One in seven or so cannot be processed by version 1 of the handler; at fixed places, so
// that even a short stream has each fault.
Sample NextSample(SampleMaker& maker, const std::vector<Customer>& customers, int i, Time now) {
  Customer customer = customers[maker.Pick(customers.size())];
  auto kinds = SampleKinds();
  std::string_view kind = kinds[maker.Pick(kinds.size() - 1)];
  if (i % 17 == 5) {
    customer.currency = "isk";
    kind = "invoice.paid";
  } else if (i % 20 == 7) {
    customer.id = DeletedCustomers()[maker.Pick(DeletedCustomers().size())];
    kind = "customer.subscription.updated";
  } else if (i == 3 || i == 13 || i == 23) {
    customer.id = LockedCustomer();
    kind = "invoice.payment_failed";
  } else if (i % 33 == 11) {
    kind = kinds.back();
  }
  return *maker.Make(kind, customer, now);
}

std::vector<Customer> MakeCustomers(SampleMaker& maker) {
  std::vector<Customer> customers;
  customers.reserve(kCustomers);
  for (int i = 0; i < kCustomers; ++i) customers.push_back(maker.MakeCustomer());
  return customers;
}

// The stream itself; now and then a delivery comes twice, as every provider does it.
Result<Sent> Stream(Context& context, const Options& options, Sender& sender) {
  SampleMaker maker(options.seed);
  std::vector<Customer> customers = MakeCustomers(maker);
  auto pause = Duration(static_cast<std::int64_t>(1e6 / options.rate));
  Sent sent;
  for (int i = 0; i < options.count; ++i) {
    Sample sample = NextSample(maker, customers, i, context.deps.clock.Now());
    int times = maker.Pick(40) == 0 ? 2 : 1;
    for (int t = 0; t < times; ++t) {
      auto answer = sender.Send(sample.body, sample.id, sample.kind);
      if (!answer) return std::unexpected(answer.error());
      if (!answer->taken()) ++sent.refused;
      if (answer->outcome == "stored") ++sent.stored;
      if (answer->outcome == "duplicate") ++sent.repeated;
    }
    if (context.deps.terminal.err)
      context.deps.err << fmt::format("\r{} of {} sent", i + 1, options.count) << std::flush;
    if (!context.deps.wait(pause)) break;
  }
  if (context.deps.terminal.err) context.deps.err << "\r                    \r" << std::flush;
  return sent;
}

// One delivery signed with a wrong secret: it must be turned away, and be seen.
void Forge(Context& context, const Options& options, Sent& sent) {
  if (options.sender.scheme == "none") return;
  SenderOptions forger = options.sender;
  forger.secret_file.clear();
  forger.secret = "whsec_bm90IHRoZSBzZWNyZXQgb2YgdGhpcyBzb3VyY2U=";
  auto sender = Sender::Create(context, forger);
  if (!sender) return;
  SampleMaker maker(options.seed + 1);
  auto sample = maker.Make("invoice.paid", maker.MakeCustomer(), context.deps.clock.Now());
  auto answer = sender->Send(sample->body, sample->id, sample->kind);
  if (answer && answer->status == 401) ++sent.forged;
}

// Until every event has its answer: retries of the busy ledger take some seconds.
void Settle(Context& context) {
  Duration until = context.deps.clock.Monotonic() + kSettleWithin;
  while (context.deps.clock.Monotonic() < until) {
    auto answer = context.api().Get("/v1/stats");
    auto stats = answer ? ParseBody(*answer) : std::unexpected(answer.error());
    if (!stats || Number(*stats, "waiting") + Number(*stats, "running") == 0) return;
    if (!context.deps.wait(kLook)) return;
  }
}

// The letter to look at and the group to replay: of the largest group that version 2 cures.
std::string Suggest(Context& context, const Options& options) {
  auto answer = context.api().Get("/v1/dead-letters/groups?by=fingerprint&source=" + UrlEncode(options.sender.source));
  auto groups = answer ? ParseBody(*answer) : std::unexpected(answer.error());
  if (!groups) return {};
  const value* curable = nullptr;
  const value* unknown = nullptr;
  for (const value& group : Items(*groups)) {
    std::string code = Text(group, "code");
    if (!curable && code == "unsupported_currency") curable = &group;
    if (!unknown && code == "unsupported_kind") unknown = &group;
  }
  std::string out = "\nThree things to try:\n";
  if (curable) {
    out += fmt::format("  {} show {}\n", context.program, Text(*curable, "sample_id"));
    out += fmt::format(
        "  curl -X POST {}/fix && {} replay --fingerprint {}    # the handler learns the currency; replay\n",
        options.handler, context.program, ShellWord(Text(*curable, "value")));
  }
  if (unknown) {
    out += fmt::format("  {} resolve {} --code unsupported_kind --reason 'nothing of ours depends on it'\n",
                       context.program, Text(*unknown, "sample_id"));
  }
  return curable || unknown ? EscapeBlock(out) : std::string();
}

int Demo(Context& context, Options& options) {
  if (options.seed == 0) options.seed = static_cast<std::uint64_t>(ToMicros(context.deps.clock.Now()));
  auto sender = Sender::Create(context, options.sender);
  if (!sender) return context.Report(sender.error());
  auto sent = Stream(context, options, *sender);
  if (!sent) return context.Report(sent.error());
  Forge(context, options, *sent);
  Settle(context);
  context.Print(
      fmt::format("{} events stored, {} repeated deliveries recognised, {} with a wrong signature turned away.\n",
                  sent->stored, sent->repeated, sent->forged));
  if (sent->refused > 0)
    context.Print(fmt::format("{} deliveries were refused; see the server's log.\n", sent->refused));
  context.Print("\nDead letters (dlo list):\n");
  if (int code = ShowDeadLetters(context, options.sender.source, 8); code != kDone) return code;
  context.Print("\nThe same by like failure (dlo groups):\n");
  if (int code = ShowGroups(context, options.sender.source); code != kDone) return code;
  context.Print(Suggest(context, options));
  return sent->stored > 0 || sent->repeated > 0 ? kDone : kRefused;
}

}  // namespace

void AddDemoCommand(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = context.Command(app, "demo", "Send a stream of billing events, then show what became of them",
                                      [&context, options] { return Demo(context, *options); });
  command->group("");  // hidden: ./run demo starts what it needs
  options->sender.AddTo(command);
  command->add_option("--count", options->count, "Events")->check(CLI::Range(1, 100'000))->capture_default_str();
  command->add_option("--rate", options->rate, "Events a second")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", options->seed, "Same seed, same events; the time unless given");
  command->add_option("--handler", options->handler, "Address of the sample handler")->capture_default_str();
}

}  // namespace dlo::cli
