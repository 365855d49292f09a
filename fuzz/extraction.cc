// Any body through the extraction of every scheme, and against itself and a changed self in the comparison of events.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "intake/extract.h"
#include "intake/same_event.h"

namespace {

using namespace dlo;

intake::Extractor Make(const std::string& scheme, const std::string& key = {}) {
  SourceConfig source;
  source.name = "fuzz";
  source.scheme = scheme;
  if (!key.empty()) source.key = key;
  return OrThrow(intake::Extractor::Compile(source));
}

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<intake::Extractor> kExtractors = {Make("stripe"), Make("standard-webhooks"), Make("github"),
                                                             Make("none", "/a/0?/b=c|/id+/type|header:X-Id")};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const std::vector<Header> headers = {{"X-Id", std::string(body.substr(0, 600))}};
  for (const auto& extractor : kExtractors) {
    const auto event = extractor.Extract(headers, body);
    Require(!event.key.empty() && event.key.size() <= intake::kMaxFieldBytes);
    Require(event.kind.size() <= intake::kMaxFieldBytes && event.subject.size() <= intake::kMaxFieldBytes);
    Require((event.disposition == Disposition::dispatch) == event.reason.empty());
    Require(intake::SameEvent(extractor.volatile_fields(), body, body));
    // Both ways alike, whatever the answer is.
    const auto other = std::string(body) + " ";
    Require(intake::SameEvent(extractor.volatile_fields(), body, other) ==
            intake::SameEvent(extractor.volatile_fields(), other, body));
  }
  return 0;
}
