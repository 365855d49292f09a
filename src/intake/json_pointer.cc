#include "intake/json_pointer.h"

#include <utility>

#include "base/encoding.h"

namespace dlo::intake {

Result<JsonPath> ParsePointer(std::string_view text) {
  const auto broken = [&](const char* rule) {
    return Fail(ErrorKind::invalid, "bad_pointer", "\"" + CleanText(text, 128) + "\": " + rule);
  };
  if (!text.starts_with('/')) return broken("a JSON pointer begins with '/', like \"/data/object/id\"");
  JsonPath path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') {
      path.emplace_back();
    } else if (text[i] != '~') {
      path.back() += text[i];
    } else if (i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      path.back() += text[++i] == '0' ? '~' : '/';
    } else {
      return broken("in a JSON pointer '~' is written ~0 and '/' inside a name ~1");
    }
  }
  if (path.size() > kMaxJsonDepth) return broken("is deeper than 64 names");
  return path;
}

std::string_view WithoutByteOrderMark(std::string_view body) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (body.starts_with(kMark)) body.remove_prefix(kMark.size());
  return body;
}

}  // namespace dlo::intake
