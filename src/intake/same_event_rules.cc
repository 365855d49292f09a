#include "intake/same_event_rules.h"

#include "intake/extract.h"
#include "intake/same_event.h"

namespace dlo::intake {

SameEventRules::SameEventRules(std::span<const SourceConfig> sources) {
  for (const SourceConfig& source : sources) {
    std::vector<JsonPath>& paths = volatile_fields_[source.name];
    for (const std::string& text : FieldTextsFor(source).volatile_fields) {
      if (auto path = ParsePointer(text)) paths.push_back(std::move(*path));
    }
  }
}

bool SameEventRules::SameEvent(const std::string& source, std::string_view first, std::string_view second) const {
  const auto found = volatile_fields_.find(source);
  return found == volatile_fields_.end() ? first == second : intake::SameEvent(found->second, first, second);
}

}  // namespace dlo::intake
