#include "intake/same_event.h"

#include <boost/json/basic_parser_impl.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlo::intake {
namespace {

namespace json = boost::json;

// Writes a text that is equal for equal values: strings by length and bytes, numbers by the characters they came with.
// The parser hands those characters over before it makes a number of them, so no digit passes through a double.
class CanonicalWriter {
 public:
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);

  explicit CanonicalWriter(std::span<const JsonPath> skipped) : skipped_(skipped) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return Open('[', true); }
  bool on_array_end(std::size_t, json::error_code&) { return Close(']'); }
  bool on_object_begin(json::error_code&) { return Open('{', false); }
  bool on_object_end(std::size_t, json::error_code&) { return Close('}'); }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) { return Gather(s); }
  bool on_string(json::string_view s, std::size_t, json::error_code&) {
    Gather(s);
    if (BeginValue()) WriteText('s', gathered_);
    return EndValue();
  }
  bool on_key_part(json::string_view s, std::size_t, json::error_code&) { return Gather(s); }
  bool on_key(json::string_view s, std::size_t, json::error_code&) {
    Gather(s);
    frames_.back().key = std::exchange(gathered_, {});
    return true;
  }
  bool on_number_part(json::string_view s, json::error_code&) { return Gather(s); }
  bool on_int64(std::int64_t, json::string_view s, json::error_code&) { return Number(s); }
  bool on_uint64(std::uint64_t, json::string_view s, json::error_code&) { return Number(s); }
  bool on_double(double, json::string_view s, json::error_code&) { return Number(s); }
  bool on_bool(bool b, json::error_code&) {
    if (BeginValue()) text_ += b ? 't' : 'f';
    return EndValue();
  }
  bool on_null(json::error_code&) {
    if (BeginValue()) text_ += 'z';
    return EndValue();
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  std::string Take() { return std::move(text_); }

 private:
  struct Frame {
    bool array = false;
    std::size_t index = 0;  // of the next element
    std::string key;        // of the current member
  };

  bool Gather(json::string_view s) {
    gathered_.append(s.data(), s.size());
    return true;
  }
  bool Number(json::string_view s) {
    Gather(s);
    if (BeginValue()) WriteText('n', gathered_);
    return EndValue();
  }
  void WriteText(char tag, std::string_view text) {
    text_ += tag;
    text_ += std::to_string(text.size());
    text_ += ':';
    text_ += text;
  }

  // True: the value that begins here is to be written; its key is then out already.
  bool BeginValue() {
    if (skip_depth_ > 0) return false;
    if (IsSkipped()) return false;
    if (!frames_.empty() && !frames_.back().array) WriteText('k', frames_.back().key);
    return true;
  }
  bool EndValue() {
    gathered_.clear();
    if (!frames_.empty()) ++frames_.back().index;
    return true;
  }
  bool Open(char bracket, bool array) {
    if (BeginValue()) {
      text_ += bracket;
    } else {
      ++skip_depth_;
    }
    frames_.push_back({array, 0, {}});
    return true;
  }
  bool Close(char bracket) {
    frames_.pop_back();
    if (skip_depth_ > 0) {
      --skip_depth_;
    } else {
      text_ += bracket;
    }
    return EndValue();
  }

  [[nodiscard]] bool IsSkipped() const {
    for (const auto& path : skipped_) {
      if (path.size() != frames_.size()) continue;
      bool equal = true;
      for (std::size_t i = 0; equal && i < path.size(); ++i) {
        const auto& frame = frames_[i];
        equal = frame.array ? path[i] == std::to_string(frame.index) : path[i] == frame.key;
      }
      if (equal) return true;
    }
    return false;
  }

  std::span<const JsonPath> skipped_;
  std::vector<Frame> frames_;
  std::string gathered_;
  std::string text_;
  std::size_t skip_depth_ = 0;  // open containers inside a skipped value, itself included
};

std::optional<std::string> Canonical(std::span<const JsonPath> skipped, std::string_view body) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::basic_parser<CanonicalWriter> parser(options, skipped);
  const auto text = WithoutByteOrderMark(body);
  json::error_code error;
  const auto used = parser.write_some(false, text.data(), text.size(), error);
  if (error || used != text.size()) return std::nullopt;
  return parser.handler().Take();
}

}  // namespace

bool SameEvent(std::span<const JsonPath> volatile_fields, std::string_view first, std::string_view second) {
  if (first == second) return true;
  const auto a = Canonical(volatile_fields, first);
  if (!a) return false;
  const auto b = Canonical(volatile_fields, second);
  return b && *a == *b;
}

}  // namespace dlo::intake
