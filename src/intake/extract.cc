#include "intake/extract.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <utility>

#include "base/encoding.h"
#include "base/time_text.h"
#include "intake/scheme.h"

namespace dlo::intake {
namespace {

namespace json = boost::json;

// Big enough for the values of an ordinary event, so that reading it allocates nothing.
constexpr std::size_t kValueBuffer = 16 * 1024;
constexpr std::size_t kParseBuffer = 4 * 1024;

// The body as JSON, if it is; lives on the stack of one Extract.
class Document {
 public:
  void Parse(std::string_view body) {
    json::parse_options options;
    options.max_depth = kMaxJsonDepth;
    json::parser parser({}, options, scratch_, sizeof(scratch_));
    parser.reset(&resource_);
    const auto text = WithoutByteOrderMark(body);
    json::error_code error;
    parser.write(text.data(), text.size(), error);
    if (!error) {
      value_.emplace(parser.release());
    } else if (error == json::error::too_deep) {
      problem_ = "the body is JSON nested deeper than 64";
    } else {
      problem_ = text.empty() ? "the body is empty" : "the body is not JSON";
    }
  }

  [[nodiscard]] const json::value* At(const JsonPath& path) const {
    const json::value* at = value_ ? &*value_ : nullptr;
    for (const auto& name : path) {
      if (at == nullptr) return nullptr;
      if (const auto* object = at->if_object()) {
        at = object->if_contains(name);
      } else if (const auto* array = at->if_array()) {
        at = Element(*array, name);
      } else {
        return nullptr;
      }
    }
    return at;
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }  // empty: it is JSON

 private:
  static const json::value* Element(const json::array& array, std::string_view name) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool plain = error == std::errc() && end == name.data() + name.size() && (name.size() == 1 || name[0] != '0');
    return plain ? array.if_contains(index) : nullptr;
  }

  unsigned char values_[kValueBuffer];
  unsigned char scratch_[kParseBuffer];
  json::monotonic_resource resource_{values_, sizeof(values_)};
  std::optional<json::value> value_;  // after the resource: destroyed before it
  std::string problem_;
};

enum class Presence : unsigned char { absent, present, inexact };

struct Read {
  Presence presence = Presence::absent;
  std::string text;
};

Read FromValue(const json::value* value) {
  if (value == nullptr) return {};
  switch (value->kind()) {
    case json::kind::string: {
      const auto& text = value->get_string();
      return text.empty() ? Read{} : Read{Presence::present, std::string(text.data(), text.size())};
    }
    case json::kind::int64:
      return {Presence::present, std::to_string(value->get_int64())};
    case json::kind::uint64:
      return {Presence::present, std::to_string(value->get_uint64())};
    case json::kind::bool_:
      return {Presence::present, value->get_bool() ? "true" : "false"};
    case json::kind::double_:
      return {Presence::inexact, {}};
    case json::kind::null:
    case json::kind::object:
    case json::kind::array:
      return {};
  }
  return {};
}

struct Sources {
  std::span<const Header> headers;
  const Document& document;
};

Read ReadTerm(const FieldTerm& term, const Sources& from) {
  if (!term.header.empty()) {
    for (const auto& header : from.headers) {
      if (!EqualIgnoringCase(header.name, term.header)) continue;
      const auto value = Trimmed(header.value);
      return value.empty() ? Read{} : Read{Presence::present, std::string(value)};
    }
    return {};
  }
  if (!term.condition.empty()) {
    const auto condition = FromValue(from.document.At(term.condition));
    if (condition.presence != Presence::present || condition.text != term.condition_text) return {};
  }
  return FromValue(from.document.At(term.pointer));
}

Read ReadField(const FieldSpec& spec, const Sources& from, bool every_term) {
  for (const auto& terms : spec) {
    Read joined = ReadTerm(terms.front(), from);
    for (std::size_t i = 1; i < terms.size() && joined.presence == Presence::present; ++i) {
      const auto next = ReadTerm(terms[i], from);
      if (next.presence == Presence::present) {
        joined.text += '.' + next.text;
      } else if (next.presence == Presence::inexact || every_term) {
        joined.presence = next.presence;
      }
    }
    if (joined.presence != Presence::absent) return joined;
  }
  return {};
}

// Empty: usable. Else what is wrong with it.
std::string_view Unusable(const Read& read) {
  if (read.presence == Presence::inexact) {
    return "is a number that is not an integer of 64 bits; it is not taken through binary floating point: point at a "
           "text";
  }
  if (read.text.size() > kMaxFieldBytes) return "is longer than 512 bytes";
  bool ascii = true;
  for (const unsigned char c : read.text) {
    if (c < 0x20 || c == 0x7f) return "has control characters";
    ascii = ascii && c < 0x7f;
  }
  if (!ascii && CleanText(read.text, kMaxFieldBytes) != read.text) return "is not clean UTF-8";
  return {};
}

std::optional<bool> AsBool(const Read& read) {
  if (read.text == "true") return true;
  if (read.text == "false") return false;
  return std::nullopt;
}

std::optional<Time> AsTime(const Read& read) {
  if (read.presence != Presence::present) return std::nullopt;
  if (const auto seconds = ParseDigits(read.text)) return TimeFromSeconds(*seconds);
  return ParseTime(read.text);
}

bool HasPointer(const FieldSpec& spec) {
  return std::ranges::any_of(spec, [](const auto& terms) {
    return std::ranges::any_of(terms, [](const FieldTerm& term) { return term.header.empty(); });
  });
}

void MarkInvalid(Extracted& event, std::string reason) {
  if (event.disposition == Disposition::invalid) return;  // the first reason is the nearest to the cause
  event.disposition = Disposition::invalid;
  event.reason = std::move(reason);
}

void FillText(const FieldSpec& spec, const Sources& from, const char* name, std::string Extracted::* field,
              Extracted& event) {
  auto read = ReadField(spec, from, false);
  const auto problem = Unusable(read);
  if (!problem.empty()) {
    MarkInvalid(event, std::string(name) + " " + std::string(problem));
    return;
  }
  event.*field = std::move(read.text);
}

}  // namespace

