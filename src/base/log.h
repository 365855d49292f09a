// Structured logs: one JSON object a line on stderr, controls escaped. Never give it a secret, a signature or a body.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace dlo::log {

struct Field {
  std::string_view name;
  std::variant<std::string, std::int64_t, double, bool> value;
  Field(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
  Field(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
  Field(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  Field(std::string_view n, bool v) : name(n), value(v) {}
  Field(std::string_view n, double v) : name(n), value(v) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Field(std::string_view n, T v) : name(n), value(static_cast<std::int64_t>(v)) {}
};

using Fields = std::initializer_list<Field>;

/// debug | info | warn | error | off. Anything else is treated as info.
void SetLevel(std::string_view level);
void Debug(std::string_view event, Fields fields = {});
void Info(std::string_view event, Fields fields = {});
void Warn(std::string_view event, Fields fields = {});
void Error(std::string_view event, Fields fields = {});

}  // namespace dlo::log
