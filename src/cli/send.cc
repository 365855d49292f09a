// `dlo send`: signs and posts a sample or a file, to try a source without its provider.
#include <fmt/format.h>

#include <algorithm>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/delivery.h"
#include "cli/samples.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

struct Options {
  SenderOptions sender;
  std::string file, kind, key;
  int count = 1;
  bool test_mode = false;
};

std::string WhyNot(const Delivered& answer, const std::string& source) {
  switch (answer.status) {
    case 401:
      return fmt::format(
          "the signature was rejected: is this the secret of source {}, and its scheme? "
          "`dlo rejected --source {}` tells the reason",
          source, source);
    case 404:
      return fmt::format("the server has no source \"{}\"; `dlo source list` shows those it has", source);
    case 413:
      return "the body is over the source's max_body";
    case 415:
      return "the server does not take this content coding";
    case 429:
    case 503:
      return "not stored: the server asks to send it again later";
    default:
      return fmt::format("the server answered {}", answer.status);
  }
}

// What is sent at the i-th time: the same file, or another sample.
struct Parcel {
  std::string body, id, kind;
};

int SendAll(Context& context, const Options& options, Sender& sender, const std::function<Parcel()>& next) {
  int taken = 0;
  Error last;
  for (int i = 0; i < options.count; ++i) {
    Parcel parcel = next();
    auto answer = sender.Send(parcel.body, parcel.id, parcel.kind);
    if (!answer) {
      int code = context.Report(answer.error());
      return taken > 0 ? int{kPartly} : code;
    }
    if (answer->taken()) {
      ++taken;
      if (context.json) {
        context.PrintJson({answer->status, answer->body});
      } else {
        context.Print(EscapeLine(fmt::format("{} {} {} {}", answer->outcome, answer->id, parcel.kind, parcel.id)) +
                      "\n");
      }
      continue;
    }
    Error error{ErrorKind::forbidden, answer->outcome, WhyNot(*answer, options.sender.source)};
    // Said once, however many of a thousand are refused for the same reason.
    if (error.message != last.message) (void)context.Report(error);
    last = error;
  }
  if (taken == options.count) return kDone;
  return taken > 0 ? kPartly : kRefused;
}

int Send(Context& context, const Options& options) {
  bool id_in_header = options.sender.scheme == "standard-webhooks" || options.sender.scheme == "github" ||
                      !options.sender.hmac.id_header.empty();
  if (!options.file.empty() && !options.key.empty() && !id_in_header) {
    return context.Usage(fmt::format("scheme {} has its event key in the body: change it in the file, or send a sample",
                                     options.sender.scheme));
  }
  if (!options.file.empty() && !options.kind.empty() && options.sender.scheme != "github") {
    return context.Usage("give --file or --kind: a file is sent as it is");
  }
  std::string kind = options.kind.empty() ? "invoice.paid" : options.kind;
  auto kinds = SampleKinds();
  if (options.file.empty() && std::ranges::find(kinds, kind) == kinds.end()) {
    return context.Usage(fmt::format("there is no sample \"{}\"; there are {}", kind, fmt::join(kinds, ", ")));
  }
  auto sender = Sender::Create(context, options.sender);
  if (!sender) return context.Report(sender.error());
  SampleMaker maker(static_cast<std::uint64_t>(ToMicros(context.deps.clock.Now())));
  if (!options.file.empty()) {
    auto body = ReadInput(context, options.file);
    if (!body) return context.Report(body.error());
    // A sender repeats a delivery under its first id.
    std::string id = options.key.empty() ? "msg_" + maker.MakeCustomer().id.substr(4) : options.key;
    return SendAll(context, options, *sender, [&] { return Parcel{*body, id_in_header ? id : "", options.kind}; });
  }
  return SendAll(context, options, *sender, [&] {
    Customer customer = maker.MakeCustomer();
    auto sample = maker.Make(kind, customer, context.deps.clock.Now(), !options.test_mode, options.key);
    return Parcel{std::move(sample->body), std::move(sample->id), std::move(sample->kind)};
  });
}

}  // namespace

void AddSendCommand(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = context.Command(app, "send", "Sign and post a sample or a file, as a sender would",
                                      [&context, options] { return Send(context, *options); });
  options->sender.AddTo(command);
  command->add_option("--file", options->file, "Send these bytes (- for stdin)");
  command->add_option("--kind", options->kind,
                      fmt::format("Send a sample of this kind: {}", fmt::join(SampleKinds(), ", ")));
  command->add_option("--count", options->count, "How many; samples differ, a file is repeated")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--key", options->key, "Event key; the same for each, so that all but the first are duplicates");
  command->add_flag("--test-mode", options->test_mode, "Samples say livemode false");
}

}  // namespace dlo::cli
