#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <memory>

#include "base/encoding.h"

namespace dlo::log {
namespace {

spdlog::logger& Logger() {
  // Never destroyed: threads may log until the process ends.
  static auto* logger = [] {
    auto* l = new spdlog::logger("dlo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern(R"({"at":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})", spdlog::pattern_time_type::utc);
    l->set_level(spdlog::level::info);
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *logger;
}

/// JSON text of a string from outside: cleaned, controls and line separators escaped.
std::string Quoted(std::string_view text) {
  std::string quoted = boost::json::serialize(boost::json::string(CleanText(text, 2'000)));
  for (const std::string_view separator :
       {"\xE2\x80\xA8", "\xE2\x80\xA9"}) {  // U+2028, U+2029 end a line in some viewers
    for (std::size_t at = 0; (at = quoted.find(separator, at)) != std::string::npos;) {
      quoted.replace(at, separator.size(), separator.back() == '\xA8' ? "\\u2028" : "\\u2029");
    }
  }
  return quoted;
}

std::string Render(const Field& field) {
  std::string out = "," + Quoted(field.name) + ":";
  if (const auto* s = std::get_if<std::string>(&field.value)) return out + Quoted(*s);
  if (const auto* i = std::get_if<std::int64_t>(&field.value)) return out + std::to_string(*i);
  if (const auto* d = std::get_if<double>(&field.value)) return out + boost::json::serialize(boost::json::value(*d));
  return out + (std::get<bool>(field.value) ? "true" : "false");
}

void Write(spdlog::level::level_enum level, std::string_view event, Fields fields) {
  spdlog::logger& logger = Logger();
  if (!logger.should_log(level)) return;
  std::string line = "\"event\":" + Quoted(event);
  for (const Field& field : fields) line += Render(field);
  logger.log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void SetLevel(std::string_view level) {
  spdlog::level::level_enum parsed = spdlog::level::info;
  if (level == "debug") parsed = spdlog::level::debug;
  if (level == "warn") parsed = spdlog::level::warn;
  if (level == "error") parsed = spdlog::level::err;
  if (level == "off") parsed = spdlog::level::off;
  Logger().set_level(parsed);
}

void Debug(std::string_view event, Fields fields) {
  Write(spdlog::level::debug, event, fields);
}
void Info(std::string_view event, Fields fields) {
  Write(spdlog::level::info, event, fields);
}
void Warn(std::string_view event, Fields fields) {
  Write(spdlog::level::warn, event, fields);
}
void Error(std::string_view event, Fields fields) {
  Write(spdlog::level::err, event, fields);
}

}  // namespace dlo::log
