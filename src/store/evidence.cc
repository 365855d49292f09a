#include "store/evidence.h"

#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

std::optional<std::int64_t> Number(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_int64() || value->as_int64() < 0) return std::nullopt;
  return value->as_int64();
}

std::string Text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

/// In small letters, as we compare it; empty for anything else.
std::string Digest(const json::object& object, std::string_view name) {
  const auto bytes = HexDecode(Text(object, name));
  return bytes && bytes->size() == sizeof(Sha256Digest) ? HexEncode(*bytes) : std::string();
}

}  // namespace

std::string HeadToJson(const EvidenceHead& head) {
  json::object out{{"seq", head.seq}, {"hash", head.hash}, {"at", FormatTime(head.at)}, {"journal", nullptr}};
  if (head.segment > 0) {
    out["journal"] =
        json::object{{"segment", head.segment}, {"bytes", head.segment_bytes}, {"sha256", head.segment_sha256}};
  }
  return json::serialize(out);
}

std::optional<EvidenceHead> HeadFromJson(std::string_view line) {
  boost::system::error_code error;
  const json::value value = json::parse(line, error);
  const json::object* object = error ? nullptr : value.if_object();
  if (object == nullptr) return std::nullopt;
  const auto seq = Number(*object, "seq");
  const auto at = ParseTime(Text(*object, "at"));
  EvidenceHead head{.seq = seq.value_or(0), .hash = Digest(*object, "hash"), .at = at.value_or(Time{})};
  if (!seq || !at || head.hash.empty()) return std::nullopt;
  const json::value* journal = object->if_contains("journal");
  if (journal == nullptr || !journal->is_object()) return head;
  const auto segment = Number(journal->as_object(), "segment"), bytes = Number(journal->as_object(), "bytes");
  head.segment_sha256 = Digest(journal->as_object(), "sha256");
  if (!segment || !bytes || head.segment_sha256.empty()) return std::nullopt;
  head.segment = *segment;
  head.segment_bytes = *bytes;
  return head;
}

}  // namespace dlo::store
