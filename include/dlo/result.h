// Errors as values. Every call of the library that can fail for a reason outside the program's control returns a
// Result; each has a sibling `...OrThrow` that raises Failure instead. Programmer errors assert.
#pragma once

#include <expected>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace dlo {

enum class ErrorKind {
  unavailable,  // try again later: the store cannot commit, the queue is full, the server is stopping
  conflict,     // the state of the event does not allow this
  not_found,
  invalid,    // the caller's input is wrong; the message says which part
  corrupt,    // stored bytes fail their checksum
  forbidden,  // the caller's role does not allow this
  too_large,  // over a limit; the message names the limit
};

/// `code` is stable and for programs ("not_found", "already_replayed"); `message` is for people and says what to do.
struct Error {
  ErrorKind kind = ErrorKind::invalid;
  std::string code;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> Fail(ErrorKind kind, std::string code, std::string message) {
  return std::unexpected(Error{kind, std::move(code), std::move(message)});
}

/// What the `...OrThrow` forms raise.
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
};

template <typename T>
T OrThrow(Result<T> result) {
  if (!result) throw Failure(std::move(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace dlo
