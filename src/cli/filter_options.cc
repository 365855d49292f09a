#include "cli/filter_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/time_text.h"
#include "cli/api_client.h"
#include "cli/text.h"
#include "dlo/states.h"

namespace dlo::cli {
namespace {

struct About {
  std::string_view name, text;
};
constexpr About kAbout[] = {
    {"type", "Kind of event, \"invoice.paid\" (repeatable)"},
    {"source", "Name of the source (repeatable)"},
    {"subject", "What order is kept by, a subscription (repeatable)"},
    {"account", "Account of the event (repeatable)"},
    {"class", "Failure class (repeatable)"},
    {"state", "State; dead and held unless given (repeatable)"},
    {"since", "Received at or after: RFC 3339, a date, or an age (2h, 3d)"},
    {"until", "Received before: RFC 3339 or an age; a date includes that day"},
    {"livemode", "true or false"},
    {"fingerprint", "Group of like failures, from `dlo groups`"},
    {"q", "Text in the error, the key or the subject"},
    {"overdue", "Only held letters that are past their date, or whose handler version is out"},
    {"not-judged-by", "Only letters that this handler version has not judged"},
};

std::string AboutOf(std::string_view name) {
  for (const About& about : kAbout) {
    if (about.name == name) return std::string(about.text);
  }
  return {};
}

template <typename Enum>
std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(Name(static_cast<Enum>(i)));
  return names;
}

// The API's name of an option: a command line has no "_".
std::string WordOf(std::string_view name) {
  std::string word(name);
  std::ranges::replace(word, '-', '_');
  return word;
}

}  // namespace

void FilterOptions::AddTo(CLI::App* command, std::string_view until) {
  for (Many& many : many_) {
    std::string_view name = many.name;
    CLI::Option* option = command->add_option(fmt::format("--{}", name), many.values, AboutOf(name));
    option->allow_extra_args(false)->group("Filter");  // one value a flag: the next word is an id or a mistake
    if (name == "class") {
      std::vector<std::string> classes = Names<FailureClass>(kClassCount);
      std::erase(classes, Name(FailureClass::none));
      option->check(CLI::IsMember(classes));
    }
    if (name == "state") option->check(CLI::IsMember(Names<State>(kStateCount)));
  }
  for (One& one : one_) {
    std::string_view name = one.name;
    if (name == "overdue") {
      command->add_flag(fmt::format("--{}{{true}}", name), one.value, AboutOf(name))->group("Filter");
      continue;
    }
    CLI::Option* option =
        command->add_option(fmt::format("--{}", name == "until" ? until : name), one.value, AboutOf(name));
    option->group("Filter");
    if (name == "livemode") option->check(CLI::IsMember({"true", "false"}));
  }
}

void FilterOptions::Only(std::string_view name, const std::string& value) {
  for (Many& many : many_) {
    if (many.name == name) many.values = {value};
  }
  for (One& one : one_) {
    if (one.name == name) one.value = value;
  }
}

Result<void> FilterOptions::Check(Time now) {
  for (One& one : one_) {
    std::string_view name = one.name;
    if ((name != "since" && name != "until") || one.value.empty() || ParseTime(one.value)) continue;
    std::optional<Duration> age = ParseDuration(one.value);
    if (!age) {
      return Fail(ErrorKind::invalid, "usage",
                  fmt::format("--{} \"{}\" is no time; write 2026-11-30, 2026-11-30T13:00:00Z, or an age like 2h or 3d",
                              name, one.value));
    }
    one.value = FormatTime(now - *age);
  }
  return {};
}

bool FilterOptions::Empty() const {
  for (const Many& many : many_) {
    if (!many.values.empty()) return false;
  }
  for (const One& one : one_) {
    if (!one.value.empty()) return false;
  }
  return true;
}

std::string FilterOptions::Query() const {
  std::string query;
  auto add = [&](std::string_view name, std::string_view value) {
    query += fmt::format("{}{}={}", query.empty() ? "" : "&", WordOf(name), UrlEncode(value));
  };
  for (const Many& many : many_) {
    for (const std::string& value : many.values) add(many.name, value);
  }
  for (const One& one : one_) {
    if (!one.value.empty()) add(one.name, one.value);
  }
  return query;
}

boost::json::object FilterOptions::Json() const {
  boost::json::object filter;
  for (const Many& many : many_) {
    if (many.values.empty()) continue;
    boost::json::array values;
    for (const std::string& value : many.values) values.emplace_back(value);
    filter[many.name] = std::move(values);
  }
  for (const One& one : one_) {
    if (one.value.empty()) continue;
    const std::string word = WordOf(one.name);
    if (word == "livemode" || word == "overdue") {
      filter[word] = one.value == "true";
    } else {
      filter[word] = one.value;
    }
  }
  return filter;
}

std::string FilterOptions::Words() const {
  std::string words;
  auto add = [&](std::string_view name, std::string_view value) {
    words += fmt::format("{}--{} {}", words.empty() ? "" : " ", name, ShellWord(value));
  };
  for (const Many& many : many_) {
    for (const std::string& value : many.values) add(many.name, value);
  }
  for (const One& one : one_) {
    if (std::string_view(one.name) == "overdue") {
      if (!one.value.empty()) words += words.empty() ? "--overdue" : " --overdue";
    } else if (!one.value.empty()) {
      add(one.name, one.value);
    }
  }
  return words;
}

}  // namespace dlo::cli