std::string DigestKey(std::string_view body) {
  return "sha256:" + HexEncode(Sha256(body));
}

Result<Extractor> Extractor::Compile(const SourceConfig& source) {
  const auto texts = FieldTextsFor(source);
  Extractor made;
  made.key_text_ = texts.key;
  made.require_live_ = source.require_live;
  struct Row {
    const char* name;
    const std::string& text;
    FieldSpec& spec;
  };
  for (const auto& [name, text, spec] :
       {Row{"key", texts.key, made.key_}, Row{"kind", texts.kind, made.kind_},
        Row{"subject", texts.subject, made.subject_}, Row{"account", texts.account, made.account_},
        Row{"livemode", texts.livemode, made.livemode_}, Row{"occurred_at", texts.occurred_at, made.occurred_at_}}) {
    auto parsed = ParseFieldSpec(text);
    if (!parsed)
      return Fail(ErrorKind::invalid, parsed.error().code, std::string(name) + ": " + parsed.error().message);
    spec = std::move(*parsed);
    made.needs_json_ = made.needs_json_ || HasPointer(spec);
  }
  for (const auto& text : texts.volatile_fields) {
    auto path = ParsePointer(text);
    if (!path) return Fail(ErrorKind::invalid, path.error().code, "volatile_fields: " + path.error().message);
    made.volatile_fields_.push_back(std::move(*path));
  }
  return made;
}

Extracted Extractor::Extract(std::span<const Header> headers, std::string_view body) const {
  Document document;
  if (needs_json_) document.Parse(body);
  const Sources from{headers, document};
  Extracted event;

  if (!key_.empty()) {
    auto read = ReadField(key_, from, true);
    if (read.presence == Presence::absent) {
      const bool unread = HasPointer(key_) && !document.problem().empty();
      MarkInvalid(event, "no event key: " + (unread ? document.problem() : "nothing at " + key_text_));
    } else if (const auto problem = Unusable(read); !problem.empty()) {
      MarkInvalid(event, "the event key at " + key_text_ + " " + std::string(problem));
    } else {
      event.key = std::move(read.text);
    }
  }
  if (event.key.empty()) event.key = DigestKey(body);

  FillText(kind_, from, "kind", &Extracted::kind, event);
  FillText(subject_, from, "subject", &Extracted::subject, event);
  FillText(account_, from, "account", &Extracted::account, event);
  event.livemode = AsBool(ReadField(livemode_, from, false));
  event.occurred_at = AsTime(ReadField(occurred_at_, from, false));
  if (event.disposition == Disposition::dispatch && require_live_ && event.livemode == false) {
    event.disposition = Disposition::test_event;
    event.reason = "a test-mode event on a source that takes live ones only";
  }
  return event;
}

}  // namespace dlo::intake
